//! Capture filters for iSCSI, in libpcap's syntax.
//!
//! A VLAN tag shifts everything after it, so tagged packets need their own expression. The keyword `vlan` applies to
//! the rest of an expression, so it comes last. Two tags (802.1ad) work the same way.

use std::fmt;
use std::net::IpAddr;

use iscsitrace_wire::frame::LinkType;

/// TCP ports that IANA assigned to iSCSI.
pub const PORTS: &str = "tcp port 3260 or tcp port 860";
/// Maximum portals named in a filter; with more, only their ports are.
const PORTALS_MAX: usize = 32;

/// The address and port of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Portal {
    /// Its address.
    pub address: IpAddr,
    /// Its TCP port.
    pub port: u16,
}

impl fmt::Display for Portal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(address) => write!(formatter, "{address}:{}", self.port),
            IpAddr::V6(address) => write!(formatter, "[{address}]:{}", self.port),
        }
    }
}

/// The filter for the iSCSI ports and these portals, with and without VLAN tags.
pub fn filter(link_type: LinkType, portals: &[Portal]) -> String {
    let mut clauses = vec![PORTS.to_owned()];
    if portals.len() <= PORTALS_MAX {
        clauses.extend(portals.iter().map(|portal| format!("(host {} and tcp port {})", portal.address, portal.port)));
    } else {
        let mut ports: Vec<u16> = portals.iter().map(|portal| portal.port).collect();
        ports.sort_unstable();
        ports.dedup();
        clauses.extend(ports.iter().map(|port| format!("tcp port {port}")));
    }
    with_tags(link_type, &clauses.join(" or "))
}

/// The same for packets with one or two VLAN tags, if the link can have them.
pub fn with_tags(link_type: LinkType, expression: &str) -> String {
    if link_type == LinkType::ETHERNET {
        format!("({expression}) or (vlan and (({expression}) or (vlan and ({expression}))))")
    } else {
        expression.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsitrace_trace::reader::Filter;

    /// An Ethernet frame with a TCP segment over IPv4, and this many VLAN tags.
    fn frame(tags: usize, source_port: u16, destination: [u8; 4], destination_port: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        for _ in 0..tags {
            frame.extend([0x81, 0x00, 0x00, 0x07]);
        }
        frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1]);
        frame.extend(destination);
        frame.extend(source_port.to_be_bytes());
        frame.extend(destination_port.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        frame
    }

    fn passes(expression: &str, frame: &[u8]) -> bool {
        Filter::new(expression).expect("libpcap takes it").matches(LinkType::ETHERNET, frame)
    }

    #[test]
    fn iscsi_ports_pass_with_and_without_vlan_tags() {
        let expression = filter(LinkType::ETHERNET, &[]);
        for tags in 0..=2 {
            assert!(passes(&expression, &frame(tags, 50_000, [10, 0, 0, 2], 3260)), "{tags} tags to 3260");
            assert!(passes(&expression, &frame(tags, 860, [10, 0, 0, 2], 50_000)), "{tags} tags from 860");
            assert!(!passes(&expression, &frame(tags, 50_000, [10, 0, 0, 2], 5000)), "{tags} tags to 5000");
        }
    }

    #[test]
    fn a_found_portal_passes_but_its_port_on_other_hosts_does_not() {
        let portal = Portal { address: [10, 0, 0, 2].into(), port: 5000 };
        let expression = filter(LinkType::ETHERNET, &[portal]);
        for tags in 0..=2 {
            assert!(passes(&expression, &frame(tags, 50_000, [10, 0, 0, 2], 5000)));
            assert!(!passes(&expression, &frame(tags, 50_000, [10, 0, 0, 3], 5000)));
        }
    }

    #[test]
    fn many_portals_are_filtered_by_port_only() {
        let portals: Vec<Portal> =
            (0..40).map(|host| Portal { address: [10, 0, 1, host].into(), port: 5000 }).collect();
        assert_eq!(filter(LinkType::RAW, &portals), "tcp port 3260 or tcp port 860 or tcp port 5000");
    }
}
