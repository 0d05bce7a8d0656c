//! The rows of a connection whose client is the target, packet by packet.

use iscsitrace_wire::frame::{Address, LinkType, TcpFlags};
use iscsitrace_wire::opcode::Opcode;

use super::*;
use crate::connection::content::IscsiContent;
use crate::iscsi::connection::IscsiConnection;
use crate::iscsi::digest_use::DigestUse;
use crate::iscsi::framer::Framer;
use crate::iscsi::session::SessionEnd;
use crate::stream::stamp::Stamp;
use crate::tables::{Connection, NULL_U64};
use crate::tables::{NULL_U8, NULL_U16};

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
    /// IP identification of the next packet, instead of its frame number.
    identification: Option<Option<u16>>,
    /// Captured payload of a packet at most.
    captured_max: usize,
    hop_limit: u8,
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
        Self {
            connection,
            context,
            budget: HoldBudget::default(),
            frame: 0,
            identification: None,
            captured_max: usize::MAX,
            hop_limit: 64,
        }
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
        let payload = vec![0xff; self.captured_max.min(length as usize)];
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
            identification: self.identification.take().unwrap_or(Some(self.frame as u16)),
            // the client's packets may be fragmented
            is_dont_fragment: direction == 1,
            is_ip_length_zero: false,
            hop_limit: self.hop_limit,
            traffic_class: 0,
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

    /// Classes of the packets so far.
    fn classes(&self) -> &[u8] {
        &self.context.tables.segments.segment_class
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
    // from the client; the pass turns them at its end, because the client is the target
    assert_eq!(segments.to_target, [true, false, true, true, false]);
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
    // a cut login showed one of the two
    let mut talk = Talk::begin();
    for framer in &mut talk.iscsi().framers {
        (framer.header_digest, framer.data_digest) = (DigestUse::Known(false), DigestUse::Inferred(true));
    }
    let row = talk.connection.row();
    assert_eq!((row.header_digest, row.data_digest, row.digest_source), (0, 1, 1));
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

/// Both directions, with a hole of either kind, a packet out of order, a captured copy and a cut payload.
fn eventful() -> Talk {
    let mut talk = Talk::begin();
    talk.see(40 * MS, 1, ACK, (200, 100), &[], 100);
    talk.see(44 * MS, 0, ACK, (100, 300), &[], 0);
    // bytes 200 to 300 come late, with a later identification, and 100 to 200 come twice
    talk.see(50 * MS, 1, ACK, (300, 100), &[], 100);
    talk.see(51 * MS, 1, ACK, (500, 100), &[], 50);
    talk.see(52 * MS, 1, ACK, (400, 100), &[], 100);
    talk.see(53 * MS, 1, ACK, (300, 100), &[], 100);
    // 20 bytes before these are missing from the capture
    talk.see(60 * MS, 0, ACK, (120, 550), &[], 10);
    talk.captured_max = 25;
    talk.see(61 * MS, 0, ACK, (130, 550), &[], 40);
    talk.captured_max = usize::MAX;
    talk.see(95 * MS, 1, ACK, (550, 170), &[], 0);
    talk.see(96 * MS, 0, ACK, (170, 550), &[], 10);
    // 20 bytes come after the next 10, but were sent before them; and are captured twice
    talk.see(97 * MS, 0, ACK, (200, 550), &[], 10);
    for _ in 0..2 {
        talk.identification = Some(Some(13));
        talk.see(98 * MS, 0, ACK, (180, 550), &[], 20);
    }
    talk.see(125 * MS, 1, ACK, (550, 210), &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], 0);
    talk.see(131 * MS, 1, FIN | ACK, (550, 210), &[], 0);
    talk.see(132 * MS, 0, RST, (210, 0), &[], 0);
    talk.see(133 * MS, 1, ACK, (551, 210), &[], 0);
    talk.connection.read_waiting(&mut talk.context, &mut talk.budget);
    talk
}

