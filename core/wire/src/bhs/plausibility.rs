//! Whether 48 unknown bytes can be a basic header segment: used to find PDUs in a stream after a gap.
//!
//! Strict where RFC 7143 fixes a value; lenient where an implementation is known to differ, and for bytes that were not
//! captured. Negotiated limits and sequence numbers are the caller's second test.

use super::layout::RESERVED_TAG;
use super::view::Bhs;
use crate::opcode::Opcode;

/// The first violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {byte}: {reason}")]
pub struct Invalid {
    /// Offset of the field in the header.
    pub byte: u8,
    /// The violated requirement.
    pub reason: &'static str,
}

/// An extended CDB of at most 244 bytes and a bidirectional read length (section 11.2.2) need no more words.
const AHS_LENGTH_MAX_BYTES: u32 = 64 * 4;

/// What is reserved in a PDU type: bits of byte 1 with their required value, byte ranges that are zero, and whether the
/// PDU can have a data segment.
struct Rule {
    flags_mask: u8,
    flags_value: u8,
    zero: &'static [(usize, usize)],
    has_data: bool,
}

const fn rule(flags_mask: u8, flags_value: u8, zero: &'static [(usize, usize)], has_data: bool) -> Rule {
    Rule { flags_mask, flags_value, zero, has_data }
}

const fn rule_of(opcode: Opcode) -> Rule {
    match opcode {
        // RFC 7144 puts a priority into byte 2.
        Opcode::ScsiCommand => rule(0x18, 0x00, &[(3, 4)], true),
        // RFC 7144 puts a status qualifier into bytes that were reserved.
        Opcode::ScsiResponse => rule(0xe1, 0x80, &[(12, 16)], true),
        Opcode::TaskManagementRequest => rule(0x80, 0x80, &[(2, 4), (40, 48)], false),
        // RFC 7144 puts additional response information into bytes that were reserved.
        Opcode::TaskManagementResponse => rule(0xff, 0x80, &[(12, 16), (20, 24), (40, 48)], false),
        Opcode::DataOut => rule(0x7f, 0x00, &[(2, 4), (24, 28), (32, 36), (44, 48)], true),
        Opcode::DataIn => rule(0x38, 0x00, &[(2, 3)], true),
        Opcode::ReadyToTransfer => rule(0xff, 0x80, &[(2, 4)], false),
        // Bytes 20 to 23 are reserved, but LIO fills them with ones.
        Opcode::AsyncMessage => rule(0xff, 0x80, &[(2, 4), (44, 48)], true),
        Opcode::TextRequest => rule(0x3f, 0x00, &[(2, 4), (32, 48)], true),
        Opcode::TextResponse => rule(0x3f, 0x00, &[(2, 4), (36, 48)], true),
        Opcode::LoginRequest => rule(0x30, 0x00, &[(2, 4), (22, 24), (32, 48)], true),
        Opcode::LoginResponse => rule(0x30, 0x00, &[(2, 4), (20, 24), (38, 48)], true),
        Opcode::LogoutRequest => rule(0x80, 0x80, &[(2, 4), (8, 16), (22, 24), (32, 48)], false),
        Opcode::LogoutResponse => rule(0xff, 0x80, &[(3, 4), (8, 16), (20, 24), (36, 40), (44, 48)], false),
        Opcode::SnackRequest => rule(0xf0, 0x80, &[(2, 4), (24, 28), (32, 40)], false),
        Opcode::Reject => rule(0xff, 0x80, &[(3, 4), (8, 16), (40, 48)], true),
        Opcode::NopOut => rule(0xff, 0x80, &[(2, 4), (32, 48)], true),
        Opcode::NopIn => rule(0xff, 0x80, &[(2, 4), (36, 48)], true),
    }
}

fn demand(is_met: bool, byte: u8, reason: &'static str) -> Result<(), Invalid> {
    if is_met { Ok(()) } else { Err(Invalid { byte, reason }) }
}

