//! Captures built byte by byte, read whole, one byte at a time, and cut at every byte.

mod bytes;
mod filter;
mod formats;
mod sequence;

use std::io::{self, Cursor, Read};

use iscsitrace_wire::capture_writer::PcapngWriter;
use iscsitrace_wire::frame::LinkType;

use super::*;
use crate::counters::{Counter, Counters};

/// What a test expects of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    frame: u64,
    time_ns: i64,
    link_type: u16,
    interface: u32,
    original_length: u32,
    data: Vec<u8>,
}

fn kept(frame: u64, time_ns: i64, link_type: u16, interface: u32, original_length: u32, data: &[u8]) -> Kept {
    Kept { frame, time_ns, link_type, interface, original_length, data: data.to_vec() }
}

/// One byte a read.
struct OneByOne(Cursor<Vec<u8>>);

impl Read for OneByOne {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(1);
        self.0.read(&mut buffer[..room])
    }
}

/// Fails after the bytes it has.
struct Failing(Cursor<Vec<u8>>);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is gone")),
            count => Ok(count),
        }
    }
}

fn drain(mut capture: Capture) -> (Vec<Kept>, CaptureInfo, Counters) {
    let mut counters = Counters::default();
    let mut packets = Vec::new();
    while let Some(packet) = capture.next_packet(&mut counters).unwrap() {
        packets.push(kept(
            packet.frame,
            packet.time_ns,
            packet.link_type.0,
            packet.interface,
            packet.original_length,
            packet.data,
        ));
    }
    assert!(capture.next_packet(&mut counters).unwrap().is_none(), "the end is the end");
    (packets, capture.info().clone(), counters)
}

fn open(bytes: &[u8]) -> Result<Capture, CaptureError> {
    Capture::open(Box::new(Cursor::new(bytes.to_vec())), "test")
}

/// Reads whole and byte by byte, which must agree.
fn read(bytes: &[u8]) -> (Vec<Kept>, CaptureInfo, Counters) {
    let whole = drain(open(bytes).unwrap());
    let byte_by_byte = drain(Capture::open(Box::new(OneByOne(Cursor::new(bytes.to_vec()))), "test").unwrap());
    assert_eq!(whole.0, byte_by_byte.0);
    assert_eq!(whole.1, byte_by_byte.1);
    assert_eq!(whole.2.sorted(), byte_by_byte.2.sorted());
    whole
}

/// Cuts at every byte: what is delivered are the first packets, unchanged, and a cut inside a record is counted.
fn check_every_cut(bytes: &[u8], ends_of_records: &[usize]) {
    let (all, ..) = read(bytes);
    for cut in 0..bytes.len() {
        match open(&bytes[..cut]) {
            Ok(capture) => {
                let (packets, info, counters) = drain(capture);
                assert!(all.starts_with(&packets), "cut at {cut}");
                let is_clean = ends_of_records.contains(&cut);
                assert_eq!(counters.total(Counter::RecordCutShort), u64::from(!is_clean), "cut at {cut}");
                assert_eq!(counters.total(Counter::RecordInvalid), 0, "cut at {cut}");
                assert_eq!(info.is_cut_short, !is_clean, "cut at {cut}");
            }
            Err(CaptureError::Empty { .. }) => assert_eq!(cut, 0),
            Err(CaptureError::NotACapture { .. }) => assert!(cut < 4, "cut at {cut}"),
            Err(CaptureError::HeaderDamaged { .. }) => assert!(cut < 24, "cut at {cut}"),
            Err(error) => panic!("cut at {cut}: {error}"),
        }
    }
}

/// Numbers in the byte order of a test.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    is_big: bool,
}

impl Numbers {
    const BOTH: [Self; 2] = [Self { is_big: false }, Self { is_big: true }];

    fn u16(self, value: u16) -> Vec<u8> {
        if self.is_big { value.to_be_bytes().to_vec() } else { value.to_le_bytes().to_vec() }
    }

    fn u32(self, value: u32) -> Vec<u8> {
        if self.is_big { value.to_be_bytes().to_vec() } else { value.to_le_bytes().to_vec() }
    }

    fn u64(self, value: u64) -> Vec<u8> {
        if self.is_big { value.to_be_bytes().to_vec() } else { value.to_le_bytes().to_vec() }
    }

    fn u32s(self, values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|&value| self.u32(value)).collect()
    }

    fn block(self, block_type: u32, body: &[u8]) -> Vec<u8> {
        let body = padded(body);
        let length = self.u32(12 + body.len() as u32);
        [self.u32(block_type), length.clone(), body, length].concat()
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        [self.u16(code), self.u16(value.len() as u16), padded(value)].concat()
    }

    fn section(self, options: &[u8]) -> Vec<u8> {
        let body = [self.u32(0x1a2b_3c4d), self.u16(1), self.u16(0), vec![0xff; 8], options.to_vec()].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    fn interface(self, link_type: u16, snaplen: u32, options: &[u8]) -> Vec<u8> {
        self.block(1, &[self.u16(link_type), self.u16(0), self.u32(snaplen), options.to_vec()].concat())
    }

    fn enhanced(self, interface: u32, ticks: u64, original_length: u32, data: &[u8], options: &[u8]) -> Vec<u8> {
        let fields = self.u32s(&[interface, (ticks >> 32) as u32, ticks as u32, data.len() as u32, original_length]);
        self.block(6, &[fields, padded(data), options.to_vec()].concat())
    }

    fn statistics(self, interface: u32, received_count: u64, dropped_count: u64) -> Vec<u8> {
        let options = [self.option(4, &self.u64(received_count)), self.option(5, &self.u64(dropped_count))].concat();
        self.block(5, &[self.u32s(&[interface, 0, 0]), options].concat())
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Where each part ends, from the first on.
fn ends(parts: &[Vec<u8>]) -> Vec<usize> {
    parts
        .iter()
        .scan(0, |at, part| {
            *at += part.len();
            Some(*at)
        })
        .collect()
}
fn written() -> Vec<u8> {
    let mut writer = PcapngWriter::new(Vec::new(), "test").unwrap();
    let eth = writer.add_interface(LinkType::ETHERNET, 0, "eth0").unwrap();
    let any = writer.add_interface(LinkType::LINUX_SLL2, 96, "any").unwrap();
    for n in 0..50_u32 {
        let data: Vec<u8> = (0..n * 7 % 61).map(|byte| (byte * n) as u8).collect();
        let comment = (n % 10 == 3).then_some("three");
        writer.packet([eth, any][n as usize % 2], 1_000 + i64::from(n), n + 100, &data, comment).unwrap();
    }
    writer.statistics(eth, 2_000, 25, 6).unwrap();
    writer.finish().unwrap()
}
