//! Conversations with known truth: iSCSI PDUs in TCP segments in frames, and what a reader must find.
//!
//! ```text
//!   Script  opens connections and sends PDUs -> Conversation { packets, pdus, cycles }   the truth
//!   damage  packets -> the packets of a damaged capture                                  what is read
//! ```
//!
//! The reader's results are not used here. One PDU begins one segment; every PDU is acknowledged by the other side.

// tests and fuzz targets each use a part of it
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;

use iscsitrace_trace::tables::{Column, Columns, Tables};
use iscsitrace_wire::bhs::{BhsBuilder, LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::capture_writer::PcapngWriter;
use iscsitrace_wire::digest;
use iscsitrace_wire::frame::LinkType;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

/// Time between two packets.
pub const STEP_NS: i64 = 100_000;
/// Time of the first packet.
pub const START_NS: i64 = 1_700_000_000_000_000_000;
/// Payload of a full segment.
const MSS_BYTES: usize = 1000;
/// TCP port of the target.
pub const TARGET_PORT: u16 = 3260;
/// Ethernet, IPv4 and TCP header without options.
pub const HEADERS_BYTES: usize = 14 + 20 + 20;
/// Initial sequence number, by direction: the first wraps soon.
const INITIAL_SEQUENCE_NUMBERS: [u32; 2] = [0xffff_f000, 77];

/// A sent packet.
#[derive(Debug, Clone)]
pub struct SentPacket {
    /// The connection.
    pub connection: usize,
    /// The direction.
    pub to_target: bool,
    /// The frame.
    pub frame: Vec<u8>,
    /// Stream offset of its payload, or of the byte after a SYN.
    pub stream_offset: i64,
    /// Its payload.
    pub payload_bytes: usize,
    /// The acknowledged offset of the other direction; none in a SYN.
    pub acknowledged: Option<i64>,
    /// Whether it belongs to the handshake.
    pub is_handshake: bool,
}

/// A sent PDU.
#[derive(Debug, Clone)]
pub struct SentPdu {
    /// The connection.
    pub connection: usize,
    /// The direction.
    pub to_target: bool,
    /// Stream offset of its first byte.
    pub stream_offset: i64,
    /// Its opcode.
    pub opcode: Opcode,
    /// Its Initiator Task Tag.
    pub initiator_task_tag: u32,
    /// Its packets.
    pub packets: Vec<usize>,
}

/// A cycle: indexes of its PDUs.
#[derive(Debug, Clone, Default)]
pub struct SentCycle {
    /// The connection.
    pub connection: usize,
    /// Its tag, unique in the conversation.
    pub initiator_task_tag: u32,
    /// The SCSI Command.
    pub command: usize,
    /// The R2Ts.
    pub ready_to_transfers: Vec<usize>,
    /// Data-In or Data-Out.
    pub data: Vec<usize>,
    /// The SCSI Response, or the Data-In with the S bit.
    pub status: usize,
}

/// Everything that was sent.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    /// In sending order.
    pub packets: Vec<SentPacket>,
    /// In sending order.
    pub pdus: Vec<SentPdu>,
    /// In the order of their commands.
    pub cycles: Vec<SentCycle>,
}

/// The settings of a conversation.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// HeaderDigest=CRC32C.
    pub has_header_digest: bool,
    /// DataDigest=CRC32C.
    pub has_data_digest: bool,
    /// Connections of the session.
    pub connection_count: usize,
}

#[derive(Debug, Default)]
struct Peer {
    port: u16,
    /// Next stream offset, to the target and to the initiator.
    sent: [i64; 2],
    identification: [u16; 2],
    stat_sn: u32,
    is_full_feature: bool,
}

/// Builds a conversation.
#[derive(Debug)]
pub struct Script {
    conversation: Conversation,
    settings: Settings,
    peers: Vec<Peer>,
    cmd_sn: u32,
    next_task_tag: u32,
    noise: u64,
    /// Every PDU so far, if the data of commands is these bytes.
    own: Option<Vec<u8>>,
}

