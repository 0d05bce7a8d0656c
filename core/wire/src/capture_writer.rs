//! Packets -> a pcapng or classic pcap file, little-endian; the same calls give the same bytes.
//!
//! Packets are not reordered, no clock is read, and times are nanoseconds unless microseconds are requested.

use std::io::{self, Write};

use crate::frame::LinkType;

/// Code of the option that any block may have.
const COMMENT: u16 = 1;

/// Metadata of a section; empty fields are left out.
#[derive(Debug, Default, Clone, Copy)]
pub struct Section<'a> {
    /// The machine.
    pub hardware: &'a str,
    /// Its operating system.
    pub operating_system: &'a str,
    /// The program that writes.
    pub application: &'a str,
    /// A comment for the reader.
    pub comment: &'a str,
}

/// Metadata of an interface; empty fields are left out.
#[derive(Debug, Default, Clone, Copy)]
pub struct Interface<'a> {
    /// The name, such as `eth0`.
    pub name: &'a str,
    /// The operating system's description.
    pub description: &'a str,
    /// The capture filter, in libpcap's syntax.
    pub filter: &'a str,
    /// Whether its time stamps are in microseconds; otherwise nanoseconds.
    pub is_in_microseconds: bool,
}

/// Packet counts of the capture tool on an interface.
#[derive(Debug, Default, Clone, Copy)]
pub struct Statistics<'a> {
    /// Time of the counts.
    pub time_ns: i64,
    /// Start of the counted time.
    pub start_ns: i64,
    /// End of the counted time.
    pub end_ns: i64,
    /// Packets that passed the filter, including dropped ones.
    pub received_count: u64,
    /// Packets dropped for lack of buffer.
    pub dropped_count: u64,
    /// Packets dropped by the operating system.
    pub dropped_by_system_count: u64,
    /// Delivered packets.
    pub delivered_count: u64,
    /// A comment for the reader.
    pub comment: &'a str,
}

/// Writes pcapng: one section, interfaces with nanosecond clocks, Enhanced Packet Blocks.
pub struct PcapngWriter<W: Write> {
    out: W,
    /// Nanoseconds per tick of each interface.
    ticks_ns: Vec<i64>,
    block: Vec<u8>,
}

