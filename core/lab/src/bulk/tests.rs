//! Transfers between the two ends, with bytes passed by the test; each piece takes a microsecond.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::results::BulkResults;
use super::*;
use crate::application::{Application, Closed};
use crate::workload::client::settings::{ClientSettings, TargetSettings};
use crate::workload::settings::{Operation, WorkloadSettings};

fn workload(operation: Operation) -> WorkloadSettings {
    WorkloadSettings { operation, ..WorkloadSettings::default() }
}

fn settings(targets: u16, workload: WorkloadSettings) -> ClientSettings {
    let name = Some("iqn.2026-01.test:disk".to_owned());
    let target = |index| TargetSettings { address: ([127, 0, 0, 1], 3260 + index).into(), name: name.clone(), lun: 0 };
    ClientSettings { targets: (0..targets).map(target).collect(), workload, ..ClientSettings::default() }
}

/// Passes bytes in pieces of a given length until the initiator is finished. `pause` is called before each round, and
/// returns how long to wait.
fn run_with(
    initiator: &mut BulkInitiator,
    piece_bytes: usize,
    mut pause: impl FnMut(i64, &mut BulkInitiator) -> i64,
) -> (BulkResults, Vec<SocketAddr>) {
    let mut target = BulkTarget::default();
    let (mut numbers, mut dialed) = (Vec::new(), Vec::new());
    let mut now_ns = 0;
    while !initiator.is_finished() {
        assert!(now_ns < 1_000_000_000, "no end");
        now_ns += pause(now_ns, initiator);
        while let Some(dial) = initiator.poll_connect(now_ns) {
            dialed.push(dial.to);
            numbers.push((dial.connection, target.accept(now_ns, dial.to, dial.to).unwrap()));
            initiator.connected(now_ns, dial.connection);
        }
        for &(here, there) in &numbers {
            let mut out = Vec::new();
            initiator.poll_transmit(now_ns, here, &mut out);
            for piece in out.chunks(piece_bytes) {
                now_ns += 1_000;
                target.receive(now_ns, there, piece);
            }
            out.clear();
            target.poll_transmit(now_ns, there, &mut out);
            for piece in out.chunks(piece_bytes) {
                now_ns += 1_000;
                initiator.receive(now_ns, here, piece);
            }
        }
        while let Some(here) = initiator.poll_close() {
            let (_, there) = numbers.iter().find(|number| number.0 == here).copied().unwrap();
            target.closed(now_ns, there, Closed::ByPeer);
        }
        assert_eq!(target.poll_close(), None);
        now_ns += 1_000;
    }
    assert_eq!(target.connection_count(), 0);
    (initiator.results(), dialed)
}

fn run(targets: u16, workload: WorkloadSettings, piece_bytes: usize) -> (BulkResults, Vec<SocketAddr>) {
    let mut initiator = BulkInitiator::new(settings(targets, workload)).unwrap();
    run_with(&mut initiator, piece_bytes, |_, _| 0)
}

proptest! {
    #[test]
    fn exactly_the_requested_bytes_arrive(
        operation in prop_oneof![Just(Operation::SocketRead), Just(Operation::SocketWrite)],
        total_bytes in 512u64..20_000,
        block_size_bytes in prop_oneof![Just(512u32), Just(1024), Just(8192)],
        (connections, targets) in (1u16..4, 1u16..3),
        piece_bytes in 1usize..3_000,
    ) {
        let workload = WorkloadSettings {
            total_bytes: Some(total_bytes), block_size_bytes, connections, ..workload(operation)
        };
        let (results, dialed) = run(targets, workload, piece_bytes);
        prop_assert_eq!(results.bytes, total_bytes);
        prop_assert_eq!(results.error_count, 0);
        let count = u64::from(connections * targets);
        prop_assert_eq!(results.connections.len() as u64, count);
        for (number, connection) in results.connections.iter().enumerate() {
            prop_assert!(connection.bytes.abs_diff(total_bytes / count) <= 1);
            prop_assert_eq!(connection.target, number / usize::from(connections));
            prop_assert_eq!(dialed[number].port(), 3260 + connection.target as u16);
        }
    }

    #[test]
    fn any_bytes_leave_a_target_working(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6)) {
        let (mut target, address) = (BulkTarget::default(), SocketAddr::from(([127, 0, 0, 1], 1)));
        let number = target.accept(0, address, address).unwrap();
        for piece in &pieces {
            target.receive(1, number, piece);
            let mut out = Vec::new();
            target.poll_transmit(1, number, &mut out);
            prop_assert!(out.is_empty());
        }
        let length: usize = pieces.iter().map(Vec::len).sum();
        prop_assert_eq!(target.poll_close(), (length >= 40).then_some(number));
    }
}