impl Script {
    /// A conversation without packets.
    pub fn new(settings: Settings) -> Self {
        Self {
            conversation: Conversation::default(),
            settings,
            peers: Vec::new(),
            cmd_sn: 100,
            next_task_tag: 0x1000,
            noise: 0x9e37_79b9_7f4a_7c15,
            own: None,
        }
    }

    /// From now on, the data of commands is the session's own PDUs, as if a capture of it were read and written.
    pub fn carry_itself(&mut self) {
        self.own = Some(Vec::new());
    }

    /// The conversation.
    pub fn finish(self) -> Conversation {
        self.conversation
    }

    /// Opens a connection and logs in; all connections belong to one session.
    pub fn connect(&mut self) -> usize {
        self.log_in(if self.peers.is_empty() { 0 } else { TSIH })
    }

    /// Resets the connection, and logs in on another one: to a new session of the same names.
    pub fn reconnect(&mut self, connection: usize) -> usize {
        self.packet(connection, false, 0x14, &[]);
        self.log_in(0)
    }

    /// Closes a connection: both sides send a FIN, and acknowledge the other's. Returns the target's packets: FIN, then ACK.
    pub fn close(&mut self, connection: usize) -> [usize; 2] {
        self.packet(connection, true, 0x11, &[]);
        let packets = [0x11, 0x10].map(|flags| self.packet(connection, false, flags, &[]));
        self.packet(connection, true, 0x10, &[]);
        packets
    }

    fn log_in(&mut self, tsih: u16) -> usize {
        let connection = self.peers.len();
        let port = 50_000 + connection as u16;
        let identification = [1000, 30_000];
        self.peers.push(Peer { port, identification, stat_sn: 7000, ..Peer::default() });
        self.packet(connection, true, 0x02, &[]);
        self.packet(connection, false, 0x12, &[]);
        self.packet(connection, true, 0x10, &[]);
        let yes_no = |is_used| if is_used { "CRC32C" } else { "None" };
        let digests = format!(
            "HeaderDigest={}\0DataDigest={}\0",
            yes_no(self.settings.has_header_digest),
            yes_no(self.settings.has_data_digest)
        );
        let keys = format!(
            "InitiatorName=iqn.2024-01.test:i\0TargetName=iqn.2024-01.test:t\0SessionType=Normal\0{digests}\
             MaxRecvDataSegmentLength=65536\0MaxBurstLength=65536\0FirstBurstLength=4096\0"
        );
        let (cmd_sn, stat_sn) = (self.cmd_sn, self.peers[connection].stat_sn);
        let request = BhsBuilder::new(Opcode::LoginRequest)
            .is_transit(true)
            .current_stage(1)
            .next_stage(3)
            .isid([0x80, 1, 2, 3, 4, 5])
            .tsih(tsih)
            .cid(connection as u16)
            .initiator_task_tag(connection as u32)
            .cmd_sn(SerialNumber(cmd_sn))
            .exp_stat_sn(SerialNumber(stat_sn));
        self.pdu(connection, true, request, keys.as_bytes());
        let answer = format!("TargetPortalGroupTag=1\0{digests}MaxRecvDataSegmentLength=65536\0");
        let response = BhsBuilder::new(Opcode::LoginResponse)
            .is_transit(true)
            .current_stage(1)
            .next_stage(3)
            .isid([0x80, 1, 2, 3, 4, 5])
            .tsih(TSIH)
            .initiator_task_tag(connection as u32);
        self.answer(connection, response, true, answer.as_bytes());
        self.peers[connection].is_full_feature = true;
        connection
    }

