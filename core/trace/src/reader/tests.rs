//! Captures built byte by byte, read whole, one byte at a time, and cut at every byte.

use std::io::{self, Cursor, Read, Write};

use iscsitrace_wire::frame::LinkType;
use proptest::prelude::*;

use super::*;
use iscsitrace_wire::capture_writer::{Interface, PcapWriter, PcapngWriter, Section, Statistics};

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
    (packets, capture.info.clone(), counters)
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

#[test]
fn pcap_in_both_byte_orders_with_micro_and_nanoseconds_and_kuznetzovs_header() {
    for numbers in Numbers::BOTH {
        for (magic, extra, nanoseconds) in [(0xa1b2_c3d4, 0, 1000), (0xa1b2_3c4d, 0, 1), (0xa1b2_cd34, 8, 1000)] {
            let header = [numbers.u32(magic), numbers.u16(2), numbers.u16(4)].concat();
            // The upper half of the link type: a frame check sequence of 4 bytes.
            let header = [header, numbers.u32s(&[0, 0, 65_535, 0x4400_0001])].concat();
            let record = |seconds, fraction, original_length, data: &[u8]| {
                let fields = numbers.u32s(&[seconds, fraction, data.len() as u32, original_length]);
                [fields, vec![0xee; extra], data.to_vec()].concat()
            };
            let parts = [header, record(1_700_000_000, 123_456, 99, b"abcde"), record(4_294_967_295, 999_999, 0, b"")];
            let bytes = parts.concat();
            let (packets, info, counters) = read(&bytes);
            assert_eq!(
                packets,
                [
                    kept(1, 1_700_000_000_000_000_000 + 123_456 * nanoseconds, 1, 0, 99, b"abcde"),
                    kept(2, 4_294_967_295_000_000_000 + 999_999 * nanoseconds, 1, 0, 0, b""),
                ],
                "{numbers:?} {magic:x}"
            );
            assert!(counters.sorted().is_empty());
            assert_eq!((info.format, info.snaplen, &info.link_types[..]), ("pcap", 65_535, &[1][..]));
            assert_eq!(info.byte_order, if numbers.is_big { ByteOrder::Big } else { ByteOrder::Little });
            assert_eq!((info.packet_count, info.byte_count, info.captured_byte_count), (2, 99, 5));
            check_every_cut(&bytes, &ends(&parts));
        }
    }
}

