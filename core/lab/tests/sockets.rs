//! Applications over real sockets on loopback.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use iscsitrace_lab::application::{Application, Closed, ConnectionNumber, Dial};
use iscsitrace_lab::world::sockets::{Descriptors, SocketSettings, Sockets};

const BYTES: usize = 1 << 20;
const PERIOD: Duration = Duration::from_millis(5);

/// Echoes received bytes.
#[derive(Default)]
struct Echo {
    waiting: Vec<Vec<u8>>,
    closed_count: usize,
    last_ns: i64,
}

impl Application for Echo {
    fn poll_connect(&mut self, _: i64) -> Option<Dial> {
        None
    }

    fn accept(&mut self, _: i64, _: SocketAddr, _: SocketAddr) -> Option<ConnectionNumber> {
        self.waiting.push(Vec::new());
        Some(self.waiting.len() - 1)
    }

    fn connected(&mut self, _: i64, _: ConnectionNumber) {
        unreachable!("it never dials")
    }

    fn receive(&mut self, now_ns: i64, connection: ConnectionNumber, bytes: &[u8]) {
        assert!(now_ns >= self.last_ns, "time goes back");
        self.last_ns = now_ns;
        self.waiting[connection].extend_from_slice(bytes);
    }

    fn closed(&mut self, _: i64, _: ConnectionNumber, why: Closed) {
        assert_eq!(why, Closed::ByPeer);
        self.closed_count += 1;
    }

    fn poll_transmit(&mut self, _: i64, connection: ConnectionNumber, out: &mut Vec<u8>) {
        out.append(&mut self.waiting[connection]);
    }

    fn poll_close(&mut self) -> Option<ConnectionNumber> {
        None
    }

    fn poll_timeout(&self) -> Option<i64> {
        None
    }

    fn handle_timeout(&mut self, _: i64) {}

    fn is_finished(&self) -> bool {
        false
    }
}

/// Sends a megabyte over each of its connections, and expects the echo.
struct Sender {
    to: SocketAddr,
    dialed: usize,
    sent: Vec<usize>,
    back: Vec<Vec<u8>>,
    to_close: Vec<ConnectionNumber>,
    failures: Vec<String>,
    timeout_ns: Option<i64>,
}

fn byte(connection: ConnectionNumber, at: usize) -> u8 {
    (at * 7 + at / 256 + connection) as u8
}

impl Sender {
    fn new(to: SocketAddr, count: usize) -> Self {
        Self {
            to,
            dialed: 0,
            sent: vec![0; count],
            back: vec![Vec::new(); count],
            to_close: Vec::new(),
            failures: Vec::new(),
            timeout_ns: None,
        }
    }
}

impl Application for Sender {
    fn poll_connect(&mut self, _: i64) -> Option<Dial> {
        let connection = self.dialed;
        self.dialed = (connection + 1).min(self.sent.len());
        (connection < self.sent.len()).then_some(Dial { connection, to: self.to })
    }

    fn accept(&mut self, _: i64, _: SocketAddr, _: SocketAddr) -> Option<ConnectionNumber> {
        None
    }

    fn connected(&mut self, now_ns: i64, _: ConnectionNumber) {
        self.timeout_ns = Some(now_ns + 20_000_000);
    }

    fn receive(&mut self, _: i64, connection: ConnectionNumber, bytes: &[u8]) {
        self.back[connection].extend_from_slice(bytes);
        if self.back[connection].len() == BYTES {
            self.to_close.push(connection);
        }
    }

    fn closed(&mut self, _: i64, connection: ConnectionNumber, why: Closed) {
        self.failures.push(format!("{connection}: {why:?}"));
    }

    fn poll_transmit(&mut self, _: i64, connection: ConnectionNumber, out: &mut Vec<u8>) {
        // held until the timeout, to test the timer
        if self.timeout_ns.is_none() {
            let sent = self.sent[connection];
            let end = (sent + 100_000).min(BYTES);
            out.extend((sent..end).map(|at| byte(connection, at)));
            self.sent[connection] = end;
        }
    }

