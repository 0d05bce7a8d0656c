//! NOPs, task management, logouts, asynchronous messages, Rejects and SNACKs: rules M1 to M10.
//!
//! A request counts as received once its receiver acknowledged, in its own stream, something that was sent behind it. From
//! then on an answer that is missing is judged at later PDUs of the receiver, or where it closes the connection in order: never
//! at the mere end of a capture.

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::management::{
    ABORT_TASK, CLOSE_CONNECTION, CLOSE_SESSION, FUNCTION_COMPLETE, TASK_DOES_NOT_EXIST,
};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::reject::RejectReason;
use iscsitrace_wire::serial::SerialNumber;
use iscsitrace_wire::status::Status;
use serde::{Deserialize, Serialize};

use super::numbers::Numbers;
use super::rules::{Rule, Side};
use super::sight::{Ended, SETTLED_NS, Sight};
use super::tasks::{OpenTask, Tasks};
use super::violations::Found;
use crate::stream::stamp::Stamp;
use crate::tables::CycleId;

/// What its receiver did not answer for so long, while it did other things, is not answered.
const UNANSWERED_NS: i64 = 5_000_000_000;
/// A message may pass the tap so much later behind others than the close that follows it.
const DELAY_NS: i64 = 100_000_000;
/// Requests of a kind that are kept.
const KEPT: usize = 64;
/// Tasks that a function ended: as many as a reset may end at once.
const MANAGED_KEPT: usize = 1 << 10;

/// Functions for the tasks of a logical unit: ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET.
const OF_UNIT: [u8; 3] = [2, 4, 5];
/// Functions for all tasks: TARGET WARM RESET, TARGET COLD RESET.
const OF_TARGET: [u8; 2] = [6, 7];
/// The target asks for a logout (RFC 7143 section 11.9.1).
const REQUESTS_LOGOUT: u8 = 1;
/// Types of SNACK (RFC 7143 section 11.16.1).
const STATUS_SNACK: u8 = 1;
/// Commands that a unit attention leaves alone: INQUIRY, REPORT LUNS, REQUEST SENSE.
const WITHOUT_UNIT_ATTENTION: [u8; 3] = [0x12, 0xa0, 0x03];

/// A NOP that asks for an answer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Ping {
    tag: u32,
    lun: Option<[u8; 8]>,
    at: Stamp,
    receipt: Receipt,
}

/// Whether a request was received.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Receipt {
    /// A number behind this one acknowledges something that was sent later.
    number: SerialNumber,
    /// When that was acknowledged.
    received_ns: Option<i64>,
}

impl Receipt {
    /// Its receiver said this number. Returns whether the request has been there for so long.
    fn note(&mut self, said: SerialNumber, at: Stamp, for_ns: i64) -> bool {
        if self.received_ns.is_none() && said.is_after(self.number) {
            self.received_ns = Some(at.time_ns);
        }
        self.received_ns.is_some_and(|received_ns| at.time_ns.saturating_sub(received_ns) >= for_ns)
    }
}

/// A Task Management Function Request without its response.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Function {
    tag: u32,
    code: u8,
    referenced: Option<u32>,
    lun: Option<[u8; 8]>,
    cmd_sn: SerialNumber,
    at: Stamp,
    /// When a later function had ended all its tasks: until then it may wait for them.
    is_over_since_ns: Option<i64>,
}

impl Function {
    /// Whether a function that is complete leaves it nothing to wait for.
    fn is_ended_by(&self, other: &Function) -> bool {
        let is_of_one_unit = self.code == ABORT_TASK || OF_UNIT.contains(&self.code);
        let is_same_unit = OF_UNIT.contains(&other.code) && self.lun == other.lun;
        self.at.frame < other.at.frame && ((is_of_one_unit && is_same_unit) || OF_TARGET.contains(&other.code))
    }

    /// The logical unit that it resets, none for all of them; none if it is no reset.
    fn reset(&self) -> Option<Option<[u8; 8]>> {
        match self.code {
            code if OF_UNIT.contains(&code) => self.lun.map(Some),
            code => OF_TARGET.contains(&code).then_some(None),
        }
    }

    /// Whether a task that was sent before it is one that it ends.
    fn ends(&self, task: &OpenTask) -> bool {
        task.cmd_sn.is_before(self.cmd_sn)
            && match self.code {
                ABORT_TASK => self.referenced == Some(task.tag),
                code if OF_UNIT.contains(&code) => self.lun == Some(task.lun),
                code => OF_TARGET.contains(&code),
            }
    }
}