#[test]
fn a_connection_has_its_packets_bytes_and_holes_by_direction() {
    let mut talk = eventful();
    let iscsi = talk.iscsi();
    iscsi.connection.login.cid = Some(9);
    (iscsi.connection.pdu_count, iscsi.connection.missing.count) = ([3, 4], [5, 6]);
    iscsi.connection.last_pdus.note(Opcode::ScsiCommand, Stamp { time_ns: 50 * MS, frame: 6 });
    for (framer, explained_bytes) in iscsi.framers.iter_mut().zip([11, 22]) {
        (framer.explained_bytes, framer.digest_errors) = (explained_bytes, explained_bytes + 1);
        (framer.header_digest, framer.data_digest) = (DigestUse::Known(true), DigestUse::Known(false));
    }
    let expected = Connection {
        connection: 4,
        session: 0,
        cid: 9,
        is_iscsi: true,
        initiator_address: "10.0.0.2".to_owned(),
        initiator_port: 3260,
        target_address: "10.0.0.1".to_owned(),
        target_port: 50_000,
        roles_from: 0,
        frame_first: 1,
        frame_last: 20,
        time_first_ns: 0,
        time_last_ns: 133 * MS,
        has_syn: true,
        has_fin: true,
        has_rst: true,
        syn_ns: 0,
        syn_frame: 1,
        syn_ack_ns: 30 * MS,
        is_refused: false,
        is_sack_permitted: false,
        has_timestamps: true,
        handshake_rtt_to_target_ns: 5 * MS,
        handshake_rtt_to_initiator_ns: 30 * MS,
        // 40 to 44 ms, and 96 to 125 ms: later bytes were not sent in order
        rtt_to_target_min_ns: 4 * MS,
        rtt_to_initiator_min_ns: 29 * MS,
        header_digest: 1,
        data_digest: 0,
        digest_source: 0,
        fin_to_target_ns: 131 * MS,
        fin_to_target_frame: 18,
        rst_to_target_ns: NULL_NS,
        rst_to_target_frame: NULL_U64,
        rst_hop_limit_to_target: NULL_U16,
        hop_limit_to_target: 64,
        time_last_to_target_ns: 133 * MS,
        // the packet at 53 ms repeats bytes
        data_last_to_target_ns: 52 * MS,
        is_dont_fragment_to_target: true,
        packets_to_target: 10,
        stream_bytes_to_target: 350,
        captured_bytes_to_target: 350,
        gap_bytes_to_target: 0,
        cut_bytes_to_target: 0,
        explained_bytes_to_target: 11,
        pdu_count_to_target: 3,
        last_pdu_opcode_to_target: 0x01,
        last_pdu_to_target_ns: 50 * MS,
        last_pdu_to_target_frame: 6,
        is_last_pdu_new_to_target: true,
        missing_pdu_count_to_target: 5,
        digest_errors_to_target: 12,
        retransmitted_packets_to_target: 2,
        retransmitted_bytes_to_target: 200,
        retransmitted_syns_to_target: 0,
        retransmitted_fins_to_target: 0,
        reordered_packets_to_target: 0,
        reordered_late_to_target_max_ns: NULL_NS,
        copied_packets_to_target: 0,
        mss_bytes_to_target: 9000,
        window_scale_to_target: 2,
        fin_to_initiator_ns: NULL_NS,
        fin_to_initiator_frame: NULL_U64,
        rst_to_initiator_ns: 132 * MS,
        rst_to_initiator_frame: 19,
        rst_hop_limit_to_initiator: 64,
        hop_limit_to_initiator: 64,
        time_last_to_initiator_ns: 132 * MS,
        data_last_to_initiator_ns: 98 * MS,
        is_dont_fragment_to_initiator: false,
        packets_to_initiator: 9,
        stream_bytes_to_initiator: 110,
        captured_bytes_to_initiator: 90,
        gap_bytes_to_initiator: 20,
        cut_bytes_to_initiator: 15,
        explained_bytes_to_initiator: 22,
        pdu_count_to_initiator: 4,
        last_pdu_opcode_to_initiator: NULL_U8,
        last_pdu_to_initiator_ns: NULL_NS,
        last_pdu_to_initiator_frame: NULL_U64,
        is_last_pdu_new_to_initiator: false,
        missing_pdu_count_to_initiator: 6,
        digest_errors_to_initiator: 23,
        retransmitted_packets_to_initiator: 0,
        retransmitted_bytes_to_initiator: 0,
        retransmitted_syns_to_initiator: 0,
        retransmitted_fins_to_initiator: 0,
        reordered_packets_to_initiator: 1,
        reordered_late_to_initiator_max_ns: MS,
        copied_packets_to_initiator: 1,
        mss_bytes_to_initiator: 1460,
        window_scale_to_initiator: 7,
    };
    assert_eq!(format!("{:#?}", talk.connection.row()), format!("{expected:#?}"));
    let counters = &talk.context.counters;
    assert_eq!([Counter::CapturedCopy, Counter::SnaplenCutBytes].map(|counter| counters.total(counter)), [1, 15]);
}

