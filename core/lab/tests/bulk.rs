//! Plain TCP transfers in the simulated world, limited by the line or by the window.

use std::ops::ControlFlow;

use iscsitrace_lab::bulk::results::BulkResults;
use iscsitrace_lab::link::{DirectionSettings, LinkSettings};
use iscsitrace_lab::protocol::target::PortalSettings;
use iscsitrace_lab::simulation::{Captures, Simulation, Truth, run_bulk};
use iscsitrace_lab::tcp::CongestionControl;
use iscsitrace_lab::workload::settings::Operation;

const OPERATIONS: [Operation; 2] = [Operation::SocketRead, Operation::SocketWrite];

fn bulk(operation: Operation, rate_bps: u64, delay_ms: u64) -> Simulation {
    let mut simulation = Simulation { portals: vec![PortalSettings::default()], ..Simulation::default() };
    simulation.client.workload.operation = operation;
    simulation.client.workload.duration_ns = Some(4_000_000_000);
    let direction = DirectionSettings {
        rate_bps: Some(rate_bps),
        // nothing is lost
        queue_packets: None,
        delay_ns: delay_ms * 1_000_000,
        ..DirectionSettings::default()
    };
    simulation.world.paths = vec![LinkSettings::symmetric(direction, 1)];
    // as between our ends over sockets
    simulation.world.initiator_tcp.nagle = false;
    simulation.world.target_tcp.nagle = false;
    simulation
}

fn simulate(simulation: Simulation) -> Truth<BulkResults> {
    let truth = run_bulk(simulation, Captures::default(), &mut |_| ControlFlow::Continue(())).expect("an end");
    assert_eq!(truth.results.errors, Vec::<String>::new());
    truth
}

fn steady(simulation: Simulation) -> f64 {
    simulate(simulation).results.steady_bytes_per_s.expect("it takes a while")
}

#[test]
fn large_windows_fill_the_line() {
    // of each frame of 1514 bytes 1448 are payload
    let payload_bytes_per_s = 100e6 / 8.0 * 1448.0 / 1514.0;
    for operation in OPERATIONS {
        for delay_ms in [0, 10, 50] {
            let mut simulation = bulk(operation, 100_000_000, delay_ms);
            for host in [&mut simulation.world.initiator_tcp, &mut simulation.world.target_tcp] {
                host.receive_buffer_bytes = 16 << 20;
                // without HyStart: slow start ends when the line is full
                host.congestion_control = CongestionControl::Reno;
            }
            let found = steady(simulation);
            assert!((found / payload_bytes_per_s - 1.0).abs() < 0.01, "{operation:?} {delay_ms} ms: {found}");
        }
    }
}

#[test]
fn a_small_window_carries_one_window_per_rtt() {
    // a receiver offers whole segments as its MSS counts them, 41 * 1460 bytes; of those that are sent, less by the
    // timestamps, it acknowledges every second, so an even number goes on
    let (buffer_bytes, window_bytes) = (60_000, 40 * 1448);
    for operation in OPERATIONS {
        for delay_ms in [2, 5, 20] {
            let mut simulation = bulk(operation, 1_000_000_000, delay_ms);
            for host in [&mut simulation.world.initiator_tcp, &mut simulation.world.target_tcp] {
                host.receive_buffer_bytes = buffer_bytes;
                // a scaled window is rounded
                host.window_scaling = false;
            }
            let expected = f64::from(window_bytes) * 1000.0 / (2 * delay_ms) as f64;
            let found = steady(simulation);
            assert!((found / expected - 1.0).abs() < 0.01, "{operation:?} {delay_ms} ms: {found} for {expected}");
        }
    }
}

#[test]
fn the_requested_bytes_are_transferred_without_iscsi() {
    for operation in OPERATIONS {
        let mut simulation = bulk(operation, 100_000_000, 1);
        simulation.client.workload.duration_ns = None;
        simulation.client.workload.total_bytes = Some(3_000_001);
        simulation.client.workload.connections = 2;
        simulation.portals.push(PortalSettings::default());
        simulation.world.paths.push(simulation.world.paths[0].clone());
        let truth = simulate(simulation);
        let each: Vec<_> = truth.results.connections.iter().map(|one| (one.target, one.bytes)).collect();
        assert_eq!(each, [(0, 750_001), (0, 750_000), (1, 750_000), (1, 750_000)]);
        assert_eq!(truth.results.bytes, 3_000_001);
        assert_eq!(truth.cycles.bytes, Vec::<u64>::new());
        // with requests and reports
        let carried = |path: usize| {
            let path = &truth.paths[path];
            let log = if operation == Operation::SocketRead { &path.to_initiator } else { &path.to_target };
            log.counters.delivered.bytes
        };
        assert!((750_000 * 2..1_700_000).contains(&carried(0)) && carried(1) > 750_000 * 2);
    }
}

#[test]
fn connections_share_the_line() {
    for operation in OPERATIONS {
        let mut simulation = bulk(operation, 100_000_000, 5);
        simulation.client.workload.connections = 4;
        let found = steady(simulation);
        let payload_bytes_per_s = 100e6 / 8.0 * 1448.0 / 1514.0;
        assert!((0.95..=1.0).contains(&(found / payload_bytes_per_s)), "{operation:?}: {found}");
    }
}