/// A task of which the target said that it does not exist. A reset by another initiator would be told by the next command of
/// the logical unit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Denied {
    tag: u32,
    cycle: CycleId,
    lun: [u8; 8],
    at: Stamp,
    /// Commands from this one on came behind the denial.
    exp_cmd_sn: SerialNumber,
    /// Such a command.
    probe: Option<u32>,
}

/// A message of the target that asks for a logout.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Asked {
    at: Stamp,
    seconds: u16,
    receipt: Receipt,
}

impl Asked {
    fn period_ns(&self) -> i64 {
        i64::from(self.seconds) * 1_000_000_000
    }

    /// M6: no logout came.
    fn missed(&self) -> Found {
        Found::new(Rule::M6, Side::Initiator, self.at).seen(self.seconds, self.seconds)
    }
}

/// The exchanges of a connection since the last hole.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Exchanges {
    /// Of the initiator, of the target.
    pings: [Vec<Ping>; 2],
    functions: Vec<Function>,
    /// Tasks that a function ended.
    managed: Vec<(u32, CycleId)>,
    denied: Vec<Denied>,
    /// Tasks before this number may have ended without a status of their own.
    doubtful_until: Option<SerialNumber>,
    logout: Option<Stamp>,
    asked: Option<Asked>,
    cid: Option<u16>,
    /// Whether anything waits for later PDUs.
    is_waiting: bool,
}

fn push<T>(kept: &mut Vec<T>, new: T, most: usize) {
    if kept.len() < most {
        kept.push(new);
    }
}

impl Exchanges {
    /// The header of a SCSI Command.
    pub(super) fn command(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        if !self.is_waiting {
            return;
        }
        let (Some(tag), Some(cmd_sn)) = (bhs.initiator_task_tag(), bhs.cmd_sn()) else { return };
        self.request(at, sight);
        self.managed.retain(|&(managed, _)| managed != tag);
        let is_told = bhs.cdb().is_some_and(|[operation_code, ..]| !WITHOUT_UNIT_ATTENTION.contains(&operation_code));
        for denied in &mut self.denied {
            if is_told
                && denied.probe.is_none()
                && Some(denied.lun) == bhs.lun()
                && !cmd_sn.is_before(denied.exp_cmd_sn)
            {
                denied.probe = Some(tag);
            }
        }
    }

    /// A PDU of either side, behind its numbers and before its task.
    #[inline]
    pub(super) fn take(
        &mut self,
        bhs: Bhs<'_>,
        data: &[u8],
        opcode: Opcode,
        at: Stamp,
        parts: (&Numbers, &mut Tasks),
        sight: &mut Sight<'_>,
    ) {
        match opcode {
            Opcode::ScsiCommand | Opcode::DataOut | Opcode::DataIn | Opcode::ReadyToTransfer => {}
            Opcode::ScsiResponse if bhs.status() == Some(Status::Good as u8) => {}
            _ => self.exchange(bhs, data, opcode, at, parts, sight),
        }
        if self.is_waiting {
            self.wait(bhs, opcode, at, sight);
        }
    }

    #[cold]
    fn exchange(
        &mut self,
        bhs: Bhs<'_>,
        data: &[u8],
        opcode: Opcode,
        at: Stamp,
        (numbers, tasks): (&Numbers, &mut Tasks),
        sight: &mut Sight<'_>,
    ) {
        match opcode {
            Opcode::LoginRequest => *self = Self { cid: bhs.cid(), ..Self::default() },
            Opcode::NopOut => self.nop_out(bhs, at, sight),
            Opcode::NopIn => self.nop_in(bhs, at, numbers),
            Opcode::TaskManagementRequest => {
                self.request(at, sight);
                if let (Some(tag), Some(code), Some(cmd_sn)) = (bhs.initiator_task_tag(), bhs.function(), bhs.cmd_sn())
                {
                    let (referenced, lun) = (bhs.referenced_task_tag(), bhs.lun());
                    let function = Function { tag, code, referenced, lun, cmd_sn, at, is_over_since_ns: None };
                    push(&mut self.functions, function, KEPT);
                }
            }
            Opcode::TaskManagementResponse => self.managed(bhs, at, tasks, sight),
            Opcode::TextRequest => self.request(at, sight),
            Opcode::LogoutRequest => {
                let is_own = match bhs.logout_reason() {
                    Some(CLOSE_SESSION) => true,
                    Some(CLOSE_CONNECTION) => self.cid.is_some() && bhs.cid() == self.cid,
                    _ => false,
                };
                self.asked = None;
                if is_own {
                    self.logout.get_or_insert(at);
                }
            }
            Opcode::LogoutResponse => self.logout = None,
            Opcode::SnackRequest => snack(bhs, at, numbers, sight),
            Opcode::Reject => {
                self.reject(bhs, Bhs::new(data), at, tasks, sight);
                self.doubt(bhs);
            }
            Opcode::AsyncMessage => self.asynchronous(bhs, at, sight),
            // a unit attention may be among the reasons
            Opcode::ScsiResponse => self.doubt(bhs),
            _ => {}
        }
        self.is_waiting = self.pings.iter().any(|pings| !pings.is_empty())
            || !self.functions.is_empty()
            || !self.managed.is_empty()
            || !self.denied.is_empty()
            || self.logout.is_some()
            || self.asked.is_some();
    }

