//! The tables are the same if connections that are over hand over what is known of them before they are closed, if their
//! senders are analysed in a thread of its own, and if commands are handed out as they become final.

mod conversation;

use conversation::{Conversation, Script, Settings};
use iscsitrace_trace::pipeline::Pipeline;
use iscsitrace_trace::pipeline::drain::Horizon;
use iscsitrace_trace::reader::Packet;
use iscsitrace_trace::tables::{Column, Columns, Cycles, Tables, Wanted};
use iscsitrace_wire::frame::LinkType;
use proptest::prelude::*;

const MS: i64 = 1_000_000;
const SECOND_NS: i64 = 1000 * MS;
/// More connections than are ever left unsearched.
const CONNECTIONS: usize = 150;

/// One packet each ms, and a pause after each connection but the first, which outlasts them; these packets are captured
/// again at their end.
fn sessions(pause_ns: i64, resets: &[bool], repeats: &[usize]) -> Vec<(i64, Vec<u8>)> {
    let mut script = Script::new(Settings { has_header_digest: false, has_data_digest: false, connection_count: 1 });
    let (lasting, mut connection, mut ends) = (script.connect(), script.connect(), Vec::new());
    script.read(lasting, 1, 2, 1024, true);
    for is_reset in resets.iter().copied().cycle().take(CONNECTIONS) {
        script.read(connection, 2, 2, 1024, true);
        script.write(connection, 2, 512);
        if !is_reset {
            script.close(connection);
        }
        ends.push(script.packet_count());
        // resets the last, which does no harm to one that is closed
        connection = script.reconnect(connection);
    }
    script.read(lasting, 1, 2, 1024, true);
    let Conversation { packets, .. } = script.finish();
    let mut time_ns = 0;
    let mut timed: Vec<(i64, Vec<u8>)> = (0..)
        .zip(&packets)
        .map(|(place, packet)| {
            time_ns += if ends.contains(&place) { pause_ns } else { MS };
            (time_ns, packet.frame.clone())
        })
        .collect();
    for &repeat in repeats {
        let frame = timed[repeat % packets.len()].1.clone();
        timed.push((time_ns + 10 * SECOND_NS, frame));
    }
    timed
}

fn packet((frame, (time_ns, data)): (u64, &(i64, Vec<u8>))) -> Packet<'_> {
    let (time_ns, original_length) = (*time_ns, data.len() as u32);
    Packet { frame, time_ns, link_type: LinkType::ETHERNET, interface: 0, original_length, data }
}

fn tables(packets: &[(i64, Vec<u8>)], prepare: impl Fn(&mut Pipeline)) -> Tables {
    let mut pipeline = Pipeline::new(Wanted::ALL);
    prepare(&mut pipeline);
    (1..).zip(packets).for_each(|each| pipeline.packet(&packet(each)));
    pipeline.finish()
}

/// The commands that a pass without an end hands out, drained after each `every` packets, in the order of their numbers; and
/// the numbers of those that are left at its end.
fn drained(packets: &[(i64, Vec<u8>)], every: usize, keep_ns: i64) -> (Cycles, Vec<u32>) {
    let mut pipeline = Pipeline::new(Wanted::default());
    let mut found = Cycles::default();
    for (place, each) in (1..).zip(packets).enumerate() {
        let packet = packet(each);
        pipeline.packet(&packet);
        if place % every == 0 {
            let patience_ns = 10 * SECOND_NS;
            let horizon = Horizon { until_ns: packet.time_ns, patience_ns, keep_ns, is_endless: true, stay: None };
            let cycles = pipeline.drain_final(&horizon).cycles;
            found.copy_rows(&cycles, &(0..cycles.row_count()).collect::<Vec<_>>());
        }
    }
    let mut order: Vec<usize> = (0..found.row_count()).collect();
    order.sort_by_key(|&row| found.cycle[row]);
    found.reorder(&order);
    (found, pipeline.cycles().cycle.clone())
}

/// Every column of these tables, as text.
fn columns(tables: &mut Tables, is_left_out: impl Fn(&str) -> bool) -> Vec<String> {
    let names = Tables::DECLARATIONS.iter().map(|table| table.name).filter(|name| !is_left_out(name));
    let columns: Vec<(&str, Vec<(&str, Column)>)> =
        names.map(|name| (name, tables.take_columns(name).expect("a table"))).collect();
    let lines = columns.iter().flat_map(|(table, columns)| {
        columns.iter().map(move |(name, column)| match column {
            Column::Text(texts) => format!("{table}.{name} {:?}", texts.iter().collect::<Vec<_>>()),
            values => format!("{table}.{name} {values:?}"),
        })
    });
    lines.collect()
}

