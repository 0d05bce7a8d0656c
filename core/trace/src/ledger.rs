//! Which cycles were handed over, while rows are added at the end of the table and removed when complete.
//!
//! ```text
//! open -> ended -> measured: its queue depth is known -> taken: handed over, once -> removed, after a while
//! ```
//!
//! A queue depth is known when everything up to the command was read: so far a session is *reached*. Bytes behind a
//! hole hold it back, but not longer than the horizon; a command that is read later still is counted as late.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::queue::{next_command_ns, written_bytes};
use crate::tables::{Columns, CycleId, Cycles, NULL_U32, Rounds, Tables};

/// How long an ended command of a live pass waits for the ACK of its last data.
const ACK_PATIENCE_NS: i64 = 10_000_000_000;
/// Rows are removed when at least one in this many can be.
const DROP_PART: usize = 4;
/// Maximum number of cycles that are kept; beyond it the time is shorter.
const KEPT_ROWS_MAX: usize = 1 << 17;

/// Time from a status to the next command of its session, at a queue depth of 1, by operation.
pub type Turnaround = (u8, i64);

/// The progress of each row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ledger {
    /// How long an ended command waits for what may still change its row.
    patience_ns: i64,
    /// Whether removed rows are wanted.
    keeps_removed: bool,
    is_measured: Vec<bool>,
    /// Whether the next command is known.
    is_paired: Vec<bool>,
    is_taken: Vec<bool>,
    /// The last measured command, by session.
    measured_ns: FxHashMap<u32, i64>,
    /// Connections with a command so far, and their sessions.
    pub begun: FxHashMap<u32, u32>,
    /// Commands that were read after later ones had been measured.
    pub late_count: u64,
    /// All cycles that are handed over later begin after this.
    pub settled_ns: i64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            patience_ns: ACK_PATIENCE_NS,
            keeps_removed: false,
            is_measured: Vec::new(),
            is_paired: Vec::new(),
            is_taken: Vec::new(),
            measured_ns: FxHashMap::default(),
            begun: FxHashMap::default(),
            late_count: 0,
            settled_ns: 0,
        }
    }
}

impl Ledger {
    /// One that returns the rows that it removes; ended commands wait that long for what may still change their rows.
    pub fn keeping_removed(patience_ns: i64) -> Self {
        Self { patience_ns, keeps_removed: true, ..Self::default() }
    }

    /// Measures and hands over cycles. `reached_ns` is the time up to which a session was read; `awaited` are the rows
    /// that may still change. Rows that are wanted when they are removed are only noted.
    pub fn take(
        &mut self,
        context: &mut Context,
        until_ns: i64,
        reached_ns: impl Fn(u32) -> i64,
        awaited: &FxHashSet<CycleId>,
    ) -> (Cycles, Vec<Turnaround>) {
        let count = context.tables.cycles.row_count();
        self.is_measured.resize(count, false);
        self.is_paired.resize(count, false);
        self.is_taken.resize(count, false);
        let turnarounds = self.measure(context, &reached_ns);
        let Context { tables, sessions, cycle_ends_ns, .. } = context;
        let cycles = &tables.cycles;
        let mut rows = Vec::new();
        self.settled_ns = until_ns;
        for (row, &end_ns) in cycle_ends_ns.iter().enumerate().take(count) {
            let is_whole = end_ns <= reached_ns(cycles.session[row])
                && (!awaited.contains(&CycleId::new(cycles.cycle[row]))
                    || end_ns < until_ns.saturating_sub(self.patience_ns));
            if self.is_measured[row] && !self.is_taken[row] && is_whole {
                self.is_taken[row] = true;
                rows.push(row);
            } else if !self.is_taken[row] {
                self.settled_ns = self.settled_ns.min(cycles.command_first_ns[row]);
            }
        }
        let mut taken = Cycles::default();
        if !self.keeps_removed {
            taken.copy_rows(cycles, &rows);
        }
        for &row in &rows {
            self.begun.entry(cycles.connection[row]).or_insert(cycles.session[row]);
            let session = cycles.session[row] as usize;
            let Some(cycle_count) = sessions.rows.cycle_count.get_mut(session) else { continue };
            *cycle_count += 1;
            let written = written_bytes(cycles, row);
            sessions.rows.write_bytes[session] += u64::from(written);
            sessions.rows.read_bytes[session] += u64::from(cycles.data_bytes[row] - written);
        }
        (taken, turnarounds)
    }