    /// Tasks that the target had by now may have ended without a status.
    fn doubt(&mut self, bhs: Bhs<'_>) {
        self.doubtful_until = bhs.exp_cmd_sn().or(self.doubtful_until);
        self.denied.clear();
    }

    /// M9: a request behind a Logout Request.
    fn request(&mut self, at: Stamp, sight: &mut Sight<'_>) {
        if self.logout.is_some() {
            sight.report(Found::new(Rule::M9, Side::Initiator, at));
        }
    }

    fn nop_out(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let (Some(tag), Some(answered)) = (bhs.initiator_task_tag(), bhs.target_transfer_tag()) else { return };
        if answered != RESERVED_TAG {
            if let Some(place) = self.pings[1].iter().position(|ping| ping.tag == answered) {
                let ping = self.pings[1].swap_remove(place);
                if ping.lun != bhs.lun() {
                    sight.report(Found::new(Rule::T6, Side::Initiator, at));
                }
            }
            return;
        }
        self.request(at, sight);
        if let Some(number) = bhs.cmd_sn().filter(|_| tag != RESERVED_TAG) {
            let receipt = Receipt { number, received_ns: None };
            push(&mut self.pings[0], Ping { tag, lun: bhs.lun(), at, receipt }, KEPT);
        }
    }

    fn nop_in(&mut self, bhs: Bhs<'_>, at: Stamp, numbers: &Numbers) {
        let (Some(answered), Some(tag)) = (bhs.initiator_task_tag(), bhs.target_transfer_tag()) else { return };
        if answered != RESERVED_TAG {
            self.pings[0].retain(|ping| ping.tag != answered);
        } else if let Some(number) = numbers.next_stat().filter(|_| tag != RESERVED_TAG) {
            let receipt = Receipt { number, received_ns: None };
            push(&mut self.pings[1], Ping { tag, lun: bhs.lun(), at, receipt }, KEPT);
        }
    }

    /// A Task Management Function Response.
    fn managed(&mut self, bhs: Bhs<'_>, at: Stamp, tasks: &mut Tasks, sight: &mut Sight<'_>) {
        let place = self.functions.iter().position(|function| Some(function.tag) == bhs.initiator_task_tag());
        let Some(function) = place.map(|place| self.functions.swap_remove(place)) else { return };
        let Some(exp_cmd_sn) = bhs.exp_cmd_sn().filter(|_| !sight.is_recovering) else { return };
        if bhs.response() == Some(FUNCTION_COMPLETE) {
            // the response also shows that earlier requests were received: TCP keeps their order
            for earlier in self.functions.iter_mut().filter(|earlier| earlier.is_ended_by(&function)) {
                earlier.is_over_since_ns.get_or_insert(at.time_ns);
            }
        }
        let referenced = function.referenced.filter(|_| function.code == ABORT_TASK);
        let aborted = referenced.and_then(|tag| tasks.open_task(tag)).filter(|task| function.ends(task));
        match bhs.response() {
            Some(FUNCTION_COMPLETE) => {
                let ended = match function.reset() {
                    Some(lun) => tasks.reset(lun, |task| function.ends(task)),
                    None => aborted.into_iter().collect(),
                };
                ended.iter().for_each(|task| push(&mut self.managed, (task.tag, task.cycle), MANAGED_KEPT));
            }
            Some(TASK_DOES_NOT_EXIST) if function.code == ABORT_TASK && sight.agreed.is_alone => {
                let has_reset = self.functions.iter().any(|function| function.code != ABORT_TASK);
                if let Some(OpenTask { tag, cycle, lun, cmd_sn }) = aborted {
                    // what an initiator in fault sent, its target may rightly not know
                    let is_doubtful = has_reset
                        || sight.has_accused(Side::Initiator)
                        || self.managed.contains(&(tag, cycle))
                        || self.doubtful_until.is_some_and(|until| until.is_after(cmd_sn));
                    if exp_cmd_sn.is_after(cmd_sn) && !is_doubtful {
                        push(&mut self.denied, Denied { tag, cycle, lun, at, exp_cmd_sn, probe: None }, KEPT);
                    }
                }
            }
            _ => {}
        }
    }