impl Bhs<'_> {
    /// Checks every captured byte against the section of its PDU type. Bits and tags that contradict each other are for
    /// whoever judges the protocol: such a header is one.
    ///
    /// # Errors
    /// The first violated requirement of RFC 7143.
    pub fn is_valid(self) -> Result<(), Invalid> {
        let opcode_byte = self.opcode_byte().ok_or(Invalid { byte: 0, reason: "no byte captured" })?;
        let opcode = self.opcode().ok_or(Invalid { byte: 0, reason: "opcode unknown" })?;
        // Data-Out has no I bit, nor has anything that a target sends; a Login Request always has it set.
        let (mask, value) = match opcode {
            Opcode::LoginRequest => (0xc0, 0x40),
            Opcode::DataOut => (0xc0, 0x00),
            _ if opcode.is_initiator() => (0x80, 0x00),
            _ => (0xc0, 0x00),
        };
        demand(opcode_byte & mask == value, 0, "reserved or fixed bits")?;
        let rule = rule_of(opcode);
        let flags = self.as_bytes().get(1).copied().unwrap_or(rule.flags_value);
        demand(flags & rule.flags_mask == rule.flags_value, 1, "reserved or fixed bits")?;
        let ahs_length_bytes = self.total_ahs_length_bytes().unwrap_or(0);
        let ahs_length_max_bytes = if opcode == Opcode::ScsiCommand { AHS_LENGTH_MAX_BYTES } else { 0 };
        demand(ahs_length_bytes <= ahs_length_max_bytes, 4, "TotalAHSLength")?;
        demand(
            rule.has_data || self.data_segment_length().unwrap_or(0) == 0,
            5,
            "DataSegmentLength of a PDU without data",
        )?;
        for &(first, end) in rule.zero {
            let captured = self.as_bytes().get(first..end.min(self.as_bytes().len())).unwrap_or_default();
            if let Some(place) = captured.iter().position(|&byte| byte != 0) {
                return Err(Invalid { byte: u8::try_from(first + place).unwrap_or(u8::MAX), reason: "reserved bytes" });
            }
        }
        self.is_task_tag_valid(opcode)?;
        match opcode {
            Opcode::ScsiCommand => self.is_scsi_command_valid(),
            Opcode::ScsiResponse => self.is_scsi_response_valid(),
            Opcode::DataIn => self.is_data_in_valid(),
            Opcode::DataOut => self.is_data_within_buffer(self.data_segment_length()),
            Opcode::ReadyToTransfer => self.is_ready_to_transfer_valid(),
            Opcode::LoginRequest | Opcode::LoginResponse => self.is_login_valid(),
            // RFC 7144 adds functions 9 to 12.
            Opcode::TaskManagementRequest => demand(matches!(self.function(), None | Some(1..=12)), 1, "function"),
            Opcode::TaskManagementResponse => {
                demand(matches!(self.response(), None | Some(0..=7 | 255)), 2, "response")
            }
            Opcode::LogoutRequest => demand(matches!(self.logout_reason(), None | Some(0..=2)), 1, "reason code"),
            Opcode::LogoutResponse => demand(matches!(self.response(), None | Some(0..=3)), 2, "response"),
            Opcode::SnackRequest => demand(matches!(self.snack_type(), None | Some(0..=3)), 1, "type"),
            Opcode::AsyncMessage => demand(matches!(self.async_event(), None | Some(0..=5 | 248..)), 36, "AsyncEvent"),
            Opcode::Reject => demand(matches!(self.reject_reason(), None | Some(1..=12)), 2, "reason"),
            Opcode::NopOut | Opcode::NopIn | Opcode::TextRequest | Opcode::TextResponse => Ok(()),
        }
    }

    fn is_task_tag_valid(self, opcode: Opcode) -> Result<(), Invalid> {
        let Some(tag) = self.initiator_task_tag() else { return Ok(()) };
        match opcode {
            Opcode::NopOut | Opcode::NopIn | Opcode::SnackRequest => Ok(()),
            Opcode::AsyncMessage | Opcode::Reject => demand(tag == RESERVED_TAG, 16, "0xffffffff demanded"),
            _ => demand(tag != RESERVED_TAG, 16, "Initiator Task Tag reserved"),
        }
    }

    fn is_scsi_command_valid(self) -> Result<(), Invalid> {
        let (Some(is_final), Some(is_read), Some(is_write)) = (self.is_final(), self.is_read(), self.is_write()) else {
            return Ok(());
        };
        demand(is_final || is_write, 1, "F or W bit demanded")?;
        demand(matches!(self.task_attribute(), None | Some(0..=4)), 1, "task attribute")?;
        let immediate_bytes = self.data_segment_length().unwrap_or(0);
        demand(is_write || immediate_bytes == 0, 5, "immediate data without the W bit")?;
        let Some(expected_bytes) = self.expected_data_transfer_length() else { return Ok(()) };
        demand(is_read || is_write || expected_bytes == 0, 20, "data expected without R or W bit")?;
        demand(immediate_bytes <= expected_bytes, 5, "more immediate data than the command transfers")
    }

    fn is_scsi_response_valid(self) -> Result<(), Invalid> {
        demand(matches!(self.response(), None | Some(0 | 1 | 0x80..)), 2, "response")?;
        self.is_status_valid()
    }

    fn is_data_in_valid(self) -> Result<(), Invalid> {
        self.is_status_valid()?;
        self.is_data_within_buffer(self.data_segment_length())
    }

    /// The status codes of SAM, obsolete ones included.
    fn is_status_valid(self) -> Result<(), Invalid> {
        let is_known = matches!(
            self.status(),
            None | Some(0x00 | 0x02 | 0x04 | 0x08 | 0x10 | 0x14 | 0x18 | 0x22 | 0x28 | 0x30 | 0x40)
        );
        demand(is_known, 3, "SCSI status")
    }

    fn is_ready_to_transfer_valid(self) -> Result<(), Invalid> {
        demand(self.desired_data_transfer_length() != Some(0), 44, "no data desired")?;
        self.is_data_within_buffer(self.desired_data_transfer_length())
    }

    /// The transfer length is a 32-bit number, so no data can lie past 2^32.
    fn is_data_within_buffer(self, length: Option<u32>) -> Result<(), Invalid> {
        let end = u64::from(self.buffer_offset().unwrap_or(0)) + u64::from(length.unwrap_or(0));
        demand(end <= u64::from(u32::MAX), 40, "data past the longest transfer")
    }

    fn is_login_valid(self) -> Result<(), Invalid> {
        demand(matches!(self.status_class(), None | Some(0..=3)), 36, "Status-Class")?;
        // A target that refuses need not fill in the stages; of a cut response it is not known whether it does.
        if self.opcode() == Some(Opcode::LoginResponse) && self.status_class() != Some(0) {
            return Ok(());
        }
        demand(matches!(self.current_stage(), None | Some(0 | 1)), 1, "current stage")?;
        if self.is_transit() != Some(true) {
            return Ok(());
        }
        // one that is no further on breaks a rule, but is a stage
        demand(matches!(self.next_stage(), None | Some(0 | 1 | 3)), 1, "next stage")
    }
}
