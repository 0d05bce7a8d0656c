//! A host of the simulated world: an application, and an end of TCP for each of its connections.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use super::end::{End, EndLog, TcpLog};
use crate::application::{Application, Closed, ConnectionNumber};
use crate::tcp::{Endpoint, Role, Segment, Settings, State};

/// The port at which targets listen.
pub const TARGET_PORT: u16 = 3260;
/// The initiator's connection of number n is opened from this port + n.
pub const FIRST_PORT: u16 = 40_000;
/// Connections that have ports.
pub const CONNECTIONS_MAX: usize = 25_000;

/// A host.
pub struct Host<'a> {
    application: &'a mut dyn Application,
    address: IpAddr,
    settings: Settings,
    /// Delay from an arrival until the application is called.
    delay_ns: i64,
    /// When the application is to be called.
    notice_ns: Option<i64>,
    seed: u64,
    tcp_log: TcpLog,
    ends: BTreeMap<ConnectionNumber, End>,
    /// Ends with changes since they were last polled.
    touched: BTreeSet<ConnectionNumber>,
    /// Whether the application was called: then each of its connections may have bytes to send.
    is_told: bool,
    /// Timers of ends, by time.
    timeouts: BTreeSet<(i64, ConnectionNumber)>,
    by_peer: HashMap<(SocketAddr, u16), ConnectionNumber>,
    /// Segments sent by its ends, not yet polled.
    pub out: Vec<Segment>,
    /// Final states of closed ends.
    pub finished: Vec<EndLog>,
}