    /// Queue depths and next commands, as `queue` computes them for all rows at once.
    fn measure(&mut self, context: &mut Context, reached_ns: impl Fn(u32) -> i64) -> Vec<Turnaround> {
        let Context { tables, sessions, cycle_ends_ns, .. } = context;
        let cycles = &mut tables.cycles;
        let mut by_session: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (row, &session) in (0..).zip(&cycles.session) {
            let place = row as usize;
            // a command that ended before the last measured one is neither new nor in flight
            let is_past = self.is_measured[place]
                && self.is_paired[place]
                && self.measured_ns.get(&session).is_some_and(|&measured_ns| cycle_ends_ns[place] <= measured_ns);
            if !is_past {
                by_session.entry(session).or_default().push(row);
            }
        }
        let mut turnarounds = Vec::new();
        for (session, mut order) in by_session {
            let reached_ns = reached_ns(session);
            order.sort_by_key(|&row| cycles.command_first_ns[row as usize]);
            let mut ends: Vec<i64> = order.iter().map(|&row| cycle_ends_ns[row as usize]).collect();
            ends.sort_unstable();
            order.truncate(order.partition_point(|&row| cycles.command_first_ns[row as usize] <= reached_ns));
            let measured_ns = self.measured_ns.entry(session).or_insert(i64::MIN);
            let mut ended = 0;
            for (issued, &row) in order.iter().enumerate() {
                let row = row as usize;
                let now_ns = cycles.command_first_ns[row];
                while ends.get(ended).is_some_and(|&end_ns| end_ns <= now_ns) && ended <= issued {
                    ended += 1;
                }
                if self.is_measured[row] {
                    continue;
                }
                self.is_measured[row] = true;
                self.late_count += u64::from(now_ns < *measured_ns);
                *measured_ns = (*measured_ns).max(now_ns);
                let depth = (issued + 1).saturating_sub(ended).max(1) as u32;
                cycles.queue_depth[row] = depth;
                if let Some(most) = sessions.rows.queue_depth_max.get_mut(session as usize) {
                    *most = (*most).max(depth);
                }
            }
            for pair in order.windows(2) {
                let (row, next) = (pair[0] as usize, pair[1] as usize);
                if std::mem::replace(&mut self.is_paired[row], true) {
                    continue;
                }
                let commands = sessions.states.get(session as usize).map(|state| &state.commands);
                if let Some(next_ns) = next_command_ns(cycles, row, next, commands) {
                    cycles.next_command_ns[row] = next_ns;
                    turnarounds.push((cycles.operation[row], next_ns.saturating_sub(cycles.status_ns[row])));
                }
            }
        }
        turnarounds
    }

    /// Removes old rows that were taken, with their rounds, if there are enough of them; returns them, if they are wanted.
    pub fn drop_before(
        &mut self,
        context: &mut Context,
        before_ns: i64,
        until_ns: i64,
        awaited: &FxHashSet<CycleId>,
        open_sessions: &FxHashSet<u32>,
    ) -> Option<(Cycles, Rounds)> {
        let Context { tables, cycle_ends_ns, .. } = context;
        let Tables { cycles, rounds, write_starts, .. } = tables;
        let count = self.is_taken.len();
        let is_crowded = count > KEPT_ROWS_MAX;
        let is_awaited = |row: usize, end_ns: i64| {
            end_ns >= until_ns.saturating_sub(self.patience_ns) && awaited.contains(&CycleId::new(cycles.cycle[row]))
        };
        let is_kept: Vec<bool> = (0..cycles.row_count())
            .map(|row| {
                let end_ns = cycle_ends_ns[row];
                let is_old = end_ns < before_ns || is_crowded;
                // the last of a session waits for the next command, if there can be one
                let is_done = || self.is_paired[row] || !open_sessions.contains(&cycles.session[row]);
                row >= count || !(self.is_taken[row] && is_old && is_done()) || is_awaited(row, end_ns)
            })
            .collect();
        let dropped = is_kept.iter().filter(|is_kept| !**is_kept).count();
        if dropped * DROP_PART < is_kept.len() || dropped == 0 {
            return None;
        }
        let is_of_kept = |cycle: &u32| is_kept[cycles.row(CycleId::new(*cycle))];
        let is_round_kept: Vec<bool> = rounds.cycle.iter().map(is_of_kept).collect();
        let is_start_kept: Vec<bool> = write_starts.cycle.iter().map(is_of_kept).collect();
        let removed = self.keeps_removed.then(|| {
            (removed(&is_kept, cycles, Cycles::copy_rows), removed(&is_round_kept, rounds, Rounds::copy_rows))
        });
        cycles.let_go(&is_kept);
        rounds.let_go(&is_round_kept);
        write_starts.retain(&is_start_kept);
        for flags in [&mut self.is_measured, &mut self.is_paired, &mut self.is_taken] {
            retain(flags, &is_kept);
        }
        retain(cycle_ends_ns, &is_kept);
        Some(removed.unwrap_or_default())
    }

