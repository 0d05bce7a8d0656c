//! Numbers of protocols, bytes of headers, and why a frame has no TCP segment.

use super::address::Address;

/// Why a frame has no TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTcp {
    /// Another network protocol (ARP, LLDP ...).
    NotIp,
    /// An error about a TCP packet.
    IcmpError(IcmpError),
    /// Whether a host is there, asked or answered.
    Question(Question),
    /// Another transport protocol, by its IP protocol number.
    OtherProtocol(u8),
    /// A fragment of an IP packet that holds TCP or a tunnel; first or later.
    Fragment,
    /// MPLS, or a tunnel of another kind or depth than those that are opened.
    Tunnel,
    /// The snaplen cut the frame before byte 20 of the TCP header.
    CutInHeaders,
    /// Contradictory headers.
    Malformed,
    /// A link type that is not decoded.
    UnsupportedLinkType,
}

/// Why a packet was not delivered; codes as in `CATEGORIES["icmp_kind"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum IcmpKind {
    /// Network, host or port not reachable, or prohibited.
    Unreachable = 0,
    /// Longer than the MTU of the next link, and not to be fragmented.
    TooBig = 1,
    /// Its hop limit was used up.
    TimeExceeded = 2,
    /// A faulty header.
    ParameterProblem = 3,
}

/// An error about a TCP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError {
    /// Sender of the error: a router or the destination.
    pub reporter: Address,
    /// Why the packet was not delivered.
    pub kind: IcmpKind,
    /// Code field of the message.
    pub code: u8,
    /// MTU of the next link, if the reporter states it.
    pub mtu_bytes: Option<u32>,
    /// Source of the quoted packet.
    pub source: Address,
    /// Its destination.
    pub destination: Address,
    /// Its TCP source port.
    pub source_port: u16,
    /// Its TCP destination port.
    pub destination_port: u16,
}

/// How a host asks whether another one is there; codes as in `CATEGORIES["question_kind"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QuestionKind {
    /// ARP (RFC 826), or neighbor discovery of IPv6 (RFC 4861): which link-layer address has it.
    Neighbor = 0,
    /// An echo request of ICMP: a ping.
    Echo = 1,
}

/// One host asks whether another one is there, or that one answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// How it asks.
    pub kind: QuestionKind,
    /// Whether this is the answer.
    pub is_answer: bool,
    /// Who asks.
    pub asker: Address,
    /// Whom it asks for.
    pub asked: Address,
}

pub(super) const IP_PROTOCOL_ICMP: u8 = 1;
pub(super) const IP_PROTOCOL_IPV4: u8 = 4;
pub(super) const IP_PROTOCOL_TCP: u8 = 6;
pub(super) const IP_PROTOCOL_UDP: u8 = 17;
pub(super) const IP_PROTOCOL_IPV6: u8 = 41;
pub(super) const IP_PROTOCOL_GRE: u8 = 47;
pub(super) const IP_PROTOCOL_AUTHENTICATION: u8 = 51;
pub(super) const IP_PROTOCOL_ICMPV6: u8 = 58;
/// Hop-by-hop, routing, fragment, authentication, destination, mobility, HIP, Shim6 headers.
pub(super) const IP_EXTENSIONS: [u8; 8] = [0, 43, 44, IP_PROTOCOL_AUTHENTICATION, 60, 135, 139, 140];

pub(super) const ETHER_TYPE_IPV4: u16 = 0x0800;
pub(super) const ETHER_TYPE_IPV6: u16 = 0x86dd;
pub(super) const ETHER_TYPE_ARP: u16 = 0x0806;
/// 802.1Q, 802.1ad and the old QinQ value.
pub(super) const ETHER_TYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
pub(super) const ETHER_TYPE_PPPOE: u16 = 0x8864;
/// MPLS unicast and multicast, transparent Ethernet bridging.
pub(super) const ETHER_TYPES_TUNNEL: [u16; 3] = [0x8847, 0x8848, 0x6558];

/// What a header carries: the captured part of its bytes on the wire, within `depth` tunnels.
#[derive(Clone, Copy)]
pub(super) struct Carried<'a> {
    pub(super) captured: &'a [u8],
    pub(super) wire_length: u32,
    pub(super) depth: u8,
}

impl Carried<'_> {
    /// `N` bytes at `at`.
    pub(super) fn bytes<const N: usize>(self, at: usize) -> Result<[u8; N], NotTcp> {
        chunk(self.captured, at).ok_or(self.end_before(at + N))
    }

    /// Two bytes at `at`.
    pub(super) fn number(self, at: usize) -> Result<u16, NotTcp> {
        self.bytes(at).map(u16::from_be_bytes)
    }

    /// What follows a header of this length.
    pub(super) fn after(self, header_length: usize) -> Result<Self, NotTcp> {
        let captured = self.captured.get(header_length..).ok_or(self.end_before(header_length))?;
        let wire_length = self.wire_length.checked_sub(header_length as u32).ok_or(NotTcp::Malformed)?;
        Ok(Self { captured, wire_length, ..self })
    }

    /// Why there are fewer bytes: the snaplen cut them off, or they never were.
    fn end_before(self, length: usize) -> NotTcp {
        if length as u64 > u64::from(self.wire_length) { NotTcp::Malformed } else { NotTcp::CutInHeaders }
    }
}

/// `N` bytes at `at`, if there.
#[inline(always)]
pub(super) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
