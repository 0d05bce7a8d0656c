//! One packet of TCP, or of a tunnel around it: headers by their known fields, other addresses, right checksums.
//!
//! The packet begins as zeros. What no table and no dissector needs (options of IP, unknown options of TCP, numbers of
//! networks and sessions, padding) stays zero, or becomes an option without meaning. The layers are those that the reader tells.

use std::net::IpAddr;
use std::ops::Range;

use iscsitrace_wire::frame::{Layer, Segment};

use crate::address::Addresses;
use crate::checksum;

/// NOP, as an option of IPv4 and of TCP.
const OPTION_NONE: u8 = 1;
const OPTION_END: u8 = 0;
/// Maximum segment size, window scale, SACK permitted, SACK, timestamps.
const OPTIONS_KEPT: [u8; 5] = [2, 3, 4, 5, 8];

/// A packet that is written anew.
pub struct Rewritten<'a> {
    addresses: &'a Addresses,
    original: &'a [u8],
    /// The last header.
    last: Range<usize>,
    /// Source and destination of the innermost IP header, as bytes.
    ends: Range<usize>,
    /// The new bytes, as many as before.
    pub bytes: Vec<u8>,
}

impl<'a> Rewritten<'a> {
    /// A packet of zeros in the place of another.
    pub fn zeros(original: &'a [u8], addresses: &'a Addresses) -> Self {
        Self { addresses, original, last: 0..0, ends: 0..0, bytes: vec![0; original.len()] }
    }

    /// Writes what may be known of the next header, which the reader told.
    pub fn header(&mut self, layer: Layer, place: Range<usize>) {
        self.last = place.clone();
        self.ends = match layer {
            Layer::Ipv4 => place.start + 12..place.start + 20,
            Layer::Ipv6 => place.start + 8..place.start + 40,
            _ => self.ends.clone(),
        };
        let (Some(original), Some(written)) = (self.original.get(place.clone()), self.bytes.get_mut(place)) else {
            return;
        };
        header(layer, original, self.addresses, written);
    }

    /// Writes the payload of a segment by `fill`, behind all headers. The checksum is right if the segment is whole, else zero.
    pub fn payload(&mut self, segment: &Segment<'_>, fill: impl FnOnce(&mut [u8])) {
        let Range { start, end: payload_start } = self.last;
        let end = payload_start + segment.payload.len();
        let Some(written) = self.bytes.get_mut(payload_start..end) else { return };
        fill(written);
        let (Some(ends), Some(tcp)) = (self.bytes.get(self.ends.clone()), self.bytes.get(start..end)) else { return };
        let header_length = tcp.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
        if tcp.len() != header_length + segment.payload_length as usize {
            return;
        }
        // the pseudo-header: the length has two bytes in IPv4, four in IPv6, whose upper ones are zero then
        let length = tcp.len() as u32;
        let checksum = checksum::of(&[ends, &length.to_be_bytes(), &[0, 6], tcp]);
        if let Some(place) = self.bytes.get_mut(start + 16..start + 18) {
            place.copy_from_slice(&checksum);
        }
    }
}

/// Writes what may be known of a header into as many zeros.
pub fn header(layer: Layer, original: &[u8], addresses: &Addresses, written: &mut [u8]) {
    let mut header = Header { original, addresses, written };
    match layer {
        Layer::Ethernet => {
            header.mac(0);
            header.mac(6);
            header.keep(12..14);
        }
        Layer::LinuxSll => {
            header.keep(0..6);
            if original.get(4..6) == Some(&[0, 6]) {
                header.mac(6);
            }
            header.keep(14..16);
        }
        Layer::LinuxSll2 => {
            header.keep(0..2);
            header.keep(4..12);
            if original.get(11) == Some(&6) {
                header.mac(12);
            }
        }
        Layer::Loopback | Layer::Ppp | Layer::Vlan | Layer::Fragment => header.keep(0..original.len()),
        Layer::Pppoe => {
            // the number of the session is that of a customer
            header.keep(0..2);
            header.keep(4..6);
        }
        Layer::Ipv4 => {
            header.keep(0..10);
            header.ip::<4>(12);
            header.ip::<4>(16);
            header.written.iter_mut().skip(20).for_each(|byte| *byte = OPTION_NONE);
            let checksum = checksum::of(&[header.written]);
            header.put(10, &checksum);
        }
        Layer::Ipv6 => {
            header.keep(0..8);
            header.ip::<16>(8);
            header.ip::<16>(24);
        }
        // what follows, and the length
        Layer::Extension | Layer::Authentication => header.keep(0..2),
        Layer::Gre => header.keep(0..4),
        // version and VLAN
        Layer::Erspan => header.keep(0..2),
        // the checksum stays zero, which is none
        Layer::Udp => header.keep(0..6),
        Layer::Vxlan => header.keep(0..1),
        Layer::Geneve => header.keep(0..4),
        Layer::Tcp => {
            header.keep(0..16);
            header.keep(18..20);
            if let (Some(original), Some(written)) = (original.get(20..), header.written.get_mut(20..)) {
                write_options(original, written);
            }
        }
    }
}

/// A header that is written anew, by places within it.
struct Header<'a> {
    original: &'a [u8],
    addresses: &'a Addresses,
    written: &'a mut [u8],
}

