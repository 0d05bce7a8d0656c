//! Packets -> commands that ended, through the pass that reads files, for days.
//!
//! A pass grows with every command. When one has seen many, a second pass is begun beside it, and takes over a moment
//! later, when it has found its place in every connection; the first ends with the commands that it had open. A command
//! is told by one of them only: the second tells those that began after it took over.

use std::collections::VecDeque;

use iscsitrace_trace::pipeline::Pipeline;
use iscsitrace_trace::reader::Packet;
use iscsitrace_trace::tables::{Cycles, NULL_U8, NULL_U32, NULL_U64, Wanted};
use iscsitrace_wire::cdb::Operation;
use rustc_hash::FxHashSet;

/// Tasks, and R2Ts of writes, after which a pass is followed by another: about 30 MB.
const ROWS_MAX: usize = 1 << 17;
/// How long two passes run side by side before the second takes over.
const TAKEN_OVER_AFTER_NS: i64 = 1_000_000_000;
/// How long a pass goes on for commands that do not end.
const OPEN_AT_MOST_NS: i64 = 120_000_000_000;
/// Open commands remembered as told.
const TOLD_MAX: usize = 1 << 16;
/// Between two looks for the oldest command that is open.
const LOOK_EVERY_NS: i64 = 100_000_000;

/// A command that ended, by status or because its task was aborted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedCommand {
    /// When it began.
    pub command_ns: i64,
    /// When it ended.
    pub end_ns: i64,
    /// The packet with which it ended.
    pub end_frame: u64,
    /// SCSI status; none when its task was aborted.
    pub status: Option<u8>,
    /// T10's name in snake case.
    pub operation: &'static str,
    /// Its first block.
    pub lba: Option<u64>,
    /// What it asked for; none when that is no data.
    pub bytes: Option<u32>,
    /// Initiator Task Tag.
    pub tag: u32,
}

struct Generation {
    pipeline: Pipeline,
    begun_ns: i64,
    /// Commands from this packet on are its own.
    from_frame: u64,
    /// Commands from this packet on are another's.
    to_frame: u64,
    /// Commands before this row have ended.
    settled: usize,
}

impl Generation {
    fn new(begun_ns: i64, from_frame: u64) -> Self {
        let mut pipeline = Pipeline::new(Wanted::default());
        pipeline.note_ended();
        Self { pipeline, begun_ns, from_frame, to_frame: u64::MAX, settled: 0 }
    }

    /// When the oldest of its own commands that are open began.
    fn oldest_open_ns(&mut self) -> Option<i64> {
        let (cycles, ends_ns) = self.pipeline.cycles();
        let is_open = |row: usize| ends_ns.get(row) == Some(&i64::MAX) && cycles.command_frame[row] < self.to_frame;
        self.settled = (self.settled..ends_ns.len()).find(|&row| is_open(row)).unwrap_or(ends_ns.len());
        (self.settled < ends_ns.len()).then(|| cycles.command_first_ns[self.settled])
    }
}

/// A command as its row has it; `frame` is where it ended when the row does not say.
fn command(cycles: &Cycles, row: usize, end_ns: i64, frame: u64) -> EndedCommand {
    let known = |value: u64| (value != NULL_U64).then_some(value);
    let operation = Operation::ALL.get(usize::from(cycles.operation[row]));
    EndedCommand {
        command_ns: cycles.command_first_ns[row],
        end_ns,
        end_frame: known(cycles.status_frame[row]).unwrap_or(frame),
        status: Some(cycles.status[row]).filter(|&status| status != NULL_U8),
        operation: operation.map_or("command", |operation| operation.as_str()),
        lba: known(cycles.lba[row]),
        bytes: Some(cycles.bytes[row]).filter(|&bytes| bytes != NULL_U32 && bytes > 0),
        tag: cycles.initiator_task_tag[row],
    }
}

/// The pass over packets that do not end.
pub(super) struct Observer {
    /// The youngest last.
    generations: VecDeque<Generation>,
    rows_max: usize,
    looked_ns: i64,
    oldest_open_ns: Option<i64>,
    rows: Vec<u32>,
    /// Commands that were told while they were open.
    told_open: FxHashSet<(i64, u32)>,
}

impl Observer {
    pub(super) fn new() -> Self {
        Self::with_generations_of(ROWS_MAX)
    }

