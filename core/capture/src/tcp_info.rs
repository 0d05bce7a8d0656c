//! Samples of the kernel's TCP_INFO of the captured sockets: over netlink's sock_diag, as `ss -tin` gets them.
//!
//! A list of all sockets, without TCP_INFO, is requested a few times a second; a socket is captured if the capture filter
//! matches its packets, in either direction. At each interval the captured sockets are requested by name, so that a sample
//! costs the same however many other sockets the host has. Only the network namespace of this process is seen.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use iscsitrace_trace::reader::Filter;
use iscsitrace_wire::frame::LinkType;
use iscsitrace_wire::tcp_info::{TcpInfo, TcpSample};
use netlink_packet_core::{
    Emitable, ErrorBuffer, ErrorMessage, NLA_HEADER_SIZE, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer, NetlinkHeader, NetlinkMessage, NlasIterator, Parseable,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{
    AF_INET, AF_INET6, INET_DIAG_CONG, INET_DIAG_INFO, IPPROTO_TCP, SOCK_DIAG_BY_FAMILY,
};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use rustc_hash::FxHashMap;

use crate::files::now_ns;

/// Time between two lists of all sockets: one takes the kernel 0.2 ms for each IP version, for a table of 2^18 places.
const LISTED_EVERY: Duration = Duration::from_millis(500);
/// A socket without a change is sampled again after this time.
const UNCHANGED_FOR: Duration = Duration::from_secs(1);
/// The kernel fills at most half of this at once.
const RECEIVED_BYTES: usize = 1 << 16;
/// Requests sent at once: all of their replies fit the buffer of the netlink socket.
const REQUESTS_AT_ONCE: usize = 32;

/// A socket of this host.
struct Known {
    local: SocketAddr,
    remote: SocketAddr,
    congestion_control: String,
    /// The request for its TCP_INFO; empty if the capture filter does not match its packets.
    request: Vec<u8>,
    /// Number of the last list that had it.
    list: u32,
    /// Its last sample, and when it was taken.
    last: Option<(TcpInfo, i64)>,
}

/// Takes samples at an interval.
pub(crate) struct Sampler {
    socket: Socket,
    interval: Duration,
    due: Instant,
    listed: Option<Instant>,
    list: u32,
    /// By the kernel's cookie, which no two sockets share.
    known: FxHashMap<[u8; 8], Known>,
    /// The capture filters, compiled; none for those that libpcap rejects here.
    filters: Vec<(String, Option<Filter>)>,
    received: Vec<u8>,
}

impl Sampler {
    /// A sampler whose first sample is due now.
    ///
    /// # Errors
    /// The kernel has no sock_diag for TCP (`modprobe tcp_diag`).
    pub(crate) fn new(interval: Duration) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        // not connected, which a confined capture cannot: without an address requests go to the kernel
        socket.bind_auto()?;
        // the kernel replies while a request is sent: a reply that is not there will never come
        socket.set_non_blocking(true)?;
        let mut sampler = Self {
            socket,
            interval,
            due: Instant::now(),
            listed: None,
            list: 0,
            known: FxHashMap::default(),
            filters: Vec::new(),
            received: Vec::with_capacity(RECEIVED_BYTES),
        };
        sampler.list()?;
        Ok(sampler)
    }

    /// Time until the next sample is due.
    pub(crate) fn due_in(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Takes a sample of every socket whose packets one of the filters matches; intervals that passed are skipped.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn sample<'a>(
        &mut self,
        filters: impl Iterator<Item = &'a str>,
        mut each: impl FnMut(&TcpSample),
    ) -> io::Result<()> {
        let now = Instant::now();
        self.due = (self.due + self.interval).max(now);
        self.follow(filters);
        if self.listed.is_none_or(|listed| now.duration_since(listed) >= LISTED_EVERY) {
            self.listed = Some(now);
            self.list()?;
        }
        let mut known = std::mem::take(&mut self.known);
        let requests: Vec<&[u8]> =
            known.values().map(|known| &*known.request).filter(|bytes| !bytes.is_empty()).collect();
        let batches: Vec<(usize, Vec<u8>)> =
            requests.chunks(REQUESTS_AT_ONCE).map(|batch| (batch.len(), batch.concat())).collect();
        let mut result = Ok(());
        for (count, bytes) in batches {
            let before_ns = now_ns();
            result = self.socket.send(&bytes, 0).map(|_| ());
            let time_ns = before_ns + (now_ns() - before_ns) / 2;
            result = result.and_then(|()| {
                self.receive(count, |header, attributes| {
                    let Some(bytes) = attribute(attributes, INET_DIAG_INFO) else { return };
                    let Some(known) = known.get_mut(&header.socket_id.cookie) else { return };
                    if let Some(sample) = known.news(time_ns, header.state, TcpInfo::from_kernel(bytes)) {
                        each(&sample);
                    }
                })
            });
            if result.is_err() {
                break;
            }
        }
        self.known = known;
        result
    }

    /// Compiles filters that are new, and forgets which sockets the old ones matched.
    fn follow<'a>(&mut self, filters: impl Iterator<Item = &'a str>) {
        let filters: Vec<&str> = filters.collect();
        if filters.iter().copied().eq(self.filters.iter().map(|(expression, _)| expression.as_str())) {
            return;
        }
        let compiled = filters.iter().map(|&expression| (expression.to_owned(), Filter::new(expression).ok()));
        self.filters = compiled.collect();
        self.known.clear();
        self.listed = None;
    }

    /// Lists the sockets of this host; new ones are matched with the filters, and those that are gone forgotten.
    fn list(&mut self) -> io::Result<()> {
        self.list = self.list.wrapping_add(1);
        for (family, id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            let all = InetRequest {
                family,
                protocol: IPPROTO_TCP,
                extensions: ExtensionFlags::CONG,
                // those with TCP_INFO that changes
                states: StateFlags::all()
                    - StateFlags::LISTEN
                    - StateFlags::CLOSE
                    - StateFlags::TIME_WAIT
                    - StateFlags::SYN_RECV,
                socket_id: id,
            };
            self.socket.send(&serialized(all, NLM_F_REQUEST | NLM_F_DUMP), 0)?;
            let list = self.list;
            let (mut known, mut filters) = (std::mem::take(&mut self.known), std::mem::take(&mut self.filters));
            let result = self.receive(usize::MAX, |header, attributes| {
                let id = header.socket_id;
                let known = known.entry(id.cookie).or_insert_with(|| Known::new(header.family, id, &mut filters));
                known.list = list;
                let name = attribute(attributes, INET_DIAG_CONG).unwrap_or_default();
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                known.congestion_control = String::from_utf8_lossy(name).into_owned();
            });
            (self.known, self.filters) = (known, filters);
            result?;
        }
        let list = self.list;
        self.known.retain(|_, known| known.list == list);
        Ok(())
    }

    /// Receives that many replies, or a list to its end. A socket that is gone has an error as its reply.
    fn receive(&mut self, count: usize, mut each: impl FnMut(InetResponseHeader, &[u8])) -> io::Result<()> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let is_list = count == usize::MAX;
        let mut left = count;
        while left > 0 {
            self.received.clear();
            match self.socket.recv(&mut self.received, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            let mut rest = self.received.as_slice();
            while !rest.is_empty() {
                let message = NetlinkBuffer::new_checked(&rest).map_err(invalid)?;
                let payload = message.payload();
                match message.message_type() {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR if is_list => {
                        let error = ErrorBuffer::new_checked(&payload).and_then(|error| ErrorMessage::parse(&error));
                        return Err(error.map_err(invalid)?.to_io());
                    }
                    SOCK_DIAG_BY_FAMILY => {
                        let header = InetResponseHeader::parse(payload).map_err(invalid)?;
                        let length = header.buffer_len();
                        each(header, payload.get(length..).unwrap_or_default());
                    }
                    _ => {}
                }
                let length = (message.length() as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
                left -= 1;
            }
        }
        Ok(())
    }
}

