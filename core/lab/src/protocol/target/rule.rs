//! The rules of RFC 7143 that a target can break, by the identifiers of conformance.

use serde::{Deserialize, Serialize};

/// What a target does that it must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetRule {
    /// ExpCmdSN is past what was sent.
    S5,
    /// ExpCmdSN goes back.
    S6,
    /// MaxCmdSN is below ExpCmdSN - 1.
    S7,
    /// MaxCmdSN never increases again.
    S8,
    /// A StatSN is skipped.
    S9,
    /// A StatSN is used twice.
    S10,
    /// An R2T or a ping uses up a StatSN.
    S11,
    /// A DataSN is skipped.
    S14,
    /// An R2TSN is skipped.
    S16,
    /// ExpDataSN is not the number of Data-In.
    S17,
    /// A SCSI Response has another Initiator Task Tag.
    T2,
    /// A SCSI Response is sent twice.
    T3,
    /// An R2T has the reserved Target Transfer Tag.
    T4,
    /// An R2T has another LUN than its command.
    T7,
    /// A SCSI Response goes over another connection of the session.
    T8,
    /// R2Ts ignore MaxBurstLength.
    D5,
    /// An R2T asks for more than the Expected Data Transfer Length.
    D6,
    /// R2Ts ask for unsolicited data again.
    D7,
    /// R2Ts ignore MaxOutstandingR2T.
    D8,
    /// Two Data-In of a sequence are exchanged.
    D10,
    /// R2Ts ignore DataSequenceInOrder.
    D11,
    /// A Data-In is sent twice, under the next DataSN.
    D12,
    /// Data-In go beyond the Expected Data Transfer Length.
    D13,
    /// F is missing where MaxBurstLength is reached.
    D14,
    /// S is set without F.
    D15,
    /// A Data-In ignores MaxRecvDataSegmentLength.
    D16,
    /// A read is GOOD after half of its data.
    D17,
    /// A write is GOOD without R2Ts for its data.
    D18,
    /// A residual overflow of a command that has none.
    D19,
    /// U with a Residual Count of 0.
    D20,
    /// A digest is computed wrongly.
    D21,
    /// A NOP-Out is not answered.
    M2,
    /// An aborted task is answered after the response to ABORT TASK.
    M3,
    /// A Logout Request is not answered.
    M5,
    /// A task management function is not answered.
    M10,
    /// A Login Response goes to a stage that was not asked for.
    L1,
    /// HeaderDigest is answered with a value that was not offered.
    L2,
    /// MaxBurstLength is answered with more than was offered.
    L3,
    /// MaxOutstandingR2T is not answered.
    L4,
    /// A final Text Response has a Target Transfer Tag.
    L6,
    /// MaxBurstLength is answered with half of FirstBurstLength.
    L7,
}
