//! Packets -> ended commands, through the pass that reads files, for days.
//!
//! A pass grows with every command. When one has seen many, a second pass starts beside it and takes over a moment
//! later, when it has synchronised with every connection. The first continues until its commands have ended. Each
//! command is reported by one of them only: the second reports those that began after it took over.

use std::collections::VecDeque;

use iscsitrace_trace::pipeline::Pipeline;
use iscsitrace_trace::reader::Packet;
use iscsitrace_trace::tables::{CycleId, Cycles, NULL_U8, NULL_U32, NULL_U64, Wanted, in_flight};
use iscsitrace_wire::cdb::Operation;
use rustc_hash::FxHashMap;

/// Commands and R2Ts after which a new pass starts: about 30 MB.
const ROWS_MAX: usize = 1 << 17;
/// How long two passes run in parallel before the second takes over.
const TAKEN_OVER_AFTER_NS: u64 = 1_000_000_000;
/// How long a pass continues for commands that do not end.
const OPEN_AT_MOST_NS: i64 = 120_000_000_000;
/// Time between two searches for the oldest command in flight.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// A command that ended, by status, by abort or with its connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedCommand {
    /// Start time.
    pub command_ns: i64,
    /// End time.
    pub end_ns: i64,
    /// The packet with which it ended.
    pub end_frame: u64,
    /// SCSI status; none if it ended without one.
    pub status: Option<u8>,
    /// T10's name in snake case.
    pub operation: &'static str,
    /// Its first block.
    pub lba: Option<u64>,
    /// Its expected bytes; none without data.
    pub bytes: Option<u32>,
    /// Initiator Task Tag.
    pub tag: u32,
    /// How long its session made no progress while it was in flight; 0 for other commands than reads, writes and
    /// flushes. Known where a trigger needs it.
    pub no_progress_ns: i64,
    /// Whether it was found while it was in flight.
    pub was_found: bool,
}

/// The last time without progress of a session.
#[derive(Debug, Clone, Copy)]
struct Stall {
    since_ns: i64,
    until_ns: i64,
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
    /// By session.
    stalls: FxHashMap<u32, Stall>,
    /// Rows of commands that were reported while in flight.
    told: Vec<bool>,
}

impl Generation {
    fn new(begun_ns: i64, from_frame: u64) -> Self {
        let mut pipeline = Pipeline::new(Wanted::default());
        pipeline.note_ended();
        Self {
            pipeline,
            begun_ns,
            from_frame,
            to_frame: u64::MAX,
            settled: 0,
            stalls: FxHashMap::default(),
            told: Vec::new(),
        }
    }

    /// Notes the sessions that made no progress for that long.
    fn note_stalls(&mut self, now_ns: i64, least_ns: i64) {
        for (session, in_flight) in self.pipeline.in_flight() {
            if let Some(since_ns) = in_flight.stalled_since_ns(now_ns)
                && now_ns.saturating_sub(since_ns) >= least_ns
            {
                self.stalls.insert(session, Stall { since_ns, until_ns: now_ns });
            }
        }
    }

    /// Adds its commands that ended, the last ones with packet `frame`; `rows` is empty before and after.
    fn take_ended(&mut self, frame: u64, rows: &mut Vec<CycleId>, ended: &mut Vec<EndedCommand>) {
        self.pipeline.take_ended(rows);
        let (cycles, ends_ns) = self.pipeline.cycles();
        for row in rows.drain(..).map(|cycle| cycles.row(cycle)) {
            if (self.from_frame..self.to_frame).contains(&cycles.command_frame.get(row)) {
                ended.push(self.command(row, ends_ns[row], frame));
            }
        }
    }

    /// A command from its row; `frame` is the end if the row has none.
    fn command(&self, row: usize, end_ns: i64, frame: u64) -> EndedCommand {
        let (cycles, _) = self.pipeline.cycles();
        let stall = self.stalls.get(&cycles.session[row]).filter(|_| in_flight::kind(cycles, row) >= in_flight::FLUSH);
        let no_progress_ns = stall.map_or(0, |stall| {
            let since_ns = stall.since_ns.max(cycles.command_first_ns[row]);
            stall.until_ns.min(end_ns).saturating_sub(since_ns).max(0)
        });
        let was_found = self.told.get(row).copied().unwrap_or(false);
        EndedCommand { no_progress_ns, was_found, ..command(cycles, row, end_ns, frame) }
    }

    /// When its oldest command in flight began.
    fn oldest_open_ns(&mut self) -> Option<i64> {
        let (cycles, ends_ns) = self.pipeline.cycles();
        let is_open = |row: usize| ends_ns.get(row) == Some(&i64::MAX) && cycles.command_frame.get(row) < self.to_frame;
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
        end_frame: known(cycles.status_frame.get(row)).unwrap_or(frame),
        status: Some(cycles.status[row]).filter(|&status| status != NULL_U8),
        operation: operation.map_or("command", |operation| operation.as_str()),
        lba: known(cycles.lba.get(row)),
        bytes: Some(cycles.bytes[row]).filter(|&bytes| bytes != NULL_U32 && bytes > 0),
        tag: cycles.initiator_task_tag[row],
        no_progress_ns: 0,
        was_found: false,
    }
}