    /// Restarts after the capture clock was set back.
    pub fn begin_anew(&mut self) {
        self.measured_ns.clear();
    }

    /// Renumbers or removes sessions.
    pub fn place_sessions(&mut self, place: impl Fn(u32) -> Option<u32>) {
        let measured_ns = std::mem::take(&mut self.measured_ns);
        self.measured_ns = measured_ns.into_iter().filter_map(|(session, ns)| Some((place(session)?, ns))).collect();
        self.begun.values_mut().for_each(|session| *session = place(*session).unwrap_or(NULL_U32));
    }

    /// Removes a closed connection.
    pub fn forget_connection(&mut self, connection: u32) {
        self.begun.remove(&connection);
    }
}

/// A table of the rows that are not kept.
fn removed<T: Default>(is_kept: &[bool], table: &T, copy: impl FnOnce(&mut T, &T, &[usize])) -> T {
    let rows: Vec<usize> = (0..is_kept.len()).filter(|&row| !is_kept[row]).collect();
    let mut removed = T::default();
    copy(&mut removed, table, &rows);
    removed
}

fn retain<T>(values: &mut Vec<T>, is_kept: &[bool]) {
    let mut places = is_kept.iter();
    values.retain(|_| places.next().copied().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{CycleRow, Round, TaskManagement};

    /// One session with commands from and to these times.
    fn context(spans: &[(i64, i64)]) -> Context {
        let mut context = Context::default();
        context.sessions.open_unknown(0);
        add(&mut context, spans);
        context
    }

    fn add(context: &mut Context, spans: &[(i64, i64)]) {
        for &(command_first_ns, status_ns) in spans {
            context.cycle_ends_ns.push(status_ns);
            context.tables.cycles.push(CycleRow {
                cycle: context.tables.cycles.next_id().number(),
                session: 0,
                command_first_ns,
                status_ns,
                operation: 3,
                is_read: true,
                data_bytes: 100,
                ..CycleRow::default()
            });
        }
    }

    fn take(ledger: &mut Ledger, context: &mut Context, until_ns: i64) -> (Cycles, Vec<Turnaround>) {
        ledger.take(context, until_ns, |_| until_ns, &FxHashSet::default())
    }

    #[test]
    fn a_turnaround_is_from_a_status_to_the_next_command_at_queue_depth_1() {
        let mut context = context(&[(0, 100), (150, 180), (190, 300), (250, 310)]);
        let mut ledger = Ledger::default();
        let (cycles, turnarounds) = take(&mut ledger, &mut context, 1000);
        // the third overlaps the fourth
        assert_eq!(turnarounds, [(3, 50), (3, 10)]);
        assert_eq!(cycles.queue_depth, [1, 1, 1, 2]);
        assert_eq!(context.sessions.rows.cycle_count, [4]);
        assert_eq!((context.sessions.rows.read_bytes[0], context.sessions.rows.write_bytes[0]), (400, 0));
        // each is handed over once
        assert_eq!(take(&mut ledger, &mut context, 1000).0.row_count(), 0);
    }

    #[test]
    fn a_command_read_after_a_later_one_is_late() {
        let mut context = context(&[(100, 110), (100, 120)]);
        let mut ledger = Ledger::default();
        take(&mut ledger, &mut context, 1000);
        assert_eq!(ledger.late_count, 0, "commands of one instant are in order");
        add(&mut context, &[(20, 90)]);
        assert_eq!(take(&mut ledger, &mut context, 2000).0.row_count(), 1);
        assert_eq!(ledger.late_count, 1);
    }

    #[test]
    fn after_the_clock_was_set_back_no_command_is_late() {
        let mut context = context(&[(100, 110)]);
        let mut ledger = Ledger::default();
        take(&mut ledger, &mut context, 1000);
        ledger.begin_anew();
        add(&mut context, &[(20, 90)]);
        take(&mut ledger, &mut context, 2000);
        assert_eq!(ledger.late_count, 0);
    }

    #[test]
    fn a_renumbered_session_keeps_its_last_command() {
        let mut context = context(&[(100, 110)]);
        context.sessions.open_unknown(1);
        let mut ledger = Ledger::default();
        take(&mut ledger, &mut context, 1000);
        assert_eq!(ledger.begun.get(&context.tables.cycles.connection[0]), Some(&0));
        ledger.place_sessions(|session| (session == 0).then_some(1));
        assert_eq!(ledger.begun.get(&context.tables.cycles.connection[0]), Some(&1));
        add(&mut context, &[(20, 90)]);
        context.tables.cycles.session[1] = 1;
        take(&mut ledger, &mut context, 2000);
        assert_eq!(ledger.late_count, 1);
        // a removed one has no number
        ledger.place_sessions(|_| None);
        assert_eq!(ledger.begun.get(&context.tables.cycles.connection[0]), Some(&NULL_U32));
        ledger.forget_connection(context.tables.cycles.connection[0]);
        assert!(ledger.begun.is_empty());
    }

    #[test]
    fn a_command_in_flight_is_handed_over_later() {
        let mut context = context(&[(100, i64::MAX)]);
        let mut ledger = Ledger::default();
        assert_eq!(take(&mut ledger, &mut context, 1000).0.row_count(), 0);
        assert_eq!(ledger.settled_ns, 100);
        context.cycle_ends_ns[0] = 1500;
        context.tables.cycles.status_ns[0] = 1500;
        assert_eq!(take(&mut ledger, &mut context, 2000).0.row_count(), 1);
        assert_eq!(ledger.settled_ns, 2000);
    }

    #[test]
    fn rows_that_remain_keep_their_ids_and_their_rounds() {
        let mut context = context(&[(0, 100), (150, 180), (190, 300), (350, 400)]);
        for cycle in [0, 2, 2, 3] {
            context.tables.rounds.push(Round { cycle, ..Round::default() });
            context
                .tables
                .task_management
                .push(TaskManagement { referenced_cycle: cycle, ..TaskManagement::default() });
        }
        let mut ledger = Ledger::default();
        take(&mut ledger, &mut context, 1000);
        let open: FxHashSet<u32> = [0].into_iter().collect();
        let none = FxHashSet::default();
        assert!(
            ledger.drop_before(&mut context, 100, 1000, &none, &open).is_none(),
            "the first ends at 100, not before"
        );
        // the second is awaited and the last has no next command: both stay
        let awaited = [CycleId::new(1)].into_iter().collect();
        ledger.drop_before(&mut context, 1000, 1000, &awaited, &open).expect("two old rows");
        let Context { tables, cycle_ends_ns, .. } = &mut context;
        let rows = [0, 1, 2, 3, 4].map(|number| tables.cycles.has(CycleId::new(number)));
        assert_eq!(rows, [false, true, false, true, false]);
        assert_eq!(tables.cycles.row(CycleId::new(3)), 1);
        assert_eq!((&tables.cycles.cycle[..], &tables.cycles.status_ns[..]), (&[1, 3][..], &[180, 400][..]));
        assert_eq!((&tables.rounds.cycle[..], &cycle_ends_ns[..]), (&[3][..], &[180, 400][..]));
        assert_eq!(tables.task_management.referenced_cycle, [0, 2, 2, 3]);
        // for those who read them
        tables.number_cycles_anew();
        assert_eq!((&tables.cycles.cycle[..], &tables.rounds.cycle[..]), (&[0, 1][..], &[1][..]));
        assert_eq!(tables.task_management.referenced_cycle, [NULL_U32, NULL_U32, NULL_U32, 1]);
    }
}
