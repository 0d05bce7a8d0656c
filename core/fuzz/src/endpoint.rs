//! Segments of any kind, time, writes, reads and closes for one TCP endpoint: it respects the windows, and each
//! direction delivers what was written into it.

use bytes::Bytes;
use iscsitrace_lab::tcp::segment::{ACK, FIN, PSH, RST, SYN, options_length};
use iscsitrace_lab::tcp::{CongestionControl, Endpoint, Role, Segment, Settings, State};
use iscsitrace_wire::frame::{TcpFlags, TcpOptions};

const MS: i64 = 1_000_000;
/// Sequence number of the peer's SYN: numbers wrap soon.
const PEER_ISS: u32 = u32::MAX - 3000;
const SEND_BUFFER_BYTES: u32 = 64 << 10;
const RECEIVE_BUFFER_BYTES: u32 = 96 << 10;
/// Maximum segments that one event may cause: a send buffer of the smallest of them, with all options.
const SEGMENTS_AT_ONCE: usize = SEND_BUFFER_BYTES as usize / 40;

/// The byte at a position of either direction; the SYN is at 0.
fn byte(place: i64, salt: u8) -> u8 {
    (place.wrapping_mul(0x9e37_79b9) >> 7) as u8 ^ salt
}

/// Bytes of one step, zeros when there are no more.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    fn i16(&mut self) -> i64 {
        i64::from(self.u16() as i16)
    }
}

/// The endpoint, and the state of its peer.
struct Peer {
    end: Endpoint,
    now_ns: i64,
    /// Sequence number of its SYN, once seen.
    iss: Option<u32>,
    /// The position after everything it sent, and everything it was given to send.
    sent: i64,
    written: i64,
    /// Its window scale; none before both offered it.
    scale: u8,
    offers_scale: bool,
    /// What it acknowledged, and the right edge of its window.
    acknowledged: i64,
    edge: i64,
    /// The right edge of the largest window offered to it, and the end of everything sent to it.
    offered: i64,
    given: i64,
    read: i64,
    timestamp: u32,
}

impl Peer {
    /// Sends it a segment; `place` and `acknowledged` are positions.
    fn send(&mut self, flags: u8, place: i64, acknowledged: i64, window: u16, options: TcpOptions, payload: usize) {
        let payload: Vec<u8> = (place..).take(payload).map(|place| byte(place, 1)).collect();
        self.given = self.given.max(place + payload.len() as i64 + 1);
        let scale = if self.offers_scale { 14 } else { 0 };
        self.offered = self.offered.max(acknowledged + (i64::from(window) << scale));
        let (local, remote) = self.end.addresses();
        self.end.receive(
            self.now_ns,
            Segment {
                source: remote,
                destination: local,
                sequence_number: PEER_ISS.wrapping_add(place as u32),
                acknowledgment_number: self.iss.unwrap_or(0).wrapping_add(acknowledged as u32),
                flags: TcpFlags(flags),
                window,
                options,
                identification: 0,
                payload: Bytes::from(payload),
            },
        );
        self.take();
    }

    /// Receives its segments, and checks that they are allowed.
    fn take(&mut self) {
        let mut count = 0;
        while let Some(segment) = self.end.poll_transmit(self.now_ns) {
            count += 1;
            assert!(count <= SEGMENTS_AT_ONCE, "it floods");
            assert!(options_length(&segment.options) <= 40, "{segment}");
            if segment.flags.is_rst() {
                continue;
            }
            if segment.flags.is_syn() {
                self.iss.get_or_insert(segment.sequence_number);
                self.scale = segment.options.window_scale.filter(|_| self.offers_scale).unwrap_or(0);
                assert!(self.scale <= 14);
            }
            self.timestamp = segment.options.timestamps.map_or(self.timestamp, |(value, _)| value);
            let Some(iss) = self.iss else { panic!("{segment} before its SYN") };
            let distance = segment.sequence_number.wrapping_sub(iss.wrapping_add(self.sent as u32)) as i32;
            let start = self.sent + i64::from(distance);
            let end = start + i64::from(segment.sequence_length());
            assert!(start >= 0 && start <= self.sent, "{segment} leaves a gap");
            assert!(end <= self.written + 2, "{segment} is more than was written");
            for (place, &found) in (start..).zip(&*segment.payload) {
                assert_eq!(found, byte(place, 0), "{segment} at {place}");
            }
            let payload_end = start + segment.payload.len() as i64;
            assert!(
                segment.payload.is_empty() || payload_end <= self.offered,
                "{segment} exceeds every window offered"
            );
            self.sent = self.sent.max(end);
            if segment.flags.is_ack() {
                let number = segment.acknowledgment_number.wrapping_sub(PEER_ISS);
                let place = self.acknowledged + i64::from(number.wrapping_sub(self.acknowledged as u32) as i32);
                assert!(place >= self.acknowledged && place <= self.given, "{segment} acknowledges {place}");
                self.acknowledged = place;
                let scale = if segment.flags.is_syn() { 0 } else { self.scale };
                let edge = place + (i64::from(segment.window) << scale);
                assert!(edge >= self.edge, "{segment} takes window back");
                assert!(
                    edge <= place + i64::from(RECEIVE_BUFFER_BYTES) + (1 << self.scale),
                    "{segment} is too generous"
                );
                self.edge = edge;
                for &(left, right) in segment.options.sack.iter().take(usize::from(segment.options.sack_count)) {
                    assert!((right.wrapping_sub(left) as i32) > 0, "{segment} has an empty block");
                }
            }
        }
    }