    fn poll_close(&mut self) -> Option<ConnectionNumber> {
        self.to_close.pop()
    }

    fn poll_timeout(&self) -> Option<i64> {
        self.timeout_ns
    }

    fn handle_timeout(&mut self, now_ns: i64) {
        assert!(self.timeout_ns.is_some_and(|timeout_ns| timeout_ns <= now_ns), "too early");
        self.timeout_ns = None;
    }

    fn is_finished(&self) -> bool {
        !self.failures.is_empty() || self.back.iter().all(|back| back.len() == BYTES)
    }
}

fn go_on<A>(_: &mut A, _: i64, _: &Descriptors) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn sixty_four_connections_carry_their_bytes_and_close() {
    let mut server = Sockets::new(SocketSettings::default()).expect("sockets");
    let address = server.listen("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let echo = std::thread::spawn(move || {
        let mut echo = Echo::default();
        server
            .run(&mut echo, PERIOD, &mut |echo, _, _| {
                if echo.closed_count == 64 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .expect("it runs");
        echo
    });
    let settings = SocketSettings {
        congestion_control: Some("reno".into()),
        send_buffer_bytes: Some(65_536),
        receive_buffer_bytes: Some(65_536),
        ..SocketSettings::default()
    };
    let mut sender = Sender::new(address, 64);
    let (mut most, mut last_looks) = (0, Vec::new());
    Sockets::new(settings)
        .expect("sockets")
        .run(&mut sender, PERIOD, &mut |_, _, descriptors| {
            most = most.max(descriptors.len());
            last_looks.extend(descriptors.iter().filter(|(_, _, is_last)| *is_last).map(|(number, ..)| *number));
            ControlFlow::Continue(())
        })
        .expect("it runs");
    assert_eq!(sender.failures, Vec::<String>::new());
    for (connection, back) in sender.back.iter().enumerate() {
        assert!(back.iter().enumerate().all(|(at, &found)| found == byte(connection, at)), "connection {connection}");
    }
    assert_eq!(echo.join().expect("no panic").closed_count, 64);
    assert!(most > 0, "nobody was shown the sockets");
    last_looks.sort_unstable();
    assert_eq!(last_looks, (0..64).collect::<Vec<_>>(), "each is shown once more before it is closed");
}

#[test]
fn nobody_listening_is_told() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = unused.local_addr().expect("it is bound");
    drop(unused);
    let mut sender = Sender::new(address, 1);
    Sockets::new(SocketSettings::default()).expect("sockets").run(&mut sender, PERIOD, &mut go_on).expect("it runs");
    assert!(sender.failures[0].contains("refused"), "{:?}", sender.failures);
}

#[test]
fn an_unknown_congestion_control_is_reported() {
    let settings = SocketSettings { congestion_control: Some("none-such".into()), ..SocketSettings::default() };
    let mut sender = Sender::new("127.0.0.1:1".parse().expect("an address"), 1);
    Sockets::new(settings).expect("sockets").run(&mut sender, PERIOD, &mut go_on).expect("it runs");
    assert_eq!(sender.failures.len(), 1);
}

