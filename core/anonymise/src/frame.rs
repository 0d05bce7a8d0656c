//! One packet of TCP, or of a tunnel around it: headers by their known fields, other addresses, right checksums.
//!
//! The bytes are written anew, from the outermost header to the payload; what no table and no dissector needs (options of
//! IP, unknown options of TCP, padding) is zero, or an option without meaning. The layers are those that
//! `iscsitrace_wire::frame` reads.

use iscsitrace_wire::frame::{LinkType, Segment};

use crate::address::Addresses;
use crate::checksum;

const ETHER_TYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86dd;
const ETHER_TYPE_PPPOE: u16 = 0x8864;
const ETHER_TYPE_BRIDGED: u16 = 0x6558;
const ETHER_TYPE_ERSPAN: u16 = 0x88be;
const GENEVE_PORT: u16 = 6081;
/// NOP, as an option of IPv4 and of TCP.
const OPTION_NONE: u8 = 1;
const OPTION_END: u8 = 0;
/// Maximum segment size, window scale, SACK permitted, SACK, timestamps.
const OPTIONS_KEPT: [u8; 5] = [2, 3, 4, 5, 8];
/// The same limit as that of the reader, and more: headers within headers.
const LAYERS_MAX: usize = 64;

/// A packet that is written anew.
pub struct Rewritten<'a> {
    addresses: &'a Addresses,
    original: &'a [u8],
    /// The new bytes, as many as before.
    pub bytes: Vec<u8>,
}

/// Where to go on.
enum Next {
    EtherType { at: usize, next: usize },
    Ethernet(usize),
    Ppp(usize),
    Ip(usize),
    Of { protocol: u8, at: usize },
    Tcp(usize),
}

/// Source and destination of the innermost IP header, as bytes.
type Ends = Vec<u8>;

impl<'a> Rewritten<'a> {
    /// A packet of zeros in the place of another.
    pub fn zeros(original: &'a [u8], addresses: &'a Addresses) -> Self {
        Self { addresses, original, bytes: vec![0; original.len()] }
    }

    /// Writes the packet, its payload by `fill`. None if the headers do not lead to the segment.
    pub fn write(&mut self, link_type: LinkType, segment: &Segment<'_>, fill: impl FnOnce(&mut [u8])) -> Option<()> {
        let mut next = self.link(link_type)?;
        let (mut ends, mut is_ipv4) = (Ends::new(), true);
        for _ in 0..LAYERS_MAX {
            next = match next {
                Next::Tcp(at) => return self.tcp(at, segment, (&ends, is_ipv4), fill),
                Next::EtherType { at, next } => self.ether_type(at, next)?,
                Next::Ethernet(at) => self.ethernet(at)?,
                Next::Ppp(at) => self.ppp(at)?,
                Next::Ip(at) => {
                    is_ipv4 = self.byte(at)? >> 4 == 4;
                    if is_ipv4 { self.ipv4(at, &mut ends)? } else { self.ipv6(at, &mut ends)? }
                }
                Next::Of { protocol, at } => self.of_ip(protocol, at)?,
            };
        }
        None
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.original.get(at).copied()
    }