#[test]
fn copies_behind_a_router_are_told_from_others() {
    let copies = |hop_limits: [u8; 2]| {
        let mut talk = Talk::begin();
        for (number, hop_limit) in
            [(100, hop_limits[0]), (100, hop_limits[1]), (150, hop_limits[0]), (150, hop_limits[1])]
        {
            talk.hop_limit = hop_limit;
            talk.identification = Some(Some(number));
            talk.see(40 * MS, 0, ACK, (u32::from(number), 200), &[], 50);
        }
        let counters = &talk.context.counters;
        [Counter::RoutedCopy, Counter::CapturedCopy].map(|counter| counters.total(counter))
    };
    assert_eq!(copies([64, 63]), [2, 0]);
    assert_eq!(copies([64, 64]), [0, 2]);
}

#[test]
fn retransmitted_syns_and_fins_are_counted() {
    let mut talk = Talk::new();
    // the SYN is answered twice; the first FIN has data, and comes again with and without it
    for (time_ns, direction, flags, numbers, options, length) in [
        (0, 0, SYN, (99, 0), CLIENT_OPTIONS, 0),
        (1000 * MS, 0, SYN, (99, 0), CLIENT_OPTIONS, 0),
        (1030 * MS, 1, SYN | ACK, (199, 100), SERVER_OPTIONS, 0),
        (1031 * MS, 1, SYN | ACK, (199, 100), SERVER_OPTIONS, 0),
        (1035 * MS, 0, FIN | ACK, (100, 200), &[], 10),
        (1400 * MS, 0, FIN | ACK, (100, 200), &[], 10),
        (1800 * MS, 0, FIN | ACK, (110, 200), &[], 0),
    ] {
        talk.see(time_ns, direction, flags, numbers, options, length);
    }
    let row = talk.connection.row();
    // the client is the target
    assert_eq!((row.retransmitted_syns_to_initiator, row.retransmitted_syns_to_target), (1, 1));
    assert_eq!((row.retransmitted_fins_to_initiator, row.retransmitted_fins_to_target), (1, 0));
    assert_eq!(row.retransmitted_packets_to_initiator, 1);
}

#[test]
fn each_packet_is_a_row_with_its_offsets_and_class() {
    use SegmentClass::{Copy, Empty, New, Reordered, Retransmission};
    let talk = eventful();
    let segments = &talk.context.tables.segments;
    assert_eq!(segments.connection, [4; 20]);
    assert_eq!(segments.frame, (1..=20).collect::<Vec<_>>());
    let times_ms = [0, 30, 35, 40, 44, 50, 51, 52, 53, 60, 61, 95, 96, 97, 98, 98, 125, 131, 132, 133];
    assert_eq!(segments.time_ns, times_ms.map(|ms| ms * MS));
    let offsets = [0, 0, 0, 0, 0, 100, 300, 200, 100, 20, 30, 350, 70, 100, 80, 80, 350, 350, 110, 351];
    assert_eq!(segments.stream_offset_bytes, offsets);
    let payloads = [0, 0, 0, 100, 0, 100, 50, 100, 100, 10, 40, 0, 10, 10, 20, 20, 0, 0, 0, 0];
    assert_eq!(segments.payload_bytes, payloads);
    let acknowledged = [NULL_NS, 0, 0, 0, 100, 0, 0, 0, 0, 350, 350, 70, 350, 350, 350, 350, 110, 110, NULL_NS, 110];
    assert_eq!(segments.ack_offset_bytes, acknowledged);
    assert_eq!(segments.flags[17..], [FIN | ACK, RST, ACK]);
    let payload = [New, Empty, New, New, Retransmission, Retransmission, New, New, Empty, New, New, Reordered, Copy];
    assert_eq!(segments.segment_class[3..16], payload.map(|class| class as u8));
    assert_eq!(segments.segment_class[..3], [Empty as u8; 3]);
    assert_eq!(segments.segment_class[16..], [Empty as u8; 4]);
}

