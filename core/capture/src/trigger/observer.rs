//! Packets -> ended commands, through the pass that reads files, for days.
//!
//! Commands leave the pass once they were reported, and so does what it no longer needs of connections that are over: its
//! memory grows with what is under way.

use iscsitrace_trace::pipeline::Pipeline;
use iscsitrace_trace::pipeline::drain::Horizon;
use iscsitrace_trace::reader::Packet;
use iscsitrace_trace::tables::{Columns, CycleId, Cycles, NULL_U8, NULL_U32, NULL_U64, Wanted, in_flight};
use iscsitrace_wire::cdb::Operation;
use rustc_hash::{FxHashMap, FxHashSet};

/// Rows after which those of commands that ended leave: about 8 MB.
const ROWS_MAX: usize = 1 << 15;
/// How long other exchanges are kept, and commands that something may still change.
const PATIENCE_NS: i64 = 10_000_000_000;
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
    pipeline: Pipeline,
    /// Ended commands leave once there are so many rows.
    rows_max: usize,
    /// Commands before this one have ended.
    settled: CycleId,
    /// By session.
    stalls: FxHashMap<u32, Stall>,
    /// Commands that were reported while in flight.
    told: FxHashSet<CycleId>,
    looked_ns: i64,
    oldest_open_ns: Option<i64>,
    ended: Vec<CycleId>,
    /// The shortest time without progress that is looked for.
    least_no_progress_ns: Option<i64>,
}

impl Observer {
    pub(super) fn new(least_no_progress_ns: Option<i64>) -> Self {
        Self { least_no_progress_ns, ..Self::with_rows(ROWS_MAX) }
    }

