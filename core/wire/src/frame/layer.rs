//! The layers of a frame: every header that may stand between the link and the payload of TCP.

macro_rules! layers {
    ($($(#[$meaning:meta])* $name:ident,)+) => {
        /// A header that is looked through on the way to a TCP segment, and that of TCP.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Layer {
            $($(#[$meaning])* $name,)+
        }

        impl Layer {
            /// Every layer.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

layers! {
    /// Ethernet II: destination, source, EtherType.
    Ethernet,
    /// Linux "cooked" capture.
    LinuxSll,
    /// Linux "cooked" capture, version 2.
    LinuxSll2,
    /// BSD loopback: an address family.
    Loopback,
    /// PPP (RFC 1661): a protocol, with or without the address and control bytes of RFC 1662.
    Ppp,
    /// 802.1Q: a control field, and the EtherType of what follows.
    Vlan,
    /// A PPPoE session (RFC 2516).
    Pppoe,
    /// IPv4 (RFC 791) with its options.
    Ipv4,
    /// The fixed header of IPv6 (RFC 8200).
    Ipv6,
    /// Hop-by-hop options, routing or destination options (RFC 8200).
    Extension,
    /// The fragment header of IPv6 (RFC 8200).
    Fragment,
    /// The authentication header (RFC 4302), of IPv4 or IPv6.
    Authentication,
    /// GRE (RFC 2784, RFC 2890).
    Gre,
    /// ERSPAN type II; type I has no header.
    Erspan,
    /// UDP (RFC 768) around VXLAN or GENEVE.
    Udp,
    /// VXLAN (RFC 7348).
    Vxlan,
    /// GENEVE (RFC 8926) with its options.
    Geneve,
    /// TCP (RFC 9293) with its options, as far as captured.
    Tcp,
}