impl Header<'_> {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.written.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn keep(&mut self, kept: Range<usize>) {
        let at = kept.start;
        if let Some(kept) = self.original.get(kept) {
            self.put(at, kept);
        }
    }

    fn mac(&mut self, at: usize) {
        if let Some(own) = self.original.get(at..).and_then(|own| own.first_chunk()) {
            self.put(at, &self.addresses.mac(*own));
        }
    }

    fn ip<const N: usize>(&mut self, at: usize)
    where
        IpAddr: From<[u8; N]>,
    {
        let Some(own) = self.original.get(at..).and_then(|own| own.first_chunk::<N>()) else { return };
        match self.addresses.ip(IpAddr::from(*own)) {
            IpAddr::V4(address) => self.put(at, &address.octets()),
            IpAddr::V6(address) => self.put(at, &address.octets()),
        }
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
    use iscsitrace_wire::frame::samples::{SECRET, Sample, all_samples};
    use iscsitrace_wire::frame::{Address, LinkType, layers};

    const PAYLOAD: &[u8] = b"what a host wrote";
    /// With timestamps, and an option of MPTCP with a key.
    const TCP: [u8; 36] = [
        0xc3, 0x50, 0x0c, 0xbc, 1, 2, 3, 4, 5, 6, 7, 8, 0x90, 0x18, 0x10, 0, 0xde, 0xad, 0, 0, //
        8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 30, 4, SECRET[0], SECRET[1], 1, 0,
    ];

    fn addresses() -> Addresses {
        Addresses::new(&Key::new(&[4; KEY_BYTES]))
    }

    /// Headers and their places.
    type Told = Vec<(Layer, Range<usize>)>;

    /// The headers of a frame, and its segment.
    fn told(link_type: LinkType, frame: &[u8], length: usize) -> Option<(Told, Segment<'_>)> {
        let mut told = Told::new();
        let found = layers(link_type, frame, length as u32, |layer, place| told.push((layer, place)));
        found.ok().map(|segment| (told, segment))
    }

    fn rewritten(addresses: &Addresses, link_type: LinkType, original: &[u8], length: usize) -> Option<Vec<u8>> {
        let (told, segment) = told(link_type, original, length)?;
        let mut rewritten = Rewritten::zeros(original, addresses);
        told.into_iter().for_each(|(layer, place)| rewritten.header(layer, place));
        rewritten.payload(&segment, |payload| payload.fill(0x5a));
        Some(rewritten.bytes)
    }

    /// A sample of every layer, each with padding of the link behind it.
    fn padded() -> Vec<Sample> {
        let mut samples = all_samples(&TCP, PAYLOAD);
        samples.iter_mut().for_each(|sample| sample.bytes.extend(SECRET.repeat(3)));
        samples
    }

    #[test]
    fn every_header_stays_but_for_addresses() {
        let addresses = addresses();
        let mapped = |address: Address| match addresses.ip(address.to_ip()) {
            IpAddr::V4(address) => Address::v4(address.octets()),
            IpAddr::V6(address) => Address::v6(address.octets()),
        };
        for Sample { link_type, layers, bytes: original } in padded() {
            let found = rewritten(&addresses, link_type, &original, original.len()).expect("a segment");
            let [(before_layers, before), (after_layers, after)] =
                [&original, &found].map(|bytes| told(link_type, bytes, bytes.len()).expect("a segment"));
            assert_eq!(after_layers, before_layers);
            assert_eq!(after.payload, &[0x5a; PAYLOAD.len()], "{layers:?}");
            let mut options: Vec<u8> = TCP[20..].to_vec();
            options[10..14].fill(1);
            assert_eq!(after.options, options);
            assert_ne!(after.source, before.source);
            let (source, destination) = (mapped(before.source), mapped(before.destination));
            let expected = Segment { source, destination, options: &options, payload: after.payload, ..before };
            assert_eq!(after, expected, "{layers:?}");
            for gone in [PAYLOAD, &SECRET] {
                assert!(!found.windows(gone.len()).any(|window| window == gone), "{layers:?}: {found:x?}");
            }
        }
    }

    #[test]
    fn checksums_are_right_or_none() {
        let addresses = addresses();
        let of_ip = |payload: &[u8], ip: (Layer, usize)| {
            let is_plain = |sample: &Sample| sample.layers == [ip, (Layer::Tcp, TCP.len())];
            all_samples(&TCP, payload).into_iter().find(is_plain).expect("a sample")
        };
        for (layer, ends) in [((Layer::Ipv4, 20), 12..20), ((Layer::Ipv6, 40), 8..40)] {
            let (sample, header_length) = (of_ip(PAYLOAD, layer), layer.1);
            let frame = sample.bytes;
            let found = rewritten(&addresses, sample.link_type, &frame, frame.len()).expect("a segment");
            let (ip, tcp) = found.split_at(header_length);
            // the sum over a header with its checksum is that of zeros
            assert!(layer.0 == Layer::Ipv6 || checksum::of(&[ip]) == [0, 0]);
            let pseudo = [&ip[ends], &(tcp.len() as u32).to_be_bytes(), &[0, 0, 0, 6]].concat();
            assert_eq!(checksum::of(&[&pseudo, tcp]), [0, 0]);
            // cut in the payload, cut in the options
            for frame in [frame, of_ip(b"", layer).bytes] {
                let cut =
                    rewritten(&addresses, sample.link_type, &frame[..frame.len() - 3], frame.len()).expect("a segment");
                assert_eq!(cut[header_length + 16..header_length + 18], [0, 0]);
            }
        }
    }

    #[test]
    fn a_frame_that_is_cut_anywhere_keeps_its_length() {
        let addresses = addresses();
        for Sample { link_type, bytes: original, .. } in padded() {
            for kept in 0..original.len() {
                if let Some(found) = rewritten(&addresses, link_type, &original[..kept], original.len()) {
                    assert_eq!(found.len(), kept);
                    assert!(told(link_type, &found, original.len()).is_some());
                }
            }
        }
    }
}