    fn asynchronous(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &Sight<'_>) {
        if bhs.async_event() != Some(REQUESTS_LOGOUT) {
            self.doubt(bhs);
        } else if let (Some(number), Some(seconds)) = (bhs.stat_sn(), bhs.parameter3())
            && sight.agreed.is_alone
            && self.logout.is_none()
            && seconds > 0
        {
            self.asked = Some(Asked { at, seconds, receipt: Receipt { number, received_ns: None } });
        }
    }

    /// M7: a Reject of a PDU that is as it must be, as far as this can be judged.
    fn reject(&mut self, bhs: Bhs<'_>, rejected: Bhs<'_>, at: Stamp, tasks: &Tasks, sight: &mut Sight<'_>) {
        let reasons = [RejectReason::ProtocolError, RejectReason::CommandNotSupported, RejectReason::InvalidPduField];
        let is_of_format = bhs.reject_reason().is_some_and(|code| reasons.iter().any(|reason| reason.as_u8() == code));
        let tag = rejected.initiator_task_tag();
        let is_known = match rejected.opcode() {
            Some(Opcode::ScsiCommand) => {
                let is_plain = rejected.total_ahs_length_bytes() == Some(0)
                    && (rejected.is_read(), rejected.is_write()) != (Some(true), Some(true));
                is_plain
                    && tag
                        .and_then(|tag| tasks.open_task(tag))
                        .is_some_and(|task| rejected.cmd_sn() == Some(task.cmd_sn))
            }
            Some(Opcode::NopOut) => self.pings[0].iter().any(|ping| Some(ping.tag) == tag),
            _ => false,
        };
        self.pings[0].retain(|ping| Some(ping.tag) != tag);
        self.functions.retain(|function| Some(function.tag) != tag);
        if is_of_format
            && is_known
            && sight.is_whole
            && sight.agreed.is_alone
            && !sight.has_accused(Side::Initiator)
            && rejected.is_valid().is_ok()
        {
            sight.report(Found::new(Rule::M7, Side::Target, at).only_seen(rejected.opcode_byte().unwrap_or(0) & 0x3f));
        }
    }

    /// What waits for PDUs to come.
    #[cold]
    fn wait(&mut self, bhs: Bhs<'_>, opcode: Opcode, at: Stamp, sight: &mut Sight<'_>) {
        if opcode.is_initiator() {
            let Some(said) = bhs.exp_stat_sn() else { return };
            report_unanswered(&mut self.pings[1], said, Rule::M1, Side::Initiator, at, sight);
            if let Some(asked) = &mut self.asked
                && asked.receipt.note(said, at, asked.period_ns() + SETTLED_NS)
            {
                sight.report(asked.missed());
                self.asked = None;
            }
            return;
        }
        if let Some(said) = bhs.exp_cmd_sn().filter(|_| sight.agreed.is_alone) {
            report_unanswered(&mut self.pings[0], said, Rule::M2, Side::Target, at, sight);
        }
        self.functions.retain(|function| {
            let is_unanswered =
                function.is_over_since_ns.is_some_and(|since_ns| at.time_ns.saturating_sub(since_ns) >= UNANSWERED_NS);
            if is_unanswered {
                sight.report(Found::new(Rule::M10, Side::Target, function.at).only_seen(function.tag));
            }
            !is_unanswered
        });
        let Some(tag) = bhs.initiator_task_tag() else { return };
        if !matches!(opcode, Opcode::DataIn | Opcode::ScsiResponse | Opcode::ReadyToTransfer) {
            return;
        }
        if let Some(place) = self.managed.iter().position(|&(managed, _)| managed == tag) {
            let (tag, cycle) = self.managed.swap_remove(place);
            if !sight.is_recovering {
                sight.report(Found::new(Rule::M3, Side::Target, at).of(tag, cycle).only_seen(tag));
            }
        }
        if opcode == Opcode::ScsiResponse || bhs.has_status() == Some(true) {
            let is_good = bhs.status() == Some(Status::Good as u8);
            self.denied.retain(|denied| {
                let is_told = denied.probe == Some(tag);
                if is_told && is_good {
                    let found = Found::new(Rule::M4, Side::Target, denied.at).of(denied.tag, denied.cycle);
                    sight.report(found.only_seen(denied.tag));
                }
                // its status comes after all
                !is_told && denied.tag != tag
            });
        }
    }

