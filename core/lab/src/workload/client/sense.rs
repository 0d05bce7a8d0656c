//! The end of a command in words: SCSI status, sense key and additional sense code (SPC).
//!
//! It never decides what follows.

use crate::protocol::initiator::{Completion, Outcome};
use crate::scsi::SenseKey;

/// Sense key, additional sense code and its qualifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// Sense key.
    pub key: SenseKey,
    /// ADDITIONAL SENSE CODE.
    pub code: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub qualifier: u8,
}

impl Sense {
    /// Reads fixed or descriptor format.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Sense> {
        let (key, code, qualifier) = match bytes.first()? & 0x7f {
            0x70 | 0x71 => (2, 12, 13),
            0x72 | 0x73 => (1, 2, 3),
            _ => return None,
        };
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        Some(Sense { key: SenseKey::from_u8(*bytes.get(key)?), code: byte(code), qualifier: byte(qualifier) })
    }

    fn code_name(self) -> Option<&'static str> {
        Some(match (self.code, self.qualifier) {
            (0x04, _) => "LOGICAL UNIT NOT READY",
            (0x0c, _) => "WRITE ERROR",
            (0x10, _) => "ID CRC OR ECC ERROR",
            (0x11, _) => "UNRECOVERED READ ERROR",
            (0x20, 0) => "INVALID COMMAND OPERATION CODE",
            (0x21, 0) => "LOGICAL BLOCK ADDRESS OUT OF RANGE",
            (0x24, 0) => "INVALID FIELD IN CDB",
            (0x25, 0) => "LOGICAL UNIT NOT SUPPORTED",
            (0x26, _) => "INVALID FIELD IN PARAMETER LIST",
            (0x27, _) => "WRITE PROTECTED",
            (0x29, _) => "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED",
            (0x2a, 9) => "CAPACITY DATA HAS CHANGED",
            (0x2a, _) => "PARAMETERS CHANGED",
            (0x3a, _) => "MEDIUM NOT PRESENT",
            (0x3f, _) => "TARGET OPERATING CONDITIONS HAVE CHANGED",
            (0x44, _) => "INTERNAL TARGET FAILURE",
            (0x0b | 0x47, _) => "DATA ERROR DETECTED",
            _ => return None,
        })
    }
}

/// Whether a retry may succeed: after BUSY, TASK SET FULL, and a UNIT ATTENTION, which is reported once.
#[must_use]
pub fn is_for_now(completion: &Completion) -> bool {
    match completion.outcome {
        Outcome::Status(0x08 | 0x28) => true,
        Outcome::Status(0x02) => {
            Sense::read(&completion.sense).is_some_and(|sense| sense.key == SenseKey::UnitAttention)
        }
        _ => false,
    }
}

fn status_name(status: u8) -> &'static str {
    match status {
        0x00 => "GOOD",
        0x02 => "CHECK CONDITION",
        0x04 => "CONDITION MET",
        0x08 => "BUSY",
        0x18 => "RESERVATION CONFLICT",
        0x28 => "TASK SET FULL",
        0x30 => "ACA ACTIVE",
        0x40 => "TASK ABORTED",
        _ => "an unknown status",
    }
}

/// The end of a command in one line.
#[must_use]
pub fn describe(completion: &Completion) -> String {
    match completion.outcome {
        Outcome::Status(status) => {
            let name = status_name(status);
            let Some(sense) = Sense::read(&completion.sense) else { return format!("{name} (0x{status:02x})") };
            let codes = format!("0x{:02x}/0x{:02x}", sense.code, sense.qualifier);
            let code = sense.code_name().map(|name| format!(", {name}")).unwrap_or_default();
            format!("{name}: {}{code} ({codes})", sense.key.words())
        }
        Outcome::TargetFailure(1) => "target failure (RFC 7143 section 11.4.3)".to_owned(),
        Outcome::TargetFailure(response) => format!("response 0x{response:02x} (RFC 7143 section 11.4.3)"),
        Outcome::Rejected(reason) => format!("rejected for reason 0x{reason:02x} (RFC 7143 section 11.17.1)"),
        Outcome::Aborted => "aborted".to_owned(),
        Outcome::TimedOut => "timed out and aborted".to_owned(),
        Outcome::Answered(response) => format!("answered with response {response}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcome: Outcome, sense: &[u8]) -> String {
        describe(&Completion {
            initiator_task_tag: 0,
            connection: 0,
            outcome,
            transferred_bytes: 0,
            residual_bytes: 0,
            sense: sense.to_vec(),
            sent_ns: None,
            first_data_ns: None,
        })
    }

    #[test]
    fn both_formats_in_words() {
        let words = "CHECK CONDITION: ILLEGAL REQUEST, LOGICAL BLOCK ADDRESS OUT OF RANGE (0x21/0x00)";
        let fixed = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0];
        assert_eq!(ended(Outcome::Status(2), &fixed), words);
        assert_eq!(ended(Outcome::Status(2), &[0x72, 5, 0x21, 0, 0, 0, 0, 0]), words);
        assert_eq!(ended(Outcome::Status(2), &[0x70, 0, 11]), "CHECK CONDITION: ABORTED COMMAND (0x00/0x00)");
        assert_eq!(ended(Outcome::Status(2), &[]), "CHECK CONDITION (0x02)");
        assert_eq!(ended(Outcome::Status(8), &[]), "BUSY (0x08)");
        assert_eq!(ended(Outcome::Rejected(4), &[]), "rejected for reason 0x04 (RFC 7143 section 11.17.1)");
    }
}
