//! A packet that is none of TCP: its length, link header and why it has no segment stay, nothing else.
//!
//! What it was is replaced by the shortest headers with which a reader comes to the same conclusion. The EtherType and the
//! protocol are those for experiments (IEEE 802 annex on local experiments, RFC 3692), which no dissector takes for something
//! else. An ICMP error about a TCP packet keeps what is read of it.

use std::net::IpAddr;

use iscsitrace_wire::frame::{Address, IcmpError, IcmpKind, Layer, LinkType, NotTcp};

use crate::address::Addresses;
use crate::checksum;
use crate::frame::header;

const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86dd;
const ETHER_TYPE_EXPERIMENT: u16 = 0x88b5;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_GRE: u8 = 47;
const PROTOCOL_ICMPV6: u8 = 58;
const PROTOCOL_EXPERIMENT: u8 = 253;
const HOP_LIMIT: u8 = 64;

/// The packet in the place of one that is none of TCP, for that reason.
pub fn emptied(
    link_type: LinkType,
    original: &[u8],
    original_length: u32,
    reason: &NotTcp,
    addresses: &Addresses,
) -> Vec<u8> {
    let mut bytes = vec![0; original.len()];
    if *reason == NotTcp::UnsupportedLinkType {
        return bytes;
    }
    let is_ip_alone = matches!(link_type, LinkType::IPV4 | LinkType::IPV6);
    let link = link(link_type);
    let header_length = link.map_or(0, |(_, length, _)| length);
    let wire_length = original_length.max(original.len() as u32).saturating_sub(header_length as u32);
    let packet_length = original.len().saturating_sub(header_length);
    let (ether_type, packet) = match reason {
        NotTcp::IcmpError(error) => icmp_error(error, wire_length, addresses),
        NotTcp::Fragment => (ETHER_TYPE_IPV4, ipv4(5, wire_length, PROTOCOL_TCP, 1, [[0; 4]; 2])),
        NotTcp::Tunnel => (ETHER_TYPE_IPV4, ipv4(5, wire_length, PROTOCOL_GRE, 0, [[0; 4]; 2])),
        // a header that is longer than what was captured
        NotTcp::CutInHeaders => {
            let words = if packet_length < 40 { 5 } else { 15 };
            (ETHER_TYPE_IPV4, ipv4(words, wire_length, PROTOCOL_TCP, 0, [[0; 4]; 2]))
        }
        NotTcp::Malformed => (ETHER_TYPE_IPV4, Vec::new()),
        NotTcp::NotIp | NotTcp::Question(_) | NotTcp::OtherProtocol(_) if is_ip_alone => {
            (ETHER_TYPE_IPV4, ipv4(5, wire_length, PROTOCOL_EXPERIMENT, 0, [[0; 4]; 2]))
        }
        NotTcp::NotIp | NotTcp::Question(_) | NotTcp::OtherProtocol(_) | NotTcp::UnsupportedLinkType => {
            (ETHER_TYPE_EXPERIMENT, Vec::new())
        }
    };
    let captured = header_length.min(original.len());
    let (link_header, rest) = bytes.split_at_mut(captured);
    if let Some((layer, _, type_at)) = link {
        header(layer, original.get(..captured).unwrap_or_default(), addresses, link_header);
        put(link_header.get_mut(type_at..).unwrap_or_default(), &carrying(link_type, ether_type));
    }
    put(rest, &packet);
    bytes
}

/// As many bytes as there are places.
fn put(places: &mut [u8], bytes: &[u8]) {
    places.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
}

/// The layer of a link type, its length, and where it says what it carries.
fn link(link_type: LinkType) -> Option<(Layer, usize, usize)> {
    match link_type {
        LinkType::ETHERNET => Some((Layer::Ethernet, 14, 12)),
        LinkType::LINUX_SLL => Some((Layer::LinuxSll, 16, 14)),
        LinkType::LINUX_SLL2 => Some((Layer::LinuxSll2, 20, 0)),
        LinkType::NULL | LinkType::LOOP => Some((Layer::Loopback, 4, 0)),
        LinkType::PPP => Some((Layer::Ppp, 4, 0)),
        _ => None,
    }
}

