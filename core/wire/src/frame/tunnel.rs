//! What a packet without TCP carries -> the packet or frame inside.
//!
//! ```text
//! PPP | PPPoE | GRE [ERSPAN] | UDP VXLAN | UDP GENEVE | IP in IP   ->  IP or Ethernet, read as any other
//! ```
//!
//! Each header is read only if it fits on the wire; tunnels within tunnels are opened up to a depth.

use super::headers::{
    Carried, ETHER_TYPE_IPV4, ETHER_TYPE_IPV6, IP_EXTENSIONS, IP_PROTOCOL_GRE, IP_PROTOCOL_IPV4, IP_PROTOCOL_IPV6,
    IP_PROTOCOL_TCP, IP_PROTOCOL_UDP, NotTcp,
};
use super::layer::Layer;

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

/// A packet of IP, with what the link may have added to its end.
pub(super) enum Ip<'a> {
    V4(Carried<'a>),
    V6(Carried<'a>),
}

/// What is inside.
pub(super) enum Inner<'a> {
    Ip(Ip<'a>),
    Ethernet(Carried<'a>),
}

impl<'a> Carried<'a> {
    /// Enters a tunnel.
    fn deeper(self) -> Result<Self, NotTcp> {
        if self.depth < DEPTH_MAX { Ok(Self { depth: self.depth + 1, ..self }) } else { Err(NotTcp::Tunnel) }
    }

    /// The packet or frame of an EtherType.
    fn of_ether_type(self, ether_type: u16) -> Result<Inner<'a>, NotTcp> {
        match ether_type {
            ETHER_TYPE_IPV4 => Ok(Inner::Ip(Ip::V4(self))),
            ETHER_TYPE_IPV6 => Ok(Inner::Ip(Ip::V6(self))),
            ETHER_TYPE_BRIDGED => Ok(Inner::Ethernet(self)),
            _ => Err(NotTcp::Tunnel),
        }
    }

    /// PPP (RFC 1661), with or without the address and control bytes of RFC 1662.
    pub(super) fn ppp(self, see: &mut impl FnMut(Layer, usize)) -> Result<Ip<'a>, NotTcp> {
        let at = if self.bytes(0)? == [0xff, 0x03] { 2 } else { 0 };
        // a protocol of one byte is odd
        let [first] = self.bytes(at)?;
        let (protocol, length) = if first & 1 == 1 { (u16::from(first), at + 1) } else { (self.number(at)?, at + 2) };
        let own = self.after(length)?;
        see(Layer::Ppp, length);
        match protocol {
            0x0021 => Ok(Ip::V4(own)),
            0x0057 => Ok(Ip::V6(own)),
            // MPLS
            0x0281 | 0x0283 => Err(NotTcp::Tunnel),
            _ => Err(NotTcp::NotIp),
        }
    }

    /// A PPPoE session (RFC 2516): version and type 1, code 0.
    #[cold]
    pub(super) fn pppoe(self, see: &mut impl FnMut(Layer, usize)) -> Result<Ip<'a>, NotTcp> {
        if self.bytes(0)? != [0x11, 0] {
            return Err(NotTcp::Tunnel);
        }
        let session = self.deeper()?.after(6)?;
        see(Layer::Pppoe, 6);
        session.ppp(see)
    }

    /// What an IP packet of this protocol carries that is not a complete TCP segment.
    #[cold]
    pub(super) fn of_ip(
        self,
        protocol: u8,
        is_fragment: bool,
        see: &mut impl FnMut(Layer, usize),
    ) -> Result<Inner<'a>, NotTcp> {
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
            (IP_PROTOCOL_GRE, _) => self.deeper()?.gre(see),
            _ => self.deeper()?.udp(see),
        }
    }

    /// GRE (RFC 2784 and 2890), version 0 without routing.
    fn gre(self, see: &mut impl FnMut(Layer, usize)) -> Result<Inner<'a>, NotTcp> {
        let (flags, ether_type) = (self.number(0)?, self.number(2)?);
        if flags & 0x4007 != 0 {
            return Err(NotTcp::Tunnel);
        }
        // checksum, key, sequence number
        let words = [0x8000, 0x2000, 0x1000].iter().filter(|&bit| flags & bit != 0).count();
        let carried = self.after(4 + 4 * words)?;
        see(Layer::Gre, 4 + 4 * words);
        if ether_type != ETHER_TYPE_ERSPAN {
            return carried.of_ether_type(ether_type);
        }
        // type II has a header of its own and a sequence number, type I neither
        if flags & 0x1000 == 0 {
            return Ok(Inner::Ethernet(carried));
        }
        let mirrored = carried.after(8)?;
        see(Layer::Erspan, 8);
        Ok(Inner::Ethernet(mirrored))
    }

    /// VXLAN or GENEVE, by its port.
    fn udp(self, see: &mut impl FnMut(Layer, usize)) -> Result<Inner<'a>, NotTcp> {
        let port = self.number(2)?;
        let own = self.after(8)?;
        see(Layer::Udp, 8);
        let header: [u8; 8] = own.bytes(0)?;
        if port == GENEVE_PORT {
            // version 0
            if header[0] >> 6 != 0 {
                return Err(NotTcp::Tunnel);
            }
            let length = 8 + usize::from(header[0] & 0x3f) * 4;
            let carried = own.after(length)?;
            see(Layer::Geneve, length);
            return carried.of_ether_type(u16::from_be_bytes([header[2], header[3]]));
        }
        // the I flag: there is a network identifier; the last byte is reserved
        if header[0] & 0x08 == 0 || header[7] != 0 {
            return Err(NotTcp::Tunnel);
        }
        let carried = own.after(8)?;
        see(Layer::Vxlan, 8);
        Ok(Inner::Ethernet(carried))
    }
}
