//! Frames built byte by byte, frames that etherparse builds, damaged frames and random bytes.

use etherparse::{LaxSlicedPacket, PacketBuilder, TcpOptionElement, TransportSlice};
use proptest::prelude::*;

use super::samples::{IPV4_ENDS, IPV6_ENDS, all_samples, samples};
use super::*;

const TCP: [u8; 20] = [0x0c, 0xbc, 0x80, 1, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x18, 0x01, 0x02, 0, 0, 0, 0];

/// RFC 2474 and RFC 3168: six bits of DSCP, two of ECN; in IPv6 they lie across two bytes.
#[test]
fn the_traffic_class_is_read_in_both_versions() {
    let mut v4 = ipv4_packet(6, &[], &TCP);
    v4[1] = 0xbb;
    assert_eq!(whole(LinkType::RAW, &v4).unwrap().traffic_class, 0xbb);
    let mut v6 = ipv6_packet(6, &TCP);
    (v6[0], v6[1]) = (0x6b, 0xb0);
    assert_eq!(whole(LinkType::RAW, &v6).unwrap().traffic_class, 0xbb);
}

/// IPv4 with these options and payload.
fn ipv4_packet(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = (20 + options.len() + payload.len()) as u16;
    let mut packet = vec![0x40 | (5 + options.len() / 4) as u8, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0xab, 0xcd, 0x40, 0, 63, protocol, 0, 0]);
    packet.extend(IPV4_ENDS.concat());
    [packet, options.to_vec(), payload.to_vec()].concat()
}

/// IPv6 with a payload that starts with the header of `next_header`.
fn ipv6_packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, 62]);
    packet.extend(IPV6_ENDS.concat());
    [packet, payload.to_vec()].concat()
}

fn ethernet(ether_types: &[u8], packet: &[u8]) -> Vec<u8> {
    [&[2; 12], ether_types, packet].concat()
}

fn tcp_with(payload: &[u8]) -> Vec<u8> {
    [&TCP, payload].concat()
}

fn whole(link_type: LinkType, frame: &[u8]) -> Result<Segment<'_>, NotTcp> {
    segment(link_type, frame, frame.len() as u32)
}

/// Checks the fields that all frames below have.
fn assert_is_the_segment(found: Result<Segment<'_>, NotTcp>, payload: &[u8]) {
    let found = found.unwrap();
    assert_eq!((found.source_port, found.destination_port), (3260, 32769));
    assert_eq!((found.sequence_number, found.acknowledgment_number), (7, 9));
    assert_eq!(found.window, 0x0102);
    assert!(found.is_dont_fragment);
    assert_eq!(found.payload, payload);
    assert_eq!(found.payload_length as usize, payload.len());
    let flags = found.flags;
    assert_eq!(
        (flags.is_fin(), flags.is_syn(), flags.is_rst(), flags.is_psh(), flags.is_ack()),
        (false, false, false, true, true)
    );
    if found.source.to_ip().is_ipv4() {
        assert_eq!([found.source, found.destination], IPV4_ENDS.map(Address::v4));
        assert_eq!((found.identification, found.hop_limit, found.traffic_class), (Some(0xabcd), 63, 0));
    } else {
        assert_eq!([found.source, found.destination], IPV6_ENDS.map(Address::v6));
        assert_eq!((found.identification, found.hop_limit, found.traffic_class), (None, 62, 0));
    }
}

/// Headers and their places.
type Told = Vec<(Layer, Range<usize>)>;

/// The headers of a frame as they are told, and what was read.
fn told(link_type: LinkType, frame: &[u8], original_length: u32) -> (Told, Result<Segment<'_>, NotTcp>) {
    let mut told = Told::new();
    let found = layers(link_type, frame, original_length, |layer, place| told.push((layer, place)));
    (told, found)
}

