//! Small cases with a breakdown computed by hand, and random ones compared with a model that looks at every nanosecond.

use iscsitrace_wire::cdb::Operation;
use proptest::prelude::*;
use rustc_hash::FxHashMap;

use super::scope::Scope;
use super::{Between, SHARE, by_shares};
use crate::iscsi::session::succession::Succession;
use crate::senders::load::Excess;
use crate::senders::timeline::{Limited, Timeline};
use crate::tables::{
    Budget, BudgetRow, Connection, CycleRow, NULL_NS, NULL_U32, NULL_U64, Round, Session, Tables, budget_part as part,
    ended_by, in_flight,
};

const RTT_TO_TARGET_NS: i64 = 160;
const RTT_TO_INITIATOR_NS: i64 = 2;

/// As after a pass over these tables.
pub(super) fn fill(tables: &mut Tables, timelines: &[Timeline]) {
    let succession = Succession::of_tables(tables);
    super::fill(tables, timelines, &succession);
}

fn fill_between(tables: &mut Tables, timelines: &[Timeline], between: &Between<'_>) {
    super::fill_between(tables, timelines, &Succession::default(), between);
}

fn timeline(connection: u32) -> Timeline {
    Timeline {
        connection,
        hosts: None,
        deliveries: Default::default(),
        excess: Vec::new(),
        standing: [None, None],
        rtt_to_target_ns: Some(RTT_TO_TARGET_NS),
        rtt_to_initiator_ns: Some(RTT_TO_INITIATOR_NS),
        line_busy: [Vec::new(), Vec::new()],
        queued: Default::default(),
        limited: Default::default(),
        stalls: Vec::new(),
        progress: Default::default(),
        silences: Default::default(),
    }
}

fn tables(cycles: &[CycleRow]) -> Tables {
    let mut tables = Tables::default();
    let sessions = cycles.iter().map(|cycle| cycle.session).max().map_or(0, |last| last + 1);
    (0..sessions).for_each(|session| {
        tables.sessions.push(Session { session, ..Session::default() });
    });
    for (number, cycle) in (0..).zip(cycles) {
        tables.cycles.push(CycleRow { cycle: number, ..cycle.clone() });
    }
    tables
}

fn read(start_ns: i64, status_ns: i64) -> CycleRow {
    CycleRow {
        session: 0,
        is_read: true,
        command_first_ns: start_ns,
        command_last_ns: start_ns,
        status_ns,
        ..CycleRow::default()
    }
}

/// Codes of parts: UNKNOWN is the last.
const PARTS: usize = part::UNKNOWN as usize + 1;

/// Sums by part of the connection's rows (or of the session's).
fn sums(tables: &Tables, connection: u32) -> [i64; PARTS] {
    let mut sums = [0; PARTS];
    let budget = &tables.budget;
    for row in 0..budget.part.len() {
        if budget.connection[row] == connection {
            sums[usize::from(budget.part[row])] += budget.time_last_ns[row] - budget.time_first_ns[row];
        }
    }
    sums
}

fn expect(tables: &Tables, expected: &[(u8, i64)]) {
    let mut all = [0; PARTS];
    expected.iter().for_each(|&(part, ns)| all[usize::from(part)] = ns);
    assert_eq!(sums(tables, 0), all);
}

#[test]
fn a_read_takes_rtt_and_transfer_then_target_service_and_think_time() {
    // command, 160 RTT + 30 service, 50 of data, think time 40 of which 2 are RTT, and again without service
    let mut tables = tables(&[read(0, 240), read(280, 490)]);
    let line_busy = [Vec::new(), vec![(190, 240), (440, 490)]];
    fill(&mut tables, &[Timeline { line_busy, ..timeline(0) }]);
    expect(
        &tables,
        &[(part::TRANSFER, 100), (part::PROPAGATION, 322), (part::TARGET_SERVICE, 30), (part::INITIATOR_THINK, 38)],
    );
}

#[test]
fn a_status_that_is_sent_again_keeps_its_command_in_flight_until_the_ack() {
    // a status of 160 whose ACK comes at 400; the next command at 420, its status at 580
    let mut tables = tables(&[CycleRow { status_acked_ns: 400, ..read(0, 160) }, read(420, 580)]);
    // what held the sender meanwhile does not count: it had nothing to send but this
    let wait = Limited { from_ns: 160, to_ns: 300, part: part::CONGESTION_WINDOW, frame: 0, needs_queue: false };
    fill(&mut tables, &[Timeline { limited: [Vec::new(), vec![wait]], ..timeline(0) }]);
    expect(&tables, &[(part::PROPAGATION, 320), (part::LOSS_RECOVERY, 240), (part::INITIATOR_THINK, 20)]);
    let lost = tables.budget.part.iter().position(|&part| part == part::LOSS_RECOVERY);
    assert!(lost.is_some_and(|row| tables.budget.in_flight[row] == in_flight::DATA));
}

