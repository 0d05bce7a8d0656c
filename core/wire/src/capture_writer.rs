//! Packets -> a pcapng or classic pcap file, little-endian; the same calls give the same bytes.
//!
//! It never reorders, never reads a clock, and writes nanoseconds unless asked for microseconds.

use std::io::{self, Write};

use crate::frame::LinkType;

/// Writes pcapng: one section, interfaces with nanosecond clocks, Enhanced Packet Blocks.
pub struct PcapngWriter<W: Write> {
    out: W,
    interface_count: u32,
    block: Vec<u8>,
}

impl<W: Write> PcapngWriter<W> {
    /// Begins a file that `application` made.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(out: W, application: &str) -> io::Result<Self> {
        let mut writer = Self { out, interface_count: 0, block: Vec::new() };
        writer.begin(0x0a0d_0d0a);
        writer.block.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        // Version 1.0, section length unknown.
        writer.block.extend_from_slice(&[1, 0, 0, 0]);
        writer.block.extend_from_slice(&[0xff; 8]);
        writer.option(4, application.as_bytes())?;
        writer.end_options();
        writer.end()?;
        Ok(writer)
    }

    /// Adds an interface and gives its number; a snaplen of 0 is no limit.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn add_interface(&mut self, link_type: LinkType, snaplen: u32, name: &str) -> io::Result<u32> {
        self.begin(1);
        self.block.extend_from_slice(&link_type.0.to_le_bytes());
        self.block.extend_from_slice(&[0, 0]);
        self.block.extend_from_slice(&snaplen.to_le_bytes());
        self.option(2, name.as_bytes())?;
        self.option(9, &[9])?;
        self.end_options();
        self.end()?;
        let number = self.interface_count;
        self.interface_count += 1;
        Ok(number)
    }

    /// Adds a packet of which `data` was kept.
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
        if interface >= self.interface_count {
            return Err(invalid("packet of an interface that was not added"));
        }
        self.begin(6);
        self.block.extend_from_slice(&interface.to_le_bytes());
        self.time(time_ns)?;
        self.block.extend_from_slice(&length(data)?.to_le_bytes());
        self.block.extend_from_slice(&original_length.to_le_bytes());
        self.block.extend_from_slice(data);
        self.pad();
        if let Some(comment) = comment {
            self.option(1, comment.as_bytes())?;
            self.end_options();
        }
        self.end()
    }

    /// Adds the capture's own statistics of an interface.
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

    /// Flushes and gives back what was written to.
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

    fn end_options(&mut self) {
        self.block.extend_from_slice(&[0; 4]);
    }

    /// High half first, whatever the byte order.
    fn time(&mut self, time_ns: i64) -> io::Result<()> {
        let time_ns = u64::try_from(time_ns).map_err(|_| invalid("time before 1970"))?;
        self.block.extend_from_slice(&((time_ns >> 32) as u32).to_le_bytes());
        self.block.extend_from_slice(&(time_ns as u32).to_le_bytes());
        Ok(())
    }
}

/// Writes classic pcap with microseconds or nanoseconds.
pub struct PcapWriter<W: Write> {
    out: W,
    nanoseconds_per_fraction: i64,
}

impl<W: Write> PcapWriter<W> {
    /// Begins a file; times are in nanoseconds, or cut to microseconds.
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

    /// Adds a packet of which `data` was kept.
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

    /// Flushes and gives back what was written to.
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