#[test]
fn every_layer_is_told_and_looked_through() {
    for &layer in Layer::ALL {
        for sample in samples(layer, &TCP, b"pdu") {
            let (link_type, mut frame) = (sample.link_type, sample.bytes);
            let whole_length = frame.len() as u32;
            let mut end = 0;
            let expected: Vec<_> = sample
                .layers
                .iter()
                .map(|&(layer, length)| {
                    end += length;
                    (layer, end - length..end)
                })
                .collect();
            let (found, read) = told(link_type, &frame, whole_length);
            assert_eq!(found, expected);
            assert!(found.iter().any(|(other, _)| *other == layer), "{layer:?}");
            assert_is_the_segment(read, b"pdu");
            // within a snaplen the headers up to that of TCP are needed, and the length stays that on the wire
            let udp = expected.iter().find(|(layer, _)| *layer == Layer::Udp).map(|(_, place)| place.start);
            for cut in 0..frame.len() {
                let found = segment(link_type, &frame[..cut], whole_length);
                // UDP without its ports is any
                if udp.is_some_and(|start| (start..start + 4).contains(&cut)) {
                    assert_eq!(found, Err(NotTcp::OtherProtocol(17)), "{layer:?} cut at {cut}");
                } else if cut < end {
                    assert_eq!(found, Err(NotTcp::CutInHeaders), "{layer:?} cut at {cut}");
                } else {
                    let found = found.unwrap();
                    assert_eq!(
                        (found.payload_length, found.payload),
                        (3, &b"pdu"[..cut - end]),
                        "{layer:?} cut at {cut}"
                    );
                }
            }
            // padding of the link is no payload
            frame.extend([0xee; 4]);
            assert_is_the_segment(whole(link_type, &frame), b"pdu");
        }
    }
    assert_eq!(whole(LinkType(147), &ipv4_packet(6, &[], &TCP)), Err(NotTcp::UnsupportedLinkType));
}

#[test]
fn a_packet_without_df_may_be_fragmented() {
    let mut packet = ipv4_packet(6, &[], &tcp_with(b"pdu"));
    // reserved bit, DF, more fragments
    for (flags, is_dont_fragment) in [(0x00, false), (0x40, true), (0x80, false), (0xc0, true)] {
        packet[6] = flags;
        assert_eq!(whole(LinkType::RAW, &packet).unwrap().is_dont_fragment, is_dont_fragment, "{flags:#x}");
    }
}

/// The header of the packet that `tcp_with` fills, as its error quotes it: without the rest of TCP.
fn quoted(packet: &[u8], header_bytes: usize) -> Vec<u8> {
    packet[..header_bytes + 8].to_vec()
}

/// Type, code, checksum and the four bytes of an ICMP message, and what it quotes.
fn message(kind: u8, code: u8, rest: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0], &rest[..], quoted].concat()
}

fn v4_ends() -> IcmpError {
    IcmpError {
        reporter: Address::v4(IPV4_ENDS[0]),
        kind: IcmpKind::Unreachable,
        code: 0,
        mtu_bytes: None,
        source: Address::v4(IPV4_ENDS[0]),
        destination: Address::v4(IPV4_ENDS[1]),
        source_port: 3260,
        destination_port: 32769,
    }
}

