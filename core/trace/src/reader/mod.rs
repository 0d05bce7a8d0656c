//! Any byte source -> packets with a time, a link type and a frame number.
//!
//! ```text
//! sequence    several captures as one stream      filter  libpcap's expressions
//! compressed  gzip, zstd, lz4
//! source      a window over a reader
//! pcap        | pcapng        bytes -> records
//! ```
//!
//! A packet is a slice of one reused buffer; memory does not grow with packets. Damage is counted and ends a file,
//! never the analysis. Nothing here looks into a packet.

mod compressed;
pub mod filter;
mod pcap;
mod pcapng;
pub mod sequence;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use iscsitrace_wire::frame::LinkType;
use thiserror::Error;

pub use self::filter::Filter;
pub use self::sequence::{Input, Sequence};
use self::source::Source;
use crate::counters::{Counter, Counters};

/// Longer packets do not exist, not even as super-segments: a record that claims more is damaged.
const PACKET_BYTES_AT_MOST: u32 = 64 << 20;
const COMMENTS_AT_MOST: usize = 64;

/// One captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Number of the frame, from 1, over all files of the input: Wireshark's `frame.number`.
    pub frame: u64,
    /// Capture time in nanoseconds since 1970.
    pub time_ns: i64,
    /// What `data` begins with.
    pub link_type: LinkType,
    /// Index into [`CaptureInfo::interfaces`].
    pub interface: u32,
    /// Bytes of the frame on the wire.
    pub original_length: u32,
    /// Bytes of the frame that were kept.
    pub data: &'a [u8],
}

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
    fn is_nothing_there(&self) -> bool {
        matches!(self, Self::Empty { .. } | Self::HeaderDamaged { .. })
    }
}

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
    /// The word used in tables and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Little => "little",
            Self::Big => "big",
        }
    }

    // The readers ask for fields of headers whose length they have checked; a byte that is not there reads as 0.

    #[inline(always)]
    fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        let field = bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or_default();
        if self == Self::Little { u16::from_le_bytes(field) } else { u16::from_be_bytes(field) }
    }

    #[inline(always)]
    fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        let field = bytes.get(at..).and_then(|bytes| bytes.first_chunk().copied()).unwrap_or_default();
        if self == Self::Little { u32::from_le_bytes(field) } else { u32::from_be_bytes(field) }
    }

    #[inline(always)]
    fn u64_at(self, bytes: &[u8], at: usize) -> u64 {
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

/// What a capture says of one of its interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterfaceInfo {
    /// As `eth0`.
    pub name: Option<String>,
    /// As the operating system describes it.
    pub description: Option<String>,
    /// The capture filter in force.
    pub filter: Option<String>,
    /// LINKTYPE_ value of its frames.
    pub link_type: u16,
    /// Bytes kept of a frame; 0 when all.
    pub snaplen: u32,
    /// Unit of the time stamps in the file.
    pub time_resolution: TimeResolution,
    /// Seconds that were added to the time stamps of the file.
    pub time_offset_s: i64,
    /// Packets that the capture tool says it received.
    pub received_count: Option<u64>,
    /// Packets that the capture tool says it dropped.
    pub dropped_count: Option<u64>,
}

/// What a capture says of itself, and what was read of it so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CaptureInfo {
    /// The file, or another name of the input.
    pub name: String,
    /// `pcap` or `pcapng`; of an input of which nothing was read, `empty` or `unreadable`.
    pub format: &'static str,
    /// Byte order of the (last) section.
    pub byte_order: ByteOrder,
    /// As `gzip`, or `gzip+zstd` when both, the outer first.
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
    /// Bytes of these packets that were kept.
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
    /// The file ends, or is damaged, before its end.
    pub is_cut_short: bool,
}

impl CaptureInfo {
    fn add_interface(&mut self, interface: InterfaceInfo) {
        if !self.link_types.contains(&interface.link_type) {
            self.link_types.push(interface.link_type);
        }
        self.interfaces.push(interface);
    }

    #[cold]
    fn add_comment(&mut self, comment: &[u8]) {
        if self.comments.len() < COMMENTS_AT_MOST {
            self.comments.push(pcapng::text(comment));
        }
    }

    #[inline]
    fn add_packet(&mut self, record: &Record) {
        self.packet_count += 1;
        self.byte_count = self.byte_count.saturating_add(record.original_length.into());
        self.captured_byte_count = self.captured_byte_count.saturating_add(record.range.len() as u64);
        let time_ns = record.time_ns;
        self.time_first_ns = Some(self.time_first_ns.map_or(time_ns, |first_ns| first_ns.min(time_ns)));
        self.time_last_ns = Some(self.time_last_ns.map_or(time_ns, |last_ns| last_ns.max(time_ns)));
    }
}

/// A packet as the readers of both formats find it: where it is in the source's buffer.
struct Record {
    time_ns: i64,
    link_type: LinkType,
    interface: u32,
    original_length: u32,
    range: Range<usize>,
}

/// The bytes of a reader, decompressed, and by which methods, for who hands them over piece by piece: a decompressor
/// cannot wait in the middle.
pub(crate) fn decompressed(reader: Box<dyn Read + Send>) -> io::Result<(Box<dyn Read + Send>, Vec<&'static str>)> {
    compressed::decompress(reader)
}

/// Why there is no further record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The last record was the last.
    Clean,
    /// In the middle of a record.
    CutShort,
    /// Lengths that cannot be true: where the next record begins is unknown.
    Invalid,
}

#[derive(Debug)]
enum Format {
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
}

/// One capture of any format, read from any byte source in one pass.
pub struct Capture {
    source: Source,
    format: Format,
    info: CaptureInfo,
    /// Number of the frame read last.
    frame: u64,
    is_at_end: bool,
}