#[test]
fn a_status_that_is_sent_again_beside_other_commands_takes_no_time_of_theirs() {
    let mut tables = tables(&[CycleRow { status_acked_ns: 400, ..read(0, 160) }, read(100, 500)]);
    fill(&mut tables, &[timeline(0)]);
    expect(&tables, &[(part::PROPAGATION, 260), (part::TARGET_SERVICE, 240)]);
}

#[test]
fn the_rtt_of_queued_data_starts_after_the_line() {
    // a write whose data the line carries until 100; its status comes one RTT later
    let mut tables = tables(&[CycleRow { is_read: false, is_write: true, ..read(0, 260) }]);
    fill(&mut tables, &[Timeline { line_busy: [vec![(0, 100)], Vec::new()], ..timeline(0) }]);
    expect(&tables, &[(part::TRANSFER, 100), (part::PROPAGATION, 160)]);
}

#[test]
fn a_command_whose_data_is_still_on_its_way_does_not_wait_for_the_target() {
    // the rest of its immediate data comes at 400: beyond the RTT of the path the initiator took its time
    let mut tables = tables(&[CycleRow { is_read: false, is_write: true, command_last_ns: 400, ..read(0, 600) }]);
    fill(&mut tables, &[timeline(0)]);
    let path_ns = RTT_TO_TARGET_NS + RTT_TO_INITIATOR_NS;
    let (late_ns, served_ns) = (400 - path_ns, 200 - RTT_TO_TARGET_NS);
    expect(
        &tables,
        &[
            (part::PROPAGATION, path_ns + RTT_TO_TARGET_NS),
            (part::INITIATOR_SERVICE, late_ns),
            (part::TARGET_SERVICE, served_ns),
        ],
    );
}

#[test]
fn time_in_a_queue_on_the_path_is_not_service_time() {
    // from 200 on the path takes 300 longer, for 250 ms
    let mut tables = tables(&[read(0, 200), read(300, 900)]);
    let far = Timeline { excess: vec![Excess { time_ns: 200, by_ns: 300, unloaded_ns: 0 }], ..timeline(0) };
    fill(&mut tables, &[far]);
    expect(
        &tables,
        &[
            (part::PROPAGATION, RTT_TO_TARGET_NS + RTT_TO_INITIATOR_NS + RTT_TO_TARGET_NS + 300),
            (part::TARGET_SERVICE, 200 - RTT_TO_TARGET_NS + 600 - RTT_TO_TARGET_NS - 300),
            (part::INITIATOR_THINK, 100 - RTT_TO_INITIATOR_NS),
        ],
    );
}

#[test]
fn an_r2t_waits_for_the_initiator_and_its_burst_for_the_target() {
    let mut tables = tables(&[CycleRow { is_read: false, is_write: true, r2t_count: 1, ..read(0, 500) }]);
    tables.rounds.push(Round { cycle: 0, r2t_ns: 170, data_last_ns: 220, ..Round::default() });
    fill(&mut tables, &[Timeline { line_busy: [vec![(200, 220)], Vec::new()], ..timeline(0) }]);
    expect(
        &tables,
        &[
            (part::TRANSFER, 20),
            // to the R2T, to the data, to the status
            (part::PROPAGATION, 160 + 2 + 160),
            (part::TARGET_SERVICE, 10 + 120),
            (part::INITIATOR_SERVICE, 28),
        ],
    );
}

#[test]
fn an_r2t_behind_data_within_an_rtt_does_not_wait_for_the_initiator() {
    let wait = Limited { from_ns: 150, to_ns: 190, part: part::INITIATOR_SERVICE, frame: 9, needs_queue: false };
    // the target's data hold no R2T up
    for (limited, held_ns) in [([vec![wait], Vec::new()], 18), ([Vec::new(), vec![wait]], 0)] {
        let mut tables = tables(&[CycleRow { is_read: false, is_write: true, r2t_count: 1, ..read(0, 500) }]);
        tables.rounds.push(Round { cycle: 0, r2t_ns: 170, data_last_ns: 220, ..Round::default() });
        fill(&mut tables, &[Timeline { line_busy: [vec![(200, 220)], Vec::new()], limited, ..timeline(0) }]);
        expect(
            &tables,
            &[
                (part::TRANSFER, 20),
                (part::PROPAGATION, 160 + 2 + 160 + held_ns),
                (part::TARGET_SERVICE, 10 + 120),
                (part::INITIATOR_SERVICE, 28 - held_ns),
            ],
        );
    }
}

