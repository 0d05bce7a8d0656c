//! The rows of a connection whose client is the target, packet by packet.

use iscsitrace_wire::frame::{Address, LinkType, TcpFlags};

use super::*;
use crate::content::IscsiContent;
use crate::iscsi::connection::IscsiConnection;
use crate::iscsi::digest_use::DigestUse;
use crate::iscsi::framer::Framer;
use crate::iscsi::session::SessionEnd;

const MS: i64 = 1_000_000;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const FIN: u8 = 0x01;
const ACK: u8 = 0x10;
/// MSS 1460, SACK permitted, window scale 7.
const CLIENT_OPTIONS: &[u8] = &[2, 4, 0x05, 0xb4, 4, 2, 1, 3, 3, 7, 0, 0];
/// MSS 9000, window scale 2.
const SERVER_OPTIONS: &[u8] = &[2, 4, 0x23, 0x28, 3, 3, 2, 0];

struct Talk {
    connection: TcpConnection,
    context: Context,
    budget: HoldBudget,
    frame: u64,
}

fn ends() -> [Endpoint; 2] {
    [([10, 0, 0, 1], 50_000), ([10, 0, 0, 2], 3260)]
        .map(|(address, port)| Endpoint { address: Address::v4(address), port })
}

impl Talk {
    /// A connection before its SYN; it is iSCSI, and the TCP client is the target.
    fn new() -> Self {
        let mut context = Context::default();
        context.tables.wanted.segments = true;
        let first =
            Packet { frame: 1, time_ns: 0, link_type: LinkType::RAW, interface: 0, original_length: 0, data: &[] };
        let mut connection = TcpConnection::new(4, ends(), &first, context.tables.wanted);
        let mut iscsi = IscsiConnection::new(4);
        iscsi.session = Some(context.sessions.open_unknown(4));
        connection.content = Content::Iscsi(Box::new(IscsiContent {
            connection: iscsi,
            framers: [Framer::new(0, true), Framer::new(0, true)],
            is_client_initiator: false,
            has_start: true,
        }));
        Self { connection, context, budget: HoldBudget::default(), frame: 0 }
    }

    /// SYN of the client at 0 ms, SYN-ACK at 30 ms, ACK at 35 ms; both streams start after their SYN.
    fn begin() -> Self {
        let mut talk = Self::new();
        talk.see(0, 0, SYN, (99, 0), CLIENT_OPTIONS, 0);
        talk.see(30 * MS, 1, SYN | ACK, (199, 100), SERVER_OPTIONS, 0);
        talk.see(35 * MS, 0, ACK, (100, 200), &[], 0);
        talk
    }

    fn see(&mut self, time_ns: i64, direction: usize, flags: u8, numbers: (u32, u32), options: &[u8], length: u32) {
        self.frame += 1;
        let payload = vec![0xff; length as usize];
        let [source, destination] = if direction == 0 { ends() } else { [ends()[1], ends()[0]] };
        let segment = Segment {
            source: source.address,
            destination: destination.address,
            source_port: source.port,
            destination_port: destination.port,
            sequence_number: numbers.0,
            acknowledgment_number: numbers.1,
            flags: TcpFlags(flags),
            window: 100,
            options,
            payload: &payload,
            payload_length: length,
            identification: Some(self.frame as u16),
            is_ip_length_zero: false,
        };
        let packet = Packet {
            frame: self.frame,
            time_ns,
            link_type: LinkType::RAW,
            interface: 0,
            original_length: 40 + length,
            data: &[],
        };
        self.connection.take(direction, &packet, &segment, &mut self.context, &mut self.budget);
    }

    fn iscsi(&mut self) -> &mut IscsiContent {
        self.connection.content.iscsi().expect("it is iSCSI")
    }
}

