//! A host of the simulated world: an application, and an end of TCP for each of its connections.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use crate::application::{Application, Closed, ConnectionNumber};
use crate::tcp::segment::{ACK, RST};
use crate::tcp::{Endpoint, Role, Segment, Settings, State, TcpInfo};

/// The port at which targets listen.
pub const TARGET_PORT: u16 = 3260;
/// The initiator's connection of number n is opened from this port + n.
pub const FIRST_PORT: u16 = 40_000;
/// Connections that have ports.
pub const CONNECTIONS_MAX: usize = 25_000;

/// What an end's TCP_INFO was when its congestion window or threshold changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSample {
    /// When.
    pub time_ns: i64,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Slow start threshold, in segments.
    pub ssthresh: u32,
    /// Smoothed round trip, in microseconds.
    pub srtt_us: i64,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
}

/// One end of a connection, as it was at its end.
#[derive(Debug, Clone)]
pub struct EndLog {
    /// Port of the initiator, which names the connection on either host.
    pub initiator_port: u16,
    /// What TCP knew of it.
    pub info: TcpInfo,
    /// How its congestion window went.
    pub samples: Vec<TcpSample>,
}

struct End {
    endpoint: Endpoint,
    initiator_port: u16,
    is_open: bool,
    is_closing: bool,
    /// Waits until much of the send buffer is free, as a blocked writer does.
    is_blocked: bool,
    out: Vec<u8>,
    written: usize,
    samples: Vec<TcpSample>,
}

impl End {
    fn sample(&mut self, now_ns: i64) {
        let info = self.endpoint.tcp_info();
        let known = self.samples.last().map(|last| (last.cwnd, last.ssthresh));
        if known != Some((info.cwnd, info.ssthresh)) {
            let TcpInfo { cwnd, ssthresh, srtt_us, unacked, .. } = info;
            self.samples.push(TcpSample { time_ns: now_ns, cwnd, ssthresh, srtt_us, unacked });
        }
    }

    fn log(self) -> EndLog {
        EndLog { initiator_port: self.initiator_port, info: self.endpoint.tcp_info(), samples: self.samples }
    }
}

/// A host.
pub struct Host<'a> {
    application: &'a mut dyn Application,
    address: IpAddr,
    settings: Settings,
    /// From the arrival of something to the application's taking notice of it.
    delay_ns: i64,
    /// When the application is to take notice.
    notice_ns: Option<i64>,
    seed: u64,
    is_sampling: bool,
    ends: BTreeMap<ConnectionNumber, End>,
    by_peer: HashMap<(SocketAddr, u16), ConnectionNumber>,
    /// What its ends have sent and nobody has taken yet.
    pub out: Vec<Segment>,
    /// Ends that are no more.
    pub finished: Vec<EndLog>,
}

