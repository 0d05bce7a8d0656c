//! The number of connections of a session while the workload runs: opens and closes connections as the tuner decides,
//! and measures the goodput.
//!
//! ```text
//! step -> joining    surplus connections leave at once; new ones log in, or are refused
//!      -> settling   until each connection in use has completed a command
//!      -> measuring  for a time, or a number of bytes
//!      -> the tuner's next step
//! ```
//!
//! Commands in flight: the number of connections times the queue depth. It never decides how many.

use super::results::TuningStep;
use super::tuned::Phase;
use super::{Client, Wake};
use crate::workload::tuning::{Decision, Measurement};

/// The only session, which is tuned.
const SESSION: usize = 0;

impl Client {
    /// The workload begins, with the first step.
    pub(super) fn begin_tuning(&mut self, now_ns: i64) {
        self.take_step(now_ns);
    }

    /// Opens and closes connections for the current step.
    fn take_step(&mut self, now_ns: i64) {
        let Some(tuned) = &mut self.tuned else { return };
        let driven = &mut self.sessions[SESSION];
        let wanted = usize::from(tuned.step.connections);
        let mut is_changed = false;
        while tuned.in_use.len() > wanted
            && let Some(connection) = tuned.in_use.pop()
        {
            driven.dealer.retire(connection);
            driven.session.remove_connection(now_ns, connection);
            is_changed = true;
        }
        let more = wanted.saturating_sub(tuned.in_use.len());
        let joining = (0..more).map_while(|_| driven.session.add_connection()).count();
        self.joining_count += joining;
        if joining > 0 {
            tuned.phase = Phase::Joining(joining);
        } else if is_changed {
            self.settle_connections(now_ns);
        } else {
            self.begin_measuring(now_ns);
        }
    }

    /// A connection that was added takes commands.
    pub(super) fn joined(&mut self, now_ns: i64, connection: usize) {
        let Some(tuned) = &mut self.tuned else { return };
        tuned.in_use.push(connection);
        let depth = self.settings.workload.queue_depth as usize;
        let driven = &mut self.sessions[SESSION];
        driven.dealer.join(connection, depth);
        driven.counts.resize(driven.counts.len().max(connection + 1), (0, 0));
        self.begin_calls(now_ns, 0);
        self.end_joining(now_ns);
    }

    /// An added connection failed: no more are available.
    pub(super) fn refused(&mut self, now_ns: i64, reason: String) {
        let Some(tuned) = &mut self.tuned else { return };
        tuned.refusal.get_or_insert(reason);
        self.end_joining(now_ns);
    }

    fn end_joining(&mut self, now_ns: i64) {
        self.joining_count = self.joining_count.saturating_sub(1);
        let Some(tuned) = &mut self.tuned else { return };
        let Phase::Joining(left) = &mut tuned.phase else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        let now = tuned.in_use.len();
        // a target that accepted more before may still be closing the others
        if now < usize::from(tuned.step.connections) && now >= tuned.most_used {
            tuned.tuner.limit(now as u16);
        }
        tuned.most_used = tuned.most_used.max(now);
        self.settle_connections(now_ns);
    }

    fn settle_connections(&mut self, now_ns: i64) {
        let Some(tuned) = &mut self.tuned else { return };
        if tuned.settings.is_unsettled {
            return self.begin_measuring(now_ns);
        }
        tuned.phase = Phase::Settling(tuned.in_use.clone());
    }

    fn begin_measuring(&mut self, now_ns: i64) {
        let Some(tuned) = &mut self.tuned else { return };
        tuned.phase = Phase::Measuring(now_ns);
        tuned.serial += 1;
        (tuned.bytes, tuned.commands, tuned.command_ns) = (0, 0, 0);
        tuned.moved_before = self.sessions[SESSION].volume.moved_bytes();
        if tuned.settings.measure_bytes.is_none() {
            let (at_ns, wake) = (now_ns.saturating_add(tuned.settings.measure_ns), Wake::Measured(tuned.serial));
            self.wake_at(at_ns, wake);
        }
    }

    /// A command of the workload completed.
    pub(super) fn count_for_tuning(&mut self, now_ns: i64, connection: usize, bytes: u64, command_ns: i64) {
        let Some(tuned) = &mut self.tuned else { return };
        match &mut tuned.phase {
            Phase::Settling(left) => {
                left.retain(|waiting| *waiting != connection);
                if left.is_empty() {
                    self.begin_measuring(now_ns);
                }
            }
            Phase::Measuring(_) => {
                tuned.bytes += bytes;
                tuned.commands += 1;
                tuned.command_ns = tuned.command_ns.saturating_add(command_ns);
                if tuned.settings.measure_bytes.is_some_and(|enough| tuned.bytes >= enough) {
                    self.end_measuring(now_ns);
                }
            }
            Phase::Idle | Phase::Joining(_) => {}
        }
    }

    /// The time of a measurement has elapsed.
    pub(super) fn measured(&mut self, now_ns: i64, serial: u64) {
        if self.tuned.as_ref().is_some_and(|tuned| tuned.serial == serial) {
            self.end_measuring(now_ns);
        }
    }

    fn end_measuring(&mut self, now_ns: i64) {
        let is_over = self.run.is_over(now_ns);
        let Some(tuned) = &mut self.tuned else { return };
        let Phase::Measuring(since_ns) = tuned.phase else { return };
        if is_over {
            tuned.phase = Phase::Idle;
            return;
        }
        // few commands complete when they are long, so the bytes moved for the others count too, except when it
        // measures at once or by bytes
        let is_by_command = tuned.settings.is_unsettled || tuned.settings.measure_bytes.is_some();
        let moved = self.sessions[SESSION].volume.moved_bytes() - tuned.moved_before;
        let bytes = if is_by_command { tuned.bytes } else { moved };
        let goodput_bytes_per_s = bytes as f64 * 1e9 / (now_ns - since_ns).max(1) as f64;
        let measured = Measurement { connections: tuned.in_use.len() as u16, goodput_bytes_per_s };
        let next = tuned.tuner.next(measured);
        let started_ns = self.run.started_ns.unwrap_or(now_ns);
        tuned.steps.push(TuningStep {
            time_s: (now_ns - started_ns) as f64 / 1e9,
            connections: measured.connections,
            goodput_bytes_per_s,
            command_s: (tuned.commands > 0).then(|| tuned.command_ns as f64 / 1e9 / tuned.commands as f64),
            decision: next.decision,
            next_connections: next.connections,
            why: next.why.clone(),
        });
        if next.decision == Decision::Settle {
            tuned.converged_ns.get_or_insert(now_ns);
        }
        tuned.step = next;
        self.take_step(now_ns);
    }

    /// A connection of the session ended.
    pub(super) fn forget_connection(&mut self, now_ns: i64, connection: usize) {
        // at the end all of them do
        let Some(tuned) = self.tuned.as_mut().filter(|_| !self.is_leaving) else { return };
        tuned.in_use.retain(|used| *used != connection);
        if let Phase::Settling(left) = &mut tuned.phase
            && left.contains(&connection)
        {
            left.retain(|waiting| *waiting != connection);
            if left.is_empty() {
                self.begin_measuring(now_ns);
            }
        }
    }
}
