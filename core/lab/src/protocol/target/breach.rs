//! How a target breaks rules of RFC 7143: the changes to the PDUs that it sends. Breaches that change more than fields are implemented where their PDUs are made.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;

use super::output::{StatSn, Stream};
use super::rule::TargetRule;
use crate::protocol::breach::{Breaches, change, number_of, with_key};
use crate::protocol::keys::Parameters;

const FINAL: u8 = 0x80;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const HAS_STATUS: u8 = 0x01;
/// T bit and NSG of a Login Response.
const NEXT_STAGE: u8 = 0x03;
const FULL_FEATURE: u8 = 0x03;
const OPERATIONAL: u8 = 0x01;
/// Bit of a tag that neither side uses otherwise.
const OTHER_TAG: u32 = 0x4000_0000;
const SERIAL_STEP: u32 = 8;
/// MaxBurstLength at its most (RFC 7143 section 13.13).
const MOST_BURST: u32 = (1 << 24) - 1;

impl Breaches<TargetRule> {
    /// The negotiated parameters as the target uses them when it asks for data.
    pub(super) fn believed(&self, agreed: Parameters) -> Parameters {
        let mut believed = agreed;
        if self.breaks(TargetRule::D5) {
            believed.max_burst_length = MOST_BURST;
        }
        if self.breaks(TargetRule::D8) {
            believed.max_outstanding_r2t += 1;
        }
        if believed.data_sequence_in_order && self.breaks(TargetRule::D11) {
            believed.data_sequence_in_order = false;
        }
        believed
    }

    /// The text of a Login Response.
    pub(super) fn login_text(&self, text: Vec<u8>) -> Vec<u8> {
        if self.is_empty() {
            return text;
        }
        let mut text = text;
        let other = |old: &[u8]| Some(if old == b"None" { b"CRC32C".to_vec() } else { b"None".to_vec() });
        if let Some(changed) = with_key(&text, "HeaderDigest", other).filter(|_| self.breaks(TargetRule::L2)) {
            text = changed;
        }
        let most = |_: &[u8]| Some(MOST_BURST.to_string().into_bytes());
        if let Some(changed) = with_key(&text, "MaxBurstLength", most).filter(|_| self.breaks(TargetRule::L3)) {
            text = changed;
        }
        let without = with_key(&text, "MaxOutstandingR2T", |_| None);
        if let Some(changed) = without.filter(|_| self.breaks(TargetRule::L4)) {
            text = changed;
        }
        let half = number_of(&text, "FirstBurstLength").map(|first| (first / 2).to_string().into_bytes());
        if let Some(changed) = with_key(&text, "MaxBurstLength", |_| half).filter(|_| self.breaks(TargetRule::L7)) {
            text = changed;
        }
        text
    }

    /// Changes ExpCmdSN and MaxCmdSN of a PDU in the full feature phase.
    fn numbers(&self, header: &mut [u8; LENGTH_BYTES]) {
        if self.breaks(TargetRule::S5) {
            change(header, 28, |exp_cmd_sn| exp_cmd_sn.wrapping_add(SERIAL_STEP));
        }
        if self.breaks(TargetRule::S6) {
            change(header, 28, |exp_cmd_sn| exp_cmd_sn.wrapping_sub(SERIAL_STEP));
        }
        if self.breaks(TargetRule::S7) {
            let exp_cmd_sn = Bhs::new(header).exp_cmd_sn().unwrap_or_default().0;
            change(header, 32, |_| exp_cmd_sn.wrapping_sub(SERIAL_STEP));
        }
    }

    /// Changes the fields of a PDU that is sent now.
    pub(super) fn spoil(&self, header: &mut [u8; LENGTH_BYTES]) {
        use TargetRule::{D15, D19, D20, L1, L6, S16, S17, T2, T4, T7};
        if self.is_empty() {
            return;
        }
        let bhs = Bhs::new(header);
        let (opcode, flags) = (bhs.opcode(), header[1]);
        if opcode == Some(Opcode::LoginResponse) {
            if flags & FINAL != 0 && self.breaks(L1) {
                let is_security = flags & 0x0c == 0;
                header[1] = flags & !NEXT_STAGE | if is_security { FULL_FEATURE } else { OPERATIONAL };
            }
            return;
        }
        self.numbers(header);
        let has_status =
            opcode == Some(Opcode::ScsiResponse) || opcode == Some(Opcode::DataIn) && flags & HAS_STATUS != 0;
        // GOOD, without a residual
        if has_status && header[3] == 0 && flags & (OVERFLOW | UNDERFLOW) == 0 {
            if self.breaks(D19) {
                header[1] |= OVERFLOW;
                change(header, 44, |_| 512);
            }
            if self.breaks(D20) {
                header[1] |= UNDERFLOW;
            }
        }
        match opcode {
            Some(Opcode::ReadyToTransfer) => {
                if self.breaks(S16) {
                    change(header, 36, |r2t_sn| r2t_sn.wrapping_add(1));
                }
                if self.breaks(T4) {
                    change(header, 20, |_| RESERVED_TAG);
                }
                if self.breaks(T7) {
                    header[9] ^= 0x05;
                }
            }
            Some(Opcode::ScsiResponse) => {
                if Bhs::new(header).exp_data_sn().is_some_and(|count| count.0 > 0) && self.breaks(S17) {
                    change(header, 36, |exp_data_sn| exp_data_sn.wrapping_add(1));
                }
                if self.breaks(T2) {
                    change(header, 16, |tag| tag ^ OTHER_TAG);
                }
            }
            Some(Opcode::DataIn) if flags & HAS_STATUS != 0 && self.breaks(D15) => header[1] &= !FINAL,
            Some(Opcode::TextResponse) if flags & FINAL != 0 && self.breaks(L6) => change(header, 20, |_| OTHER_TAG),
            _ => {}
        }
    }
}

impl Stream {
    /// Whether the PDU uses up the StatSN that it carries; one that is skipped before it is used up here.
    pub(super) fn uses_stat_sn(
        &mut self,
        opcode: Option<Opcode>,
        stat_sn: StatSn,
        breaches: &Breaches<TargetRule>,
    ) -> bool {
        let is_login = opcode == Some(Opcode::LoginResponse);
        match stat_sn {
            StatSn::Taken if is_login => true,
            StatSn::Taken => {
                if breaches.breaks(TargetRule::S9) {
                    self.stat_sn = self.stat_sn.next();
                }
                !breaches.breaks(TargetRule::S10)
            }
            StatSn::Shown => breaches.breaks(TargetRule::S11),
            StatSn::Absent => false,
        }
    }
}
