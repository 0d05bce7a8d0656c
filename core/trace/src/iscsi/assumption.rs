//! What must come next in a direction when the snaplen cut its header away, according to the open tasks.
//!
//! ```text
//!   Data-In 256 KiB of 512 | (unread)           | next header, read
//!                          | 256 KiB: the rest  | <- where it was expected: the assumption holds
//! ```
//!
//! An assumption counts only if a fitting header follows it; otherwise it is dropped without effect. It adds no PDU
//! row, because no header was read; its cycle gets the times, which are those of captured packets.

use crate::stream::stamp::Stamp;
use serde::{Deserialize, Serialize};

/// Minimum captured bytes of a header to identify its task: up to the Initiator Task Tag.
pub const HEADER_TAG_BYTES: usize = 20;
/// Maximum assumptions in a row before a header must be read.
pub const ASSUMED_MAX: usize = 256;

/// The assumed type of a PDU with an unread header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Assumption {
    /// A data PDU of this task.
    Data {
        /// Initiator Task Tag.
        tag: u32,
        /// Bytes of data.
        bytes: u32,
    },
    /// The SCSI Response of this task.
    Status {
        /// Initiator Task Tag.
        tag: u32,
    },
}

/// The position of an assumed PDU.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Assumed {
    /// Stream offset of its first byte.
    pub offset: i64,
    /// Stream offset after its last byte.
    pub end: i64,
    /// The packet with its first byte.
    pub first: Stamp,
    /// The packet that completed it.
    pub last: Option<Stamp>,
    /// The start of its header.
    pub header: [u8; HEADER_TAG_BYTES],
    /// How much of that was captured.
    pub header_known: usize,
}

/// Where the status of reads is expected while the target's habit is unknown.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Reading {
    /// In a SCSI Response, if the rest of the segment after the data is as long as one.
    #[default]
    BySegment,
    /// Always in a SCSI Response.
    Apart,
    /// Always in the last Data-In.
    InData,
}

/// The remaining data of a task.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Tail {
    tag: u32,
    remaining_bytes: u32,
}

/// What is known of the next PDU of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Assumptions {
    tail: Option<Tail>,
    /// The longest data segment seen: the sender's usual size.
    longest_bytes: u32,
    pending: Vec<Assumption>,
    /// The state before the first of these.
    tail_before: Option<Tail>,
    reading: Reading,
}

impl Assumptions {
    /// Notes a data PDU, after which this many bytes of its task or burst remain.
    #[inline]
    pub fn note_data(&mut self, tag: u32, bytes: u32, remaining_bytes: u32) {
        self.longest_bytes = self.longest_bytes.max(bytes);
        self.tail = Some(Tail { tag, remaining_bytes });
    }

    /// Notes the status of the current task.
    #[inline]
    pub fn note_status(&mut self) {
        self.tail = None;
    }

    /// The next PDU: data of the current task; then its status, if the target sends it apart (if unknown, `looks_apart`
    /// is the guess); then data of the next task. `next` returns that task's tag and expected length, unless it is
    /// among the given ones.
    pub fn assume(
        &mut self,
        is_status_apart: Option<bool>,
        looks_apart: bool,
        next: impl Fn(&[Assumption]) -> Option<(u32, u32)>,
    ) -> Option<Assumption> {
        if self.pending.is_empty() {
            self.tail_before = self.tail;
        }
        let is_status_apart = is_status_apart.unwrap_or(match self.reading {
            Reading::BySegment => looks_apart,
            Reading::Apart => true,
            Reading::InData => false,
        });
        let assumption = match self.tail {
            Some(Tail { tag, remaining_bytes: 0 }) if is_status_apart => {
                self.tail = None;
                Assumption::Status { tag }
            }
            Some(Tail { tag, remaining_bytes }) if remaining_bytes > 0 => self.data(tag, remaining_bytes)?,
            _ => {
                let (tag, expected_bytes) = next(&self.pending)?;
                self.data(tag, expected_bytes)?
            }
        };
        self.pending.push(assumption);
        Some(assumption)
    }

    fn data(&mut self, tag: u32, remaining_bytes: u32) -> Option<Assumption> {
        let bytes = remaining_bytes.min(self.longest_bytes);
        if bytes == 0 {
            return None;
        }
        self.tail = Some(Tail { tag, remaining_bytes: remaining_bytes - bytes });
        Some(Assumption::Data { tag, bytes })
    }

    /// The assumptions, which are confirmed now.
    pub fn confirm(&mut self) -> Vec<Assumption> {
        self.reading = Reading::default();
        std::mem::take(&mut self.pending)
    }

    /// The assumptions were wrong: switches to the next possibility. False if all were tried.
    pub fn reread(&mut self) -> bool {
        self.reading = match self.reading {
            Reading::BySegment => Reading::Apart,
            Reading::Apart => Reading::InData,
            Reading::InData => return false,
        };
        self.pending.clear();
        self.tail = self.tail_before;
        true
    }

    /// The assumptions were wrong.
    pub fn discard(&mut self) {
        self.reading = Reading::default();
        if !self.pending.is_empty() {
            self.pending.clear();
            self.tail = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_then_status_then_the_next_task() {
        let mut assumptions = Assumptions::default();
        let nothing = |_: &[Assumption]| None;
        assert_eq!(assumptions.assume(Some(true), false, nothing), None);
        assumptions.note_data(7, 100, 150);
        assert_eq!(assumptions.assume(Some(true), false, nothing), Some(Assumption::Data { tag: 7, bytes: 100 }));
        assert_eq!(assumptions.assume(Some(true), false, nothing), Some(Assumption::Data { tag: 7, bytes: 50 }));
        assert_eq!(assumptions.assume(Some(true), false, nothing), Some(Assumption::Status { tag: 7 }));
        assert_eq!(
            assumptions.assume(Some(true), false, |_| Some((8, 60))),
            Some(Assumption::Data { tag: 8, bytes: 60 })
        );
        assert_eq!(assumptions.confirm().len(), 4);
    }

    #[test]
    fn with_the_status_in_the_data_the_next_task_follows() {
        let mut assumptions = Assumptions::default();
        assumptions.note_data(7, 100, 100);
        assert_eq!(assumptions.assume(Some(false), false, |_| None), Some(Assumption::Data { tag: 7, bytes: 100 }));
        assert_eq!(
            assumptions.assume(Some(false), false, |_| Some((8, 30))),
            Some(Assumption::Data { tag: 8, bytes: 30 })
        );
        assumptions.discard();
        assert_eq!(assumptions.assume(Some(false), false, |_| None), None);
    }

    #[test]
    fn a_wrong_assumption_is_replaced_from_its_start() {
        let mut assumptions = Assumptions::default();
        assumptions.note_data(7, 100, 100);
        let next = |pending: &[Assumption]| pending.iter().all(|&other| other != data(8, 60)).then_some((8, 60));
        let read = |assumptions: &mut Assumptions| [(); 3].map(|()| assumptions.assume(None, false, next));
        assert_eq!(read(&mut assumptions), [Some(data(7, 100)), Some(data(8, 60)), None]);
        assert!(assumptions.reread());
        let status = Assumption::Status { tag: 7 };
        assert_eq!(read(&mut assumptions), [Some(data(7, 100)), Some(status), Some(data(8, 60))]);
        assert!(assumptions.reread());
        assert_eq!(read(&mut assumptions), [Some(data(7, 100)), Some(data(8, 60)), None]);
        assert!(!assumptions.reread());
    }

    fn data(tag: u32, bytes: u32) -> Assumption {
        Assumption::Data { tag, bytes }
    }
}