#[test]
fn an_icmp_error_names_the_ends_of_the_packet_that_it_quotes() {
    let inner = quoted(&ipv4_packet(6, &[], &tcp_with(b"pdu")), 20);
    let with_options = quoted(&ipv4_packet(6, &[1, 1, 1, 0], &tcp_with(b"pdu")), 24);
    for (kind, code, rest, expected) in [
        (3, 0, [0; 4], IcmpError { ..v4_ends() }),
        (3, 1, [0; 4], IcmpError { code: 1, ..v4_ends() }),
        // the MTU field has a meaning in one code only
        (3, 3, [0, 0, 5, 0], IcmpError { code: 3, ..v4_ends() }),
        (3, 13, [0; 4], IcmpError { code: 13, ..v4_ends() }),
        (3, 4, [0, 0, 5, 0], IcmpError { kind: IcmpKind::TooBig, code: 4, mtu_bytes: Some(1280), ..v4_ends() }),
        (3, 4, [9, 9, 0, 0], IcmpError { kind: IcmpKind::TooBig, code: 4, ..v4_ends() }),
        (11, 0, [0; 4], IcmpError { kind: IcmpKind::TimeExceeded, ..v4_ends() }),
        (12, 0, [20, 0, 0, 0], IcmpError { kind: IcmpKind::ParameterProblem, ..v4_ends() }),
    ] {
        for quoted in [&inner, &with_options] {
            let packet = ipv4_packet(1, &[], &message(kind, code, rest, quoted));
            let vlan = ethernet(&[0x81, 0, 0, 100, 8, 0], &packet);
            assert_eq!(whole(LinkType::RAW, &packet), Err(NotTcp::IcmpError(expected)), "{kind}/{code}");
            assert_eq!(whole(LinkType::ETHERNET, &vlan), Err(NotTcp::IcmpError(expected)), "{kind}/{code}");
        }
    }
    // in a GRE tunnel
    let error = ipv4_packet(1, &[], &message(3, 1, [0; 4], &inner));
    let tunnel = ipv4_packet(47, &[], &[&[0, 0, 8, 0][..], &error].concat());
    assert_eq!(whole(LinkType::RAW, &tunnel), Err(NotTcp::IcmpError(IcmpError { code: 1, ..v4_ends() })));
}

#[test]
fn an_icmpv6_error_names_the_ends_behind_extension_headers() {
    let [source, destination] = IPV6_ENDS.map(Address::v6);
    let ends = IcmpError { reporter: source, source, destination, ..v4_ends() };
    let ports = &TCP[..8];
    let plain = ipv6_packet(6, ports);
    let hop_by_hop = ipv6_packet(0, &[&[60, 0, 1, 4, 0, 0, 0, 0, 6, 1][..], &[0; 14], ports].concat());
    let first_fragment = ipv6_packet(44, &[&[6, 0, 0, 1, 0, 0, 0, 9][..], ports].concat());
    let authenticated = ipv6_packet(51, &[&[6, 4][..], &[0; 22], ports].concat());
    for quoted in [&plain, &hop_by_hop, &first_fragment, &authenticated] {
        for (kind, code, rest, expected) in [
            (1, 4, [0; 4], IcmpError { code: 4, ..ends }),
            (2, 0, [0, 1, 0, 0], IcmpError { kind: IcmpKind::TooBig, mtu_bytes: Some(65_536), ..ends }),
            (3, 0, [0; 4], IcmpError { kind: IcmpKind::TimeExceeded, ..ends }),
            (4, 1, [0; 4], IcmpError { kind: IcmpKind::ParameterProblem, code: 1, ..ends }),
        ] {
            let message = message(kind, code, rest, quoted);
            assert_eq!(whole(LinkType::RAW, &ipv6_packet(58, &message)), Err(NotTcp::IcmpError(expected)));
            // behind a hop-by-hop header
            let extended = ipv6_packet(0, &[&[58, 0, 1, 4, 0, 0, 0, 0][..], &message].concat());
            assert_eq!(whole(LinkType::RAW, &extended), Err(NotTcp::IcmpError(expected)));
        }
    }
    let later_fragment = ipv6_packet(44, &[&[6, 0, 0, 8, 0, 0, 0, 9][..], ports].concat());
    for quoted in [later_fragment, ipv6_packet(17, ports), ipv6_packet(6, &ports[..7])] {
        let packet = ipv6_packet(58, &message(1, 4, [0; 4], &quoted));
        assert_eq!(whole(LinkType::RAW, &packet), Err(NotTcp::OtherProtocol(58)));
    }
}