    /// The end of the connection.
    pub(super) fn finish(&self, ended: Ended, sight: &mut Sight<'_>) {
        let closed_ns = |side: Side| ended.closed_ns[side as usize];
        let waited_ns =
            |closed_ns: Option<i64>, since_ns: i64| closed_ns.map(|closed_ns| closed_ns.saturating_sub(since_ns));
        if let Some(logout) = self.logout
            && let Some(waited_ns) = waited_ns(closed_ns(Side::Target), logout.time_ns)
            && waited_ns >= UNANSWERED_NS
        {
            sight.report(Found::new(Rule::M5, Side::Target, logout).only_seen(waited_ns.unsigned_abs()));
        }
        for (pings, rule, side, asker) in [
            (&self.pings[0], Rule::M2, Side::Target, Side::Initiator),
            (&self.pings[1], Rule::M1, Side::Initiator, Side::Target),
        ] {
            // who asked waited no longer
            for ping in pings {
                let received_ns = ping.receipt.received_ns;
                if received_ns.is_some_and(|since_ns| waited_ns(closed_ns(asker), since_ns) >= Some(SETTLED_NS)) {
                    sight.report(Found::new(rule, side, ping.at).only_seen(ping.tag));
                }
            }
        }
        if let Some(asked) = self.asked.filter(|asked| asked.receipt.received_ns.is_some())
            && closed_ns(Side::Initiator).is_none_or(|own_ns| closed_ns(Side::Target) <= Some(own_ns))
            && waited_ns(closed_ns(Side::Target), asked.at.time_ns) >= Some(asked.period_ns() - DELAY_NS)
        {
            sight.report(asked.missed());
        }
    }
}

/// M1 and M2: requests that were received, and not answered since, while other PDUs came.
fn report_unanswered(
    pings: &mut Vec<Ping>,
    said: SerialNumber,
    rule: Rule,
    side: Side,
    at: Stamp,
    sight: &mut Sight<'_>,
) {
    pings.retain_mut(|ping| {
        let is_unanswered = ping.receipt.note(said, at, UNANSWERED_NS);
        if is_unanswered {
            sight.report(Found::new(rule, side, ping.at).only_seen(ping.tag));
        }
        !is_unanswered
    });
}

