//! System calls of the workload: the commands of a call are submitted together, and the call ends when all of them have
//! ended.

use iscsitrace_wire::lun;

use super::client_session::Pending;
use super::results::TaskRecord;
use super::run::OpenCall;
use super::sense::{describe, is_for_now};
use super::volume::Purpose;
use super::{Client, Wake};
use crate::protocol::initiator::{Completion, Outcome};
use crate::workload::sequence::Sequence;
use crate::workload::settings::{Contents, Operation};
use crate::workload::split;

/// Most retries of a command after BUSY, TASK SET FULL or UNIT ATTENTION.
const MOST_TRIES: u32 = 1000;
/// Delay of a retry after BUSY and TASK SET FULL.
const RETRY_NS: i64 = 1_000_000;

impl Client {
    /// Starts as many calls of a lane as its depth allows.
    pub(super) fn begin_calls(&mut self, now_ns: i64, lane: usize) {
        while self.begin_call(now_ns, lane) {}
    }

    /// Most calls in progress in a lane. With tuning: the queue depth per connection in use, plus the commands of
    /// connections that are leaving.
    fn depth(&self, lane: usize) -> usize {
        let depth = self.settings.workload.queue_depth as usize;
        let session = self.run.lanes.get(lane).and_then(|lane| lane.sessions.first());
        match session.and_then(|session| self.sessions.get(*session)).filter(|_| self.tuning.is_some()) {
            Some(client_session) => depth * client_session.dealer.open_count() + client_session.dealer.leaving_load(),
            None => depth,
        }
    }

    /// Starts the next call of a lane; false when there is none now.
    pub(super) fn begin_call(&mut self, now_ns: i64, lane_index: usize) -> bool {
        let depth = self.depth(lane_index);
        let run = &mut self.run;
        let workload = &self.settings.workload;
        let is_over = run.is_over(now_ns);
        let Some(lane) = run.lanes.get_mut(lane_index) else { return false };
        if is_over || self.incidents.is_paused || lane.busy_count as usize >= depth {
            return false;
        }
        let Some(call) = run.sequences.get_mut(lane.sequence).and_then(Sequence::next_call) else { return false };
        let is_read = match workload.operation {
            Operation::Read | Operation::SocketRead => true,
            Operation::Write | Operation::SocketWrite => false,
            Operation::Mixed => run.random.f64() < workload.read_share,
        };
        lane.busy_count += 1;
        run.open_count += 1;
        // a write goes to every mirror side, a read to the next one
        let places = lane.sessions.len();
        let (first_place, place_count) = if is_read { (lane.turn % places.max(1), 1) } else { (0, places) };
        lane.turn += usize::from(is_read);
        let open = OpenCall {
            lane: lane_index,
            commands_left: 0,
            bytes: call.length_bytes,
            begun_ns: now_ns,
            has_failed: false,
        };
        let number = run.free_calls.pop().unwrap_or_else(|| {
            run.calls.push(open);
            run.calls.len() - 1
        });
        run.calls[number] = open;
        let has_pattern = if is_read { workload.verify } else { workload.contents == Contents::Pattern };
        let most_bytes = workload.command_bytes();
        for place in first_place..first_place + place_count {
            let Some(&session) = self.run.lanes[lane_index].sessions.get(place) else { continue };
            let client_session = &mut self.sessions[session];
            let lun = lun::encode(self.settings.targets[client_session.target].lun);
            let mut byte = call.byte;
            for length in split::commands(call.length_bytes, most_bytes) {
                let purpose = if has_pattern { Purpose::Pattern(byte) } else { Purpose::Any };
                let length_bytes = length as u32;
                let pending = Pending { call: number, is_read, byte, length_bytes, submitted_ns: now_ns, tries: 0 };
                if client_session.keeps_commands() {
                    client_session.lost_commands.push(pending);
                    self.run.calls[number].commands_left += 1;
                } else if client_session.submit(now_ns, lun, purpose, pending) {
                    self.run.calls[number].commands_left += 1;
                } else {
                    self.run.calls[number].has_failed = true;
                }
                byte += length;
            }
        }
        if self.run.calls[number].commands_left == 0 {
            self.run.is_stopping = true;
            self.end_call(now_ns, number);
        }
        true
    }