impl Capture {
    /// Tells compression and format from the first bytes; `name` is what messages call the input.
    ///
    /// # Errors
    /// The input is unreadable, empty or no capture.
    pub fn open(reader: Box<dyn Read + Send>, name: &str) -> Result<Self, CaptureError> {
        let name = name.to_owned();
        match compressed::decompress(reader) {
            Ok((reader, methods)) => Self::open_decompressed(reader, &name, &methods),
            Err(error) => Err(CaptureError::Unreadable { name, error }),
        }
    }

    /// The same for what is decompressed already, by these methods.
    fn open_decompressed(
        reader: Box<dyn Read + Send>,
        name: &str,
        methods: &[&'static str],
    ) -> Result<Self, CaptureError> {
        let compression = if methods.is_empty() { None } else { Some(methods.join("+")) };
        Self::over(Source::new(reader), CaptureInfo { name: name.to_owned(), compression, ..CaptureInfo::default() })
    }

    /// A capture in a plain file, which is mapped; `bytes_read` is told how far the reading is.
    fn map(file: File, name: String, bytes_read: Arc<AtomicU64>) -> Result<Self, CaptureError> {
        Self::over(Source::mapped(file, bytes_read), CaptureInfo { name, ..CaptureInfo::default() })
    }

    fn over(mut source: Source, mut info: CaptureInfo) -> Result<Self, CaptureError> {
        let has_file_header = source.has(pcap::FILE_HEADER_BYTES);
        if let Some(error) = source.take_failure() {
            return Err(CaptureError::Unreadable { name: info.name, error });
        }
        let start = source.available();
        if start.is_empty() {
            return Err(CaptureError::Empty { name: info.name });
        }
        let mut file_header = [0; pcap::FILE_HEADER_BYTES];
        for (byte, &read) in file_header.iter_mut().zip(start) {
            *byte = read;
        }
        let is_section = pcapng::is_section_header(start);
        let format = if is_section {
            info.format = "pcapng";
            Format::Pcapng(pcapng::Pcapng::new())
        } else if let Some(pcap) = pcap::Pcap::from_file_header(&file_header, &mut info) {
            Format::Pcap(pcap)
        } else {
            let first_bytes: Vec<_> = start.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            return Err(CaptureError::NotACapture { name: info.name, first_bytes: first_bytes.join(" ") });
        };
        if !has_file_header {
            return Err(CaptureError::HeaderDamaged { name: info.name });
        }
        if !is_section {
            source.consume(pcap::FILE_HEADER_BYTES);
        }
        Ok(Self { source, format, info, frame: 0, is_at_end: false })
    }

    /// The next packet, or none at the end of the capture; damage is counted and is an end.
    ///
    /// # Errors
    /// The operating system can no longer read the input; what came before stands.
    #[inline]
    pub fn next_packet(&mut self, counters: &mut Counters) -> Result<Option<Packet<'_>>, CaptureError> {
        match self.next_record(counters)? {
            Some(record) => Ok(Some(self.packet(record))),
            None => Ok(None),
        }
    }

    /// The next packet without its bytes, so that nothing is borrowed.
    #[inline]
    fn next_record(&mut self, counters: &mut Counters) -> Result<Option<Record>, CaptureError> {
        if self.is_at_end {
            return Ok(None);
        }
        let record = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.source),
            Format::Pcapng(pcapng) => pcapng.next(&mut self.source, &mut self.info, counters, &mut self.frame),
        };
        let record = match record {
            Ok(record) => record,
            Err(_) if self.source.is_waiting() => return Ok(None),
            Err(end) => return self.end(end, counters).map(|()| None),
        };
        self.frame += 1;
        self.info.add_packet(&record);
        Ok(Some(record))
    }

    /// The packet of the record read last.
    #[inline]
    fn packet(&self, record: Record) -> Packet<'_> {
        Packet {
            frame: self.frame,
            time_ns: record.time_ns,
            link_type: record.link_type,
            interface: record.interface,
            original_length: record.original_length,
            data: self.source.consumed(record.range),
        }
    }

    /// Whether there is no packet for now, but there may be later: its reader said so (`WouldBlock`).
    pub fn is_waiting(&self) -> bool {
        !self.is_at_end && self.source.is_waiting()
    }

    /// What the capture says of itself, and what was read of it so far.
    pub fn info(&self) -> &CaptureInfo {
        &self.info
    }

    /// Counts on from the last frame of the file before.
    fn continue_after(&mut self, frame: u64) {
        self.frame = frame;
    }

    /// The capture ends with the record read last.
    fn end_here(&mut self, counters: &mut Counters) {
        if !self.is_at_end {
            // a clean end is no error
            let _ = self.end(End::Clean, counters);
        }
    }

    #[cold]
    fn end(&mut self, end: End, counters: &mut Counters) -> Result<(), CaptureError> {
        self.is_at_end = true;
        self.info.is_cut_short = end != End::Clean;
        if let Format::Pcapng(pcapng) = &self.format {
            pcapng.end_section(&self.info, counters, self.frame);
        }
        if let Some(error) = self.source.take_failure() {
            self.info.is_cut_short = true;
            if self.info.compression.is_none() {
                return Err(CaptureError::Unreadable { name: self.info.name.clone(), error });
            }
            counters.add(Counter::CompressionCutShort, None, self.frame);
            return Ok(());
        }
        match end {
            End::Clean => {}
            End::CutShort => counters.add(Counter::RecordCutShort, None, self.frame),
            End::Invalid => counters.add(Counter::RecordInvalid, None, self.frame),
        }
        Ok(())
    }
}
