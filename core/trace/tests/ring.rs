//! A ring of captures, read with its state handed on as bytes between any two of them, against one pass over all packets.

mod conversation;

use std::convert::Infallible;
use std::io::Cursor;

use conversation::{Captured, Damage, Settings, damage, everything};
use iscsitrace_trace::pass::{Selection, run};
use iscsitrace_trace::reader::Input;
use iscsitrace_trace::ring::{Ring, StateError};
use iscsitrace_trace::tables::{Column, Columns, Tables, Wanted};
use iscsitrace_wire::capture_writer::PcapngWriter;
use iscsitrace_wire::frame::LinkType;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, RngSeed};

/// The same cases every time.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(7143),
        rng_algorithm: RngAlgorithm::ChaCha,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Twenty seconds before a full hour.
const START_NS: i64 = 1_700_002_780_000_000_000;

/// A capture of the packets from that place on, so much time apart.
fn part(first: usize, packets: &[Captured], apart_ns: i64) -> Input {
    let mut writer = PcapngWriter::new(Vec::new(), "test").expect("a vector takes everything");
    writer.add_interface(LinkType::ETHERNET, 0, "eth0").expect("a vector takes everything");
    for (place, packet) in (first as i64..).zip(packets) {
        let time_ns = START_NS + place * apart_ns;
        let kept = &packet.frame[..packet.kept_bytes];
        writer.packet(0, time_ns, packet.frame.len() as u32, kept, None).expect("a vector takes everything");
    }
    let bytes = writer.finish().expect("a vector takes everything");
    Input::Reader { name: "part".to_owned(), reader: Box::new(Cursor::new(bytes)) }
}

/// The state of a pass.
fn state_of(ring: &Ring) -> Vec<u8> {
    let mut state = Vec::new();
    ring.write_state(&mut state).expect("a vector takes everything");
    state
}

/// The tables of one pass over all packets.
fn whole(packets: &[Captured], apart_ns: i64, wanted: Wanted) -> Tables {
    let outcome = run(vec![part(0, packets, apart_ns)], &Selection::default(), wanted, |_| Ok::<(), Infallible>(()));
    outcome.expect("a capture").tables
}

/// The tables of the parts between these borders: the rows taken after each, then the others.
fn in_parts(packets: &[Captured], apart_ns: i64, wanted: Wanted, borders: &[usize]) -> Vec<Tables> {
    let mut state = state_of(&Ring::new(wanted));
    let mut taken = Vec::new();
    for ends in borders.windows(2) {
        let mut ring = Ring::from_state(&state).expect("a ring");
        let part = part(ends[0], &packets[ends[0]..ends[1]], apart_ns);
        let read = ring.read(part, |_| Ok::<(), Infallible>(()));
        assert_eq!(read.expect("a capture").0, ends[0] as u64 + 1);
        taken.push(ring.take());
        state = state_of(&ring);
    }
    taken.push(Ring::from_state(&state).expect("a ring").finish());
    taken
}

fn damages() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<usize>(), 1usize..6).prop_map(|(at, length)| Damage::Drop(at, length)),
        (any::<usize>(), 0usize..300).prop_map(|(at, later)| Damage::Duplicate(at, later)),
        (any::<usize>(), 1usize..40).prop_map(|(at, later)| Damage::Delay(at, later)),
        (any::<usize>(), 0usize..60).prop_map(|(at, bytes)| Damage::Cut(at, bytes)),
        (any::<usize>(), any::<usize>()).prop_map(|(at, bit)| Damage::Flip(at, bit)),
    ]
}

/// The values of a column, as text.
fn shown(column: Column) -> Vec<String> {
    fn texts<T: std::fmt::Debug>(values: impl IntoIterator<Item = T>) -> Vec<String> {
        values.into_iter().map(|value| format!("{value:?}")).collect()
    }
    match column {
        Column::Bool(values) => texts(values),
        Column::U8(values) => texts(values),
        Column::U16(values) => texts(values),
        Column::U32(values) => texts(values),
        Column::U64(values) => texts(values),
        Column::I64(values) => texts(values),
        Column::Text(values) => texts(values.iter()),
    }
}

/// The rows of a table of all parts, as text, in one order: a row leaves when it can no longer change. The table is empty
/// afterwards.
fn rows(parts: &mut [Tables], table: &str) -> Vec<String> {
    let mut columns: Vec<Vec<String>> = Vec::new();
    for part in parts {
        for (number, (name, column)) in part.take_columns(table).expect("a table").into_iter().enumerate() {
            columns.resize(columns.len().max(number + 1), Vec::new());
            columns[number].extend(shown(column).into_iter().map(|value| format!("{name} {value}")));
        }
    }
    let count = columns.first().map_or(0, Vec::len);
    let mut rows: Vec<Vec<&str>> = (0..count).map(|row| columns.iter().map(|column| &*column[row]).collect()).collect();
    rows.sort_unstable();
    rows.into_iter().map(|row| row.join(", ")).collect()
}

