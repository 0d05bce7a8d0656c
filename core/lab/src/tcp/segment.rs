//! One TCP segment between two endpoints: header fields, options, payload.
//!
//! The payload shares the memory of its write. Options are laid out as by Linux.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use iscsitrace_wire::frame::{TcpFlags, TcpOptions};

/// No more data from the sender.
pub const FIN: u8 = 0x01;
/// Synchronize sequence numbers.
pub const SYN: u8 = 0x02;
/// Reset the connection.
pub const RST: u8 = 0x04;
/// Push function.
pub const PSH: u8 = 0x08;
/// The acknowledgment field is significant.
pub const ACK: u8 = 0x10;

/// One segment, with the addresses of its packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// IP source address and TCP source port.
    pub source: SocketAddr,
    /// IP destination address and TCP destination port.
    pub destination: SocketAddr,
    /// Sequence number of the first payload byte, or of the SYN.
    pub sequence_number: u32,
    /// Acknowledgment number; significant with the ACK bit.
    pub acknowledgment_number: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// Window field, not scaled.
    pub window: u16,
    /// Options.
    pub options: TcpOptions,
    /// Identification of the IPv4 packet: every packet has its own, retransmissions too.
    pub identification: u16,
    /// The payload.
    pub payload: Bytes,
}

impl Segment {
    /// Length in sequence numbers: payload, SYN and FIN (RFC 9293, section 3.4).
    pub fn sequence_length(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.flags.is_syn()) + u32::from(self.flags.is_fin())
    }

    /// The RST that answers it without a connection (RFC 9293, section 3.5.2, group 1); none for a RST.
    pub fn reset(&self) -> Option<Self> {
        let (sequence_number, acknowledgment_number, flags) = if self.flags.is_ack() {
            (self.acknowledgment_number, 0, RST)
        } else {
            (0, self.sequence_number.wrapping_add(self.sequence_length()), RST | ACK)
        };
        (!self.flags.is_rst()).then(|| Self {
            source: self.destination,
            destination: self.source,
            sequence_number,
            acknowledgment_number,
            flags: TcpFlags(flags),
            window: 0,
            options: TcpOptions::default(),
            identification: 0,
            payload: Bytes::new(),
        })
    }

    /// Bytes of its options, padding included.
    pub fn options_length(&self) -> usize {
        options_length(&self.options)
    }

    /// Bytes of the Ethernet frame that carries it, without preamble and check sequence.
    pub fn frame_length(&self) -> usize {
        let ip = if self.source.is_ipv4() { 20 } else { 40 };
        14 + ip + 20 + self.options_length() + self.payload.len()
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} > {} [", self.source, self.destination)?;
        for (bit, letter) in [(SYN, 'S'), (FIN, 'F'), (RST, 'R'), (PSH, 'P'), (ACK, '.')] {
            if self.flags.0 & bit != 0 {
                write!(formatter, "{letter}")?;
            }
        }
        write!(formatter, "] seq {} ack {}", self.sequence_number, self.acknowledgment_number)?;
        write!(formatter, " win {} len {}", self.window, self.payload.len())?;
        for (left, right) in self.options.sack.iter().take(usize::from(self.options.sack_count)) {
            write!(formatter, " sack {left}-{right}")?;
        }
        Ok(())
    }
}

/// Bytes that options take in a header, padding included.
pub fn options_length(options: &TcpOptions) -> usize {
    let mut length = 0;
    if options.maximum_segment_size.is_some() {
        length += 4;
    }
    // "SACK permitted" takes the padding before timestamps, as in Linux.
    if options.timestamps.is_some() {
        length += 12;
    } else if options.is_sack_permitted {
        length += 4;
    }
    if options.window_scale.is_some() {
        length += 4;
    }
    if options.sack_count > 0 {
        length += 4 + 8 * usize::from(options.sack_count.min(4));
    }
    length
}

/// Appends options in the order and with the padding of Linux.
pub fn emit_options(options: &TcpOptions, out: &mut Vec<u8>) {
    if let Some(size) = options.maximum_segment_size {
        out.extend_from_slice(&[2, 4]);
        out.extend_from_slice(&size.to_be_bytes());
    }
    if let Some((value, echo_reply)) = options.timestamps {
        out.extend_from_slice(if options.is_sack_permitted { &[4, 2, 8, 10] } else { &[1, 1, 8, 10] });
        out.extend_from_slice(&value.to_be_bytes());
        out.extend_from_slice(&echo_reply.to_be_bytes());
    } else if options.is_sack_permitted {
        out.extend_from_slice(&[1, 1, 4, 2]);
    }
    if let Some(shift) = options.window_scale {
        out.extend_from_slice(&[1, 3, 3, shift]);
    }
    if options.sack_count > 0 {
        let count = options.sack_count.min(4);
        out.extend_from_slice(&[1, 1, 5, 2 + 8 * count]);
        for (left, right) in options.sack.iter().take(usize::from(count)) {
            out.extend_from_slice(&left.to_be_bytes());
            out.extend_from_slice(&right.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iscsitrace_wire::frame::tcp_options;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn options_are_decoded_and_have_the_computed_length(
            maximum_segment_size: Option<u16>,
            window_scale in prop::option::of(0u8..=14),
            is_sack_permitted: bool,
            timestamps: Option<(u32, u32)>,
            blocks in prop::collection::vec(any::<(u32, u32)>(), 0..=3),
        ) {
            let mut options = TcpOptions { maximum_segment_size, window_scale, is_sack_permitted, timestamps, ..TcpOptions::default() };
            options.sack_count = blocks.len() as u8;
            options.sack[..blocks.len()].copy_from_slice(&blocks);
            let mut bytes = Vec::new();
            emit_options(&options, &mut bytes);
            prop_assert_eq!(bytes.len(), options_length(&options));
            prop_assert_eq!(bytes.len() % 4, 0);
            prop_assert_eq!(tcp_options(&bytes), options);
        }
    }

    #[test]
    fn a_linux_syn_has_its_options_in_this_order() {
        // The options of the SYN of a Linux 6.1 initiator, as captured.
        let captured = [2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];
        let mut bytes = Vec::new();
        emit_options(&tcp_options(&captured), &mut bytes);
        assert_eq!(bytes, captured);
    }
}
