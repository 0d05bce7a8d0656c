//! Frames of a TCP segment, some for each layer, for the tests of every walk over layers. A layer without a sample does not
//! compile.
//!
//! What may be private has `SECRET` in it: addresses, options, numbers of networks and sessions.

use super::{Layer, LinkType};

/// What no copy without names may contain.
pub const SECRET: [u8; 2] = [0xa1, 0xb2];
/// The ends of every packet of IPv4, from the innermost to the outermost.
pub const IPV4_ENDS: [[u8; 4]; 2] = [[10, 0xa1, 0xb2, 1], [10, 0xa1, 0xb2, 2]];
/// The ends of every packet of IPv6.
pub const IPV6_ENDS: [[u8; 16]; 2] = [
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa1, 0xb2, 1],
    [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa1, 0xb2, 2],
];
const MAC: [u8; 6] = [0x52, 0x54, 0, 0xa1, 0xb2, 3];

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// A frame, and what is in it.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Link type.
    pub link_type: LinkType,
    /// Layers and lengths of its headers, from the outermost.
    pub layers: Vec<(Layer, usize)>,
    /// Headers and payload.
    pub bytes: Vec<u8>,
}

impl Sample {
    /// A TCP segment: a header of 20 bytes with its options, and the payload.
    fn tcp(header: &[u8], payload: &[u8]) -> Self {
        Self { link_type: LinkType::RAW, layers: Vec::new(), bytes: payload.to_vec() }.within(Layer::Tcp, header)
    }

    /// Puts a header before.
    fn within(mut self, layer: Layer, header: &[u8]) -> Self {
        self.layers.insert(0, (layer, header.len()));
        self.bytes.splice(0..0, header.iter().copied());
        self
    }

    fn of(self, link_type: LinkType) -> Self {
        Self { link_type, ..self }
    }

    fn length(&self, more: usize) -> [u8; 2] {
        ((self.bytes.len() + more) as u16).to_be_bytes()
    }

    fn ipv4(self, protocol: u8) -> Self {
        self.ipv4_with(protocol, &[])
    }

    fn ipv4_with(self, protocol: u8, options: &[u8]) -> Self {
        let header_length = 20 + options.len();
        let fixed = [0x40 | (header_length / 4) as u8, 0];
        let rest = [0xab, 0xcd, 0x40, 0, 63, protocol, 0, 0];
        let header = [&fixed, &self.length(header_length)[..], &rest, &IPV4_ENDS.concat(), options].concat();
        self.within(Layer::Ipv4, &header).of(LinkType::RAW)
    }

    fn ipv6(self, next_header: u8) -> Self {
        let header = [&[0x60, 0, 0, 0], &self.length(0)[..], &[next_header, 62], &IPV6_ENDS.concat()].concat();
        self.within(Layer::Ipv6, &header).of(LinkType::RAW)
    }

    fn ethernet(self, ether_type: [u8; 2]) -> Self {
        self.within(Layer::Ethernet, &[&MAC[..], &MAC, &ether_type].concat()).of(LinkType::ETHERNET)
    }

    fn linux_sll(self, ether_type: [u8; 2]) -> Self {
        let header = [&[0, 0, 0, 1, 0, 6][..], &MAC, &SECRET, &ether_type].concat();
        self.within(Layer::LinuxSll, &header).of(LinkType::LINUX_SLL)
    }

    fn linux_sll2(self, ether_type: [u8; 2]) -> Self {
        let header = [&ether_type[..], &SECRET, &[0, 0, 0, 3, 0, 1, 0, 6], &MAC, &SECRET].concat();
        self.within(Layer::LinuxSll2, &header).of(LinkType::LINUX_SLL2)
    }

    fn vlan(self, ether_type: [u8; 2]) -> Self {
        self.within(Layer::Vlan, &[&[0, 100], &ether_type[..]].concat())
    }