#[test]
fn an_r2t_may_have_the_time_of_a_burst() {
    let write = CycleRow { is_read: false, is_write: true, r2t_count: 2, ..read(0, 480) };
    let mut near_target = tables(std::slice::from_ref(&write));
    for (r2t_ns, data_last_ns) in [(0, 2), (2, 4)] {
        near_target.rounds.push(Round { cycle: 0, r2t_ns, data_last_ns, ..Round::default() });
    }
    fill(&mut near_target, &[timeline(0)]);
    expect(&near_target, &[(part::PROPAGATION, 4 + 160), (part::TARGET_SERVICE, 316)]);
    let mut near_initiator = tables(&[write]);
    for at_ns in [160, 320] {
        near_initiator.rounds.push(Round { cycle: 0, r2t_ns: at_ns, data_last_ns: at_ns, ..Round::default() });
    }
    fill(&mut near_initiator, &[timeline(0)]);
    expect(&near_initiator, &[(part::PROPAGATION, 480)]);
}

#[test]
fn a_limited_sender_has_its_pause_but_not_the_busy_time_of_the_line() {
    let limited = vec![
        Limited { from_ns: 200, to_ns: 300, part: part::RECEIVE_WINDOW, frame: 9, needs_queue: false },
        Limited { from_ns: 250, to_ns: 320, part: part::LOSS_RECOVERY, frame: 9, needs_queue: false },
    ];
    let mut tables = tables(&[read(0, 400)]);
    let line_busy = [Vec::new(), vec![(160, 210), (320, 400)]];
    fill(&mut tables, &[Timeline { line_busy, limited: [limited, Vec::new()], ..timeline(0) }]);
    expect(
        &tables,
        &[(part::TRANSFER, 130), (part::PROPAGATION, 160), (part::RECEIVE_WINDOW, 40), (part::LOSS_RECOVERY, 70)],
    );
}

#[test]
fn with_several_commands_the_oldest_wait_counts() {
    // the RTT would explain more of the second command's wait, but the target has had the first one longer
    let mut tables = tables(&[read(0, 400), read(150, 410)]);
    fill(&mut tables, &[timeline(0)]);
    expect(&tables, &[(part::PROPAGATION, 160), (part::TARGET_SERVICE, 250)]);
}

#[test]
fn an_unknown_rtt_makes_the_wait_unknown() {
    let mut tables = tables(&[read(0, 400)]);
    fill(&mut tables, &[Timeline { rtt_to_target_ns: None, ..timeline(0) }]);
    expect(&tables, &[(part::UNKNOWN, 400)]);
}

#[test]
fn a_session_of_two_connections_is_busy_when_one_of_them_is() {
    let second = CycleRow { connection: 1, ..read(0, 240) };
    let mut tables = tables(&[read(0, 240), second]);
    let busy = |from_ns, to_ns| [Vec::new(), vec![(from_ns, to_ns)]];
    let timelines =
        [Timeline { line_busy: busy(160, 220), ..timeline(0) }, Timeline { line_busy: busy(200, 240), ..timeline(1) }];
    fill(&mut tables, &timelines);
    assert_eq!(sums(&tables, NULL_U32)[usize::from(part::TRANSFER)], 80);
    assert_eq!(sums(&tables, 0)[usize::from(part::TRANSFER)], 60);
    assert_eq!(sums(&tables, 1)[usize::from(part::TRANSFER)], 40);
}

/// Rows of the breakdown: start, end, part, cycle and frame.
fn rows(tables: &Tables) -> Vec<(i64, i64, u8, u32, u64)> {
    let budget = &tables.budget;
    (0..budget.part.len())
        .map(|row| {
            let (first_ns, last_ns) = (budget.time_first_ns[row], budget.time_last_ns[row]);
            (first_ns, last_ns, budget.part[row], budget.cycle[row], budget.frame[row])
        })
        .collect()
}

#[test]
fn a_span_has_the_frame_that_ended_it_if_one_did() {
    let mut tables = tables(&[CycleRow { status_frame: 9, ..read(0, 400) }]);
    fill(&mut tables, &[timeline(0)]);
    // the RTT ends without a packet
    assert_eq!(rows(&tables), [(0, 160, part::PROPAGATION, 0, NULL_U64), (160, 400, part::TARGET_SERVICE, 0, 9)]);
}

