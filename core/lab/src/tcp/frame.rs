//! A segment -> an Ethernet frame with correct lengths and checksums, for a capture.
//!
//! It never fragments.

use std::io;
use std::net::IpAddr;

use etherparse::{IpHeaders, Ipv4Header, PacketBuilder, TcpHeader, ip_number};

use super::segment::{ACK, FIN, PSH, RST, SYN, Segment, emit_options};

/// A hardware address.
pub type MacAddress = [u8; 6];

impl Segment {
    /// Appends the frame from `macs.0` to `macs.1`: Ethernet II, IPv4 or IPv6, TCP.
    ///
    /// # Errors
    /// A segment that no IP packet can carry.
    pub fn emit_frame(&self, macs: (MacAddress, MacAddress), out: &mut Vec<u8>) -> io::Result<()> {
        let mut options = Vec::with_capacity(40);
        emit_options(&self.options, &mut options);
        let mut tcp = TcpHeader::new(self.source.port(), self.destination.port(), self.sequence_number, self.window);
        let has = |bit: u8| self.flags.0 & bit != 0;
        (tcp.fin, tcp.syn, tcp.rst, tcp.psh, tcp.ack) = (has(FIN), has(SYN), has(RST), has(PSH), has(ACK));
        tcp.acknowledgment_number = self.acknowledgment_number;
        tcp.set_options_raw(&options).map_err(io::Error::other)?;
        let frame = PacketBuilder::ethernet2(macs.0, macs.1);
        let packet = match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                // the builder sets its length
                let (source, destination) = (source.octets(), destination.octets());
                let ip = Ipv4Header::new(0, 64, ip_number::TCP, source, destination).map_err(io::Error::other)?;
                frame.ip(IpHeaders::Ipv4(Ipv4Header { identification: self.identification, ..ip }, Default::default()))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => frame.ipv6(source.octets(), destination.octets(), 64),
            _ => return Err(io::Error::other("addresses of two families")),
        };
        packet.tcp_header(tcp).write(out, &self.payload).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use iscsitrace_wire::frame::{self, LinkType, TcpFlags, TcpOptions};
    use proptest::prelude::*;
    use std::net::SocketAddr;

    /// RFC 1071, written down naively: 16-bit words, carries added one by one.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn segment(is_v6: bool, payload: Vec<u8>) -> Segment {
        let (source, destination) =
            if is_v6 { ("[2001:db8::1]:5001", "[2001:db8::2]:3260") } else { ("10.0.0.1:5001", "10.0.0.2:3260") };
        let mut options = TcpOptions { timestamps: Some((77, 88)), sack_count: 1, ..TcpOptions::default() };
        options.sack[0] = (500, 600);
        Segment {
            source: source.parse::<SocketAddr>().expect("address"),
            destination: destination.parse::<SocketAddr>().expect("address"),
            sequence_number: 0xffff_ff00,
            acknowledgment_number: 7,
            flags: TcpFlags(ACK | PSH),
            window: 501,
            options,
            identification: 0xbeef,
            payload: Bytes::from(payload),
        }
    }

    proptest! {
        #[test]
        fn frames_are_read_back_with_right_checksums(is_v6: bool, payload in prop::collection::vec(any::<u8>(), 0..3000)) {
            let segment = segment(is_v6, payload.clone());
            let mut bytes = Vec::new();
            segment.emit_frame(([2; 6], [4; 6]), &mut bytes).unwrap();
            prop_assert_eq!(bytes.len(), segment.frame_length());
            let read = frame::segment(LinkType::ETHERNET, &bytes, bytes.len() as u32).expect("a TCP segment");
            prop_assert_eq!(read.source.to_ip(), segment.source.ip());
            prop_assert_eq!(read.destination.to_ip(), segment.destination.ip());
            prop_assert_eq!((read.source_port, read.destination_port), (5001, 3260));
            prop_assert_eq!((read.sequence_number, read.acknowledgment_number), (0xffff_ff00, 7));
            prop_assert_eq!((read.flags, read.window), (segment.flags, 501));
            prop_assert_eq!(frame::tcp_options(read.options), segment.options);
            prop_assert_eq!(read.payload, &payload[..]);
            // RFC 1071: a part with a right checksum sums to 0xffff.
            let ip = &bytes[14..];
            let (addresses, tcp) = if is_v6 { (&ip[8..40], &ip[40..]) } else { (&ip[12..20], &ip[20..]) };
            if !is_v6 {
                prop_assert_eq!(naive(&ip[..20]), 0xffff);
            }
            let mut all = addresses.to_vec();
            all.extend_from_slice(&[0, 6]);
            all.extend_from_slice(&(tcp.len() as u16).to_be_bytes());
            all.extend_from_slice(tcp);
            prop_assert_eq!(naive(&all), 0xffff);
        }
    }
}
