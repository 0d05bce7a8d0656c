//! Link, IP and TCP headers of one captured frame -> one TCP segment.
//!
//! ```text
//! Ethernet [802.1Q ...] | SLL | SLL2 | NULL | LOOP | PPP   ->  IPv4 | IPv6 [extension headers]  ->  TCP [options] payload
//!                                                          ->  tunnel  ->  IP or Ethernet ...
//! ```
//!
//! Lengths come from the headers, captured bytes from the frame: a truncated payload keeps its length on the wire.
//! This is the only walk through a frame: `layers` tells each header on the way, `segment` none, for speed.
//!
//! An ICMP error that quotes a TCP packet is read, too. Checksums are not verified (offload leaves them blank), fragments
//! not reassembled.

mod address;
mod extension;
mod headers;
mod icmp;
mod layer;
mod question;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
#[cfg(test)]
mod tests;
mod tunnel;

pub use address::Address;
use address::address;
use extension::Following;
use headers::*;
pub use headers::{IcmpError, IcmpKind, NotTcp, Question, QuestionKind};
pub use layer::Layer;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use tunnel::{Inner, Ip};

/// The link type of a frame: a LINKTYPE_ value of the pcap format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: an address family of 4 bytes in the byte order of the capturing host.
    pub const NULL: Self = Self(0);
    /// Ethernet II and 802.3.
    pub const ETHERNET: Self = Self(1);
    /// Point-to-Point Protocol, with or without its address and control bytes.
    pub const PPP: Self = Self(9);
    /// IP without a link header.
    pub const RAW: Self = Self(101);
    /// OpenBSD loopback: an address family of 4 bytes in network byte order.
    pub const LOOP: Self = Self(108);
    /// Linux "cooked" capture, as of the `any` device.
    pub const LINUX_SLL: Self = Self(113);
    /// IPv4 without a link header.
    pub const IPV4: Self = Self(228);
    /// IPv6 without a link header.
    pub const IPV6: Self = Self(229);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);
}

/// The control bits of a TCP header (RFC 9293, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub fn is_fin(self) -> bool {
        self.0 & 0x01 != 0
    }

    /// Synchronize sequence numbers.
    pub fn is_syn(self) -> bool {
        self.0 & 0x02 != 0
    }

    /// Reset the connection.
    pub fn is_rst(self) -> bool {
        self.0 & 0x04 != 0
    }

    /// Push function.
    pub fn is_psh(self) -> bool {
        self.0 & 0x08 != 0
    }

    /// The acknowledgment field is significant.
    pub fn is_ack(self) -> bool {
        self.0 & 0x10 != 0
    }
}

/// One TCP segment, as far as it was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment<'a> {
    /// IP source address.
    pub source: Address,
    /// IP destination address.
    pub destination: Address,
    /// TCP source port.
    pub source_port: u16,
    /// TCP destination port.
    pub destination_port: u16,
    /// Sequence number of the first payload byte, or of the SYN.
    pub sequence_number: u32,
    /// Acknowledgment number; significant with the ACK bit.
    pub acknowledgment_number: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// Window field, not scaled.
    pub window: u16,
    /// TCP options, as far as captured.
    #[serde(skip)]
    pub options: &'a [u8],
    /// The captured part of the payload.
    #[serde(skip)]
    pub payload: &'a [u8],
    /// Payload bytes on the wire: from the IP length, or from the frame's original length if the IP length is 0.
    pub payload_length: u32,
    /// IPv4 identification.
    pub identification: Option<u16>,
    /// Whether no router may fragment it: the DF bit of IPv4, and any IPv6 packet.
    pub is_dont_fragment: bool,
    /// Whether it is a super-segment, captured before segmentation with an IP length of 0.
    pub is_ip_length_zero: bool,
    /// TTL of IPv4, hop limit of IPv6.
    pub hop_limit: u8,
    /// DSCP (upper six bits) and ECN (RFC 2474, RFC 3168).
    pub traffic_class: u8,
}

/// Reads the headers of one frame of `original_length` bytes on the wire, of which `captured` was kept.
///
/// # Errors
/// Why the frame has no TCP segment.
#[inline]
pub fn segment<'a>(link_type: LinkType, captured: &'a [u8], original_length: u32) -> Result<Segment<'a>, NotTcp> {
    walk(link_type, captured, original_length, &mut |_, _| {})
}

/// The same, and tells each header on the way, from the outermost: its layer and its place in `captured`. Each begins where
/// the one before ends, and the payload of the segment where the last one ends.
///
/// # Errors
/// Why the frame has no TCP segment; the headers before were told.
pub fn layers<'a>(
    link_type: LinkType,
    captured: &'a [u8],
    original_length: u32,
    mut tell: impl FnMut(Layer, Range<usize>),
) -> Result<Segment<'a>, NotTcp> {
    let mut end = 0;
    walk(link_type, captured, original_length, &mut |layer, length| {
        let start = end;
        end = captured.len().min(start + length);
        tell(layer, start..end);
    })
}