    /// Lets time pass, timer by timer.
    fn wait(&mut self, duration_ns: i64) {
        let until_ns = self.now_ns + duration_ns;
        for round in 0.. {
            assert!(round < 1000, "time does not pass");
            let Some(at_ns) = self.end.poll_timeout().filter(|&at_ns| at_ns <= until_ns) else { break };
            self.now_ns = self.now_ns.max(at_ns);
            self.end.handle_timeout(self.now_ns);
            self.take();
        }
        self.now_ns = until_ns;
    }

    fn write(&mut self, count: usize) {
        let bytes: Vec<u8> = (self.written + 1..).take(count).map(|place| byte(place, 0)).collect();
        let room = self.end.write_room();
        let taken = self.end.write(self.now_ns, &bytes);
        assert!(taken <= room.min(count));
        self.written += taken as i64;
        self.take();
    }

    fn read(&mut self, most: usize) {
        let mut left = most;
        while left > 0 && !self.end.readable().is_empty() {
            let readable = self.end.readable();
            let count = readable.len().min(left);
            for (place, &found) in (self.read + 1..).zip(&readable[..count]) {
                assert_eq!(found, byte(place, 1), "what was read at {place}");
            }
            self.read += count as i64;
            left -= count;
            self.end.consume(self.now_ns, count);
            self.take();
        }
    }

    fn check(&self) {
        let info = self.end.tcp_info();
        assert!(info.cwnd >= 1 && info.ssthresh >= 2, "{info:?}");
        assert!(info.sacked + info.lost <= info.unacked && info.retransmitted <= info.unacked, "{info:?}");
        assert_eq!(info.pipe, info.unacked + info.retransmitted - info.sacked - info.lost);
        assert!(info.bytes_received <= self.given && info.bytes_acked <= self.written, "{info:?}");
        // buffered bytes are in the offered window, and in the send buffer
        assert!(info.bytes_received - self.read <= i64::from(RECEIVE_BUFFER_BYTES) + (1 << self.scale), "{info:?}");
        assert!(self.written - info.bytes_acked <= i64::from(SEND_BUFFER_BYTES), "{info:?}");
        assert!(self.end.write_room() <= SEND_BUFFER_BYTES as usize);
        assert!(self.end.poll_timeout().is_none() || self.end.state() != State::Closed);
    }
}

