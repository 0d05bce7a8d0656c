//! The reference initiator with every driver, against our target over loopback: the same reads and writes, the same
//! results.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use iscsitrace_lab::application::Application;
use iscsitrace_lab::bulk::{BulkInitiator, BulkTarget};
use iscsitrace_lab::protocol::keys::Digest;
use iscsitrace_lab::protocol::target::{Portal, PortalSettings};
use iscsitrace_lab::scsi::{DeviceSettings, LogicalUnitSettings};
use iscsitrace_lab::workload::client::Client;
use iscsitrace_lab::workload::client::results::Results;
use iscsitrace_lab::workload::client::settings::{ClientSettings, TargetSettings};
use iscsitrace_lab::workload::settings::{Operation, WorkloadSettings};
use iscsitrace_lab::world::receiving::Receive;
use iscsitrace_lab::world::sockets::{Descriptors, SocketSettings, Sockets};
use iscsitrace_lab::world::threads::Threads;

const NAME: &str = "iqn.2026-01.test:disk";
const MB: u64 = 1 << 20;
const PERIOD: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Events(Receive),
    Threads(Receive),
}

const DRIVERS: [Driver; 4] = [
    Driver::Events(Receive::Copy),
    Driver::Events(Receive::Discard),
    Driver::Threads(Receive::Copy),
    Driver::Threads(Receive::Discard),
];

impl Driver {
    /// Runs an application to its end, or until `watch` says so.
    fn run<A: Application + Send>(
        self,
        application: &mut A,
        watch: &mut dyn FnMut(&mut A, i64, &Descriptors) -> ControlFlow<()>,
    ) {
        let settings = SocketSettings::default();
        let cpu = match self {
            Self::Events(receive) => {
                Sockets::new(settings).expect("sockets").receiving(receive).run(application, PERIOD, watch)
            }
            Self::Threads(receive) => Threads::new(settings, receive).run(application, PERIOD, watch),
        };
        let cpu = cpu.expect("it runs");
        assert!(cpu.total_ns() > 0, "{self:?} took no time");
    }
}