    /// An extension header with an option of 4 bytes.
    fn extension(self, next_header: u8) -> Self {
        self.within(Layer::Extension, &[next_header, 0, 0x1e, 4, SECRET[0], SECRET[1], 0, 0])
    }

    /// A fragment that is the whole packet.
    fn fragment(self, next_header: u8) -> Self {
        self.within(Layer::Fragment, &[next_header, 0, 0, 0, 0, 0, 0, 1])
    }

    /// Next header, length in words less 2, reserved, index, number, check value.
    fn authentication(self, next_header: u8) -> Self {
        let header = [&[next_header, 4, 0, 0, 0, 0][..], &SECRET, &[0, 0, 0, 2], &SECRET.repeat(6)].concat();
        self.within(Layer::Authentication, &header)
    }

    fn gre(self, header: &[u8]) -> Self {
        self.within(Layer::Gre, header).ipv4(47).ethernet(IPV4)
    }

    fn udp(self, port: u16) -> Self {
        let header = [&[0xc0, 0], &port.to_be_bytes()[..], &self.length(8), &[0, 0]].concat();
        self.within(Layer::Udp, &header)
    }

    fn vxlan(self) -> Self {
        self.within(Layer::Vxlan, &[8, 0, 0, 0, SECRET[0], SECRET[1], 42, 0])
    }

    fn ppp(self, header: &[u8]) -> Self {
        self.within(Layer::Ppp, header).of(LinkType::PPP)
    }

    fn loopback(self, link_type: LinkType, family: [u8; 4]) -> Self {
        self.within(Layer::Loopback, &family).of(link_type)
    }
}