#[test]
fn without_identifications_a_hole_filled_within_the_rtt_is_reordering() {
    // 30 ms to the server and 5 ms to the client
    for (fill_ns, class) in [(135 * MS - 1, SegmentClass::Reordered), (135 * MS, SegmentClass::Retransmission)] {
        let mut talk = Talk::begin();
        talk.identification = Some(None);
        talk.see(100 * MS, 0, ACK, (110, 200), &[], 10);
        talk.identification = Some(None);
        talk.see(fill_ns, 0, ACK, (100, 200), &[], 10);
        assert_eq!(talk.classes()[3..], [SegmentClass::New as u8, class as u8]);
    }
    // with one RTT unknown: 3 ms
    let mut talk = Talk::new();
    talk.see(0, 0, SYN, (99, 0), CLIENT_OPTIONS, 0);
    talk.see(30 * MS, 1, SYN | ACK, (199, 100), SERVER_OPTIONS, 0);
    talk.identification = Some(None);
    talk.see(100 * MS, 1, ACK, (210, 100), &[], 10);
    talk.identification = Some(None);
    talk.see(103 * MS, 1, ACK, (200, 100), &[], 10);
    assert_eq!(talk.classes()[2..], [SegmentClass::New as u8, SegmentClass::Retransmission as u8]);
}

#[test]
fn a_keep_alive_repeats_one_acknowledged_byte() {
    let mut talk = Talk::begin();
    // without bytes before it, one byte is new
    talk.see(40 * MS, 0, ACK, (100, 200), &[], 1);
    // not acknowledged yet: a retransmission
    talk.see(50 * MS, 0, ACK, (100, 200), &[], 1);
    talk.see(60 * MS, 1, ACK, (200, 101), &[], 0);
    talk.see(70 * MS, 0, ACK, (100, 200), &[], 1);
    let classes = [SegmentClass::New, SegmentClass::Retransmission, SegmentClass::Empty, SegmentClass::Probe];
    assert_eq!(talk.classes()[3..], classes.map(|class| class as u8));
    let row = talk.connection.row();
    assert_eq!((row.retransmitted_packets_to_initiator, row.captured_bytes_to_initiator), (1, 1));
}

#[test]
fn after_eight_packets_elsewhere_the_stream_is_there() {
    const FAR: u32 = (1 << 30) + 1000;
    let mut talk = Talk::begin();
    talk.see(40 * MS, 0, ACK, (100, 200), &[], 10);
    for packet in 0..8 {
        talk.see((41 + i64::from(packet)) * MS, 0, ACK, (FAR + 10 * packet, 200), &[], 10);
    }
    talk.see(50 * MS, 0, ACK, (FAR + 70, 200), &[], 10);
    let classes: Vec<_> = talk.classes()[4..].to_vec();
    assert_eq!(classes[..8], [SegmentClass::Outside as u8; 8]);
    // the last of the eight is where the stream continues, after its 10 bytes
    assert_eq!(classes[8], SegmentClass::New as u8);
    assert_eq!(talk.context.tables.segments.stream_offset_bytes.last(), Some(&10));
    assert_eq!(talk.connection.row().captured_bytes_to_initiator, 20);
    assert_eq!(talk.context.counters.total(Counter::SegmentOutsideWindow), 8);
}

#[test]
fn one_packet_of_the_stream_ends_a_row_of_packets_elsewhere() {
    const FAR: u32 = (1 << 30) + 1000;
    let mut talk = Talk::begin();
    for packet in 0..14 {
        let sequence_number = if packet == 7 { 100 } else { FAR };
        talk.see((41 + packet) * MS, 0, ACK, (sequence_number, 200), &[], 10);
    }
    assert_eq!(talk.classes()[3..].iter().filter(|&&class| class == SegmentClass::Outside as u8).count(), 13);
}

