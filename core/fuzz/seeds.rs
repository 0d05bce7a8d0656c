//! Writes the seeds of every fuzz target: `seeds CORPUS CAPTURE...`; of the captures, the first packets, cut.
//!
//! Everything else is built with the same builder as the tests. Nothing is written outside CORPUS.

#[path = "../trace/tests/conversation/mod.rs"]
mod conversation;

use std::error::Error;
use std::fs;
use std::path::Path;

use conversation::{Conversation, HEADERS_BYTES, Script, Settings, damage, pcapng};
use iscsitrace_trace::counters::Counters;
use iscsitrace_trace::reader::Capture;
use iscsitrace_wire::bhs::BhsBuilder;
use iscsitrace_wire::capture_writer::PcapngWriter;
use iscsitrace_wire::opcode::Opcode;

const PACKETS: usize = 24;
const SNAPLEN: usize = 640;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let corpus = arguments.next().ok_or("usage: seeds CORPUS CAPTURE...")?;
    let corpus = Path::new(&corpus);
    let write = |target: &str, name: &str, bytes: &[u8]| -> Result<(), Box<dyn Error>> {
        fs::create_dir_all(corpus.join(target))?;
        Ok(fs::write(corpus.join(target).join(name), bytes)?)
    };
    for (name, has_header_digest, has_data_digest) in
        [("plain", false, false), ("header_digest", true, false), ("both_digests", true, true)]
    {
        let conversation = short(Settings { has_header_digest, has_data_digest, connection_count: 1 });
        let file = pcapng(&damage(&conversation, &[]));
        write("pipeline", &format!("{name}.pcapng"), &file)?;
        write("anonymise", &format!("{name}.pcapng"), &after_zero(&file))?;
        write("framer", &format!("{name}_from_login"), &streams(&conversation, 1, 0))?;
        // without the login, with its result
        let digests = 2 | u8::from(has_header_digest) << 2 | u8::from(has_data_digest) << 3;
        write("framer", &format!("{name}_known"), &streams(&conversation, digests, 2))?;
        write("framer", &format!("{name}_unknown"), &streams(&conversation, 0, 2))?;
    }
    let conversation = short(Settings { has_header_digest: false, has_data_digest: false, connection_count: 1 });
    for (name, at) in [("syn", 0), ("login", 3), ("command", 7)] {
        let mut bytes = vec![0, 0];
        bytes.extend_from_slice(&conversation.packets[at].frame);
        write("frame", name, &bytes)?;
    }
    for (name, text) in [
        ("operational", &b"InitiatorName=iqn.2024-01.test:i\0SessionType=Normal\0HeaderDigest=CRC32C,None\0"[..]),
        ("chap", b"CHAP_A=5\0CHAP_N=joe\0CHAP_R=0x0123\0CHAP_I=7\0MaxBurstLength=0x40000\0InitialR2T=No\0"),
        ("malformed", b"no equals sign\0=\0a=\0a=b=c\0\xff\xfe=\xff\0MaxConnections=99999999999999999999\0"),
    ] {
        let mut bytes = (text.len() as u16 / 2).to_be_bytes().to_vec();
        bytes.extend_from_slice(text);
        write("login_text", name, &bytes)?;
    }
    // one way for the times of every second packet, and microseconds between the others
    for way in 0..8u8 {
        write("live", &format!("way{way}"), &[way, way, way, 0, 0, 0, 0, 0, 0, 3, 7, 0, 0, 0, 0, 0, 0, 9])?;
    }
    for which in 0..8u8 {
        let steps = [[0, 0, 20, 0, 3], [1, 0, 30, 0, 9], [2, 0, 40, 0, 5], [3, 0, 50, 0, 60], [4, 0, 60, 0, 77]];
        let mut bytes = vec![which];
        bytes.extend(steps.iter().skip(usize::from(which) % 4).flatten());
        write("packets", &format!("conversation{which}"), &bytes)?;
        bytes[0] |= 8;
        write("anonymise", &format!("conversation{which}"), &bytes)?;
    }
    for (name, steps) in target_steps() {
        write("target", name, &steps)?;
    }
    for (name, steps) in initiator_steps() {
        write("initiator", name, &steps)?;
    }
    for (name, steps) in endpoint_steps() {
        write("endpoint", name, &steps)?;
    }
    for path in arguments {
        let path = Path::new(&path);
        let name = path.file_name().and_then(|name| name.to_str()).ok_or("a capture without a name")?;
        let name = name.split('.').next().unwrap_or(name);
        let file = first_packets(path)?;
        write("capture", &format!("{name}.pcapng"), &file)?;
        write("pipeline", &format!("{name}.pcapng"), &file)?;
        write("anonymise", &format!("{name}.pcapng"), &after_zero(&file))?;
        if let Some(frame) = frame_of(path)? {
            write("frame", name, &frame)?;
        }
    }
    Ok(())
}

