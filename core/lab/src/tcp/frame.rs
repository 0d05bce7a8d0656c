//! A segment -> an Ethernet frame with correct lengths and checksums, for a capture.
//!
//! It never fragments. A segment that exceeds an IP packet has an IP length of 0, as with segmentation offload.

use std::net::IpAddr;

use super::segment::{Segment, emit_options};

/// A hardware address.
pub type MacAddress = [u8; 6];

impl Segment {
    /// Appends the frame from `macs.0` to `macs.1`: Ethernet II, IPv4 or IPv6, TCP.
    pub fn emit_frame(&self, macs: (MacAddress, MacAddress), out: &mut Vec<u8>) {
        let tcp_length = 20 + self.options_length() + self.payload.len();
        out.reserve(54 + tcp_length);
        out.extend_from_slice(&macs.1);
        out.extend_from_slice(&macs.0);
        let mut checksum = Checksum::default();
        checksum.add(&[0, 6]);
        checksum.add(&(tcp_length as u32).to_be_bytes());
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                out.extend_from_slice(&[0x08, 0x00]);
                let start = out.len();
                out.extend_from_slice(&[0x45, 0]);
                out.extend_from_slice(&u16::try_from(20 + tcp_length).unwrap_or(0).to_be_bytes());
                out.extend_from_slice(&self.identification.to_be_bytes());
                // Don't fragment; time to live 64; TCP.
                out.extend_from_slice(&[0x40, 0, 64, 6, 0, 0]);
                out.extend_from_slice(&source.octets());
                out.extend_from_slice(&destination.octets());
                let mut header = Checksum::default();
                header.add(&out[start..]);
                out[start + 10..start + 12].copy_from_slice(&header.finish());
                checksum.add(&source.octets());
                checksum.add(&destination.octets());
            }
            (source, destination) => {
                let (source, destination) = (v6(source), v6(destination));
                out.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
                out.extend_from_slice(&u16::try_from(tcp_length).unwrap_or(0).to_be_bytes());
                out.extend_from_slice(&[6, 64]);
                out.extend_from_slice(&source);
                out.extend_from_slice(&destination);
                checksum.add(&source);
                checksum.add(&destination);
            }
        }
        let start = out.len();
        out.extend_from_slice(&self.source.port().to_be_bytes());
        out.extend_from_slice(&self.destination.port().to_be_bytes());
        out.extend_from_slice(&self.sequence_number.to_be_bytes());
        out.extend_from_slice(&self.acknowledgment_number.to_be_bytes());
        out.extend_from_slice(&[((20 + self.options_length()) << 2) as u8, self.flags.0]);
        out.extend_from_slice(&self.window.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 0]);
        emit_options(&self.options, out);
        out.extend_from_slice(&self.payload);
        checksum.add(&out[start..]);
        out[start + 16..start + 18].copy_from_slice(&checksum.finish());
    }
}

/// An address of either family in 16 bytes.
fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The Internet checksum (RFC 1071), over parts of even length but for the last.
#[derive(Default)]
struct Checksum(u64);

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(4);
        let mut sum: u64 =
            (&mut words).map(|word| u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]))).sum();
        let mut last = [0; 4];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        sum += u64::from(u32::from_be_bytes(last));
        self.0 += sum;
    }

    fn finish(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        (!(sum as u16)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::{ACK, PSH};
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
            segment.emit_frame(([2; 6], [4; 6]), &mut bytes);
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
