//! Identification of a logical unit: TEST UNIT READY, INQUIRY, READ CAPACITY(16), or (10) if (16) is not supported.
//!
//! It never sends: it returns the next command and reads the answer to the last one.

use iscsitrace_wire::lun;
use serde::{Deserialize, Serialize};

use super::sense::{describe, is_for_now};
use crate::protocol::initiator::{Command, Completion, Direction, Outcome};

/// Tries of one command while the unit is busy or reports a unit attention.
const MOST_TRIES: u32 = 64;
/// Requested bytes of standard INQUIRY data.
const INQUIRY_BYTES: u32 = 36;

/// The identification of a logical unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogicalUnit {
    /// T10 VENDOR IDENTIFICATION.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// PERIPHERAL DEVICE TYPE: 0 is a disk.
    pub device_type: u8,
    /// Bytes of a logical block.
    pub block_length_bytes: u32,
    /// Logical blocks.
    pub block_count: u64,
}

impl LogicalUnit {
    /// Capacity in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.block_count.saturating_mul(u64::from(self.block_length_bytes))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    TestUnitReady,
    Inquiry,
    ReadCapacity16,
    ReadCapacity10,
}

/// The step after an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Another command.
    Ask(Command),
    /// The unit is identified.
    Known(LogicalUnit),
    /// The unit cannot be used, with the reason in one line.
    Failed(String),
}

/// The identification of one logical unit in progress.
#[derive(Debug)]
pub struct Probe {
    lun: [u8; 8],
    question: Question,
    tries: u32,
    unit: LogicalUnit,
}

fn text(bytes: Option<&[u8]>) -> String {
    let is_shown = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let shown = bytes.unwrap_or_default().iter().copied().filter(is_shown).map(char::from);
    shown.collect::<String>().trim().to_owned()
}

