//! Writes the seeds of every fuzz target: `seeds CORPUS CAPTURE...`; of the captures, the first packets, cut.
//!
//! It builds everything else with the same builder as the tests. It never writes outside CORPUS.

#[path = "../trace/tests/conversation/mod.rs"]
mod conversation;

use std::error::Error;
use std::fs;
use std::path::Path;

use conversation::{Conversation, HEADERS_BYTES, Script, Settings, damage, pcapng};
use iscsitrace_trace::capture::Capture;
use iscsitrace_wire::capture_writer::PcapngWriter;
use iscsitrace_trace::counters::Counters;

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
        write("framer", &format!("{name}_from_login"), &streams(&conversation, 1, 0))?;
        // without the login, with what it would have said
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
    for which in 0..8u8 {
        let steps = [[0, 0, 20, 0, 3], [1, 0, 30, 0, 9], [2, 0, 40, 0, 5], [3, 0, 50, 0, 60], [4, 0, 60, 0, 77]];
        let mut bytes = vec![which];
        bytes.extend(steps.iter().skip(usize::from(which) % 4).flatten());
        write("packets", &format!("conversation{which}"), &bytes)?;
    }
    for path in arguments {
        let path = Path::new(&path);
        let name = path.file_name().and_then(|name| name.to_str()).ok_or("a capture without a name")?;
        let name = name.split('.').next().unwrap_or(name);
        let file = first_packets(path)?;
        write("capture", &format!("{name}.pcapng"), &file)?;
        write("pipeline", &format!("{name}.pcapng"), &file)?;
        if let Some(frame) = frame_of(path)? {
            write("frame", name, &frame)?;
        }
    }
    Ok(())
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