#[test]
fn a_transfer_belongs_to_a_cycle_only_if_one_command_is_in_flight() {
    let mut tables = tables(&[read(0, 400), read(150, 300)]);
    let line_busy = [Vec::new(), vec![(100, 200), (350, 400)]];
    fill(&mut tables, &[Timeline { line_busy, ..timeline(0) }]);
    let transfers: Vec<_> = rows(&tables).into_iter().filter(|row| row.2 == part::TRANSFER).collect();
    assert_eq!(
        transfers.iter().map(|row| (row.0, row.1, row.3)).collect::<Vec<_>>(),
        [(100, 150, 0), (150, 200, NULL_U32), (350, 400, 0)]
    );
}

#[test]
fn a_span_has_the_strongest_kind_of_command_in_flight() {
    let of = |operation: Operation, start_ns, status_ns| CycleRow {
        operation: operation as u8,
        is_read: false,
        ..read(start_ns, status_ns)
    };
    let mut tables = tables(&[
        of(Operation::Inquiry, 0, 100),
        of(Operation::SynchronizeCache, 50, 300),
        of(Operation::Unmap, 200, 250),
        // no command from 300 to 400, then one that was cut off before its operation
        read(400, 450),
        of(Operation::Other, 450, 500),
        CycleRow { is_read: true, bytes: 512, ..of(Operation::Other, 500, 600) },
    ]);
    fill(&mut tables, &[timeline(0)]);
    let budget = &tables.budget;
    let mut seen: Vec<(i64, u8)> = Vec::new();
    for (&first_ns, &kind) in budget.time_first_ns.iter().zip(&budget.in_flight) {
        if seen.last().is_none_or(|last| last.1 != kind) {
            seen.push((first_ns, kind));
        }
    }
    assert_eq!(
        seen,
        [
            (0, in_flight::OTHER),
            (50, in_flight::FLUSH),
            (200, in_flight::DATA),
            (250, in_flight::FLUSH),
            // the status of the flush has reached the initiator
            (302, in_flight::NONE),
            (400, in_flight::DATA),
            (450, in_flight::OTHER),
            (500, in_flight::DATA),
        ]
    );
}

#[test]
fn a_read_is_in_flight_until_its_status_and_queued_data_have_reached_the_initiator() {
    // at a tap beside the target, commands are answered at once; the line behind the tap takes from 0 to 100
    let mut tables = tables(&[read(0, 0), read(200, 200), read(500, 500)]);
    let line_busy = [Vec::new(), vec![(0, 100), (450, 500)]];
    let beside = Timeline { line_busy, rtt_to_initiator_ns: Some(160), ..timeline(0) };
    fill(&mut tables, &[beside]);
    let seen: Vec<_> =
        rows(&tables).into_iter().zip(&tables.budget.in_flight).map(|(row, &kind)| (row.0, row.2, kind)).collect();
    assert_eq!(
        seen,
        [
            (0, part::TRANSFER, in_flight::DATA),
            (100, part::PROPAGATION, in_flight::DATA),
            (360, part::INITIATOR_THINK, in_flight::NONE),
            (450, part::TRANSFER, in_flight::NONE),
        ]
    );
}

#[test]
fn a_sender_that_is_limited_keeps_no_command_in_flight_after_its_status_arrived() {
    let mut tables = tables(&[read(0, 300), read(6000, 6100)]);
    let (part, frame, needs_queue) = (part::CONGESTION_WINDOW, NULL_U64, false);
    let limited = vec![Limited { from_ns: 300, to_ns: 5000, part, frame, needs_queue }];
    fill(&mut tables, &[Timeline { limited: [limited, Vec::new()], ..timeline(0) }]);
    let seen: Vec<_> = rows(&tables)
        .into_iter()
        .zip(&tables.budget.in_flight)
        .filter(|(row, _)| row.2 == part)
        .map(|(row, &kind)| (row.0, row.1, kind))
        .collect();
    assert_eq!(seen, [(300, 300 + RTT_TO_INITIATOR_NS, in_flight::DATA), (302, 5000, in_flight::NONE)]);
}

prop_compose! {
    fn interval(span: i64)(a in 0..span, b in 0..span) -> (i64, i64) { (a.min(b), a.max(b)) }
}

fn disjoint(mut intervals: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    intervals.sort_unstable();
    let mut reached = i64::MIN;
    intervals.retain(|&(from_ns, to_ns)| {
        let is_free = from_ns >= reached;
        if is_free {
            reached = to_ns;
        }
        is_free
    });
    intervals
}

