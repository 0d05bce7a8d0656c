//! Why a PDU was rejected: the reasons of a Reject (RFC 7143 section 11.17.1).
//!
//! When a reason applies is for the target to decide.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal $words:literal;)*) => {
        /// The reason of a Reject.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum RejectReason { $($(#[$doc])* $name = $code,)* }

        impl RejectReason {
            /// Every reason, in the order of its code.
            pub const ALL: &[RejectReason] = &[$(RejectReason::$name,)*];

            /// The reason of a code; none for those that are reserved.
            #[must_use]
            pub fn from_u8(code: u8) -> Option<RejectReason> {
                match code {
                    $($code => Some(RejectReason::$name),)*
                    _ => None,
                }
            }

            /// The RFC's words, all but abbreviations in lower case.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(RejectReason::$name => $words,)* }
            }
        }
    };
}

reasons! {
    /// The data segment does not match its digest.
    DataDigestError = 0x02 "data (payload) digest error";
    /// A SNACK Request cannot be fulfilled.
    SnackReject = 0x03 "SNACK reject";
    /// The PDU violates the protocol.
    ProtocolError = 0x04 "protocol error";
    /// The PDU type is not supported.
    CommandNotSupported = 0x05 "command not supported";
    /// There are too many immediate commands.
    TooManyImmediateCommands = 0x06 "immediate command reject - too many immediate commands";
    /// A task with this Initiator Task Tag exists already.
    TaskInProgress = 0x07 "task in progress";
    /// A SNACK Request acknowledges data that cannot be acknowledged.
    InvalidDataAck = 0x08 "invalid data ack";
    /// A field has an invalid value.
    InvalidPduField = 0x09 "invalid PDU field";
    /// No Target Transfer Tag or memory for a long operation.
    OutOfResources = 0x0a "long op reject - can't generate Target Transfer Tag - out of resources";
    /// From RFC 3720; RFC 7143 deprecates the code and gives it no text.
    NegotiationReset = 0x0b "negotiation reset";
    /// The initiator was asked to log out.
    WaitingForLogout = 0x0c "waiting for Logout";
}

impl RejectReason {
    /// Its code.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::RejectReason;

    #[test]
    fn the_codes_are_two_to_twelve() {
        let known: Vec<u8> = (0..=255).filter(|code| RejectReason::from_u8(*code).is_some()).collect();
        assert_eq!(known, (2..=12).collect::<Vec<u8>>());
        assert!(RejectReason::ALL.iter().all(|reason| RejectReason::from_u8(reason.as_u8()) == Some(*reason)));
    }

    #[test]
    fn words_are_those_of_section_11_17_1() {
        let words = |code| RejectReason::from_u8(code).map(RejectReason::words);
        assert_eq!(words(0x02), Some("data (payload) digest error"));
        assert_eq!(words(0x04), Some("protocol error"));
        assert_eq!(words(0x0c), Some("waiting for Logout"));
        assert_eq!(words(0x01), None, "reserved");
    }
}