    /// `queue_depth` reads at once, with data and statuses in turn: `data_pdu_count` Data-In of `data_bytes` each and a
    /// SCSI Response, or the status in the last Data-In.
    pub fn read(
        &mut self,
        connection: usize,
        queue_depth: usize,
        data_pdu_count: u32,
        data_bytes: u32,
        has_status_in_data: bool,
    ) {
        let bytes = data_pdu_count * data_bytes;
        let cycles: Vec<usize> = (0..queue_depth).map(|_| self.command(connection, true, bytes, &[])).collect();
        for data_sn in 0..data_pdu_count {
            for &cycle in &cycles {
                let is_last = data_sn + 1 == data_pdu_count;
                let data = self.noise(data_bytes as usize);
                let tag = self.conversation.cycles[cycle].initiator_task_tag;
                let header = BhsBuilder::new(Opcode::DataIn)
                    .is_final(is_last)
                    .has_status(is_last && has_status_in_data)
                    .initiator_task_tag(tag)
                    .target_transfer_tag(RESERVED_TAG)
                    .data_sn(SerialNumber(data_sn))
                    .buffer_offset(data_sn * data_bytes);
                let pdu = self.answer(connection, header, is_last && has_status_in_data, &data);
                self.conversation.cycles[cycle].data.push(pdu);
                if is_last && has_status_in_data {
                    self.conversation.cycles[cycle].status = pdu;
                }
            }
        }
        if !has_status_in_data {
            for cycle in cycles {
                self.response(connection, cycle, data_pdu_count);
            }
        }
    }

    /// One write of `round_count` R2Ts of 4096 bytes each, in two Data-Out, after `immediate_bytes` with the command.
    pub fn write(&mut self, connection: usize, round_count: u32, immediate_bytes: u32) {
        let immediate = self.noise(immediate_bytes as usize);
        let cycle = self.command(connection, false, immediate_bytes + round_count * 4096, &immediate);
        let tag = self.conversation.cycles[cycle].initiator_task_tag;
        for round in 0..round_count {
            let offset = immediate_bytes + round * 4096;
            let header = BhsBuilder::new(Opcode::ReadyToTransfer)
                .initiator_task_tag(tag)
                .target_transfer_tag(0x7000 + round)
                .r2t_sn(SerialNumber(round))
                .buffer_offset(offset)
                .desired_data_transfer_length(4096);
            let pdu = self.answer(connection, header, false, &[]);
            self.conversation.cycles[cycle].ready_to_transfers.push(pdu);
            for part in 0..2 {
                let data = self.noise(2048);
                let header = BhsBuilder::new(Opcode::DataOut)
                    .is_final(part == 1)
                    .initiator_task_tag(tag)
                    .target_transfer_tag(0x7000 + round)
                    .exp_stat_sn(SerialNumber(self.peers[connection].stat_sn))
                    .data_sn(SerialNumber(part))
                    .buffer_offset(offset + part * 2048);
                let pdu = self.pdu(connection, true, header, &data);
                self.conversation.cycles[cycle].data.push(pdu);
            }
        }
        self.response(connection, cycle, round_count);
    }

    /// One bidirectional command that writes in two R2Ts of 2048 bytes and reads two Data-In of 1536 bytes; R2Ts and
    /// Data-In share one numbering (RFC 7143 section 11.8).
    pub fn bidirectional(&mut self, connection: usize) {
        let cycle = self.scsi_command(connection, [true, true], 4096, &[]);
        let tag = self.conversation.cycles[cycle].initiator_task_tag;
        for round in 0..2 {
            let data = self.noise(1536);
            let header = BhsBuilder::new(Opcode::DataIn)
                .is_final(true)
                .initiator_task_tag(tag)
                .target_transfer_tag(RESERVED_TAG)
                .data_sn(SerialNumber(2 * round))
                .buffer_offset(round * 1536);
            let pdu = self.answer(connection, header, false, &data);
            self.conversation.cycles[cycle].data.push(pdu);
            let header = BhsBuilder::new(Opcode::ReadyToTransfer)
                .initiator_task_tag(tag)
                .target_transfer_tag(0x7100 + round)
                .r2t_sn(SerialNumber(2 * round + 1))
                .buffer_offset(round * 2048)
                .desired_data_transfer_length(2048);
            let pdu = self.answer(connection, header, false, &[]);
            self.conversation.cycles[cycle].ready_to_transfers.push(pdu);
            let data = self.noise(2048);
            let header = BhsBuilder::new(Opcode::DataOut)
                .is_final(true)
                .initiator_task_tag(tag)
                .target_transfer_tag(0x7100 + round)
                .exp_stat_sn(SerialNumber(self.peers[connection].stat_sn))
                .data_sn(SerialNumber(0))
                .buffer_offset(round * 2048);
            let pdu = self.pdu(connection, true, header, &data);
            self.conversation.cycles[cycle].data.push(pdu);
        }
        self.response(connection, cycle, 4);
    }