#[test]
fn other_icmp_is_no_error_about_tcp() {
    let tcp = quoted(&ipv4_packet(6, &[], &tcp_with(b"pdu")), 20);
    let udp = quoted(&ipv4_packet(17, &[], &tcp_with(b"pdu")), 20);
    let mut later_fragment = tcp.clone();
    later_fragment[7] = 1;
    let stamp = (13, &tcp);
    let redirect = (5, &tcp);
    for (kind, quoted) in [stamp, redirect, (3, &udp), (3, &later_fragment), (3, &tcp[..27].to_vec()), (3, &vec![])] {
        let packet = ipv4_packet(1, &[], &message(kind, 1, [0; 4], quoted));
        assert_eq!(whole(LinkType::RAW, &packet), Err(NotTcp::OtherProtocol(1)), "{kind}");
    }
    let mut fragment = ipv4_packet(1, &[], &message(3, 1, [0; 4], &tcp));
    fragment[6] = 0x20;
    assert_eq!(whole(LinkType::RAW, &fragment), Err(NotTcp::OtherProtocol(1)));
}

#[test]
fn fragments_are_told_and_not_read() {
    for flags_and_offset in [0x2000_u16, 0x2001, 0x0001, 0x1fff] {
        let mut packet = ipv4_packet(6, &[], &tcp_with(b"pdu"));
        packet[6..8].copy_from_slice(&flags_and_offset.to_be_bytes());
        assert_eq!(whole(LinkType::RAW, &packet), Err(NotTcp::Fragment));
        packet[9] = 17;
        assert_eq!(whole(LinkType::RAW, &packet), Err(NotTcp::OtherProtocol(17)));
    }
    for offset_and_more in [[0, 1], [0, 8], [0xff, 0xf9]] {
        let fragment = [&[6, 0][..], &offset_and_more, &[0, 0, 0, 1], &TCP].concat();
        assert_eq!(whole(LinkType::RAW, &ipv6_packet(44, &fragment)), Err(NotTcp::Fragment));
    }
}

#[test]
fn other_protocols_and_tunnels_are_told() {
    let udp = |port: u16| [&[0x30, 0x39][..], &port.to_be_bytes(), &[0, 8, 0, 0]].concat();
    for (packet, expected) in [
        (ipv4_packet(1, &[], &[13, 0]), NotTcp::OtherProtocol(1)),
        (ipv4_packet(17, &[], &udp(53)), NotTcp::OtherProtocol(17)),
        // without what their port promises
        (ipv4_packet(17, &[], &udp(4789)), NotTcp::Malformed),
        (ipv6_packet(17, &udp(6081)), NotTcp::Malformed),
        (ipv6_packet(58, &[130, 0]), NotTcp::OtherProtocol(58)),
        // GRE with routing, of version 1, and with another protocol
        (ipv4_packet(47, &[], &[0x40, 0, 8, 0]), NotTcp::Tunnel),
        (ipv4_packet(47, &[], &[0, 1, 8, 0]), NotTcp::Tunnel),
        (ipv4_packet(47, &[], &[0, 0, 0x88, 0x47]), NotTcp::Tunnel),
        (ipv4_packet(47, &[], &[0, 0, 8]), NotTcp::Malformed),
        // VXLAN without its I flag or with the reserved byte set, GENEVE of version 1 and with another protocol
        (ipv4_packet(17, &[], &[udp(4789), vec![0; 22]].concat()), NotTcp::Tunnel),
        (ipv4_packet(17, &[], &[udp(4789), vec![8, 0, 0, 0, 0, 0, 0, 1], vec![0; 14]].concat()), NotTcp::Tunnel),
        (ipv4_packet(17, &[], &[udp(6081), vec![0x40, 0, 8, 0, 0, 0, 0, 0]].concat()), NotTcp::Tunnel),
        (ipv4_packet(17, &[], &[udp(6081), vec![0, 0, 0x88, 0x47, 0, 0, 0, 0]].concat()), NotTcp::Tunnel),
        (vec![0x10; 40], NotTcp::NotIp),
    ] {
        assert_eq!(whole(LinkType::RAW, &packet), Err(expected));
    }
    for (ether_type, expected) in [
        ([8, 6], NotTcp::NotIp),
        ([0, 38], NotTcp::NotIp),
        ([0x88, 0xcc], NotTcp::NotIp),
        ([0x88, 0x47], NotTcp::Tunnel),
        // version 0
        ([0x88, 0x64], NotTcp::Tunnel),
    ] {
        assert_eq!(whole(LinkType::ETHERNET, &ethernet(&ether_type, &[0; 46])), Err(expected));
    }
    assert_eq!(whole(LinkType::NULL, &[7, 0, 0, 0, 1, 2, 3]), Err(NotTcp::NotIp));
}