/// M8: a SNACK without recovery, or for statuses that were never sent.
fn snack(bhs: Bhs<'_>, at: Stamp, numbers: &Numbers, sight: &mut Sight<'_>) {
    let found = Found::new(Rule::M8, Side::Initiator, at);
    if sight.agreed.error_recovery_level == Some(0) {
        sight.report(found);
    } else if let (Some(STATUS_SNACK), Some(begin), Some(length), Some(next)) =
        (bhs.snack_type(), bhs.beg_run(), bhs.run_length(), numbers.next_stat_said())
        && begin.0.wrapping_add(length) != begin.0
        && SerialNumber(begin.0.wrapping_add(length)).is_after(next)
    {
        sight.report(found);
    }
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::BhsBuilder;

    use super::super::tests::*;
    use super::*;

    /// Another command than those of the tests, and its answer: what the target sends acknowledges all before.
    fn work(tag: u32, cmd_sn: u32, stat_sn: u32) -> [BhsBuilder; 2] {
        [command(tag, cmd_sn, stat_sn), status(tag, 0, stat_sn, cmd_sn + 1)]
    }

    fn function(code: u8, tag: u32, referenced: u32, cmd_sn: u32) -> BhsBuilder {
        let header = BhsBuilder::new(Opcode::TaskManagementRequest).is_immediate(true).is_final(true).function(code);
        let header = header.lun(LUN).initiator_task_tag(tag).referenced_task_tag(referenced);
        of_initiator(header, cmd_sn, 500)
    }

    fn function_response(response: u8, tag: u32, stat_sn: u32, exp_cmd_sn: u32) -> BhsBuilder {
        let header = BhsBuilder::new(Opcode::TaskManagementResponse).is_final(true).initiator_task_tag(tag);
        of_target(header.response(response), stat_sn, exp_cmd_sn)
    }

    fn logout(cmd_sn: u32, exp_stat_sn: u32) -> BhsBuilder {
        let header = BhsBuilder::new(Opcode::LogoutRequest).is_immediate(true).is_final(true).initiator_task_tag(0x70);
        of_initiator(header.logout_reason(CLOSE_SESSION), cmd_sn, exp_stat_sn)
    }

    #[test]
    fn a_nop_out_is_answered_while_the_target_answers_other_requests() {
        let pinged = || Talk::logged_in(0).all([nop_out(9, RESERVED_TAG, 100, 500)]);
        let unanswered = pinged().all(work(5, 100, 500)).wait(6).all(work(6, 101, 501));
        assert_eq!(unanswered.found(), [(Rule::M2, Side::Target, 3)]);
        let answer = nop_in(9, RESERVED_TAG, 501, 101);
        let answered = pinged().all(work(5, 100, 500)).all([answer]).wait(6).all(work(6, 101, 502));
        assert_eq!(answered.found(), []);
        // nothing shows that it was received before the wait, and then it is too early
        assert_eq!(pinged().wait(6).all(work(5, 100, 500)).found(), []);
        // the answer may be in the hole
        assert_eq!(pinged().all(work(5, 100, 500)).hole().wait(6).all(work(6, 101, 501)).found(), []);
        // the target itself ends the connection
        assert_eq!(pinged().all(work(5, 100, 500)).wait(6).close().found(), []);
        // its initiator waits no longer
        let given_up = pinged().all(work(5, 100, 500)).wait(2).closed_by(Side::Initiator);
        assert_eq!(given_up.found(), [(Rule::M2, Side::Target, 3)]);
        assert_eq!(pinged().wait(6).closed_by(Side::Initiator).found(), [], "nothing shows that it was received");
        assert_eq!(pinged().all(work(5, 100, 500)).closed_by(Side::Initiator).found(), [], "too soon");
    }

    #[test]
    fn a_nop_in_is_answered_while_the_initiator_goes_on() {
        let pinged = || Talk::logged_in(0).all([nop_in(RESERVED_TAG, 0x55, 500, 100)]);
        let others = [command(6, 101, 501), command(7, 102, 501)];
        let unanswered = pinged().all(work(5, 100, 500)).all([others[0]]).wait(6).all([others[1]]);
        assert_eq!(unanswered.found(), [(Rule::M1, Side::Initiator, 3)]);
        let answer = nop_out(RESERVED_TAG, 0x55, 100, 500);
        let answered = pinged().all([answer]).all(work(5, 100, 500)).all([others[0]]).wait(6);
        assert_eq!(answered.all([others[1]]).found(), []);
        let with_hole = pinged().all(work(5, 100, 500)).all([others[0]]).hole().wait(6);
        assert_eq!(with_hole.all([others[1]]).found(), []);
        let closed = |side| pinged().all(work(5, 100, 500)).all([others[0]]).wait(2).closed_by(side).found();
        assert_eq!(closed(Side::Target), [(Rule::M1, Side::Initiator, 3)]);
        assert_eq!(closed(Side::Initiator), []);
        // one that asks for no answer
        let silent = Talk::logged_in(0).all([nop_in(RESERVED_TAG, RESERVED_TAG, 500, 100)]);
        assert_eq!(silent.all(work(5, 100, 500)).all([others[0]]).wait(6).all([others[1]]).found(), []);
    }

    #[test]
    fn the_answer_to_a_nop_in_has_its_lun() {
        let answered = |lun| {
            let ping = nop_in(RESERVED_TAG, 0x55, 500, 100).lun(LUN);
            Talk::logged_in(0).all([ping, nop_out(RESERVED_TAG, 0x55, 100, 500).lun(lun)]).found()
        };
        assert_eq!(answered(LUN), []);
        assert_eq!(answered([0; 8]), [(Rule::T6, Side::Initiator, 4)]);
    }

    #[test]
    fn tasks_that_a_reset_ends_are_not_answered_behind_its_response() {
        let asked =
            || Talk::logged_in(0).all([command(5, 100, 500), command(6, 101, 500), function(5, 9, RESERVED_TAG, 102)]);
        let late = asked().all([function_response(0, 9, 500, 102), status(5, 0, 501, 102), status(6, 0, 502, 102)]);
        assert_eq!(late.found(), [(Rule::M3, Side::Target, 7), (Rule::M3, Side::Target, 8)]);
        let in_order = asked().all([status(5, 0, 500, 102), status(6, 0, 501, 102), function_response(0, 9, 502, 102)]);
        assert_eq!(in_order.found(), []);
        // one that did not end them
        let refused = asked().all([function_response(5, 9, 500, 102), status(5, 0, 501, 102), status(6, 0, 502, 102)]);
        assert_eq!(refused.found(), []);
        let with_hole = asked().all([function_response(0, 9, 500, 102)]).hole().all([status(5, 0, 501, 102)]);
        assert_eq!(with_hole.found(), []);
    }

    #[test]
    fn a_reset_ends_the_tasks_of_its_unit_that_came_before_it() {
        let other = command(5, 100, 500).lun([0, 2, 0, 0, 0, 0, 0, 0]);
        let begun = Talk::logged_in(0).all([other, function(5, 9, RESERVED_TAG, 101), command(6, 101, 500)]);
        let answered = begun.all([function_response(0, 9, 500, 102), status(5, 0, 501, 102), status(6, 0, 502, 102)]);
        assert_eq!(answered.found(), []);
        // a new task with the tag of one that was ended
        let begun = Talk::logged_in(0).all([command(5, 100, 500), function(ABORT_TASK, 9, 5, 101)]);
        let again = begun.all([function_response(0, 9, 500, 101), command(5, 101, 501), status(5, 0, 501, 102)]);
        assert_eq!(again.found(), []);
    }

    #[test]
    fn a_task_that_was_received_and_not_answered_exists() {
        let asked = || Talk::logged_in(0).all([command(5, 100, 500), function(ABORT_TASK, 9, 5, 101)]);
        let denied = || asked().all([function_response(1, 9, 500, 101)]);
        assert_eq!(denied().all(work(6, 101, 501)).found(), [(Rule::M4, Side::Target, 5)]);
        // its status crossed the request
        let crossed = asked().all([status(5, 0, 500, 101), function_response(1, 9, 501, 101)]);
        assert_eq!(crossed.all(work(6, 101, 502)).found(), []);
        // it was not received
        let lost = asked().all([function_response(1, 9, 500, 100)]);
        assert_eq!(lost.all(work(6, 101, 501)).found(), []);
        // another initiator may have reset the unit: its next command tells
        let unit_attention = [command(6, 101, 501), status(6, 2, 501, 102)];
        assert_eq!(denied().all(unit_attention).all(work(7, 102, 502)).found(), []);
        assert_eq!(denied().found(), []);
        assert_eq!(denied().hole().all(work(6, 101, 501)).found(), []);
    }

    #[test]
    fn a_logout_is_answered_before_the_connection_is_closed() {
        let asked = || Talk::logged_in(0).all([logout(100, 500)]);
        assert_eq!(asked().wait(15).close().found(), [(Rule::M5, Side::Target, 3)]);
        // too soon to tell
        assert_eq!(asked().close().found(), []);
        assert_eq!(asked().hole().wait(15).close().found(), []);
        let answer = BhsBuilder::new(Opcode::LogoutResponse).is_final(true).initiator_task_tag(0x70);
        assert_eq!(asked().all([of_target(answer, 500, 100)]).wait(15).close().found(), []);
    }

    #[test]
    fn no_request_follows_a_logout() {
        let asked = || Talk::logged_in(0).all([command(5, 100, 500), logout(101, 500)]);
        assert_eq!(asked().all([command(6, 101, 500)]).found(), [(Rule::M9, Side::Initiator, 5)]);
        assert_eq!(asked().all([nop_out(7, RESERVED_TAG, 101, 500)]).found(), [(Rule::M9, Side::Initiator, 5)]);
        // no request, but an answer
        assert_eq!(asked().all([nop_out(RESERVED_TAG, 0x55, 101, 500)]).found(), []);
        assert_eq!(asked().hole().all([command(6, 101, 500)]).found(), []);
    }

    #[test]
    fn an_initiator_that_is_asked_to_log_out_does_so_in_time() {
        let message = BhsBuilder::new(Opcode::AsyncMessage).is_final(true).initiator_task_tag(RESERVED_TAG);
        let message = of_target(message.async_event(REQUESTS_LOGOUT).parameter3(3), 500, 100);
        let asked = || Talk::logged_in(0).all([message, command(5, 100, 501)]);
        assert_eq!(asked().wait(5).all([command(6, 101, 501)]).found(), [(Rule::M6, Side::Initiator, 3)]);
        assert_eq!(asked().all([command(6, 101, 501)]).found(), []);
        assert_eq!(asked().all([logout(101, 501)]).wait(5).close().found(), [(Rule::M5, Side::Target, 5)]);
        assert_eq!(asked().hole().wait(5).all([command(6, 101, 501)]).found(), []);
        // the target drops the connection then, or before
        assert_eq!(asked().wait(3).close().found(), [(Rule::M6, Side::Initiator, 3)]);
        assert_eq!(asked().wait(2).close().found(), []);
        assert_eq!(asked().wait(3).closed_by(Side::Initiator).found(), []);
    }

    #[test]
    fn a_function_is_answered_once_another_has_ended_its_tasks() {
        let asked = || Talk::logged_in(0).all([command(5, 100, 500), function(ABORT_TASK, 9, 5, 101)]);
        let reset = |lun: [u8; 8]| [function(5, 10, RESERVED_TAG, 101).lun(lun), function_response(0, 10, 500, 101)];
        let later = work(6, 101, 501);
        assert_eq!(asked().all(reset(LUN)).wait(6).all(later).found(), [(Rule::M10, Side::Target, 4)]);
        // its task may still run: another unit was reset, or none
        let other = [0, 2, 0, 0, 0, 0, 0, 0];
        assert_eq!(asked().all(reset(other)).wait(6).all(later).found(), []);
        assert_eq!(asked().wait(60).all(work(6, 101, 500)).found(), []);
        let answered = asked().all([function_response(0, 9, 500, 101)]);
        let [request, response] = reset(LUN);
        let response = response.stat_sn(SerialNumber(501));
        assert_eq!(answered.all([request, response]).wait(6).all(work(6, 101, 502)).found(), []);
        assert_eq!(asked().all(reset(LUN)).hole().wait(6).all(later).found(), []);
    }

    #[test]
    fn a_reject_is_for_a_pdu_that_breaks_a_rule() {
        let rejected = |reason, header: BhsBuilder| {
            let mut talk = Talk::logged_in(0).all([command(5, 100, 500), nop_out(9, RESERVED_TAG, 101, 500)]);
            let reject = BhsBuilder::new(Opcode::Reject).is_final(true).initiator_task_tag(RESERVED_TAG);
            talk.send(of_target(reject.reject_reason(reason), 500, 101), &header.build());
            talk.found()
        };
        let legal = [(Rule::M7, Side::Target, 5)];
        assert_eq!(rejected(4, nop_out(9, RESERVED_TAG, 101, 500)), legal);
        assert_eq!(rejected(9, command(5, 100, 500)), legal);
        // a digest may have been damaged behind the tap; resources are the target's own
        assert_eq!(rejected(2, command(5, 100, 500)), []);
        assert_eq!(rejected(6, nop_out(9, RESERVED_TAG, 101, 500)), []);
        // not a PDU that passed
        assert_eq!(rejected(4, nop_out(8, RESERVED_TAG, 101, 500)), []);
        assert_eq!(rejected(4, command(5, 99, 500)), []);
    }

    #[test]
    fn an_initiator_that_broke_a_rule_is_rejected_rightly() {
        // a tag of an open task
        let mut talk = Talk::logged_in(0).all([command(5, 100, 500), command(5, 101, 500)]);
        let reject = BhsBuilder::new(Opcode::Reject).is_final(true).initiator_task_tag(RESERVED_TAG);
        talk.send(of_target(reject.reject_reason(4), 500, 101), &command(5, 101, 500).build());
        assert_eq!(talk.found(), [(Rule::T1, Side::Initiator, 4)]);
    }

    #[test]
    fn a_snack_needs_recovery_and_what_was_sent() {
        let asked = |level, begin, length| {
            let header = BhsBuilder::new(Opcode::SnackRequest).is_final(true).snack_type(STATUS_SNACK);
            let header = header.initiator_task_tag(RESERVED_TAG).beg_run(SerialNumber(begin)).run_length(length);
            let talk = Talk::logged_in(level).all(work(5, 100, 500));
            talk.all([header.exp_stat_sn(SerialNumber(500))]).found()
        };
        let illegal = [(Rule::M8, Side::Initiator, 5)];
        assert_eq!(asked(0, 500, 1), illegal);
        assert_eq!(asked(1, 500, 1), []);
        assert_eq!(asked(1, 500, 0), []);
        assert_eq!(asked(1, 500, 2), illegal);
    }
}
