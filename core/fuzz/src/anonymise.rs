//! A capture, or a small conversation damaged by the input, without its names: every packet is there with its time and
//! length, the output is no larger than the input explains, and of the conversation no name and no data is left.

use std::convert::Infallible;
use std::io::Cursor;

use crate::conversation::{damage, pcapng};
use crate::steps::{conversation, damages};
use iscsitrace_anonymise::{KEY_BYTES, Settings, anonymise};
use iscsitrace_trace::counters::Counters;
use iscsitrace_trace::reader::{Capture, Input};

/// First bytes of gzip, zstd and lz4: a few compressed bytes can be very many packets.
const COMPRESSED: [&[u8]; 3] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], &[0x04, 0x22, 0x4d, 0x18]];
/// Names in the login of the conversation.
const NAMES: [&[u8]; 2] = [b"iqn.2024-01.test:i", b"iqn.2024-01.test:t"];
/// Bytes of the output for each of the input, and others: a record of 12 bytes that counts as a frame is an entry of a
/// journal.
const LARGER_AT_MOST: usize = 16;
const HEADERS_AT_MOST: usize = 4096;
/// Packets whose data is looked for: looking takes longer than everything else.
const DATA_PACKETS: usize = 4;

fn input(bytes: &[u8]) -> Input {
    Input::Reader { name: "fuzz".to_owned(), reader: Box::new(Cursor::new(bytes.to_vec())) }
}

/// Frame, time, link type and lengths of each packet.
fn packets(bytes: &[u8]) -> Vec<(u64, i64, u32, u32, usize)> {
    let Ok(mut capture) = Capture::open(Box::new(Cursor::new(bytes.to_vec())), "fuzz") else { return Vec::new() };
    let mut counters = Counters::default();
    let mut packets = Vec::new();
    while let Ok(Some(packet)) = capture.next_packet(&mut counters) {
        let link_type = u32::from(packet.link_type.0);
        packets.push((packet.frame, packet.time_ns, link_type, packet.original_length, packet.data.len()));
    }
    packets
}

fn without_names(bytes: &[u8]) -> Option<Vec<u8>> {
    let settings =
        Settings { key: [7; KEY_BYTES], keeps_models: false, drops_others: false, application: "fuzz".to_owned() };
    let mut written = Vec::new();
    let outcome = anonymise(|| vec![input(bytes)], &mut written, &settings, |_| Ok::<(), Infallible>(())).ok()?;
    let before = packets(bytes);
    assert_eq!(outcome.packet_count, before.len() as u64);
    assert_eq!(packets(&written), before);
    assert!(written.len() <= LARGER_AT_MOST * bytes.len() + HEADERS_AT_MOST, "{} bytes", written.len());
    Some(written)
}

// | 0 | a capture, or | which | then damages: | what 1 | where 2 | how much 2 |
pub fn run(data: &[u8]) {
    let Some((&which, rest)) = data.split_first() else { return };
    if which == 0 {
        if !COMPRESSED.iter().any(|magic| rest.starts_with(magic)) {
            without_names(rest);
        }
        return;
    }
    let captured = damage(conversation(which), &damages(rest));
    let written = without_names(&pcapng(&captured)).expect("a capture");
    let is_left = |bytes: &[u8]| written.windows(bytes.len()).any(|window| window == bytes);
    for name in NAMES {
        assert!(!is_left(name), "{} is left", String::from_utf8_lossy(name));
    }
    // a run of the noise that data is does not come about by chance
    for packet in captured.iter().filter(|packet| packet.kept_bytes > 1000).take(DATA_PACKETS) {
        assert!(!is_left(&packet.frame[800..808]), "data is left");
    }
}