    /// The number of packets so far.
    pub fn packet_count(&self) -> usize {
        self.conversation.packets.len()
    }

    /// A SCSI Command alone; returns its cycle.
    pub fn command(&mut self, connection: usize, is_read: bool, bytes: u32, immediate: &[u8]) -> usize {
        self.scsi_command(connection, [is_read, !is_read], bytes, immediate)
    }

    fn scsi_command(
        &mut self,
        connection: usize,
        [is_read, is_write]: [bool; 2],
        bytes: u32,
        immediate: &[u8],
    ) -> usize {
        let initiator_task_tag = self.next_task_tag;
        self.next_task_tag += 1;
        let mut cdb = [0; 16];
        // READ(10), WRITE(10), XDWRITEREAD(10)
        cdb[0] = match (is_read, is_write) {
            (true, false) => 0x28,
            (false, _) => 0x2a,
            (true, true) => 0x53,
        };
        cdb[4] = initiator_task_tag as u8;
        cdb[7..9].copy_from_slice(&((bytes / 512) as u16).to_be_bytes());
        let header = BhsBuilder::new(Opcode::ScsiCommand)
            .is_final(true)
            .is_read(is_read)
            .is_write(is_write)
            .task_attribute(1)
            .initiator_task_tag(initiator_task_tag)
            .expected_data_transfer_length(bytes)
            .cmd_sn(SerialNumber(self.cmd_sn))
            .exp_stat_sn(SerialNumber(self.peers[connection].stat_sn))
            .cdb(cdb);
        self.cmd_sn += 1;
        let command = self.pdu(connection, true, header, immediate);
        self.conversation.cycles.push(SentCycle { connection, initiator_task_tag, command, ..SentCycle::default() });
        self.conversation.cycles.len() - 1
    }

    fn response(&mut self, connection: usize, cycle: usize, exp_data_sn: u32) {
        let tag = self.conversation.cycles[cycle].initiator_task_tag;
        let header =
            BhsBuilder::new(Opcode::ScsiResponse).initiator_task_tag(tag).exp_data_sn(SerialNumber(exp_data_sn));
        self.conversation.cycles[cycle].status = self.answer(connection, header, true, &[]);
    }

    /// A PDU of the target, with its numbers; `advances` if it carries a status.
    fn answer(&mut self, connection: usize, header: BhsBuilder, advances: bool, data: &[u8]) -> usize {
        let stat_sn = self.peers[connection].stat_sn;
        // a Data-In without status has no StatSN
        let has_stat_sn = advances || Opcode::from_u8(header.build()[0]) == Some(Opcode::ReadyToTransfer);
        let header = if has_stat_sn { header.stat_sn(SerialNumber(stat_sn)) } else { header };
        let header = header.exp_cmd_sn(SerialNumber(self.cmd_sn)).max_cmd_sn(SerialNumber(self.cmd_sn + 32));
        self.peers[connection].stat_sn += u32::from(advances);
        self.pdu(connection, false, header, data)
    }

    /// Sends a PDU in its own segments, and the other side's ACK.
    pub fn pdu(&mut self, connection: usize, to_target: bool, header: BhsBuilder, data: &[u8]) -> usize {
        let header = header.data_segment_length(data.len() as u32).build();
        let has_digests = self.peers[connection].is_full_feature;
        let mut bytes = header.to_vec();
        if has_digests && self.settings.has_header_digest {
            bytes.extend_from_slice(&digest::to_wire(digest::crc32c(&header)));
        }
        if !data.is_empty() {
            let data_start = bytes.len();
            bytes.extend_from_slice(data);
            bytes.resize(data_start + data.len().next_multiple_of(4), 0);
            if has_digests && self.settings.has_data_digest {
                let crc = digest::crc32c(&bytes[data_start..]);
                bytes.extend_from_slice(&digest::to_wire(crc));
            }
        }
        if let Some(own) = &mut self.own {
            own.extend_from_slice(&bytes);
        }
        let stream_offset = self.peers[connection].sent[usize::from(!to_target)];
        let packets =
            bytes.chunks(MSS_BYTES).map(|payload| self.packet(connection, to_target, 0x18, payload)).collect();
        self.packet(connection, !to_target, 0x10, &[]);
        let opcode = Opcode::from_u8(header[0]).expect("an opcode of the builder");
        let initiator_task_tag = u32::from_be_bytes([header[16], header[17], header[18], header[19]]);
        self.conversation.pdus.push(SentPdu {
            connection,
            to_target,
            stream_offset,
            opcode,
            initiator_task_tag,
            packets,
        });
        self.conversation.pdus.len() - 1
    }

