//! What a packet without TCP carries -> the packet or frame inside.
//!
//! ```text
//! PPP | PPPoE | GRE [ERSPAN] | UDP VXLAN | UDP GENEVE | IP in IP   ->  IP or Ethernet, read as any other
//! ```
//!
//! Each header is read only if it fits on the wire; tunnels within tunnels are opened up to a depth.

use super::headers::{
    ETHER_TYPE_IPV4, ETHER_TYPE_IPV6, IP_EXTENSIONS, IP_PROTOCOL_GRE, IP_PROTOCOL_IPV4, IP_PROTOCOL_IPV6,
    IP_PROTOCOL_TCP, IP_PROTOCOL_UDP, NotTcp, chunk,
};

/// Tunnels within one another that are opened.
const DEPTH_MAX: u8 = 4;
/// VXLAN (RFC 7348), and its port in Linux before that.
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
/// GENEVE (RFC 8926).
const GENEVE_PORT: u16 = 6081;
/// Transparent Ethernet bridging (also NVGRE, RFC 7637).
const ETHER_TYPE_BRIDGED: u16 = 0x6558;
/// ERSPAN types I and II: a mirrored port in GRE.
const ETHER_TYPE_ERSPAN: u16 = 0x88be;

/// What a header carries: the captured part of its bytes on the wire, within `depth` tunnels.
#[derive(Clone, Copy)]
pub(super) struct Carried<'a> {
    pub(super) captured: &'a [u8],
    pub(super) wire_length: u32,
    pub(super) depth: u8,
}

/// What is inside.
pub(super) enum Inner<'a> {
    Ipv4(Carried<'a>),
    Ipv6(Carried<'a>),
    Ethernet(Carried<'a>),
}

impl<'a> Carried<'a> {
    fn bytes<const N: usize>(self, at: usize) -> Result<[u8; N], NotTcp> {
        chunk(self.captured, at).ok_or(self.end_before(at + N))
    }

    fn number(self, at: usize) -> Result<u16, NotTcp> {
        self.bytes(at).map(u16::from_be_bytes)
    }

    /// Why there are fewer bytes: the snaplen cut them off, or they never were.
    fn end_before(self, length: usize) -> NotTcp {
        if length as u64 > u64::from(self.wire_length) { NotTcp::Malformed } else { NotTcp::CutInHeaders }
    }

    fn after(self, header_length: usize) -> Result<Self, NotTcp> {
        let captured = self.captured.get(header_length..).ok_or(self.end_before(header_length))?;
        let wire_length = self.wire_length.checked_sub(header_length as u32).ok_or(NotTcp::Malformed)?;
        Ok(Self { captured, wire_length, ..self })
    }

    /// Enters a tunnel.
    fn deeper(self) -> Result<Self, NotTcp> {
        if self.depth < DEPTH_MAX { Ok(Self { depth: self.depth + 1, ..self }) } else { Err(NotTcp::Tunnel) }
    }

    /// The packet or frame of an EtherType.
    fn of_ether_type(self, ether_type: u16) -> Result<Inner<'a>, NotTcp> {
        match ether_type {
            ETHER_TYPE_IPV4 => Ok(Inner::Ipv4(self)),
            ETHER_TYPE_IPV6 => Ok(Inner::Ipv6(self)),
            ETHER_TYPE_BRIDGED => Ok(Inner::Ethernet(self)),
            _ => Err(NotTcp::Tunnel),
        }
    }

    /// PPP (RFC 1661), with or without the address and control bytes of RFC 1662.
    pub(super) fn ppp(self) -> Result<Inner<'a>, NotTcp> {
        let own = if self.bytes(0)? == [0xff, 0x03] { self.after(2)? } else { self };
        // a protocol of one byte is odd
        let [first] = own.bytes(0)?;
        let (protocol, own) =
            if first & 1 == 1 { (u16::from(first), own.after(1)?) } else { (own.number(0)?, own.after(2)?) };
        match protocol {
            0x0021 => Ok(Inner::Ipv4(own)),
            0x0057 => Ok(Inner::Ipv6(own)),
            // MPLS
            0x0281 | 0x0283 => Err(NotTcp::Tunnel),
            _ => Err(NotTcp::NotIp),
        }
    }

    /// A PPPoE session (RFC 2516): version and type 1, code 0.
    #[cold]
    pub(super) fn pppoe(self) -> Result<Inner<'a>, NotTcp> {
        if self.bytes(0)? != [0x11, 0] { Err(NotTcp::Tunnel) } else { self.deeper()?.after(6)?.ppp() }
    }

    /// What an IP packet of this protocol carries that is not a complete TCP segment.
    #[cold]
    pub(super) fn of_ip(self, protocol: u8, is_fragment: bool) -> Result<Inner<'a>, NotTcp> {
        let is_tunnel = match protocol {
            IP_PROTOCOL_IPV4 | IP_PROTOCOL_IPV6 | IP_PROTOCOL_GRE => true,
            // only the first fragment has the ports; the later ones are other UDP
            IP_PROTOCOL_UDP => self.number(2).is_ok_and(|port| VXLAN_PORTS.contains(&port) || port == GENEVE_PORT),
            _ => false,
        };
        let may_hold_tcp = protocol == IP_PROTOCOL_TCP || IP_EXTENSIONS.contains(&protocol);
        match (protocol, is_fragment) {
            (_, true) if is_tunnel || may_hold_tcp => Err(NotTcp::Fragment),
            _ if !is_tunnel => Err(NotTcp::OtherProtocol(protocol)),
            (IP_PROTOCOL_IPV4, _) => self.deeper()?.of_ether_type(ETHER_TYPE_IPV4),
            (IP_PROTOCOL_IPV6, _) => self.deeper()?.of_ether_type(ETHER_TYPE_IPV6),
            (IP_PROTOCOL_GRE, _) => self.deeper()?.gre(),
            _ => self.deeper()?.udp(),
        }
    }

    /// GRE (RFC 2784 and 2890), version 0 without routing.
    fn gre(self) -> Result<Inner<'a>, NotTcp> {
        let (flags, ether_type) = (self.number(0)?, self.number(2)?);
        if flags & 0x4007 != 0 {
            return Err(NotTcp::Tunnel);
        }
        // checksum, key, sequence number
        let words = [0x8000, 0x2000, 0x1000].iter().filter(|&bit| flags & bit != 0).count();
        let carried = self.after(4 + 4 * words)?;
        if ether_type != ETHER_TYPE_ERSPAN {
            return carried.of_ether_type(ether_type);
        }
        // type II has a header of its own and a sequence number, type I neither
        Ok(Inner::Ethernet(if flags & 0x1000 == 0 { carried } else { carried.after(8)? }))
    }

    /// VXLAN or GENEVE, by its port.
    fn udp(self) -> Result<Inner<'a>, NotTcp> {
        let port = self.number(2)?;
        let own = self.after(8)?;
        let header: [u8; 8] = own.bytes(0)?;
        if port == GENEVE_PORT {
            let options_length = usize::from(header[0] & 0x3f) * 4;
            let ether_type = u16::from_be_bytes([header[2], header[3]]);
            // version 0
            return if header[0] >> 6 == 0 {
                own.after(8 + options_length)?.of_ether_type(ether_type)
            } else {
                Err(NotTcp::Tunnel)
            };
        }
        // the I flag: there is a network identifier; the last byte is reserved
        if header[0] & 0x08 == 0 || header[7] != 0 { Err(NotTcp::Tunnel) } else { own.after(8).map(Inner::Ethernet) }
    }
}