// | settings 2 | then steps: | what 1 | length 2 | bytes ... |
pub fn run(data: &[u8]) {
    let Some((&[chosen, offered], mut rest)) = data.split_first_chunk::<2>() else { return };
    let is = |bit: u8| chosen & bit != 0;
    let settings = Settings {
        congestion_control: if is(1) { CongestionControl::Reno } else { CongestionControl::Cubic },
        sack: !is(2),
        timestamps: !is(4),
        window_scaling: !is(8),
        nagle: is(16),
        delayed_ack: !is(32),
        mss: if is(64) { 88 } else { 1460 },
        send_buffer_bytes: SEND_BUFFER_BYTES,
        receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
        ..Settings::default()
    };
    let role = if is(128) { Role::Active } else { Role::Passive };
    let (local, remote) = (([192, 0, 2, 1], 3260).into(), ([192, 0, 2, 2], 40000).into());
    let mut peer = Peer {
        end: Endpoint::new(settings, role, local, remote, u64::from(offered)),
        now_ns: 1_700_000_000_000 * MS,
        iss: None,
        sent: 0,
        written: 0,
        scale: 0,
        offers_scale: offered & 1 != 0,
        acknowledged: 0,
        edge: 0,
        offered: 0,
        given: 0,
        read: 0,
        timestamp: 0,
    };
    let options = TcpOptions {
        maximum_segment_size: (offered & 8 == 0).then_some(1460),
        window_scale: peer.offers_scale.then_some(14),
        is_sack_permitted: offered & 2 != 0,
        timestamps: (offered & 4 != 0).then_some((7, 0)),
        ..TcpOptions::default()
    };
    let has_timestamps = options.timestamps.is_some();
    if role == Role::Active {
        peer.end.connect(peer.now_ns);
        peer.take();
    }
    // the handshake, unless the steps make it
    if offered & 128 == 0 {
        let echo = |peer: &Peer| TcpOptions {
            timestamps: has_timestamps.then_some((8, peer.timestamp)),
            ..TcpOptions::default()
        };
        if role == Role::Active {
            peer.send(SYN | ACK, 0, 1, 60_000, TcpOptions { timestamps: echo(&peer).timestamps, ..options }, 0);
        } else {
            peer.send(SYN, 0, 0, 60_000, options, 0);
            peer.send(ACK, 1, 1, 60, echo(&peer), 0);
        }
        assert_eq!(peer.end.state(), State::Established);
    }
    while let Some((&[what, high, low], bytes)) = rest.split_first_chunk::<3>() {
        let length = u16::from_be_bytes([high, low]);
        match what % 16 {
            // a valid segment except for offsets
            0..=5 => {
                let (bytes, after) = bytes.split_at(usize::from(length).min(bytes.len()));
                rest = after;
                let mut fields = Fields(bytes);
                let flags = fields.u8();
                let flags =
                    if what % 16 < 4 { ACK | (flags & (PSH | FIN)) } else { flags & (FIN | SYN | RST | PSH | ACK) };
                let is_opening = flags & SYN != 0 && matches!(peer.end.state(), State::Listen | State::SynSent);
                let place = if is_opening { 0 } else { peer.acknowledged + fields.i16() };
                let acknowledged = peer.sent - fields.i16();
                let window = fields.u16();
                let chosen = fields.u8();
                let mut options = if is_opening { options } else { TcpOptions::default() };
                let ahead = fields.u8() as i8;
                options.timestamps = (chosen & 1 == 0 && has_timestamps)
                    .then(|| ((peer.now_ns / MS) as u32).wrapping_add_signed(ahead.into()))
                    .map(|value| (value, peer.timestamp.wrapping_sub(u32::from(chosen >> 4))));
                options.sack_count = (chosen >> 1) & 3;
                for block in &mut options.sack[..usize::from((chosen >> 1) & 3)] {
                    let left = peer.iss.unwrap_or(0).wrapping_add((acknowledged + fields.i16()) as u32);
                    *block = (left, left.wrapping_add(u32::from(fields.u16())));
                }
                let payload = usize::from(fields.u16() % 3000);
                if place > -3000 {
                    peer.send(flags, place, acknowledged, window, options, payload);
                }
            }
            other => {
                rest = bytes;
                match other {
                    6 | 7 => peer.write(usize::from(length)),
                    8 => peer.read(usize::from(length)),
                    9 => peer.wait(i64::from(length) * MS / 16),
                    10 => peer.wait(i64::from(length) * 16 * MS),
                    // everything it sent arrived
                    11 | 12 => {
                        let timestamps = has_timestamps.then_some(((peer.now_ns / MS) as u32, peer.timestamp));
                        let options = TcpOptions { timestamps, ..TcpOptions::default() };
                        peer.send(ACK, peer.acknowledged, peer.sent, length, options, 0);
                    }
                    13 => {
                        peer.end.close(peer.now_ns);
                        peer.take();
                    }
                    14 if length == 0xdead => {
                        peer.end.abort(peer.now_ns);
                        peer.take();
                    }
                    _ => {}
                }
            }
        }
        peer.check();
    }
}
