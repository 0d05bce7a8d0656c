//! pcap and pcapng in both byte orders.

use iscsitrace_wire::capture_writer::{Interface, PcapWriter, PcapngWriter, Section, Statistics};
use iscsitrace_wire::frame::LinkType;

use super::*;

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
fn sections_have_separate_byte_orders_and_interfaces() {
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
    ] {
        let options = [numbers.option(9, &[resolution]), numbers.option(14, &numbers.u64(offset_s as u64))].concat();
        let bytes =
            [numbers.section(&[]), numbers.interface(1, 0, &options), numbers.enhanced(0, ticks, 0, b"", &[])].concat();
        assert_eq!(read(&bytes).0, [kept(1, time_ns, 1, 0, 0, b"")], "resolution {resolution:#x} offset {offset_s}");
    }
}

#[test]
fn packets_of_implausible_times_are_left_out_and_keep_their_frame_number() {
    let numbers = Numbers { is_big: false };
    let last_ns = (1_i64 << 32) * 1_000_000_000 - 1;
    for (resolution, offset_s, ticks, is_plausible) in [
        (9, 0_i64, 0, true),
        (9, 0, last_ns as u64, true),
        (9, 0, last_ns as u64 + 1, false),
        (9, -1, 999_999_999, false),
        (9, -1, 1_000_000_000, true),
        // further than an i64 of nanoseconds reaches, either way
        (0, 0, u64::MAX, false),
        (0, 100_000_000_000, 1_700_000_000, false),
        (6, i64::MIN, 0, false),
    ] {
        let options = [numbers.option(9, &[resolution]), numbers.option(14, &numbers.u64(offset_s as u64))].concat();
        let bytes = [
            numbers.section(&[]),
            numbers.interface(1, 0, &numbers.option(9, &[9])),
            numbers.interface(1, 0, &options),
            numbers.enhanced(0, 7, 0, b"", &[]),
            numbers.enhanced(1, ticks, 0, b"", &[]),
            // without a time of its own: that of the last packet that has one
            numbers.block(3, &numbers.u32(0)),
        ]
        .concat();
        let (packets, info, counters) = read(&bytes);
        let case = format!("resolution {resolution} offset {offset_s} ticks {ticks}");
        let frames: Vec<u64> = packets.iter().map(|packet| packet.frame).collect();
        assert_eq!(frames, if is_plausible { vec![1, 2, 3] } else { vec![1, 3] }, "{case}");
        assert_eq!(counters.total(Counter::TimeImplausible), u64::from(!is_plausible), "{case}");
        assert_eq!(info.packet_count, packets.len() as u64, "{case}");
        if !is_plausible {
            assert_eq!(packets[1].time_ns, 7, "{case}");
            assert_eq!((info.time_first_ns, info.time_last_ns), (Some(7), Some(7)), "{case}");
        }
    }
}

#[test]
fn impossible_lengths_end_the_file_and_are_counted() {
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
fn long_blocks_without_packets_are_skipped_and_long_packets_delivered() {
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

#[test]
fn metadata_of_a_capture_is_read() {
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
fn the_frame_after_the_next_is_known_if_it_is_in_memory() {
    let mut pcap = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 0, true).unwrap();
    (1..=3_u8).for_each(|n| pcap.packet(n.into(), 60, &[n; 20]).unwrap());
    let mut captures = vec![pcap.finish().unwrap()];
    for numbers in Numbers::BOTH {
        let blocks = (1..=3_u8).flat_map(|n| numbers.enhanced(0, n.into(), 60, &[n; 20], &[]));
        captures
            .push([numbers.section(&[]), numbers.interface(1, 0, &[])].concat().into_iter().chain(blocks).collect());
    }
    for bytes in captures {
        let (mut capture, mut counters) = (open(&bytes).unwrap(), Counters::default());
        let mut found = Vec::new();
        while capture.next_packet(&mut counters).unwrap().is_some() {
            found.push(capture.after_next().to_vec());
        }
        assert_eq!(found, [vec![3; 20], vec![], vec![]]);
    }
}

#[test]
fn written_captures_are_read_back() {
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

#[test]
fn samples_of_tcp_info_are_frames_and_kept_only_if_they_are_wanted() {
    let mut writer = PcapngWriter::new(Vec::new(), "test").unwrap();
    writer.add_interface(LinkType::ETHERNET, 0, "eth0").unwrap();
    let line = "ESTAB 0 0 10.0.0.1:5 10.0.0.2:3260 cubic cwnd:7";
    writer.packet(0, 1_000_000, 1, b"a", None).unwrap();
    writer.journal(5_000_000, "iscsitrace-tcp-info", line).unwrap();
    writer.journal(6_000_000, "sshd", line).unwrap();
    writer.packet(0, 9_000_000, 1, b"b", None).unwrap();
    let bytes = writer.finish().unwrap();
    for is_wanted in [false, true] {
        let mut counters = Counters::default();
        let input = || Input::Reader { name: "test".into(), reader: Box::new(std::io::Cursor::new(bytes.clone())) };
        let mut sequence = Sequence::open(vec![input(), input()], &mut counters).unwrap();
        if is_wanted {
            sequence.keep_samples();
        }
        let mut frames = Vec::new();
        while let Some(packet) = sequence.next_packet(&mut counters).unwrap() {
            frames.push(packet.frame);
        }
        assert_eq!(frames, [1, 4, 5, 8]);
        let samples = sequence.take_samples();
        assert_eq!(
            samples.iter().map(|each| each.time_ns).collect::<Vec<_>>(),
            [5_000_000; 2][..2 * usize::from(is_wanted)]
        );
        assert!(samples.iter().all(|each| each.info.cwnd_segments == Some(7)));
    }
}

#[test]
fn texts_of_interfaces_and_samples_are_limited_and_counted() {
    let little = Numbers::BOTH[0];
    let name = little.option(2, &[b'n'; 4096]);
    let (_, info, counters) = read(&[little.section(&[]), little.interface(1, 0, &name).repeat(300)].concat());
    assert_eq!(info.interfaces.len(), 300);
    assert_eq!(info.interfaces.iter().filter(|interface| interface.name.is_some()).count(), 256);
    assert_eq!(counters.total(Counter::InterfaceTextNotKept), 300 - 256);

    let sample =
        b"__REALTIME_TIMESTAMP=5\nSYSLOG_IDENTIFIER=iscsitrace-tcp-info\nMESSAGE=ESTAB 0 0 [::1]:5 [::1]:6 cwnd:7\n";
    let bytes = [little.section(&[]), little.block(9, sample).repeat(500_003)].concat();
    let mut counters = Counters::default();
    let input = Input::Reader { name: "test".into(), reader: Box::new(std::io::Cursor::new(bytes)) };
    let mut sequence = Sequence::open(vec![input], &mut counters).unwrap();
    sequence.keep_samples();
    while sequence.next_packet(&mut counters).unwrap().is_some() {}
    assert_eq!((sequence.take_samples().len(), counters.total(Counter::TcpSamplesNotKept)), (500_000, 3));
}
