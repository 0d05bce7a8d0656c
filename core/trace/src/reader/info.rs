//! Metadata of a capture and its interfaces.

use std::fmt;

use super::record::Record;

const COMMENTS_AT_MOST: usize = 64;

/// The byte order of numbers in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ByteOrder {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The name in tables and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Little => "little",
            Self::Big => "big",
        }
    }

    // The readers only ask for fields of headers whose length they have checked; a missing byte reads as 0.

    #[inline(always)]
    pub(super) fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        let field = bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or_default();
        if self == Self::Little { u16::from_le_bytes(field) } else { u16::from_be_bytes(field) }
    }

    #[inline(always)]
    pub(super) fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        let field = bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or_default();
        if self == Self::Little { u32::from_le_bytes(field) } else { u32::from_be_bytes(field) }
    }

    #[inline(always)]
    pub(super) fn u64_at(self, bytes: &[u8], at: usize) -> u64 {
        let field = bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or_default();
        if self == Self::Little { u64::from_le_bytes(field) } else { u64::from_be_bytes(field) }
    }
}

/// The unit of an interface's time stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeResolution {
    /// 10 to the power of minus this many seconds.
    Decimal(u8),
    /// 2 to the power of minus this many seconds.
    Binary(u8),
}

impl Default for TimeResolution {
    fn default() -> Self {
        Self::Decimal(6)
    }
}

impl fmt::Display for TimeResolution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decimal(exponent) => write!(formatter, "10^-{exponent} s"),
            Self::Binary(exponent) => write!(formatter, "2^-{exponent} s"),
        }
    }
}

/// Metadata of one interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterfaceInfo {
    /// The name, such as `eth0`.
    pub name: Option<String>,
    /// The description of the operating system.
    pub description: Option<String>,
    /// The capture filter.
    pub filter: Option<String>,
    /// LINKTYPE_ value of its frames.
    pub link_type: u16,
    /// Maximum captured bytes of a frame; 0 without a limit.
    pub snaplen: u32,
    /// Unit of the time stamps in the file.
    pub time_resolution: TimeResolution,
    /// Seconds that were added to the time stamps of the file.
    pub time_offset_s: i64,
    /// Packets that the capture tool reports as received.
    pub received_count: Option<u64>,
    /// Packets that the capture tool reports as dropped.
    pub dropped_count: Option<u64>,
}

/// Metadata of a capture, and what was read so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CaptureInfo {
    /// The file, or another name of the input.
    pub name: String,
    /// `pcap` or `pcapng`; `empty` or `unreadable` if nothing was read.
    pub format: &'static str,
    /// Byte order of the (last) section.
    pub byte_order: ByteOrder,
    /// Such as `gzip`, or `gzip+zstd` for both, the outer first.
    pub compression: Option<String>,
    /// LINKTYPE_ values, in order of their first interface.
    pub link_types: Vec<u16>,
    /// Interfaces of all sections; a classic pcap file has one.
    pub interfaces: Vec<InterfaceInfo>,
    /// The largest of the interfaces.
    pub snaplen: u32,
    /// Packets read.
    pub packet_count: u64,
    /// Bytes of these packets on the wire.
    pub byte_count: u64,
    /// Captured bytes of these packets.
    pub captured_byte_count: u64,
    /// The earliest capture time, in nanoseconds since 1970.
    pub time_first_ns: Option<i64>,
    /// The latest capture time, in nanoseconds since 1970.
    pub time_last_ns: Option<i64>,
    /// Comments of sections, interfaces and packets; the first 64 of them, 4 KiB of each.
    pub comments: Vec<String>,
    /// The hardware that captured.
    pub hardware: Option<String>,
    /// The operating system that captured.
    pub operating_system: Option<String>,
    /// The application that captured.
    pub application: Option<String>,
    /// Whether the file is damaged or ends within a record.
    pub is_cut_short: bool,
}

impl CaptureInfo {
    pub(super) fn add_interface(&mut self, interface: InterfaceInfo) {
        if !self.link_types.contains(&interface.link_type) {
            self.link_types.push(interface.link_type);
        }
        self.interfaces.push(interface);
    }

    #[cold]
    pub(super) fn add_comment(&mut self, comment: &[u8]) {
        if self.comments.len() < COMMENTS_AT_MOST {
            self.comments.push(text(comment));
        }
    }

    #[inline]
    pub(super) fn add_packet(&mut self, record: &Record) {
        self.packet_count += 1;
        self.byte_count = self.byte_count.saturating_add(record.original_length.into());
        self.captured_byte_count = self.captured_byte_count.saturating_add(record.range.len() as u64);
        let time_ns = record.time_ns;
        self.time_first_ns = Some(self.time_first_ns.map_or(time_ns, |first_ns| first_ns.min(time_ns)));
        self.time_last_ns = Some(self.time_last_ns.map_or(time_ns, |last_ns| last_ns.max(time_ns)));
    }
}

/// The text of an option, valid UTF-8 and of limited length.
pub(super) fn text(value: &[u8]) -> String {
    const TEXT_BYTES_AT_MOST: usize = 4096;
    let value = value.get(..TEXT_BYTES_AT_MOST).unwrap_or(value);
    String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
}
