//! Conversations for the tests of the rules: a judge gets PDUs as the pass hands them over.

use iscsitrace_wire::bhs::{BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::serial::SerialNumber;

use super::*;
use crate::context::Context;
use crate::iscsi::login::Login;
use crate::iscsi::pdu::DataPackets;
use crate::tables::CycleId;

/// The connection of a conversation.
pub(super) const CONNECTION: u32 = 3;
/// The LUN of its commands.
pub(super) const LUN: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

/// A conversation: its PDUs have the frames 1, 2, and so on, one each millisecond.
#[derive(Default)]
pub(super) struct Talk {
    judge: Judge,
    login: Login,
    session: Option<u32>,
    context: Context,
    tasks: OfPass,
    frame: u64,
    waited_ns: i64,
    /// What the CDBs of its commands ask for.
    asked_bytes: Option<u64>,
}

pub(super) fn login_request(stage: u8, next_stage: u8) -> BhsBuilder {
    let header = BhsBuilder::new(Opcode::LoginRequest).is_transit(true).current_stage(stage).next_stage(next_stage);
    header.cid(1).initiator_task_tag(1).cmd_sn(SerialNumber(100))
}

pub(super) fn login_response(stage: u8, next_stage: u8, stat_sn: u32) -> BhsBuilder {
    let header = BhsBuilder::new(Opcode::LoginResponse).is_transit(true).current_stage(stage).next_stage(next_stage);
    of_target(header.tsih(7).initiator_task_tag(1), stat_sn, 100)
}

/// A header of the target with its numbers.
pub(super) fn of_target(header: BhsBuilder, stat_sn: u32, exp_cmd_sn: u32) -> BhsBuilder {
    let window = SerialNumber(exp_cmd_sn + 31);
    header.stat_sn(SerialNumber(stat_sn)).exp_cmd_sn(SerialNumber(exp_cmd_sn)).max_cmd_sn(window)
}

/// A header of the initiator with its numbers.
pub(super) fn of_initiator(header: BhsBuilder, cmd_sn: u32, exp_stat_sn: u32) -> BhsBuilder {
    header.cmd_sn(SerialNumber(cmd_sn)).exp_stat_sn(SerialNumber(exp_stat_sn))
}

/// TEST UNIT READY: a command without data.
pub(super) fn command(tag: u32, cmd_sn: u32, exp_stat_sn: u32) -> BhsBuilder {
    let header = BhsBuilder::new(Opcode::ScsiCommand).is_final(true).lun(LUN).initiator_task_tag(tag);
    of_initiator(header, cmd_sn, exp_stat_sn)
}

pub(super) fn status(tag: u32, status: u8, stat_sn: u32, exp_cmd_sn: u32) -> BhsBuilder {
    let header = BhsBuilder::new(Opcode::ScsiResponse).is_final(true).initiator_task_tag(tag).status(status);
    of_target(header, stat_sn, exp_cmd_sn)
}

/// Another command than those of a test, and its answer: what the target sends acknowledges all before.
pub(super) fn work(tag: u32, cmd_sn: u32, stat_sn: u32) -> [BhsBuilder; 2] {
    [command(tag, cmd_sn, stat_sn), status(tag, 0, stat_sn, cmd_sn + 1)]
}

/// An immediate NOP-Out.
pub(super) fn nop_out(tag: u32, answered: u32, cmd_sn: u32, exp_stat_sn: u32) -> BhsBuilder {
    let header = BhsBuilder::new(Opcode::NopOut).is_immediate(true).is_final(true).initiator_task_tag(tag);
    of_initiator(header.target_transfer_tag(answered), cmd_sn, exp_stat_sn)
}

pub(super) fn nop_in(answered: u32, tag: u32, stat_sn: u32, exp_cmd_sn: u32) -> BhsBuilder {
    let header = BhsBuilder::new(Opcode::NopIn).is_final(true).initiator_task_tag(answered);
    of_target(header.target_transfer_tag(tag), stat_sn, exp_cmd_sn)
}

impl Talk {
    /// Behind a login in one exchange: frames 1 and 2. The next CmdSN is 100, the next StatSN 500.
    pub(super) fn logged_in(error_recovery_level: u32) -> Self {
        let mut talk = Self::default();
        talk.send(login_request(1, 3), b"");
        talk.send(login_response(1, 3, 499), b"");
        let (can_recover, yes) = (Some(error_recovery_level > 0), Some(true));
        let in_order = Agreed { data_pdu_in_order: yes, data_sequence_in_order: yes, ..Agreed::default() };
        talk.judge.agreed = Agreed { is_alone: true, can_recover, ..in_order };
        talk
    }

    /// The judge, and what it gets with a PDU.
    fn judged(&mut self) -> (&mut Judge, &Login, Around<'_>) {
        let (violations, counters) = (&mut self.context.tables.violations, &mut self.context.counters);
        let around = Around { connection: CONNECTION, is_named: true, tasks: &mut self.tasks, violations, counters };
        (&mut self.judge, &self.login, around)
    }

    /// The pass opens a task.
    fn open(&mut self, pdu: &Pdu<'_>) {
        let (Some(tag), cycle) = (pdu.bhs().initiator_task_tag(), CycleId::new(self.frame as u32)) else { return };
        let task = iscsi::task::Task::open(pdu.bhs(), cycle, None, false);
        if let Some(judged) = self.tasks.insert(tag, Box::new(task)).and_then(|earlier| earlier.judged) {
            self.judge.keep(tag, judged);
        }
    }

    /// A PDU.
    pub(super) fn send(&mut self, header: BhsBuilder, data: &[u8]) {
        self.frame += 1;
        let header = header.data_segment_length(data.len() as u32).build();
        let at = Stamp { frame: self.frame, time_ns: self.frame as i64 * 1_000_000 + self.waited_ns };
        let pdu = pdu(&header, data, at);
        let Some(opcode) = pdu.bhs().opcode() else { panic!("no opcode") };
        if matches!(opcode, Opcode::LoginRequest | Opcode::LoginResponse) {
            self.context.tables.wanted.violations = true;
            self.login.take(&pdu, CONNECTION, &mut self.session, &mut self.context);
        }
        if opcode == Opcode::ScsiCommand {
            self.open(&pdu);
            let lun = pdu.bhs().lun().unwrap_or_default();
            let command = Command { cycle: CycleId::new(self.frame as u32), lun, asked_bytes: self.asked_bytes };
            let (judge, _, around) = self.judged();
            judge.command(pdu.bhs(), at, command, around);
        } else if !opcode.is_initiator() {
            self.judge.said(pdu.bhs());
        }
        let (judge, login, around) = self.judged();
        judge.take(&pdu, opcode, login, around);
        if opcode == Opcode::ScsiResponse {
            // the pass ends it
            pdu.bhs().initiator_task_tag().and_then(|tag| self.tasks.remove(&tag));
        }
    }

    /// The pass ends the task with this tag.
    pub(super) fn ends(mut self, tag: u32) -> Self {
        if let Some(judged) = self.tasks.remove(&tag).and_then(|task| task.judged) {
            self.judge.keep(tag, judged);
        }
        self
    }

    /// PDUs without data.
    pub(super) fn all(mut self, headers: impl IntoIterator<Item = BhsBuilder>) -> Self {
        headers.into_iter().for_each(|header| self.send(header, b""));
        self
    }

    /// Nothing passes for so long.
    pub(super) fn wait(mut self, seconds: i64) -> Self {
        self.waited_ns += seconds * 1_000_000_000;
        self
    }

    /// Bytes are missing.
    pub(super) fn hole(mut self) -> Self {
        self.judge.begin_anew();
        self
    }

    /// Its commands ask for so many bytes.
    pub(super) fn asks(mut self, bytes: u64) -> Self {
        self.asked_bytes = Some(bytes);
        self
    }

    /// The target closes the connection.
    pub(super) fn close(self) -> Self {
        self.closed_by(Side::Target)
    }

    /// A side closes the connection.
    pub(super) fn closed_by(mut self, side: Side) -> Self {
        let closed_ns = Some((self.frame as i64 + 1) * 1_000_000 + self.waited_ns);
        let ended = Ended { closed_ns: [Side::Initiator, Side::Target].map(|own| closed_ns.filter(|_| own == side)) };
        let (judge, _, around) = self.judged();
        judge.finish(ended, around);
        self
    }

    /// The violations: rule, side and frame.
    pub(super) fn found(&self) -> Vec<(Rule, Side, u64)> {
        found(&self.context.tables.violations)
    }
}

pub(super) fn found(violations: &Violations) -> Vec<(Rule, Side, u64)> {
    let side = |code| if code == 0 { Side::Initiator } else { Side::Target };
    let rows = violations.rule.iter().zip(&violations.side).zip(&violations.frame);
    rows.map(|((&rule, &code), &frame)| (Rule::ALL[usize::from(rule)], side(code), frame)).collect()
}

/// A whole PDU in one packet, without digests.
pub(super) fn pdu<'a>(header: &'a [u8], data: &'a [u8], at: Stamp) -> Pdu<'a> {
    Pdu {
        header,
        data,
        offset: 0,
        end: 48,
        data_end: 48,
        data_last_ns: at.time_ns,
        data_packets: DataPackets::default(),
        first: at,
        last: Some(at),
        latest: at,
        has_capture_gap: false,
        is_unfinished: false,
        is_late: false,
        header_digest_ok: None,
        data_digest_ok: None,
    }
}

#[test]
fn a_login_and_a_command_break_no_rule() {
    let talk =
        Talk::logged_in(0).all([command(5, 100, 500), status(5, 0, 500, 101), nop_out(6, RESERVED_TAG, 101, 501)]);
    assert_eq!(talk.close().found(), []);
}