impl<'a> Host<'a> {
    /// A host at `address`, whose application takes notice of what arrives after `delay_ns`.
    pub fn new(
        application: &'a mut dyn Application,
        address: IpAddr,
        settings: Settings,
        delay_ns: i64,
        seed: u64,
        is_sampling: bool,
    ) -> Self {
        Self {
            application,
            address,
            settings,
            delay_ns,
            notice_ns: None,
            seed,
            is_sampling,
            ends: BTreeMap::new(),
            by_peer: HashMap::new(),
            out: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// Whether its application is finished and its connections are closed.
    pub fn is_finished(&self) -> bool {
        self.application.is_finished() && self.ends.is_empty()
    }

    /// When something is to happen here next.
    pub fn poll_timeout(&self) -> Option<i64> {
        let ends = self.ends.values().filter_map(|end| end.endpoint.poll_timeout());
        ends.chain(self.application.poll_timeout()).chain(self.notice_ns).min()
    }

    /// A segment arrives.
    pub fn receive(&mut self, now_ns: i64, segment: Segment) {
        let key = (segment.source, segment.destination.port());
        let number = match self.by_peer.get(&key) {
            Some(&number) => number,
            None if segment.flags.is_syn() && !segment.flags.is_ack() => {
                let Some(number) = self.application.accept(now_ns, segment.source, segment.destination) else {
                    return self.refuse(&segment);
                };
                self.add(number, Role::Passive, segment.destination, segment.source);
                number
            }
            None => return,
        };
        if let Some(end) = self.ends.get_mut(&number) {
            end.endpoint.receive(now_ns, segment);
            if self.is_sampling {
                end.sample(now_ns);
            }
        }
    }

    fn refuse(&mut self, segment: &Segment) {
        let mut reset = segment.clone();
        (reset.source, reset.destination) = (segment.destination, segment.source);
        reset.sequence_number = 0;
        reset.acknowledgment_number = segment.sequence_number.wrapping_add(segment.sequence_length());
        reset.flags.0 = RST | ACK;
        reset.options = Default::default();
        reset.window = 0;
        self.out.push(reset);
    }

    fn add(&mut self, number: ConnectionNumber, role: Role, local: SocketAddr, remote: SocketAddr) {
        let initiator_port = if role == Role::Active { local.port() } else { remote.port() };
        // each end has its own chance, whatever the others do
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(initiator_port));
        let end = End {
            endpoint: Endpoint::new(self.settings.clone(), role, local, remote, seed),
            initiator_port,
            is_open: false,
            is_closing: false,
            is_blocked: false,
            out: Vec::new(),
            written: 0,
            samples: Vec::new(),
        };
        self.by_peer.insert((remote, local.port()), number);
        self.ends.insert(number, end);
    }

    /// Whatever was waited for until now.
    pub fn handle_timeout(&mut self, now_ns: i64) {
        let is_due = |timeout_ns: Option<i64>| timeout_ns.is_some_and(|timeout_ns| timeout_ns <= now_ns);
        for end in self.ends.values_mut().filter(|end| is_due(end.endpoint.poll_timeout())) {
            end.endpoint.handle_timeout(now_ns);
            if self.is_sampling {
                end.sample(now_ns);
            }
        }
        if is_due(self.application.poll_timeout()) {
            self.application.handle_timeout(now_ns);
        }
    }

    /// Lets the application and its connections do all that they can do now.
    pub fn run(&mut self, now_ns: i64) {
        while let Some(dial) = self.application.poll_connect(now_ns) {
            if dial.connection >= CONNECTIONS_MAX {
                let why = format!("the simulated host has ports for {CONNECTIONS_MAX} connections");
                self.application.closed(now_ns, dial.connection, Closed::Failed(why));
                continue;
            }
            let local = SocketAddr::new(self.address, FIRST_PORT + dial.connection as u16);
            self.add(dial.connection, Role::Active, local, dial.to);
            if let Some(end) = self.ends.get_mut(&dial.connection) {
                end.endpoint.connect(now_ns);
            }
        }
        let takes_notice = self.takes_notice(now_ns);
        let mut over = Vec::new();
        for (&number, end) in &mut self.ends {
            if !end.is_open && end.endpoint.is_synchronized() {
                end.is_open = true;
                if end.initiator_port == end.endpoint.addresses().0.port() {
                    self.application.connected(now_ns, number);
                }
            }
            if !takes_notice {
                continue;
            }
            loop {
                let bytes = end.endpoint.readable();
                if bytes.is_empty() {
                    break;
                }
                let count = bytes.len();
                self.application.receive(now_ns, number, bytes);
                end.endpoint.consume(now_ns, count);
            }
            if let Some(why) = ending(&end.endpoint) {
                over.push((number, why));
            }
        }
        for (number, why) in over {
            self.end(now_ns, number, why);
        }
        while let Some(number) = self.application.poll_close() {
            if let Some(end) = self.ends.get_mut(&number) {
                end.is_closing = true;
            }
        }
        for (&number, end) in &mut self.ends {
            if end.is_open {
                transmit(self.application, now_ns, number, end);
            }
            while let Some(segment) = end.endpoint.poll_transmit(now_ns) {
                self.out.push(segment);
            }
        }
    }

    /// Whether the application looks at its connections now, or else later, if there is something to see.
    fn takes_notice(&mut self, now_ns: i64) -> bool {
        if self.delay_ns == 0 {
            return true;
        }
        let has_news = |end: &End| !end.endpoint.readable().is_empty() || ending(&end.endpoint).is_some();
        if self.notice_ns.is_none() && self.ends.values().any(has_news) {
            self.notice_ns = Some(now_ns.saturating_add(self.delay_ns));
        }
        self.notice_ns.take_if(|notice_ns| *notice_ns <= now_ns).is_some()
    }

    /// An end is over: tells the application, unless that is who closed it.
    fn end(&mut self, now_ns: i64, number: ConnectionNumber, why: Closed) {
        let Some(end) = self.ends.get_mut(&number) else { return };
        if !end.is_closing {
            end.is_closing = true;
            self.application.closed(now_ns, number, why);
        }
        // what it still sends (an ACK, its own FIN) goes out before it is forgotten
        end.endpoint.close(now_ns);
        while let Some(segment) = end.endpoint.poll_transmit(now_ns) {
            self.out.push(segment);
        }
        if matches!(end.endpoint.state(), State::Closed | State::TimeWait)
            && let Some(end) = self.ends.remove(&number)
        {
            let (local, remote) = end.endpoint.addresses();
            self.by_peer.remove(&(remote, local.port()));
            self.finished.push(end.log());
        }
    }

    /// The ends that are left, as they are.
    pub fn finish(mut self) -> Vec<EndLog> {
        self.finished.extend(self.ends.into_values().map(End::log));
        self.finished
    }
}

/// Whether a connection is over, and how.
fn ending(endpoint: &Endpoint) -> Option<Closed> {
    if let Some(error) = endpoint.error() {
        return Some(Closed::Failed(error.to_string()));
    }
    endpoint.is_read_finished().then_some(Closed::ByPeer)
}

/// Fills the send buffer with what the application has to say, one system call after the other.
fn transmit(application: &mut dyn Application, now_ns: i64, number: ConnectionNumber, end: &mut End) {
    if end.is_blocked && !end.endpoint.is_writable() {
        return;
    }
    end.is_blocked = false;
    loop {
        if end.written == end.out.len() {
            end.out.clear();
            end.written = 0;
            application.poll_transmit(now_ns, number, &mut end.out);
            if end.out.is_empty() {
                break;
            }
        }
        end.written += end.endpoint.write(now_ns, &end.out[end.written..]);
        if end.written < end.out.len() {
            end.is_blocked = true;
            return;
        }
    }
    if end.is_closing {
        end.endpoint.close(now_ns);
    }
}
