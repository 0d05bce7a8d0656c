//! Questions whether a host is there, and their answers: ARP (RFC 826), neighbor discovery (RFC 4861), pings (RFC 792, RFC 4443).
//!
//! What asks for no other host is none: a host that announces its own address, or looks whether another one has it.

use super::address::{Address, address};
use super::headers::{NotTcp, Question, QuestionKind, chunk};

/// An ARP packet for Ethernet and IPv4: hardware, protocol, lengths of their addresses.
const ARP_OF_ETHERNET: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// ARP operations.
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
/// Types of ICMP messages.
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
/// Types of ICMPv6 messages.
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// The S bit of a Neighbor Advertisement: it answers a solicitation.
const SOLICITED: u8 = 0x40;

fn question(kind: QuestionKind, is_answer: bool, asker: Address, asked: Address) -> Option<NotTcp> {
    let is_of_two = asker != asked && ![Address::v4([0; 4]), Address::v6([0; 16])].contains(&asker);
    is_of_two.then_some(NotTcp::Question(Question { kind, is_answer, asker, asked }))
}

/// A frame of ARP.
#[cold]
pub(super) fn arp(packet: &[u8]) -> NotTcp {
    arp_question(packet).unwrap_or(NotTcp::NotIp)
}

fn arp_question(packet: &[u8]) -> Option<NotTcp> {
    let packet: [u8; 28] = chunk(packet, 0).filter(|packet: &[u8; 28]| packet.starts_with(&ARP_OF_ETHERNET))?;
    let [sender, target] = [14, 24].map(|at| chunk(&packet, at).map(Address::v4));
    match u16::from_be_bytes([packet[6], packet[7]]) {
        REQUEST => question(QuestionKind::Neighbor, false, sender?, target?),
        REPLY => question(QuestionKind::Neighbor, true, target?, sender?),
        _ => None,
    }
}

/// A ping or its answer, between the source and the destination of a packet of IPv4.
#[cold]
pub(super) fn echo([source, destination]: [Address; 2], message: &[u8]) -> Option<NotTcp> {
    match *message.first()? {
        ECHO_REQUEST => question(QuestionKind::Echo, false, source, destination),
        ECHO_REPLY => question(QuestionKind::Echo, true, destination, source),
        _ => None,
    }
}

/// The same in IPv6, and neighbor discovery.
#[cold]
pub(super) fn icmpv6([source, destination]: [Address; 2], message: &[u8]) -> Option<NotTcp> {
    let named = || chunk(message, 8).map(|bytes| address(Some(bytes)));
    match *message.first()? {
        ECHO_REQUEST_V6 => question(QuestionKind::Echo, false, source, destination),
        ECHO_REPLY_V6 => question(QuestionKind::Echo, true, destination, source),
        NEIGHBOR_SOLICITATION => question(QuestionKind::Neighbor, false, source, named()?),
        NEIGHBOR_ADVERTISEMENT if message.get(4)? & SOLICITED != 0 => {
            question(QuestionKind::Neighbor, true, destination, named()?)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kind: QuestionKind, is_answer: bool) -> NotTcp {
        let [asker, asked] = [Address::v4([10, 0, 0, 1]), Address::v4([10, 0, 0, 9])];
        NotTcp::Question(Question { kind, is_answer, asker, asked })
    }

    /// ARP between two IPv4 addresses.
    fn packet(operation: u8, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        let mut packet = [&ARP_OF_ETHERNET[..], &[0, operation], &[2; 6], &sender, &[0; 6], &target].concat();
        // a frame is padded
        packet.resize(46, 0);
        packet
    }

    #[test]
    fn a_request_and_its_reply_are_of_the_same_two_hosts() {
        let (one, nine) = ([10, 0, 0, 1], [10, 0, 0, 9]);
        assert_eq!(arp(&packet(1, one, nine)), asked(QuestionKind::Neighbor, false));
        assert_eq!(arp(&packet(2, nine, one)), asked(QuestionKind::Neighbor, true));
        // an announcement, a probe, another protocol, a cut packet
        assert_eq!(arp(&packet(1, one, one)), NotTcp::NotIp);
        assert_eq!(arp(&packet(1, [0; 4], nine)), NotTcp::NotIp);
        assert_eq!(arp(&packet(8, one, nine)), NotTcp::NotIp);
        assert_eq!(arp(&packet(1, one, nine)[..27]), NotTcp::NotIp);
    }

    #[test]
    fn a_ping_and_its_answer_are_of_the_same_two_hosts() {
        let (one, nine) = (Address::v4([10, 0, 0, 1]), Address::v4([10, 0, 0, 9]));
        assert_eq!(echo([one, nine], &[8, 0, 0, 0]), Some(asked(QuestionKind::Echo, false)));
        assert_eq!(echo([nine, one], &[0, 0, 0, 0]), Some(asked(QuestionKind::Echo, true)));
        assert_eq!(echo([one, nine], &[3, 1, 0, 0]), None);
    }

    #[test]
    fn neighbor_discovery_names_the_host_in_the_message() {
        let [one, nine, group] = [1, 9, 0xff].map(|last| {
            let mut bytes = [0; 16];
            (bytes[0], bytes[15]) = (0xfe, last);
            bytes
        });
        let ends = |from: [u8; 16], to: [u8; 16]| [Address::v6(from), Address::v6(to)];
        let expected = |is_answer| {
            let [asker, asked] = ends(one, nine);
            Some(NotTcp::Question(Question { kind: QuestionKind::Neighbor, is_answer, asker, asked }))
        };
        let message = |kind: u8, flags: u8| [&[kind, 0, 0, 0, flags, 0, 0, 0][..], &nine].concat();
        assert_eq!(icmpv6(ends(one, group), &message(135, 0)), expected(false));
        assert_eq!(icmpv6(ends(nine, one), &message(136, 0x60)), expected(true));
        assert_eq!(icmpv6(ends(nine, group), &message(136, 0x20)), None, "an announcement");
        assert_eq!(icmpv6(ends(one, group), &message(135, 0)[..20]), None);
    }
}