impl<'a> Host<'a> {
    /// A host at `address`, whose application is called `delay_ns` after an arrival.
    pub fn new(
        application: &'a mut dyn Application,
        address: IpAddr,
        settings: Settings,
        delay_ns: i64,
        seed: u64,
        tcp_log: TcpLog,
    ) -> Self {
        Self {
            application,
            address,
            settings,
            delay_ns,
            notice_ns: None,
            seed,
            tcp_log,
            ends: BTreeMap::new(),
            touched: BTreeSet::new(),
            // it may begin
            is_told: true,
            timeouts: BTreeSet::new(),
            by_peer: HashMap::new(),
            out: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// Whether its application is finished and its connections are closed; those in TIME-WAIT are, and those given up
    /// before they were open.
    pub fn is_finished(&self) -> bool {
        let is_over = |end: &End| matches!(end.endpoint.state(), State::TimeWait | State::Closed);
        self.application.is_finished() && self.ends.values().all(is_over)
    }

    /// Time of the next event.
    pub fn poll_timeout(&self) -> Option<i64> {
        let end = self.timeouts.first().map(|(at_ns, _)| *at_ns);
        end.into_iter().chain(self.application.poll_timeout()).chain(self.notice_ns).min()
    }

    /// A segment arrives.
    pub fn receive(&mut self, now_ns: i64, segment: Segment) {
        let key = (segment.source, segment.destination.port());
        let number = match self.by_peer.get(&key) {
            Some(&number) => number,
            None if segment.flags.is_syn() && !segment.flags.is_ack() => {
                let Some(number) = self.application.accept(now_ns, segment.source, segment.destination) else {
                    return self.out.extend(segment.reset());
                };
                self.is_told = true;
                self.add(number, Role::Passive, segment.destination, segment.source);
                number
            }
            None => return self.out.extend(segment.reset()),
        };
        if let Some(end) = self.ends.get_mut(&number) {
            end.endpoint.receive(now_ns, segment);
            self.touched.insert(number);
        }
    }

    fn add(&mut self, number: ConnectionNumber, role: Role, local: SocketAddr, remote: SocketAddr) {
        let initiator_port = if role == Role::Active { local.port() } else { remote.port() };
        // each end has a seed that does not depend on the other ends
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(initiator_port));
        let end = End::new(Endpoint::new(self.settings.clone(), role, local, remote, seed), initiator_port);
        self.by_peer.insert((remote, local.port()), number);
        self.ends.insert(number, end);
        self.touched.insert(number);
    }

    /// Whether its workload has begun.
    pub fn has_begun(&self) -> bool {
        self.application.has_begun()
    }

    /// Resets all connections, as an administrator of this host may.
    pub fn reset(&mut self, now_ns: i64) {
        for (&number, end) in self.ends.iter_mut().filter(|(_, end)| end.is_open && !end.is_closing) {
            end.endpoint.abort(now_ns);
            end.is_aborted = true;
            self.touched.insert(number);
        }
    }

    /// Handles all timers that are due.
    pub fn handle_timeout(&mut self, now_ns: i64) {
        let is_due = |timeout_ns: Option<i64>| timeout_ns.is_some_and(|timeout_ns| timeout_ns <= now_ns);
        let due: BTreeSet<ConnectionNumber> =
            self.timeouts.iter().take_while(|(at_ns, _)| *at_ns <= now_ns).map(|(_, number)| *number).collect();
        for &number in &due {
            if let Some(end) = self.ends.get_mut(&number) {
                end.endpoint.handle_timeout(now_ns);
            }
        }
        self.touched.extend(due);
        if is_due(self.application.poll_timeout()) {
            self.application.handle_timeout(now_ns);
            self.is_told = true;
        }
    }

    /// Runs the application and its connections until nothing more can be done now.
    pub fn run(&mut self, now_ns: i64) {
        while let Some(dial) = self.application.poll_connect(now_ns) {
            self.is_told = true;
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
        let mut touched = std::mem::take(&mut self.touched);
        if takes_notice && self.delay_ns > 0 {
            // and bytes that arrived before the application was called
            touched.extend(self.ends.keys());
        }
        for &number in &touched {
            let Some(end) = self.ends.get_mut(&number) else { continue };
            if !end.is_open && end.endpoint.is_synchronized() {
                end.is_open = true;
                self.is_told = true;
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
                self.is_told = true;
            }
            if let Some(why) = end.ending() {
                over.push((number, why));
            }
        }
        for (number, why) in over {
            self.end(now_ns, number, why);
        }
        if std::mem::take(&mut self.is_told) {
            for (&number, end) in self.ends.iter_mut().filter(|(_, end)| end.is_open) {
                if end.transmit(now_ns, number, self.application) {
                    touched.insert(number);
                    // its bytes may be what another connection waited for
                    self.is_told = true;
                }
            }
        } else {
            for number in &touched {
                if let Some(end) = self.ends.get_mut(number).filter(|end| end.is_open) {
                    self.is_told |= end.transmit(now_ns, *number, self.application);
                }
            }
        }
        // the application may close a connection with its last bytes
        while let Some(number) = self.application.poll_close() {
            let Some(end) = self.ends.get_mut(&number) else { continue };
            end.is_closing = true;
            self.is_told = true;
            touched.insert(number);
            if end.is_open {
                end.transmit(now_ns, number, self.application);
            } else {
                end.endpoint.close(now_ns);
            }
        }
        touched.append(&mut self.touched);
        for number in touched {
            let Some(end) = self.ends.get_mut(&number) else { continue };
            self.out.extend(std::iter::from_fn(|| end.endpoint.poll_transmit(now_ns)));
            end.sample(now_ns, self.tcp_log);
            let timeout_ns = end.endpoint.poll_timeout();
            if timeout_ns != end.timeout_ns {
                if let Some(earlier_ns) = std::mem::replace(&mut end.timeout_ns, timeout_ns) {
                    self.timeouts.remove(&(earlier_ns, number));
                }
                self.timeouts.extend(timeout_ns.map(|at_ns| (at_ns, number)));
            }
        }
    }

    /// Whether the application is called now; else the call is scheduled if there is something new.
    fn takes_notice(&mut self, now_ns: i64) -> bool {
        if self.delay_ns == 0 {
            return true;
        }
        let has_news = |end: &End| !end.endpoint.readable().is_empty() || end.ending().is_some();
        if self.notice_ns.is_none() && self.ends.values().any(has_news) {
            self.notice_ns = Some(now_ns.saturating_add(self.delay_ns));
        }
        self.notice_ns.take_if(|notice_ns| *notice_ns <= now_ns).is_some()
    }

    /// An end has closed: calls the application, unless that closed it.
    fn end(&mut self, now_ns: i64, number: ConnectionNumber, why: Closed) {
        let Some(end) = self.ends.get_mut(&number) else { return };
        if !end.is_closing {
            end.is_closing = true;
            self.application.closed(now_ns, number, why);
            self.is_told = true;
        }
        self.touched.insert(number);
        // its last segments (an ACK, its FIN) are sent before it is dropped
        end.endpoint.close(now_ns);
        while let Some(segment) = end.endpoint.poll_transmit(now_ns) {
            self.out.push(segment);
        }
        if end.endpoint.state() == State::Closed
            && let Some(end) = self.ends.remove(&number)
        {
            let (local, remote) = end.endpoint.addresses();
            self.by_peer.remove(&(remote, local.port()));
            if let Some(at_ns) = end.timeout_ns {
                self.timeouts.remove(&(at_ns, number));
            }
            self.finished.push(end.log());
        }
    }

    /// The final states of all ends.
    pub fn finish(mut self) -> Vec<EndLog> {
        self.finished.extend(self.ends.into_values().map(End::log));
        self.finished
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::Dial;

    /// Accepts one connection, answers the first bytes with as many, and closes with its last word.
    #[derive(Default)]
    struct Once {
        received_bytes: usize,
        is_answered: bool,
        is_closed: bool,
    }

    impl Application for Once {
        fn poll_connect(&mut self, _: i64) -> Option<Dial> {
            None
        }

        fn accept(&mut self, _: i64, _: SocketAddr, _: SocketAddr) -> Option<ConnectionNumber> {
            Some(0)
        }

        fn connected(&mut self, _: i64, _: ConnectionNumber) {}

        fn receive(&mut self, _: i64, _: ConnectionNumber, bytes: &[u8]) {
            self.received_bytes += bytes.len();
        }

        fn closed(&mut self, _: i64, _: ConnectionNumber, _: Closed) {}

        fn poll_transmit(&mut self, _: i64, _: ConnectionNumber, out: &mut Vec<u8>) {
            if self.received_bytes > 0 && !self.is_answered {
                self.is_answered = true;
                out.resize(self.received_bytes, 0);
            }
        }

        fn poll_close(&mut self) -> Option<ConnectionNumber> {
            let closes = self.is_answered && !self.is_closed;
            self.is_closed |= closes;
            closes.then_some(0)
        }

        fn poll_timeout(&self) -> Option<i64> {
            None
        }

        fn handle_timeout(&mut self, _: i64) {}

        fn is_finished(&self) -> bool {
            self.is_closed
        }
    }

    const MS: i64 = 1_000_000;

    /// What a host answers to segments that arrive one after the other.
    fn answers(host: &mut Host<'_>, now_ns: i64, segments: &[Segment]) -> Vec<Segment> {
        for segment in segments {
            host.receive(now_ns, segment.clone());
            host.run(now_ns);
        }
        std::mem::take(&mut host.out)
    }

    fn sent_by(end: &mut Endpoint, now_ns: i64) -> Vec<Segment> {
        std::iter::from_fn(|| end.poll_transmit(now_ns)).collect()
    }

    #[test]
    fn a_closed_connection_answers_a_retransmitted_fin_and_resets_strays() {
        let server = SocketAddr::from(([198, 18, 0, 10], TARGET_PORT));
        let client = SocketAddr::from(([198, 18, 0, 1], FIRST_PORT));
        let mut once = Once::default();
        let mut host = Host::new(&mut once, server.ip(), Settings::default(), 0, 1, TcpLog::Windows);
        let mut peer = Endpoint::new(Settings::default(), Role::Active, client, server, 2);
        let exchange = |host: &mut Host<'_>, peer: &mut Endpoint, now_ns: i64| {
            let answers = answers(host, now_ns, &sent_by(peer, now_ns));
            answers.iter().for_each(|segment| peer.receive(now_ns, segment.clone()));
            answers
        };
        peer.connect(MS);
        exchange(&mut host, &mut peer, MS);
        peer.write(2 * MS, b"a question");
        let answered = exchange(&mut host, &mut peer, 2 * MS);
        // the answer and, at the same moment, the end: the application closed with its last word
        assert_eq!(answered.iter().map(|segment| segment.payload.len()).sum::<usize>(), 10);
        assert!(answered.iter().any(|segment| segment.flags.is_fin()));
        exchange(&mut host, &mut peer, 3 * MS);
        peer.close(4 * MS);
        let fin = sent_by(&mut peer, 4 * MS);
        answers(&mut host, 4 * MS, &fin);
        assert!(host.is_finished(), "TIME-WAIT is the end for the world");
        // its ACK was lost, and the FIN comes again
        let again = answers(&mut host, 300 * MS, &fin);
        assert_eq!(again.len(), 1);
        assert!(again[0].flags.is_ack() && !again[0].flags.is_rst());
        // a minute later nobody knows of it any more
        host.handle_timeout(61_000 * MS);
        host.run(61_000 * MS);
        let resets = answers(&mut host, 61_000 * MS, &fin);
        assert_eq!(resets.len(), 1);
        assert!(resets[0].flags.is_rst());
        assert_eq!((resets[0].sequence_number, resets[0].destination), (fin[0].acknowledgment_number, client));
        assert_eq!(answers(&mut host, 61_000 * MS, &resets), [], "a RST is not answered");
        assert_eq!(host.finish().len(), 1);
    }
}
