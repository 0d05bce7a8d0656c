//! Complete runs in the simulated world: the results match arithmetic, and are the same every time.

use std::ops::ControlFlow;

use iscsitrace_lab::link::{DirectionSettings, LinkSettings};
use iscsitrace_lab::protocol::target::PortalSettings;
use iscsitrace_lab::simulation::{Captures, Simulation, Truth, run};
use iscsitrace_lab::workload::client::settings::Mode;
use iscsitrace_lab::workload::settings::Operation;
use iscsitrace_lab::world::simulated::TcpLog;

const MS: i64 = 1_000_000;

/// Reads of 128 KiB, one at a time, over a link of 320 Mbit/s.
fn reads(delay_ms: i64, total_bytes: u64) -> Simulation {
    let mut simulation = Simulation { portals: vec![PortalSettings::default()], ..Simulation::default() };
    simulation.client.workload.block_size_bytes = 128 << 10;
    simulation.client.workload.total_bytes = Some(total_bytes);
    let direction = DirectionSettings {
        rate_bps: Some(320_000_000),
        delay_ns: (delay_ms * MS) as u64,
        ..DirectionSettings::default()
    };
    simulation.world.paths = vec![LinkSettings::symmetric(direction, 1)];
    simulation
}

fn simulate(simulation: Simulation) -> (Truth, Vec<u8>, Vec<u8>) {
    let (mut initiator, mut target) = (Vec::new(), Vec::new());
    let captures = Captures { initiator: Some(Box::new(&mut initiator)), targets: vec![Some(Box::new(&mut target))] };
    let truth = run(simulation, captures, &mut |_| ControlFlow::Continue(())).expect("it comes to its end");
    assert_eq!(truth.results.errors, Vec::<String>::new());
    (truth, initiator, target)
}

#[test]
fn the_same_settings_give_the_same_bytes() {
    let (first, second) = (simulate(reads(4, 1 << 20)), simulate(reads(4, 1 << 20)));
    assert_eq!(first.1, second.1);
    assert_eq!(first.2, second.2);
    assert!(first.1.len() > 1 << 20);
    let as_json = |truth: &Truth| serde_json::to_string(truth).expect("it is JSON");
    assert_eq!(as_json(&first.0), as_json(&second.0));
    let mut other = reads(4, 1 << 20);
    other.world.seed = 2;
    assert_ne!(simulate(other).1, first.1);
}

#[test]
fn a_read_takes_two_delays_and_its_time_on_the_line() {
    let (truth, ..) = simulate(reads(8, 16 << 20));
    let asked = truth.cycles.operation.iter().enumerate().filter(|(_, operation)| operation.is_some());
    let places: Vec<usize> = asked.map(|(place, _)| place).collect();
    assert_eq!(places.len(), 128);
    assert_eq!(places.iter().map(|&place| truth.cycles.bytes[place]).sum::<u64>(), 16 << 20);
    // once the congestion window holds a block: the command and the data each one way, and the data on the line;
    // 91 segments of 1448 bytes at most, each with 66 bytes of headers, for 48 bytes of header and 131,072 of data
    let line_ns = (131_072 + 48 + 91 * 66) * 8 * 1_000_000_000 / 320_000_000;
    let command_line_ns = (48 + 66) * 25;
    let place = places[100];
    let at = &truth.cycles.initiator;
    let latency_ns = at.status_ns[place].expect("it ended") - at.command_first_ns[place].expect("it began");
    assert_eq!(latency_ns, 16 * MS + line_ns + command_line_ns);
    let at = &truth.cycles.at_target;
    let service_ns = at.data_first_ns[place].expect("it began") - at.command_last_ns[place].expect("it came");
    assert_eq!(service_ns, 0, "zero target service time");
}

#[test]
fn host_delays_are_added_once_each() {
    let latencies = |initiator_delay_ns, target_delay_ns| {
        let mut simulation = reads(8, 8 << 20);
        simulation.world.initiator_host_delay_ns = initiator_delay_ns;
        simulation.world.target_host_delay_ns = target_delay_ns;
        let (truth, ..) = simulate(simulation);
        let place = truth.cycles.operation.iter().rposition(Option::is_some).expect("there is a read");
        let (first, last) = (&truth.cycles.initiator.command_first_ns, &truth.cycles.initiator.status_ns);
        let period_ns = first[place].expect("sent") - first[place - 1].expect("sent");
        (last[place].expect("ended") - first[place].expect("sent"), period_ns)
    };
    let (latency_ns, period_ns) = latencies(0, 0);
    assert_eq!(latency_ns, period_ns);
    // the target is called later for the command; the initiator for the data, the last of which arrived after its
    // wake-up
    assert_eq!(latencies(0, 70_000), (latency_ns + 70_000, period_ns + 70_000));
    let (with_initiator_ns, longer_ns) = latencies(50_000, 0);
    assert_eq!(with_initiator_ns, latency_ns);
    assert!((1..=50_000).contains(&(longer_ns - period_ns)), "{longer_ns} {period_ns}");
}