#[test]
fn a_time_ends_with_a_whole_block() {
    for operation in [Operation::SocketRead, Operation::SocketWrite] {
        let workload = WorkloadSettings { duration_ns: Some(1_000_000), block_size_bytes: 1024, ..workload(operation) };
        let (results, _) = run(1, workload, 100);
        // eleven pieces and the round itself: a block takes 12 us, and the one at 1008 us is the last
        assert_eq!(results.bytes, 85 * 1024, "{operation:?}");
    }
}

#[test]
fn the_steady_part_is_the_second_half() {
    for operation in [Operation::SocketRead, Operation::SocketWrite] {
        let workload = WorkloadSettings { total_bytes: Some(64 << 10), block_size_bytes: 512, ..workload(operation) };
        let mut initiator = BulkInitiator::new(settings(1, workload)).unwrap();
        // the slow first quarter does not count
        let (results, _) =
            run_with(
                &mut initiator,
                512,
                |now_ns, initiator| {
                    if initiator.progress(now_ns).bytes < 16 << 10 { 100_000 } else { 0 }
                },
            );
        assert!(results.elapsed_ns > 3_000_000);
        // a block, and the round: 512 bytes in 2 us
        assert_eq!(results.steady_bytes_per_s, Some(256e6), "{operation:?}");
    }
}

#[test]
fn it_ends_when_it_is_stopped() {
    for operation in [Operation::SocketRead, Operation::SocketWrite] {
        let workload = WorkloadSettings { duration_ns: Some(i64::MAX), ..workload(operation) };
        let mut initiator = BulkInitiator::new(settings(1, workload)).unwrap();
        let (results, _) = run_with(&mut initiator, 1_000, |now_ns, initiator| {
            if now_ns > 1_000_000 {
                initiator.stop(now_ns);
            }
            0
        });
        assert_eq!((results.bytes > 100 << 10, results.error_count), (true, 0), "{operation:?}");
    }
}

#[test]
fn a_connection_that_ends_early_is_an_error() {
    let workload = WorkloadSettings { total_bytes: Some(1 << 20), connections: 2, ..workload(Operation::SocketRead) };
    let mut initiator = BulkInitiator::new(settings(1, workload)).unwrap();
    assert_eq!(initiator.poll_connect(0).map(|dial| dial.connection), Some(0));
    initiator.closed(1, 0, Closed::Failed("refused".to_owned()));
    assert_eq!(initiator.poll_connect(1).map(|dial| dial.connection), Some(1));
    initiator.connected(2, 1);
    initiator.poll_transmit(2, 1, &mut Vec::new());
    initiator.receive(3, 1, &[0; 100]);
    initiator.closed(4, 1, Closed::ByPeer);
    assert!(initiator.is_finished());
    let results = initiator.results();
    assert_eq!((results.bytes, results.error_count), (100, 2));
    assert_eq!(
        results.errors,
        [
            "connection 0 to 127.0.0.1:3260 ended early: refused",
            "connection 1 to 127.0.0.1:3260 ended early: the target closed it"
        ]
    );
}

#[test]
fn invalid_settings_are_refused() {
    let refused = |targets, workload| BulkInitiator::new(settings(targets, workload)).unwrap_err().to_string();
    let socket = || WorkloadSettings { total_bytes: Some(3), connections: 2, ..workload(Operation::SocketWrite) };
    assert_eq!(refused(0, socket()), "no target is named");
    assert_eq!(refused(2, socket()), "total_bytes is 3; it has to be at least a byte for each connection");
    let sessions = WorkloadSettings { sessions: 2, ..socket() };
    assert_eq!(refused(1, sessions), "sessions is 2; it has to be 1 for a socket");
    let read = WorkloadSettings { operation: Operation::Read, ..socket() };
    assert_eq!(refused(1, read), "the operation has to be socket_read or socket_write");
    let client = crate::workload::client::Client::new(settings(1, socket())).map(|_| ()).unwrap_err();
    assert_eq!(client.to_string(), "the operation has to be read, write or mixed");
}
