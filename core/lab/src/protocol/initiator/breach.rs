//! The rules of RFC 7143 that an initiator can break, by the identifiers of conformance, and the changes to the PDUs
//! that it sends. Breaches that change more than fields are implemented where their PDUs are made.

use std::borrow::Cow;

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use super::task::{Command, Direction};
use crate::protocol::breach::{Breaches, change, number_of, with_key};
use crate::protocol::keys::Parameters;

/// What an initiator does that it must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitiatorRule {
    /// A CmdSN is skipped.
    S1,
    /// A command has the CmdSN of the one before it.
    S2,
    /// A command is sent beyond MaxCmdSN.
    S3,
    /// An immediate PDU uses up a CmdSN.
    S4,
    /// ExpStatSN is past what was received.
    S12,
    /// ExpStatSN never increases again.
    S13,
    /// A DataSN is skipped.
    S15,
    /// A command has the Initiator Task Tag of an open task.
    T1,
    /// A Data-Out has another Target Transfer Tag than its R2T.
    T5,
    /// A Data-Out or the answer to a ping has another LUN.
    T6,
    /// The data for an R2T goes over another connection of the session.
    T8,
    /// Immediate data in spite of ImmediateData=No.
    D1,
    /// Unsolicited Data-Out in spite of InitialR2T=Yes.
    D2,
    /// Unsolicited data ignores FirstBurstLength.
    D3,
    /// F is missing in the last Data-Out of a burst.
    D4,
    /// A burst ends before its R2T is filled.
    D9,
    /// Two Data-Out of a burst are exchanged.
    D10,
    /// The data for an R2T precedes that for an earlier one.
    D11,
    /// A Data-Out ignores MaxRecvDataSegmentLength.
    D16,
    /// A digest is computed wrongly.
    D21,
    /// A ping of the target is not answered.
    M1,
    /// The target's request for a logout is ignored.
    M6,
    /// A SNACK at ErrorRecoveryLevel 0.
    M8,
    /// A command follows the Logout Request.
    M9,
    /// A Login Request asks for the stage that it is in.
    L1,
    /// MaxBurstLength is offered below 512.
    L3,
    /// MaxBurstLength is offered twice.
    L4,
    /// A Text Request has both F and C.
    L6,
    /// FirstBurstLength is offered one above MaxBurstLength.
    L7,
}

const FINAL: u8 = 0x80;
const CONTINUE: u8 = 0x40;
const NEXT_STAGE: u8 = 0x03;
/// Bit of a tag that neither side uses otherwise.
const OTHER_TAG: u32 = 0x4000_0000;
const OTHER_LUN: u8 = 0x05;
const SERIAL_STEP: u32 = 8;

impl Breaches<InitiatorRule> {
    /// The negotiated parameters as the initiator uses them for a command.
    pub(super) fn believed<'a>(&self, agreed: &'a Parameters, command: &Command) -> Cow<'a, Parameters> {
        let mut believed = Cow::Borrowed(agreed);
        if self.is_empty() || command.direction != Direction::Write {
            return believed;
        }
        if !agreed.immediate_data && self.breaks(InitiatorRule::D1) {
            believed.to_mut().immediate_data = true;
        }
        if agreed.initial_r2t && self.breaks(InitiatorRule::D2) {
            believed.to_mut().initial_r2t = false;
        }
        let is_unsolicited = agreed.immediate_data || !agreed.initial_r2t;
        let is_longer = command.length_bytes > agreed.first_burst_length;
        if is_unsolicited && is_longer && self.breaks(InitiatorRule::D3) {
            believed.to_mut().first_burst_length = command.length_bytes;
        }
        believed
    }

    /// The text of a Login Request.
    pub(super) fn login_text(&self, text: Vec<u8>) -> Vec<u8> {
        if self.is_empty() {
            return text;
        }
        let mut text = text;
        let below = with_key(&text, "MaxBurstLength", |_| Some(b"511".to_vec()));
        if let Some(changed) = below.filter(|_| self.breaks(InitiatorRule::L3)) {
            text = changed;
        }
        let twice = with_key(&text, "MaxBurstLength", |value| Some([value, b"\0MaxBurstLength=", value].concat()));
        if let Some(changed) = twice.filter(|_| self.breaks(InitiatorRule::L4)) {
            text = changed;
        }
        let above = number_of(&text, "MaxBurstLength").map(|most| (most + 1).to_string().into_bytes());
        let longer = with_key(&text, "FirstBurstLength", |_| above);
        if let Some(changed) = longer.filter(|_| self.breaks(InitiatorRule::L7)) {
            text = changed;
        }
        text
    }

    /// Changes the fields of a PDU that is sent now.
    pub(super) fn spoil(&self, header: &mut [u8; LENGTH_BYTES], lagging_exp_stat_sn: &mut Option<SerialNumber>) {
        use InitiatorRule::{D4, L1, L6, S12, S13, T5, T6};
        if self.is_empty() {
            return;
        }
        let bhs = Bhs::new(header);
        let (opcode, flags) = (bhs.opcode(), header[1]);
        if opcode == Some(Opcode::LoginRequest) {
            if flags & FINAL != 0 && self.breaks(L1) {
                header[1] = flags & !NEXT_STAGE | flags >> 2 & NEXT_STAGE;
            }
            return;
        }
        let has_tag = bhs.target_transfer_tag().is_some_and(|tag| tag != RESERVED_TAG);
        if self.breaks(S13) {
            *lagging_exp_stat_sn = bhs.exp_stat_sn();
        }
        if let Some(exp_stat_sn) = lagging_exp_stat_sn {
            change(header, 28, |_| exp_stat_sn.0);
        }
        if self.breaks(S12) {
            change(header, 28, |exp_stat_sn| exp_stat_sn.wrapping_add(SERIAL_STEP));
        }
        match opcode {
            Some(Opcode::DataOut) => {
                if flags & FINAL != 0 && self.breaks(D4) {
                    header[1] &= !FINAL;
                }
                if has_tag && self.breaks(T5) {
                    change(header, 20, |tag| tag ^ OTHER_TAG);
                }
                if has_tag && self.breaks(T6) {
                    header[9] ^= OTHER_LUN;
                }
            }
            Some(Opcode::NopOut) if has_tag && self.breaks(T6) => header[9] ^= OTHER_LUN,
            Some(Opcode::TextRequest) if flags & FINAL != 0 && self.breaks(L6) => header[1] |= CONTINUE,
            _ => {}
        }
    }
}