#[test]
fn pcapng_blocks_of_every_kind_in_both_byte_orders() {
    for numbers in Numbers::BOTH {
        let comment = |text: &str| numbers.option(1, text.as_bytes());
        let section_options = [
            comment("made by hand"),
            numbers.option(2, b"machine"),
            numbers.option(3, b"system"),
            numbers.option(4, b"program"),
            numbers.option(0, b""),
            numbers.option(4, b"after the end"),
        ]
        .concat();
        let interface_options = [
            numbers.option(2, b"eth0"),
            numbers.option(3, b"first"),
            numbers.option(11, b"\0port 3260"),
            numbers.option(9, &[9]),
            numbers.option(14, &numbers.u64(10)),
            numbers.option(0, b""),
        ]
        .concat();
        let old_packet = [
            numbers.u16(1),
            numbers.u16(7),
            numbers.u32s(&[0, 3_000_000, 3, 60]),
            padded(b"old"),
            comment("an old one"),
        ]
        .concat();
        let parts = [
            numbers.section(&section_options),
            numbers.interface(1, 8, &interface_options),
            numbers.interface(113, 0, &[]),
            numbers.enhanced(0, 5, 1514, b"first", &[comment("look"), numbers.option(0, b"")].concat()),
            numbers.block(4, &[1, 2, 3, 4]),
            numbers.block(0x0bad, &numbers.u32(42)),
            numbers.block(0x1234, b"vendor's"),
            numbers.enhanced(1, 2_000_000, 4, b"four", &[]),
            numbers.block(2, &old_packet),
            numbers.block(3, &[numbers.u32(100), b"snapshot".to_vec()].concat()),
            numbers.block(3, &[numbers.u32(3), padded(b"sml")].concat()),
            numbers.statistics(0, 100, 2),
            numbers.statistics(0, 200, 5),
            numbers.statistics(1, 10, 0),
        ];
        let bytes = parts.concat();
        let (packets, info, counters) = read(&bytes);
        assert_eq!(
            packets,
            [
                kept(1, 10_000_000_005, 1, 0, 1514, b"first"),
                // Wireshark gives the custom block number 2.
                kept(3, 2_000_000_000, 113, 1, 4, b"four"),
                kept(4, 3_000_000_000, 113, 1, 60, b"old"),
                kept(5, 3_000_000_000, 1, 0, 100, b"snapshot"),
                kept(6, 3_000_000_000, 1, 0, 3, b"sml"),
            ]
        );
        let of_capture = |counter, count, first_frame| (counter, None, crate::counters::Tally { count, first_frame });
        assert_eq!(
            counters.sorted(),
            [of_capture(Counter::BlockUnknown, 1, 2), of_capture(Counter::DroppedByCapture, 5, 6)],
            "statistics are running totals: the last one counts"
        );
        assert_eq!(info.comments, ["made by hand", "look", "an old one"]);
        assert_eq!(info.hardware.as_deref(), Some("machine"));
        assert_eq!(info.operating_system.as_deref(), Some("system"));
        assert_eq!(info.application.as_deref(), Some("program"));
        assert_eq!(
            info.interfaces,
            [
                InterfaceInfo {
                    name: Some("eth0".into()),
                    description: Some("first".into()),
                    filter: Some("port 3260".into()),
                    link_type: 1,
                    snaplen: 8,
                    time_resolution: TimeResolution::Decimal(9),
                    time_offset_s: 10,
                    received_count: Some(200),
                    dropped_count: Some(5),
                },
                InterfaceInfo {
                    link_type: 113,
                    received_count: Some(10),
                    dropped_count: Some(0),
                    ..InterfaceInfo::default()
                },
            ]
        );
        assert_eq!((info.format, &info.link_types[..]), ("pcapng", &[1, 113][..]));
        assert_eq!((info.time_first_ns, info.time_last_ns), (Some(2_000_000_000), Some(10_000_000_005)));
        check_every_cut(&bytes, &ends(&parts));
    }
}

#[test]
fn sections_have_byte_order_and_interfaces_of_their_own() {
    let [little, big] = Numbers::BOTH;
    let bytes = [
        little.section(&[]),
        little.interface(1, 0, &[]),
        little.enhanced(0, 1, 1, b"a", &[]),
        little.statistics(0, 1, 3),
        big.section(&[]),
        big.interface(101, 0, &[]),
        big.enhanced(0, 2, 1, b"b", &[]),
        big.enhanced(1, 2, 1, b"c", &[]),
        big.enhanced(0, 3, 1, b"d", &[]),
        big.statistics(0, 1, 4),
    ]
    .concat();
    let (packets, info, counters) = read(&bytes);
    assert_eq!(packets, [kept(1, 1000, 1, 0, 1, b"a"), kept(2, 2000, 101, 1, 1, b"b"), kept(3, 3000, 101, 1, 1, b"d")]);
    assert_eq!(counters.total(Counter::InterfaceUnknown), 1);
    assert_eq!(counters.total(Counter::DroppedByCapture), 7);
    assert_eq!(info.link_types, [1, 101]);
}