#[test]
fn other_protocols_of_ppp_are_told() {
    for address in [&[][..], &[0xff, 0x03]] {
        // LCP, MPLS
        assert_eq!(whole(LinkType::PPP, &[address, &[0xc0, 0x21, 1]].concat()), Err(NotTcp::NotIp));
        assert_eq!(whole(LinkType::PPP, &[address, &[2, 0x81, 1]].concat()), Err(NotTcp::Tunnel));
    }
}

#[test]
fn tunnels_within_tunnels_are_opened_up_to_four() {
    let mut packet = ipv4_packet(6, &[], &tcp_with(b"pdu"));
    for depth in 1..=6 {
        packet = ipv4_packet(4, &[], &packet);
        match depth {
            1..=4 => assert_is_the_segment(whole(LinkType::RAW, &packet), b"pdu"),
            _ => assert_eq!(whole(LinkType::RAW, &packet), Err(NotTcp::Tunnel), "{depth}"),
        }
    }
    // as many bytes as a packet has
    let mut deepest = packet;
    while deepest.len() + 20 <= 65_535 {
        deepest = ipv4_packet(4, &[], &deepest);
    }
    assert_eq!(whole(LinkType::RAW, &deepest), Err(NotTcp::Tunnel));
}

#[test]
fn what_a_tunnel_carries_is_told() {
    let arp = ethernet(&[8, 6], &[0; 28]);
    let udp = ipv4_packet(17, &[], &[0, 1, 0, 53, 0, 8, 0, 0]);
    for (carried, expected) in [
        (&arp, NotTcp::NotIp),
        (&ethernet(&[8, 0], &udp), NotTcp::OtherProtocol(17)),
        // an inner packet that is longer than the outer one
        (&ethernet(&[8, 0], &ipv4_packet(6, &[], &tcp_with(b"pdu"))[..42]), NotTcp::Malformed),
    ] {
        let packet = ipv4_packet(47, &[], &[&[0, 0, 0x65, 0x58], &carried[..]].concat());
        assert_eq!(whole(LinkType::RAW, &packet), Err(expected));
    }
    // fragments of the outer packet
    let mut packet = ipv4_packet(47, &[], &[&[0, 0, 8, 0], &ipv4_packet(6, &[], &TCP)[..]].concat());
    packet[6] = 0x20;
    assert_eq!(whole(LinkType::RAW, &packet), Err(NotTcp::Fragment));
}

#[test]
fn headers_that_contradict_each_other_are_malformed() {
    let good = ipv4_packet(6, &[], &tcp_with(b"pdu"));
    for (at, byte) in [
        (0, 0x44), // header of 16 bytes
        (0, 0x65), // version 6, by an IPv4 link type
        (3, 19),   // shorter than its header
        (3, 39),   // shorter than the TCP header
        (3, 44),   // longer than the frame
        (2, 1),    // much longer
        (32, 0x40),
        (32, 0x60), // TCP header past the end
    ] {
        let mut packet = good.clone();
        packet[at] = byte;
        assert_eq!(whole(LinkType::IPV4, &packet), Err(NotTcp::Malformed), "byte {at} = {byte:#x}");
    }
    let good = ipv6_packet(6, &tcp_with(b"pdu"));
    for (at, byte) in [(0, 0x45), (5, 24), (5, 19), (52, 0x40), (52, 0x60)] {
        let mut packet = good.clone();
        packet[at] = byte;
        assert_eq!(whole(LinkType::IPV6, &packet), Err(NotTcp::Malformed), "byte {at} = {byte:#x}");
    }
    // An extension header that is longer than its packet.
    let packet = ipv6_packet(0, &[&[6, 9, 1, 4, 0, 0, 0, 0][..], &TCP].concat());
    assert_eq!(whole(LinkType::RAW, &packet), Err(NotTcp::Malformed));
}

