//! Arbitrary bytes, PDUs with a correct StatSN, time and lost connections, for an initiator's session with two
//! connections.

use iscsitrace_lab::application::Closed;
use iscsitrace_lab::protocol::breach::Breaches;
use iscsitrace_lab::protocol::initiator::{Command, Direction, Event, NoData, Session, SessionSettings, Timeouts};
use iscsitrace_lab::protocol::keys::Offers;
use iscsitrace_lab::protocol::login::InitiatorLoginSettings;
use iscsitrace_lab::protocol::pdu::{Decoder, Digests, Piece, encode};
use iscsitrace_wire::bhs::{Bhs, BhsBuilder, LENGTH_BYTES};
use iscsitrace_wire::opcode::Opcode;

const ISID: [u8; 6] = [0x80, 0, 0, 1, 0, 0];
const KEYS: &[u8] =
    b"TargetPortalGroupTag=1\0MaxConnections=2\0InitialR2T=No\0ImmediateData=Yes\0FirstBurstLength=1024\0\
    MaxBurstLength=4096\0MaxOutstandingR2T=2\0";

struct Peer {
    session: Session,
    decoders: [Decoder; 2],
    stat_sn: [u32; 2],
    now_ns: i64,
    cmd_sn: u32,
    /// Immediate requests that a target may still count as numbered ones.
    immediate_count: u32,
    has_ended: bool,
}

impl Peer {
    fn new() -> Peer {
        let offers = Offers {
            max_connections: Some(2),
            initial_r2t: Some(false),
            immediate_data: Some(true),
            first_burst_length: Some(1024),
            max_burst_length: Some(4096),
            max_outstanding_r2t: Some(2),
            ..Offers::default()
        };
        let login = InitiatorLoginSettings {
            target_name: Some("iqn.2025-01.org.iscsitrace:memory".to_owned()),
            offers,
            is_security_skipped: true,
            ..InitiatorLoginSettings::default()
        };
        let settings = SessionSettings {
            login,
            isid: ISID,
            connections: 2,
            timeouts: Timeouts::default(),
            initial_cmd_sn: u32::MAX - 2,
            challenge_seed: 1,
            breaches: Breaches::default(),
            is_pdu_log_wanted: false,
        };
        let decoders = [Decoder::new(1 << 24), Decoder::new(1 << 24)];
        let session = Session::new(settings);
        let (cmd_sn, immediate_count) = (u32::MAX - 2, 0);
        let mut peer =
            Peer { session, decoders, stat_sn: [0; 2], now_ns: 0, cmd_sn, immediate_count, has_ended: false };
        while let Some(connection) = peer.session.poll_connect(0) {
            peer.session.opened(0, connection);
            peer.take(connection);
            let header = BhsBuilder::new(Opcode::LoginResponse)
                .is_transit(true)
                .current_stage(1)
                .next_stage(3)
                .isid(ISID)
                .tsih(7)
                .initiator_task_tag(connection as u32);
            let text = if connection == 0 { KEYS } else { &[] };
            let header = header.data_segment_length(text.len() as u32).build();
            peer.send(connection, header, text);
        }
        assert_eq!(peer.session.poll_event(), Some(Event::Ready));
        peer
    }

    /// Receives the bytes of the initiator, and checks that they are legal.
    fn take(&mut self, connection: usize) {
        for _ in 0..64 {
            let mut out = Vec::new();
            self.session.poll_transmit(self.now_ns, connection, &mut out, &mut NoData);
            if out.is_empty() {
                break;
            }
            let mut input = &out[..];
            let decoder = &mut self.decoders[connection];
            while let Some(piece) = decoder.next(&mut input).expect("a stream that can be read") {
                if piece == Piece::Header {
                    let bhs = decoder.bhs();
                    assert_eq!(bhs.is_valid(), Ok(()), "{bhs}");
                    let Some(cmd_sn) = bhs.cmd_sn() else { continue };
                    if bhs.is_immediate() == Some(true) {
                        self.immediate_count += 1;
                        continue;
                    }
                    // a target that counted immediate requests is followed, up to their number
                    let passed = cmd_sn.0.wrapping_sub(self.cmd_sn);
                    assert!(passed <= self.immediate_count, "{cmd_sn} after {}", self.cmd_sn);
                    self.immediate_count -= passed;
                    self.cmd_sn = cmd_sn.next().0;
                    assert!(!cmd_sn.is_after(self.session.window().max_cmd_sn()));
                }
            }
        }
    }