#[test]
fn clocks_of_every_resolution() {
    let numbers = Numbers { is_big: false };
    for (resolution, offset_s, ticks, time_ns) in [
        (0, 0_i64, 1_700_000_000, 1_700_000_000_000_000_000),
        (3, 0, 1_234, 1_234_000_000),
        (6, -1, 1_500_000, 500_000_000),
        (9, 0, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        (12, 0, 1_999, 1),
        (12, 1, 5_000, 1_000_000_005),
        // 2^-10: 1536 ticks are one and a half seconds.
        (0x8a, 0, 1536, 1_500_000_000),
        (0xff, 0, u64::MAX, 0),
        (0x7f, 0, u64::MAX, 0),
        (0, 0, u64::MAX, i64::MAX),
        (6, i64::MIN, 0, i64::MIN),
    ] {
        let options = [numbers.option(9, &[resolution]), numbers.option(14, &numbers.u64(offset_s as u64))].concat();
        let bytes =
            [numbers.section(&[]), numbers.interface(1, 0, &options), numbers.enhanced(0, ticks, 0, b"", &[])].concat();
        assert_eq!(read(&bytes).0, [kept(1, time_ns, 1, 0, 0, b"")], "resolution {resolution:#x} offset {offset_s}");
    }
}

#[test]
fn lengths_that_cannot_be_true_end_the_file_and_are_counted() {
    let numbers = Numbers { is_big: false };
    let start = [numbers.section(&[]), numbers.interface(1, 0, &[]), numbers.enhanced(0, 1, 1, b"a", &[])].concat();
    let good = numbers.enhanced(0, 2, 4, b"good", &[]);
    let with = |at: usize, value: u32| {
        let mut block = good.clone();
        block[at..at + 4].copy_from_slice(&value.to_le_bytes());
        block
    };
    let last = good.len() - 4;
    for (what, block) in [
        ("total length below the least", with(4, 28)),
        ("no multiple of 4", with(4, 38)),
        ("total length 0", with(4, 0)),
        ("larger than any packet", with(4, (64 << 20) + 4)),
        ("the two lengths differ", with(last, 40)),
        ("captured length beyond the block", with(20, 5)),
        ("captured length beyond everything", with(20, u32::MAX)),
        ("a section without a byte order mark", numbers.block(0x0a0d_0d0a, &[0; 16])),
        ("a skipped block with two lengths", {
            let mut block = numbers.block(4, &[0; 8]);
            block[16] = 0;
            block
        }),
    ] {
        let (packets, info, counters) = read(&[start.clone(), block, good.clone()].concat());
        assert_eq!(packets, [kept(1, 1000, 1, 0, 1, b"a")], "{what}");
        assert_eq!(counters.total(Counter::RecordInvalid), 1, "{what}");
        assert!(info.is_cut_short, "{what}");
    }

    let mut pcap = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 0, true).unwrap();
    pcap.packet(7, 1, b"a").unwrap();
    let mut bytes = pcap.finish().unwrap();
    bytes.extend(numbers.u32s(&[0, 0, (64 << 20) + 1, 0]));
    let (packets, _, counters) = read(&bytes);
    assert_eq!(packets, [kept(1, 7, 1, 0, 1, b"a")]);
    assert_eq!(counters.total(Counter::RecordInvalid), 1);
}

#[test]
fn long_blocks_without_packets_are_passed_over_and_long_packets_delivered() {
    let numbers = Numbers { is_big: false };
    let long = vec![0x5a; 3 << 20];
    let bytes = [
        numbers.section(&[]),
        numbers.interface(1, 0, &[]),
        numbers.block(10, &vec![1; 70 << 20]),
        numbers.enhanced(0, 1, long.len() as u32, &long, &[]),
        numbers.enhanced(0, 2, 1, b"a", &[]),
    ]
    .concat();
    let (packets, _, counters) = drain(open(&bytes).unwrap());
    assert_eq!(packets.len(), 2);
    assert!(packets[0].data == long);
    assert_eq!(packets[1].data, b"a");
    assert!(counters.sorted().is_empty());
}