/// What a link header says of a packet of this EtherType.
fn carrying(link_type: LinkType, ether_type: u16) -> Vec<u8> {
    let (family, protocol) = match ether_type {
        ETHER_TYPE_IPV4 => (2, 0x21),
        ETHER_TYPE_IPV6 => (10, 0x57),
        _ => (0, 0),
    };
    match link_type {
        LinkType::NULL => vec![family, 0, 0, 0],
        LinkType::LOOP => vec![0, 0, 0, family],
        LinkType::PPP => vec![0xff, 0x03, 0, protocol],
        _ => ether_type.to_be_bytes().to_vec(),
    }
}

/// An IPv4 header of so many words, over the whole packet.
fn ipv4(words: u8, wire_length: u32, protocol: u8, fragment_offset: u16, ends: [[u8; 4]; 2]) -> Vec<u8> {
    let mut header = vec![0; usize::from(words) * 4];
    header[0] = 0x40 | words;
    header[2..4].copy_from_slice(&u16::try_from(wire_length).unwrap_or(u16::MAX).to_be_bytes());
    header[6..8].copy_from_slice(&fragment_offset.to_be_bytes());
    (header[8], header[9]) = (HOP_LIMIT, protocol);
    header[12..20].copy_from_slice(&ends.concat());
    let checksum = checksum::of(&[&header]);
    header[10..12].copy_from_slice(&checksum);
    header
}

fn ipv6(wire_length: u32, next_header: u8, ends: [[u8; 16]; 2]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    let length = wire_length.saturating_sub(40);
    header.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    header.extend_from_slice(&[next_header, HOP_LIMIT]);
    header.extend_from_slice(&ends.concat());
    header
}