proptest! {
    #[test]
    fn every_nanosecond_has_one_part_and_busy_ones_are_transfer(
        spans in prop::collection::vec(interval(2_000), 1..12),
        busy in prop::collection::vec(interval(2_000), 0..12),
        limited in prop::collection::vec((interval(2_000), 5_u8..10), 0..6),
    ) {
        let ended = |&(from_ns, to_ns): &(i64, i64)| CycleRow { end_ns: to_ns, ..read(from_ns, to_ns) };
        let cycles: Vec<CycleRow> = spans.iter().map(ended).collect();
        let mut tables = tables(&cycles);
        let line_busy = disjoint(busy);
        let limited: Vec<Limited> =
            limited.into_iter().map(|((from_ns, to_ns), part)| Limited { from_ns, to_ns, part, frame: 1, needs_queue: false }).collect();
        fill(&mut tables, &[Timeline { line_busy: [line_busy.clone(), Vec::new()], limited: [limited.clone(), Vec::new()], ..timeline(0) }]);
        let start_ns = spans.iter().map(|span| span.0).min().unwrap();
        let end_ns = spans.iter().map(|span| span.1).max().unwrap();
        let budget = &tables.budget;
        let mut reached_ns = start_ns;
        for row in 0..budget.part.len() {
            prop_assert_eq!(budget.time_first_ns[row], reached_ns);
            prop_assert!(budget.time_last_ns[row] > reached_ns);
            reached_ns = budget.time_last_ns[row];
            for now_ns in budget.time_first_ns[row]..reached_ns {
                let is_in = |&(from_ns, to_ns): &(i64, i64)| from_ns <= now_ns && now_ns < to_ns;
                let is_busy = line_busy.iter().any(is_in);
                let strongest = [part::UNKNOWN, part::LOSS_RECOVERY, part::RECEIVE_WINDOW, part::CONGESTION_WINDOW, part::SEND_BUFFER, part::ACK_WAIT]
                    .into_iter()
                    .find(|&part| limited.iter().any(|limited| limited.part == part && is_in(&(limited.from_ns, limited.to_ns))));
                let is_outstanding = spans.iter().any(is_in);
                match budget.part[row] {
                    part::TRANSFER => prop_assert!(is_busy),
                    _ if is_busy => prop_assert!(false, "busy at {now_ns}"),
                    owner if strongest.is_some() => prop_assert_eq!(Some(owner), strongest),
                    part::INITIATOR_THINK => prop_assert!(!is_outstanding),
                    part::TARGET_SERVICE => prop_assert!(is_outstanding),
                    owner => prop_assert_eq!(owner, part::PROPAGATION),
                }
            }
        }
        if end_ns > start_ns {
            prop_assert_eq!(reached_ns, end_ns);
        }
        for (cycle, &(from_ns, to_ns)) in spans.iter().enumerate() {
            let is_idle = |now_ns: &i64| !line_busy.iter().any(|&(from_ns, to_ns)| from_ns <= *now_ns && *now_ns < to_ns);
            let idle_ns = if end_ns > start_ns { (from_ns..to_ns).filter(is_idle).count() as i64 } else { NULL_NS };
            prop_assert_eq!(tables.cycles.idle_ns[cycle], idle_ns);
        }
    }
}

#[test]
fn a_command_has_the_idle_time_of_its_own_connection() {
    let on = |connection, start_ns, end_ns| CycleRow { connection, end_ns, ..read(start_ns, end_ns) };
    // a status that the capture lacks: the breakdown does not cover the command to its end
    let cut = CycleRow { status_ns: NULL_NS, has_capture_gap: true, ..on(1, 200, 900) };
    let in_flight = CycleRow { end_ns: NULL_NS, ..read(500, NULL_NS) };
    let mut tables = tables(&[on(1, 0, 300), on(0, 100, 400), cut, on(0, 450, 600), in_flight, on(2, 0, 50)]);
    let line_busy = |from_ns, to_ns| [Vec::new(), vec![(from_ns, to_ns)]];
    let timelines = [
        Timeline { line_busy: line_busy(150, 200), ..timeline(0) },
        Timeline { line_busy: line_busy(0, 280), ..timeline(1) },
    ];
    fill(&mut tables, &timelines);
    assert_eq!(tables.cycles.idle_ns, [20, 250, NULL_NS, 150, NULL_NS, NULL_NS]);
}

