//! Queue depths, next commands and the totals of sessions; and which commands are final, while rows are added at the
//! end of the table and leave when complete. At the end of an input all is known at once.
//!
//! ```text
//! open -> ended -> measured: its queue depth is known -> taken: final, told once -> left, after a while
//! ```
//!
//! A queue depth is known when everything up to the command was read: so far a session is *reached*. Bytes behind a
//! hole hold it back, but not longer than the horizon; a command that is read later still is counted as late.

use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::iscsi::ranges::{COMMANDS, Ranges};
use crate::tables::{Columns, CycleId, Cycles, NULL_NS, Tables};

/// Rows are removed when at least one in this many can be.
const DROP_PART: usize = 4;
/// Maximum number of cycles that are kept; beyond it the time is shorter.
const KEPT_ROWS_MAX: usize = 1 << 17;

/// Time from a status to the next command of its session, at a queue depth of 1, by operation.
pub type Turnaround = (u8, i64);

/// How far a pass was read, and which rows may still change. The default is the end of the input.
#[derive(Debug)]
pub struct Reach {
    /// Everything before was read, as far as each session was.
    until_ns: i64,
    /// How long an ended command waits for what may still change its row.
    patience_ns: i64,
    /// How far sessions were read that were not read up to then.
    by_session: FxHashMap<u32, i64>,
    /// The rows that may still change.
    pub awaited: FxHashSet<CycleId>,
}

impl Default for Reach {
    fn default() -> Self {
        Self::until(i64::MAX, 0)
    }
}

impl Reach {
    /// All sessions were read up to then.
    pub fn until(until_ns: i64, patience_ns: i64) -> Self {
        Self { until_ns, patience_ns, by_session: FxHashMap::default(), awaited: FxHashSet::default() }
    }

    /// A session was read no further than that.
    pub fn hold_back(&mut self, session: u32, so_far_ns: i64) {
        let least_ns = self.by_session.entry(session).or_insert(self.until_ns);
        *least_ns = so_far_ns.min(*least_ns);
    }

    fn of(&self, session: u32) -> i64 {
        self.by_session.get(&session).copied().unwrap_or(self.until_ns)
    }

    fn is_awaited(&self, cycle: u32, end_ns: i64) -> bool {
        end_ns >= self.until_ns.saturating_sub(self.patience_ns) && self.awaited.contains(&CycleId::new(cycle))
    }
}

/// What became final.
#[derive(Debug, Default)]
pub struct News {
    /// The rows of commands.
    pub rows: Vec<usize>,
    /// Times to the next command, of commands that are or were final.
    pub turnarounds: Vec<Turnaround>,
    /// Commands that become final later begin after this.
    pub settled_ns: i64,
}

/// The progress of each row.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Ledger {
    is_measured: Vec<bool>,
    /// Whether the next command is known.
    is_paired: Vec<bool>,
    is_taken: Vec<bool>,
    /// The last measured command, by session.
    measured_ns: FxHashMap<u32, i64>,
    /// Connections with a command in the news so far, and their sessions.
    pub begun: FxHashMap<u32, u32>,
    /// Commands that were read after later ones had been measured.
    pub late_count: u64,
}

impl Ledger {
    /// Measures commands, and takes those that are final; each is told once, if the news are wanted.
    pub fn take(&mut self, context: &mut Context, reach: &Reach, mut news: Option<&mut News>) {
        let count = context.tables.cycles.row_count();
        self.is_measured.resize(count, false);
        self.is_paired.resize(count, false);
        self.is_taken.resize(count, false);
        self.measure(context, reach, news.as_deref_mut());
        let Context { tables, sessions, .. } = context;
        let cycles = &tables.cycles;
        let mut settled_ns = reach.by_session.values().copied().min().unwrap_or(i64::MAX).min(reach.until_ns);
        for row in 0..count {
            if self.is_taken[row] {
                continue;
            }
            let end_ns = cycles.in_flight_until_ns(row);
            let is_whole = end_ns <= reach.of(cycles.session[row]) && !reach.is_awaited(cycles.cycle[row], end_ns);
            if !self.is_measured[row] || !is_whole {
                settled_ns = settled_ns.min(cycles.command_first_ns[row]);
                continue;
            }
            self.is_taken[row] = true;
            if let Some(news) = &mut news {
                news.rows.push(row);
                self.begun.entry(cycles.connection[row]).or_insert(cycles.session[row]);
            }
            let session = sessions.row(cycles.session[row]);
            let Some(cycle_count) = sessions.rows.cycle_count.get_mut(session) else { continue };
            *cycle_count += 1;
            let written = written_bytes(cycles, row);
            sessions.rows.write_bytes[session] += u64::from(written);
            sessions.rows.read_bytes[session] += u64::from(cycles.data_bytes[row] - written);
        }
        if let Some(news) = news {
            news.settled_ns = settled_ns;
        }
    }

