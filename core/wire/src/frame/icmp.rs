//! ICMP and ICMPv6 errors that quote a TCP packet (RFC 792, RFC 4443): its ends, and why it was not delivered.
//!
//! An error quotes the IP header and at least the first 8 bytes of the packet. Quoted tunnels are not opened.

use super::address::{Address, address};
use super::extension::Following;
use super::headers::{
    Carried, IP_PROTOCOL_ICMP, IP_PROTOCOL_ICMPV6, IP_PROTOCOL_TCP, IcmpError, IcmpKind, NotTcp, chunk,
};

/// ICMP header: type, code, checksum, and four bytes that depend on the type.
const HEADER_BYTES: usize = 8;
/// Fragmentation needed and DF set.
const CODE_FRAGMENTATION_NEEDED: u8 = 4;

/// The error in an ICMP message from `reporter`, if it quotes a TCP packet.
#[cold]
pub(super) fn error(reporter: Address, message: &[u8]) -> NotTcp {
    icmp(reporter, message).map_or(NotTcp::OtherProtocol(IP_PROTOCOL_ICMP), NotTcp::IcmpError)
}

/// The same, in ICMPv6.
#[cold]
pub(super) fn error_v6(reporter: Address, message: &[u8]) -> NotTcp {
    icmpv6(reporter, message).map_or(NotTcp::OtherProtocol(IP_PROTOCOL_ICMPV6), NotTcp::IcmpError)
}

fn icmp(reporter: Address, message: &[u8]) -> Option<IcmpError> {
    let [message_type, code, _, _, _, _, mtu @ ..] = chunk::<HEADER_BYTES>(message, 0)?;
    let kind = match (message_type, code) {
        (3, CODE_FRAGMENTATION_NEEDED) => IcmpKind::TooBig,
        (3, _) => IcmpKind::Unreachable,
        (11, _) => IcmpKind::TimeExceeded,
        (12, _) => IcmpKind::ParameterProblem,
        _ => return None,
    };
    let quoted = message.get(HEADER_BYTES..)?;
    let header: [u8; 20] = chunk(quoted, 0)?;
    let is_first_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    if header[0] >> 4 != 4 || header[9] != IP_PROTOCOL_TCP || !is_first_fragment {
        return None;
    }
    // 0: a router from before RFC 1191
    let mtu = Some(u32::from(u16::from_be_bytes(mtu))).filter(|&mtu| mtu != 0);
    let [a, b, c, d]: [u8; 4] = chunk(&header, 12)?;
    let [e, f, g, h]: [u8; 4] = chunk(&header, 16)?;
    let (source_port, destination_port) = ports(quoted.get(usize::from(header[0] & 0x0f) * 4..)?)?;
    Some(IcmpError {
        reporter,
        kind,
        code,
        mtu_bytes: mtu.filter(|_| kind == IcmpKind::TooBig),
        source: Address::v4([a, b, c, d]),
        destination: Address::v4([e, f, g, h]),
        source_port,
        destination_port,
    })
}

fn icmpv6(reporter: Address, message: &[u8]) -> Option<IcmpError> {
    let [message_type, code, _, _, mtu @ ..] = chunk::<HEADER_BYTES>(message, 0)?;
    let kind = match message_type {
        1 => IcmpKind::Unreachable,
        2 => IcmpKind::TooBig,
        3 => IcmpKind::TimeExceeded,
        4 => IcmpKind::ParameterProblem,
        _ => return None,
    };
    let (header, rest) = message.get(HEADER_BYTES..)?.split_first_chunk::<40>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    // a reporter quotes the beginning of a packet, whose length does not matter
    let quoted = Carried { captured: rest, wire_length: u32::MAX, depth: 0 };
    let packet = Following { is_ipv4: false, protocol: header[6], carried: quoted, fragment: 0 }
        .after_extensions(&mut |_, _| {})
        .ok()?;
    let is_first_fragment = packet.fragment & 0xfff8 == 0;
    if packet.protocol != IP_PROTOCOL_TCP || !is_first_fragment {
        return None;
    }
    let (source_port, destination_port) = ports(packet.carried.captured)?;
    Some(IcmpError {
        reporter,
        kind,
        code,
        mtu_bytes: (kind == IcmpKind::TooBig).then_some(u32::from_be_bytes(mtu)),
        source: address(chunk(header, 8)),
        destination: address(chunk(header, 24)),
        source_port,
        destination_port,
    })
}

/// Source and destination port; the sequence number, which every error quotes, must be there too.
fn ports(quoted: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d, ..]: [u8; 8] = chunk(quoted, 0)?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}
