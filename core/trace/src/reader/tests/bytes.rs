//! Compressed bytes, bytes that are no capture, readers that fail, and random bytes.

use std::io::Write;

use iscsitrace_wire::capture_writer::PcapWriter;
use iscsitrace_wire::frame::LinkType;
use proptest::prelude::*;

use super::*;

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
fn invalid_captures_are_one_line_errors() {
    let line = |bytes: &[u8]| open(bytes).err().unwrap().to_string();
    assert_eq!(line(b""), "test is empty");
    assert_eq!(
        line(b"hello, world, how are you"),
        "test is not a capture: it starts with 68 65 6c 6c 6f 2c 20 77, which is neither pcap nor pcapng"
    );
    assert!(line(&[&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 40]].concat()).starts_with("test is not a capture: "));
    assert_eq!(line(&written()[..20]), "test is damaged or cut short within its file header");
    assert!(line(&gzip(b"")).ends_with("is empty"));
    assert!(line(&gzip(&written())[..12]).starts_with("cannot read test: "));
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

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