/// A layer, where its EtherType is, and where it ends.
const ETHERNET: (Layer, usize, usize) = (Layer::Ethernet, 12, 14);

/// `see` gets the layer and length of each header, one after the other.
///
/// It is compiled twice: without a listener nothing is left of `see`. A struct that a call of the slow path takes is made in
/// that call alone; otherwise the fast path would write it to memory, too (a tenth of its time).
#[inline(always)]
fn walk<'a>(
    link_type: LinkType,
    captured: &'a [u8],
    original_length: u32,
    see: &mut impl FnMut(Layer, usize),
) -> Result<Segment<'a>, NotTcp> {
    // A frame is at least as long as its captured bytes, whatever the record says.
    let wire_length = original_length.max(u32::try_from(captured.len()).unwrap_or(u32::MAX));
    let frame = || Carried { captured, wire_length, depth: 0 };
    match link_type {
        LinkType::ETHERNET => after_ether_type(frame(), ETHERNET, see),
        LinkType::LINUX_SLL => after_ether_type(frame(), (Layer::LinuxSll, 14, 16), see),
        LinkType::LINUX_SLL2 => after_ether_type(frame(), (Layer::LinuxSll2, 0, 20), see),
        _ => after_other_link(link_type, frame(), see),
    }
}

/// Reads a link header without an EtherType.
#[inline(never)]
fn after_other_link<'a>(
    link_type: LinkType,
    frame: Carried<'a>,
    see: &mut impl FnMut(Layer, usize),
) -> Result<Segment<'a>, NotTcp> {
    let packet = match link_type {
        LinkType::PPP => frame.ppp(see)?,
        LinkType::NULL | LinkType::LOOP => {
            let family = frame.bytes(0)?;
            let packet = frame.after(4)?;
            see(Layer::Loopback, 4);
            // Families are small numbers, which shows the byte order of the capturing host.
            match (u32::from_be_bytes(family), u32::from_le_bytes(family)) {
                (2, _) | (_, 2) => Ip::V4(packet),
                (10 | 24 | 28 | 30, _) | (_, 10 | 24 | 28 | 30) => Ip::V6(packet),
                _ => return Err(NotTcp::NotIp),
            }
        }
        LinkType(12 | 14) | LinkType::RAW => match frame.captured.first().map(|byte| byte >> 4) {
            Some(4) => Ip::V4(frame),
            Some(6) => Ip::V6(frame),
            Some(_) => return Err(NotTcp::NotIp),
            None => return Err(NotTcp::CutInHeaders),
        },
        LinkType::IPV4 => Ip::V4(frame),
        LinkType::IPV6 => Ip::V6(frame),
        _ => return Err(NotTcp::UnsupportedLinkType),
    };
    ip(packet, see)
}

/// Reads the EtherType at `at` of a layer; VLAN tags begin at `next`, its end.
#[inline(always)]
fn after_ether_type<'a>(
    frame: Carried<'a>,
    (layer, mut at, mut next): (Layer, usize, usize),
    see: &mut impl FnMut(Layer, usize),
) -> Result<Segment<'a>, NotTcp> {
    let Carried { captured, wire_length, depth } = frame;
    let mut ether_type = u16::from_be_bytes(chunk(captured, at).ok_or(NotTcp::CutInHeaders)?);
    see(layer, next);
    while ETHER_TYPES_VLAN.contains(&ether_type) {
        // A tag is a control field and the EtherType of what follows. `next` stays below the frame's length.
        (at, next) = (next + 2, next + 4);
        ether_type = u16::from_be_bytes(chunk(captured, at).ok_or(NotTcp::CutInHeaders)?);
        see(Layer::Vlan, 4);
    }
    let wire_length = wire_length.saturating_sub(u32::try_from(next).unwrap_or(u32::MAX));
    let after = || {
        let captured = captured.get(next..).ok_or(NotTcp::CutInHeaders)?;
        Ok(Carried { captured, wire_length, depth })
    };
    match ether_type {
        ETHER_TYPE_IPV4 => ipv4(after()?, see),
        ETHER_TYPE_IPV6 => ipv6(after()?, see),
        ETHER_TYPE_PPPOE => pppoe(after()?, see),
        ETHER_TYPE_ARP => Err(question::arp(captured.get(next..).unwrap_or_default())),
        _ if ETHER_TYPES_TUNNEL.contains(&ether_type) => Err(NotTcp::Tunnel),
        _ => Err(NotTcp::NotIp),
    }
}

