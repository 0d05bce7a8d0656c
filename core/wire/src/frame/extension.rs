//! Extension headers of IPv6 and the authentication header (RFC 8200, RFC 4302): what is behind them.

use super::headers::{Carried, IP_PROTOCOL_AUTHENTICATION, NotTcp};
use super::layer::Layer;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// What follows a header of IP.
#[derive(Clone, Copy)]
pub(super) struct Following<'a> {
    /// IPv4 has no extension header but one of authentication.
    pub(super) is_ipv4: bool,
    /// Its IP protocol number.
    pub(super) protocol: u8,
    pub(super) carried: Carried<'a>,
    /// Offset and more-fragments bit of a fragment; 0 if the packet is whole.
    pub(super) fragment: u16,
}

impl Following<'_> {
    /// Whether it is an extension header.
    pub(super) fn is_extension(&self) -> bool {
        match self.protocol {
            IP_PROTOCOL_AUTHENTICATION => true,
            HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION => !self.is_ipv4,
            _ => false,
        }
    }

    /// Passes over every extension header; that of hop-by-hop options can only be the first.
    pub(super) fn after_extensions(self, see: &mut impl FnMut(Layer, usize)) -> Result<Self, NotTcp> {
        let mut following = self;
        while following.is_extension() {
            following = following.after_extension(see)?;
            match following.protocol {
                _ if self.is_ipv4 => break,
                HOP_BY_HOP => return Err(NotTcp::Malformed),
                _ => {}
            }
        }
        Ok(following)
    }

    /// Passes over one extension header.
    fn after_extension(self, see: &mut impl FnMut(Layer, usize)) -> Result<Self, NotTcp> {
        let [protocol, length] = self.carried.bytes(0)?;
        let mut fragment = self.fragment;
        let (layer, header_length) = match self.protocol {
            FRAGMENT => {
                fragment |= self.carried.number(2)? & 0xfff9;
                (Layer::Fragment, 8)
            }
            // shorter than its fixed part
            IP_PROTOCOL_AUTHENTICATION if length == 0 => return Err(NotTcp::Malformed),
            IP_PROTOCOL_AUTHENTICATION => (Layer::Authentication, (usize::from(length) + 2) * 4),
            _ => (Layer::Extension, (usize::from(length) + 1) * 8),
        };
        let carried = self.carried.after(header_length)?;
        see(layer, header_length);
        Ok(Self { protocol, carried, fragment, ..self })
    }
}
