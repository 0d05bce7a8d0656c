//! A tap at a host: writes all its packets to a capture, and records them for the truth.

use std::io::{self, Write};

use iscsitrace_wire::capture_writer::PcapngWriter;
use iscsitrace_wire::frame::LinkType;

use crate::tcp::frame::MacAddress;
use crate::tcp::segment::Segment;
use crate::truth::Tap;

/// MAC address of the initiator; those of the targets follow.
const INITIATOR_MAC: MacAddress = [2, 0, 0, 0, 0, 1];

/// One direction of a connection: its initial sequence number and the highest offset that passed.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    initial_sequence_number: Option<u32>,
    end: i64,
}

impl Progress {
    /// The stream offset of a sequence number, the nearest to the highest that passed.
    fn offset(&self, sequence_number: u32) -> Option<i64> {
        let first = self.initial_sequence_number?.wrapping_add(1);
        let distance = sequence_number.wrapping_sub(first).wrapping_sub(self.end as u32) as i32;
        Some(self.end + i64::from(distance))
    }
}

/// A tap and its capture.
#[derive(Default)]
pub struct TapPoint<'a> {
    capture: Option<PcapngWriter<Box<dyn Write + 'a>>>,
    snaplen_bytes: u32,
    /// Whether it only counts.
    is_blind: bool,
    /// The record for the truth.
    pub truth: Tap,
    /// Packets that passed.
    pub packet_count: u64,
    progress: Vec<[Progress; 2]>,
    frame: Vec<u8>,
}

impl<'a> TapPoint<'a> {
    /// A tap that records for the truth, and writes a capture to `out` if there is one; a snaplen of 0 is no limit.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn new(out: Option<Box<dyn Write + 'a>>, name: &str, snaplen_bytes: u32) -> io::Result<Self> {
        let capture = match out {
            Some(out) => {
                let mut capture = PcapngWriter::new(out, concat!("iscsitrace ", env!("CARGO_PKG_VERSION")))?;
                capture.add_interface(LinkType::ETHERNET, snaplen_bytes, name)?;
                Some(capture)
            }
            None => None,
        };
        Ok(Self { capture, snaplen_bytes, ..Self::default() })
    }

    /// A tap that only counts packets.
    #[must_use]
    pub fn blind() -> Self {
        Self { is_blind: true, ..Self::default() }
    }

    /// A packet of a connection with target number `target` passes.
    ///
    /// # Errors
    /// The capture cannot be written.
    pub fn pass(
        &mut self,
        now_ns: i64,
        connection: usize,
        target: usize,
        to_target: bool,
        segment: &Segment,
    ) -> io::Result<()> {
        self.packet_count += 1;
        if self.is_blind {
            return Ok(());
        }
        self.note(now_ns, connection, to_target, segment);
        let Some(capture) = &mut self.capture else { return Ok(()) };
        let mut target_mac = INITIATOR_MAC;
        target_mac[4..].copy_from_slice(&(target as u16 + 2).to_be_bytes());
        let macs = if to_target { (INITIATOR_MAC, target_mac) } else { (target_mac, INITIATOR_MAC) };
        self.frame.clear();
        segment.emit_frame(macs, &mut self.frame)?;
        let kept = match self.snaplen_bytes {
            0 => self.frame.len(),
            snaplen_bytes => self.frame.len().min(snaplen_bytes as usize),
        };
        capture.packet(0, now_ns, self.frame.len() as u32, &self.frame[..kept], None)
    }

    fn note(&mut self, now_ns: i64, connection: usize, to_target: bool, segment: &Segment) {
        if self.progress.len() <= connection {
            self.progress.resize_with(connection + 1, Default::default);
        }
        let (here, there) = (usize::from(!to_target), usize::from(to_target));
        let progress = &mut self.progress[connection];
        if segment.flags.is_syn() {
            progress[here].initial_sequence_number = Some(segment.sequence_number);
        }
        if !segment.payload.is_empty()
            && let Some(start) = progress[here].offset(segment.sequence_number).filter(|&start| start >= 0)
        {
            let end = start + segment.payload.len() as i64;
            progress[here].end = progress[here].end.max(end);
            self.truth.stream(connection, to_target).record(start as u64, end as u64, now_ns);
        }
        if segment.flags.is_ack()
            && let Some(offset) = progress[there].offset(segment.acknowledgment_number).filter(|&offset| offset > 0)
        {
            self.truth.stream(connection, !to_target).acknowledge(offset as u64, now_ns);
        }
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(self) -> io::Result<Tap> {
        if let Some(capture) = self.capture {
            capture.finish()?.flush()?;
        }
        Ok(self.truth)
    }
}
