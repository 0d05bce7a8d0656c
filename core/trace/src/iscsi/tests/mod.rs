//! Whole rows of small conversations, computed by hand. Frame N is captured at N microseconds; every PDU takes two
//! frames, so that its first and its last byte have different frames.

mod command_numbers;
mod commands;
mod cut;
mod endings;
mod exchanges;
mod icmp_errors;
mod logical_units;
mod logins;
mod missing;
mod rules;
mod tags;

use iscsitrace_wire::bhs::{BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::frame::LinkType;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use crate::pipeline::Pipeline;
use crate::reader::Packet;
use crate::tables::{Tables, Wanted};

/// Capture time of a frame.
const fn at(frame: u64) -> i64 {
    frame as i64 * 1000
}

/// The connection of a conversation.
const CONNECTION: u32 = 1;
/// Where each PDU is cut in two packets.
const CUT: usize = 20;
const ISID: [u8; 6] = [0x80, 1, 2, 3, 4, 5];
const REQUESTED: &str = "InitiatorName=iqn.i\0TargetName=iqn.t\0SessionType=Normal\0InitialR2T=No\0";
const ANSWERED: &str = "TargetAlias=disks\0TargetPortalGroupTag=4\0InitialR2T=No\0MaxBurstLength=65536\0";

/// A conversation on connection 1, 10.0.0.1:50000 to 10.0.0.2:3260; connection 0 has one packet and is not iSCSI.
struct Talk {
    pipeline: Pipeline,
    /// TCP port of the initiator.
    port: u16,
    frame: u64,
    /// Payload bytes to the target and to the initiator.
    sent: [u32; 2],
    /// Whether the capture lacks the packets that are sent now.
    is_losing: bool,
    /// Maximum payload that the snaplen leaves.
    kept_bytes: usize,
}

impl Talk {
    /// Before the handshake.
    fn new() -> Self {
        let pipeline = Pipeline::new(Wanted::ALL);
        let mut talk =
            Self { pipeline, port: 49_999, frame: 0, sent: [0; 2], is_losing: false, kept_bytes: usize::MAX };
        talk.packet(true, 0x10, &[]);
        (talk.port, talk.frame) = (50_000, 0);
        talk
    }

    /// The handshake: frames 1 to 3.
    fn connect() -> Self {
        let mut talk = Self::new();
        talk.packet(true, 0x02, &[]);
        talk.packet(false, 0x12, &[]);
        talk.packet(true, 0x10, &[]);
        talk
    }

    /// A login in one exchange: frames 4 to 7.
    fn login() -> Self {
        let mut talk = Self::connect();
        talk.send(true, login_request(1, 3), REQUESTED.as_bytes());
        talk.send(false, login_response(1, 3), ANSWERED.as_bytes());
        talk
    }

    /// Sends a PDU in two packets.
    fn send(&mut self, to_target: bool, header: BhsBuilder, data: &[u8]) {
        let mut bytes = header.data_segment_length(data.len() as u32).build().to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.packet(to_target, 0x18, &bytes[..CUT]);
        self.packet(to_target, 0x18, &bytes[CUT..]);
    }

    /// Sends a PDU that the capture lacks; frames are numbered as if it had it.
    fn lose(&mut self, to_target: bool, header: BhsBuilder, data: &[u8]) {
        self.is_losing = true;
        self.send(to_target, header, data);
        self.is_losing = false;
    }

    /// IPv4 and TCP without options.
    fn packet(&mut self, to_target: bool, flags: u8, payload: &[u8]) {
        self.frame += 1;
        let is_syn = flags & 0x02 != 0;
        let [out, back] = if to_target { [0, 1] } else { [1, 0] };
        let (addresses, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [self.port, 3260]);
        let mut bytes = vec![0x45, 0];
        bytes.extend_from_slice(&(40 + payload.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&(self.frame as u16).to_be_bytes());
        bytes.extend_from_slice(&[0x40, 0, 64, 6, 0, 0]);
        bytes.extend_from_slice(&addresses[out]);
        bytes.extend_from_slice(&addresses[back]);
        bytes.extend_from_slice(&ports[out].to_be_bytes());
        bytes.extend_from_slice(&ports[back].to_be_bytes());
        bytes.extend_from_slice(&(self.sent[out] + u32::from(!is_syn)).to_be_bytes());
        bytes.extend_from_slice(&(self.sent[back] + 1).to_be_bytes());
        bytes.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend_from_slice(payload);
        self.sent[out] += payload.len() as u32;
        if self.is_losing {
            return;
        }
        self.pipeline.packet(&Packet {
            frame: self.frame,
            time_ns: at(self.frame),
            link_type: LinkType::RAW,
            interface: 0,
            original_length: bytes.len() as u32,
            data: &bytes[..bytes.len() - payload.len().saturating_sub(self.kept_bytes)],
        });
    }

    fn finish(self) -> Tables {
        self.pipeline.finish()
    }
}

fn login_request(current_stage: u8, next_stage: u8) -> BhsBuilder {
    BhsBuilder::new(Opcode::LoginRequest)
        .is_transit(true)
        .current_stage(current_stage)
        .next_stage(next_stage)
        .isid(ISID)
        .cid(9)
        .initiator_task_tag(1)
        .cmd_sn(SerialNumber(100))
}

fn login_response(current_stage: u8, next_stage: u8) -> BhsBuilder {
    BhsBuilder::new(Opcode::LoginResponse)
        .is_transit(true)
        .current_stage(current_stage)
        .next_stage(next_stage)
        .isid(ISID)
        .tsih(0x0102)
        .initiator_task_tag(1)
        .stat_sn(SerialNumber(500))
        .exp_cmd_sn(SerialNumber(100))
        .max_cmd_sn(SerialNumber(131))
}

/// A command with CmdSN and tag; more is set by the test.
fn command(tag: u32, cmd_sn: u32, bytes: u32, cdb: &[u8]) -> BhsBuilder {
    let mut whole = [0; 16];
    whole[..cdb.len()].copy_from_slice(cdb);
    BhsBuilder::new(Opcode::ScsiCommand)
        .is_final(true)
        .task_attribute(1)
        .lun([0, 3, 0, 0, 0, 0, 0, 0])
        .initiator_task_tag(tag)
        .expected_data_transfer_length(bytes)
        .cmd_sn(SerialNumber(cmd_sn))
        .exp_stat_sn(SerialNumber(501))
        .cdb(whole)
}

/// READ(10) of 8 blocks from block 0x1234.
fn read(tag: u32, cmd_sn: u32) -> BhsBuilder {
    command(tag, cmd_sn, 4096, &[0x28, 0, 0, 0, 0x12, 0x34, 0, 0, 8, 0]).is_read(true)
}

/// A PDU of the target with its numbers; StatSN only where it has one.
fn numbered(header: BhsBuilder, stat_sn: Option<u32>, exp_cmd_sn: u32) -> BhsBuilder {
    let header = header.exp_cmd_sn(SerialNumber(exp_cmd_sn)).max_cmd_sn(SerialNumber(exp_cmd_sn + 31));
    match stat_sn {
        Some(number) => header.stat_sn(SerialNumber(number)),
        None => header,
    }
}

fn data_in(tag: u32, data_sn: u32, buffer_offset: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::DataIn)
        .initiator_task_tag(tag)
        .target_transfer_tag(RESERVED_TAG)
        .data_sn(SerialNumber(data_sn))
        .buffer_offset(buffer_offset)
}

fn response(tag: u32, stat_sn: u32, exp_cmd_sn: u32, exp_data_sn: u32) -> BhsBuilder {
    let header = BhsBuilder::new(Opcode::ScsiResponse).initiator_task_tag(tag).exp_data_sn(SerialNumber(exp_data_sn));
    numbered(header, Some(stat_sn), exp_cmd_sn)
}

/// The counts of a counter, over all connections.
fn counted(tables: &Tables, name: &str) -> u64 {
    let counters = &tables.counters;
    counters.name.iter().zip(&counters.count).filter(|(row, _)| *row == name).map(|(_, count)| count).sum()
}

/// Missing PDUs to the target and to the initiator.
fn missing(tables: &Tables) -> [u64; 2] {
    [tables.connections.missing_pdu_count_to_target[1], tables.connections.missing_pdu_count_to_initiator[1]]
}