    /// A PDU with correct StatSN and window.
    fn send(&mut self, connection: usize, mut header: [u8; LENGTH_BYTES], data: &[u8]) {
        let place = &mut self.stat_sn[connection];
        let opcode = Bhs::new(&header).opcode();
        let has_status = match opcode {
            Some(Opcode::DataIn) => header[1] & 1 != 0,
            Some(Opcode::NopIn) => header[16..20] != [0xff; 4],
            Some(Opcode::ReadyToTransfer) => false,
            _ => true,
        };
        if opcode != Some(Opcode::DataIn) || has_status {
            header[24..28].copy_from_slice(&place.to_be_bytes());
        }
        *place = place.wrapping_add(u32::from(has_status));
        header[28..32].copy_from_slice(&self.cmd_sn.to_be_bytes());
        header[32..36].copy_from_slice(&self.cmd_sn.wrapping_add(8).to_be_bytes());
        let mut bytes = Vec::new();
        encode(&mut bytes, &header, &[], Digests::default(), |out| out.extend_from_slice(data));
        self.session.receive(self.now_ns, connection, &bytes, &mut NoData);
    }

    fn note_event(&mut self) {
        while let Some(event) = self.session.poll_event() {
            assert!(!self.has_ended, "{event:?} after the end");
            self.has_ended = matches!(event, Event::Ended(_));
        }
        assert_eq!(self.has_ended, self.session.is_over());
    }
}

// steps: | what 1, connection in its high bits | length 2 | bytes ... |
pub fn run(data: &[u8]) {
    let mut peer = Peer::new();
    let mut rest = data;
    while let Some((&[what, high, low], bytes)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let connection = usize::from(what >> 4) % 2;
        match what & 15 {
            // raw bytes, and a PDU with correct numbers
            kind @ 0..=2 => {
                let (bytes, after) = bytes.split_at(length.min(bytes.len()));
                rest = after;
                if kind == 0 {
                    peer.session.receive(peer.now_ns, connection, bytes, &mut NoData);
                } else if let Some((header, data)) = bytes.split_first_chunk::<LENGTH_BYTES>() {
                    let mut header = *header;
                    header[4..8].copy_from_slice(&(data.len() as u32).to_be_bytes());
                    peer.send(connection, header, data);
                }
            }
            kind => {
                rest = bytes;
                let direction = if kind == 3 { Direction::Read } else { Direction::Write };
                let command = Command { lun: [0; 8], cdb: [0; 16], direction, length_bytes: 4096 + u32::from(low) };
                match kind {
                    3 | 4 => _ = peer.session.submit(peer.now_ns, connection, command),
                    5 => peer.take(connection),
                    6 => _ = peer.session.ping(peer.now_ns, connection, u32::from(low)),
                    7 => peer.session.abort_task(peer.now_ns, u32::from(low)),
                    8 => {
                        peer.now_ns += length as i64 * 1_000_000;
                        for round in 0.. {
                            if peer.session.poll_timeout().is_none_or(|at| at > peer.now_ns) {
                                break;
                            }
                            peer.session.handle_timeout(peer.now_ns);
                            assert!(round < 1000, "time does not pass");
                        }
                    }
                    9 => _ = peer.session.logical_unit_reset(peer.now_ns, connection, [0; 8]),
                    10 => _ = peer.session.send_targets(peer.now_ns),
                    11 => peer.session.logout(peer.now_ns),
                    12 => peer.session.closed(peer.now_ns, connection, &Closed::ByPeer),
                    _ => {}
                }
            }
        }
        peer.note_event();
    }
}
