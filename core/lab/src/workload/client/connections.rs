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
use super::tuning_state::Phase;
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
        let Some(tuning) = &mut self.tuning else { return };
        let client_session = &mut self.sessions[SESSION];
        let wanted = usize::from(tuning.step.connections);
        let mut is_changed = false;
        while tuning.in_use.len() > wanted
            && let Some(connection) = tuning.in_use.pop()
        {
            client_session.dealer.retire(connection);
            client_session.session.remove_connection(now_ns, connection);
            is_changed = true;
        }
        let more = wanted.saturating_sub(tuning.in_use.len());
        let joining = (0..more).map_while(|_| client_session.session.add_connection()).count();
        self.joining_count += joining;
        if joining > 0 {
            tuning.phase = Phase::Joining(joining);
        } else if is_changed {
            self.settle_connections(now_ns);
        } else {
            self.begin_measuring(now_ns);
        }
    }

    /// A connection that was added takes commands.
    pub(super) fn joined(&mut self, now_ns: i64, connection: usize) {
        let Some(tuning) = &mut self.tuning else { return };
        tuning.in_use.push(connection);
        let depth = self.settings.workload.queue_depth as usize;
        let client_session = &mut self.sessions[SESSION];
        client_session.dealer.join(connection, depth);
        client_session.counts.resize(client_session.counts.len().max(connection + 1), (0, 0));
        self.begin_calls(now_ns, 0);
        self.end_joining(now_ns);
    }

    /// An added connection failed: no more are available.
    pub(super) fn refused(&mut self, now_ns: i64, reason: String) {
        let Some(tuning) = &mut self.tuning else { return };
        tuning.refusal.get_or_insert(reason);
        self.end_joining(now_ns);
    }

    fn end_joining(&mut self, now_ns: i64) {
        self.joining_count = self.joining_count.saturating_sub(1);
        let Some(tuning) = &mut self.tuning else { return };
        let Phase::Joining(left) = &mut tuning.phase else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        let now = tuning.in_use.len();
        // a target that accepted more before may still be closing the others
        if now < usize::from(tuning.step.connections) && now >= tuning.most_used {
            tuning.tuner.limit(now as u16);
        }
        tuning.most_used = tuning.most_used.max(now);
        self.settle_connections(now_ns);
    }

    fn settle_connections(&mut self, now_ns: i64) {
        let Some(tuning) = &mut self.tuning else { return };
        if tuning.settings.is_unsettled {
            return self.begin_measuring(now_ns);
        }
        tuning.phase = Phase::Settling(tuning.in_use.clone());
    }

    fn begin_measuring(&mut self, now_ns: i64) {
        let Some(tuning) = &mut self.tuning else { return };
        tuning.phase = Phase::Measuring(now_ns);
        tuning.serial += 1;
        (tuning.bytes, tuning.commands, tuning.command_ns) = (0, 0, 0);
        tuning.moved_before = self.sessions[SESSION].volume.moved_bytes();
        if tuning.settings.measure_bytes.is_none() {
            let (at_ns, wake) = (now_ns.saturating_add(tuning.settings.measure_ns), Wake::Measured(tuning.serial));
            self.wake_at(at_ns, wake);
        }
    }

    /// A command of the workload completed.
    pub(super) fn count_for_tuning(&mut self, now_ns: i64, connection: usize, bytes: u64, command_ns: i64) {
        let Some(tuning) = &mut self.tuning else { return };
        match &mut tuning.phase {
            Phase::Settling(left) => {
                left.retain(|waiting| *waiting != connection);
                if left.is_empty() {
                    self.begin_measuring(now_ns);
                }
            }
            Phase::Measuring(_) => {
                tuning.bytes += bytes;
                tuning.commands += 1;
                tuning.command_ns = tuning.command_ns.saturating_add(command_ns);
                if tuning.settings.measure_bytes.is_some_and(|enough| tuning.bytes >= enough) {
                    self.end_measuring(now_ns);
                }
            }
            Phase::Idle | Phase::Joining(_) => {}
        }
    }

    /// The time of a measurement has elapsed.
    pub(super) fn measured(&mut self, now_ns: i64, serial: u64) {
        if self.tuning.as_ref().is_some_and(|tuning| tuning.serial == serial) {
            self.end_measuring(now_ns);
        }
    }

    fn end_measuring(&mut self, now_ns: i64) {
        let is_over = self.run.is_over(now_ns);
        let Some(tuning) = &mut self.tuning else { return };
        let Phase::Measuring(since_ns) = tuning.phase else { return };
        if is_over {
            tuning.phase = Phase::Idle;
            return;
        }
        // few commands complete when they are long, so the bytes moved for the others count too, except when it
        // measures at once or by bytes
        let is_by_command = tuning.settings.is_unsettled || tuning.settings.measure_bytes.is_some();
        let moved = self.sessions[SESSION].volume.moved_bytes() - tuning.moved_before;
        let bytes = if is_by_command { tuning.bytes } else { moved };
        let goodput_bytes_per_s = bytes as f64 * 1e9 / (now_ns - since_ns).max(1) as f64;
        let measured = Measurement { connections: tuning.in_use.len() as u16, goodput_bytes_per_s };
        let next = tuning.tuner.next(measured);
        let started_ns = self.run.started_ns.unwrap_or(now_ns);
        tuning.steps.push(TuningStep {
            time_s: (now_ns - started_ns) as f64 / 1e9,
            connections: measured.connections,
            goodput_bytes_per_s,
            command_s: (tuning.commands > 0).then(|| tuning.command_ns as f64 / 1e9 / tuning.commands as f64),
            decision: next.decision,
            next_connections: next.connections,
            why: next.why.clone(),
        });
        if next.decision == Decision::Settle {
            tuning.converged_ns.get_or_insert(now_ns);
        }
        tuning.step = next;
        self.take_step(now_ns);
    }

    /// A connection of the session ended.
    pub(super) fn forget_connection(&mut self, now_ns: i64, connection: usize) {
        // at the end all of them do
        let Some(tuning) = self.tuning.as_mut().filter(|_| !self.is_leaving) else { return };
        tuning.in_use.retain(|used| *used != connection);
        if let Phase::Settling(left) = &mut tuning.phase
            && left.contains(&connection)
        {
            left.retain(|waiting| *waiting != connection);
            if left.is_empty() {
                self.begin_measuring(now_ns);
            }
        }
    }
}