#[test]
fn a_retransmitted_syn_shows_no_handshake_rtt() {
    let mut talk = Talk::new();
    talk.see(0, 0, SYN, (99, 0), CLIENT_OPTIONS, 0);
    talk.see(1000 * MS, 0, SYN, (99, 0), CLIENT_OPTIONS, 0);
    talk.see(1030 * MS, 1, SYN | ACK, (199, 100), CLIENT_OPTIONS, 0);
    talk.see(1035 * MS, 0, ACK, (100, 200), &[], 0);
    let row = talk.connection.row();
    assert_eq!((row.handshake_rtt_to_target_ns, row.handshake_rtt_to_initiator_ns), (NULL_NS, NULL_NS));
    assert_eq!((row.rtt_to_target_min_ns, row.rtt_to_initiator_min_ns), (NULL_NS, NULL_NS));
    assert!(row.is_sack_permitted && row.has_syn && !row.has_fin && !row.has_rst && !row.has_timestamps);
}

#[test]
fn a_clock_that_runs_backwards_shows_no_handshake_rtt() {
    let mut talk = Talk::new();
    talk.see(10 * MS, 0, SYN, (99, 0), CLIENT_OPTIONS, 0);
    talk.see(9 * MS, 1, SYN | ACK, (199, 100), SERVER_OPTIONS, 0);
    talk.see(9 * MS, 0, ACK, (100, 200), &[], 0);
    let row = talk.connection.row();
    assert_eq!((row.handshake_rtt_to_initiator_ns, row.handshake_rtt_to_target_ns), (NULL_NS, 0));
    assert_eq!(row.time_last_ns, 10 * MS);
}

/// Bytes 10 to 20 of the client and the ACK of 20; `others` packets later, the first 10 bytes: the gap that is left.
fn gap_before_a_late_packet(others: usize, late_ns: i64, limit_bytes: usize) -> (u64, Vec<u64>) {
    let mut talk = Talk::begin();
    talk.budget.limit_bytes = limit_bytes;
    talk.see(40 * MS, 0, ACK, (110, 200), &[], 10);
    talk.see(41 * MS, 1, ACK, (200, 120), &[], 0);
    (0..others).for_each(|_| talk.see(41 * MS, 1, ACK, (200, 120), &[], 0));
    talk.see(41 * MS + late_ns, 0, ACK, (100, 200), &[], 10);
    let row = talk.connection.finish(&mut talk.context, &mut talk.budget);
    assert_eq!(talk.budget.held_bytes, 0);
    assert_eq!(row.captured_bytes_to_initiator + row.gap_bytes_to_initiator, 20);
    assert_eq!((row.frame_last, row.time_last_ns), (6 + others as u64, 41 * MS + late_ns));
    (row.gap_bytes_to_initiator, talk.context.tables.segments.frame)
}

#[test]
fn a_packet_behind_the_ack_of_its_bytes_is_read_before_it() {
    assert_eq!(gap_before_a_late_packet(0, MS, usize::MAX), (0, vec![1, 2, 3, 4, 6, 5]));
    assert_eq!(gap_before_a_late_packet(1, MS, usize::MAX), (0, vec![1, 2, 3, 4, 7, 5, 6]));
}

#[test]
fn such_a_packet_is_awaited_for_64_packets_and_a_second() {
    let gap = |others, late_ns, limit_bytes| gap_before_a_late_packet(others, late_ns, limit_bytes).0;
    assert_eq!([63, 64].map(|others| gap(others, MS, usize::MAX)), [0, 10]);
    assert_eq!([1000 * MS, 1000 * MS + 1].map(|late_ns| gap(0, late_ns, usize::MAX)), [0, 10]);
    // 10 bytes behind the hole, and 10 of the packet that waits
    assert_eq!([20, 19].map(|limit_bytes| gap(0, MS, limit_bytes)), [0, 10]);
}

#[test]
fn bytes_that_come_in_another_order_after_their_ack_are_no_gap() {
    // 30 bytes are acknowledged before any of them; of those missing, no packet comes
    for (offsets, gap_bytes) in [(&[20, 10, 0][..], 0), (&[10, 20, 0], 0), (&[20, 10], 10), (&[20, 0], 10)] {
        let mut talk = Talk::begin();
        talk.see(40 * MS, 1, ACK, (200, 130), &[], 0);
        for &offset in offsets {
            talk.see(41 * MS, 0, ACK, (100 + offset, 200), &[], 10);
        }
        let row = talk.connection.finish(&mut talk.context, &mut talk.budget);
        assert_eq!(row.gap_bytes_to_initiator, gap_bytes, "{offsets:?}");
        assert_eq!(row.captured_bytes_to_initiator, 10 * offsets.len() as u64, "{offsets:?}");
    }
}