fn number<const LENGTH: usize>(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..at + LENGTH).map(|bytes| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

impl Probe {
    /// Starts it; returns the first command.
    #[must_use]
    pub fn new(lun: u16) -> (Probe, Command) {
        let unit = LogicalUnit::default();
        let probe = Probe { lun: lun::encode(lun), question: Question::TestUnitReady, tries: 0, unit };
        let command = probe.command();
        (probe, command)
    }

    fn command(&self) -> Command {
        let mut cdb = [0; 16];
        let length_bytes: u32 = match self.question {
            Question::TestUnitReady => 0,
            Question::Inquiry => INQUIRY_BYTES,
            Question::ReadCapacity16 => 32,
            Question::ReadCapacity10 => 8,
        };
        match self.question {
            Question::TestUnitReady => {}
            Question::Inquiry => (cdb[0], cdb[4]) = (0x12, length_bytes as u8),
            Question::ReadCapacity16 => (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, length_bytes as u8),
            Question::ReadCapacity10 => cdb[0] = 0x25,
        }
        let direction = if length_bytes == 0 { Direction::None } else { Direction::Read };
        Command { lun: self.lun, cdb, direction, length_bytes }
    }

    fn name(&self) -> &'static str {
        match self.question {
            Question::TestUnitReady => "TEST UNIT READY",
            Question::Inquiry => "INQUIRY",
            Question::ReadCapacity16 => "READ CAPACITY(16)",
            Question::ReadCapacity10 => "READ CAPACITY(10)",
        }
    }

    fn ask(&mut self, question: Question) -> Next {
        (self.question, self.tries) = (question, 0);
        Next::Ask(self.command())
    }

    /// Takes the completion of the last command, and its data.
    pub fn take(&mut self, completion: &Completion, data: &[u8]) -> Next {
        let data = data.get(..completion.transferred_bytes as usize).unwrap_or(data);
        match completion.outcome {
            Outcome::Status(0) => self.read(data),
            _ if self.tries < MOST_TRIES && is_for_now(completion) => {
                self.tries += 1;
                Next::Ask(self.command())
            }
            _ if self.question == Question::ReadCapacity16 => self.ask(Question::ReadCapacity10),
            _ => Next::Failed(format!("{}: {}", self.name(), describe(completion))),
        }
    }

    fn read(&mut self, data: &[u8]) -> Next {
        let (last_lba, block_length) = match self.question {
            Question::TestUnitReady => return self.ask(Question::Inquiry),
            Question::Inquiry => {
                let first = data.first().copied().unwrap_or(0x7f);
                // SPC: qualifier 011b, no unit can be here
                if first >> 5 == 3 {
                    return Next::Failed("there is no such logical unit (INQUIRY)".to_owned());
                }
                self.unit.device_type = first & 0x1f;
                (self.unit.vendor, self.unit.product) = (text(data.get(8..16)), text(data.get(16..32)));
                if !matches!(self.unit.device_type, 0 | 7 | 14) {
                    let device_type = self.unit.device_type;
                    return Next::Failed(format!(
                        "the logical unit is not a disk; its device type is 0x{device_type:02x}"
                    ));
                }
                return self.ask(Question::ReadCapacity16);
            }
            Question::ReadCapacity16 => (number::<8>(data, 0), number::<4>(data, 8)),
            Question::ReadCapacity10 => (number::<4>(data, 0), number::<4>(data, 4)),
        };
        let (Some(last_lba), Some(block_length)) = (last_lba, block_length) else {
            return Next::Failed(format!("{} returned only {} bytes", self.name(), data.len()));
        };
        self.unit.block_length_bytes = block_length as u32;
        self.unit.block_count = last_lba.saturating_add(1);
        if !(512..=65_536).contains(&block_length) || !block_length.is_multiple_of(512) {
            return Next::Failed(format!(
                "logical blocks of {block_length} bytes are not supported: not a multiple of 512"
            ));
        }
        Next::Known(self.unit.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(status: u8, sense: &[u8], transferred_bytes: u32) -> Completion {
        Completion {
            initiator_task_tag: 0,
            connection: 0,
            outcome: Outcome::Status(status),
            transferred_bytes,
            residual_bytes: 0,
            sense: sense.to_vec(),
            sent_ns: None,
            first_data_ns: None,
        }
    }

    fn operation(next: &Next) -> u8 {
        match next {
            Next::Ask(command) => command.cdb[0],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_unit_attention_first_and_no_read_capacity_16() {
        let (mut probe, first) = Probe::new(3);
        assert_eq!((first.cdb[0], first.lun), (0, [0, 3, 0, 0, 0, 0, 0, 0]));
        let attention = [0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0, 0, 0, 0, 0];
        assert_eq!(operation(&probe.take(&ended(2, &attention, 0), &[])), 0x00, "asked again");
        assert_eq!(operation(&probe.take(&ended(0, &[], 0), &[])), 0x12);
        let mut inquiry = vec![0; 36];
        inquiry[8..24].copy_from_slice(b"ACME    Disk of ");
        assert_eq!(operation(&probe.take(&ended(0, &[], 36), &inquiry)), 0x9e);
        let unknown = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0];
        assert_eq!(operation(&probe.take(&ended(2, &unknown, 0), &[])), 0x25);
        let next = probe.take(&ended(0, &[], 8), &[0, 0, 0x07, 0xff, 0, 0, 2, 0]);
        let Next::Known(unit) = next else { panic!("{next:?}") };
        assert_eq!((unit.vendor.as_str(), unit.product.as_str()), ("ACME", "Disk of"));
        assert_eq!((unit.block_count, unit.block_length_bytes, unit.capacity_bytes()), (2048, 512, 1 << 20));
    }

    #[test]
    fn unusable_units_are_reported_in_one_line() {
        let (mut probe, _) = Probe::new(0);
        let refused = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x25, 0, 0, 0, 0, 0];
        let next = probe.take(&ended(2, &refused, 0), &[]);
        let words = "TEST UNIT READY: CHECK CONDITION: ILLEGAL REQUEST, logical unit not supported (5/25/00)";
        assert_eq!(next, Next::Failed(words.to_owned()));
        let (mut probe, _) = Probe::new(0);
        assert_eq!(operation(&probe.take(&ended(0, &[], 0), &[])), 0x12);
        let next = probe.take(&ended(0, &[], 36), &[0x7f; 36]);
        assert_eq!(next, Next::Failed("there is no such logical unit (INQUIRY)".to_owned()));
        let (mut probe, _) = Probe::new(0);
        let busy = (0..100).map(|_| probe.take(&ended(8, &[], 0), &[])).filter(|next| matches!(next, Next::Ask(_)));
        assert_eq!(busy.count(), 64, "not for ever");
    }
}
