//! One capture of any format, read in one pass.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use iscsitrace_wire::tcp_info::TcpSample;

use super::error::CaptureError;
use super::info::CaptureInfo;
use super::record::{End, Packet, Record};
use super::source::Source;
use super::{compressed, pcap, pcapng};
use crate::counters::{Counter, Counters};

#[derive(Debug)]
enum Format {
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
}

/// One capture of any format, read from any byte source in one pass.
pub struct Capture {
    source: Source,
    format: Format,
    pub(super) info: CaptureInfo,
    /// Number of the last frame.
    pub(super) frame: u64,
    is_at_end: bool,
}

impl Capture {
    /// Detects compression and format from the first bytes; `name` is used in messages.
    ///
    /// # Errors
    /// The input is unreadable, empty or not a capture.
    pub fn open(reader: Box<dyn Read + Send>, name: &str) -> Result<Self, CaptureError> {
        let name = name.to_owned();
        match compressed::decompress(reader) {
            Ok((reader, methods)) => Self::open_decompressed(reader, &name, &methods),
            Err(error) => Err(CaptureError::Unreadable { name, error }),
        }
    }

    /// The same for bytes that were already decompressed, with these methods.
    pub(super) fn open_decompressed(
        reader: Box<dyn Read + Send>,
        name: &str,
        methods: &[&'static str],
    ) -> Result<Self, CaptureError> {
        let compression = if methods.is_empty() { None } else { Some(methods.join("+")) };
        Self::over(Source::new(reader), CaptureInfo { name: name.to_owned(), compression, ..CaptureInfo::default() })
    }

    /// A capture in a plain file, which is mapped; `bytes_read` follows the progress.
    pub(super) fn map(file: File, name: String, bytes_read: Arc<AtomicU64>) -> Result<Self, CaptureError> {
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

    /// The next packet with a plausible time, or none at the end of the capture. Packets with other times are counted.
    /// Damage is counted and ends the capture.
    ///
    /// # Errors
    /// The operating system can no longer read the input; packets read before stay valid.
    #[inline]
    pub fn next_packet(&mut self, counters: &mut Counters) -> Result<Option<Packet<'_>>, CaptureError> {
        match self.next_record(counters)? {
            Some(record) => Ok(Some(self.packet(record))),
            None => Ok(None),
        }
    }

    /// The next packet without its bytes, so that nothing is borrowed.
    #[inline]
    pub(super) fn next_record(&mut self, counters: &mut Counters) -> Result<Option<Record>, CaptureError> {
        while !self.is_at_end {
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
            if record.has_plausible_time() {
                self.info.add_packet(&record);
                return Ok(Some(record));
            }
            counters.add(Counter::TimeImplausible, None, self.frame);
        }
        Ok(None)
    }

    /// The frame after the next one, if it is in memory; else empty. It is not checked.
    pub(super) fn after_next(&self) -> &[u8] {
        let bytes = self.source.available();
        match &self.format {
            Format::Pcap(pcap) => pcap.after_next(bytes),
            Format::Pcapng(pcapng) => pcapng.after_next(bytes),
        }
    }

    /// The packet of the last record.
    #[inline]
    pub(super) fn packet(&self, record: Record) -> Packet<'_> {
        Packet {
            frame: self.frame,
            time_ns: record.time_ns,
            link_type: record.link_type,
            interface: record.interface,
            original_length: record.original_length,
            data: self.source.consumed(record.range),
        }
    }

    /// Whether there is no packet now, but may be later: the reader returned `WouldBlock`.
    pub fn is_waiting(&self) -> bool {
        !self.is_at_end && self.source.is_waiting()
    }

    /// Metadata of the capture, and what was read so far.
    pub fn info(&self) -> &CaptureInfo {
        &self.info
    }

    /// From now on, samples of TCP_INFO are collected for [`Capture::take_samples`].
    pub(super) fn keep_samples(&mut self) {
        if let Format::Pcapng(pcapng) = &mut self.format {
            pcapng.samples.get_or_insert_default();
        }
    }

    /// The samples of TCP_INFO so far.
    pub(super) fn take_samples(&mut self) -> Vec<TcpSample> {
        match &mut self.format {
            Format::Pcapng(pcapng) => pcapng.samples.as_mut().map(std::mem::take).unwrap_or_default(),
            Format::Pcap(_) => Vec::new(),
        }
    }

    /// Continues the frame numbers of the previous file.
    pub(super) fn continue_after(&mut self, frame: u64) {
        self.frame = frame;
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