/// A capture, as the target `anonymise` takes it.
fn after_zero(capture: &[u8]) -> Vec<u8> {
    [&[0], capture].concat()
}

/// A login, a read and a write.
fn short(settings: Settings) -> Conversation {
    let mut script = Script::new(settings);
    let connection = script.connect();
    script.read(connection, 2, 1, 512, false);
    script.read(connection, 1, 1, 512, true);
    script.write(connection, 1, 512);
    script.finish()
}

/// A step of the target `target`: a PDU or another event on one of its connections.
fn step(what: u8, connection: u8, bytes: &[u8]) -> Vec<u8> {
    let mut step = vec![what | connection << 4];
    step.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    step.extend_from_slice(bytes);
    step
}

/// Conversations with a target portal.
fn target_steps() -> Vec<(&'static str, Vec<u8>)> {
    let pdu = |header: BhsBuilder, data: &[u8]| [&header.build()[..], data].concat();
    let command = |code: u8, blocks: u8, length: u32| {
        let cdb = [code, 0, 0, 0, 0, 8, 0, 0, blocks, 0, 0, 0, 0, 0, 0, 0];
        let header = BhsBuilder::new(Opcode::ScsiCommand).is_final(true).initiator_task_tag(7).cdb(cdb);
        header.expected_data_transfer_length(length)
    };
    let data_out = |transfer: u32, offset: u32| {
        let header = BhsBuilder::new(Opcode::DataOut).is_final(true).initiator_task_tag(7);
        header.target_transfer_tag(transfer).buffer_offset(offset)
    };
    let write = command(0x2a, 4, 2048).is_write(true);
    let manage = BhsBuilder::new(Opcode::TaskManagementRequest).is_immediate(true).initiator_task_tag(9);
    let text = BhsBuilder::new(Opcode::TextRequest).is_final(true).initiator_task_tag(9).target_transfer_tag(u32::MAX);
    let nop = BhsBuilder::new(Opcode::NopOut).initiator_task_tag(9).target_transfer_tag(u32::MAX);
    let logout = BhsBuilder::new(Opcode::LogoutRequest).initiator_task_tag(9);
    vec![
        (
            "reads",
            [
                vec![1],
                step(1, 0, &pdu(command(0x28, 16, 8192).is_read(true), &[])),
                step(2, 1, &pdu(command(0x12, 0, 36).is_read(true), &[])),
                step(1, 0, &pdu(command(0x00, 0, 0).initiator_task_tag(8), &[])),
                vec![8, 0, 9],
            ]
            .concat(),
        ),
        (
            "writes",
            [
                vec![2],
                step(1, 0, &pdu(write.is_final(false), &[1; 512])),
                step(1, 0, &pdu(data_out(u32::MAX, 512), &[2; 512])),
                step(1, 0, &pdu(data_out(0x0001_0000, 1024), &[3; 1024])),
                step(1, 2, &pdu(write, &[4; 1024])),
                step(1, 2, &pdu(data_out(0x0001_0000, 1024), &[3; 1024])),
            ]
            .concat(),
        ),
        (
            "management",
            [
                vec![4],
                step(1, 0, &pdu(command(0x28, 16, 8192).is_read(true), &[])),
                step(1, 0, &pdu(write.initiator_task_tag(8), &[1; 512])),
                step(2, 1, &pdu(write.initiator_task_tag(10), &[1; 512])),
                step(1, 0, &pdu(manage.function(1).referenced_task_tag(7), &[])),
                step(1, 0, &pdu(manage.function(2), &[])),
                step(1, 0, &pdu(manage.function(5), &[])),
                vec![8, 1, 0],
                step(1, 2, &pdu(manage.function(7), &[])),
            ]
            .concat(),
        ),
        (
            "requests",
            [
                vec![8],
                step(1, 0, &pdu(nop, b"ping")),
                step(1, 0, &pdu(text, b"SendTargets=\0MaxRecvDataSegmentLength=512\0X-a=b\0")),
                vec![8, 0x20, 0],
                vec![11, 0, 0, 12 | 1 << 4, 0, 0],
                step(1, 1, &pdu(BhsBuilder::new(Opcode::SnackRequest).snack_type(1), &[])),
                step(1, 1, &pdu(logout.logout_reason(1).cid(0), &[])),
                step(1, 1, &pdu(logout.logout_reason(0), &[])),
                vec![9, 0, 0, 10 | 2 << 4, 0, 0, 13, 0, 0],
            ]
            .concat(),
        ),
        ("bytes", [vec![0], step(0, 0, &[0x41; 60]), step(0, 1, &[0; 47]), step(0, 1, &[0xff; 9])].concat()),
    ]
}

