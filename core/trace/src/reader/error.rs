//! Why an input cannot be read.

use std::io;

use thiserror::Error;

/// Why an input cannot be read at all: one line for the user.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The first bytes match no known format.
    #[error("{name} is not a capture: it starts with {first_bytes}, which is neither pcap nor pcapng")]
    NotACapture {
        /// The input.
        name: String,
        /// Its first bytes, in hexadecimal.
        first_bytes: String,
    },
    /// There are no bytes.
    #[error("{name} is empty")]
    Empty {
        /// The input.
        name: String,
    },
    /// It ends within the file header, or the header is damaged.
    #[error("{name} is damaged or cut short within its file header")]
    HeaderDamaged {
        /// The input.
        name: String,
    },
    /// The operating system or the decompressor failed.
    #[error("cannot read {name}: {error}")]
    Unreadable {
        /// The input.
        name: String,
        /// The error.
        error: io::Error,
    },
    /// A file of samples of TCP_INFO has none.
    #[error("{name} has no samples of TCP_INFO: a line is a time (seconds since 1970) and what ss -tinOH prints")]
    NoTcpSamples {
        /// The file.
        name: String,
    },
    /// libpcap rejects the capture filter.
    #[error("capture filter '{expression}': {message}")]
    Filter {
        /// The filter.
        expression: String,
        /// The message of libpcap.
        message: String,
    },
    /// None of its packets can be decoded.
    #[error(
        "{name}: no packet can be decoded: link type {link_types} is not supported (supported: Ethernet, LINUX_SLL, LINUX_SLL2, NULL, LOOP, RAW, IPV4, IPV6)"
    )]
    LinkTypeUnsupported {
        /// The input.
        name: String,
        /// LINKTYPE_ values, separated by commas.
        link_types: String,
    },
}

impl CaptureError {
    /// Whether the input may still become a capture: it is empty, or its file header is incomplete.
    pub(super) fn is_nothing_there(&self) -> bool {
        matches!(self, Self::Empty { .. } | Self::HeaderDamaged { .. })
    }
}
