//! The workload while it runs: which call is next, what its commands became, and what is measured.
//!
//! ```text
//! sequence   one per target (stripe), or one for all (mirror)
//!   lane     one per session (stripe), or one per session of every target (mirror): queue_depth calls under way
//!     call   a system call: its commands are handed in together; done when all are, on all mirrors
//! ```

use iscsitrace_wire::lun;

use super::driven::Pending;
use super::results::{Progress, TaskRecord};
use super::sense::{describe, is_for_now};
use super::settings::ClientSettings;
use super::volume::Purpose;
use super::{Client, Wake};
use crate::protocol::initiator::{Completion, Outcome};
use crate::workload::latency::Latencies;
use crate::workload::pattern::Mismatch;
use crate::workload::sequence::{Sequence, share};
use crate::workload::settings::{Contents, Layout, Operation};
use crate::workload::slices::Slices;
use crate::workload::split;

/// How often a command is sent again after BUSY, TASK SET FULL or UNIT ATTENTION.
const MOST_TRIES: u32 = 1000;
/// Pause before that, after BUSY and TASK SET FULL.
const RETRY_NS: i64 = 1_000_000;

/// What ended well, of one kind of command.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub commands: u64,
    pub bytes: u64,
    pub latencies: Latencies,
}

#[derive(Debug)]
struct Lane {
    /// One session, or one per mirror.
    sessions: Vec<usize>,
    sequence: usize,
    /// Calls under way, with those whose pause is not over.
    busy_count: u32,
    /// Which mirror reads next.
    turn: usize,
}

#[derive(Debug, Clone, Copy)]
struct OpenCall {
    lane: usize,
    commands_left: u32,
    bytes: u64,
    begun_ns: i64,
    has_failed: bool,
}

/// The state of the workload.
#[derive(Debug)]
pub(super) struct Run {
    pub started_ns: Option<i64>,
    pub ended_ns: i64,
    pub is_stopping: bool,
    sequences: Vec<Sequence>,
    lanes: Vec<Lane>,
    calls: Vec<OpenCall>,
    free_calls: Vec<usize>,
    open_count: usize,
    /// Commands that wait to be sent again, with their session.
    retries: Vec<Option<(usize, Pending)>>,
    random: fastrand::Rng,
    total_bytes: Option<u64>,
    duration_ns: Option<i64>,
    pub bytes: u64,
    pub calls_done: u64,
    pub call_latencies: Latencies,
    pub read: Count,
    pub write: Count,
    pub slices: Slices,
    pub retry_count: u64,
    pub verify_error_count: u64,
    pub first_mismatch: Option<Mismatch>,
    pub task_log: Vec<TaskRecord>,
}

impl Run {
    pub(super) fn new(settings: &ClientSettings) -> Self {
        Self {
            started_ns: None,
            ended_ns: 0,
            is_stopping: false,
            sequences: Vec::new(),
            lanes: Vec::new(),
            calls: Vec::new(),
            free_calls: Vec::new(),
            open_count: 0,
            retries: Vec::new(),
            random: fastrand::Rng::with_seed(settings.workload.seed),
            total_bytes: settings.workload.total_bytes,
            duration_ns: settings.workload.duration_ns,
            bytes: 0,
            calls_done: 0,
            call_latencies: Latencies::default(),
            read: Count::default(),
            write: Count::default(),
            slices: Slices::new(settings.slice_ns),
            retry_count: 0,
            verify_error_count: 0,
            first_mismatch: None,
            task_log: Vec::new(),
        }
    }

    pub(super) fn elapsed_ns(&self) -> i64 {
        self.started_ns.map_or(0, |started| (self.ended_ns - started).max(0))
    }

    pub(super) fn progress(&self, now_ns: i64) -> Progress {
        Progress {
            is_running: self.started_ns.is_some(),
            bytes: self.bytes,
            calls: self.calls_done,
            total_bytes: self.total_bytes,
            elapsed_ns: self.started_ns.map_or(0, |started| now_ns - started),
            duration_ns: self.duration_ns,
            tuning: None,
        }
    }

    fn is_time_over(&self, now_ns: i64) -> bool {
        self.started_ns.zip(self.duration_ns).is_some_and(|(started, duration)| now_ns - started >= duration)
    }

    /// Whether no more calls are begun.
    pub(super) fn is_over(&self, now_ns: i64) -> bool {
        self.is_stopping || self.is_time_over(now_ns)
    }

    /// Whether nothing is under way and nothing more will be begun.
    pub(super) fn is_idle(&self, now_ns: i64) -> bool {
        self.open_count == 0
            && (self.is_stopping || self.is_time_over(now_ns) || self.sequences.iter().all(Sequence::is_exhausted))
    }
}

