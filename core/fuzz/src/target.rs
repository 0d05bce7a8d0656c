//! Arbitrary bytes, PDUs with a correct CmdSN, time and lost connections, for a target portal with two sessions.

use iscsitrace_lab::application::{Application, Closed};
use iscsitrace_lab::protocol::pdu::{Decoder, Digests, Piece, encode};
use iscsitrace_lab::protocol::target::{Limits, Portal, PortalSettings, ServiceDelay, StatusDelivery};
use iscsitrace_wire::bhs::{Bhs, BhsBuilder, LENGTH_BYTES};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

const KEYS: &str = "InitiatorName=iqn.2025-01.org.iscsitrace:fuzzer\0TargetName=iqn.2025-01.org.iscsitrace:memory\0\
    MaxConnections=4\0InitialR2T=No\0ImmediateData=Yes\0FirstBurstLength=1024\0MaxBurstLength=4096\0\
    MaxOutstandingR2T=2\0DataPDUInOrder=No\0DataSequenceInOrder=No\0MaxRecvDataSegmentLength=1024\0\
    DefaultTime2Wait=2\0DefaultTime2Retain=0\0ErrorRecoveryLevel=0\0HeaderDigest=None\0DataDigest=None\0";

/// A connection as its initiator sees it.
struct End {
    number: usize,
    decoder: Decoder,
    tsih: u16,
    exp_cmd_sn: u32,
}

struct Peer {
    portal: Portal,
    now_ns: i64,
    ends: Vec<End>,
}

impl Peer {
    fn log_in(&mut self, tsih: u16) {
        let Some(number) =
            self.portal.accept(self.now_ns, ([192, 0, 2, 1], 50_000).into(), ([192, 0, 2, 2], 3260).into())
        else {
            return;
        };
        let cid = self.ends.len() as u16;
        let header = BhsBuilder::new(Opcode::LoginRequest)
            .is_transit(true)
            .current_stage(1)
            .next_stage(3)
            .isid([0x80, 0, 0, 0, 0, if tsih == 0 { cid as u8 } else { 0 }])
            .tsih(tsih)
            .cid(cid)
            .cmd_sn(SerialNumber(1))
            .data_segment_length(KEYS.len() as u32);
        let mut bytes = Vec::new();
        encode(&mut bytes, &header.build(), &[], Digests::default(), |out| out.extend_from_slice(KEYS.as_bytes()));
        self.ends.push(End { number, decoder: Decoder::new(1 << 24), tsih, exp_cmd_sn: 1 });
        self.portal.receive(self.now_ns, number, &bytes);
        self.take(self.ends.len() - 1);
    }

    /// Receives the bytes of the portal, and checks that they are legal.
    fn take(&mut self, place: usize) {
        let end = &mut self.ends[place];
        for _ in 0..64 {
            let mut out = Vec::new();
            self.portal.poll_transmit(self.now_ns, end.number, &mut out);
            if out.is_empty() {
                break;
            }
            // one PDU more than requested: a NOP with the longest data segment
            assert!(out.len() <= (16 << 10) + (256 << 10) + 64, "{} bytes in one call", out.len());
            let mut input = &out[..];
            while let Some(piece) = end.decoder.next(&mut input).expect("a stream that can be read") {
                if piece != Piece::Header {
                    continue;
                }
                let bhs = end.decoder.bhs();
                assert_eq!(bhs.is_valid(), Ok(()), "{bhs}");
                end.exp_cmd_sn = bhs.exp_cmd_sn().map_or(end.exp_cmd_sn, |number| number.0);
                end.tsih = bhs.tsih().filter(|tsih| *tsih != 0).unwrap_or(end.tsih);
            }
        }
    }
}

// | settings | then steps: | what 1 | length 2 | bytes ... |
pub fn run(data: &[u8]) {
    let Some((&chosen, mut rest)) = data.split_first() else { return };
    let mut settings = PortalSettings {
        status: [StatusDelivery::InData, StatusDelivery::Apart, StatusDelivery::ApartHeld][usize::from(chosen % 3)],
        read_delay: ServiceDelay::Fixed { delay_ns: i64::from(chosen & 4) * 1000 },
        nop_in_interval_ns: i64::from(chosen & 8) * 1_000_000_000,
        command_window_count: 8,
        limits: Limits { transmit_bytes: 16 << 10, early_data_bytes: 1 << 16, ..Limits::default() },
        ..PortalSettings::default()
    };
    settings.keys.data_pdu_in_order = Some(false);
    settings.keys.data_sequence_in_order = Some(false);
    settings.keys.max_outstanding_r2t = Some(2);
    let portal = Portal::new(settings).expect("the settings make a portal");
    let mut peer = Peer { portal, now_ns: 0, ends: Vec::new() };
    peer.log_in(0);
    let tsih = peer.ends[0].tsih;
    peer.log_in(tsih);
    peer.log_in(0);
    assert_eq!(peer.portal.session_count(), 2);
    while let Some((&[what, high, low], bytes)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (bytes, after) = bytes.split_at(length.min(bytes.len()));
        rest = after;
        let place = usize::from(what >> 4) % peer.ends.len();
        let number = peer.ends[place].number;
        match what & 15 {
            // raw bytes
            0 => peer.portal.receive(peer.now_ns, number, bytes),
            // a PDU with correct length and CmdSN, except for an offset
            1..=4 => {
                let Some((header, data)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { continue };
                let mut header = *header;
                header[4..8].copy_from_slice(&(data.len() as u32).to_be_bytes());
                if Bhs::new(&header).cmd_sn().is_some() {
                    let cmd_sn = peer.ends[place].exp_cmd_sn.wrapping_add(u32::from(what & 15) - 1);
                    header[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
                }
                let mut pdu = header.to_vec();
                pdu.extend_from_slice(data);
                pdu.resize(pdu.len().next_multiple_of(4), 0);
                peer.portal.receive(peer.now_ns, number, &pdu);
            }
            5..=7 => peer.take(place),
            8 => {
                peer.now_ns += length as i64 * 1_000_000;
                let mut rounds = 0;
                while peer.portal.poll_timeout().is_some_and(|at_ns| at_ns <= peer.now_ns) {
                    peer.portal.handle_timeout(peer.now_ns);
                    rounds += 1;
                    assert!(rounds < 1000, "time does not pass");
                }
            }
            9 if peer.ends.len() < 8 => peer.log_in(u16::from(low)),
            10 => peer.portal.closed(peer.now_ns, number, Closed::ByPeer),
            11 => peer.portal.request_logout(peer.now_ns, number, 3),
            12 => peer.portal.ping(peer.now_ns, number),
            _ => while peer.portal.poll_close().is_some() {},
        }
        // the order of a command is in each session's own numbers
        for place in 0..peer.ends.len() {
            if peer.ends[place].tsih == peer.ends[usize::from(what >> 4) % peer.ends.len()].tsih && what & 16 == 0 {
                peer.take(place);
            }
        }
    }
    for end in &peer.ends {
        let is_open = peer.portal.connection_numbers().any(|number| number == end.number);
        let is_logged = peer.portal.log().connections.iter().any(|record| record.connection == end.number);
        assert!(is_open != is_logged, "each connection is open, or its end has a reason");
    }
}
