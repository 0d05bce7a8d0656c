//! The data of a session's commands: generated for writes, verified or ignored for reads.
//!
//! It keeps no data, except the answers for `probe`.

use crate::protocol::initiator::TaskData;
use crate::workload::pattern::{Mismatch, Pattern};

/// Most bytes kept of an answer.
const KEPT_BYTES: usize = 4096;

/// The data of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Any: reads ignore it, writes send zeros.
    Any,
    /// The pattern from this byte of the volume on; reads are verified.
    Pattern(u64),
    /// An answer for `probe`.
    Answer,
    /// The parameter list of an UNMAP of these blocks (SBC-3).
    Unmap {
        /// First logical block.
        lba: u64,
        /// Logical blocks.
        blocks: u32,
    },
}

/// The data of the commands of one session, by Initiator Task Tag.
#[derive(Debug)]
pub struct Volume {
    pattern: Pattern,
    purposes: Vec<Purpose>,
    /// Whether wrong data arrived for the command.
    mismatches: Vec<Option<Mismatch>>,
    kept: Vec<u8>,
    moved_bytes: u64,
}

impl Volume {
    /// For a volume with this pattern.
    #[must_use]
    pub fn new(pattern: Pattern) -> Self {
        Self { pattern, purposes: Vec::new(), mismatches: Vec::new(), kept: Vec::new(), moved_bytes: 0 }
    }

    /// A command starts.
    pub fn begin(&mut self, initiator_task_tag: u32, purpose: Purpose) {
        let index = initiator_task_tag as usize;
        if self.purposes.len() <= index {
            self.purposes.resize(index + 1, Purpose::Any);
            self.mismatches.resize(index + 1, None);
        }
        self.purposes[index] = purpose;
        self.mismatches[index] = None;
        if purpose == Purpose::Answer {
            self.kept.clear();
        }
    }

    /// The first wrong byte of a command, if any.
    pub fn take_mismatch(&mut self, initiator_task_tag: u32) -> Option<Mismatch> {
        self.mismatches.get_mut(initiator_task_tag as usize)?.take()
    }

    /// Bytes of the workload transferred so far, including those of commands in flight.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// The last answer.
    #[must_use]
    pub fn answer(&self) -> &[u8] {
        &self.kept
    }
}

impl TaskData for Volume {
    #[inline]
    fn is_wanted(&self, initiator_task_tag: u32) -> bool {
        !matches!(self.purposes.get(initiator_task_tag as usize), Some(Purpose::Any) | None)
    }

    #[inline]
    fn take(&mut self, initiator_task_tag: u32, offset: u32, bytes: &[u8]) {
        let index = initiator_task_tag as usize;
        self.moved_bytes += bytes.len() as u64;
        match self.purposes.get(index) {
            Some(Purpose::Pattern(first)) => {
                if let Some(found) = self.pattern.check(first + u64::from(offset), bytes)
                    && let Some(place) = self.mismatches.get_mut(index)
                {
                    place.get_or_insert(found);
                }
            }
            Some(Purpose::Answer) => {
                let end = offset as usize + bytes.len();
                if end <= KEPT_BYTES {
                    self.kept.resize(self.kept.len().max(end), 0);
                    self.kept[offset as usize..end].copy_from_slice(bytes);
                }
            }
            Some(Purpose::Any | Purpose::Unmap { .. }) | None => {}
        }
    }

    #[inline]
    fn fill(&mut self, initiator_task_tag: u32, offset: u32, out: &mut [u8]) {
        self.moved_bytes += out.len() as u64;
        match self.purposes.get(initiator_task_tag as usize) {
            Some(Purpose::Pattern(first)) => self.pattern.fill(first + u64::from(offset), out),
            Some(Purpose::Unmap { lba, blocks }) => fill_unmap(*lba, *blocks, offset as usize, out),
            _ => out.fill(0),
        }
    }
}

/// The parameter list of an UNMAP with one descriptor, from a byte of it on.
fn fill_unmap(lba: u64, blocks: u32, offset: usize, out: &mut [u8]) {
    let mut list = [0; 24];
    // UNMAP DATA LENGTH, UNMAP BLOCK DESCRIPTOR DATA LENGTH
    list[0..2].copy_from_slice(&22u16.to_be_bytes());
    list[2..4].copy_from_slice(&16u16.to_be_bytes());
    list[8..16].copy_from_slice(&lba.to_be_bytes());
    list[16..20].copy_from_slice(&blocks.to_be_bytes());
    out.fill(0);
    let rest = list.get(offset..).unwrap_or_default();
    let count = rest.len().min(out.len());
    out[..count].copy_from_slice(&rest[..count]);
}