    pub(super) fn with_generations_of(rows_max: usize) -> Self {
        Self {
            generations: VecDeque::from([Generation::new(i64::MIN, 0)]),
            rows_max,
            looked_ns: i64::MIN,
            oldest_open_ns: None,
            rows: Vec::new(),
            told_open: FxHashSet::default(),
        }
    }

    /// Takes a packet; adds the commands that ended with it.
    pub(super) fn packet(&mut self, packet: &Packet<'_>, ended: &mut Vec<EndedCommand>) {
        for generation in &mut self.generations {
            generation.pipeline.packet(packet);
            generation.pipeline.take_ended(&mut self.rows);
            let (cycles, ends_ns) = generation.pipeline.cycles();
            for row in self.rows.drain(..).map(|row| row as usize) {
                let command_frame = cycles.command_frame[row];
                if command_frame < generation.from_frame || command_frame >= generation.to_frame {
                    continue;
                }
                ended.push(command(cycles, row, ends_ns[row], packet.frame));
            }
        }
        if packet.time_ns.saturating_sub(self.looked_ns) >= LOOK_EVERY_NS {
            self.looked_ns = packet.time_ns;
            self.renew(packet);
        }
    }

    /// Whether a command is open.
    pub(super) fn is_busy(&mut self) -> bool {
        self.generations.iter_mut().any(|generation| generation.oldest_open_ns().is_some())
    }

    /// Adds commands that have been open for longer than that, each once; looked for now and then.
    pub(super) fn add_open(&mut self, longer_than_ns: i64, packet: &Packet<'_>, open: &mut Vec<EndedCommand>) {
        let begun_before_ns = packet.time_ns.saturating_sub(longer_than_ns);
        // that of the last look: nothing is overdue that was not open then
        if self.looked_ns != packet.time_ns || self.oldest_open_ns.is_none_or(|oldest_ns| oldest_ns > begun_before_ns) {
            return;
        }
        if self.told_open.len() > TOLD_MAX {
            self.told_open.clear();
        }
        for generation in &self.generations {
            let (cycles, ends_ns) = generation.pipeline.cycles();
            for (row, &end_ns) in ends_ns.iter().enumerate().skip(generation.settled) {
                let is_own = (generation.from_frame..generation.to_frame).contains(&cycles.command_frame[row]);
                let begun_ns = cycles.command_first_ns[row];
                if is_own
                    && end_ns == i64::MAX
                    && begun_ns < begun_before_ns
                    && self.told_open.insert((begun_ns, cycles.initiator_task_tag[row]))
                {
                    open.push(command(cycles, row, packet.time_ns, packet.frame));
                }
            }
        }
    }

    /// No command that is open began before: as of the last look, and what was not open then began later.
    pub(super) fn open_from_ns(&self) -> i64 {
        self.oldest_open_ns.map_or(self.looked_ns, |oldest_ns| oldest_ns.min(self.looked_ns))
    }

    /// Begins and ends passes, and looks for the oldest open command.
    fn renew(&mut self, packet: &Packet<'_>) {
        let now_ns = packet.time_ns;
        if let [.., before, last] = self.generations.make_contiguous()
            && before.to_frame == u64::MAX
            && now_ns.saturating_sub(last.begun_ns) >= TAKEN_OVER_AFTER_NS
        {
            before.to_frame = packet.frame;
            last.from_frame = packet.frame;
        }
        self.oldest_open_ns = self.generations.iter_mut().filter_map(Generation::oldest_open_ns).min();
        // a pass that has handed over, and has nothing open or waits for too long
        while self.generations.len() > 1
            && self.generations.front_mut().is_some_and(|oldest| {
                let is_over = oldest.to_frame < u64::MAX;
                is_over && oldest.oldest_open_ns().is_none_or(|open_ns| now_ns - open_ns > OPEN_AT_MOST_NS)
            })
        {
            self.generations.pop_front();
        }
        let is_full = self.generations.back().is_some_and(|last| last.pipeline.task_row_count() >= self.rows_max);
        if is_full && self.generations.back().is_some_and(|last| last.from_frame < u64::MAX) {
            // its own commands begin when it takes over
            self.generations.push_back(Generation::new(now_ns, u64::MAX));
            // three at most: one that waits, one that tells, one that begins
            if self.generations.len() > 3 {
                self.generations.pop_front();
            }
        }
    }

    #[cfg(test)]
    pub(super) fn generation_count(&self) -> usize {
        self.generations.len()
    }
}