/// A server in a thread, until it is dropped.
struct Server {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn of<A: Application + Send + 'static>(mut application: A) -> Self {
        let mut sockets = Sockets::new(SocketSettings::default()).expect("sockets");
        let address = sockets.listen("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let watch = &mut |_: &mut A, _: i64, _: &Descriptors| {
                if seen.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            sockets.run(&mut application, PERIOD, watch).expect("it runs");
        });
        Self { address, is_over, thread: Some(thread) }
    }

    fn portal(change: impl Fn(&mut PortalSettings)) -> Self {
        let unit = LogicalUnitSettings { size_bytes: 16 * MB, ..LogicalUnitSettings::default() };
        let device =
            DeviceSettings { target_name: NAME.to_owned(), logical_units: vec![unit], ..DeviceSettings::default() };
        let mut settings = PortalSettings { targets: vec![device], ..PortalSettings::default() };
        settings.keys.max_connections = Some(8);
        settings.keys.header_digest = Some(vec![Digest::None, Digest::Crc32c]);
        settings.keys.data_digest = Some(vec![Digest::None, Digest::Crc32c]);
        change(&mut settings);
        Self::of(Portal::new(settings).expect("settings"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn settings(address: SocketAddr, workload: WorkloadSettings) -> ClientSettings {
    let target = TargetSettings { address, name: Some(NAME.to_owned()), lun: 0 };
    ClientSettings { targets: vec![target], workload, ..ClientSettings::default() }
}

fn workload(operation: Operation, verify: bool) -> WorkloadSettings {
    WorkloadSettings {
        operation,
        total_bytes: Some(4 * MB),
        block_size_bytes: 96 << 10,
        queue_depth: 8,
        verify,
        ..WorkloadSettings::default()
    }
}

fn go_on<A>(_: &mut A, _: i64, _: &Descriptors) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn run(driver: Driver, settings: ClientSettings) -> Results {
    let mut client = Client::new(settings).expect("settings");
    driver.run(&mut client, &mut go_on);
    client.results()
}

#[test]
fn every_driver_reads_back_written_data() {
    let server = Server::portal(|_| {});
    for (sessions, connections) in [(1, 1), (1, 4), (3, 2)] {
        for digest in [Digest::None, Digest::Crc32c] {
            let mut found = Vec::new();
            for driver in DRIVERS {
                // without verification, the data of reads is ignored
                for (operation, verify) in [(Operation::Write, true), (Operation::Read, true), (Operation::Read, false)]
                {
                    let mut settings = settings(server.address, workload(operation, verify));
                    (settings.workload.sessions, settings.workload.connections) = (sessions, connections);
                    settings.login.offers.header_digest = Some(vec![digest]);
                    settings.login.offers.data_digest = Some(vec![digest]);
                    let results = run(driver, settings);
                    let said = (driver, sessions, connections, digest, operation, verify);
                    assert_eq!(results.errors, [] as [String; 0], "{said:?}");
                    assert_eq!((results.bytes, results.verify_error_count), (4 * MB, 0), "{said:?}");
                    let parameters: Vec<_> = results.connections.iter().map(|each| each.parameters.clone()).collect();
                    assert_eq!(parameters.len(), usize::from(sessions) * usize::from(connections), "{said:?}");
                    found.push((operation, verify, results.calls, results.read.bytes, results.write.bytes, parameters));
                }
            }
            // all drivers did the same
            let (first, others) = found.split_at(3);
            assert!(others.chunks(3).all(|other| other == first), "{sessions} {connections} {digest:?}");
        }
    }
}

#[test]
fn every_driver_detects_wrong_data() {
    let server = Server::portal(|_| {});
    for driver in DRIVERS {
        let results = run(driver, settings(server.address, workload(Operation::Read, true)));
        // zeros are wrong for each command; the run ends with the first one and those in flight
        assert!((1..=8).contains(&results.verify_error_count), "{driver:?}: {}", results.verify_error_count);
        // block 0 begins with its number, all zeros, and the seed, whose last byte is 1
        assert_eq!((results.bytes, results.first_mismatch.map(|found| found.byte)), (0, Some(15)));
    }
}

#[test]
fn every_driver_completes_bulk_transfers() {
    let server = Server::of(BulkTarget::default());
    for driver in DRIVERS {
        for operation in [Operation::SocketRead, Operation::SocketWrite] {
            let mut settings = settings(server.address, workload(operation, false));
            settings.workload.connections = 2;
            let mut bulk = BulkInitiator::new(settings).expect("settings");
            driver.run(&mut bulk, &mut go_on);
            let results = bulk.results();
            assert_eq!(results.errors, [] as [String; 0], "{driver:?}");
            assert_eq!(results.bytes, 4 * MB, "{driver:?} {operation:?}");
        }
    }
}

#[test]
fn every_driver_reports_a_closed_port_and_an_unknown_congestion_control() {
    let unused = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = unused.local_addr().expect("it is bound");
    drop(unused);
    for driver in DRIVERS {
        let results = run(driver, settings(address, workload(Operation::Read, false)));
        assert!(results.errors[0].contains("refused"), "{driver:?}: {:?}", results.errors);
    }
    let told = SocketSettings { congestion_control: Some("none-such".into()), ..SocketSettings::default() };
    let mut client = Client::new(settings(address, workload(Operation::Read, false))).expect("settings");
    Threads::new(told, Receive::Copy).run(&mut client, PERIOD, &mut go_on).expect("it runs");
    assert_eq!(client.results().error_count, 1);
}

#[test]
fn every_driver_reports_a_connection_closed_during_login() {
    for driver in DRIVERS {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("someone comes");
            let mut login = [0; 48];
            stream.read_exact(&mut login).expect("it says something");
            assert_eq!(login[0] & 0x3f, 0x03, "no Login Request");
        });
        let results = run(driver, settings(address, workload(Operation::Read, false)));
        peer.join().expect("no panic");
        assert_eq!(results.error_count, 1, "{driver:?}");
        assert!(results.errors[0].contains("lost") || results.errors[0].contains("closed"), "{:?}", results.errors);
    }
}

#[test]
fn a_stopped_run_logs_out_and_ends() {
    let server = Server::portal(|_| {});
    for driver in DRIVERS {
        let mut settings = settings(server.address, workload(Operation::Read, false));
        settings.workload.total_bytes = None;
        settings.workload.duration_ns = Some(60_000_000_000);
        settings.workload.connections = 2;
        let mut client = Client::new(settings).expect("settings");
        let mut last_looks = Vec::new();
        driver.run(&mut client, &mut |client: &mut Client, now_ns, descriptors| {
            if client.progress(now_ns).bytes > MB {
                client.stop(now_ns);
            }
            last_looks.extend(descriptors.iter().filter(|(_, _, is_last)| *is_last).map(|(number, ..)| *number));
            ControlFlow::Continue(())
        });
        assert_eq!(client.results().errors, [] as [String; 0], "{driver:?}");
        last_looks.sort_unstable();
        assert_eq!(last_looks, [0, 1], "{driver:?}: each is shown once more before it is closed");
    }
}

#[test]
fn an_aborted_run_ends_immediately() {
    // no answer: from a listener that never accepts, and from one with a full accept queue
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    full.bind(&"127.0.0.1:0".parse::<SocketAddr>().expect("an address").into()).expect("a free port");
    full.listen(0).expect("it listens");
    let full_address = full.local_addr().expect("it is bound").as_socket().expect("of IPv4");
    let _waiting: Vec<_> =
        (0..4).map(|_| std::net::TcpStream::connect_timeout(&full_address, Duration::from_millis(100))).collect();
    for driver in DRIVERS {
        for address in [silent.local_addr().expect("it is bound"), full_address] {
            let mut client = Client::new(settings(address, workload(Operation::Read, false))).expect("settings");
            let mut rounds = 0;
            driver.run(&mut client, &mut |_, _, _| {
                rounds += 1;
                if rounds == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert!(!client.is_finished(), "{driver:?}");
        }
    }
}