#[test]
fn comments_are_bounded() {
    let numbers = Numbers { is_big: false };
    let comment = numbers.option(1, &[b'x'; 5000]);
    let mut bytes = [numbers.section(&[]), numbers.interface(1, 0, &[])].concat();
    for _ in 0..100 {
        bytes.extend(numbers.enhanced(0, 1, 1, b"a", &comment));
    }
    let (packets, info, _) = drain(open(&bytes).unwrap());
    assert_eq!(packets.len(), 100);
    assert_eq!(info.comments.len(), 64);
    assert!(info.comments.iter().all(|comment| comment.len() == 4096));
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

#[test]
fn what_is_said_of_a_capture_is_read() {
    let section =
        Section { hardware: "a machine", operating_system: "Linux", application: "iscsitrace", comment: "why" };
    let mut writer = PcapngWriter::with_section(Vec::new(), &section).unwrap();
    let fine = Interface { name: "eth0", description: "storage", filter: "tcp port 3260", is_in_microseconds: false };
    let coarse = Interface { name: "usb0", is_in_microseconds: true, ..Interface::default() };
    for (number, interface) in [fine, coarse].iter().enumerate() {
        assert_eq!(writer.describe_interface(LinkType::ETHERNET, 200, interface).unwrap(), number as u32);
        for length in 0..5 {
            writer.packet(number as u32, 7_000_123_456_789, 60, &[7; 8][..length], Some("slow")).unwrap();
        }
    }
    assert!(writer.packet(2, 1, 60, &[], None).is_err());
    let statistics = Statistics {
        time_ns: 9_000_000_000_000,
        received_count: 12,
        dropped_count: 2,
        delivered_count: 10,
        comment: "the end",
        ..Statistics::default()
    };
    (0..2).for_each(|number| writer.counted(number, &statistics).unwrap());
    let (packets, info, counters) = read(&writer.finish().unwrap());
    let times: Vec<i64> = packets.iter().map(|packet| packet.time_ns).collect();
    assert_eq!(times, [[7_000_123_456_789; 5], [7_000_123_456_000; 5]].concat());
    assert_eq!(packets.iter().map(|packet| packet.data.len()).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    assert_eq!(
        info.comments,
        ["why", "slow", "slow", "slow", "slow", "slow", "slow", "slow", "slow", "slow", "slow", "the end", "the end"]
    );
    let said = [info.hardware.as_deref(), info.operating_system.as_deref(), info.application.as_deref()];
    assert_eq!(said, [Some("a machine"), Some("Linux"), Some("iscsitrace")]);
    let [fine, coarse] = info.interfaces.as_slice() else { panic!("two interfaces") };
    assert_eq!((fine.name.as_deref(), fine.description.as_deref()), (Some("eth0"), Some("storage")));
    assert_eq!((fine.filter.as_deref(), fine.snaplen), (Some("tcp port 3260"), 200));
    assert_eq!((fine.received_count, fine.dropped_count), (Some(12), Some(2)));
    assert_eq!(
        [fine.time_resolution, coarse.time_resolution],
        [TimeResolution::Decimal(9), TimeResolution::Decimal(6)]
    );
    assert_eq!((coarse.description.as_deref(), coarse.filter.as_deref()), (None, None));
    assert_eq!(counters.total(Counter::DroppedByCapture), 4);
}

#[test]
fn what_is_written_is_read() {
    let (packets, info, counters) = read(&written());
    assert_eq!(packets.len(), 50);
    for (n, packet) in (0..50_u32).zip(&packets) {
        let data: Vec<u8> = (0..n * 7 % 61).map(|byte| (byte * n) as u8).collect();
        let link_type = [1, 276][n as usize % 2];
        assert_eq!(*packet, kept(u64::from(n) + 1, 1_000 + i64::from(n), link_type, n % 2, n + 100, &data));
    }
    assert_eq!(counters.total(Counter::DroppedByCapture), 6);
    assert_eq!(info.comments.len(), 5);
    assert_eq!(info.interfaces[1].name.as_deref(), Some("any"));
    assert_eq!(written(), written());

    for (has_nanoseconds, time_ns) in [(true, 1_700_000_000_123_456_789), (false, 1_700_000_000_123_456_000)] {
        let mut writer = PcapWriter::new(Vec::new(), LinkType::RAW, 128, has_nanoseconds).unwrap();
        writer.packet(1_700_000_000_123_456_789, 9, b"abc").unwrap();
        assert!(writer.packet(-1, 9, b"abc").is_err());
        let (packets, info, _) = read(&writer.finish().unwrap());
        assert_eq!(packets, [kept(1, time_ns, 101, 0, 9, b"abc")]);
        assert_eq!(info.snaplen, 128);
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_captures_read_the_same_and_a_cut_is_counted() {
    // Several blocks of each method, and bytes that do not shrink.
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 0, true).unwrap();
    for n in 0..6_000_u32 {
        let data: Vec<u8> = (n..n + 100).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        writer.packet(n.into(), 1514, &data).unwrap();
    }
    let plain = writer.finish().unwrap();
    let (expected, ..) = drain(open(&plain).unwrap());
    assert_eq!(expected.len(), 6_000);
    let blocks = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
    let mut lz4 = lz4_flex::frame::FrameEncoder::with_frame_info(blocks, Vec::new());
    lz4.write_all(&plain).unwrap();
    for (compression, bytes) in [
        ("gzip", gzip(&plain)),
        ("zstd", zstd::encode_all(&plain[..], 1).unwrap()),
        ("lz4", lz4.finish().unwrap()),
        ("gzip+gzip", gzip(&gzip(&plain))),
    ] {
        let (packets, info, counters) = read(&bytes);
        assert_eq!(info.compression.as_deref(), Some(compression));
        assert!(packets == expected, "{compression}");
        assert!(counters.sorted().is_empty(), "{compression}");
        let mut partial_count = 0;
        for cut in (0..bytes.len()).step_by(bytes.len() / 40).chain(bytes.len() - 4..bytes.len()) {
            // Too little to find the file header in is an error; anything more is a shorter capture.
            let Ok(capture) = open(&bytes[..cut]) else { continue };
            let (packets, info, counters) = drain(capture);
            assert!(expected.starts_with(&packets), "{compression} cut at {cut}");
            assert_eq!(counters.total(Counter::CompressionCutShort), 1, "{compression} cut at {cut}");
            assert_eq!(counters.total(Counter::RecordCutShort), 0, "{compression} cut at {cut}");
            assert!(info.is_cut_short);
            partial_count += u32::from(!packets.is_empty() && packets.len() < expected.len());
        }
        assert!(partial_count > 0, "{compression}");
    }
}

#[test]
fn inputs_that_are_no_capture_give_one_line() {
    let line = |bytes: &[u8]| open(bytes).err().unwrap().to_string();
    assert_eq!(line(b""), "test is empty");
    assert_eq!(
        line(b"hello, world, how are you"),
        "test is not a capture: neither pcap nor pcapng begins with 68 65 6c 6c 6f 2c 20 77"
    );
    assert!(line(&[&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 40]].concat()).starts_with("test is not a capture: "));
    assert_eq!(line(&written()[..20]), "test is damaged or cut short within its file header");
    assert!(line(&gzip(b"")).ends_with("is empty"));
    assert!(line(&gzip(&written())[..12]).starts_with("cannot read test: "));
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

#[test]
fn a_reader_that_fails_in_the_middle_is_an_error_after_the_packets_before() {
    let mut counters = Counters::default();
    let mut capture = Capture::open(Box::new(Failing(Cursor::new(written()))), "test").unwrap();
    for _ in 0..50 {
        assert!(capture.next_packet(&mut counters).unwrap().is_some());
    }
    assert_eq!(capture.next_packet(&mut counters).unwrap_err().to_string(), "cannot read test: the disk is gone");
    assert!(capture.next_packet(&mut counters).unwrap().is_none());
}

/// A file of its own that goes away with the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("iscsitrace-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, times_ns: &[i64]) -> Input {
        let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 0, true).unwrap();
        for &time_ns in times_ns {
            writer.packet(time_ns, 1, b"a").unwrap();
        }
        let path = self.0.join(name);
        std::fs::write(&path, writer.finish().unwrap()).unwrap();
        Input::Path(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn frames(inputs: Vec<Input>) -> (Vec<(u64, i64)>, Vec<String>, Counters) {
    let mut counters = Counters::default();
    let mut sequence = Sequence::open(inputs, &mut counters).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = sequence.next_packet(&mut counters).unwrap() {
        frames.push((packet.frame, packet.time_ns));
    }
    let names = sequence.infos().map(|info| info.name.rsplit('/').next().unwrap().to_owned()).collect();
    let progress = sequence.progress();
    if let Some(bytes_total) = progress.bytes_total {
        assert_eq!(progress.bytes_read(), bytes_total);
    }
    (frames, names, counters)
}

#[test]
fn files_are_one_stream_in_order_of_time() {
    let folder = Folder::new("ring");
    let late = folder.file("a-late", &[50, 60]);
    let early = folder.file("b-early", &[10, 20, 15]);
    let none = folder.file("c-none", &[]);
    let middle = folder.file("d-middle", &[30]);
    let (frames, names, counters) = frames(vec![late, early, none, middle]);
    assert_eq!(frames, [(1, 10), (2, 20), (3, 15), (4, 30), (5, 50), (6, 60)]);
    assert_eq!(names, ["c-none", "b-early", "d-middle", "a-late"]);
    assert_eq!(counters.total(Counter::TimeRunsBackwards), 1);
}

#[test]
fn inputs_that_can_be_read_once_keep_their_place() {
    let folder = Folder::new("once");
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 0, true).unwrap();
    writer.packet(40, 1, b"a").unwrap();
    let reader = Input::Reader { name: "pipe".into(), reader: Box::new(Cursor::new(writer.finish().unwrap())) };
    let (frames, names, counters) = frames(vec![reader, folder.file("file", &[30])]);
    assert_eq!(frames, [(1, 40), (2, 30)]);
    assert_eq!(names, ["pipe", "file"]);
    assert_eq!(counters.total(Counter::TimeRunsBackwards), 1);
}

#[test]
fn a_missing_file_and_a_folder_are_unreadable() {
    let folder = Folder::new("missing");
    for path in [folder.0.join("nothing.pcap"), folder.0.clone()] {
        let error = Sequence::open(vec![Input::Path(path.clone())], &mut Counters::default()).err().unwrap();
        assert!(error.to_string().starts_with(&format!("cannot read {}: ", path.display())), "{error}");
    }
}

#[test]
fn files_without_anything_in_them_are_counted_beside_others() {
    let folder = Folder::new("nothing-yet");
    let bytes = |name: &str, bytes: &[u8]| {
        let path = folder.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        Input::Path(path)
    };
    let full = [folder.file("a", &[10, 20]), folder.file("b", &[30])];
    let [first, second] = full;
    let (frames, names, counters) = frames(vec![first, bytes("empty", b""), second, bytes("cut", &written()[..20])]);
    assert_eq!(frames, [(1, 10), (2, 20), (3, 30)]);
    assert_eq!(names, ["empty", "cut", "a", "b"]);
    assert_eq!(counters.total(Counter::InputEmpty), 2);
    let all = vec![bytes("empty", b""), bytes("none", b"")];
    let error = Sequence::open(all, &mut Counters::default()).err().unwrap().to_string();
    assert_eq!(error, format!("{} is empty", folder.0.join("empty").display()));
}

#[test]
fn what_is_no_capture_is_an_error_before_the_first_packet() {
    let folder = Folder::new("wrong");
    let path = folder.0.join("notes.txt");
    std::fs::write(&path, "notes about the captures").unwrap();
    let pipe = || Input::Reader { name: "pipe".into(), reader: Box::new(Cursor::new(written())) };
    for (wrong, message) in [
        (path, "notes.txt is not a capture"),
        (folder.0.join("nothing.pcap"), "nothing.pcap: No such file"),
        (folder.0.clone(), ": is a directory"),
    ] {
        for first in [folder.file("a", &[10]), pipe()] {
            let inputs = vec![first, Input::Path(wrong.clone())];
            let error = Sequence::open(inputs, &mut Counters::default()).err().unwrap().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}

#[test]
fn an_input_that_fails_later_is_counted_and_the_next_one_follows() {
    let folder = Folder::new("fails");
    let failing = || Input::Reader { name: "pipe".into(), reader: Box::new(Failing(Cursor::new(written()))) };
    let (packets, names, counters) = frames(vec![failing(), folder.file("next", &[i64::MAX >> 8])]);
    assert_eq!(packets.len(), 51);
    assert_eq!(packets[50], (51, i64::MAX >> 8));
    assert_eq!(names, ["pipe", "next"]);
    let found = counters.sorted();
    let unreadable: Vec<_> = found.iter().filter(|(counter, ..)| *counter == Counter::InputUnreadable).collect();
    assert_eq!(unreadable.len(), 1);
    assert_eq!((unreadable[0].2.count, unreadable[0].2.first_frame), (1, 50));
    // with nothing read before, it is an error
    let header =
        Input::Reader { name: "pipe".into(), reader: Box::new(Failing(Cursor::new(written()[..24].to_vec()))) };
    let mut counters = Counters::default();
    let mut sequence = Sequence::open(vec![header], &mut counters).unwrap();
    assert!(sequence.next_packet(&mut counters).is_err());
}

/// Ethernet, IPv4, TCP from port 3260.
fn iscsi_frame() -> Vec<u8> {
    let mut frame = vec![0; 54];
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    frame[34..38].copy_from_slice(&[0x0c, 0xbc, 0x80, 0]);
    frame[46] = 0x50;
    frame
}

#[test]
fn filters_match_on_each_link_type() {
    let frame = iscsi_frame();
    let cooked = [&[0; 14][..], &[8, 0], &frame[14..]].concat();
    let mut filter = Filter::new("port 3260").unwrap();
    assert!(filter.matches(LinkType::ETHERNET, &frame));
    assert!(filter.matches(LinkType::RAW, &frame[14..]));
    assert!(filter.matches(LinkType::LINUX_SLL, &cooked));
    assert!(!filter.matches(LinkType::RAW, &frame));
    assert!(!filter.matches(LinkType::ETHERNET, &frame[..20]), "too short to tell is no match");
    assert!(!filter.matches(LinkType::ETHERNET, b""));
    let mut other = Filter::new("tcp port 860").unwrap();
    assert!(!other.matches(LinkType::ETHERNET, &frame));
}

#[test]
fn a_bad_filter_gives_libpcaps_message() {
    for expression in ["port", "port 3260 and", "nonsense \0", "port 99999"] {
        let error = Filter::new(expression).err().unwrap().to_string();
        assert!(error.starts_with(&format!("capture filter '{expression}': ")), "{error}");
        assert!(!error.contains('\n'));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes_never_panic(start in 0..8_usize, tail in proptest::collection::vec(any::<u8>(), 0..400)) {
        let starts: [&[u8]; 8] = [
            b"", &[0xd4, 0xc3, 0xb2, 0xa1], &[0xa1, 0xb2, 0xcd, 0x34], &[0x0a, 0x0d, 0x0d, 0x0a],
            &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0,
              0, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0],
            &[0x1f, 0x8b, 8], &[0x28, 0xb5, 0x2f, 0xfd], &[0x04, 0x22, 0x4d, 0x18],
        ];
        if let Ok(capture) = open(&[starts[start], &tail].concat()) {
            drain(capture);
        }
    }

    #[test]
    fn damaged_captures_never_panic(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        compression in 0..4,
    ) {
        let mut bytes = written();
        if compression == 1 {
            bytes = gzip(&bytes);
        } else if compression == 2 {
            bytes = zstd::encode_all(&bytes[..], 1).unwrap();
        } else if compression == 3 {
            let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
            lz4.write_all(&bytes).unwrap();
            bytes = lz4.finish().unwrap();
        }
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(capture) = open(&bytes) {
            drain(capture);
        }
    }
}