    /// Sends a packet; returns its index.
    fn packet(&mut self, connection: usize, to_target: bool, flags: u8, payload: &[u8]) -> usize {
        let direction = usize::from(!to_target);
        let peer = &mut self.peers[connection];
        let is_syn = flags & 0x02 != 0;
        let stream_offset = peer.sent[direction];
        let acknowledged = (flags & 0x10 != 0).then_some(peer.sent[1 - direction]);
        let number = |direction: usize, offset: i64| {
            INITIAL_SEQUENCE_NUMBERS[direction].wrapping_add(1).wrapping_add(offset as u32)
        };
        let frame = frame(&Frame {
            to_target,
            client_port: peer.port,
            identification: peer.identification[direction],
            sequence_number: number(direction, stream_offset).wrapping_sub(u32::from(is_syn)),
            acknowledgment_number: acknowledged.map_or(0, |offset| number(1 - direction, offset)),
            flags,
            payload,
        });
        peer.sent[direction] += payload.len() as i64;
        peer.identification[direction] += 1;
        let is_handshake = is_syn || peer.sent == [0, 0];
        self.conversation.packets.push(SentPacket {
            connection,
            to_target,
            frame,
            stream_offset,
            payload_bytes: payload.len(),
            acknowledged,
            is_handshake,
        });
        self.conversation.packets.len() - 1
    }

    /// Data: the latest PDUs of the session, or else pseudo-random (xorshift).
    fn noise(&mut self, length: usize) -> Vec<u8> {
        if let Some(latest) = self.own.as_ref().and_then(|own| own.get(own.len().checked_sub(length)?..)) {
            return latest.to_vec();
        }
        (0..length)
            .map(|_| {
                self.noise ^= self.noise << 13;
                self.noise ^= self.noise >> 7;
                self.noise ^= self.noise << 17;
                (self.noise >> 32) as u8
            })
            .collect()
    }
}

/// The target's session identifying handle.
const TSIH: u16 = 0x0102;

/// The fields of a frame.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The direction.
    pub to_target: bool,
    /// TCP port of the initiator.
    pub client_port: u16,
    /// IP identification.
    pub identification: u16,
    /// TCP sequence number.
    pub sequence_number: u32,
    /// TCP acknowledgment number.
    pub acknowledgment_number: u32,
    /// TCP flags.
    pub flags: u8,
    /// TCP payload.
    pub payload: &'a [u8],
}

