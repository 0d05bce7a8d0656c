//! The pcapng format (draft-ietf-opsawg-pcapng): sections of blocks, each section with its own byte order and interfaces.
//!
//! ```text
//! block    type:4  total_length:4  body  total_length:4      (all padded to 4 bytes)
//! packets  Enhanced (6), Simple (3), obsolete Packet Block (2)
//! others   Section Header, Interface Description (1), Interface Statistics (5)
//! journal  (9), if samples of TCP_INFO are wanted; the rest is skipped
//! ```
//!
//! No block is kept. Options become strings of [`CaptureInfo`], which are limited in number.

use iscsitrace_wire::frame::LinkType;
use iscsitrace_wire::tcp_info::TcpSample;

use super::info::{ByteOrder, CaptureInfo, InterfaceInfo, TimeResolution, text};
use super::record::{End, PACKET_BYTES_AT_MOST, Record};
use super::source::Source;

use crate::counters::{Counter, Counters};
use crate::tcp_info;

/// Type of a Section Header Block: the same in both byte orders.
const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const JOURNAL: u32 = 9;
/// Systemd journal, custom and sysdig blocks hold no packet, but Wireshark gives them a frame number.
const NUMBERED: [u32; 9] = [JOURNAL, 0xbad, 0x4000_0bad, 0x204, 0x208, 0x216, 0x217, 0x221, 0x222];
/// Name resolution, decryption secrets, hone and sysdig tables: known, and without a frame number.
const SKIPPED: [std::ops::RangeInclusive<u32>; 4] = [4..=4, 10..=10, 0x101..=0x102, 0x201..=0x222];
/// Longer entries hold no sample.
const JOURNAL_BYTES_AT_MOST: u32 = 1 << 16;
/// Far more than tools write; limits the memory that a hostile file can use.
const INTERFACES_AT_MOST: usize = 65_536;
/// Names, descriptions and filters of all interfaces of a file together; those of a host take a few KiB.
const INTERFACE_TEXT_BYTES_AT_MOST: usize = 1 << 20;
/// Samples of TCP_INFO of a file: a connection sampled every 0.1 s for half a day.
const SAMPLES_AT_MOST: usize = 500_000;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;

/// Whether a file starts with a Section Header Block, as far as its first bytes are there.
pub(super) fn is_section_header(start: &[u8]) -> bool {
    start.starts_with(&SECTION_HEADER)
        && start.get(8..12).is_none_or(|mark| matches!(mark, [0x1a, 0x2b, 0x3c, 0x4d] | [0x4d, 0x3c, 0x2b, 0x1a]))
}

/// The state of the reader.
#[derive(Debug)]
pub(super) struct Pcapng {
    byte_order: ByteOrder,
    /// Interfaces of this section, with everything that a packet needs.
    interfaces: Vec<Interface>,
    /// Index of the section's first interface among those of the file.
    first_interface: u32,
    /// For Simple Packet Blocks, which have no time.
    last_time_ns: i64,
    /// Bytes of the texts of all interfaces so far.
    interface_text_bytes: usize,
    /// Samples of TCP_INFO so far, if they are wanted.
    pub(super) samples: Option<Vec<TcpSample>>,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link_type: LinkType,
    snaplen: u32,
    clock: Clock,
}

/// The conversion of an interface's time stamps.
#[derive(Debug, Clone, Copy)]
struct Clock {
    resolution: TimeResolution,
    /// Nanoseconds per tick, if a whole number.
    nanoseconds: Option<i64>,
    offset_s: i64,
}

impl Clock {
    fn new(resolution: TimeResolution, offset_s: i64) -> Self {
        let nanoseconds = match resolution {
            TimeResolution::Decimal(exponent) => 9_u32.checked_sub(exponent.into()).map(|power| 10_i64.pow(power)),
            TimeResolution::Binary(_) => None,
        };
        Self { resolution, nanoseconds, offset_s }
    }

    /// Nanoseconds since 1970, rounded down. Times outside the years 1677 to 2262 become the nearest of them: all implausible.
    #[inline]
    fn time_ns(&self, ticks: u64) -> i64 {
        match (i64::try_from(ticks), self.nanoseconds) {
            (Ok(ticks), Some(nanoseconds)) if self.offset_s == 0 => ticks.saturating_mul(nanoseconds),
            _ => self.time_ns_exactly(ticks),
        }
    }

