//! Known conversations, damaged, before and after their names were replaced: the tables are equal but for names.

#[path = "../../trace/tests/conversation/mod.rs"]
mod conversation;

use std::collections::HashSet;
use std::convert::Infallible;
use std::io::Cursor;

use conversation::{Captured, Damage, Settings, damage, everything, everything_within_itself, pcapng};
use iscsitrace_anonymise::{KEY_BYTES, anonymise};
use iscsitrace_trace::pass::{Selection, run};
use iscsitrace_trace::reader::Input;
use iscsitrace_trace::tables::{Column, Columns, Tables, Wanted};
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

fn input(bytes: &[u8]) -> Input {
    Input::Reader { name: "test".to_owned(), reader: Box::new(Cursor::new(bytes.to_vec())) }
}

fn read(bytes: &[u8]) -> Tables {
    let outcome = run(vec![input(bytes)], &Selection::default(), Wanted::ALL, |_| Ok::<(), Infallible>(()));
    outcome.expect("a capture").tables
}

fn without_names(bytes: &[u8]) -> Vec<u8> {
    let settings = iscsitrace_anonymise::Settings {
        key: [7; KEY_BYTES],
        keeps_models: false,
        drops_others: false,
        application: "test".to_owned(),
    };
    let mut written = Vec::new();
    let outcome = anonymise(|| vec![input(bytes)], &mut written, &settings, |_| Ok::<(), Infallible>(()));
    assert_eq!(outcome.expect("a capture").not_tcp_count, 0);
    written
}

/// Columns that may change.
const NAMES: [(&str, &str); 12] = [
    ("connections", "initiator_address"),
    ("connections", "target_address"),
    ("parameters", "effective_initiator"),
    ("parameters", "effective_target"),
    ("parameters", "initiator_value"),
    ("parameters", "target_value"),
    ("sessions", "isid"),
    ("sessions", "initiator_name"),
    ("sessions", "target_name"),
    ("sessions", "initiator_alias"),
    ("sessions", "target_alias"),
    ("write_starts", "crc32c"),
];
const TABLES: &str =
    "connections sessions parameters icmp_errors logical_units alua_states pdus cycles rounds write_starts logins
    task_management nops texts logouts rejects asyncs snacks segments sacks window round_trips retransmissions
    recoveries flights senders budget counters";

/// The values of a column, as text.
fn values(column: &Column) -> Vec<String> {
    match column {
        Column::Text(texts) => texts.iter().map(str::to_owned).collect(),
        numbers => {
            let all = format!("{numbers:?}");
            all.split(", ").map(str::to_owned).collect()
        }
    }
}

/// The first row with the value of each row.
fn first_rows(values: &[String]) -> Vec<Option<usize>> {
    values.iter().map(|value| values.iter().position(|other| other == value)).collect()
}

fn check(conversation: &conversation::Conversation, damages: &[Damage]) -> Result<(), TestCaseError> {
    let packets: Vec<Captured> = damage(conversation, damages);
    let before = pcapng(&packets);
    let after = without_names(&before);
    let (mut one, mut other) = (read(&before), read(&after));
    for table in TABLES.split_whitespace() {
        let columns = [&mut one, &mut other].map(|tables| tables.take_columns(table).expect("a table"));
        let [one, other] = &columns;
        for ((name, one), (_, other)) in one.iter().zip(other) {
            let [one, other] = [one, other].map(values);
            if NAMES.contains(&(table, name)) {
                // the same values are replaced by the same, and others by others
                prop_assert_eq!(first_rows(&one), first_rows(&other), "{}.{}", table, name);
            } else {
                prop_assert_eq!(one, other, "{}.{}", table, name);
            }
        }
    }
    // the noise of the data has no run of eight bytes that comes about by chance
    let noise: HashSet<&[u8]> = packets.iter().filter_map(|packet| packet.frame.get(..1001)?.get(800..808)).collect();
    prop_assert!(!after.windows(8).any(|window| noise.contains(window)), "data is left");
    Ok(())
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    proptest::collection::vec(
        prop_oneof![
            (any::<usize>(), 1usize..12).prop_map(|(at, length)| Damage::Drop(at, length)),
            (any::<usize>(), 0usize..300).prop_map(|(at, later)| Damage::Duplicate(at, later)),
            (any::<usize>(), 1usize..30).prop_map(|(at, later)| Damage::Delay(at, later)),
            (any::<usize>(), 0usize..1000).prop_map(|(at, bytes)| Damage::Cut(at, bytes)),
            (any::<usize>(), any::<usize>()).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        ],
        0..10,
    )
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn tables_are_equal_but_for_names(
        (has_header_digest, has_data_digest, connection_count) in (any::<bool>(), any::<bool>(), 1usize..=2),
        damages in damages(),
    ) {
        check(&everything(Settings { has_header_digest, has_data_digest, connection_count }), &damages)?;
    }

    /// A snaplen for all packets.
    #[test]
    fn a_snaplen(
        (has_header_digest, has_data_digest) in (any::<bool>(), any::<bool>()),
        kept in 0usize..300,
    ) {
        let settings = Settings { has_header_digest, has_data_digest, connection_count: 1 };
        let conversation = everything(settings);
        let damages: Vec<Damage> = (0..conversation.packets.len()).map(|at| Damage::Cut(at, kept)).collect();
        check(&conversation, &damages)?;
    }
}

/// Data that looks like headers is not taken for them, as long as no header is lost.
#[test]
fn pdus_in_data_are_data() {
    let settings = Settings { has_header_digest: true, has_data_digest: true, connection_count: 1 };
    let bytes = pcapng(&damage(&everything_within_itself(settings), &[]));
    let [one, other] = [read(&bytes), read(&without_names(&bytes))];
    assert_eq!(one.cycles.row_count(), other.cycles.row_count());
}
