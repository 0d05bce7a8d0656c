//! Runs against our own target, with bytes passed by the test; each step takes a microsecond.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::results::Results;
use super::settings::{ClientSettings, Mode, RecoverySettings, TargetSettings};
use super::*;
use crate::application::{Application, Closed};
use crate::protocol::breach::BreachSettings;
use crate::protocol::keys::Digest;
use crate::protocol::target::{Portal, PortalSettings, ServiceDelay, ServiceOrder, TargetRule};
use crate::scsi::{DeviceSettings, LogicalUnitSettings};
use crate::workload::settings::{Access, Layout, Operation, WorkloadSettings};

mod tuning;

const NAME: &str = "iqn.2026-01.test:disk";
const MB: u64 = 1 << 20;

fn portal(change: impl Fn(&mut PortalSettings)) -> Portal {
    let unit = LogicalUnitSettings { size_bytes: 16 * MB, ..LogicalUnitSettings::default() };
    let device = DeviceSettings {
        target_name: NAME.to_owned(),
        logical_units: vec![unit],
        has_power_on_unit_attention: true,
        ..DeviceSettings::default()
    };
    let mut settings = PortalSettings { targets: vec![device], ..PortalSettings::default() };
    settings.keys.max_connections = Some(8);
    change(&mut settings);
    Portal::new(settings).unwrap()
}

fn settings(targets: u16, workload: WorkloadSettings) -> ClientSettings {
    let target = |index: u16| TargetSettings {
        address: SocketAddr::from(([127, 0, 0, 1], 3260 + index)),
        name: Some(NAME.to_owned()),
        lun: 0,
    };
    ClientSettings {
        targets: (0..targets).map(target).collect(),
        workload,
        task_log: true,
        ..ClientSettings::default()
    }
}

fn workload(operation: Operation) -> WorkloadSettings {
    WorkloadSettings {
        operation,
        total_bytes: Some(4 * MB),
        queue_depth: 4,
        verify: true,
        ..WorkloadSettings::default()
    }
}

/// Runs to the end: portals answer at the port of their index.
fn run(client: &mut Client, portals: &mut [Portal]) -> Results {
    run_with(client, portals, |_, _| {})
}

/// As [`run`], with an action on the first portal every microsecond.
fn run_with(client: &mut Client, portals: &mut [Portal], meanwhile: impl FnMut(i64, &mut Portal)) -> Results {
    run_by(client, portals, |client, now_ns, number, bytes| client.receive(now_ns, number, bytes), meanwhile)
}

/// As [`run_with`], with a function that passes bytes to the client.
fn run_by(
    client: &mut Client,
    portals: &mut [Portal],
    mut hand_in: impl FnMut(&mut Client, i64, usize, &[u8]),
    mut meanwhile: impl FnMut(i64, &mut Portal),
) -> Results {
    // connection of the client -> portal and its connection; none when closed
    let mut wires: Vec<Option<(usize, usize)>> = Vec::new();
    let mut closed = VecDeque::new();
    for now_ns in (0..).step_by(1000) {
        while let Some(dial) = client.poll_connect(now_ns) {
            let index = usize::from(dial.to.port() - 3260);
            let accepted = portals
                .get_mut(index)
                .and_then(|portal| portal.accept(now_ns, ([192, 0, 2, 1], 50_000).into(), dial.to));
            wires.resize(wires.len().max(dial.connection + 1), None);
            wires[dial.connection] = accepted.map(|accepted| (index, accepted));
            match accepted {
                Some(_) => client.connected(now_ns, dial.connection),
                None => client.closed(now_ns, dial.connection, Closed::Failed("refused".to_owned())),
            }
        }
        let mut moved = 0;
        for (number, wire) in wires.iter().enumerate() {
            let Some((index, accepted)) = *wire else { continue };
            let mut out = Vec::new();
            client.poll_transmit(now_ns, number, &mut out);
            moved += out.len();
            if !out.is_empty() {
                portals[index].receive(now_ns, accepted, &out);
            }
            out.clear();
            portals[index].poll_transmit(now_ns, accepted, &mut out);
            moved += out.len();
            if !out.is_empty() {
                hand_in(client, now_ns, number, &out);
            }
        }
        while let Some(number) = client.poll_close() {
            if let Some((index, accepted)) = wires[number].take() {
                portals[index].closed(now_ns, accepted, Closed::ByPeer);
            }
        }
        for (index, portal) in portals.iter_mut().enumerate() {
            while let Some(accepted) = portal.poll_close() {
                let number = wires.iter().position(|wire| *wire == Some((index, accepted)));
                closed.extend(number);
            }
            if portal.poll_timeout().is_some_and(|at| at <= now_ns) {
                portal.handle_timeout(now_ns);
            }
        }
        if let Some(portal) = portals.first_mut() {
            meanwhile(now_ns, portal);
        }
        while let Some(number) = closed.pop_front() {
            wires[number] = None;
            client.closed(now_ns, number, Closed::ByPeer);
        }
        if client.poll_timeout().is_some_and(|at| at <= now_ns) {
            client.handle_timeout(now_ns);
        }
        if client.is_finished() {
            return client.results();
        }
        assert!(now_ns < 10_000_000_000, "it does not end, moved {moved}: {client:?}");
    }
    unreachable!("the range has no end")
}