/// A conversation in parts gives the rows of one pass, in all tables; returns how many commands left before the end.
fn check(
    (has_header_digest, has_data_digest, connection_count): (bool, bool, usize),
    damages: &[Damage],
    borders: Vec<usize>,
    apart_ns: i64,
    wanted: Wanted,
) -> Result<usize, TestCaseError> {
    let conversation = everything(Settings { has_header_digest, has_data_digest, connection_count });
    let packets = damage(&conversation, damages);
    let mut borders: Vec<usize> = borders.into_iter().map(|border| border % packets.len()).collect();
    borders.extend([0, packets.len()]);
    borders.sort_unstable();
    borders.dedup();
    let mut one = [whole(&packets, apart_ns, wanted)];
    let mut parts = in_parts(&packets, apart_ns, wanted, &borders);
    let left_count = parts[..parts.len() - 1].iter().map(|part| part.cycles.row_count()).sum();
    for table in Tables::DECLARATIONS {
        let (left, right) = (rows(&mut parts, table.name), rows(&mut one, table.name));
        prop_assert_eq!(left.len(), right.len(), "rows of {}", table.name);
        for (left, right) in left.iter().zip(&right) {
            prop_assert_eq!(left, right, "in {}", table.name);
        }
    }
    Ok(left_count)
}

fn connections() -> impl Strategy<Value = (bool, bool, usize)> {
    (any::<bool>(), any::<bool>(), 1usize..=2)
}

proptest! {
    #![proptest_config(cases(48))]

    /// All tables: the state has all of them.
    #[test]
    fn the_tables_of_tcp_and_time_stay_to_the_end(
        connections in connections(),
        damages in proptest::collection::vec(damages(), 0..8),
        borders in proptest::collection::vec(any::<usize>(), 1..12),
    ) {
        let wanted = Wanted { tcp_info: false, ..Wanted::ALL };
        prop_assert_eq!(check(connections, &damages, borders, 100_000, wanted)?, 0);
    }

    /// The rows of commands leave as they become final.
    #[test]
    fn rows_leave_when_they_can_no_longer_change(
        connections in connections(),
        damages in proptest::collection::vec(damages(), 0..8),
        borders in proptest::collection::vec(any::<usize>(), 1..12),
        // less time than a row waits, or more
        apart_ns in prop_oneof![Just(100_000), Just(10_000_000), Just(400_000_000)],
    ) {
        check(connections, &damages, borders, apart_ns, Wanted { pdus: true, ..Wanted::default() })?;
    }
}

/// The periods of a conversation in parts, as text, and the rows beside them.
fn periods(packets: &[Captured], apart_ns: i64, borders: &[usize]) -> (Vec<String>, Vec<Tables>) {
    let mut state = state_of(&Ring::with_periods(true));
    let (mut periods, mut taken) = (Vec::new(), Vec::new());
    for ends in borders.windows(2) {
        let mut ring = Ring::from_state(&state).expect("a ring");
        ring.read(part(ends[0], &packets[ends[0]..ends[1]], apart_ns), |_| Ok::<(), Infallible>(()))
            .expect("a capture");
        periods.extend(ring.take_periods());
        taken.push(ring.take());
        state = state_of(&ring);
    }
    let mut ring = Ring::from_state(&state).expect("a ring");
    periods.extend(ring.open_period());
    taken.push(ring.finish());
    (periods.iter().map(|period| format!("{period:?}")).collect(), taken)
}

proptest! {
    #![proptest_config(cases(24))]

    /// Periods end at full hours, wherever captures end. The rows beside them are those of one pass.
    #[test]
    fn periods_do_not_depend_on_where_captures_end(
        (has_header_digest, has_data_digest, connection_count) in connections(),
        damages in proptest::collection::vec(damages(), 0..8),
        borders in proptest::collection::vec(any::<usize>(), 1..12),
        // all in one period, or in two
        apart_ns in prop_oneof![Just(100_000), Just(100_000_000), Just(300_000_000)],
    ) {
        let conversation = everything(Settings { has_header_digest, has_data_digest, connection_count });
        let packets = damage(&conversation, &damages);
        let mut borders: Vec<usize> = borders.into_iter().map(|border| border % packets.len()).collect();
        borders.extend([0, packets.len()]);
        borders.sort_unstable();
        borders.dedup();
        let (found, mut beside) = periods(&packets, apart_ns, &borders);
        let (expected, _) = periods(&packets, apart_ns, &[0, packets.len()]);
        prop_assert_eq!(found, expected);
        let mut one = [whole(&packets, apart_ns, Wanted { pdus: true, ..Wanted::default() })];
        let is_beside = |name: &&str| *name == "pdus" || !Wanted::NAMES.contains(name);
        for table in Tables::DECLARATIONS.iter().map(|table| table.name).filter(is_beside) {
            prop_assert_eq!(rows(&mut beside, table), rows(&mut one, table), "in {}", table);
        }
    }
}

#[test]
fn most_rows_leave_early() {
    // as far apart as rows wait for the last packets of a connection
    let apart_ns = 8_000_000_000;
    let borders = (0..400).step_by(20).collect();
    let left = check((true, true, 2), &[], borders, apart_ns, Wanted { pdus: true, ..Wanted::default() });
    let all = everything(Settings { has_header_digest: true, has_data_digest: true, connection_count: 2 }).cycles.len();
    assert!(left.expect("the same rows") * 2 > all);
}

#[test]
fn a_state_of_another_version_or_damaged_is_refused() {
    let state = state_of(&Ring::new(Wanted::default()));
    let mut other = state.clone();
    other[1] ^= 1;
    assert!(matches!(Ring::from_state(&other), Err(StateError::OtherVersion(_))));
    for length in 0..state.len() {
        assert!(matches!(Ring::from_state(&state[..length]), Err(StateError::Damaged(_))), "{length}");
    }
}