/// The value of the first attribute of that kind.
fn attribute(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let found = NlasIterator::new(attributes).map_while(Result::ok).find(|attribute| attribute.kind() == kind)?;
    let length = found.value_length();
    found.into_inner().get(NLA_HEADER_SIZE..NLA_HEADER_SIZE + length)
}

impl Known {
    fn new(family: u8, id: SocketId, filters: &mut [(String, Option<Filter>)]) -> Self {
        Self {
            local: SocketAddr::new(id.source_address.to_canonical(), id.source_port),
            remote: SocketAddr::new(id.destination_address.to_canonical(), id.destination_port),
            congestion_control: String::new(),
            request: if is_matched(&id, filters) { serialized(by_name(family, id), NLM_F_REQUEST) } else { Vec::new() },
            list: 0,
            last: None,
        }
    }

    /// A sample, if it differs from the last one that was kept, or that one is old.
    fn news(&mut self, time_ns: i64, state: u8, info: TcpInfo) -> Option<TcpSample> {
        let is_news = self.last.is_none_or(|(last, last_ns)| {
            info != last || i128::from(time_ns) - i128::from(last_ns) >= UNCHANGED_FOR.as_nanos() as i128
        });
        if !is_news {
            return None;
        }
        self.last = Some((info, time_ns));
        let (local, remote, congestion_control) = (self.local, self.remote, self.congestion_control.clone());
        Some(TcpSample { time_ns, local, remote, state, congestion_control, info })
    }
}

