//! Why an input is no capture.

use std::io;

use thiserror::Error;

/// Why an input cannot be read at all; each is one line for the person who gave it.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The first bytes are those of no known format.
    #[error("{name} is not a capture: neither pcap nor pcapng begins with {first_bytes}")]
    NotACapture {
        /// The input.
        name: String,
        /// What it begins with, in hexadecimal.
        first_bytes: String,
    },
    /// There is not one byte.
    #[error("{name} is empty")]
    Empty {
        /// The input.
        name: String,
    },
    /// It ends before, or is damaged in, the file header.
    #[error("{name} is damaged or cut short within its file header")]
    HeaderDamaged {
        /// The input.
        name: String,
    },
    /// The operating system or the decompressor says no.
    #[error("cannot read {name}: {error}")]
    Unreadable {
        /// The input.
        name: String,
        /// What it says.
        error: io::Error,
    },
    /// libpcap does not understand the capture filter.
    #[error("capture filter '{expression}': {message}")]
    Filter {
        /// The filter.
        expression: String,
        /// What libpcap says.
        message: String,
    },
    /// None of its packets can be decoded.
    #[error(
        "{name}: no packet can be decoded, link type {link_types} is not supported (Ethernet, LINUX_SLL, LINUX_SLL2, NULL, LOOP, RAW, IPV4, IPV6 are)"
    )]
    LinkTypeUnsupported {
        /// What messages call the input.
        name: String,
        /// LINKTYPE_ values, apart by commas.
        link_types: String,
    },
}

impl CaptureError {
    /// Whether the input may become a capture: nothing was written to it yet, or not all of its file header.
    pub(super) fn is_nothing_there(&self) -> bool {
        matches!(self, Self::Empty { .. } | Self::HeaderDamaged { .. })
    }
}
