//! IP addresses of both versions.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// An IPv4 or IPv6 address as one number, which is fast to compare and copy. IPv4 is mapped into IPv6 (RFC 4291 section
/// 2.5.5.2), because no packet on a wire carries such an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address(u128);

impl Address {
    /// An IPv4 address, of four bytes in network order.
    #[inline(always)]
    pub const fn v4(bytes: [u8; 4]) -> Self {
        Self(0xffff_0000_0000 | u32::from_be_bytes(bytes) as u128)
    }

    /// An IPv6 address, of sixteen bytes in network order.
    #[inline(always)]
    pub const fn v6(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The address as a standard library type.
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ip().fmt(formatter)
    }
}

/// An IPv6 address from a header that is long enough.
#[inline(always)]
pub(super) fn address(bytes: Option<[u8; 16]>) -> Address {
    Address::v6(bytes.unwrap_or_default())
}