proptest! {
    #[test]
    fn breakdowns_of_intervals_add_up_to_that_of_the_whole(
        spans in prop::collection::vec(interval(2_000), 1..12),
        busy in prop::collection::vec(interval(2_000), 0..12),
        limited in prop::collection::vec((interval(2_000), 5_u8..10), 0..6),
        cuts in prop::collection::vec(0_i64..2_000, 0..5),
    ) {
        let cycles: Vec<CycleRow> = spans.iter().map(|&(from_ns, to_ns)| read(from_ns, to_ns)).collect();
        let limited = limited.into_iter().map(|((from_ns, to_ns), part)| Limited { from_ns, to_ns, part, frame: 1, needs_queue: false }).collect();
        let timelines = [Timeline { line_busy: [disjoint(busy), Vec::new()], limited: [limited, Vec::new()], ..timeline(0) }];
        let mut whole = tables(&cycles);
        fill(&mut whole, &timelines);
        let start_ns = spans.iter().map(|span| span.0).min().unwrap();
        let end_ns = spans.iter().map(|span| span.1).max().unwrap();
        let mut edges: Vec<i64> = cuts.into_iter().filter(|cut| (start_ns..end_ns).contains(cut)).collect();
        edges.extend([start_ns - 10, end_ns]);
        edges.sort_unstable();
        let mut found = [0; PARTS];
        for pair in edges.windows(2) {
            let (from_ns, to_ns) = (pair[0], pair[1]);
            let begun: FxHashMap<u32, u32> = (from_ns >= start_ns).then_some((0, 0)).into_iter().collect();
            let mut part = tables(&cycles);
            fill_between(&mut part, &timelines, &Between { from_ns, to_ns, begun: &begun, has_whole_outages: false });
            for row in 0..part.budget.part.len() {
                prop_assert!(part.budget.time_first_ns[row] >= from_ns && part.budget.time_last_ns[row] <= to_ns);
            }
            found.iter_mut().zip(sums(&part, 0)).for_each(|(sum, ns)| *sum += ns);
        }
        if end_ns > start_ns {
            prop_assert_eq!(found, sums(&whole, 0));
        }
    }
}

#[test]
fn a_used_connection_is_idle_without_a_command() {
    let mut tables = tables(&[]);
    tables.sessions.push(Session::default());
    let begun = FxHashMap::from_iter([(0, 0)]);
    fill_between(
        &mut tables,
        &[timeline(0)],
        &Between { from_ns: 100, to_ns: 300, begun: &begun, has_whole_outages: false },
    );
    expect(&tables, &[(part::INITIATOR_THINK, 200)]);
    assert_eq!(tables.budget.session, [0]);
}

/// Rows of a table as text, to compare whole ones.
fn whole(budget: &Budget) -> String {
    format!("{budget:#?}")
}

#[test]
fn a_row_has_its_session_connection_and_command() {
    // connection 5 is 160 ns from the target, connection 6 300 ns
    let commands = [(5, 0, 400), (6, 100, 500)].map(|(connection, start_ns, status_ns)| CycleRow {
        session: 1,
        connection,
        status_frame: 10 + u64::from(connection),
        ..read(start_ns, status_ns)
    });
    let mut tables = tables(&commands);
    let timelines = [Timeline { rtt_to_target_ns: Some(300), ..timeline(6) }, timeline(5)];
    fill(&mut tables, &timelines);
    let mut expected = Budget::default();
    for (connection, time_first_ns, time_last_ns, part, cycle, frame) in [
        (6, 100, 400, part::PROPAGATION, 1, NULL_U64),
        (6, 400, 500, part::TARGET_SERVICE, 1, 16),
        (5, 0, 160, part::PROPAGATION, 0, NULL_U64),
        (5, 160, 400, part::TARGET_SERVICE, 0, 15),
        // the session: the target has had one of the two commands since 160
        (NULL_U32, 0, 160, part::PROPAGATION, 0, NULL_U64),
        (NULL_U32, 160, 400, part::TARGET_SERVICE, 0, 15),
        (NULL_U32, 400, 500, part::TARGET_SERVICE, 1, 16),
    ] {
        let in_flight = in_flight::DATA;
        expected.push(BudgetRow { session: 1, connection, time_first_ns, time_last_ns, part, cycle, in_flight, frame });
    }
    assert_eq!(whole(&tables.budget), whole(&expected));
}

#[test]
fn a_session_is_idle_only_while_all_its_connections_are() {
    let second = CycleRow { connection: 1, ..read(600, 700) };
    let mut tables = tables(&[read(0, 400), second]);
    fill(&mut tables, &[timeline(0), timeline(1)]);
    // 400 to 602: the RTT to the initiator, then think time until the second connection's command
    let session = sums(&tables, NULL_U32);
    assert_eq!((session[usize::from(part::INITIATOR_THINK)], session[usize::from(part::PROPAGATION)]), (198, 262));
    assert_eq!((sums(&tables, 0).iter().sum::<i64>(), sums(&tables, 1).iter().sum::<i64>()), (400, 100));
}