#[test]
fn a_snaplen_leaves_the_length_on_the_wire() {
    let mut with_options = tcp_with(b"");
    with_options[12] = 0x80;
    with_options.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    with_options.extend([0x55; 1000]);
    let frame = ethernet(&[8, 0], &ipv4_packet(6, &[], &with_options));
    let original_length = frame.len() as u32;
    for cut in 0..frame.len() {
        let found = segment(LinkType::ETHERNET, &frame[..cut], original_length);
        if cut < 54 {
            assert_eq!(found, Err(NotTcp::CutInHeaders), "cut at {cut}");
        } else {
            let found = found.unwrap();
            assert_eq!(found.payload_length, 1000);
            assert_eq!(found.payload.len(), cut.saturating_sub(66));
            assert_eq!(found.options, &with_options[20..32][..(cut - 54).min(12)]);
        }
    }
}

#[test]
fn an_ip_length_of_zero_takes_the_length_of_the_frame() {
    let payload = vec![0x5a; 70_000];
    let mut v4 = ipv4_packet(6, &[], &tcp_with(&payload));
    v4[2..4].copy_from_slice(&[0, 0]);
    let mut v6 = ipv6_packet(6, &tcp_with(&payload));
    v6[4..6].copy_from_slice(&[0, 0]);
    let mut extended = ipv6_packet(0, &[&[6, 0, 1, 4, 0, 0, 0, 0][..], &tcp_with(&payload)].concat());
    extended[4..6].copy_from_slice(&[0, 0]);
    for (ether_type, packet) in [([8, 0], v4), ([0x86, 0xdd], v6), ([0x86, 0xdd], extended)] {
        let frame = ethernet(&ether_type, &packet);
        let found = whole(LinkType::ETHERNET, &frame);
        assert!(found.unwrap().is_ip_length_zero);
        assert_is_the_segment(found, &payload);
        let cut = segment(LinkType::ETHERNET, &frame[..200], frame.len() as u32).unwrap();
        assert_eq!(cut.payload_length, 70_000);
    }
}

#[test]
fn an_ip_length_of_zero_leaves_out_every_link_header() {
    // longer than the maximum IP length
    let payload = vec![0x5a; 66_000];
    let mut v4 = ipv4_packet(6, &[], &tcp_with(&payload));
    v4[2..4].copy_from_slice(&[0, 0]);
    let mut v6 = ipv6_packet(6, &tcp_with(&payload));
    v6[4..6].copy_from_slice(&[0, 0]);
    for (link_type, link, packet) in [
        (LinkType::NULL, vec![2, 0, 0, 0], &v4),
        (LinkType::NULL, vec![30, 0, 0, 0], &v6),
        (LinkType::LOOP, vec![0, 0, 0, 2], &v4),
        (LinkType::ETHERNET, ethernet(&[0x81, 0, 0, 100, 8, 0], &[]), &v4),
        (LinkType::LINUX_SLL, [&[0; 14][..], &[8, 0]].concat(), &v4),
        (LinkType::LINUX_SLL2, [&[0x86, 0xdd][..], &[0; 18]].concat(), &v6),
        (LinkType::RAW, vec![], &v4),
        (LinkType::IPV6, vec![], &v6),
    ] {
        let frame = [link, packet.clone()].concat();
        assert_is_the_segment(whole(link_type, &frame), &payload);
        // the snaplen keeps only headers: the length comes from the frame's length on the wire alone
        let cut = segment(link_type, &frame[..100], frame.len() as u32).unwrap();
        assert_eq!(cut.payload_length, 66_000, "{link_type:?}");
    }
}