/// Frames with this layer around a TCP segment: a header of 20 bytes with its options, and the payload.
pub fn samples(layer: Layer, header: &[u8], payload: &[u8]) -> Vec<Sample> {
    let v4 = || Sample::tcp(header, payload).ipv4(6);
    let v6 = || Sample::tcp(header, payload).ipv6(6);
    let tcp = || Sample::tcp(header, payload);
    let [high, low] = SECRET;
    // bridged Ethernet, as VXLAN and others carry it
    let bridged = || v4().ethernet(IPV4);
    match layer {
        Layer::Ethernet => vec![v4().ethernet(IPV4), v6().ethernet(IPV6)],
        Layer::LinuxSll => vec![v4().linux_sll(IPV4), v6().vlan(IPV6).linux_sll([0x81, 0])],
        Layer::LinuxSll2 => vec![v4().linux_sll2(IPV4), v6().linux_sll2(IPV6)],
        Layer::Loopback => vec![
            v4().loopback(LinkType::NULL, [2, 0, 0, 0]),
            v4().loopback(LinkType::NULL, [0, 0, 0, 2]),
            v6().loopback(LinkType::NULL, [10, 0, 0, 0]),
            v6().loopback(LinkType::NULL, [24, 0, 0, 0]),
            v6().loopback(LinkType::NULL, [0, 0, 0, 28]),
            v6().loopback(LinkType::NULL, [30, 0, 0, 0]),
            v4().loopback(LinkType::LOOP, [0, 0, 0, 2]),
            v6().loopback(LinkType::LOOP, [0, 0, 0, 24]),
        ],
        Layer::Ppp => vec![
            v4().ppp(&[0, 0x21]),
            v4().ppp(&[0x21]),
            v6().ppp(&[0, 0x57]),
            v6().ppp(&[0x57]),
            v4().ppp(&[0xff, 3, 0, 0x21]),
            v4().ppp(&[0xff, 3, 0x21]),
            v6().ppp(&[0xff, 3, 0, 0x57]),
            v6().ppp(&[0xff, 3, 0x57]),
        ],
        Layer::Vlan => vec![
            v4().vlan(IPV4).ethernet([0x81, 0]),
            v6().vlan(IPV6).vlan([0x81, 0]).ethernet([0x88, 0xa8]),
            v4().vlan(IPV4).vlan([0x81, 0]).ethernet([0x91, 0]),
        ],
        Layer::Pppoe => {
            let ppp = v4().ppp(&[0, 0x21]);
            let [length_high, length_low] = ppp.length(0);
            vec![ppp.within(Layer::Pppoe, &[0x11, 0, high, low, length_high, length_low]).ethernet([0x88, 0x64])]
        }
        Layer::Ipv4 => vec![
            v4(),
            v4().of(LinkType(12)),
            v4().of(LinkType::IPV4),
            // the route that was recorded
            tcp().ipv4_with(6, &[7, 7, 4, 10, high, low, 9, 0]),
            v4().ipv4(4),
            v4().ipv6(4),
        ],
        Layer::Ipv6 => vec![v6(), v6().of(LinkType(14)), v6().of(LinkType::IPV6), v6().ipv4(41), v6().ipv6(41)],
        Layer::Extension => vec![
            // hop-by-hop, routing, destination
            tcp().extension(6).ipv6(0),
            tcp().extension(6).ipv6(43),
            tcp().extension(6).ipv6(60),
            tcp().fragment(6).extension(44).extension(43).extension(60).ipv6(0),
            v6().extension(41).ipv6(60),
        ],
        Layer::Fragment => vec![tcp().fragment(6).ipv6(44)],
        Layer::Authentication => vec![tcp().authentication(6).ipv4(51), tcp().authentication(6).ipv6(51)],
        Layer::Gre => vec![
            v4().gre(&[0, 0, 8, 0]),
            v6().gre(&[0, 0, 0x86, 0xdd]),
            // with a checksum; with the key of NVGRE; with all, and a tag inside
            v4().gre(&[0x80, 0, 8, 0, high, low, 0, 0]),
            bridged().gre(&[0x20, 0, 0x65, 0x58, 0, high, low, 1]),
            v4().vlan(IPV4).ethernet([0x81, 0]).gre(&[0xb0, 0, 0x65, 0x58, 1, 2, 0, 0, 0, 0, high, low, 0, 0, 0, 1]),
            // ERSPAN type I
            bridged().gre(&[0, 0, 0x88, 0xbe]),
        ],
        Layer::Erspan => {
            let mirrored = bridged().within(Layer::Erspan, &[0x10, 1, 0, 7, 0, high, low, 2]);
            vec![mirrored.gre(&[0x10, 0, 0x88, 0xbe, 0, high, low, 1])]
        }
        Layer::Udp => vec![bridged().vxlan().udp(4789).ipv4(17), bridged().vxlan().udp(4789).ipv6(17)],
        Layer::Vxlan => vec![
            bridged().vxlan().udp(4789).ipv4(17).ethernet(IPV4),
            bridged().vxlan().udp(8472).ipv4(17).ethernet(IPV4),
            v4().vlan(IPV4).ethernet([0x81, 0]).vxlan().udp(4789).ipv4(17).ethernet(IPV4),
            // with a group policy
            bridged().within(Layer::Vxlan, &[0x88, 0, high, low, 0, 0, 42, 0]).udp(4789).ipv4(17).ethernet(IPV4),
        ],
        Layer::Geneve => vec![
            bridged().within(Layer::Geneve, &[0, 0, 0x65, 0x58, high, low, 42, 0]).udp(6081).ipv4(17).ethernet(IPV4),
            v4().within(Layer::Geneve, &[2, 0, 8, 0, 0, high, low, 0, 1, 2, 3, 1, high, low, 6, 7]).udp(6081).ipv6(17),
            v6().within(Layer::Geneve, &[0, 0, 0x86, 0xdd, 0, 0, 42, 0]).udp(6081).ipv4(17),
        ],
        Layer::Tcp => vec![v4(), v6()],
    }
}

/// The samples of all layers.
pub fn all_samples(header: &[u8], payload: &[u8]) -> Vec<Sample> {
    Layer::ALL.iter().flat_map(|&layer| samples(layer, header, payload)).collect()
}