#[test]
fn the_target_has_a_command_once_its_last_byte_has_passed() {
    let write =
        |r2t_count, data_last_ns| CycleRow { is_read: false, is_write: true, r2t_count, data_last_ns, ..read(0, 400) };
    for (command, sent_ns) in [
        (CycleRow { command_last_ns: 50, ..read(0, 400) }, 50),
        // unsolicited data; data of an R2T counts with its round, and data of a read is the target's
        (write(0, 100), 100),
        (write(1, 100), 0),
        (CycleRow { data_last_ns: 100, ..read(0, 400) }, 0),
    ] {
        let mut tables = tables(&[command]);
        fill(&mut tables, &[timeline(0)]);
        expect(&tables, &[(part::PROPAGATION, sent_ns + 160), (part::TARGET_SERVICE, 240 - sent_ns)]);
    }
}

#[test]
fn a_round_without_its_r2t_or_its_data_does_not_count() {
    let write = CycleRow { is_read: false, is_write: true, r2t_count: 1, ..read(0, 500) };
    for (r2t_ns, data_last_ns) in [(NULL_NS, 220), (170, NULL_NS), (220, 170)] {
        let mut tables = tables(std::slice::from_ref(&write));
        tables.rounds.push(Round { cycle: 0, r2t_ns, data_last_ns, ..Round::default() });
        fill(&mut tables, &[timeline(0)]);
        expect(&tables, &[(part::PROPAGATION, 160), (part::TARGET_SERVICE, 340)]);
    }
}

#[test]
fn rounds_belong_to_their_command() {
    let write = |start_ns| CycleRow { is_read: false, is_write: true, r2t_count: 1, ..read(start_ns, start_ns + 500) };
    let mut tables = tables(&[write(0), write(1000)]);
    // the R2Ts wait 80 and 40 ns for data, of which 2 are RTT
    for (cycle, r2t_ns, data_last_ns) in [(1, 1200, 1240), (0, 200, 280)] {
        tables.rounds.push(Round {
            cycle,
            r2t_ns,
            data_last_ns,
            r2t_frame: 30,
            data_last_frame: 31,
            ..Round::default()
        });
    }
    fill(&mut tables, &[timeline(0)]);
    let mut initiator: Vec<_> = rows(&tables).into_iter().filter(|row| row.2 == part::INITIATOR_SERVICE).collect();
    initiator.sort_unstable();
    assert_eq!(initiator, [(202, 280, part::INITIATOR_SERVICE, 0, 31), (1202, 1240, part::INITIATOR_SERVICE, 1, 31)]);
    // the wait for an R2T ends with its frame
    assert!(rows(&tables).contains(&(160, 200, part::TARGET_SERVICE, 0, 30)));
}

#[test]
fn a_command_without_status_ends_where_it_was_given_up() {
    let line_busy = [Vec::new(), vec![(160, 400)]];
    for (end_ns, alone_from_ns) in [(250, 250), (NULL_NS, 400)] {
        let mut tables = tables(&[read(0, 400), CycleRow { end_ns, ..read(0, NULL_NS) }]);
        fill(&mut tables, &[Timeline { line_busy: line_busy.clone(), ..timeline(0) }]);
        let alone = rows(&tables).iter().find(|row| row.2 == part::TRANSFER && row.3 == 0).map(|row| row.0);
        assert_eq!(alone, (alone_from_ns < 400).then_some(alone_from_ns));
    }
}

#[test]
fn a_read_that_hangs_at_the_end_lasts_as_long_as_its_connection() {
    let hung = |row: CycleRow, connection: Connection| {
        let mut tables = tables(&[read(0, 200), row]);
        tables.connections.push(Connection { time_last_ns: 9_000, ..connection });
        fill(&mut tables, &[timeline(0)]);
        rows(&tables).last().map(|row| row.1)
    };
    let whole = || Connection { connection: 0, ..Connection::default() };
    let open = CycleRow { end_ns: 8_000, ended_by: ended_by::CONNECTION_END, ..read(300, NULL_NS) };
    assert_eq!(hung(open.clone(), whole()), Some(9_000));
    // aborted
    let aborted = CycleRow { end_ns: 5_000, ended_by: ended_by::ABORT, ..open.clone() };
    assert_eq!(hung(aborted, whole()), Some(5_000));
    // its status may be missing from the capture
    assert_eq!(hung(open.clone(), Connection { gap_bytes_to_initiator: 1, ..whole() }), Some(200));
    // the same, unless the target sent nothing since the command
    for (data_last_ns, end_ns) in [(301, 200), (300, 9_000)] {
        let cut = Connection { missing_pdu_count_to_initiator: 1, data_last_to_initiator_ns: data_last_ns, ..whole() };
        assert_eq!(hung(open.clone(), cut), Some(end_ns));
    }
    let lost = CycleRow { has_capture_gap: true, ..open.clone() };
    assert_eq!(hung(lost, whole()), Some(200));
    // a scan that hangs has nothing to do with reads and writes
    let inquiry = CycleRow { operation: Operation::Inquiry as u8, ..open.clone() };
    assert_eq!(hung(inquiry, whole()), Some(200));
    let mut alone = tables(&[open]);
    alone.connections.push(Connection { time_last_ns: 9_000, ..whole() });
    fill(&mut alone, &[timeline(0)]);
    expect(&alone, &[(part::PROPAGATION, 160), (part::TARGET_SERVICE, 8_540)]);
}