#[test]
fn the_ack_of_a_packet_that_is_read_early_counts_in_its_place() {
    let mut talk = Talk::begin();
    talk.see(40 * MS, 0, ACK, (100, 200), &[], 10);
    talk.see(41 * MS, 1, ACK, (210, 100), &[], 10);
    // it covers the server's bytes 0 to 10, which come last
    talk.see(42 * MS, 0, ACK, (110, 220), &[], 0);
    talk.see(43 * MS, 1, ACK, (220, 110), &[], 0);
    talk.see(44 * MS, 1, ACK, (200, 110), &[], 10);
    let row = talk.connection.finish(&mut talk.context, &mut talk.budget);
    assert_eq!((row.gap_bytes_to_target, row.captured_bytes_to_target), (0, 20));
    assert_eq!(talk.context.tables.segments.frame, [1, 2, 3, 4, 5, 8, 6, 7]);
    // from 40 to 43 ms, not to 44
    assert_eq!(row.rtt_to_initiator_min_ns, 3 * MS);
}

#[test]
fn what_brings_the_bytes_of_an_ack_may_lack_others_itself() {
    // the ACK lacks bytes of the client, whose packet has an ACK of the server's bytes that came between
    let mut talk = Talk::begin();
    talk.see(40 * MS, 1, ACK, (210, 110), &[], 0);
    talk.see(41 * MS, 1, ACK, (200, 100), &[], 10);
    talk.see(42 * MS, 0, ACK, (100, 210), &[], 10);
    talk.see(43 * MS, 0, ACK, (110, 210), &[], 10);
    let segments = &talk.context.tables.segments;
    assert_eq!(segments.frame, [1, 2, 3, 5, 6, 4, 7], "all are read, with none more to come");
    let row = talk.connection.finish(&mut talk.context, &mut talk.budget);
    assert_eq!((row.gap_bytes_to_target, row.gap_bytes_to_initiator), (0, 0));
}

#[test]
fn packets_that_lack_each_others_bytes_are_read_when_waiting_is_over() {
    let mut talk = Talk::begin();
    talk.see(40 * MS, 0, ACK, (100, 210), &[], 10);
    talk.see(41 * MS, 1, ACK, (200, 110), &[], 10);
    let row = talk.connection.finish(&mut talk.context, &mut talk.budget);
    assert_eq!((row.captured_bytes_to_target, row.captured_bytes_to_initiator), (10, 10));
}

#[test]
fn what_waits_shows_in_the_live_state() {
    let mut talk = Talk::begin();
    talk.see(40 * MS, 0, ACK, (110, 200), &[], 10);
    talk.see(41 * MS, 1, ACK, (200, 120), &[], 0);
    assert_eq!(talk.connection.capture_order.waiting_since_ns(), Some(41 * MS));
    talk.connection.read_waiting_before(41 * MS, &mut talk.context, &mut talk.budget);
    assert_eq!(talk.connection.capture_order.waiting_since_ns(), Some(41 * MS));
    talk.connection.read_waiting_before(41 * MS + 1, &mut talk.context, &mut talk.budget);
    assert_eq!(talk.connection.capture_order.waiting_since_ns(), None);
    assert_eq!(talk.connection.row().gap_bytes_to_initiator, 10);
}

/// Time in ms, direction, flags, sequence and acknowledgment number.
type Sent = (i64, usize, u8, (u32, u32));

fn sees(packets: &[Sent]) -> Connection {
    let mut talk = Talk::new();
    for &(time_ms, direction, flags, numbers) in packets {
        talk.see(time_ms * MS, direction, flags, numbers, &[], 0);
    }
    talk.connection.row()
}