    #[cold]
    fn time_ns_exactly(&self, ticks: u64) -> i64 {
        // Below 2^64 * 10^9 < 2^94: cannot overflow.
        let nanoseconds_of_ticks = match self.resolution {
            TimeResolution::Decimal(exponent) => match 9_u32.checked_sub(exponent.into()) {
                Some(power) => u128::from(ticks) * 10_u128.pow(power),
                None => 10_u128.checked_pow(u32::from(exponent) - 9).map_or(0, |divisor| u128::from(ticks) / divisor),
            },
            TimeResolution::Binary(exponent) => {
                (u128::from(ticks) * 1_000_000_000).checked_shr(exponent.into()).unwrap_or(0)
            }
        };
        let time_ns = nanoseconds_of_ticks as i128 + i128::from(self.offset_s) * 1_000_000_000;
        i64::try_from(time_ns).unwrap_or(if time_ns < 0 { i64::MIN } else { i64::MAX })
    }
}

impl Pcapng {
    /// A reader at the start of a file, after [`is_section_header`].
    pub(super) fn new() -> Self {
        Self {
            byte_order: ByteOrder::Little,
            interfaces: Vec::new(),
            first_interface: 0,
            last_time_ns: 0,
            interface_text_bytes: 0,
            samples: None,
        }
    }

    /// The next complete packet; blocks before it are read into `info`. `frame` is the number of the previous frame.
    #[inline]
    pub(super) fn next(
        &mut self,
        source: &mut Source,
        info: &mut CaptureInfo,
        counters: &mut Counters,
        frame: &mut u64,
    ) -> Result<Record, End> {
        loop {
            if !source.has(12) {
                return Err(if source.available().is_empty() { End::Clean } else { End::CutShort });
            }
            let Some(start) = source.available().first_chunk::<12>() else { return Err(End::CutShort) };
            if start.starts_with(&SECTION_HEADER) {
                self.byte_order = match start {
                    [.., 0x1a, 0x2b, 0x3c, 0x4d] => ByteOrder::Big,
                    [.., 0x4d, 0x3c, 0x2b, 0x1a] => ByteOrder::Little,
                    _ => return Err(End::Invalid),
                };
            }
            let block_type = self.byte_order.u32_at(start, 0);
            let length = self.byte_order.u32_at(start, 4);
            let least_length = match block_type {
                SECTION => 28,
                INTERFACE_DESCRIPTION => 20,
                INTERFACE_STATISTICS => 24,
                ENHANCED_PACKET | PACKET => 32,
                SIMPLE_PACKET => 16,
                JOURNAL if self.samples.is_some() && length <= JOURNAL_BYTES_AT_MOST => 12,
                _ => {
                    self.skip_block(source, length)?;
                    if NUMBERED.contains(&block_type) {
                        *frame += 1;
                    } else if !SKIPPED.iter().any(|types| types.contains(&block_type)) {
                        counters.add(Counter::BlockUnknown, None, *frame);
                    }
                    continue;
                }
            };
            if length < least_length || !length.is_multiple_of(4) || length > PACKET_BYTES_AT_MOST {
                return Err(End::Invalid);
            }
            if !source.has(length as usize) {
                return Err(End::CutShort);
            }
            let block = source.available().get(..length as usize).unwrap_or_default();
            let Some((block, end)) = block.split_last_chunk::<4>() else { return Err(End::Invalid) };
            if self.byte_order.u32_at(end, 0) != length {
                return Err(End::Invalid);
            }
            let parsed = match block_type {
                ENHANCED_PACKET => self.packet(block, self.byte_order.u32_at(block, 8), info, counters, *frame),
                PACKET => self.packet(block, self.byte_order.u16_at(block, 8).into(), info, counters, *frame),
                SIMPLE_PACKET => self.simple_packet(block, counters, *frame),
                SECTION => self.section(block, info, counters, *frame),
                INTERFACE_DESCRIPTION => self.interface_description(block, info, counters, *frame),
                JOURNAL => {
                    *frame += 1;
                    let samples = self.samples.as_mut();
                    if let Some((samples, sample)) =
                        samples.zip(tcp_info::of_journal(block.get(8..).unwrap_or_default()))
                    {
                        if samples.len() < SAMPLES_AT_MOST {
                            samples.push(sample);
                        } else {
                            counters.add(Counter::TcpSamplesNotKept, None, *frame);
                        }
                    }
                    Ok(None)
                }
                _ => self.interface_statistics(block, info),
            }?;
            let block = source.consume(length as usize);
            source.prefetch();
            if let Some((mut record, data_at)) = parsed {
                let data_start = block.start.saturating_add(data_at);
                record.range = data_start..data_start.saturating_add(record.range.len());
                if record.has_plausible_time() {
                    self.last_time_ns = record.time_ns;
                }
                return Ok(record);
            }
        }
    }