    pub(super) fn with_rows(rows_max: usize) -> Self {
        let mut pipeline = Pipeline::new(Wanted::default());
        pipeline.note_ended();
        Self {
            pipeline,
            rows_max,
            settled: CycleId::new(0),
            stalls: FxHashMap::default(),
            told: FxHashSet::default(),
            looked_ns: i64::MIN,
            oldest_open_ns: None,
            ended: Vec::new(),
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
        self.pipeline.packet(packet);
        if is_due {
            self.pipeline.end_closed();
        }
        self.take_ended(packet.frame, ended);
        if is_due {
            self.looked_ns = packet.time_ns;
            self.oldest_open_ns = self.find_oldest_open_ns();
            if self.pipeline.row_count() >= self.rows_max {
                self.forget(packet.time_ns);
            }
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
        self.pipeline.end_closed();
        self.take_ended(frame, ended);
        self.oldest_open_ns = self.find_oldest_open_ns();
        self.note_stalls(now_ns);
    }

    /// Adds the commands that ended, the last ones with packet `frame`.
    fn take_ended(&mut self, frame: u64, ended: &mut Vec<EndedCommand>) {
        let mut own = std::mem::take(&mut self.ended);
        self.pipeline.take_ended(&mut own);
        let cycles = self.pipeline.cycles();
        for row in own.drain(..).map(|cycle| cycles.row(cycle)) {
            ended.extend(cycles.end_ns.get(row).map(|&end_ns| self.command(row, end_ns, frame)));
        }
        self.ended = own;
    }

    /// A command from its row; `frame` is the end if the row has none.
    fn command(&self, row: usize, end_ns: i64, frame: u64) -> EndedCommand {
        let cycles = self.pipeline.cycles();
        let stall = self.stalls.get(&cycles.session[row]).filter(|_| in_flight::kind(cycles, row) >= in_flight::FLUSH);
        let no_progress_ns = stall.map_or(0, |stall| {
            let since_ns = stall.since_ns.max(cycles.command_first_ns[row]);
            stall.until_ns.min(end_ns).saturating_sub(since_ns).max(0)
        });
        let was_found = self.told.contains(&CycleId::new(cycles.cycle[row]));
        EndedCommand { no_progress_ns, was_found, ..command(cycles, row, end_ns, frame) }
    }

    /// Notes the sessions that make no progress.
    fn note_stalls(&mut self, now_ns: i64) {
        let Some(least_ns) = self.least_no_progress_ns else { return };
        let oldest_ns = self.oldest_open_ns;
        self.stalls.retain(|_, stall| oldest_ns.is_some_and(|oldest_ns| stall.until_ns >= oldest_ns));
        // as of the last look: later commands are younger
        if oldest_ns.is_none_or(|oldest_ns| now_ns.saturating_sub(oldest_ns) < least_ns) {
            return;
        }
        for (session, in_flight) in self.pipeline.in_flight() {
            if let Some(since_ns) = in_flight.stalled_since_ns(now_ns)
                && now_ns.saturating_sub(since_ns) >= least_ns
            {
                self.stalls.insert(session, Stall { since_ns, until_ns: now_ns });
            }
        }
    }

    /// Rows of the commands in flight.
    fn open(&self) -> impl Iterator<Item = usize> {
        let cycles = self.pipeline.cycles();
        (cycles.row(self.settled)..cycles.row_count()).filter(|&row| cycles.is_in_flight(row))
    }

    /// When the oldest command in flight began.
    fn find_oldest_open_ns(&mut self) -> Option<i64> {
        let oldest = self.open().next();
        let cycles = self.pipeline.cycles();
        self.settled = oldest.map_or_else(|| cycles.next_id(), |row| CycleId::new(cycles.cycle[row]));
        oldest.map(|row| self.pipeline.cycles().command_first_ns[row])
    }

    /// Whether a command is in flight.
    pub(super) fn is_busy(&mut self) -> bool {
        self.find_oldest_open_ns().is_some()
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
        let cycles = self.pipeline.cycles();
        let is_new = |row: usize| !self.told.contains(&CycleId::new(cycles.cycle[row]));
        let overdue = self.open().filter(|&row| cycles.command_first_ns[row] <= begun_before_ns && is_new(row));
        let wanted: Vec<(CycleId, EndedCommand)> = overdue
            .map(|row| (CycleId::new(cycles.cycle[row]), self.command(row, now_ns, frame)))
            .filter(|(_, command)| is_wanted(command))
            .collect();
        for (cycle, command) in wanted {
            self.told.insert(cycle);
            open.push(command);
        }
    }

    /// The commands in flight for that long: their number, and the start of the oldest.
    pub(super) fn open_for(&self, least_ns: i64, now_ns: i64) -> Option<(usize, i64)> {
        let begun_before_ns = now_ns.saturating_sub(least_ns);
        let begun_ns = self.open().map(|row| self.pipeline.cycles().command_first_ns[row]);
        let begun_ns: Vec<i64> = begun_ns.filter(|&ns| ns <= begun_before_ns).collect();
        begun_ns.iter().copied().min().map(|oldest_ns| (begun_ns.len(), oldest_ns))
    }

    /// No command in flight began before: as of the last look; later ones began later.
    pub(super) fn open_from_ns(&self) -> i64 {
        self.oldest_open_ns.map_or(self.looked_ns, |oldest_ns| oldest_ns.min(self.looked_ns))
    }

    /// Commands that ended leave, and old exchanges and connections.
    fn forget(&mut self, now_ns: i64) {
        let horizon = Horizon { until_ns: now_ns, patience_ns: PATIENCE_NS, keep_ns: 0, is_endless: true, stay: None };
        self.pipeline.drain_final(&horizon);
        let Self { pipeline, told, .. } = self;
        told.retain(|&cycle| pipeline.cycles().has(cycle));
        // as many as are in flight may stay
        self.rows_max = self.rows_max.max(2 * self.pipeline.row_count());
    }

    #[cfg(test)]
    pub(super) fn row_count(&self) -> usize {
        self.pipeline.row_count()
    }
}
