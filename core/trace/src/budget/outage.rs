//! Outages: times of a second or more in which commands are in flight and nothing progresses.
//!
//! Progress is a byte of new data, an R2T, or the status of a read, a write or a flush. Whatever else such a time would
//! count as is the reaction to the outage, or its repetition: retransmissions, a window that no ACK opens.

use super::answers::answered_ns;
use crate::senders::timeline::{Timeline, join};
use crate::stream::progress::{OUTAGE_MIN_NS, Progress};
use crate::tables::in_flight::{self, kind};
use crate::tables::{Cycles, NULL_NS};
use iscsitrace_wire::cdb::Operation;

/// A target that works is silent for no longer than these multiples of the longest silence that a quarter of its commands
/// wait through until they are answered, and of that wait. One that takes seconds for most of them is slow, and not out.
const SILENCE_TIMES: i64 = 4;
const WAIT_TIMES: i64 = 2;

/// SCSI status GOOD.
const GOOD: u8 = 0;

/// The outages among these commands (rows of `cycles`), each in flight from its start to `end_ns` of it. `requests_ns`
/// are the instants of their R2Ts.
pub(super) fn outages(
    cycles: &Cycles,
    rows: &[u32],
    requests_ns: impl Iterator<Item = i64>,
    timelines: &[&Timeline],
    end_ns: impl Fn(usize) -> i64,
) -> Vec<(i64, i64)> {
    let work = || rows.iter().map(|&row| row as usize).filter(|&row| kind(cycles, row) >= in_flight::FLUSH);
    let mut waits: Vec<(i64, i64)> =
        work().map(|row| (cycles.command_first_ns[row], end_ns(row))).filter(|(from, to)| from < to).collect();
    // what nobody acknowledges is a status, or was sent while no command waited
    waits.extend(timelines.iter().flat_map(|timeline| &timeline.stalls));
    join(&mut waits);
    if waits.iter().all(|(from_ns, to_ns)| to_ns.saturating_sub(*from_ns) < OUTAGE_MIN_NS) {
        return Vec::new();
    }
    let statuses = work().flat_map(|row| {
        let answered_ns = answered_ns(cycles, row).unwrap_or(NULL_NS);
        [cycles.status_ns[row], cycles.data_first_ns[row], cycles.data_last_ns[row], answered_ns]
    });
    let mut instants: Vec<i64> = statuses.chain(requests_ns).collect();
    instants.retain(|&instant| instant != NULL_NS);
    instants.sort_unstable();
    let mut progress = Progress::default();
    instants.iter().for_each(|&instant| progress.note(instant));
    let mut spans = progress.spans().to_vec();
    spans.extend(timelines.iter().flat_map(|timeline| timeline.progress.spans()));
    join(&mut spans);
    // a slow UNMAP or flush that succeeds is slow, and not out
    let mut slow_ends: Vec<i64> =
        work().filter(|&row| is_slow_kind(cycles, row)).map(|row| cycles.status_ns[row]).collect();
    slow_ends.sort_unstable();
    let mut found = without(&waits, &spans);
    found.retain(|&(from_ns, to_ns)| {
        to_ns.saturating_sub(from_ns) >= OUTAGE_MIN_NS && slow_ends.binary_search(&to_ns).is_err()
    });
    if !found.is_empty() {
        let (wait_ns, silence_ns) = usual_ns(cycles, work(), &instants);
        let least_ns = SILENCE_TIMES.saturating_mul(silence_ns).max(WAIT_TIMES.saturating_mul(wait_ns));
        found.retain(|&(from_ns, to_ns)| to_ns.saturating_sub(from_ns) >= least_ns);
    }
    found
}

