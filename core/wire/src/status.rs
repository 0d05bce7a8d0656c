//! SCSI status codes (SAM-5 section 5.3).

/// Every status code with T10's name, in order; INTERMEDIATE, INTERMEDIATE-CONDITION MET and COMMAND TERMINATED are
/// obsolete.
pub const STATUSES: &[(u8, &str)] = &[
    (0x00, "GOOD"),
    (0x02, "CHECK CONDITION"),
    (0x04, "CONDITION MET"),
    (0x08, "BUSY"),
    (0x10, "INTERMEDIATE"),
    (0x14, "INTERMEDIATE-CONDITION MET"),
    (0x18, "RESERVATION CONFLICT"),
    (0x22, "COMMAND TERMINATED"),
    (0x28, "TASK SET FULL"),
    (0x30, "ACA ACTIVE"),
    (0x40, "TASK ABORTED"),
];