impl<W: Write> PcapngWriter<W> {
    /// Starts a file written by `application`.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(out: W, application: &str) -> io::Result<Self> {
        Self::with_section(out, &Section { application, ..Section::default() })
    }

    /// Starts a file.
    ///
    /// # Errors
    /// A text is too long, or `out` cannot be written.
    pub fn with_section(out: W, section: &Section<'_>) -> io::Result<Self> {
        let mut writer = Self { out, ticks_ns: Vec::new(), block: Vec::new() };
        writer.begin(0x0a0d_0d0a);
        writer.block.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        // Version 1.0, section length unknown.
        writer.block.extend_from_slice(&[1, 0, 0, 0]);
        writer.block.extend_from_slice(&[0xff; 8]);
        writer.text_option(COMMENT, section.comment)?;
        writer.text_option(2, section.hardware)?;
        writer.text_option(3, section.operating_system)?;
        writer.text_option(4, section.application)?;
        writer.end_options();
        writer.end()?;
        Ok(writer)
    }

    /// Adds an interface and returns its number; a snaplen of 0 is no limit.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn add_interface(&mut self, link_type: LinkType, snaplen: u32, name: &str) -> io::Result<u32> {
        self.describe_interface(link_type, snaplen, &Interface { name, ..Interface::default() })
    }

    /// Adds an interface with all its metadata, and returns its number.
    ///
    /// # Errors
    /// A text is too long, or `out` cannot be written.
    pub fn describe_interface(
        &mut self,
        link_type: LinkType,
        snaplen: u32,
        interface: &Interface<'_>,
    ) -> io::Result<u32> {
        self.begin(1);
        self.block.extend_from_slice(&link_type.0.to_le_bytes());
        self.block.extend_from_slice(&[0, 0]);
        self.block.extend_from_slice(&snaplen.to_le_bytes());
        self.text_option(2, interface.name)?;
        self.text_option(3, interface.description)?;
        self.option(9, &[if interface.is_in_microseconds { 6 } else { 9 }])?;
        if !interface.filter.is_empty() {
            // kind 0: text for libpcap
            let filter = [&[0], interface.filter.as_bytes()].concat();
            self.option(11, &filter)?;
        }
        self.end_options();
        self.end()?;
        let number = u32::try_from(self.ticks_ns.len()).map_err(|_| invalid("too many interfaces"))?;
        self.ticks_ns.push(if interface.is_in_microseconds { 1000 } else { 1 });
        Ok(number)
    }

    /// Adds a packet with the captured bytes `data`.
    ///
    /// # Errors
    /// The interface is unknown, the time before 1970, the packet or comment too long, or `out` cannot be written.
    pub fn packet(
        &mut self,
        interface: u32,
        time_ns: i64,
        original_length: u32,
        data: &[u8],
        comment: Option<&str>,
    ) -> io::Result<()> {
        let Some(&tick_ns) = self.ticks_ns.get(interface as usize) else {
            return Err(invalid("packet of an interface that was not added"));
        };
        let captured_length = length(data)?;
        let padding = data.len().next_multiple_of(4) - data.len();
        let options = comment.map_or(0, |comment| 4 + comment.len().next_multiple_of(4) + 4);
        let total = 28_usize.saturating_add(data.len()).saturating_add(padding + options + 4);
        let total = u32::try_from(total).map_err(|_| invalid("packet longer than 4 GiB"))?.to_le_bytes();
        self.block.clear();
        self.block.extend_from_slice(&6_u32.to_le_bytes());
        self.block.extend_from_slice(&total);
        self.block.extend_from_slice(&interface.to_le_bytes());
        self.time(time_ns / tick_ns)?;
        self.block.extend_from_slice(&captured_length.to_le_bytes());
        self.block.extend_from_slice(&original_length.to_le_bytes());
        let head = self.block.len();
        self.block.resize(head + padding, 0);
        if let Some(comment) = comment {
            // padded from the start of the option, where the packet's padding ended
            let (start, padded) = (self.block.len(), comment.len().next_multiple_of(4));
            self.text_option_header(COMMENT, comment)?;
            self.block.resize(start + 4 + padded, 0);
            self.end_options();
        }
        self.block.extend_from_slice(&total);
        let (head, tail) = self.block.split_at(head);
        self.out.write_all(head)?;
        // the packet itself is written directly
        self.out.write_all(data)?;
        self.out.write_all(tail)
    }

    /// Adds the capture's statistics of an interface.
    ///
    /// # Errors
    /// The time is before 1970, or `out` cannot be written.
    pub fn statistics(
        &mut self,
        interface: u32,
        time_ns: i64,
        received_count: u64,
        dropped_count: u64,
    ) -> io::Result<()> {
        self.begin(5);
        self.block.extend_from_slice(&interface.to_le_bytes());
        self.time(time_ns)?;
        self.option(4, &received_count.to_le_bytes())?;
        self.option(5, &dropped_count.to_le_bytes())?;
        self.end_options();
        self.end()
    }

    /// Adds the capture's statistics of an interface, with the start and end of the counted time.
    ///
    /// # Errors
    /// The interface is unknown, a time before 1970, the comment too long, or `out` cannot be written.
    pub fn counted(&mut self, interface: u32, statistics: &Statistics<'_>) -> io::Result<()> {
        let Some(&tick_ns) = self.ticks_ns.get(interface as usize) else {
            return Err(invalid("statistics of an interface that was not added"));
        };
        self.begin(5);
        self.block.extend_from_slice(&interface.to_le_bytes());
        self.time(statistics.time_ns / tick_ns)?;
        self.text_option(COMMENT, statistics.comment)?;
        for (code, time_ns) in [(2_u16, statistics.start_ns), (3, statistics.end_ns)] {
            self.block.extend_from_slice(&code.to_le_bytes());
            self.block.extend_from_slice(&8_u16.to_le_bytes());
            self.time(time_ns / tick_ns)?;
        }
        self.option(4, &statistics.received_count.to_le_bytes())?;
        self.option(5, &statistics.dropped_count.to_le_bytes())?;
        self.option(7, &statistics.dropped_by_system_count.to_le_bytes())?;
        self.option(8, &statistics.delivered_count.to_le_bytes())?;
        self.end_options();
        self.end()
    }

    /// Adds an entry of a journal, as systemd's export format has it: Wireshark shows it as a frame at that time.
    /// `source` and `message` are one line each.
    ///
    /// # Errors
    /// The entry is too long, or `out` cannot be written.
    pub fn journal(&mut self, time_ns: i64, source: &str, message: &str) -> io::Result<()> {
        self.begin(9);
        writeln!(self.block, "__REALTIME_TIMESTAMP={}", time_ns / 1000)?;
        writeln!(self.block, "PRIORITY=6")?;
        writeln!(self.block, "SYSLOG_IDENTIFIER={source}")?;
        writeln!(self.block, "MESSAGE={message}")?;
        self.pad();
        self.end()
    }

    /// The output; every call of this writer leaves it at the end of a block.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn begin(&mut self, block_type: u32) {
        self.block.clear();
        self.block.extend_from_slice(&block_type.to_le_bytes());
        self.block.extend_from_slice(&[0; 4]);
    }

    /// Completes the block's two lengths and writes it.
    fn end(&mut self) -> io::Result<()> {
        let length = length(&self.block)?.checked_add(4).ok_or_else(|| invalid("block too long"))?.to_le_bytes();
        self.block.extend_from_slice(&length);
        for (byte, value) in self.block.iter_mut().skip(4).zip(length) {
            *byte = value;
        }
        self.out.write_all(&self.block)
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) -> io::Result<()> {
        let length = u16::try_from(value.len()).map_err(|_| invalid("option longer than 65535 bytes"))?;
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&length.to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
        Ok(())
    }

    /// A text option, unless empty.
    fn text_option(&mut self, code: u16, text: &str) -> io::Result<()> {
        if text.is_empty() { Ok(()) } else { self.option(code, text.as_bytes()) }
    }

    /// A text without its padding.
    fn text_option_header(&mut self, code: u16, text: &str) -> io::Result<()> {
        let length = u16::try_from(text.len()).map_err(|_| invalid("option longer than 65535 bytes"))?;
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&length.to_le_bytes());
        self.block.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn end_options(&mut self) {
        self.block.extend_from_slice(&[0; 4]);
    }

    /// High half first, whatever the byte order.
    fn time(&mut self, ticks: i64) -> io::Result<()> {
        let ticks = u64::try_from(ticks).map_err(|_| invalid("time before 1970"))?;
        self.block.extend_from_slice(&((ticks >> 32) as u32).to_le_bytes());
        self.block.extend_from_slice(&(ticks as u32).to_le_bytes());
        Ok(())
    }
}