#[test]
fn tcp_options_are_read_up_to_the_first_malformed_one() {
    let syn = [2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7];
    let expected = TcpOptions {
        maximum_segment_size: Some(1460),
        window_scale: Some(7),
        is_sack_permitted: true,
        timestamps: Some((1, 2)),
        ..TcpOptions::default()
    };
    assert_eq!(tcp_options(&syn), expected);
    let sack = [1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4];
    let found = tcp_options(&sack);
    assert_eq!((found.sack_count, &found.sack[..2]), (2, &[(1, 2), (3, 4)][..]));
    // Unknown options are skipped; 15 is more than the maximum shift.
    assert_eq!(tcp_options(&[254, 4, 0, 0, 3, 3, 15]).window_scale, Some(14));
    for malformed in [&[2, 3, 5][..], &[0], &[9, 0], &[9, 1], &[9, 200], &[5, 2], &[5, 9, 0, 0, 0, 0, 0, 0, 0], &[8]] {
        let options = [&[2, 4, 2, 0][..], malformed, &[3, 3, 7]].concat();
        let expected = TcpOptions { maximum_segment_size: Some(512), ..TcpOptions::default() };
        assert_eq!(tcp_options(&options), expected, "{malformed:?}");
    }
}

/// A frame built by etherparse.
fn built(is_ipv6: bool, vlans: usize, timestamps: Option<(u32, u32)>, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([1; 6], [2; 6]);
    let vlan = |id: u16| etherparse::VlanId::try_new(id).unwrap();
    let mut frame = Vec::new();
    macro_rules! finish {
        ($link:expr) => {{
            let ip =
                if is_ipv6 { $link.ipv6([3; 16], [4; 16], 64) } else { $link.ipv4([10, 1, 2, 3], [10, 4, 5, 6], 64) };
            let tcp = ip.tcp(3260, 40_000, 0x8000_0001, 4096).ack(0x7fff_ffff).psh();
            let options: Vec<_> =
                timestamps.map(|(value, echo)| TcpOptionElement::Timestamp(value, echo)).into_iter().collect();
            tcp.options(&options).unwrap().write(&mut frame, payload).unwrap();
        }};
    }
    match vlans {
        0 => finish!(ethernet),
        1 => finish!(ethernet.single_vlan(vlan(5))),
        _ => finish!(ethernet.double_vlan(vlan(5), vlan(6))),
    }
    frame
}

/// Ports, sequence number, window, options and payload.
type Essence<'a> = (u16, u16, u32, u16, &'a [u8], &'a [u8]);

/// The same, read by etherparse alone.
fn by_etherparse(frame: &[u8]) -> Option<Essence<'_>> {
    match LaxSlicedPacket::from_ethernet(frame).ok()?.transport? {
        TransportSlice::Tcp(tcp) => Some((
            tcp.source_port(),
            tcp.destination_port(),
            tcp.sequence_number(),
            tcp.window_size(),
            &tcp.slice()[20..tcp.header_len()],
            &tcp.slice()[tcp.header_len()..],
        )),
        _ => None,
    }
}