#[test]
fn a_reset_in_answer_to_a_syn_is_a_refusal() {
    let refused = sees(&[(0, 0, SYN, (99, 0)), (1000, 0, SYN, (99, 0)), (1030, 1, RST | ACK, (0, 100))]);
    assert!(refused.is_refused && refused.has_rst);
    // the client is the target
    assert_eq!((refused.rst_to_target_ns, refused.rst_to_target_frame), (1030 * MS, 3));
    assert_eq!((refused.syn_ns, refused.syn_frame, refused.syn_ack_ns), (0, 1, NULL_NS));
    assert_eq!((refused.time_last_to_initiator_ns, refused.data_last_to_initiator_ns), (1000 * MS, NULL_NS));
    let open = [(0, 0, SYN, (99, 0)), (30, 1, SYN | ACK, (199, 100)), (35, 0, ACK, (100, 200))];
    let reset = |sender: usize, numbers| sees(&[&open[..], &[(40, sender, RST | ACK, numbers)]].concat());
    let by_server = reset(1, (200, 100));
    assert!(by_server.has_rst && !by_server.is_refused, "the connection was open");
    let by_client = reset(0, (100, 200));
    assert!(!by_client.is_refused && by_client.rst_to_initiator_frame == 4);
    // the SYN-ACK is missing from the capture, and the client acknowledges it
    assert!(!sees(&[open[0], open[2], (40, 1, RST | ACK, (200, 100))]).is_refused);
    // the client refuses an old SYN-ACK, or gives up
    assert!(!sees(&[open[0], open[1], (31, 0, RST, (100, 0))]).is_refused);
    assert!(!sees(&[open[0], (31, 0, RST, (100, 0))]).is_refused);
    // without a SYN in the capture nothing shows what was reset
    assert!(!sees(&[(40, 1, RST | ACK, (0, 100))]).is_refused);
}

#[test]
fn the_first_fin_and_reset_of_each_side_count() {
    let row = sees(&[
        (0, 0, FIN | ACK, (100, 200)),
        (1, 1, FIN | ACK, (200, 101)),
        (400, 0, FIN | ACK, (100, 200)),
        (500, 0, RST, (101, 0)),
        (501, 0, RST, (101, 0)),
        (502, 1, RST, (201, 0)),
    ]);
    assert_eq!([row.fin_to_initiator_ns, row.fin_to_target_ns], [0, MS]);
    assert_eq!([row.fin_to_initiator_frame, row.fin_to_target_frame], [1, 2]);
    assert_eq!([row.rst_to_initiator_ns, row.rst_to_target_ns], [500 * MS, 502 * MS]);
    assert_eq!([row.rst_to_initiator_frame, row.rst_to_target_frame], [4, 6]);
    assert_eq!((row.syn_ns, row.syn_frame, row.syn_ack_ns), (NULL_NS, NULL_U64, NULL_NS));
}

/// A capture that begins with the ACK of client bytes up to 100, and then has 10 of them from 150 on, and their ACK.
fn begun_late(flags: u8) -> Connection {
    let mut talk = Talk::new();
    talk.see(0, 1, ACK | flags, (200, 100), &[], 0);
    talk.see(MS, 0, ACK, (150, 200), &[], 10);
    talk.see(2 * MS, 0, ACK, (170, 200), &[], 10);
    talk.see(3 * MS, 1, ACK, (201, 180), &[], 0);
    talk.connection.finish(&mut talk.context, &mut talk.budget)
}

#[test]
fn what_was_on_its_way_when_the_capture_began_is_no_gap() {
    let row = begun_late(0);
    assert_eq!((row.stream_bytes_to_initiator, row.gap_bytes_to_initiator), (30, 10));
    // a SYN-ACK acknowledges the start of the stream
    let row = begun_late(SYN);
    assert_eq!((row.stream_bytes_to_initiator, row.gap_bytes_to_initiator), (80, 60));
}

#[test]
fn a_stream_of_which_only_acks_were_captured_is_a_gap() {
    let mut talk = Talk::new();
    talk.see(0, 1, ACK, (200, 100), &[], 0);
    talk.see(MS, 1, ACK, (200, 180), &[], 0);
    let row = talk.connection.finish(&mut talk.context, &mut talk.budget);
    assert_eq!((row.stream_bytes_to_initiator, row.gap_bytes_to_initiator), (80, 80));
}
