//! The workload, distributed over the sessions.
//!
//! ```text
//! sequence   one per target (stripe), or one for all (mirror)
//!   lane     one per session (stripe), or one per session of every target (mirror): queue_depth calls in progress
//!     call   a system call: its commands are submitted together; ends when all have ended, on all mirror sides
//! ```

use super::Client;
use super::run::Lane;
use crate::workload::sequence::{Sequence, share};
use crate::workload::settings::Layout;

impl Client {
    /// Starts the workload once all logical units are identified.
    pub(super) fn begin_run(&mut self, now_ns: i64) {
        if let Err(text) = self.make_lanes() {
            self.problem(text);
            self.run.is_stopping = true;
            return;
        }
        (self.run.started_ns, self.run.ended_ns) = (Some(now_ns), now_ns);
        self.begin_tuning(now_ns);
        self.expect_incidents(now_ns);
        // one call per lane in turn, so that blocks are spread over all lanes from the first on
        loop {
            let begun = (0..self.run.lanes.len()).filter(|lane| self.begin_call(now_ns, *lane)).count();
            if begun == 0 {
                return;
            }
        }
    }

    fn make_lanes(&mut self) -> Result<(), String> {
        let workload = &self.settings.workload;
        let per_target = usize::from(workload.sessions);
        let target_count = self.settings.targets.len();
        let mut spans = Vec::new();
        for target in 0..target_count {
            let unit = self.sessions.get(target * per_target).and_then(|client_session| client_session.unit.as_ref());
            let unit = unit.ok_or("a logical unit is unknown")?;
            let block_length = u64::from(unit.block_length_bytes);
            for (name, bytes) in [("a call", workload.call_bytes()), ("a command", workload.command_bytes())] {
                if !bytes.is_multiple_of(block_length) {
                    return Err(format!(
                        "{name} of {bytes} bytes is no multiple of the logical block of {block_length} bytes"
                    ));
                }
            }
            let first = workload.start_lba.saturating_mul(block_length);
            let room = unit.capacity_bytes().saturating_sub(first);
            let span = workload.span_bytes.unwrap_or(room);
            if first >= unit.capacity_bytes() || span > room {
                return Err(format!("the logical unit ends at block {}, before the span does", unit.block_count));
            }
            spans.push((first, span, block_length));
        }
        let call_bytes = workload.call_bytes();
        let sequence_count = if workload.layout == Layout::Mirror { 1 } else { target_count };
        let total_bytes = workload.total_bytes;
        for index in 0..sequence_count {
            let (first, mut span, block_length) = spans[index];
            if workload.layout == Layout::Mirror {
                span = spans.iter().map(|span| span.1).min().unwrap_or(span);
            }
            let left = total_bytes.map(|total| {
                share(total.next_multiple_of(block_length), call_bytes, sequence_count as u64, index as u64)
            });
            let seed = workload.seed.wrapping_add(index as u64);
            let sequence = Sequence::new(first, span, call_bytes, workload.access, seed, left);
            let too_small = || format!("a span of {span} bytes has no room for a call of {call_bytes} bytes");
            self.run.sequences.push(sequence.ok_or_else(too_small)?);
        }
        for session in 0..per_target {
            let sessions = (0..target_count).map(|target| target * per_target + session);
            match workload.layout {
                Layout::Mirror => {
                    let sessions = sessions.collect();
                    self.run.lanes.push(Lane { sessions, sequence: 0, busy_count: 0, turn: session });
                }
                Layout::Stripe => self.run.lanes.extend(sessions.enumerate().map(|(sequence, session)| Lane {
                    sessions: vec![session],
                    sequence,
                    busy_count: 0,
                    turn: 0,
                })),
            }
        }
        Ok(())
    }
}