/// Reads a session of PPPoE.
#[cold]
fn pppoe<'a>(session: Carried<'a>, see: &mut impl FnMut(Layer, usize)) -> Result<Segment<'a>, NotTcp> {
    ip(session.pppoe(see)?, see)
}

/// Reads a packet of IP.
#[inline(always)]
fn ip<'a>(packet: Ip<'a>, see: &mut impl FnMut(Layer, usize)) -> Result<Segment<'a>, NotTcp> {
    match packet {
        Ip::V4(packet) => ipv4(packet, see),
        Ip::V6(packet) => ipv6(packet, see),
    }
}

/// The IP fields of a TCP segment.
struct Network {
    source: Address,
    destination: Address,
    identification: Option<u16>,
    is_dont_fragment: bool,
    is_ip_length_zero: bool,
    hop_limit: u8,
    traffic_class: u8,
}

/// An IPv4 packet (RFC 791), with the padding of the link.
#[inline(always)]
fn ipv4<'a>(padded: Carried<'a>, see: &mut impl FnMut(Layer, usize)) -> Result<Segment<'a>, NotTcp> {
    let header: [u8; 20] = chunk(padded.captured, 0).ok_or(NotTcp::CutInHeaders)?;
    let header_length = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_length < 20 {
        return Err(NotTcp::Malformed);
    }
    let length_field = u16::from_be_bytes([header[2], header[3]]);
    let is_ip_length_zero = length_field == 0;
    let length = if is_ip_length_zero { padded.wire_length } else { u32::from(length_field) };
    let wire_length = length.checked_sub(header_length as u32).ok_or(NotTcp::Malformed)?;
    if length > padded.wire_length {
        return Err(NotTcp::Malformed);
    }
    let captured = up_to(padded.captured, length).get(header_length..).ok_or(NotTcp::CutInHeaders)?;
    let payload = Carried { captured, wire_length, depth: padded.depth };
    see(Layer::Ipv4, header_length);
    let network = || Network {
        source: Address::v4([header[12], header[13], header[14], header[15]]),
        destination: Address::v4([header[16], header[17], header[18], header[19]]),
        identification: Some(u16::from_be_bytes([header[4], header[5]])),
        is_dont_fragment: header[6] & 0x40 != 0,
        is_ip_length_zero,
        hop_limit: header[8],
        traffic_class: header[1],
    };
    // More fragments follow, or there is an offset.
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    let protocol = header[9];
    if protocol == IP_PROTOCOL_TCP && fragment == 0 {
        return tcp(network(), payload, see);
    }
    transport(network(), Following { is_ipv4: true, protocol, carried: payload, fragment }, see)
}

/// An IPv6 packet (RFC 8200), with the padding of the link.
#[inline]
fn ipv6<'a>(padded: Carried<'a>, see: &mut impl FnMut(Layer, usize)) -> Result<Segment<'a>, NotTcp> {
    let (header, rest) = padded.captured.split_first_chunk::<40>().ok_or(NotTcp::CutInHeaders)?;
    if header[0] >> 4 != 6 {
        return Err(NotTcp::Malformed);
    }
    let length_field = u16::from_be_bytes([header[4], header[5]]);
    let is_ip_length_zero = length_field == 0;
    let length = if is_ip_length_zero { padded.wire_length } else { u32::from(length_field) + 40 };
    if length > padded.wire_length {
        return Err(NotTcp::Malformed);
    }
    let wire_length = length.checked_sub(40).ok_or(NotTcp::Malformed)?;
    let payload = Carried { captured: up_to(rest, wire_length), wire_length, depth: padded.depth };
    see(Layer::Ipv6, 40);
    let network = || Network {
        source: address(chunk(header, 8)),
        destination: address(chunk(header, 24)),
        identification: None,
        is_dont_fragment: true,
        is_ip_length_zero,
        hop_limit: header[7],
        traffic_class: header[0] << 4 | header[1] >> 4,
    };
    if header[6] == IP_PROTOCOL_TCP {
        return tcp(network(), payload, see);
    }
    transport(network(), Following { is_ipv4: false, protocol: header[6], carried: payload, fragment: 0 }, see)
}