/// A pass over endless packets.
pub(super) struct Observer {
    /// The passes, the youngest last.
    generations: VecDeque<Generation>,
    rows_max: usize,
    looked_ns: i64,
    oldest_open_ns: Option<i64>,
    rows: Vec<CycleId>,
    /// The shortest time without progress that is looked for.
    least_no_progress_ns: Option<i64>,
}

impl Observer {
    pub(super) fn new(least_no_progress_ns: Option<i64>) -> Self {
        Self { least_no_progress_ns, ..Self::with_generations_of(ROWS_MAX) }
    }

    pub(super) fn with_generations_of(rows_max: usize) -> Self {
        Self {
            generations: VecDeque::from([Generation::new(i64::MIN, 0)]),
            rows_max,
            looked_ns: i64::MIN,
            oldest_open_ns: None,
            rows: Vec::new(),
            least_no_progress_ns: None,
        }
    }

    /// Processes a packet; adds the commands that ended with it. True if the commands in flight were looked at.
    pub(super) fn packet(&mut self, packet: &Packet<'_>, ended: &mut Vec<EndedCommand>) -> bool {
        let is_due = self.is_due(packet.time_ns);
        if is_due {
            // it may end a time without progress
            self.note_stalls(packet.time_ns);
        }
        for generation in &mut self.generations {
            generation.pipeline.packet(packet);
            if is_due {
                generation.pipeline.end_closed();
            }
            generation.take_ended(packet.frame, &mut self.rows, ended);
        }
        if is_due {
            self.looked_ns = packet.time_ns;
            self.renew(packet);
        }
        is_due
    }

    /// Whether it is time for the next look; also after the clock was set back.
    pub(super) fn is_due(&self, now_ns: i64) -> bool {
        now_ns.abs_diff(self.looked_ns) >= LOOK_EVERY_NS
    }

    /// Looks at the commands in flight without a packet; adds those that ended with their connection. `frame` is the last
    /// packet.
    pub(super) fn look(&mut self, now_ns: i64, frame: u64, ended: &mut Vec<EndedCommand>) {
        self.looked_ns = now_ns;
        for generation in &mut self.generations {
            generation.pipeline.end_closed();
            generation.take_ended(frame, &mut self.rows, ended);
        }
        self.oldest_open_ns = self.generations.iter_mut().filter_map(Generation::oldest_open_ns).min();
        self.note_stalls(now_ns);
    }

    fn note_stalls(&mut self, now_ns: i64) {
        let Some(least_ns) = self.least_no_progress_ns else { return };
        let oldest_ns = self.oldest_open_ns;
        for generation in &mut self.generations {
            generation.stalls.retain(|_, stall| oldest_ns.is_some_and(|oldest_ns| stall.until_ns >= oldest_ns));
            // as of the last look: later commands are younger
            if oldest_ns.is_some_and(|oldest_ns| now_ns.saturating_sub(oldest_ns) >= least_ns) {
                generation.note_stalls(now_ns, least_ns);
            }
        }
    }

    /// Whether a command is in flight.
    pub(super) fn is_busy(&mut self) -> bool {
        self.generations.iter_mut().any(|generation| generation.oldest_open_ns().is_some())
    }

    /// Adds the commands in flight for that long that are wanted, each once. `frame` is the last packet.
    pub(super) fn add_open(
        &mut self,
        least_ns: i64,
        now_ns: i64,
        frame: u64,
        is_wanted: impl Fn(&EndedCommand) -> bool,
        open: &mut Vec<EndedCommand>,
    ) {
        let begun_before_ns = now_ns.saturating_sub(least_ns);
        // as of the last look: no command can be overdue that was not in flight then
        if self.oldest_open_ns.is_none_or(|oldest_ns| oldest_ns > begun_before_ns) {
            return;
        }
        for generation in &mut self.generations {
            let mut told = std::mem::take(&mut generation.told);
            let (cycles, ends_ns) = generation.pipeline.cycles();
            told.resize(ends_ns.len(), false);
            for (row, &end_ns) in ends_ns.iter().enumerate().skip(generation.settled) {
                let is_own = (generation.from_frame..generation.to_frame).contains(&cycles.command_frame.get(row));
                let is_old = cycles.command_first_ns[row] <= begun_before_ns;
                if is_own && end_ns == i64::MAX && is_old && !told[row] {
                    let command = generation.command(row, now_ns, frame);
                    if is_wanted(&command) {
                        told[row] = true;
                        open.push(command);
                    }
                }
            }
            generation.told = told;
        }
    }

    /// The commands in flight for that long: their number, and the start of the oldest.
    pub(super) fn open_for(&self, least_ns: i64, now_ns: i64) -> Option<(usize, i64)> {
        let begun_before_ns = now_ns.saturating_sub(least_ns);
        let mut begun_ns = Vec::new();
        for generation in &self.generations {
            let (cycles, ends_ns) = generation.pipeline.cycles();
            let own = generation.from_frame..generation.to_frame;
            let rows = (generation.settled..ends_ns.len()).filter(|&row| ends_ns[row] == i64::MAX);
            let rows = rows.filter(|&row| own.contains(&cycles.command_frame.get(row)));
            begun_ns.extend(rows.map(|row| cycles.command_first_ns[row]).filter(|&ns| ns <= begun_before_ns));
        }
        begun_ns.iter().copied().min().map(|oldest_ns| (begun_ns.len(), oldest_ns))
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
            && now_ns.abs_diff(last.begun_ns) >= TAKEN_OVER_AFTER_NS
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