#[test]
fn writes_wait_for_every_r2t() {
    let mut simulation = reads(5, 2 << 20);
    simulation.client.workload.operation = Operation::Write;
    simulation.client.workload.block_size_bytes = 256 << 10;
    let keys = &mut simulation.client.login.offers;
    (keys.initial_r2t, keys.immediate_data) = (Some(true), Some(false));
    (keys.max_burst_length, keys.first_burst_length) = (Some(64 << 10), Some(64 << 10));
    let (truth, ..) = simulate(simulation);
    let places: Vec<usize> =
        (0..truth.cycles.operation.len()).filter(|&place| truth.cycles.operation[place] == Some("write")).collect();
    assert_eq!(places.len(), 8);
    for &place in &places {
        assert_eq!(truth.cycles.r2t_count[place], 4);
        let at = &truth.cycles.initiator;
        let latency_ns = at.status_ns[place].expect("it ended") - at.command_first_ns[place].expect("it began");
        // command -> R2T, and for each of four bursts data -> next R2T or status: ten delays of 5 ms
        assert!(latency_ns > 50 * MS, "{latency_ns}");
    }
}

#[test]
fn discovery_returns_the_address_of_the_request() {
    let mut simulation = reads(1, 1 << 20);
    simulation.client.mode = Mode::Discover;
    let (truth, ..) = simulate(simulation);
    let asked_at = truth.results.targets[0].address;
    let name = PortalSettings::default().targets[0].target_name.clone();
    let found = &truth.results.discovered;
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].name, &found[0].addresses), (&name, &vec![format!("{asked_at},1")]));
}

#[test]
fn windows_and_pipe_are_logged_at_every_change() {
    let mut simulation = reads(8, 128 << 10);
    simulation.world.paths[0].to_target.rate_bps = None;
    simulation.world.paths[0].to_initiator.rate_bps = None;
    simulation.world.tcp_log = TcpLog::Pipe;
    let (truth, ..) = simulate(simulation.clone());
    let place = truth.cycles.operation.iter().position(Option::is_some).expect("there is a read");
    let start_ns = truth.cycles.at_target.data_first_ns[place].expect("it began");
    let windows = &truth.target_ends[0][0].windows;
    assert!(windows.time_ns.windows(2).all(|pair| pair[0] < pair[1]), "one row for a moment");
    let rows = (0..windows.time_ns.len()).map(|row| (windows.time_ns[row], windows.cwnd[row], windows.pipe[row]));
    let rows: Vec<_> = rows.filter(|row| row.0 >= start_ns).take(5).collect();
    // 131,072 bytes and a header are 91 segments; without a rate all of a window arrive at once, and so do the ACKs of
    // each: slow start doubles, until 21 are left; they are acknowledged a round trip later, together with the Logout
    // Request, so that then the Logout Response and the FIN are on their way
    assert_eq!(rows[..4].iter().map(|row| (row.0 - start_ns) / MS).collect::<Vec<_>>(), [0, 16, 32, 48]);
    assert_eq!(rows[..4].iter().map(|row| row.2).collect::<Vec<_>>(), [10, 20, 40, 21]);
    assert_eq!(rows[..3].iter().map(|row| row.1).collect::<Vec<_>>(), [10, 20, 40]);
    assert_eq!((rows[4].0 - start_ns, rows[4].2), (64 * MS, 2));
    // the window that the initiator offers opens by two segments for each that comes, from 45 of them
    let last = windows.snd_wnd_bytes.last().expect("there are rows");
    assert!((45 + 2 * 91) * 1448 < *last && *last <= 3 << 20, "{last}");
    simulation.world.tcp_log = TcpLog::Windows;
    let (fewer, ..) = simulate(simulation.clone());
    let fewer = &fewer.target_ends[0][0].windows;
    // each of the fewer rows is one of the many, because the log has no effect on the run
    assert!(fewer.time_ns.len() < windows.time_ns.len());
    for (time_ns, cwnd) in fewer.time_ns.iter().zip(&fewer.cwnd) {
        let row = windows.time_ns.binary_search(time_ns).expect("it is there");
        assert_eq!(windows.cwnd[row], *cwnd);
    }
    simulation.world.tcp_log = TcpLog::None;
    assert_eq!(simulate(simulation).0.target_ends[0][0].windows.time_ns.len(), 0);
}

#[test]
fn a_window_reset_after_idle_is_logged_at_its_time() {
    let mut simulation = reads(8, 1 << 20);
    simulation.client.workload.think_time_ns = 1_000 * MS;
    let (truth, ..) = simulate(simulation);
    let place = truth.cycles.operation.iter().rposition(Option::is_some).expect("there is a read");
    let start_ns = truth.cycles.at_target.data_first_ns[place].expect("it began");
    // RFC 5681, section 4.1: after one second idle the window is the initial one
    let windows = &truth.target_ends[0][0].windows;
    let row = windows.time_ns.binary_search(&start_ns).expect("a row when it begins");
    assert_eq!(windows.cwnd[row], 10);
}

#[test]
fn a_ping_takes_two_delays_and_its_time_on_the_line() {
    let mut simulation = reads(8, 1 << 20);
    simulation.client.mode = Mode::Ping;
    simulation.client.ping.count = 3;
    simulation.client.ping.bytes = 1000;
    let (truth, ..) = simulate(simulation);
    // 8 ms each way; 48 bytes of header, 1000 of data and 66 of headers below them at 25 ns a byte
    let expected_ns = 2 * (8_000_000 + (48 + 1000 + 66) * 25);
    let ping_ns = truth.results.ping_ns;
    assert_eq!((ping_ns.count, ping_ns.min, ping_ns.max), (3, expected_ns, expected_ns));
}