/// A connection to an application's listener, once accepted; `act` is called with it between two waits.
fn with_a_peer(act: impl FnOnce(std::net::TcpStream), is_over: impl Fn(&Echo) -> bool) -> Echo {
    let mut server = Sockets::new(SocketSettings::default()).expect("sockets");
    let address = server.listen("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let peer = std::net::TcpStream::connect(address).expect("someone listens");
    let (mut peer, mut act) = (Some(peer), Some(act));
    let (mut echo, mut rounds) = (Echo::default(), 0);
    server
        .run(&mut echo, PERIOD, &mut |echo, _, descriptors| {
            rounds += 1;
            assert!(rounds < 400, "nothing comes of it");
            // one round later, after its first edges
            if descriptors.len() == 1
                && rounds > 4
                && let (Some(peer), Some(act)) = (peer.take(), act.take())
            {
                act(peer);
            }
            if is_over(echo) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("it runs");
    echo
}

#[test]
fn an_end_of_stream_with_the_last_bytes_is_detected() {
    // both arrive before the world waits again: one edge reports them
    use std::io::Write;
    let say_and_leave = |mut peer: std::net::TcpStream| {
        peer.write_all(b"the last words").expect("it is open");
        peer.shutdown(std::net::Shutdown::Write).expect("it is open");
        // kept open in the other direction, so that nothing else reports it
        std::mem::forget(peer);
    };
    with_a_peer(say_and_leave, |echo| echo.closed_count == 1);
}

/// Sets a timer every 300 us, and records the lateness.
struct Waker {
    at_ns: Option<i64>,
    late_ns: Vec<i64>,
}

impl Application for Waker {
    fn poll_connect(&mut self, now_ns: i64) -> Option<Dial> {
        self.at_ns.get_or_insert(now_ns + 300_000);
        None
    }

    fn accept(&mut self, _: i64, _: SocketAddr, _: SocketAddr) -> Option<ConnectionNumber> {
        None
    }

    fn connected(&mut self, _: i64, _: ConnectionNumber) {}

    fn receive(&mut self, _: i64, _: ConnectionNumber, _: &[u8]) {}

    fn closed(&mut self, _: i64, _: ConnectionNumber, _: Closed) {}

    fn poll_transmit(&mut self, _: i64, _: ConnectionNumber, _: &mut Vec<u8>) {}

    fn poll_close(&mut self) -> Option<ConnectionNumber> {
        None
    }

    fn poll_timeout(&self) -> Option<i64> {
        self.at_ns
    }

    fn handle_timeout(&mut self, now_ns: i64) {
        self.late_ns.push(now_ns - self.at_ns.expect("it was asked for"));
        self.at_ns = Some(now_ns + 300_000);
    }

    fn is_finished(&self) -> bool {
        self.late_ns.len() == 200
    }
}

#[test]
fn a_wait_is_not_rounded_up_to_milliseconds() {
    let mut waker = Waker { at_ns: None, late_ns: Vec::new() };
    Sockets::new(SocketSettings::default()).expect("sockets").run(&mut waker, PERIOD, &mut go_on).expect("it runs");
    waker.late_ns.sort_unstable();
    assert!(waker.late_ns[0] >= 0, "never too early");
    // rounded up, 300 us would be at least 700 us late; the earliest tenth, because other programs use the CPU, too
    assert!(waker.late_ns[20] < 300_000, "late by {} us", waker.late_ns[20] / 1000);
}

#[test]
fn a_connection_that_was_never_open_is_closed_at_once() {
    // nobody accepts, and the accept queue is full: the SYN is not answered
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    full.bind(&"127.0.0.1:0".parse::<SocketAddr>().expect("an address").into()).expect("a free port");
    full.listen(0).expect("it listens");
    let address = full.local_addr().expect("it is bound").as_socket().expect("of IPv4");
    let _waiting: Vec<_> =
        (0..4).map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100))).collect();
    let mut sender = Sender::new(address, 1);
    let mut rounds = 0;
    Sockets::new(SocketSettings::default())
        .expect("sockets")
        .run(&mut sender, PERIOD, &mut |sender: &mut Sender, _, descriptors| {
            rounds += 1;
            match rounds {
                4 => {
                    assert_eq!(descriptors.len(), 1);
                    sender.to_close.push(0);
                    sender.back[0].resize(BYTES, 0);
                }
                5.. => assert!(descriptors.iter().all(|(_, _, is_last)| *is_last), "it still waits for an answer"),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .expect("it runs");
    assert_eq!(sender.failures, Vec::<String>::new());
}