    /// A command of the workload ended.
    pub(super) fn end_command(&mut self, now_ns: i64, index: usize, completion: &Completion) {
        let client_session = &mut self.sessions[index];
        let connection = completion.connection;
        let tag = completion.initiator_task_tag;
        let Some(pending) = client_session.commands.get_mut(tag as usize).and_then(Option::take) else {
            return self.end_other(now_ns, index, tag);
        };
        client_session.dealer.finish(connection);
        let mismatch = client_session.volume.take_mismatch(tag);
        let is_aborted = matches!(completion.outcome, Outcome::Aborted | Outcome::TimedOut);
        let is_transient = is_for_now(completion) || is_aborted && self.settings.recovery.is_some();
        let is_retried = is_transient && pending.tries < MOST_TRIES && !self.run.is_stopping;
        if self.settings.task_log {
            let block_length = client_session.unit.as_ref().map_or(512, |unit| unit.block_length_bytes);
            self.run.task_log.push(TaskRecord {
                session: index,
                connection: client_session.numbers.get(completion.connection).copied().unwrap_or(0),
                initiator_task_tag: tag,
                is_read: pending.is_read,
                lba: pending.byte / u64::from(block_length),
                blocks: pending.length_bytes / block_length,
                bytes: pending.length_bytes,
                submitted_ns: pending.submitted_ns,
                sent_ns: completion.sent_ns,
                first_data_ns: completion.first_data_ns,
                completed_ns: now_ns,
                status: match completion.outcome {
                    Outcome::Status(status) => Some(status),
                    _ => None,
                },
            });
        }
        match completion.outcome {
            Outcome::Status(0) if completion.transferred_bytes < pending.length_bytes => {
                // section 11.4.5: whatever the residual says, data of blocks is missing
                let Completion { transferred_bytes, residual_bytes, .. } = completion;
                let end = format!(
                    "GOOD after {transferred_bytes} bytes, with a residual of {residual_bytes} (RFC 7143 section 11.4.5)"
                );
                self.fail_command(index, &pending, &end);
            }
            Outcome::Status(0) if mismatch.is_none() => {
                let bytes = u64::from(pending.length_bytes);
                if let Some(counts) = client_session.counts.get_mut(completion.connection) {
                    *counts = (counts.0 + 1, counts.1 + bytes);
                }
                let run = &mut self.run;
                let count = if pending.is_read { &mut run.read } else { &mut run.write };
                count.commands += 1;
                count.bytes += bytes;
                count.latencies.record(now_ns - pending.submitted_ns);
                run.slices.add(now_ns - run.started_ns.unwrap_or(now_ns), bytes);
                self.count_for_tuning(now_ns, connection, bytes, now_ns - pending.submitted_ns);
            }
            Outcome::Status(0) => {
                if let Some(found) = mismatch {
                    self.mismatch(index, found);
                }
                self.run.calls[pending.call].has_failed = true;
            }
            _ if is_retried => {
                // after a UNIT ATTENTION or an abort there is nothing to wait for
                let is_attention = is_aborted || matches!(completion.outcome, Outcome::Status(2));
                let pending = Pending { tries: pending.tries + 1, ..pending };
                self.run.retry_count += 1;
                let free = self.run.retries.iter().position(Option::is_none);
                let retry = free.unwrap_or_else(|| {
                    self.run.retries.push(None);
                    self.run.retries.len() - 1
                });
                self.run.retries[retry] = Some((index, pending));
                self.wake_at(now_ns.saturating_add(if is_attention { 0 } else { RETRY_NS }), Wake::Retry(retry));
                return;
            }
            _ => {
                let end = describe(completion);
                self.fail_command(index, &pending, &end);
            }
        }
        self.run.ended_ns = now_ns;
        self.end_part(now_ns, pending.call);
    }

    /// A command of the workload failed.
    fn fail_command(&mut self, index: usize, pending: &Pending, end: &str) {
        let unit = self.sessions[index].unit.as_ref();
        let lba = pending.byte / u64::from(unit.map_or(512, |unit| unit.block_length_bytes));
        let name = if pending.is_read { "read" } else { "write" };
        let (target, bytes) = (self.target_name(index), pending.length_bytes);
        self.problem(format!("{target}: {name} of {bytes} bytes at LBA {lba}: {end}"));
        self.run.calls[pending.call].has_failed = true;
    }

    /// Retries a command.
    pub(super) fn retry(&mut self, now_ns: i64, retry: usize) {
        let Some((index, pending)) = self.run.retries.get_mut(retry).and_then(Option::take) else { return };
        self.submit_again(now_ns, index, pending);
    }

    /// Submits a command again, or keeps it until its session is back.
    pub(super) fn submit_again(&mut self, now_ns: i64, index: usize, pending: Pending) {
        if self.sessions[index].keeps_commands() {
            self.sessions[index].lost_commands.push(pending);
            return;
        }
        let workload = &self.settings.workload;
        let has_pattern = if pending.is_read { workload.verify } else { workload.contents == Contents::Pattern };
        let purpose = if has_pattern { Purpose::Pattern(pending.byte) } else { Purpose::Any };
        let client_session = &mut self.sessions[index];
        let lun = lun::encode(self.settings.targets[client_session.target].lun);
        if !client_session.submit(now_ns, lun, purpose, pending) {
            self.run.calls[pending.call].has_failed = true;
            self.end_part(now_ns, pending.call);
        }
    }

    /// A session ended: its commands in flight are lost.
    pub(super) fn drop_commands(&mut self, now_ns: i64, index: usize) {
        let mut lost: Vec<Pending> = self.sessions[index].commands.drain(..).flatten().collect();
        lost.append(&mut self.sessions[index].lost_commands);
        let waiting = self.run.retries.iter_mut().filter(|retry| retry.is_some_and(|retry| retry.0 == index));
        let waiting: Vec<Pending> = waiting.filter_map(Option::take).map(|retry| retry.1).collect();
        for pending in lost.into_iter().chain(waiting) {
            self.run.calls[pending.call].has_failed = true;
            self.end_part(now_ns, pending.call);
        }
    }

    fn end_part(&mut self, now_ns: i64, number: usize) {
        let call = &mut self.run.calls[number];
        call.commands_left = call.commands_left.saturating_sub(1);
        if call.commands_left == 0 {
            self.end_call(now_ns, number);
        }
    }

    fn end_call(&mut self, now_ns: i64, number: usize) {
        let run = &mut self.run;
        let call = run.calls[number];
        run.free_calls.push(number);
        run.open_count = run.open_count.saturating_sub(1);
        if !call.has_failed {
            run.bytes += call.bytes;
            run.calls_done += 1;
            run.call_latencies.record(now_ns - call.begun_ns);
        }
        if self.settings.workload.think_time_ns > 0 {
            self.wake_at(now_ns.saturating_add(self.settings.workload.think_time_ns), Wake::Lane(call.lane));
        } else {
            self.end_pause(now_ns, call.lane);
        }
    }

    /// The next call may start in the place of one that ended.
    pub(super) fn end_pause(&mut self, now_ns: i64, lane: usize) {
        if let Some(lane) = self.run.lanes.get_mut(lane) {
            lane.busy_count = lane.busy_count.saturating_sub(1);
        }
        self.begin_call(now_ns, lane);
    }
}
