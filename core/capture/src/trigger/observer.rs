//! Packets -> ended commands, through the pass that reads files, for days.
//!
//! A pass grows with every command. When one has seen many, a second pass starts beside it and takes over a moment
//! later, when it has synchronised with every connection. The first continues until its commands have ended. Each
//! command is reported by one of them only: the second reports those that began after it took over.

use std::collections::VecDeque;

use iscsitrace_trace::pipeline::Pipeline;
use iscsitrace_trace::reader::Packet;
use iscsitrace_trace::tables::{Cycles, NULL_U8, NULL_U32, NULL_U64, Wanted};
use iscsitrace_wire::cdb::Operation;
use rustc_hash::FxHashSet;

/// Commands and R2Ts after which a new pass starts: about 30 MB.
const ROWS_MAX: usize = 1 << 17;
/// How long two passes run in parallel before the second takes over.
const TAKEN_OVER_AFTER_NS: i64 = 1_000_000_000;
/// How long a pass continues for commands that do not end.
const OPEN_AT_MOST_NS: i64 = 120_000_000_000;
/// Maximum commands in flight noted as reported.
const TOLD_MAX: usize = 1 << 16;
/// Time between two searches for the oldest command in flight.
const LOOK_EVERY_NS: i64 = 100_000_000;

/// A command that ended, by status or by abort.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedCommand {
    /// Start time.
    pub command_ns: i64,
    /// End time.
    pub end_ns: i64,
    /// The packet with which it ended.
    pub end_frame: u64,
    /// SCSI status; none if it was aborted.
    pub status: Option<u8>,
    /// T10's name in snake case.
    pub operation: &'static str,
    /// Its first block.
    pub lba: Option<u64>,
    /// Its expected bytes; none without data.
    pub bytes: Option<u32>,
    /// Initiator Task Tag.
    pub tag: u32,
}

struct Generation {
    pipeline: Pipeline,
    begun_ns: i64,
    /// Range of the commands that it reports, by packet.
    from_frame: u64,
    /// Commands from this packet on belong to the next pass.
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

    /// When its oldest command in flight began.
    fn oldest_open_ns(&mut self) -> Option<i64> {
        let (cycles, ends_ns) = self.pipeline.cycles();
        let is_open = |row: usize| ends_ns.get(row) == Some(&i64::MAX) && cycles.command_frame[row] < self.to_frame;
        self.settled = (self.settled..ends_ns.len()).find(|&row| is_open(row)).unwrap_or(ends_ns.len());
        (self.settled < ends_ns.len()).then(|| cycles.command_first_ns[self.settled])
    }
}

/// A command from its row; `frame` is the end if the row has none.
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

/// A pass over endless packets.
pub(super) struct Observer {
    /// The passes, the youngest last.
    generations: VecDeque<Generation>,
    rows_max: usize,
    looked_ns: i64,
    oldest_open_ns: Option<i64>,
    rows: Vec<u32>,
    /// Commands that were reported while in flight.
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

    /// Processes a packet; adds the commands that ended with it.
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

    /// Whether a command is in flight.
    pub(super) fn is_busy(&mut self) -> bool {
        self.generations.iter_mut().any(|generation| generation.oldest_open_ns().is_some())
    }

    /// Adds commands that have been in flight for longer, each once; checked periodically.
    pub(super) fn add_open(&mut self, longer_than_ns: i64, packet: &Packet<'_>, open: &mut Vec<EndedCommand>) {
        let begun_before_ns = packet.time_ns.saturating_sub(longer_than_ns);
        // as of the last look: no command can be overdue that was not in flight then
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

    /// No command in flight began before: as of the last look; later ones began later.
    pub(super) fn open_from_ns(&self) -> i64 {
        self.oldest_open_ns.map_or(self.looked_ns, |oldest_ns| oldest_ns.min(self.looked_ns))
    }

    /// Starts and ends passes, and finds the oldest command in flight.
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
        // a pass that was replaced, and has nothing in flight or has waited too long
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
            // three at most: one that waits, one that reports, one that starts
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
