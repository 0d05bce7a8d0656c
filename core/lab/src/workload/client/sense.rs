//! The end of a command in words: SCSI status, sense key and additional sense code (SPC).
//!
//! It never decides what follows.

use iscsitrace_wire::sense::{SenseCodes, SenseKey, additional_sense};
use iscsitrace_wire::status::Status;

use crate::protocol::initiator::{Completion, Outcome};

/// Whether a retry may succeed: after BUSY, TASK SET FULL, and a UNIT ATTENTION, which is reported once.
#[must_use]
pub fn is_for_now(completion: &Completion) -> bool {
    match completion.outcome {
        Outcome::Status(status) => match Status::from_u8(status) {
            Some(Status::Busy | Status::TaskSetFull) => true,
            Some(Status::CheckCondition) => {
                SenseCodes::read(&completion.sense).is_some_and(|sense| sense.key == SenseKey::UnitAttention)
            }
            _ => false,
        },
        _ => false,
    }
}

/// The end of a command in one line.
#[must_use]
pub fn describe(completion: &Completion) -> String {
    match completion.outcome {
        Outcome::Status(status) => {
            let name = Status::from_u8(status).map_or("an unknown status", Status::name);
            let Some(sense) = SenseCodes::read(&completion.sense) else { return format!("{name} (0x{status:02x})") };
            let (code, qualifier) = (sense.code.unwrap_or(0), sense.qualifier.unwrap_or(0));
            let words = additional_sense(code, qualifier).map(|words| format!(", {words}")).unwrap_or_default();
            format!("{name}: {}{words} ({:X}/{code:02X}/{qualifier:02X})", sense.key.words(), sense.key as u8)
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
        let words = "CHECK CONDITION: ILLEGAL REQUEST, logical block address out of range (5/21/00)";
        let fixed = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0];
        assert_eq!(ended(Outcome::Status(2), &fixed), words);
        assert_eq!(ended(Outcome::Status(2), &[0x72, 5, 0x21, 0, 0, 0, 0, 0]), words);
        assert_eq!(
            ended(Outcome::Status(2), &[0x70, 0, 11]),
            "CHECK CONDITION: ABORTED COMMAND, no additional sense information (B/00/00)"
        );
        assert_eq!(ended(Outcome::Status(2), &[]), "CHECK CONDITION (0x02)");
        assert_eq!(ended(Outcome::Status(8), &[]), "BUSY (0x08)");
        assert_eq!(ended(Outcome::Rejected(4), &[]), "rejected for reason 0x04 (RFC 7143 section 11.17.1)");
    }
}