fn write_then_verify(change: impl Fn(&mut ClientSettings), targets: u16) -> (Results, Client) {
    let mut portals: Vec<Portal> = (0..targets).map(|_| portal(|_| {})).collect();
    let mut results = None;
    for operation in [Operation::Write, Operation::Read] {
        let mut settings = settings(targets, workload(operation));
        change(&mut settings);
        let mut client = Client::new(settings).unwrap();
        let found = run(&mut client, &mut portals);
        assert_eq!(found.errors, [] as [String; 0]);
        assert_eq!((found.bytes, found.verify_error_count), (4 * MB, 0));
        results = Some((found, client));
    }
    results.unwrap()
}

#[test]
fn skipped_data_gives_the_same_results_as_read_data() {
    let read = |digest: Digest, verify: bool, step: usize, is_skipping: bool| {
        let mut portals = [portal(|_| {})];
        let little = |operation| WorkloadSettings { total_bytes: Some(MB / 8), ..workload(operation) };
        let write = settings(1, little(Operation::Write));
        assert_eq!(run(&mut Client::new(write).unwrap(), &mut portals).bytes, MB / 8);
        let mut settings = settings(1, WorkloadSettings { verify, ..little(Operation::Read) });
        settings.login.offers.data_digest = Some(vec![digest]);
        settings.login.offers.header_digest = Some(vec![Digest::Crc32c]);
        settings.pdu_log = true;
        let (mut client, mut skipped) = (Client::new(settings).unwrap(), 0);
        let hand_in = |client: &mut Client, now_ns: i64, number: usize, mut bytes: &[u8]| {
            while !bytes.is_empty() {
                let unwanted = if is_skipping { client.unwanted(number).min(bytes.len()) } else { 0 };
                if unwanted > 0 {
                    client.skip(now_ns, number, unwanted);
                    skipped += unwanted as u64;
                    bytes = &bytes[unwanted..];
                } else {
                    let (next, rest) = bytes.split_at(step.min(bytes.len()));
                    client.receive(now_ns, number, next);
                    bytes = rest;
                }
            }
        };
        let results = run_by(&mut client, &mut portals, hand_in, |_, _| {});
        assert_eq!(results.errors, [] as [String; 0]);
        (skipped, results, client.take_task_log(), client.take_pdu_log())
    };
    for (digest, verify, is_unwanted) in
        [(Digest::None, false, true), (Digest::None, true, false), (Digest::Crc32c, false, false)]
    {
        for step in [1, 48, 4096] {
            let (none, results, tasks, pdus) = read(digest, verify, step, false);
            let (skipped, results_then, tasks_then, pdus_then) = read(digest, verify, step, true);
            assert_eq!((none, results, tasks, pdus), (0, results_then, tasks_then, pdus_then), "{digest:?} {step}");
            // only the pieces that arrived with their headers were read
            let most_read = 4 * step as u64;
            assert!(
                if is_unwanted { skipped + most_read >= MB / 8 } else { skipped == 0 },
                "{digest:?} {step} {skipped}"
            );
        }
    }
}