    /// Measures all commands at the end of the input.
    pub fn take_all(&mut self, context: &mut Context) {
        self.take(context, &Reach::default(), None);
    }

    /// Queue depths and next commands of the sessions, as far as they were read.
    fn measure(&mut self, context: &mut Context, reach: &Reach, mut news: Option<&mut News>) {
        let Context { tables, sessions, .. } = context;
        let cycles = &mut tables.cycles;
        let mut by_session: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (row, &session) in (0..).zip(&cycles.session) {
            let place = row as usize;
            // a command that ended before the last measured one is neither new nor in flight
            let is_past = self.is_measured[place]
                && self.is_paired[place]
                && self
                    .measured_ns
                    .get(&session)
                    .is_some_and(|&measured_ns| cycles.in_flight_until_ns(place) <= measured_ns);
            if !is_past {
                by_session.entry(session).or_default().push(row);
            }
        }
        for (session, mut order) in by_session {
            let reached_ns = reach.of(session);
            order.sort_by_key(|&row| cycles.command_first_ns[row as usize]);
            let mut ends: Vec<i64> = order.iter().map(|&row| cycles.in_flight_until_ns(row as usize)).collect();
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
                let place = sessions.row(session);
                if let Some(most) = sessions.rows.queue_depth_max.get_mut(place) {
                    *most = (*most).max(depth);
                }
            }
            for pair in order.windows(2) {
                let (row, next) = (pair[0] as usize, pair[1] as usize);
                if std::mem::replace(&mut self.is_paired[row], true) {
                    continue;
                }
                let commands = sessions.state(session).and_then(|state| state.commands.as_ref());
                if let Some(next_ns) = next_command_ns(cycles, row, next, commands) {
                    cycles.next_command_ns[row] = next_ns;
                    if let Some(news) = &mut news {
                        news.turnarounds.push((cycles.operation[row], next_ns.saturating_sub(cycles.status_ns[row])));
                    }
                }
            }
        }
    }

    /// Commands that were taken and ended before that time leave with their rounds, if there are enough of them. They go to
    /// `left`, if that is there.
    pub fn let_go(
        &mut self,
        context: &mut Context,
        before_ns: i64,
        reach: &Reach,
        open_sessions: &FxHashSet<u32>,
        left: Option<&mut Tables>,
    ) {
        let Tables { cycles, rounds, .. } = &context.tables;
        let count = self.is_taken.len();
        let is_crowded = count > KEPT_ROWS_MAX;
        let is_kept: Vec<bool> = (0..cycles.row_count())
            .map(|row| {
                let end_ns = cycles.in_flight_until_ns(row);
                let is_old = end_ns < before_ns || is_crowded;
                // the last of a session waits for the next command, if there can be one
                let is_done = || self.is_paired[row] || !open_sessions.contains(&cycles.session[row]);
                row >= count
                    || !(self.is_taken[row] && is_old && is_done())
                    || reach.is_awaited(cycles.cycle[row], end_ns)
            })
            .collect();
        let dropped = is_kept.iter().filter(|is_kept| !**is_kept).count();
        if dropped * DROP_PART < is_kept.len() || dropped == 0 {
            return;
        }
        if let Some(left) = left {
            let is_left = |row: &usize| !is_kept[*row];
            left.cycles.copy_rows(cycles, &(0..is_kept.len()).filter(is_left).collect::<Vec<_>>());
            let is_of_left = |&round: &usize| !is_kept[cycles.row(CycleId::new(rounds.cycle[round]))];
            left.rounds.copy_rows(rounds, &(0..rounds.row_count()).filter(is_of_left).collect::<Vec<_>>());
        }
        context.let_go(&is_kept);
        for flags in [&mut self.is_measured, &mut self.is_paired, &mut self.is_taken] {
            let mut is_kept = is_kept.iter();
            flags.retain(|_| is_kept.next().copied().unwrap_or(true));
        }
    }

    /// Restarts after the capture clock was set back.
    pub fn begin_anew(&mut self) {
        self.measured_ns.clear();
    }

    /// Connections left, and sessions: `is_kept` says of each whether it is there.
    pub fn forget(&mut self, connections: &[u32], is_kept: impl Fn(u32) -> bool) {
        connections.iter().for_each(|connection| {
            self.begun.remove(connection);
        });
        self.measured_ns.retain(|&session, _| is_kept(session));
    }
}