#[test]
fn columns_follow_the_iscsi_roles() {
    let talk = Talk::begin();
    let row = talk.connection.row();
    assert_eq!((row.initiator_port, row.target_port), (3260, 50_000));
    assert_eq!((row.initiator_address.as_str(), row.target_address.as_str()), ("10.0.0.2", "10.0.0.1"));
    // the client is the target: 5 ms away from the tap; the server 30 ms
    assert_eq!((row.handshake_rtt_to_target_ns, row.handshake_rtt_to_initiator_ns), (5 * MS, 30 * MS));
    assert_eq!((row.rtt_to_target_min_ns, row.rtt_to_initiator_min_ns), (5 * MS, 30 * MS));
    // what the initiator announced counts for the direction to the target
    assert_eq!((row.mss_bytes_to_target, row.mss_bytes_to_initiator), (9000, 1460));
    assert_eq!((row.window_scale_to_target, row.window_scale_to_initiator), (2, 7));
    assert_eq!((row.packets_to_target, row.packets_to_initiator), (1, 2));
    assert!(!row.is_sack_permitted, "only one side permitted it");
    assert_eq!((row.frame_first, row.frame_last), (1, 3));
    assert_eq!((row.time_first_ns, row.time_last_ns), (0, 35 * MS));
}

#[test]
fn segments_have_offsets_windows_and_directions() {
    let mut talk = Talk::begin();
    talk.see(40 * MS, 0, ACK, (100, 200), &[], 10);
    talk.see(70 * MS, 1, ACK, (200, 110), &[], 0);
    let segments = &talk.context.tables.segments;
    // the window of a SYN is not scaled
    assert_eq!(segments.window_bytes, [100, 100, 100 << 7, 100 << 7, 100 << 2]);
    assert_eq!(segments.stream_offset_bytes[2..], [0, 0, 0]);
    assert_eq!(segments.ack_offset_bytes, [NULL_NS, 0, 0, 0, 10]);
    assert_eq!(segments.to_target, [false, true, false, false, true]);
    assert_eq!(segments.payload_bytes, [0, 0, 0, 10, 0]);
    assert_eq!(segments.flags[..3], [SYN, SYN | ACK, ACK]);
}

#[test]
fn digests_are_known_inferred_or_unknown() {
    let unknown = [DigestUse::Unknown; 2];
    for (uses, digest, source) in [
        (unknown, 2, 2),
        ([DigestUse::Known(false); 2], 0, 0),
        ([DigestUse::Known(true); 2], 1, 0),
        ([DigestUse::Inferred(true); 2], 1, 1),
        ([DigestUse::Inferred(false); 2], 0, 1),
        // one direction is enough: both have the same
        ([DigestUse::Inferred(true), DigestUse::Unknown], 1, 2),
    ] {
        let mut talk = Talk::begin();
        for (framer, digest_use) in talk.iscsi().framers.iter_mut().zip(uses) {
            (framer.header_digest, framer.data_digest) = (digest_use, digest_use);
        }
        let row = talk.connection.row();
        assert_eq!((row.header_digest, row.data_digest, row.digest_source), (digest, digest, source), "{uses:?}");
    }
}

#[test]
fn stream_bytes_outside_every_pdu_are_unexplained() {
    let mut talk = Talk::begin();
    // 20 bytes are missing from the capture, and 10 that are no PDU follow
    talk.see(40 * MS, 0, ACK, (120, 200), &[], 10);
    let row = talk.connection.finish(&mut talk.context, &mut talk.budget);
    assert_eq!((row.stream_bytes_to_initiator, row.captured_bytes_to_initiator), (30, 10));
    assert_eq!(talk.context.counters.total(Counter::UnexplainedBytes), 30);
}

#[test]
fn a_reset_ends_a_session_as_a_reset_even_after_a_fin() {
    for (flags, end) in [(&[FIN][..], SessionEnd::Closed), (&[FIN, RST][..], SessionEnd::Reset)] {
        let mut talk = Talk::begin();
        for &flag in flags {
            talk.see(50 * MS, 0, flag | ACK, (100, 200), &[], 0);
        }
        talk.connection.finish(&mut talk.context, &mut talk.budget);
        assert_eq!(talk.context.sessions.rows.end, [end as u8]);
    }
}