/// The columns of a pass that settles connections early, and of one that does not.
fn both(packets: &[(i64, Vec<u8>)], is_left_out: impl Fn(&str) -> bool) -> [Vec<String>; 2] {
    [Pipeline::settle_early, |_: &mut Pipeline| ()]
        .map(|prepare: fn(&mut Pipeline)| columns(&mut tables(packets, prepare), &is_left_out))
}

/// Every third connection is of another protocol: its payload is inverted.
fn with_others(packets: &[(i64, Vec<u8>)]) -> Vec<(i64, Vec<u8>)> {
    let mut numbers = std::collections::HashMap::new();
    let inverted = packets.iter().map(|(time_ns, frame)| {
        let mut frame = frame.clone();
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (client_port, next) = (port(34).max(port(36)), numbers.len());
        if *numbers.entry(client_port).or_insert(next) % 3 == 2 {
            let payload = 34 + 4 * usize::from(frame[46] >> 4);
            frame[payload..].iter_mut().for_each(|byte| *byte = !*byte);
        }
        (*time_ns, frame)
    });
    inverted.collect()
}

#[test]
fn the_tables_are_those_of_connections_that_stay_open() {
    for (pause_ns, resets) in
        [(3 * SECOND_NS, &[false][..]), (130 * SECOND_NS, &[true, false, true]), (500 * MS, &[false])]
    {
        let [early, late] = both(&sessions(pause_ns, resets, &[]), |_| false);
        for (early, late) in early.iter().zip(&late) {
            assert_eq!(early, late);
        }
    }
}

#[test]
fn packets_that_come_late_count_in_their_connection() {
    // FINs and data of the first sessions again; what that shows of their senders is left out
    let packets = sessions(3 * SECOND_NS, &[false], &(0..60).collect::<Vec<_>>());
    let is_of_senders = |name: &str| {
        ["sacks", "window", "round_trips", "retransmissions", "recoveries", "flights", "senders", "budget"]
            .contains(&name)
    };
    let [early, late] = both(&packets, is_of_senders);
    for (early, late) in early.iter().zip(&late) {
        assert_eq!(early, late);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn any_pauses_and_resets_give_the_same_tables(
        pause_ms in 0_i64..200_000,
        resets in proptest::collection::vec(any::<bool>(), 1..6),
    ) {
        let [early, late] = both(&sessions(pause_ms * MS, &resets, &[]), |_| false);
        prop_assert_eq!(early, late);
    }
    #[test]
    fn an_analysis_in_a_thread_of_its_own_gives_the_same_tables(
        pause_ms in 0_i64..200_000,
        resets in proptest::collection::vec(any::<bool>(), 1..6),
        repeats in proptest::collection::vec(any::<usize>(), 0..20),
        is_early: bool,
    ) {
        let packets = with_others(&sessions(pause_ms * MS, &resets, &repeats));
        let of = |is_apart: bool| {
            let prepared = tables(&packets, |pipeline| {
                if is_early {
                    pipeline.settle_early();
                }
                if is_apart {
                    pipeline.analyse_apart();
                }
            });
            columns(&mut { prepared }, |_| false)
        };
        let [apart, within] = [true, false].map(of);
        for (apart, within) in apart.iter().zip(&within) {
            prop_assert_eq!(apart, within);
        }
    }
    #[test]
    fn commands_are_handed_out_once_wherever_a_pass_is_drained(
        pause_ms in 0_i64..20_000,
        resets in proptest::collection::vec(any::<bool>(), 1..6),
        every in 1_usize..200,
        keep_ns in prop_oneof![Just(0), Just(SECOND_NS), Just(100 * SECOND_NS)],
    ) {
        let packets = sessions(pause_ms * MS, &resets, &[]);
        let whole = tables(&packets, |_| ()).cycles;
        let (found, left) = drained(&packets, every, keep_ns);
        prop_assert!(found.cycle.windows(2).all(|pair| pair[0] < pair[1]), "one of them twice");
        let is_known = |cycle: &u32| found.cycle.binary_search(cycle).is_ok() || left.contains(cycle);
        prop_assert!(whole.cycle.iter().all(is_known), "one of them never");
        // as the whole has them, but for the next command, which may not have been there, and for the idle time, which is
        // made at the end
        let mut expected = Cycles::default();
        expected.copy_rows(&whole, &found.cycle.iter().map(|&cycle| cycle as usize).collect::<Vec<_>>());
        let of = |cycles: Cycles| {
            columns(&mut Tables { cycles, ..Tables::default() }, |name| name != "cycles")
                .into_iter()
                .filter(|column| !["cycles.next_command_ns", "cycles.idle_ns"].iter().any(|name| column.starts_with(name)))
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(of(found), of(expected));
        // rows that are not kept leave, once they are a part of all
        prop_assert!(keep_ns > 0 || every > 20 || pause_ms < 10_000 || left.len() * 3 < whole.row_count());
    }
}