/// The time of the next command, after a command that was alone in flight: none if it began before the status, or if
/// commands between both were not captured.
fn next_command_ns(cycles: &Cycles, cycle: usize, next: usize, commands: Option<&Ranges>) -> Option<i64> {
    let (status_ns, next_ns) = (cycles.status_ns[cycle], cycles.command_first_ns[next]);
    let is_next = cycles.queue_depth[cycle] == 1 && status_ns != NULL_NS && next_ns >= status_ns;
    let (from, to) = (SerialNumber(cycles.cmd_sn[cycle]), SerialNumber(cycles.cmd_sn[next]));
    (is_next && commands.is_none_or(|commands| commands.has_all(from, to, &COMMANDS))).then_some(next_ns)
}

/// The bytes of a cycle that went to the target. For a bidirectional command: Data-Out and immediate data.
fn written_bytes(cycles: &Cycles, cycle: usize) -> u32 {
    let data_bytes = cycles.data_bytes[cycle];
    if !cycles.is_write[cycle] {
        0
    } else if !cycles.is_read[cycle] {
        data_bytes
    } else {
        let solicited = cycles.unsolicited_bytes[cycle].saturating_add(cycles.solicited_bytes[cycle]);
        cycles.immediate_bytes[cycle].saturating_add(solicited).min(data_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tables::{CycleRow, NULL_U32, Round, TaskManagement, ended_by};

    /// One session with commands from and to these times.
    fn context(spans: &[(i64, i64)]) -> Context {
        let mut context = Context::default();
        context.sessions.open_unknown(0);
        add(&mut context, spans);
        context
    }

    fn add(context: &mut Context, spans: &[(i64, i64)]) {
        for &(command_first_ns, status_ns) in spans {
            context.tables.cycles.push(CycleRow {
                cycle: context.tables.cycles.next_id().number(),
                session: 0,
                command_first_ns,
                status_ns,
                end_ns: status_ns,
                operation: 3,
                is_read: true,
                data_bytes: 100,
                ..CycleRow::default()
            });
        }
    }

    fn take(ledger: &mut Ledger, context: &mut Context, until_ns: i64) -> News {
        let mut news = News::default();
        ledger.take(context, &Reach::until(until_ns, 0), Some(&mut news));
        news
    }

    #[test]
    fn a_turnaround_is_from_a_status_to_the_next_command_at_queue_depth_1() {
        let mut context = context(&[(0, 100), (150, 180), (190, 300), (250, 310)]);
        let mut ledger = Ledger::default();
        let news = take(&mut ledger, &mut context, 1000);
        // the third overlaps the fourth
        assert_eq!(news.turnarounds, [(3, 50), (3, 10)]);
        assert_eq!(news.rows, [0, 1, 2, 3]);
        assert_eq!(context.tables.cycles.queue_depth, [1, 1, 1, 2]);
        assert_eq!(context.sessions.rows.cycle_count, [4]);
        assert_eq!((context.sessions.rows.read_bytes[0], context.sessions.rows.write_bytes[0]), (400, 0));
        // each is told once
        assert!(take(&mut ledger, &mut context, 1000).rows.is_empty());
    }

    #[test]
    fn a_command_read_after_a_later_one_is_late() {
        let mut context = context(&[(100, 110), (100, 120)]);
        let mut ledger = Ledger::default();
        take(&mut ledger, &mut context, 1000);
        assert_eq!(ledger.late_count, 0, "commands of one instant are in order");
        add(&mut context, &[(20, 90)]);
        assert_eq!(take(&mut ledger, &mut context, 2000).rows, [2]);
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
    fn a_session_that_left_has_no_last_command() {
        let mut context = context(&[(100, 110)]);
        let mut ledger = Ledger::default();
        take(&mut ledger, &mut context, 1000);
        let connection = context.tables.cycles.connection[0];
        assert_eq!(ledger.begun.get(&connection), Some(&0));
        ledger.forget(&[], |session| session == 0);
        add(&mut context, &[(20, 90)]);
        take(&mut ledger, &mut context, 2000);
        assert_eq!(ledger.late_count, 1);
        ledger.forget(&[], |_| false);
        add(&mut context, &[(10, 90)]);
        take(&mut ledger, &mut context, 2000);
        assert_eq!(ledger.late_count, 1);
        ledger.forget(&[connection], |_| false);
        assert!(ledger.begun.is_empty());
    }

    #[test]
    fn a_command_in_flight_becomes_final_later() {
        let mut context = context(&[(100, NULL_NS)]);
        let mut ledger = Ledger::default();
        let news = take(&mut ledger, &mut context, 1000);
        assert_eq!((news.rows.len(), news.settled_ns), (0, 100));
        context.tables.cycles.end(0, 1500, ended_by::STATUS);
        context.tables.cycles.status_ns[0] = 1500;
        let news = take(&mut ledger, &mut context, 2000);
        assert_eq!((&news.rows[..], news.settled_ns), (&[0][..], 2000));
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
        let mut reach = Reach::until(1000, 1000);
        let mut left = Tables::default();
        // the first ends at 100, not before
        ledger.let_go(&mut context, 100, &reach, &open, Some(&mut left));
        assert_eq!((left.cycles.row_count(), context.tables.cycles.row_count()), (0, 4));
        // the second is awaited and the last has no next command: both stay
        reach.awaited = [CycleId::new(1)].into_iter().collect();
        ledger.let_go(&mut context, 1000, &reach, &open, Some(&mut left));
        assert_eq!((&left.cycles.cycle[..], &left.rounds.cycle[..]), (&[0, 2][..], &[0, 2, 2][..]));
        let tables = &mut context.tables;
        let rows = [0, 1, 2, 3, 4].map(|number| tables.cycles.has(CycleId::new(number)));
        assert_eq!(rows, [false, true, false, true, false]);
        assert_eq!(tables.cycles.row(CycleId::new(3)), 1);
        assert_eq!((&tables.cycles.cycle[..], &tables.cycles.status_ns[..]), (&[1, 3][..], &[180, 400][..]));
        assert_eq!((&tables.rounds.cycle[..], &tables.cycles.end_ns[..]), (&[3][..], &[180, 400][..]));
        assert_eq!(tables.task_management.referenced_cycle, [0, 2, 2, 3]);
        // for those who read them
        tables.number_cycles_anew();
        assert_eq!((&tables.cycles.cycle[..], &tables.rounds.cycle[..]), (&[0, 1][..], &[1][..]));
        assert_eq!(tables.task_management.referenced_cycle, [NULL_U32, NULL_U32, NULL_U32, 1]);
    }

    #[test]
    fn payload_is_counted_by_direction() {
        let mut context = context(&[]);
        let cycles = &mut context.tables.cycles;
        let row = CycleRow { session: 0, ..CycleRow::default() };
        cycles.push(CycleRow { is_read: true, data_bytes: 5000, ..row.clone() });
        cycles.push(CycleRow { is_write: true, data_bytes: 700, solicited_bytes: 700, ..row.clone() });
        cycles.push(CycleRow {
            is_read: true,
            is_write: true,
            data_bytes: 90,
            immediate_bytes: 10,
            unsolicited_bytes: 20,
            solicited_bytes: 30,
            ..row
        });
        Ledger::default().take_all(&mut context);
        let sessions = &context.sessions.rows;
        assert_eq!((sessions.read_bytes[0], sessions.write_bytes[0]), (5000 + 30, 700 + 60));
    }

    proptest! {
        /// Compared with counting the open commands one by one.
        #[test]
        fn equals_brute_force(tasks in proptest::collection::vec((0i64..100, 1i64..40, any::<bool>()), 1..30)) {
            let mut context = context(&[]);
            for &(start_ns, duration_ns, has_status) in &tasks {
                let end_ns = start_ns + duration_ns;
                context.tables.cycles.push(CycleRow {
                    session: 0,
                    command_first_ns: start_ns,
                    status_ns: if has_status { end_ns } else { NULL_NS },
                    end_ns,
                    ..CycleRow::default()
                });
            }
            Ledger::default().take_all(&mut context);
            let cycles = &context.tables.cycles;
            for (own, &(start_ns, duration_ns, has_status)) in tasks.iter().enumerate() {
                // commands issued before it, or at the same instant and earlier in the table, that have not ended
                let depth = 1 + tasks.iter().enumerate().filter(|&(other, &(other_start_ns, other_duration_ns, _))| {
                    (other_start_ns, other) < (start_ns, own) && other_start_ns + other_duration_ns > start_ns
                }).count();
                prop_assert_eq!(cycles.queue_depth[own] as usize, depth);
                let next = tasks.iter().enumerate().filter(|&(other, &(other_start_ns, ..))| (other_start_ns, other) > (start_ns, own))
                    .map(|(_, &(other_start_ns, ..))| other_start_ns).min();
                let expected = match next {
                    Some(next_ns) if depth == 1 && has_status && next_ns >= start_ns + duration_ns => next_ns,
                    _ => NULL_NS,
                };
                prop_assert_eq!(cycles.next_command_ns[own], expected);
            }
        }
    }
}
