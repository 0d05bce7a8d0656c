//! Arbitrary bytes as a capture file: read whole and byte by byte; unless compressed, both give the same packets.

use std::io::{self, Cursor, Read};

use iscsitrace_trace::counters::Counters;
use iscsitrace_trace::reader::Capture;

/// A few compressed bytes can be very many packets.
const PACKETS_MAX: u64 = 1 << 12;

/// First bytes of gzip, zstd and lz4.
const COMPRESSED: [&[u8]; 3] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], &[0x04, 0x22, 0x4d, 0x18]];

/// Returns one byte per call.
struct ByteByByte(Cursor<Vec<u8>>);

impl Read for ByteByByte {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(1);
        self.0.read(&mut buffer[..length])
    }
}

/// The packets of a capture: frame, time, link type, interface, lengths and bytes; and the counters.
fn read(reader: Box<dyn Read + Send>) -> Option<(Vec<String>, String)> {
    let mut capture = Capture::open(reader, "fuzz").ok()?;
    let mut counters = Counters::default();
    let mut packets = Vec::new();
    let mut frame = 0;
    while let Ok(Some(packet)) = capture.next_packet(&mut counters) {
        // blocks without a packet and packets of implausible times have frame numbers, too
        assert!(packet.frame > frame);
        frame = packet.frame;
        let bytes = packet.data;
        packets.push(format!(
            "{frame} {} {:?} {} {} {} {:?}",
            packet.time_ns,
            packet.link_type,
            packet.interface,
            packet.original_length,
            bytes.len(),
            &bytes[..bytes.len().min(64)],
        ));
        if frame >= PACKETS_MAX {
            break;
        }
    }
    assert_eq!(capture.info().packet_count, packets.len() as u64);
    Some((packets, format!("{:?}", counters.sorted())))
}

pub fn run(data: &[u8]) {
    let whole = read(Box::new(Cursor::new(data.to_vec())));
    let byte_by_byte = read(Box::new(ByteByByte(Cursor::new(data.to_vec()))));
    // how far a decompressor gets before damage depends on the size of its input
    if !COMPRESSED.iter().any(|magic| data.starts_with(magic)) {
        assert_eq!(whole, byte_by_byte);
    }
}