#[test]
fn written_data_is_read_back_over_any_sessions_and_connections() {
    for (sessions, connections) in [(1, 1), (1, 8), (3, 2)] {
        for digest in [Digest::None, Digest::Crc32c] {
            let change = |settings: &mut ClientSettings| {
                (settings.workload.sessions, settings.workload.connections) = (sessions, connections);
                settings.workload.queue_depth = 8;
                settings.login.offers.header_digest = Some(vec![digest]);
                settings.login.offers.data_digest = Some(vec![digest]);
            };
            let (results, mut client) = write_then_verify(change, 1);
            assert_eq!(results.connections.len(), usize::from(sessions * connections));
            assert!(results.connections.iter().all(|connection| connection.commands > 0));
            assert_eq!((results.read.commands, results.read.bytes, results.calls), (64, 4 * MB, 64));
            assert_eq!(results.slices.slices.iter().map(|slice| slice.bytes).sum::<u64>(), 4 * MB);
            let mut lbas: Vec<u64> = client.take_task_log().iter().map(|task| task.lba).collect();
            lbas.sort_unstable();
            assert_eq!(lbas, (0..64).map(|index| index * 128).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_system_call_is_split_as_by_a_kernel() {
    let change = |settings: &mut ClientSettings| {
        settings.workload.system_call_bytes = Some(500 << 10);
        settings.workload.max_transfer_bytes = Some(255 * 512);
        settings.workload.queue_depth = 1;
    };
    let (results, mut client) = write_then_verify(change, 1);
    // 4 MiB are eight calls of 500 KiB and one of 96 KiB
    assert_eq!((results.calls, results.read.commands), (9, 33));
    let log = client.take_task_log();
    let first: Vec<_> = log.iter().take(4).map(|task| (task.lba, task.blocks)).collect();
    assert_eq!(first, [(0, 255), (255, 255), (510, 255), (765, 235)]);
    assert!(log[..4].iter().all(|task| task.submitted_ns == log[0].submitted_ns), "together");
    let end = log[..4].iter().map(|task| task.completed_ns).max().unwrap();
    assert!(log[4].submitted_ns >= end, "the next call waits for all of them");
}

#[test]
fn a_stripe_has_each_byte_once_and_a_mirror_on_every_target() {
    let (stripe, _) = write_then_verify(|_| {}, 2);
    assert!(stripe.connections.iter().all(|connection| connection.bytes == 2 * MB));
    let mirrored = |settings: &mut ClientSettings| settings.workload.layout = Layout::Mirror;
    let (mirror, _) = write_then_verify(mirrored, 2);
    assert_eq!((mirror.bytes, mirror.read.bytes), (4 * MB, 4 * MB));
    let mut settings = settings(2, workload(Operation::Write));
    mirrored(&mut settings);
    let mut client = Client::new(settings).unwrap();
    let written = run(&mut client, &mut [portal(|_| {}), portal(|_| {})]);
    assert_eq!((written.bytes, written.write.bytes), (4 * MB, 8 * MB));
}

#[test]
fn reads_alternate_between_mirror_sides() {
    let workload = WorkloadSettings { layout: Layout::Mirror, verify: false, ..workload(Operation::Mixed) };
    let mut client = Client::new(settings(2, workload)).unwrap();
    let results = run(&mut client, &mut [portal(|_| {}), portal(|_| {})]);
    assert_eq!(results.errors, [] as [String; 0]);
    let log = client.take_task_log();
    let read = [0, 1].map(|session| log.iter().filter(|task| task.is_read && task.session == session).count());
    assert!(log.iter().any(|task| !task.is_read) && read[0] > 1, "{read:?}");
    assert!(read[0].abs_diff(read[1]) <= 1, "{read:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let random = |seed| {
        let workload = WorkloadSettings { access: Access::Random, seed, verify: false, ..workload(Operation::Mixed) };
        let mut client = Client::new(settings(1, workload)).unwrap();
        run(&mut client, &mut [portal(|_| {})]);
        client.take_task_log()
    };
    let first = random(1);
    assert_eq!(first, random(1));
    assert_ne!(first, random(2));
    assert!(first.iter().any(|task| task.is_read) && first.iter().any(|task| !task.is_read));
}

#[test]
fn think_time_lies_between_calls_and_a_duration_ends_the_run() {
    let workload = WorkloadSettings {
        think_time_ns: 1_000_000,
        queue_depth: 1,
        total_bytes: None,
        duration_ns: Some(20_000_000),
        verify: false,
        ..workload(Operation::Read)
    };
    let mut client = Client::new(settings(1, workload)).unwrap();
    let results = run(&mut client, &mut [portal(|_| {})]);
    let log = client.take_task_log();
    assert!(log.windows(2).all(|pair| pair[1].submitted_ns >= pair[0].completed_ns + 1_000_000));
    assert!((10..=20).contains(&results.calls), "{}", results.calls);
}

#[test]
fn wrong_data_is_reported() {
    let mut client = Client::new(settings(1, workload(Operation::Read))).unwrap();
    let results = run(&mut client, &mut [portal(|_| {})]);
    assert!(results.verify_error_count > 0);
    assert_eq!(results.bytes, 0);
    assert!(results.errors[0].ends_with("wrong data at byte 15 of the volume"), "{:?}", results.errors);
}

#[test]
fn a_good_status_without_all_data_is_an_error_of_its_command() {
    for (operation, rule, words) in [
        (
            Operation::Read,
            TargetRule::D17,
            "read of 65536 bytes at LBA 256: GOOD after 32768 bytes, with a residual of 0",
        ),
        (
            Operation::Write,
            TargetRule::D18,
            "write of 65536 bytes at LBA 256: GOOD after 0 bytes, with a residual of 0",
        ),
    ] {
        let block_size_bytes = 64 << 10;
        let workload = WorkloadSettings { block_size_bytes, verify: false, errors_allowed: 9, ..workload(operation) };
        let mut settings = settings(1, workload);
        (settings.login.offers.initial_r2t, settings.login.offers.immediate_data) = (Some(true), Some(false));
        let breach = BreachSettings { rule, nth: 3, is_repeated: false, fault: 0 };
        let mut portals = [portal(|portal| portal.breaks = vec![breach])];
        let results = run(&mut Client::new(settings).unwrap(), &mut portals);
        assert_eq!((results.error_count, results.bytes), (1, 4 * MB - 65_536), "{:?}", results.errors);
        assert!(results.errors[0].contains(words), "{:?}", results.errors);
        assert_eq!(portals[0].fault_hits()[0].count, 1);
    }
}

/// The answer of an earlier command, and the breach that ends the session, arrive together.
#[test]
fn a_session_that_ends_with_an_answer_is_recovered() {
    let mut settings = settings(1, WorkloadSettings { queue_depth: 1, ..workload(Operation::Write) });
    settings.recovery = Some(RecoverySettings { wait_ns: 1000, ..RecoverySettings::default() });
    let breach = BreachSettings { rule: TargetRule::T3, nth: 20, is_repeated: false, fault: 0 };
    let mut client = Client::new(settings).unwrap();
    let results = run(&mut client, &mut [portal(|portal| portal.breaks = vec![breach])]);
    assert_eq!((results.bytes, results.error_count), (4 * MB, 0), "{:?}", results.errors);
    assert!(results.remarks[0].contains("no such task is outstanding"), "{:?}", results.remarks);
}

#[test]
fn discovery_and_pings() {
    let mut settings = settings(1, WorkloadSettings::default());
    settings.mode = Mode::Discover;
    let results = run(&mut Client::new(settings.clone()).unwrap(), &mut [portal(|_| {})]);
    assert_eq!(results.errors, [] as [String; 0]);
    assert_eq!(results.discovered.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), [NAME]);
    settings.mode = Mode::Ping;
    settings.ping.interval_ns = 10_000;
    let results = run(&mut Client::new(settings).unwrap(), &mut [portal(|_| {})]);
    assert_eq!((results.ping_ns.count, results.error_count), (10, 0));
}

#[test]
fn a_connection_closed_by_the_target_ends_a_run_without_a_stall() {
    for mode in [Mode::Run, Mode::Ping] {
        // in any stage of the client: login, identification, pings or commands
        for at_ns in (0..40_000).step_by(1000) {
            for number in 0..2 {
                let workload = WorkloadSettings { connections: 2, verify: false, ..workload(Operation::Read) };
                let mut settings = settings(1, workload);
                settings.mode = mode;
                settings.ping.interval_ns = 1000;
                let mut client = Client::new(settings).unwrap();
                let results = run_with(&mut client, &mut [portal(|_| {})], |now_ns, portal| {
                    if now_ns == at_ns {
                        portal.request_logout(now_ns, number, 1);
                    }
                });
                let is_done = results.bytes == 4 * MB || results.ping_ns.count == 10;
                assert!(is_done || results.error_count > 0, "{mode:?}, {at_ns}, {number}: {results:?}");
            }
        }
    }
}

#[test]
fn invalid_runs_are_one_line_errors() {
    let mut unknown = settings(1, workload(Operation::Read));
    unknown.targets[0].name = Some("iqn.2026-01.test:other".to_owned());
    let results = run(&mut Client::new(unknown).unwrap(), &mut [portal(|_| {})]);
    let words =
        "iqn.2026-01.test:other at 127.0.0.1:3260: login refused: Not Found (0x0203) (RFC 7143 section 11.13.5)";
    assert_eq!(results.errors, [words]);
    let results = run(&mut Client::new(settings(1, workload(Operation::Read))).unwrap(), &mut []);
    assert_eq!(results.errors, ["iqn.2026-01.test:disk at 127.0.0.1:3260: cannot connect: refused"]);
    let many = settings(1, WorkloadSettings { connections: 9, ..workload(Operation::Read) });
    let results = run(&mut Client::new(many).unwrap(), &mut [portal(|_| {})]);
    let words = "the target allows 8 connections in a session, 9 are requested (MaxConnections, RFC 7143 section 13.2)";
    assert_eq!(results.errors, [format!("iqn.2026-01.test:disk at 127.0.0.1:3260: {words}")]);
    let mut lun = settings(1, workload(Operation::Read));
    lun.targets[0].lun = 9;
    let results = run(&mut Client::new(lun).unwrap(), &mut [portal(|_| {})]);
    assert_eq!(results.error_count, 1);
    assert!(results.errors[0].contains("LUN 9: "), "{:?}", results.errors);
}

/// A target that serves one command at a time in 2 ms, with a queue depth of 4 and 8 reads: the first one has a latency of
/// 2 ms, the second one of 4 ms, and from the fourth on each waits for three others, 8 ms in all.
#[test]
fn a_latency_begins_with_the_submission_of_a_command() {
    let serial = |settings: &mut PortalSettings| {
        settings.read_delay = ServiceDelay::Fixed { delay_ns: 2_000_000 };
        settings.service_order = ServiceOrder::OneAtATime;
        settings.command_window_count = 1;
    };
    let reads = WorkloadSettings {
        block_size_bytes: 4096,
        total_bytes: Some(8 * 4096),
        verify: false,
        ..workload(Operation::Read)
    };
    let results = run(&mut Client::new(settings(1, reads)).unwrap(), &mut [portal(serial)]);
    assert_eq!(results.errors, [] as [String; 0]);
    let milliseconds = |ns: u64| ns as f64 / 1e6;
    for latency_ns in [results.read.latency_ns, results.call_latency_ns] {
        assert_eq!(latency_ns.count, 8);
        // a few steps of 1 us for each command that is served before
        for (found, expected) in [(latency_ns.min, 2.0), (latency_ns.p50, 8.0), (latency_ns.max, 8.0)] {
            assert!((expected..expected + 0.1).contains(&milliseconds(found)), "{found} for {expected} ms");
        }
        assert!((6.5..6.6).contains(&(latency_ns.mean / 1e6)), "(2 + 4 + 6 + 5 * 8) / 8 = 6.5: {}", latency_ns.mean);
    }
}

#[test]
fn a_busy_command_is_retried_after_a_millisecond() {
    let busy = |settings: &mut PortalSettings| {
        settings.faults = vec![serde_json::from_str(r#"{"fault": "busy", "nth": 1, "operation": "read"}"#).unwrap()];
    };
    let one = WorkloadSettings {
        block_size_bytes: 4096,
        total_bytes: Some(4096),
        verify: false,
        ..workload(Operation::Read)
    };
    let results = run(&mut Client::new(settings(1, one)).unwrap(), &mut [portal(busy)]);
    assert_eq!((results.retry_count, results.read.commands), (1, 1));
    assert!((1_000_000..1_010_000).contains(&results.read.latency_ns.max), "{}", results.read.latency_ns.max);
}