impl Client {
    /// All logical units are known: the first calls.
    pub(super) fn begin_run(&mut self, now_ns: i64) {
        if let Err(text) = self.make_lanes() {
            self.problem(text);
            self.run.is_stopping = true;
            return;
        }
        (self.run.started_ns, self.run.ended_ns) = (Some(now_ns), now_ns);
        self.begin_tuning(now_ns);
        // one call each in turn, so that blocks are dealt over all lanes from the first on
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
            let unit = self.sessions.get(target * per_target).and_then(|driven| driven.unit.as_ref());
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

    /// Begins all calls of a lane that there is room for.
    pub(super) fn begin_calls(&mut self, now_ns: i64, lane: usize) {
        while self.begin_call(now_ns, lane) {}
    }

    /// How many calls may be under way in a lane: where the number of connections is looked for so many for each that
    /// takes commands, beside what the others still have to end.
    fn depth(&self, lane: usize) -> usize {
        let depth = self.settings.workload.queue_depth as usize;
        let session = self.run.lanes.get(lane).and_then(|lane| lane.sessions.first());
        match session.and_then(|session| self.sessions.get(*session)).filter(|_| self.tuned.is_some()) {
            Some(driven) => depth * driven.dealer.open_count() + driven.dealer.leaving_load(),
            None => depth,
        }
    }

    /// Begins the next call of a lane; false when there is none now.
    fn begin_call(&mut self, now_ns: i64, lane_index: usize) -> bool {
        let depth = self.depth(lane_index);
        let run = &mut self.run;
        let workload = &self.settings.workload;
        let is_over = run.is_over(now_ns);
        let Some(lane) = run.lanes.get_mut(lane_index) else { return false };
        if is_over || lane.busy_count as usize >= depth {
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
        // a write goes to every mirror, a read to the next of them
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
            let driven = &mut self.sessions[session];
            let lun = lun::encode(self.settings.targets[driven.target].lun);
            let mut byte = call.byte;
            for length in split::commands(call.length_bytes, most_bytes) {
                let purpose = if has_pattern { Purpose::Pattern(byte) } else { Purpose::Any };
                let length_bytes = length as u32;
                let pending = Pending { call: number, is_read, byte, length_bytes, submitted_ns: now_ns, tries: 0 };
                if driven.submit(now_ns, lun, purpose, pending) {
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
        let driven = &mut self.sessions[index];
        driven.dealer.finish(completion.connection);
        let connection = completion.connection;
        let tag = completion.initiator_task_tag;
        let Some(pending) = driven.commands.get_mut(tag as usize).and_then(Option::take) else { return };
        let mismatch = driven.volume.take_mismatch(tag);
        let is_retried = is_for_now(completion) && pending.tries < MOST_TRIES && !self.run.is_stopping;
        if self.settings.task_log {
            let block_length = driven.unit.as_ref().map_or(512, |unit| unit.block_length_bytes);
            self.run.task_log.push(TaskRecord {
                session: index,
                connection: driven.numbers.get(completion.connection).copied().unwrap_or(0),
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
            Outcome::Status(0) if mismatch.is_none() => {
                let bytes = u64::from(pending.length_bytes);
                if let Some(counts) = driven.counts.get_mut(completion.connection) {
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
                let is_attention = matches!(completion.outcome, Outcome::Status(2));
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
                let block_length = driven.unit.as_ref().map_or(512, |unit| unit.block_length_bytes);
                let name = if pending.is_read { "read" } else { "write" };
                let lba = pending.byte / u64::from(block_length);
                let bytes = pending.length_bytes;
                let end = describe(completion);
                let text = format!("{}: {name} of {bytes} bytes at LBA {lba}: {end}", self.target_name(index));
                self.problem(text);
                self.run.calls[pending.call].has_failed = true;
            }
        }
        self.run.ended_ns = now_ns;
        self.end_part(now_ns, pending.call);
    }

    /// Sends a command again.
    pub(super) fn retry(&mut self, now_ns: i64, retry: usize) {
        let Some((index, pending)) = self.run.retries.get_mut(retry).and_then(Option::take) else { return };
        let workload = &self.settings.workload;
        let has_pattern = if pending.is_read { workload.verify } else { workload.contents == Contents::Pattern };
        let purpose = if has_pattern { Purpose::Pattern(pending.byte) } else { Purpose::Any };
        let driven = &mut self.sessions[index];
        let lun = lun::encode(self.settings.targets[driven.target].lun);
        if !driven.submit(now_ns, lun, purpose, pending) {
            self.run.calls[pending.call].has_failed = true;
            self.end_part(now_ns, pending.call);
        }
    }

    /// A session is over: what was under way in it is lost.
    pub(super) fn drop_commands(&mut self, now_ns: i64, index: usize) {
        let lost: Vec<Pending> = self.sessions[index].commands.drain(..).flatten().collect();
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

    /// The place of a call is free for the next.
    pub(super) fn end_pause(&mut self, now_ns: i64, lane: usize) {
        if let Some(lane) = self.run.lanes.get_mut(lane) {
            lane.busy_count = lane.busy_count.saturating_sub(1);
        }
        self.begin_call(now_ns, lane);
    }
}
