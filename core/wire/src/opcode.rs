//! The 18 PDU types of RFC 7143 section 11.2.1.2.
//!
//! Vendor-specific and reserved opcodes have no name here; they are `None`, never an error.

/// A PDU type. The number is the 6-bit opcode on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Section 11.18.
    NopOut = 0x00,
    /// Section 11.3.
    ScsiCommand = 0x01,
    /// Section 11.5.
    TaskManagementRequest = 0x02,
    /// Section 11.12.
    LoginRequest = 0x03,
    /// Section 11.10.
    TextRequest = 0x04,
    /// Section 11.7.
    DataOut = 0x05,
    /// Section 11.14.
    LogoutRequest = 0x06,
    /// Section 11.16.
    SnackRequest = 0x10,
    /// Section 11.19.
    NopIn = 0x20,
    /// Section 11.4.
    ScsiResponse = 0x21,
    /// Section 11.6.
    TaskManagementResponse = 0x22,
    /// Section 11.13.
    LoginResponse = 0x23,
    /// Section 11.11.
    TextResponse = 0x24,
    /// Section 11.7.
    DataIn = 0x25,
    /// Section 11.15.
    LogoutResponse = 0x26,
    /// Section 11.8.
    ReadyToTransfer = 0x31,
    /// Section 11.9.
    AsyncMessage = 0x32,
    /// Section 11.17.
    Reject = 0x3f,
}

impl Opcode {
    /// Every PDU type, in the order of its number.
    pub const ALL: [Opcode; 18] = [
        Opcode::NopOut,
        Opcode::ScsiCommand,
        Opcode::TaskManagementRequest,
        Opcode::LoginRequest,
        Opcode::TextRequest,
        Opcode::DataOut,
        Opcode::LogoutRequest,
        Opcode::SnackRequest,
        Opcode::NopIn,
        Opcode::ScsiResponse,
        Opcode::TaskManagementResponse,
        Opcode::LoginResponse,
        Opcode::TextResponse,
        Opcode::DataIn,
        Opcode::LogoutResponse,
        Opcode::ReadyToTransfer,
        Opcode::AsyncMessage,
        Opcode::Reject,
    ];

    /// The PDU type in the low six bits of a BHS's first byte; the I bit and the reserved bit are ignored.
    #[inline]
    #[must_use]
    pub fn from_u8(byte: u8) -> Option<Opcode> {
        Some(match byte & 0x3f {
            0x00 => Opcode::NopOut,
            0x01 => Opcode::ScsiCommand,
            0x02 => Opcode::TaskManagementRequest,
            0x03 => Opcode::LoginRequest,
            0x04 => Opcode::TextRequest,
            0x05 => Opcode::DataOut,
            0x06 => Opcode::LogoutRequest,
            0x10 => Opcode::SnackRequest,
            0x20 => Opcode::NopIn,
            0x21 => Opcode::ScsiResponse,
            0x22 => Opcode::TaskManagementResponse,
            0x23 => Opcode::LoginResponse,
            0x24 => Opcode::TextResponse,
            0x25 => Opcode::DataIn,
            0x26 => Opcode::LogoutResponse,
            0x31 => Opcode::ReadyToTransfer,
            0x32 => Opcode::AsyncMessage,
            0x3f => Opcode::Reject,
            _ => return None,
        })
    }

    /// The number on the wire.
    #[inline]
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// True for the PDU types that an initiator sends.
    #[inline]
    #[must_use]
    pub const fn is_initiator(self) -> bool {
        self.as_u8() < 0x20
    }

    /// The title of the PDU type's section in RFC 7143.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Opcode::NopOut => "NOP-Out",
            Opcode::ScsiCommand => "SCSI Command",
            Opcode::TaskManagementRequest => "Task Management Function Request",
            Opcode::LoginRequest => "Login Request",
            Opcode::TextRequest => "Text Request",
            Opcode::DataOut => "SCSI Data-Out",
            Opcode::LogoutRequest => "Logout Request",
            Opcode::SnackRequest => "SNACK Request",
            Opcode::NopIn => "NOP-In",
            Opcode::ScsiResponse => "SCSI Response",
            Opcode::TaskManagementResponse => "Task Management Function Response",
            Opcode::LoginResponse => "Login Response",
            Opcode::TextResponse => "Text Response",
            Opcode::DataIn => "SCSI Data-In",
            Opcode::LogoutResponse => "Logout Response",
            Opcode::ReadyToTransfer => "Ready To Transfer",
            Opcode::AsyncMessage => "Asynchronous Message",
            Opcode::Reject => "Reject",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Opcode;

    #[test]
    fn exactly_18_of_64_numbers_are_pdu_types() {
        let known: Vec<Opcode> = (0..64).filter_map(Opcode::from_u8).collect();
        assert_eq!(known, Opcode::ALL);
        assert!(known.iter().all(|opcode| Opcode::from_u8(opcode.as_u8()) == Some(*opcode)));
        assert_eq!(known.iter().filter(|opcode| opcode.is_initiator()).count(), 8);
    }

    #[test]
    fn the_immediate_bit_is_no_part_of_the_number() {
        assert_eq!(Opcode::from_u8(0x43), Some(Opcode::LoginRequest));
        assert_eq!(Opcode::from_u8(0x1c), None, "vendor-specific");
        assert_eq!(Opcode::from_u8(0x3e), None, "vendor-specific");
    }
}