#[test]
fn spans_without_length_change_nothing() {
    let limited = vec![Limited { from_ns: 50, to_ns: 50, part: part::RECEIVE_WINDOW, frame: 9, needs_queue: false }];
    let mut tables = tables(&[read(0, 400)]);
    fill(
        &mut tables,
        &[Timeline { line_busy: [vec![(60, 60)], vec![(70, 70)]], limited: [limited, Vec::new()], ..timeline(0) }],
    );
    expect(&tables, &[(part::PROPAGATION, 160), (part::TARGET_SERVICE, 240)]);
}

#[test]
fn of_two_lines_or_limits_each_must_end() {
    let limited = |from_ns, to_ns, part| Limited { from_ns, to_ns, part, frame: 9, needs_queue: false };
    let mut tables = tables(&[read(0, 400)]);
    let limited = vec![limited(200, 240, part::ACK_WAIT), limited(220, 260, part::ACK_WAIT)];
    fill(
        &mut tables,
        &[Timeline { line_busy: [vec![(300, 340)], vec![(320, 360)]], limited: [limited, Vec::new()], ..timeline(0) }],
    );
    expect(
        &tables,
        &[(part::PROPAGATION, 160), (part::TARGET_SERVICE, 120), (part::ACK_WAIT, 60), (part::TRANSFER, 60)],
    );
}

#[test]
fn an_unknown_rtt_to_the_initiator_makes_its_idle_time_unknown() {
    let mut tables = tables(&[read(0, 400), read(500, 900)]);
    fill(&mut tables, &[Timeline { rtt_to_initiator_ns: None, ..timeline(0) }]);
    expect(&tables, &[(part::PROPAGATION, 320), (part::TARGET_SERVICE, 480), (part::UNKNOWN, 100)]);
}

#[test]
fn a_part_of_the_time_has_what_lies_within_it() {
    let between = |from_ns, to_ns, begun: &[(u32, u32)]| {
        let mut tables = tables(&[read(100, 500)]);
        let begun = begun.iter().copied().collect();
        fill_between(&mut tables, &[timeline(0)], &Between { from_ns, to_ns, begun: &begun, has_whole_outages: false });
        rows(&tables).iter().map(|row| (row.0, row.1, row.2)).collect::<Vec<_>>()
    };
    let (propagation, service, think) = (part::PROPAGATION, part::TARGET_SERVICE, part::INITIATOR_THINK);
    assert_eq!(between(200, 300, &[]), [(200, 260, propagation), (260, 300, service)]);
    // before its first command a connection has no time, unless it had one earlier
    assert_eq!(between(50, 150, &[]), [(100, 150, propagation)]);
    assert_eq!(between(50, 150, &[(0, 0)]), [(50, 100, think), (100, 150, propagation)]);
    assert_eq!(between(50, 100, &[]), []);
    assert_eq!(between(450, 600, &[]), [(450, 500, service), (500, 502, propagation), (502, 600, think)]);
}

#[test]
fn idle_connections_of_a_session_have_its_time_too() {
    let mut tables = tables(&[]);
    for session in 0..2 {
        tables.sessions.push(Session { session, ..Session::default() });
    }
    let begun = FxHashMap::from_iter([(0, 1), (1, 1)]);
    let between = Between { from_ns: 100, to_ns: 300, begun: &begun, has_whole_outages: false };
    fill_between(&mut tables, &[timeline(0), timeline(1), timeline(2)], &between);
    let budget = &tables.budget;
    assert_eq!((&budget.connection[..], &budget.session[..]), (&[0, 1, NULL_U32][..], &[1, 1, 1][..]));
    assert_eq!(budget.part, [part::INITIATOR_THINK; 3]);
}

#[test]
fn rows_come_in_the_order_of_their_scopes() {
    for count in [1, SHARE, SHARE + 1, 20 * SHARE + 5] {
        let timelines: Vec<Timeline> = (0..count as u32).map(timeline).collect();
        let scopes: Vec<Scope<'_>> = timelines.iter().map(Scope::of_connection).collect();
        let budget = by_shares(&scopes, |share| {
            Budget::of(share.iter().map(|scope| BudgetRow { connection: scope.connection, ..BudgetRow::default() }))
        });
        assert_eq!(budget.connection, (0..count as u32).collect::<Vec<_>>());
    }
}