/// The bytes of a request.
fn serialized(request: InetRequest, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Requests TCP_INFO of the socket with that name and cookie.
fn by_name(family: u8, id: SocketId) -> InetRequest {
    InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO,
        states: StateFlags::all(),
        socket_id: id,
    }
}

/// Whether a filter matches a packet of this socket, in either direction.
fn is_matched(id: &SocketId, filters: &mut [(String, Option<Filter>)]) -> bool {
    let local = (id.source_address.to_canonical(), id.source_port);
    let remote = (id.destination_address.to_canonical(), id.destination_port);
    let frames = [frame(local, remote), frame(remote, local)];
    filters
        .iter_mut()
        .filter_map(|(_, filter)| filter.as_mut())
        .any(|filter| frames.iter().flatten().any(|frame| filter.matches(LinkType::ETHERNET, frame)))
}

/// An Ethernet frame with a TCP segment without payload between these ends.
fn frame(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Option<Vec<u8>> {
    let mut frame = vec![0; 12];
    match (source.0, destination.0) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        _ => return None,
    }
    frame.extend(source.1.to_be_bytes());
    frame.extend(destination.1.to_be_bytes());
    frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn both_sockets_of_a_connection_are_sampled_and_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let other = TcpListener::bind("[::1]:0").expect("a port");
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        let (server, _) = listener.accept().expect("accepted");
        let _other = TcpStream::connect(other.local_addr().expect("bound")).expect("connected");
        client.write_all(&[7; 5000]).expect("written");
        let expression = format!("tcp port {port}");
        let mut sampler = Sampler::new(Duration::from_millis(10)).expect("sock_diag");
        let mut samples = Vec::new();
        sampler.sample(std::iter::once(expression.as_str()), |sample| samples.push(sample.clone())).expect("samples");
        assert_eq!(samples.len(), 2, "{samples:?}");
        let of = |local| samples.iter().find(|sample| sample.local == local).expect("its sample").clone();
        let sent = of(client.local_addr().expect("bound"));
        assert_eq!(sent.remote, server.local_addr().expect("bound"));
        assert_eq!((sent.state, sent.info.bytes_sent), (1, Some(5000)));
        let received = of(server.local_addr().expect("bound"));
        assert_eq!((received.info.bytes_received, received.info.bytes_sent), (Some(5000), Some(0)));
        assert!(!received.congestion_control.is_empty() && received.info.cwnd_segments.is_some());
        assert!(now_ns().abs_diff(sent.time_ns) < 5_000_000_000);
        // its close is seen: it is asked for by name, and gone
        drop((client, server));
        sampler.listed = None;
        samples.clear();
        sampler.sample(std::iter::once("tcp port 1"), |sample| samples.push(sample.clone())).expect("samples");
        assert_eq!(samples, []);
    }

    #[test]
    fn the_filter_decides_by_addresses_and_ports_in_either_direction() {
        let id = |from: &str, to: &str| {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().expect("from"), to.parse().expect("to"));
            SocketId {
                source_port: from.port(),
                destination_port: to.port(),
                source_address: from.ip(),
                destination_address: to.ip(),
                interface_id: 0,
                cookie: [0; 8],
            }
        };
        let passes = |expression: &str, id: &SocketId| {
            is_matched(id, &mut [(expression.to_owned(), Filter::new(expression).ok())])
        };
        let iscsi = crate::portals::filter(LinkType::ETHERNET, &[]);
        assert!(passes(&iscsi, &id("10.0.0.1:40000", "10.0.0.2:3260")));
        assert!(passes(&iscsi, &id("10.0.0.2:3260", "10.0.0.1:40000")));
        assert!(passes(&iscsi, &id("[fe80::1]:3260", "[fe80::2]:40000")));
        assert!(passes("src host 10.0.0.1", &id("[::ffff:10.0.0.2]:1", "[::ffff:10.0.0.1]:2")));
        assert!(!passes(&iscsi, &id("10.0.0.1:40000", "10.0.0.2:22")));
        assert!(!passes("not a filter", &id("10.0.0.1:40000", "10.0.0.2:3260")));
        assert!(passes("", &id("10.0.0.1:40000", "10.0.0.2:22")));
    }
}