proptest! {
    #[test]
    fn agrees_with_etherparse(
        is_ipv6: bool,
        vlans in 0..3_usize,
        timestamps: Option<(u32, u32)>,
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        padding in 0..20_usize,
        cut in any::<prop::sample::Index>(),
    ) {
        let mut frame = built(is_ipv6, vlans, timestamps, &payload);
        let headers = frame.len() - payload.len();
        frame.resize(frame.len() + padding, 0);
        let kept = &frame[..cut.index(frame.len() + 1)];
        let found = segment(LinkType::ETHERNET, kept, frame.len() as u32);
        match (found, by_etherparse(kept)) {
            (Ok(found), Some(expected)) => {
                let same = (
                    found.source_port, found.destination_port, found.sequence_number, found.window,
                    found.options, found.payload,
                );
                prop_assert_eq!(same, expected);
                prop_assert_eq!(found.payload_length as usize, payload.len());
                prop_assert_eq!(tcp_options(found.options).timestamps, timestamps);
            }
            // Cut within the options, which etherparse refuses.
            (Ok(found), None) => {
                prop_assert!(kept.len() < headers && found.payload.is_empty());
                prop_assert_eq!(found.payload_length as usize, payload.len());
            }
            (Err(found), expected) => {
                prop_assert_eq!(found, NotTcp::CutInHeaders);
                prop_assert!(expected.is_none() && kept.len() < headers);
            }
        }
    }

    #[test]
    fn agrees_with_etherparse_on_damaged_headers(
        is_ipv6: bool,
        payload in proptest::collection::vec(any::<u8>(), 0..60),
        damage in proptest::collection::vec((12..74_usize, any::<u8>()), 1..4),
    ) {
        let mut frame = built(is_ipv6, 0, Some((1, 2)), &payload);
        for (at, byte) in damage {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        // Conversely, etherparse accepts frames shorter than their IP length.
        if let Ok(found) = whole(LinkType::ETHERNET, &frame) {
            let same = (
                found.source_port, found.destination_port, found.sequence_number, found.window,
                found.options, found.payload,
            );
            prop_assert_eq!(Some(same), by_etherparse(&frame));
            prop_assert_eq!(found.payload_length as usize, found.payload.len());
        }
    }

    #[test]
    fn random_bytes_never_panic(
        link_type in prop::sample::select(vec![0, 1, 9, 12, 101, 108, 113, 228, 229, 276_u16]),
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        original_length: u32,
    ) {
        if let Ok(found) = segment(LinkType(link_type), &bytes, original_length) {
            tcp_options(found.options);
            prop_assert!(found.payload_length as usize >= found.payload.len());
        }
        tcp_options(&bytes);
    }

    /// Whatever the bytes of a frame are, each is in one header, in the payload, or behind it.
    #[test]
    fn headers_lie_one_behind_the_other(
        which in any::<prop::sample::Index>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        original_length in 0..300_u32,
    ) {
        let samples = all_samples(&TCP, b"pdu");
        let sample = which.get(&samples);
        let mut frame = sample.bytes.clone();
        for (at, byte) in damage {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        let kept = &frame[..cut.index(frame.len() + 1)];
        let (told, found) = told(sample.link_type, kept, original_length);
        let mut end = 0;
        for (_, place) in &told {
            prop_assert_eq!(place.start, end);
            prop_assert!(place.end <= kept.len());
            end = place.end;
        }
        prop_assert_eq!(found, segment(sample.link_type, kept, original_length));
        if let Ok(found) = found {
            prop_assert!(found.payload_length as usize >= found.payload.len());
            prop_assert_eq!(told.last().map(|(layer, _)| *layer), Some(Layer::Tcp));
            prop_assert!(found.payload.is_empty() || found.payload.as_ptr_range().start == kept[end..].as_ptr());
        }
    }

    #[test]
    fn random_ip_never_panics(
        version in prop::sample::select(vec![4_u8, 6]),
        protocol in prop::sample::select(vec![0_u8, 1, 4, 6, 17, 41, 43, 44, 47, 51, 58, 60]),
        mut bytes in proptest::collection::vec(any::<u8>(), 40..160),
        original_length in 0..300_u32,
    ) {
        bytes[0] = version << 4 | 5;
        bytes[2] = 0;
        bytes[4] = 0;
        bytes[if version == 4 { 9 } else { 6 }] = protocol;
        if let Ok(found) = segment(LinkType::RAW, &bytes, original_length) {
            prop_assert!(found.payload_length as usize >= found.payload.len());
        }
    }
}