/// What a quarter of these commands take from their start to their first answer (data, an end), and the longest silence
/// that a quarter of them wait through in that time: between two `instants` of progress of the scope, which are ordered.
/// 0 without answers.
fn usual_ns(cycles: &Cycles, rows: impl Iterator<Item = usize>, instants: &[i64]) -> (i64, i64) {
    let mut waits: Vec<(usize, i64, i64)> = rows
        .filter_map(|row| {
            let ended_ns = answered_ns(cycles, row)?;
            let data_ns = cycles.data_first_ns[row];
            let answer_ns = if cycles.is_read[row] && data_ns != NULL_NS { data_ns.min(ended_ns) } else { ended_ns };
            let place = instants.partition_point(|&instant| instant < answer_ns);
            let start_ns = cycles.command_first_ns[row];
            Some((place, start_ns, answer_ns.saturating_sub(start_ns)))
        })
        .collect();
    waits.sort_unstable();
    // silences that are longer than all after them: the first within a wait is its longest
    let mut longest: Vec<(i64, i64)> = Vec::new();
    let mut next = 0;
    let (mut waits_ns, mut silences_ns): (Vec<i64>, Vec<i64>) = waits
        .into_iter()
        .map(|(place, start_ns, wait_ns)| {
            for pair in instants.get(next..=place).unwrap_or_default().windows(2) {
                let silence_ns = pair[1].saturating_sub(pair[0]);
                while longest.last().is_some_and(|&(_, length_ns)| length_ns <= silence_ns) {
                    longest.pop();
                }
                longest.push((pair[0], silence_ns));
            }
            next = place;
            let within = longest.partition_point(|&(from_ns, _)| from_ns < start_ns);
            let first = instants.partition_point(|&instant| instant <= start_ns).min(place);
            let begun_ns = instants.get(first).map_or(0, |&instant| instant.saturating_sub(start_ns));
            (wait_ns, longest.get(within).map_or(0, |&(_, length_ns)| length_ns).max(begun_ns))
        })
        .unzip();
    (quarter_ns(&mut waits_ns), quarter_ns(&mut silences_ns))
}

/// The first quartile; 0 of none.
fn quarter_ns(times_ns: &mut [i64]) -> i64 {
    let quarter = times_ns.len().saturating_sub(1) / 4;
    if times_ns.is_empty() { 0 } else { *times_ns.select_nth_unstable(quarter).1 }
}

/// Whether it succeeded, and is no read or write: UNMAP, WRITE SAME, SYNCHRONIZE CACHE.
fn is_slow_kind(cycles: &Cycles, row: usize) -> bool {
    let operation = Operation::ALL.get(usize::from(cycles.operation[row]));
    cycles.status[row] == GOOD && operation.is_some_and(|operation| !operation.moves_blocks())
}