/// What follows the header of IP, if it is not TCP.
#[cold]
fn transport<'a>(
    network: Network,
    following: Following<'a>,
    see: &mut impl FnMut(Layer, usize),
) -> Result<Segment<'a>, NotTcp> {
    let following = if following.is_extension() { following.after_extensions(see)? } else { following };
    let Following { is_ipv4, protocol, carried, fragment } = following;
    let is_fragment = fragment != 0;
    match protocol {
        IP_PROTOCOL_TCP if !is_fragment => tcp(network, carried, see),
        IP_PROTOCOL_ICMP if is_ipv4 && !is_fragment => {
            let ends = [network.source, network.destination];
            Err(question::echo(ends, carried.captured).unwrap_or_else(|| icmp::error(ends[0], carried.captured)))
        }
        IP_PROTOCOL_ICMPV6 if !is_ipv4 && !is_fragment => {
            let ends = [network.source, network.destination];
            Err(question::icmpv6(ends, carried.captured).unwrap_or_else(|| icmp::error_v6(ends[0], carried.captured)))
        }
        _ => match carried.of_ip(protocol, is_fragment, see)? {
            Inner::Ip(packet) => ip(packet, see),
            Inner::Ethernet(frame) => after_ether_type(frame, ETHERNET, see),
        },
    }
}

/// A TCP segment (RFC 9293, section 3.1).
#[inline(always)]
fn tcp<'a>(
    network: Network,
    Carried { captured, wire_length: length, .. }: Carried<'a>,
    see: &mut impl FnMut(Layer, usize),
) -> Result<Segment<'a>, NotTcp> {
    let Some((header, rest)) = captured.split_first_chunk::<20>() else {
        return Err(if length < 20 { NotTcp::Malformed } else { NotTcp::CutInHeaders });
    };
    let header_length = usize::from(header[12] >> 4) * 4;
    let options_length = header_length.checked_sub(20).ok_or(NotTcp::Malformed)?;
    let payload_length = length.checked_sub(header_length as u32).ok_or(NotTcp::Malformed)?;
    let (options, payload) = rest.split_at_checked(options_length).unwrap_or((rest, &[]));
    see(Layer::Tcp, 20 + options.len());
    Ok(Segment {
        source: network.source,
        destination: network.destination,
        source_port: u16::from_be_bytes([header[0], header[1]]),
        destination_port: u16::from_be_bytes([header[2], header[3]]),
        sequence_number: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        acknowledgment_number: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        flags: TcpFlags(header[13]),
        window: u16::from_be_bytes([header[14], header[15]]),
        options,
        payload,
        payload_length,
        identification: network.identification,
        is_dont_fragment: network.is_dont_fragment,
        is_ip_length_zero: network.is_ip_length_zero,
        hop_limit: network.hop_limit,
        traffic_class: network.traffic_class,
    })
}

/// The options of a segment (RFC 9293, 7323, 2018).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpOptions {
    /// Maximum segment size, in bytes.
    pub maximum_segment_size: Option<u16>,
    /// Shift of the window field; at most 14 (RFC 7323, section 2.3).
    pub window_scale: Option<u8>,
    /// The sender understands selective acknowledgment.
    pub is_sack_permitted: bool,
    /// Timestamp value and echo reply.
    pub timestamps: Option<(u32, u32)>,
    /// Left and right edge of each selectively acknowledged block; the first `sack_count` are set.
    pub sack: [(u32, u32); 4],
    /// How many of `sack` are set.
    pub sack_count: u8,
}

/// Reads TCP options up to their end or the first malformed one.
#[inline]
pub fn tcp_options(mut options: &[u8]) -> TcpOptions {
    let mut found = TcpOptions::default();
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            0 => break,
            1 => {
                options = rest;
                continue;
            }
            _ => {}
        }
        let Some(length) = rest.first().map(|&length| usize::from(length)) else { break };
        let Some((option, rest)) = options.split_at_checked(length) else { break };
        let Some(value) = option.get(2..) else { break };
        match (kind, value) {
            (2, &[high, low]) => found.maximum_segment_size = Some(u16::from_be_bytes([high, low])),
            (3, &[shift]) => found.window_scale = Some(shift.min(14)),
            (4, &[]) => found.is_sack_permitted = true,
            (8, &[a, b, c, d, e, f, g, h]) => {
                found.timestamps = Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])));
            }
            (5, edges) if !edges.is_empty() && edges.len().is_multiple_of(8) && edges.len() <= 32 => {
                found.sack_count = (edges.len() / 8) as u8;
                for (block, edges) in found.sack.iter_mut().zip(edges.chunks_exact(8)) {
                    *block = (u32::from_be_bytes(edge(edges, 0)), u32::from_be_bytes(edge(edges, 4)));
                }
            }
            (2 | 3 | 4 | 5 | 8, _) => break,
            _ => {}
        }
        options = rest;
    }
    found
}

/// Four bytes of a slice that is long enough.
#[inline(always)]
fn edge(edges: &[u8], at: usize) -> [u8; 4] {
    chunk(edges, at).unwrap_or_default()
}

/// The packet without padding of the link.
#[inline(always)]
fn up_to(packet: &[u8], length: u32) -> &[u8] {
    packet.get(..length as usize).unwrap_or(packet)
}