/// Ethernet, IPv4, TCP without options; checksums are 0, as with offload.
pub fn frame(of: &Frame<'_>) -> Vec<u8> {
    let (client, target) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let [source, destination] = if of.to_target { [client, target] } else { [target, client] };
    let [source_port, destination_port] =
        if of.to_target { [of.client_port, TARGET_PORT] } else { [TARGET_PORT, of.client_port] };
    let mut bytes = vec![0; 12];
    bytes.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
    bytes.extend_from_slice(&(40 + of.payload.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&of.identification.to_be_bytes());
    bytes.extend_from_slice(&[0x40, 0, 64, 6, 0, 0]);
    bytes.extend_from_slice(&source);
    bytes.extend_from_slice(&destination);
    bytes.extend_from_slice(&source_port.to_be_bytes());
    bytes.extend_from_slice(&destination_port.to_be_bytes());
    bytes.extend_from_slice(&of.sequence_number.to_be_bytes());
    bytes.extend_from_slice(&of.acknowledgment_number.to_be_bytes());
    bytes.extend_from_slice(&[0x50, of.flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend_from_slice(of.payload);
    bytes
}

/// A session with everything: queue depths 1 and 8, status with and without data, writes of several rounds,
/// bidirectional commands.
pub fn everything(settings: Settings) -> Conversation {
    everything_by(Script::new(settings))
}

/// The same, and the data is a capture of the session so far.
pub fn everything_within_itself(settings: Settings) -> Conversation {
    let mut script = Script::new(settings);
    script.carry_itself();
    everything_by(script)
}

fn everything_by(mut script: Script) -> Conversation {
    let settings = script.settings;
    for _ in 0..settings.connection_count {
        script.connect();
    }
    for round in 0..2 {
        for connection in 0..settings.connection_count {
            script.read(connection, 1, 2, 1536, false);
            script.read(connection, 1, 1, 2560, true);
            script.write(connection, 2, 1024 * round);
            script.bidirectional(connection);
            script.read(connection, 8, 2, 1024, connection == 1);
        }
    }
    script.finish()
}

/// Damage to a packet on its way into a capture; indexes are taken modulo the number of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// This many packets from here on are missing.
    Drop(usize, usize),
    /// The packet comes again, this many packets later.
    Duplicate(usize, usize),
    /// The packet comes this many packets later than it was sent.
    Delay(usize, usize),
    /// This many bytes of the payload are kept.
    Cut(usize, usize),
    /// One bit of the payload is flipped.
    Flip(usize, usize),
}

/// A packet of a capture.
#[derive(Debug, Clone)]
pub struct Captured {
    /// Its index in the conversation.
    pub sent: usize,
    /// The frame as sent, cut to this length.
    pub kept_bytes: usize,
    /// The frame.
    pub frame: Vec<u8>,
}

/// The capture of a conversation. The packets of a handshake may be lost, but never come late: a SYN after data would
/// begin another connection.
pub fn damage(conversation: &Conversation, damages: &[Damage]) -> Vec<Captured> {
    let count = conversation.packets.len();
    // position of each copy of a packet: twice its index, odd after the packet that was sent there
    let mut order: Vec<(usize, usize)> = (0..count).map(|place| (2 * place, place)).collect();
    let mut frames: Vec<_> = conversation.packets.iter().map(|packet| packet.frame.clone()).collect();
    let mut kept: Vec<_> = frames.iter().map(Vec::len).collect();
    for &each in damages {
        match each {
            Damage::Drop(at, length) => {
                let at = at % count;
                order.retain(|&(_, sent)| sent < at || sent >= at + length);
            }
            Damage::Duplicate(at, later) => order.push((2 * (at % count + later) + 1, at % count)),
            Damage::Delay(at, later) => {
                let at = at % count;
                if !conversation.packets[at].is_handshake {
                    for (place, sent) in &mut order {
                        if *sent == at {
                            *place += 2 * later + 1;
                        }
                    }
                }
            }
            Damage::Cut(at, bytes) => {
                let at = at % count;
                kept[at] = kept[at].min(HEADERS_BYTES + bytes);
            }
            Damage::Flip(at, bit) => {
                let frame = &mut frames[at % count];
                let payload_bits = (frame.len() - HEADERS_BYTES) * 8;
                if payload_bits > 0 {
                    let bit = bit % payload_bits;
                    frame[HEADERS_BYTES + bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }
    order.sort_by_key(|&(place, _)| place);
    order.into_iter().map(|(_, sent)| Captured { sent, kept_bytes: kept[sent], frame: frames[sent].clone() }).collect()
}

/// Time of the packet at an index of the capture.
pub fn time_ns(place: usize) -> i64 {
    START_NS + place as i64 * STEP_NS
}

/// The capture as a pcapng file.
pub fn pcapng(packets: &[Captured]) -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new(), "test").expect("a vector takes everything");
    writer.add_interface(LinkType::ETHERNET, 0, "eth0").expect("a vector takes everything");
    for (place, packet) in packets.iter().enumerate() {
        writer
            .packet(0, time_ns(place), packet.frame.len() as u32, &packet.frame[..packet.kept_bytes], None)
            .expect("a vector takes everything");
    }
    writer.finish().expect("a vector takes everything")
}

/// Checks what must hold for the tables of any input; an error says what does not.
pub fn check(tables: &mut Tables) -> Result<(), String> {
    let connections = &tables.connections;
    let row_of = |number: u32| connections.connection.binary_search(&number).ok();
    for row in 0..connections.connection.len() {
        for (explained, stream) in [
            (&connections.explained_bytes_to_target, &connections.stream_bytes_to_target),
            (&connections.explained_bytes_to_initiator, &connections.stream_bytes_to_initiator),
        ] {
            if explained[row] > stream[row] {
                return Err(format!("connection row {row}: explained {} > stream {}", explained[row], stream[row]));
            }
        }
    }
    let cycle_count = tables.cycles.cycle.len();
    // a stream has the bytes from the first captured one on, and offsets from its first packet on
    let mut begins: BTreeMap<(u32, bool), i64> = BTreeMap::new();
    for row in 0..tables.pdus.opcode.len() {
        let offset = tables.pdus.stream_offset_bytes[row];
        let begin = begins.entry((tables.pdus.connection[row], tables.pdus.to_target[row])).or_insert(offset);
        *begin = offset.min(*begin);
    }
    for row in 0..tables.pdus.opcode.len() {
        let connection = tables.pdus.connection[row];
        let Some(place) = row_of(connection) else { return Err(format!("pdu row {row}: connection {connection}")) };
        let stream = if tables.pdus.to_target[row] {
            connections.stream_bytes_to_target[place]
        } else {
            connections.stream_bytes_to_initiator[place]
        };
        let offset = tables.pdus.stream_offset_bytes[row];
        let begin = begins.get(&(connection, tables.pdus.to_target[row])).copied().unwrap_or(0);
        if offset < 0 || (offset - begin) as u64 + LENGTH_BYTES as u64 > stream {
            return Err(format!("pdu row {row}: header at {offset} of {stream} bytes from {begin} on"));
        }
        let cycle = tables.pdus.cycle[row];
        if cycle != u32::MAX && cycle as usize >= cycle_count {
            return Err(format!("pdu row {row}: cycle {cycle} of {cycle_count}"));
        }
    }
    for row in 0..cycle_count {
        if tables.cycles.cycle[row] as usize != row || row_of(tables.cycles.connection[row]).is_none() {
            return Err(format!("cycle row {row}"));
        }
        if tables.cycles.session[row] as usize >= tables.sessions.session.len() {
            return Err(format!("cycle row {row}: session {}", tables.cycles.session[row]));
        }
    }
    if tables.rounds.cycle.iter().any(|&cycle| cycle as usize >= cycle_count) {
        return Err("a round of no cycle".to_owned());
    }
    if tables.connections.connection.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err("connections are not in order".to_owned());
    }
    columns_are_even(&mut tables.connections)?;
    columns_are_even(&mut tables.sessions)?;
    columns_are_even(&mut tables.parameters)?;
    columns_are_even(&mut tables.pdus)?;
    columns_are_even(&mut tables.cycles)?;
    columns_are_even(&mut tables.rounds)?;
    columns_are_even(&mut tables.logins)?;
    columns_are_even(&mut tables.segments)?;
    columns_are_even(&mut tables.counters)
}

fn columns_are_even<T: Columns>(table: &mut T) -> Result<(), String> {
    let rows = table.row_count();
    for (name, column) in table.take_columns() {
        let length = match column {
            Column::Bool(values) => values.len(),
            Column::U8(values) => values.len(),
            Column::U16(values) => values.len(),
            Column::U32(values) => values.len(),
            Column::U64(values) => values.len(),
            Column::I64(values) => values.len(),
            Column::Text(values) => values.len(),
        };
        if length != rows {
            return Err(format!("{}.{name} has {length} of {rows} rows", T::DECLARATION.name));
        }
    }
    Ok(())
}