/// What these spans have outside those; both ordered and disjoint.
fn without(spans: &[(i64, i64)], others: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut left = Vec::new();
    for &(mut from_ns, to_ns) in spans {
        let first = others.partition_point(|&(_, end_ns)| end_ns < from_ns);
        for &(start_ns, end_ns) in others.iter().skip(first).take_while(|(start_ns, _)| *start_ns < to_ns) {
            if from_ns < start_ns {
                left.push((from_ns, start_ns));
            }
            from_ns = from_ns.max(end_ns);
        }
        if from_ns < to_ns {
            left.push((from_ns, to_ns));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::budget::tests::fill;
    use crate::tables::{Connection, Connections, CycleRow, NULL_U32, Session, Tables, budget_part as part, ended_by};

    const SECOND: i64 = 1_000_000_000;
    const MS: i64 = 1_000_000;

    fn read(start_ns: i64, status_ns: i64) -> CycleRow {
        CycleRow {
            session: 0,
            is_read: true,
            bytes: 512,
            command_first_ns: start_ns,
            command_last_ns: start_ns,
            status_ns,
            status: GOOD,
            ..CycleRow::default()
        }
    }

    fn timeline(connection: u32) -> Timeline {
        Timeline {
            connection,
            hosts: None,
            deliveries: Default::default(),
            excess: Vec::new(),
            standing: [None, None],
            rtt_to_target_ns: Some(2 * MS),
            rtt_to_initiator_ns: Some(0),
            line_busy: [Vec::new(), Vec::new()],
            queued: Default::default(),
            limited: Default::default(),
            stalls: Vec::new(),
            progress: Progress::default(),
            silences: Default::default(),
        }
    }

    /// One session on each connection; each replaces the one before it.
    fn sessions(cycles: &[CycleRow], ends_ns: &[i64], last_ns: &[i64]) -> Tables {
        let mut tables = Tables::default();
        for (number, &time_last_ns) in (0..).zip(last_ns) {
            let replaces = if number == 0 { NULL_U32 } else { number - 1 };
            tables.sessions.push(Session { session: number, replaces, time_last_ns, ..Session::default() });
            let row = Connection { connection: number, session: number, time_last_ns, ..Connection::default() };
            tables.connections.push(row);
        }
        for (number, (cycle, &end_ns)) in (0..).zip(cycles.iter().zip(ends_ns)) {
            let ended_by = if cycle.status_ns == NULL_NS { ended_by::CONNECTION_END } else { ended_by::STATUS };
            let row = CycleRow { cycle: number, connection: cycle.session, end_ns, ended_by, ..cycle.clone() };
            tables.cycles.push(row);
        }
        let timelines: Vec<Timeline> = (0..last_ns.len() as u32).map(timeline).collect();
        fill(&mut tables, &timelines);
        tables
    }

    /// The outages of a session: start and end in ms, and what was in flight.
    fn outages(tables: &Tables, session: u32) -> Vec<(i64, i64, u8)> {
        let budget = &tables.budget;
        (0..budget.part.len())
            .filter(|&row| budget.session[row] == session && budget.part[row] == part::OUTAGE)
            .map(|row| (budget.time_first_ns[row] / MS, budget.time_last_ns[row] / MS, budget.in_flight[row]))
            .collect()
    }

    fn alone(cycles: &[CycleRow]) -> Vec<(i64, i64, u8)> {
        let ends_ns: Vec<i64> = cycles.iter().map(|cycle| cycle.status_ns).collect();
        let last_ns = ends_ns.iter().copied().max().unwrap_or(0);
        outages(&sessions(cycles, &ends_ns, &[last_ns]), 0)
    }

    /// Reads of 5 ms, one after another from `from_ns` on.
    fn healthy(from_ns: i64, count: i64) -> Vec<CycleRow> {
        (0..count)
            .map(|read_number| read(from_ns + read_number * 5 * MS, from_ns + (read_number + 1) * 5 * MS))
            .collect()
    }

    #[test]
    fn a_second_without_progress_is_an_outage_and_less_is_none() {
        for (took_ns, expected) in [(SECOND, vec![(20, 1020, in_flight::DATA)]), (SECOND - 1, vec![])] {
            let mut cycles = healthy(0, 4);
            cycles.push(read(20 * MS, 20 * MS + took_ns));
            cycles.extend(healthy(20 * MS + took_ns, 4));
            assert_eq!(alone(&cycles), expected);
        }
    }

    #[test]
    fn it_begins_with_the_last_progress_or_with_the_first_command() {
        // the second command is in flight when the first completes
        let cycles = [read(0, 10 * MS), read(5 * MS, 3 * SECOND), read(0, 6 * MS), read(0, 7 * MS)];
        assert_eq!(alone(&cycles), [(10, 3000, in_flight::DATA)]);
        // the program was idle before
        let mut cycles = healthy(0, 4);
        cycles.push(read(2 * SECOND, 4 * SECOND));
        assert_eq!(alone(&cycles), [(2000, 4000, in_flight::DATA)]);
    }

    #[test]
    fn a_command_whose_status_may_be_cut_off_is_not_waited_for() {
        // reads, a pause of the program, and reads; of the third no status was read
        let mut cycles = healthy(0, 4);
        cycles[2].status_ns = NULL_NS;
        cycles.extend(healthy(3 * SECOND, 4));
        let ends_ns: Vec<i64> =
            cycles.iter().map(|cycle| if cycle.status_ns == NULL_NS { 4 * SECOND } else { cycle.status_ns }).collect();
        let outages_with = |missing_pdu_count_to_initiator: u64, data_last_to_initiator_ns: i64| {
            let mut tables = sessions(&cycles, &ends_ns, &[4 * SECOND]);
            tables.connections = Connections::of([Connection {
                missing_pdu_count_to_initiator,
                data_last_to_initiator_ns,
                time_last_ns: 4 * SECOND,
                session: 0,
                ..Connection::default()
            }]);
            fill(&mut tables, &[timeline(0)]);
            outages(&tables, 0)
        };
        // until the first status after the pause
        assert_eq!(outages_with(0, 3020 * MS), [(20, 3005, in_flight::DATA)]);
        assert_eq!(outages_with(1, 3020 * MS), []);
        // the target sent nothing since
        assert_eq!(outages_with(1, 10 * MS), [(20, 3005, in_flight::DATA)]);
    }

    #[test]
    fn a_target_that_always_takes_seconds_is_slow_and_not_out() {
        let slow = |count: i64, took_ns: i64| -> Vec<CycleRow> {
            (0..count).map(|number| read(number * took_ns, (number + 1) * took_ns)).collect()
        };
        assert_eq!(alone(&slow(8, 2 * SECOND)), []);
        // four times as long as usual
        let mut cycles = slow(8, 2 * SECOND);
        cycles.push(read(16 * SECOND, 24 * SECOND));
        assert_eq!(alone(&cycles), [(16_000, 24_000, in_flight::DATA)]);
        *cycles.last_mut().unwrap() = read(16 * SECOND, 24 * SECOND - 1);
        assert_eq!(alone(&cycles), []);
    }

    #[test]
    fn a_deep_queue_makes_commands_slow_and_their_silences_short() {
        // each takes 2 s, and one of them ends every 250 ms
        let deep = |from_ns: i64, count: i64| -> Vec<CycleRow> {
            (0..count).map(|number| from_ns + number * 250 * MS).map(|at_ns| read(at_ns, at_ns + 2 * SECOND)).collect()
        };
        // the first of them take as long as all, and 4 s are twice that
        let mut cycles = deep(0, 40);
        assert_eq!(alone(&cycles), []);
        for (pause_ns, expected) in [(2 * SECOND, vec![]), (4 * SECOND, vec![(11_500, 15_750, in_flight::DATA)])] {
            let mut paused = deep(0, 40);
            paused.last_mut().unwrap().status_ns += pause_ns;
            assert_eq!(alone(&paused), expected);
        }
        cycles.push(read(11_600 * MS, 13_750 * MS));
        assert_eq!(alone(&cycles), []);
    }

    #[test]
    fn data_that_take_seconds_to_transfer_are_no_silence() {
        let on_a_slow_line = |start_ns: i64, first_ns: i64, last_ns: i64| CycleRow {
            data_first_ns: start_ns + first_ns,
            data_last_ns: start_ns + last_ns,
            ..read(start_ns, start_ns + last_ns)
        };
        let mut cycles: Vec<CycleRow> =
            (0..8).map(|number| on_a_slow_line(number * 900 * MS, 5 * MS, 900 * MS)).collect();
        cycles.push(on_a_slow_line(7200 * MS, 3 * SECOND, 3900 * MS));
        assert_eq!(alone(&cycles), [(7200, 10_200, in_flight::DATA)]);
    }

    #[test]
    fn a_slow_unmap_or_flush_that_succeeds_is_no_outage() {
        for operation in [Operation::Unmap, Operation::SynchronizeCache] {
            let mut cycles = healthy(0, 4);
            cycles.push(CycleRow { operation: operation as u8, ..read(20 * MS, 3 * SECOND) });
            cycles.push(read(20 * MS, 3 * SECOND));
            assert_eq!(alone(&cycles), []);
            cycles[4].status = 2;
            assert_eq!(alone(&cycles), [(20, 3000, in_flight::DATA)]);
        }
    }

    #[test]
    fn new_data_is_progress_and_a_retransmission_is_none() {
        let mut cycles = healthy(0, 4);
        cycles.push(read(20 * MS, 5 * SECOND));
        let mut tables = Tables::default();
        tables.sessions.push(Session { session: 0, ..Session::default() });
        (0..).zip(&cycles).for_each(|(number, cycle)| {
            tables.cycles.push(CycleRow { cycle: number, ..cycle.clone() });
        });
        let mut timeline = timeline(0);
        // the line is busy with something at 1 s, and with new data at 3 s
        timeline.line_busy[1] = vec![(SECOND, SECOND + MS), (3 * SECOND, 3 * SECOND + MS)];
        [3 * SECOND, 3 * SECOND + MS].into_iter().for_each(|time_ns| timeline.progress.note(time_ns));
        fill(&mut tables, &[timeline]);
        assert_eq!(outages(&tables, 0), [(20, 3000, in_flight::DATA), (3001, 5000, in_flight::DATA)]);
    }

    #[test]
    fn a_status_that_is_repeated_without_an_answer_is_awaited() {
        let stalled = |stall: (i64, i64)| {
            let mut cycles = healthy(0, 4);
            cycles.extend(healthy(3 * SECOND, 4));
            let mut tables = Tables::default();
            tables.sessions.push(Session { session: 0, ..Session::default() });
            (0..).zip(&cycles).for_each(|(number, cycle)| {
                tables.cycles.push(CycleRow { cycle: number, ..cycle.clone() });
            });
            fill(&mut tables, &[Timeline { stalls: vec![stall], ..timeline(0) }]);
            outages(&tables, 0)
        };
        // until the next read was answered
        assert_eq!(stalled((20 * MS, 3 * SECOND)), [(20, 3005, in_flight::DATA)]);
        // the program was idle for the rest
        assert_eq!(stalled((500 * MS, 1500 * MS)), [(500, 1500, in_flight::DATA)]);
        assert_eq!(stalled((500 * MS, 1499 * MS)), []);
        // meanwhile others were answered
        assert_eq!(stalled((2500 * MS, 3500 * MS)), []);
    }

    #[test]
    fn a_read_that_a_loss_cuts_off_waits_for_the_first_read_of_the_next_session() {
        let mut cycles = healthy(0, 4);
        cycles.push(read(20 * MS, NULL_NS));
        // scan at 9 s, first read at 10 s; the first connection ends at 5 s
        let second = |row: CycleRow| CycleRow { session: 1, ..row };
        cycles.push(second(CycleRow { operation: Operation::Inquiry as u8, ..read(9 * SECOND, 9 * SECOND + MS) }));
        cycles.push(second(read(10 * SECOND, 10 * SECOND + 5 * MS)));
        let ends_ns = [5, 10, 15, 20, 5000, 9001, 10_005].map(|ms| ms * MS);
        let tables = sessions(&cycles, &ends_ns, &[5 * SECOND, 11 * SECOND]);
        assert_eq!(outages(&tables, 0), [(20, 10_000, in_flight::DATA)]);
        assert_eq!(outages(&tables, 1), []);
    }

    #[test]
    fn a_session_that_was_idle_when_it_was_lost_is_out_until_the_next_one_is_in_use() {
        let mut cycles = healthy(0, 4);
        cycles.push(CycleRow { session: 2, ..read(9 * SECOND, 9 * SECOND + 5 * MS) });
        let ends_ns = [5, 10, 15, 20, 9005].map(|ms| ms * MS);
        // lost at 5 s; the login at 6 s was refused
        let tables = sessions(&cycles, &ends_ns, &[5 * SECOND, 6 * SECOND, 11 * SECOND]);
        let session = &tables.sessions.time_first_ns;
        assert_eq!(session.len(), 3);
        assert_eq!(outages(&tables, 0), [(20, 9000, in_flight::DATA)]);
    }

    /// The rows of a session: each begins where the one before ends.
    fn joined_rows(tables: &Tables, session: u32) -> Vec<(i64, i64, u8)> {
        let budget = &tables.budget;
        let rows: Vec<(i64, i64, u8)> = (0..budget.part.len())
            .filter(|&row| budget.session[row] == session)
            .map(|row| (budget.time_first_ns[row], budget.time_last_ns[row], budget.part[row]))
            .collect();
        assert!(rows.windows(2).all(|pair| pair[0].1 == pair[1].0), "{rows:?}");
        assert!(rows.iter().all(|&(from_ns, to_ns, _)| from_ns < to_ns));
        rows
    }

    const UNIT: i64 = 100 * MS;

    proptest! {
        #[test]
        fn every_nanosecond_has_one_part_and_long_waits_without_progress_are_outages(
            spans in prop::collection::vec((0..100_i64, 1..40_i64), 1..12),
        ) {
            let spans: Vec<(i64, i64)> = spans.into_iter().map(|(from, length)| (from, from + length)).collect();
            let cycles: Vec<CycleRow> = spans.iter().map(|&(from, to)| read(from * UNIT, to * UNIT)).collect();
            let ends_ns: Vec<i64> = cycles.iter().map(|cycle| cycle.status_ns).collect();
            let (start, end) = (spans.iter().map(|span| span.0).min().unwrap(), spans.iter().map(|span| span.1).max().unwrap());
            let rows = joined_rows(&sessions(&cycles, &ends_ns, &[end * UNIT]), 0);
            let total_ns: i64 = rows.iter().map(|&(from_ns, to_ns, _)| to_ns - from_ns).sum();
            prop_assert_eq!(total_ns, (end - start) * UNIT);
            let silence = |&(from, to): &(i64, i64)| {
                let mut ends: Vec<i64> = spans.iter().map(|span| span.1).filter(|end| (from..=to).contains(end)).collect();
                ends.push(from);
                ends.sort_unstable();
                ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
            };
            let mut silences: Vec<i64> = spans.iter().map(silence).collect();
            silences.sort_unstable();
            let mut took: Vec<i64> = spans.iter().map(|&(from, to)| to - from).collect();
            took.sort_unstable();
            let quarter = (took.len() - 1) / 4;
            let least = (SECOND / UNIT).max(SILENCE_TIMES * silences[quarter]).max(WAIT_TIMES * took[quarter]);
            let is_waiting = |instant: i64| spans.iter().any(|&(from, to)| from <= instant && instant < to);
            let is_progress = |instant: i64| spans.iter().any(|&(_, to)| to == instant);
            for instant in start..end {
                let mut from = instant;
                while is_waiting(from - 1) && !is_progress(from) {
                    from -= 1;
                }
                let mut to = instant + 1;
                while is_waiting(to) && !is_progress(to) {
                    to += 1;
                }
                let is_out = is_waiting(instant) && to - from >= least;
                let middle_ns = instant * UNIT + UNIT / 2;
                let part = rows.iter().find(|&&(from_ns, to_ns, _)| from_ns <= middle_ns && middle_ns < to_ns);
                prop_assert_eq!(part.map(|row| row.2 == part::OUTAGE), Some(is_out), "at {} of {:?}", instant, &spans);
            }
        }

        #[test]
        fn sessions_that_replace_each_other_have_no_gap_and_no_overlap(
            reads in prop::collection::vec((0..3_usize, 0..60_i64, prop::option::of(1..40_i64)), 1..16),
        ) {
            let last_ns: Vec<i64> = (1..=3).map(|session| session * 100 * UNIT).collect();
            let mut cycles = Vec::new();
            for (session, from, took) in reads {
                let start_ns = (session as i64 * 100 + from) * UNIT;
                let status_ns = took.map_or(NULL_NS, |took| start_ns + took * UNIT);
                cycles.push(CycleRow { session: session as u32, ..read(start_ns, status_ns) });
            }
            cycles.sort_by_key(|cycle| cycle.command_first_ns);
            let end_of = |cycle: &CycleRow| if cycle.status_ns == NULL_NS { last_ns[cycle.session as usize] } else { cycle.status_ns };
            let ends_ns: Vec<i64> = cycles.iter().map(end_of).collect();
            let tables = sessions(&cycles, &ends_ns, &last_ns);
            for session in 0..3 {
                let rows = joined_rows(&tables, session);
                let Some(first) = cycles.iter().find(|cycle| cycle.session == session) else { continue };
                prop_assert_eq!(rows.first().map(|row| row.0), Some(first.command_first_ns));
                let least_end_ns = cycles.iter().filter(|cycle| cycle.session == session).map(end_of).max();
                prop_assert!(rows.last().map(|row| row.1) >= least_end_ns);
            }
        }

        #[test]
        fn what_is_left_of_spans_is_what_no_other_covers(
            ours in prop::collection::btree_set(0..60_i64, 0..10),
            others in prop::collection::btree_set(0..60_i64, 0..10),
        ) {
            let pairs = |cuts: std::collections::BTreeSet<i64>| -> Vec<(i64, i64)> {
                let cuts: Vec<i64> = cuts.into_iter().collect();
                cuts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
            };
            let (ours, others) = (pairs(ours), pairs(others));
            let covers = |spans: &[(i64, i64)], instant: i64| {
                spans.iter().any(|&(from_ns, to_ns)| from_ns <= instant && instant < to_ns)
            };
            let left = without(&ours, &others);
            for instant in 0..60 {
                prop_assert_eq!(covers(&left, instant), covers(&ours, instant) && !covers(&others, instant));
            }
        }
    }
}