    fn number(&self, at: usize) -> Option<u16> {
        self.original.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Keeps bytes that must be there.
    fn keep(&mut self, from: usize, to: usize) -> Option<()> {
        let kept = self.original.get(from..to)?;
        self.bytes[from..to].copy_from_slice(kept);
        Some(())
    }

    fn mac(&mut self, at: usize) -> Option<()> {
        let own = *self.original.get(at..)?.first_chunk()?;
        self.bytes[at..at + 6].copy_from_slice(&self.addresses.mac(own));
        Some(())
    }

    /// The link header, with other MAC addresses.
    fn link(&mut self, link_type: LinkType) -> Option<Next> {
        Some(match link_type {
            LinkType::ETHERNET => Next::Ethernet(0),
            LinkType::LINUX_SLL => {
                self.keep(0, 6)?;
                self.cooked_address(4, 6)?;
                Next::EtherType { at: 14, next: 16 }
            }
            LinkType::LINUX_SLL2 => {
                self.keep(4, 12)?;
                self.cooked_address(11, 12)?;
                Next::EtherType { at: 0, next: 20 }
            }
            LinkType::PPP => Next::Ppp(0),
            LinkType::NULL | LinkType::LOOP => {
                self.keep(0, 4)?;
                Next::Ip(4)
            }
            _ => Next::Ip(0),
        })
    }

    /// The address of a cooked capture; its length is the number that ends at `length_at`.
    fn cooked_address(&mut self, length_at: usize, at: usize) -> Option<()> {
        let has_mac = if at == 6 { self.number(length_at)? == 6 } else { self.byte(length_at)? == 6 };
        if has_mac { self.mac(at) } else { Some(()) }
    }

    fn ethernet(&mut self, at: usize) -> Option<Next> {
        self.mac(at)?;
        self.mac(at + 6)?;
        Some(Next::EtherType { at: at + 12, next: at + 14 })
    }

    fn ether_type(&mut self, mut at: usize, mut next: usize) -> Option<Next> {
        loop {
            self.keep(at, at + 2)?;
            let ether_type = self.number(at)?;
            if ETHER_TYPES_VLAN.contains(&ether_type) {
                self.keep(next, next + 2)?;
                (at, next) = (next + 2, next + 4);
                continue;
            }
            return match ether_type {
                ETHER_TYPE_PPPOE => {
                    // the number of the session is that of a customer
                    self.keep(next, next + 2)?;
                    self.keep(next + 4, next + 6)?;
                    Some(Next::Ppp(next + 6))
                }
                _ => inside(ether_type, next),
            };
        }
    }

    fn ppp(&mut self, mut at: usize) -> Option<Next> {
        if self.original.get(at..at + 2)? == [0xff, 0x03] {
            self.keep(at, at + 2)?;
            at += 2;
        }
        let length = if self.byte(at)? & 1 == 1 { 1 } else { 2 };
        self.keep(at, at + length)?;
        Some(Next::Ip(at + length))
    }

    fn ip(&mut self, at: usize, address_bytes: usize, ends: &mut Ends) -> Option<()> {
        ends.clear();
        for place in [at, at + address_bytes] {
            let own = self.original.get(place..place + address_bytes)?;
            let address = match own.first_chunk::<16>() {
                Some(own) if address_bytes == 16 => self.addresses.ip(std::net::Ipv6Addr::from(*own).into()),
                _ => self.addresses.ip(std::net::Ipv4Addr::from(*own.first_chunk::<4>()?).into()),
            };
            match address {
                std::net::IpAddr::V4(address) => ends.extend(address.octets()),
                std::net::IpAddr::V6(address) => ends.extend(address.octets()),
            }
        }
        self.bytes.get_mut(at..at + 2 * address_bytes)?.copy_from_slice(ends);
        Some(())
    }

    fn ipv4(&mut self, at: usize, ends: &mut Ends) -> Option<Next> {
        let end = at + usize::from(self.byte(at)? & 0x0f) * 4;
        self.keep(at, at + 10)?;
        self.ip(at + 12, 4, ends)?;
        self.bytes.get_mut(at + 20..end)?.fill(OPTION_NONE);
        let checksum = checksum::of(&[self.bytes.get(at..end)?]);
        self.bytes[at + 10..at + 12].copy_from_slice(&checksum);
        Some(Next::Of { protocol: self.byte(at + 9)?, at: end })
    }

    fn ipv6(&mut self, at: usize, ends: &mut Ends) -> Option<Next> {
        self.keep(at, at + 8)?;
        self.ip(at + 8, 16, ends)?;
        Some(Next::Of { protocol: self.byte(at + 6)?, at: at + 40 })
    }

    /// What an IP header carries; of extension headers nothing but their lengths stays.
    fn of_ip(&mut self, protocol: u8, at: usize) -> Option<Next> {
        match protocol {
            6 => Some(Next::Tcp(at)),
            4 | 41 => Some(Next::Ip(at)),
            47 => self.gre(at),
            17 => self.udp(at),
            0 | 43 | 60 | 135 | 139 | 140 => {
                self.keep(at, at + 2)?;
                Some(Next::Of { protocol: self.byte(at)?, at: at + (usize::from(self.byte(at + 1)?) + 1) * 8 })
            }
            44 => {
                self.keep(at, at + 8)?;
                Some(Next::Of { protocol: self.byte(at)?, at: at + 8 })
            }
            51 => {
                self.keep(at, at + 2)?;
                Some(Next::Of { protocol: self.byte(at)?, at: at + (usize::from(self.byte(at + 1)?) + 2) * 4 })
            }
            _ => None,
        }
    }

    fn gre(&mut self, at: usize) -> Option<Next> {
        self.keep(at, at + 4)?;
        let (flags, ether_type) = (self.number(at)?, self.number(at + 2)?);
        let words = [0x8000, 0x2000, 0x1000].iter().filter(|&bit| flags & bit != 0).count();
        let next = at + 4 + 4 * words;
        match ether_type {
            ETHER_TYPE_ERSPAN if flags & 0x1000 == 0 => Some(Next::Ethernet(next)),
            ETHER_TYPE_ERSPAN => {
                // version and VLAN
                self.keep(next, next + 2)?;
                Some(Next::Ethernet(next + 8))
            }
            _ => inside(ether_type, next),
        }
    }

    /// VXLAN or GENEVE; the checksum of UDP stays zero, which is none.
    fn udp(&mut self, at: usize) -> Option<Next> {
        self.keep(at, at + 6)?;
        let own = at + 8;
        if self.number(at + 2)? == GENEVE_PORT {
            self.keep(own, own + 4)?;
            let next = own + 8 + usize::from(self.byte(own)? & 0x3f) * 4;
            return inside(self.number(own + 2)?, next);
        }
        self.keep(own, own + 1)?;
        Some(Next::Ethernet(own + 8))
    }

    /// The TCP header with its known options, and the payload. The checksum is right if the segment is whole, else zero.
    fn tcp(
        &mut self,
        at: usize,
        segment: &Segment<'_>,
        (ends, is_ipv4): (&[u8], bool),
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<()> {
        let start = self.original.as_ptr() as usize;
        let options_at = at + 20;
        if !segment.options.is_empty() && segment.options.as_ptr() as usize != start + options_at {
            return None;
        }
        self.keep(at, at + 16)?;
        self.keep(at + 18, at + 20)?;
        let options_end = options_at + segment.options.len();
        write_options(segment.options, self.bytes.get_mut(options_at..options_end)?);
        let payload_at = at + usize::from(self.byte(at + 12)? >> 4) * 4;
        let payload_end = payload_at + segment.payload.len();
        if !segment.payload.is_empty() {
            if segment.payload.as_ptr() as usize != start + payload_at {
                return None;
            }
            fill(self.bytes.get_mut(payload_at..payload_end)?);
        }
        let is_whole = segment.payload.len() == segment.payload_length as usize && payload_at == options_end;
        if is_whole {
            let length = (payload_end - at) as u32;
            let pseudo: Vec<u8> = if is_ipv4 {
                [ends, &[0, 6], &(length as u16).to_be_bytes()].concat()
            } else {
                [ends, &length.to_be_bytes(), &[0, 0, 0, 6]].concat()
            };
            let checksum = checksum::of(&[&pseudo, &self.bytes[at..payload_end]]);
            self.bytes[at + 16..at + 18].copy_from_slice(&checksum);
        }
        Some(())
    }
}

fn inside(ether_type: u16, at: usize) -> Option<Next> {
    match ether_type {
        ETHER_TYPE_IPV4 | ETHER_TYPE_IPV6 => Some(Next::Ip(at)),
        ETHER_TYPE_BRIDGED => Some(Next::Ethernet(at)),
        _ => None,
    }
}

/// Known options as they are; each other one as options without meaning, as long.
fn write_options(original: &[u8], written: &mut [u8]) {
    let mut at = 0;
    while let Some(&kind) = original.get(at) {
        let length = match (kind, original.get(at + 1)) {
            // what follows the end is padding
            (OPTION_END, _) => return,
            (OPTION_NONE, _) => 1,
            (_, Some(&length)) if length >= 2 && at + usize::from(length) <= original.len() => usize::from(length),
            // a cut or damaged option, where readers stop: its kind and length
            (_, Some(_)) => {
                written[at..at + 2].copy_from_slice(&original[at..at + 2]);
                return;
            }
            (_, None) => {
                written[at] = kind;
                return;
            }
        };
        if OPTIONS_KEPT.contains(&kind) {
            written[at..at + length].copy_from_slice(&original[at..at + length]);
        } else {
            written[at..at + length].fill(OPTION_NONE);
        }
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KEY_BYTES, Key};
    use iscsitrace_wire::frame::{Address, segment};
    use std::net::IpAddr;

    const PAYLOAD: &[u8] = b"what a host wrote";
    /// Timestamps, and an option of MPTCP with a key.
    const OPTIONS: [u8; 16] = [8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 30, 4, 0x77, 0x88, 1, 0];

    fn tcp() -> Vec<u8> {
        let mut bytes = vec![0xc3, 0x50, 0x0c, 0xbc, 1, 2, 3, 4, 5, 6, 7, 8, 0x90, 0x18, 0x10, 0, 0xde, 0xad, 0, 0];
        bytes.extend_from_slice(&OPTIONS);
        bytes.extend_from_slice(PAYLOAD);
        bytes
    }

    fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        // with the option of a route that was recorded
        let length = (28 + payload.len()) as u16;
        let mut bytes = vec![0x47, 0x08, 0, 0, 0x12, 0x34, 0x40, 0, 63, protocol, 0xbe, 0xef];
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&[10, 20, 30, 40, 192, 168, 100, 200]);
        bytes.extend_from_slice(&[7, 7, 4, 10, 20, 30, 41, 0]);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
        // behind a header for the destination with an option
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend_from_slice(&(payload.len() as u16 + 8).to_be_bytes());
        bytes.extend_from_slice(&[60, 62]);
        for last in [1, 2] {
            bytes.extend_from_slice(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd, 0, last]);
        }
        bytes.extend_from_slice(&[next_header, 0, 0x1e, 4, 0x99, 0x98, 0x97, 0x96]);
        bytes.extend_from_slice(payload);
        bytes
    }

    fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x52, 0x54, 0, 0x11, 0x22, 0x33, 0x52, 0x54, 0, 0x44, 0x55, 0x66];
        bytes.extend_from_slice(&ether_type.to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    fn after(header: &[u8], payload: &[u8]) -> Vec<u8> {
        [header, payload].concat()
    }

    fn udp(port: u16, header: [u8; 8], payload: &[u8]) -> Vec<u8> {
        let length = (16 + payload.len()) as u16;
        let ports = [&[0xab, 0xcd][..], &port.to_be_bytes(), &length.to_be_bytes(), &[0x12, 0x34]].concat();
        [&ports[..], &header, payload].concat()
    }

    /// Frames of every link type and tunnel.
    fn frames() -> Vec<(LinkType, Vec<u8>)> {
        let (v4, v6) = (ipv4(6, &tcp()), ipv6(6, &tcp()));
        let tagged = after(&[0, 100, 0x08, 0x00], &v4);
        let cooked = [0, 0, 0, 1, 0, 6, 0x52, 0x54, 0, 0x11, 0x22, 0x33, 0, 0];
        let cooked_2 = [0x86, 0xdd, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 0x52, 0x54, 0, 0x11, 0x22, 0x33, 0, 0];
        let vxlan = udp(4789, [8, 0, 0, 0, 0, 0, 42, 0], &ethernet(0x0800, &v4));
        let geneve = udp(6081, [0, 0, 0x65, 0x58, 0, 0, 42, 0], &ethernet(0x86dd, &v6));
        let gre = after(&[0x20, 0, 0x08, 0, 1, 2, 3, 4], &v4);
        let pppoe = after(&[0x11, 0, 0x12, 0x34, 0, (v4.len() + 2) as u8, 0, 0x21], &v4);
        vec![
            (LinkType::ETHERNET, ethernet(0x0800, &v4)),
            // padding of the link
            (LinkType::ETHERNET, after(&ethernet(0x86dd, &v6), b"stale memory")),
            (LinkType::ETHERNET, ethernet(0x8100, &tagged)),
            (LinkType::LINUX_SLL, after(&after(&cooked, &[0x08, 0x00]), &v4)),
            (LinkType::LINUX_SLL2, after(&cooked_2, &v6)),
            (LinkType::NULL, after(&[2, 0, 0, 0], &v4)),
            (LinkType::LOOP, after(&[0, 0, 0, 24], &v6)),
            (LinkType::PPP, after(&[0xff, 3, 0, 0x21], &v4)),
            (LinkType::RAW, v6.clone()),
            (LinkType::IPV4, v4.clone()),
            (LinkType::IPV6, v6.clone()),
            (LinkType::ETHERNET, ethernet(0x0800, &ipv4(17, &vxlan))),
            (LinkType::ETHERNET, ethernet(0x86dd, &ipv6(17, &geneve))),
            (LinkType::ETHERNET, ethernet(0x0800, &ipv4(47, &gre))),
            (LinkType::ETHERNET, ethernet(0x0800, &ipv4(4, &v4))),
            (LinkType::ETHERNET, ethernet(0x8864, &pppoe)),
        ]
    }

    fn rewritten(link_type: LinkType, original: &[u8], original_length: u32) -> Option<Vec<u8>> {
        let addresses = Addresses::new(&Key::new(&[4; KEY_BYTES]));
        let segment = segment(link_type, original, original_length).ok()?;
        let mut rewritten = Rewritten::zeros(original, &addresses);
        rewritten.write(link_type, &segment, |payload| payload.fill(0x5a))?;
        Some(rewritten.bytes)
    }

    #[test]
    fn every_header_stays_but_for_addresses() {
        let addresses = Addresses::new(&Key::new(&[4; KEY_BYTES]));
        let mapped = |address: Address| match addresses.ip(address.to_ip()) {
            IpAddr::V4(address) => Address::v4(address.octets()),
            IpAddr::V6(address) => Address::v6(address.octets()),
        };
        for (place, (link_type, original)) in frames().into_iter().enumerate() {
            let length = original.len() as u32;
            let found = rewritten(link_type, &original, length).unwrap_or_else(|| panic!("frame {place}"));
            let [before, after] =
                [&original, &found].map(|bytes| segment(link_type, bytes, length).expect("a segment"));
            assert_eq!(after.payload, &[0x5a; PAYLOAD.len()], "frame {place}");
            let mut options = OPTIONS;
            options[10..14].fill(1);
            assert_eq!(after.options, options);
            assert_ne!(after.source, before.source);
            let (source, destination) = (mapped(before.source), mapped(before.destination));
            assert_eq!(
                iscsitrace_wire::frame::Segment {
                    source,
                    destination,
                    options: after.options,
                    payload: after.payload,
                    ..before
                },
                after,
                "frame {place}"
            );
            for gone in [PAYLOAD, b"stale", &[10, 20, 30], &[0x52, 0x54, 0], &[0x77, 0x88], &[0x99, 0x98]] {
                assert!(!found.windows(gone.len()).any(|window| window == gone), "frame {place}: {gone:x?}");
            }
        }
    }

    #[test]
    fn checksums_are_right_or_none() {
        let frame = ethernet(0x0800, &ipv4(6, &tcp()));
        let found = rewritten(LinkType::ETHERNET, &frame, frame.len() as u32).expect("a frame");
        // the sum over a header with its checksum is that of zeros
        let (ip, tcp) = (&found[14..42], &found[42..]);
        assert_eq!(checksum::of(&[ip]), [0, 0]);
        let pseudo = [&ip[12..20], &[0, 6], &(tcp.len() as u16).to_be_bytes()].concat();
        assert_eq!(checksum::of(&[&pseudo, tcp]), [0, 0]);
        let cut = rewritten(LinkType::ETHERNET, &frame[..frame.len() - 3], frame.len() as u32).expect("a frame");
        assert_eq!(cut[58..60], [0, 0]);
    }

    #[test]
    fn a_frame_that_is_cut_anywhere_keeps_its_length() {
        for (link_type, original) in frames() {
            for kept in 0..original.len() {
                if let Some(found) = rewritten(link_type, &original[..kept], original.len() as u32) {
                    assert_eq!(found.len(), kept);
                    assert!(segment(link_type, &found, original.len() as u32).is_ok());
                }
            }
        }
    }
}