/// Writes classic pcap with microseconds or nanoseconds.
pub struct PcapWriter<W: Write> {
    out: W,
    nanoseconds_per_fraction: i64,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a file; times are in nanoseconds, or truncated to microseconds.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(mut out: W, link_type: LinkType, snaplen: u32, has_nanoseconds: bool) -> io::Result<Self> {
        let magic: u32 = if has_nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        out.write_all(&magic.to_le_bytes())?;
        // Version 2.4, no time zone, no accuracy.
        out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
        out.write_all(&snaplen.to_le_bytes())?;
        out.write_all(&u32::from(link_type.0).to_le_bytes())?;
        Ok(Self { out, nanoseconds_per_fraction: if has_nanoseconds { 1 } else { 1000 } })
    }

    /// Adds a packet with the captured bytes `data`.
    ///
    /// # Errors
    /// The time is not within 1970 to 2106, the packet too long, or `out` cannot be written.
    pub fn packet(&mut self, time_ns: i64, original_length: u32, data: &[u8]) -> io::Result<()> {
        let seconds = u32::try_from(time_ns.div_euclid(1_000_000_000))
            .map_err(|_| invalid("time that classic pcap cannot hold: not within 1970 to 2106"))?;
        let fraction = (time_ns.rem_euclid(1_000_000_000) / self.nanoseconds_per_fraction) as u32;
        for field in [seconds, fraction, length(data)?, original_length] {
            self.out.write_all(&field.to_le_bytes())?;
        }
        self.out.write_all(data)
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| invalid("packet longer than 4 GiB"))
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