/// An ICMP error that quotes the ends of a connection, from its reporter to the sender of the packet.
fn icmp_error(error: &IcmpError, wire_length: u32, addresses: &Addresses) -> (u16, Vec<u8>) {
    let mapped = |address: Address| addresses.ip(address.to_ip());
    let ports = [error.source_port.to_be_bytes(), error.destination_port.to_be_bytes()].concat();
    // behind the ports the sequence number, which is not read
    let quoted_tcp = [&ports[..], &[0; 4]].concat();
    let mtu = error.mtu_bytes.unwrap_or(0);
    match (mapped(error.reporter), mapped(error.source), mapped(error.destination)) {
        (IpAddr::V4(reporter), IpAddr::V4(source), IpAddr::V4(destination)) => {
            let kind = match error.kind {
                IcmpKind::Unreachable | IcmpKind::TooBig => 3,
                IcmpKind::TimeExceeded => 11,
                IcmpKind::ParameterProblem => 12,
            };
            let mut message = vec![kind, error.code, 0, 0];
            message.extend_from_slice(&u32::from(mtu as u16).to_be_bytes());
            message.extend(ipv4(5, 40, PROTOCOL_TCP, 0, [source.octets(), destination.octets()]));
            message.extend(quoted_tcp);
            // the rest of the packet is zero
            let checksum = checksum::of(&[&message]);
            message[2..4].copy_from_slice(&checksum);
            let header = ipv4(5, wire_length, PROTOCOL_ICMP, 0, [reporter.octets(), source.octets()]);
            (ETHER_TYPE_IPV4, [header, message].concat())
        }
        (IpAddr::V6(reporter), IpAddr::V6(source), IpAddr::V6(destination)) => {
            let kind = match error.kind {
                IcmpKind::Unreachable => 1,
                IcmpKind::TooBig => 2,
                IcmpKind::TimeExceeded => 3,
                IcmpKind::ParameterProblem => 4,
            };
            let mut message = vec![kind, error.code, 0, 0];
            message.extend_from_slice(&mtu.to_be_bytes());
            message.extend(ipv6(60, PROTOCOL_TCP, [source.octets(), destination.octets()]));
            message.extend(quoted_tcp);
            let ends = [reporter.octets(), source.octets()];
            let pseudo =
                [&ends.concat()[..], &wire_length.saturating_sub(40).to_be_bytes(), &[0, 0, 0, PROTOCOL_ICMPV6]]
                    .concat();
            let checksum = checksum::of(&[&pseudo, &message]);
            message[2..4].copy_from_slice(&checksum);
            (ETHER_TYPE_IPV6, [ipv6(wire_length, PROTOCOL_ICMPV6, ends), message].concat())
        }
        _ => (ETHER_TYPE_EXPERIMENT, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KEY_BYTES, Key};
    use iscsitrace_wire::frame::segment;

    const LINK_TYPES: [LinkType; 9] = [
        LinkType::NULL,
        LinkType::ETHERNET,
        LinkType::PPP,
        LinkType::RAW,
        LinkType::LOOP,
        LinkType::LINUX_SLL,
        LinkType::IPV4,
        LinkType::LINUX_SLL2,
        LinkType(12),
    ];

    fn addresses() -> Addresses {
        Addresses::new(&Key::new(&[2; KEY_BYTES]))
    }

    #[test]
    fn a_reader_comes_to_the_same_conclusion() {
        let original: Vec<u8> = (1..=200).collect();
        for link_type in LINK_TYPES {
            for (reason, captured) in [
                (NotTcp::Fragment, 200),
                (NotTcp::Tunnel, 200),
                (NotTcp::CutInHeaders, 50),
                (NotTcp::CutInHeaders, 70),
                (NotTcp::OtherProtocol(17), 200),
                (NotTcp::Malformed, 200),
            ] {
                let original = &original[..captured];
                let found = emptied(link_type, original, 200, &reason, &addresses());
                assert_eq!(found.len(), captured);
                let read = segment(link_type, &found, 200).unwrap_err();
                let is_nothing = |reason: &NotTcp| matches!(reason, NotTcp::NotIp | NotTcp::OtherProtocol(_));
                let is_same = read == reason || is_nothing(&read) && is_nothing(&reason)
                    // without a link header only IP says what is malformed
                    || reason == NotTcp::Malformed && matches!(link_type, LinkType::RAW | LinkType(12));
                assert!(is_same, "{link_type:?} {reason:?}: {read:?}");
                // eight bytes of the link header stay
                for part in original.windows(9) {
                    assert!(!found.windows(9).any(|window| window == part), "{link_type:?} {reason:?}");
                }
            }
        }
    }

    #[test]
    fn an_icmp_error_keeps_what_is_read_of_it() {
        let addresses = addresses();
        let v4 = |last: u8| Address::v4([10, 20, 30, last]);
        let v6 = |last: u8| Address::v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        let mapped = |address: Address| match addresses.ip(address.to_ip()) {
            IpAddr::V4(address) => Address::v4(address.octets()),
            IpAddr::V6(address) => Address::v6(address.octets()),
        };
        for (ends, mtu_bytes) in [([v4(1), v4(2), v4(3)], Some(1400)), ([v6(1), v6(2), v6(3)], Some(1280))] {
            let [reporter, source, destination] = ends;
            for (kind, code) in [
                (IcmpKind::Unreachable, 1),
                (IcmpKind::TooBig, if mtu_bytes == Some(1400) { 4 } else { 0 }),
                (IcmpKind::TimeExceeded, 0),
                (IcmpKind::ParameterProblem, 0),
            ] {
                let mtu_bytes = mtu_bytes.filter(|_| kind == IcmpKind::TooBig);
                let (source_port, destination_port) = (50_000, 3260);
                let error =
                    IcmpError { reporter, kind, code, mtu_bytes, source, destination, source_port, destination_port };
                let found = emptied(LinkType::ETHERNET, &[0; 140], 140, &NotTcp::IcmpError(error), &addresses);
                let expected = IcmpError {
                    reporter: mapped(reporter),
                    source: mapped(source),
                    destination: mapped(destination),
                    ..error
                };
                assert_eq!(segment(LinkType::ETHERNET, &found, 140), Err(NotTcp::IcmpError(expected)));
            }
        }
    }
}