/// The answers of a target, as steps of the target `initiator`: tasks 0 and 1 are a read and a write of 4096 bytes.
fn initiator_steps() -> Vec<(&'static str, Vec<u8>)> {
    let pdu = |header: BhsBuilder, data: &[u8]| step(1, 0, &[&header.build()[..], data].concat());
    let data_in = BhsBuilder::new(Opcode::DataIn).initiator_task_tag(0);
    let r2t = BhsBuilder::new(Opcode::ReadyToTransfer).initiator_task_tag(1).target_transfer_tag(5);
    let response = BhsBuilder::new(Opcode::ScsiResponse).initiator_task_tag(1);
    let nop = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(u32::MAX).target_transfer_tag(3);
    let notice = BhsBuilder::new(Opcode::AsyncMessage);
    let reject = BhsBuilder::new(Opcode::Reject).reject_reason(9);
    let rejected = BhsBuilder::new(Opcode::ScsiCommand).build();
    let logout = BhsBuilder::new(Opcode::LogoutResponse);
    let commands = vec![3, 0, 0, 4, 0, 0, 5, 0, 0];
    vec![
        ("read", [commands.clone(), pdu(data_in.is_final(true).has_status(true), &[7; 4096])].concat()),
        (
            "write",
            [
                commands.clone(),
                pdu(r2t.buffer_offset(1024).desired_data_transfer_length(3072), &[]),
                vec![5, 0, 0],
                pdu(response, &[]),
            ]
            .concat(),
        ),
        ("sense", [commands.clone(), pdu(response.status(2), &[0, 2, 0x70, 0])].concat()),
        (
            "requests",
            [commands.clone(), pdu(nop, &[]), vec![6, 0, 0, 7, 0, 0, 5, 0, 0], pdu(reject, &rejected)].concat(),
        ),
        ("leave", [pdu(notice.async_event(1), &[]), vec![5, 0, 0], pdu(logout.initiator_task_tag(0), &[])].concat()),
        ("time", [commands, vec![8, 0x7f, 0xff, 5, 0, 0, 8, 0xff, 0xff]].concat()),
        ("bytes", [step(0, 0, &[0x25; 60]), step(0, 1, &[0; 47]), step(0, 1, &[0xff; 9])].concat()),
    ]
}

/// The payloads as steps of the target `framer`, without the first PDUs.
fn streams(conversation: &Conversation, settings: u8, first_pdu: usize) -> Vec<u8> {
    let first = conversation.pdus[first_pdu].packets[0];
    let mut bytes = vec![settings];
    for packet in conversation.packets[first..].iter().filter(|packet| packet.payload_bytes > 0) {
        bytes.push(u8::from(!packet.to_target));
        bytes.extend_from_slice(&(packet.payload_bytes as u16).to_be_bytes());
        bytes.extend_from_slice(&packet.frame[HEADERS_BYTES..]);
    }
    bytes
}

