//! SCSI status codes, and T10's names for them.
//!
//! What they mean for a command is for others to decide.

macro_rules! statuses {
    ($($status:ident = $code:literal $name:literal;)*) => {
        /// Status codes (SAM-5; 10h, 14h and 22h are obsolete).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the names are T10's")]
        pub enum Status { $($status = $code,)* }

        impl Status {
            /// Every status, in the order of its code.
            pub const ALL: &'static [Status] = &[$(Status::$status,)*];

            /// T10's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Status::$status => $name,)* }
            }
        }
    };
}

statuses! {
    Good = 0x00 "GOOD";
    CheckCondition = 0x02 "CHECK CONDITION";
    ConditionMet = 0x04 "CONDITION MET";
    Busy = 0x08 "BUSY";
    Intermediate = 0x10 "INTERMEDIATE";
    IntermediateConditionMet = 0x14 "INTERMEDIATE-CONDITION MET";
    ReservationConflict = 0x18 "RESERVATION CONFLICT";
    CommandTerminated = 0x22 "COMMAND TERMINATED";
    TaskSetFull = 0x28 "TASK SET FULL";
    AcaActive = 0x30 "ACA ACTIVE";
    TaskAborted = 0x40 "TASK ABORTED";
}

impl Status {
    /// The status of a code, if there is one.
    #[must_use]
    pub fn from_u8(code: u8) -> Option<Status> {
        Status::ALL.iter().copied().find(|status| *status as u8 == code)
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn codes_are_those_of_sam() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|code| Status::from_u8(*code).is_some()).collect();
        assert_eq!(known, [0x00, 0x02, 0x04, 0x08, 0x10, 0x14, 0x18, 0x22, 0x28, 0x30, 0x40]);
        assert_eq!(Status::from_u8(0x28).map(Status::name), Some("TASK SET FULL"));
        assert_eq!(Status::from_u8(0x03), None);
    }
}