    /// The frame after the next block in these bytes; empty if they end before it, or the block has none.
    pub(super) fn after_next<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let after = self.byte_order.u32_at(bytes, 4) as usize;
        let Some(block) = bytes.get(after..) else { return &[] };
        if self.byte_order.u32_at(block, 0) != ENHANCED_PACKET {
            return &[];
        }
        let captured_length = self.byte_order.u32_at(block, 20) as usize;
        block.get(28..captured_length.saturating_add(28)).unwrap_or_default()
    }

    /// Counts, at the end of a section, the packets that the capture tool dropped: its statistics are running totals.
    pub(super) fn end_section(&self, info: &CaptureInfo, counters: &mut Counters, frame: u64) {
        for interface in info.interfaces.iter().skip(self.first_interface as usize) {
            counters.add_many(Counter::DroppedByCapture, None, frame, interface.dropped_count.unwrap_or(0));
        }
    }

    /// Skips a block without packets, of any length.
    #[cold]
    fn skip_block(&self, source: &mut Source, length: u32) -> Result<(), End> {
        if length < 12 || !length.is_multiple_of(4) {
            return Err(End::Invalid);
        }
        // complete before any of it is consumed, so that the reader can wait for its end; not for a very long one
        let is_there = length > PACKET_BYTES_AT_MOST || source.has(length as usize);
        if !is_there || !source.skip(u64::from(length) - 4) || !source.has(4) {
            return Err(End::CutShort);
        }
        let range = source.consume(4);
        if self.byte_order.u32_at(source.consumed(range), 0) != length { Err(End::Invalid) } else { Ok(()) }
    }

    /// Enhanced and obsolete packet blocks differ only in the width of the interface number.
    #[inline]
    fn packet(
        &self,
        block: &[u8],
        interface: u32,
        info: &mut CaptureInfo,
        counters: &mut Counters,
        frame: u64,
    ) -> Result<Option<(Record, usize)>, End> {
        let [ticks_high, ticks_low, captured_length, original_length] =
            [12, 16, 20, 24].map(|at| self.byte_order.u32_at(block, at));
        let Some((_, options)) = block.get(28..).and_then(|body| body.split_at_checked(captured_length as usize))
        else {
            return Err(End::Invalid);
        };
        if options.len() >= 4 {
            let padding = captured_length.wrapping_neg() as usize % 4;
            self.options(options.get(padding..).unwrap_or_default(), |code, value| {
                if code == OPTION_COMMENT {
                    info.add_comment(value);
                }
            });
        }
        let Some(&Interface { link_type, clock, .. }) = self.interfaces.get(interface as usize) else {
            counters.add(Counter::InterfaceUnknown, None, frame);
            return Ok(None);
        };
        let record = Record {
            time_ns: clock.time_ns(u64::from(ticks_high) << 32 | u64::from(ticks_low)),
            link_type,
            interface: self.first_interface.saturating_add(interface),
            original_length,
            range: 0..captured_length as usize,
        };
        Ok(Some((record, 28)))
    }

    /// A packet of the section's first interface, without a time.
    fn simple_packet(&self, block: &[u8], counters: &mut Counters, frame: u64) -> Result<Option<(Record, usize)>, End> {
        let original_length = self.byte_order.u32_at(block, 8);
        let Some(&Interface { link_type, snaplen, .. }) = self.interfaces.first() else {
            counters.add(Counter::InterfaceUnknown, None, frame);
            return Ok(None);
        };
        let captured_length = original_length.min(if snaplen == 0 { u32::MAX } else { snaplen }) as usize;
        if captured_length > block.len().saturating_sub(12) {
            return Err(End::Invalid);
        }
        let record = Record {
            time_ns: self.last_time_ns,
            link_type,
            interface: self.first_interface,
            original_length,
            range: 0..captured_length,
        };
        Ok(Some((record, 12)))
    }

    #[cold]
    fn section(
        &mut self,
        block: &[u8],
        info: &mut CaptureInfo,
        counters: &mut Counters,
        frame: u64,
    ) -> Result<Option<(Record, usize)>, End> {
        self.end_section(info, counters, frame);
        self.interfaces.clear();
        self.first_interface = u32::try_from(info.interfaces.len()).unwrap_or(u32::MAX);
        info.byte_order = self.byte_order;
        self.options(block.get(24..).unwrap_or_default(), |code, value| match code {
            OPTION_COMMENT => info.add_comment(value),
            2 => info.hardware = Some(text(value)),
            3 => info.operating_system = Some(text(value)),
            4 => info.application = Some(text(value)),
            _ => {}
        });
        Ok(None)
    }

    #[cold]
    fn interface_description(
        &mut self,
        block: &[u8],
        info: &mut CaptureInfo,
        counters: &mut Counters,
        frame: u64,
    ) -> Result<Option<(Record, usize)>, End> {
        if info.interfaces.len() >= INTERFACES_AT_MOST {
            return Err(End::Invalid);
        }
        let mut text_bytes = self.interface_text_bytes;
        let mut kept = |value: &[u8]| {
            let text = text(value);
            text_bytes += text.len();
            if text_bytes > INTERFACE_TEXT_BYTES_AT_MOST {
                text_bytes -= text.len();
                counters.add(Counter::InterfaceTextNotKept, None, frame);
                return None;
            }
            Some(text)
        };
        let mut interface = InterfaceInfo {
            link_type: self.byte_order.u16_at(block, 8),
            snaplen: self.byte_order.u32_at(block, 12),
            ..InterfaceInfo::default()
        };
        self.options(block.get(16..).unwrap_or_default(), |code, value| match (code, value) {
            (OPTION_COMMENT, value) => info.add_comment(value),
            (2, value) => interface.name = kept(value),
            (3, value) => interface.description = kept(value),
            (9, &[resolution, ..]) => {
                let exponent = resolution & 0x7f;
                let is_binary = resolution & 0x80 != 0;
                interface.time_resolution =
                    if is_binary { TimeResolution::Binary(exponent) } else { TimeResolution::Decimal(exponent) };
            }
            // Filters of kind 0 are libpcap expressions; others are programs.
            (11, [0, expression @ ..]) => interface.filter = kept(expression),
            (14, value) if value.len() >= 8 => interface.time_offset_s = self.byte_order.u64_at(value, 0) as i64,
            _ => {}
        });
        self.interface_text_bytes = text_bytes;
        self.interfaces.push(Interface {
            link_type: LinkType(interface.link_type),
            snaplen: interface.snaplen,
            clock: Clock::new(interface.time_resolution, interface.time_offset_s),
        });
        info.snaplen = info.snaplen.max(interface.snaplen);
        info.add_interface(interface);
        Ok(None)
    }

    #[cold]
    fn interface_statistics(&self, block: &[u8], info: &mut CaptureInfo) -> Result<Option<(Record, usize)>, End> {
        let number = self.byte_order.u32_at(block, 8);
        if self.interfaces.get(number as usize).is_none() {
            return Ok(None);
        }
        let (mut received_count, mut dropped_count) = (None, None);
        self.options(block.get(20..).unwrap_or_default(), |code, value| match code {
            OPTION_COMMENT => info.add_comment(value),
            4 if value.len() >= 8 => received_count = Some(self.byte_order.u64_at(value, 0)),
            5 if value.len() >= 8 => dropped_count = Some(self.byte_order.u64_at(value, 0)),
            _ => {}
        });
        let index = self.first_interface.saturating_add(number) as usize;
        if let Some(interface) = info.interfaces.get_mut(index) {
            interface.received_count = received_count.or(interface.received_count);
            interface.dropped_count = dropped_count.or(interface.dropped_count);
        }
        Ok(None)
    }

    /// Calls `each` with the options up to their end, or to the first incomplete one.
    #[cold]
    fn options(&self, mut bytes: &[u8], mut each: impl FnMut(u16, &[u8])) {
        while let Some((header, rest)) = bytes.split_first_chunk::<4>() {
            let (code, length) = (self.byte_order.u16_at(header, 0), self.byte_order.u16_at(header, 2));
            let Some((value, rest)) = rest.split_at_checked(length.into()) else { return };
            if code == OPTION_END {
                return;
            }
            each(code, value);
            bytes = rest.get(usize::from(length.wrapping_neg() % 4)..).unwrap_or_default();
        }
    }
}