fn open(path: &Path) -> Result<Capture, Box<dyn Error>> {
    Ok(Capture::open(Box::new(fs::File::open(path)?), &path.display().to_string())?)
}

fn first_packets(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut capture = open(path)?;
    let mut writer = PcapngWriter::new(Vec::new(), "seeds")?;
    let mut counters = Counters::default();
    for number in 0..PACKETS {
        let Some(packet) = capture.next_packet(&mut counters)? else { break };
        if number == 0 {
            writer.add_interface(packet.link_type, 0, "eth0")?;
        }
        let kept = &packet.data[..packet.data.len().min(SNAPLEN)];
        writer.packet(0, packet.time_ns, packet.original_length, kept, None)?;
    }
    Ok(writer.finish()?)
}

/// One packet with payload, as the target `frame` takes it.
fn frame_of(path: &Path) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
    let mut capture = open(path)?;
    let mut counters = Counters::default();
    while let Some(packet) = capture.next_packet(&mut counters)? {
        if packet.data.len() > 100 {
            let mut bytes = vec![0, 0];
            bytes.extend_from_slice(&packet.data[..packet.data.len().min(256)]);
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Steps of the target `endpoint`: an end that sends, one that receives, and both ways to open and to close.
fn endpoint_steps() -> Vec<(&'static str, Vec<u8>)> {
    let steps = |settings: [u8; 2], steps: &[(u8, u16, &[u8])]| {
        let mut bytes = settings.to_vec();
        for &(what, length, payload) in steps {
            bytes.push(what);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(payload);
        }
        bytes
    };
    // flags, place, how far behind in acknowledging, window, options, timestamp, blocks, payload
    let segment = |flags: u8, place: i16, behind: u16, chosen: u8, blocks: &[u16], payload: u16| {
        let mut bytes = vec![flags];
        bytes.extend([place as u16, behind, 60_000].iter().flat_map(|field| field.to_be_bytes()));
        bytes.extend([chosen, 1]);
        bytes.extend(blocks.iter().chain([&payload]).flat_map(|field| field.to_be_bytes()));
        bytes
    };
    let (write, read, wait, wait_long, answer, close) = (6, 8, 9, 10, 11, 13);
    let hole = segment(0, 0, 14_480, 2, &[1448, 2896], 0);
    let late = segment(0, 1448, 0, 0, &[], 1448);
    let first = segment(0, 0, 0, 0, &[], 1448);
    let (fin, reset) = (segment(1, 0, 0, 0, &[], 20), segment(4, 0, 0, 0, &[], 0));
    let (syn, syn_ack) = (segment(2, 0, 0, 0, &[], 0), segment(0x12, 0, 0, 0, &[], 0));
    vec![
        (
            "sends",
            steps(
                [0, 7],
                &[
                    (write, 60_000, &[]),
                    (wait, 160, &[]),
                    (0, hole.len() as u16, &hole),
                    (wait, 160, &[]),
                    (answer, 60_000, &[]),
                    (write, 3000, &[]),
                    (wait_long, 200, &[]),
                    (answer, 0, &[]),
                    (write, 100, &[]),
                    (wait_long, 100, &[]),
                ],
            ),
        ),
        (
            "receives",
            steps(
                [0x80, 7],
                &[
                    (0, late.len() as u16, &late),
                    (0, first.len() as u16, &first),
                    (read, 2000, &[]),
                    (1, late.len() as u16, &late),
                    (wait, 1000, &[]),
                    (read, 9000, &[]),
                    (2, fin.len() as u16, &fin),
                    (close, 0, &[]),
                    (answer, 100, &[]),
                ],
            ),
        ),
        (
            "opens",
            steps(
                [0x80, 0x87],
                &[(4, syn_ack.len() as u16, &syn_ack), (write, 500, &[]), (5, reset.len() as u16, &reset)],
            ),
        ),
        (
            "is_opened",
            steps(
                [2, 0x80],
                &[(4, syn.len() as u16, &syn), (answer, 1000, &[]), (close, 0, &[]), (wait_long, 900, &[])],
            ),
        ),
    ]
}
