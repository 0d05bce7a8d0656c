//! NOPs, task management, logouts, asynchronous messages, Rejects and SNACKs: rules M1 to M10. NOPs are `pings`, tasks that
//! a function ends `management`.
//!
//! What waits for later PDUs exists only as long as anything does: most connections never have it.

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::management::{CLOSE_CONNECTION, CLOSE_SESSION};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::reject::RejectReason;
use iscsitrace_wire::serial::SerialNumber;
use iscsitrace_wire::status::Status;
use serde::{Deserialize, Serialize};

use super::management::Management;
use super::numbers::Numbers;
use super::pings::{Pings, Receipt};
use super::rules::{Rule, Side};
use super::sight::{Ended, SETTLED_NS, Sight, UNANSWERED_NS};
use super::tasks::Open;
use super::violations::Found;
use crate::stream::stamp::Stamp;

/// A message may pass the tap so much later behind others than the close that follows it.
const DELAY_NS: i64 = 100_000_000;
/// The target asks for a logout (RFC 7143 section 11.9.1).
const REQUESTS_LOGOUT: u8 = 1;
/// Types of SNACK (RFC 7143 section 11.16.1).
const STATUS_SNACK: u8 = 1;

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

/// What waits for later PDUs.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Waiting {
    pings: Pings,
    management: Management,
    logout: Option<Stamp>,
    asked: Option<Asked>,
}

/// The exchanges of a connection since the last hole.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Exchanges {
    waiting: Option<Box<Waiting>>,
    /// Tasks before this number may have ended without a status of their own.
    doubtful_until: Option<SerialNumber>,
    cid: Option<u16>,
}

impl Exchanges {
    /// The header of a SCSI Command.
    #[inline]
    pub(super) fn command(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        if let Some(waiting) = &mut self.waiting {
            waiting.command(bhs, at, sight);
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
        parts: (&Numbers, &mut Open<'_>),
        sight: &mut Sight<'_>,
    ) {
        match opcode {
            Opcode::ScsiCommand | Opcode::DataOut | Opcode::DataIn | Opcode::ReadyToTransfer => {}
            Opcode::LoginResponse | Opcode::TextResponse => {}
            Opcode::LoginRequest => *self = Self { cid: bhs.cid(), ..Self::default() },
            Opcode::ScsiResponse if bhs.status() == Some(Status::Good as u8) => {}
            _ => self.exchange(bhs, data, opcode, at, parts, sight),
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.wait(bhs, opcode, at, sight);
        }
    }

    #[cold]
    fn exchange(
        &mut self,
        bhs: Bhs<'_>,
        data: &[u8],
        opcode: Opcode,
        at: Stamp,
        (numbers, tasks): (&Numbers, &mut Open<'_>),
        sight: &mut Sight<'_>,
    ) {
        let mut waiting = self.waiting.take().unwrap_or_default();
        match opcode {
            Opcode::NopOut => waiting.nop_out(bhs, at, sight),
            Opcode::NopIn => waiting.nop_in(bhs, at, numbers),
            Opcode::TaskManagementRequest => {
                waiting.request(at, sight);
                waiting.management.request(bhs, at);
            }
            Opcode::TaskManagementResponse => {
                waiting.management.response(bhs, at, self.doubtful_until, tasks, sight);
            }
            Opcode::TextRequest => waiting.request(at, sight),
            Opcode::LogoutRequest => {
                let is_own = match bhs.logout_reason() {
                    Some(CLOSE_SESSION) => true,
                    Some(CLOSE_CONNECTION) => self.cid.is_some() && bhs.cid() == self.cid,
                    _ => false,
                };
                waiting.asked = None;
                if is_own {
                    waiting.logout.get_or_insert(at);
                }
            }
            Opcode::LogoutResponse => waiting.logout = None,
            Opcode::Reject => waiting.reject(bhs, Bhs::new(data), at, tasks, sight),
            Opcode::SnackRequest => snack(bhs, at, numbers, sight),
            Opcode::AsyncMessage if bhs.async_event() == Some(REQUESTS_LOGOUT) => {
                waiting.asked_to_log_out(bhs, at, sight)
            }
            _ => {}
        }
        // a unit attention may be among the reasons
        if matches!(opcode, Opcode::Reject | Opcode::ScsiResponse)
            || (opcode == Opcode::AsyncMessage && bhs.async_event() != Some(REQUESTS_LOGOUT))
        {
            // tasks that the target had by now may have ended without a status
            self.doubtful_until = bhs.exp_cmd_sn().or(self.doubtful_until);
            waiting.management.doubt();
        }
        self.waiting = Some(waiting).filter(|waiting| !waiting.is_over());
    }

    /// The end of the connection.
    pub(super) fn finish(&self, ended: Ended, sight: &mut Sight<'_>) {
        if let Some(waiting) = &self.waiting {
            waiting.finish(ended, sight);
        }
    }
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.pings.is_empty() && self.management.is_empty() && self.logout.is_none() && self.asked.is_none()
    }

    #[cold]
    fn command(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let (Some(tag), Some(cmd_sn)) = (bhs.initiator_task_tag(), bhs.cmd_sn()) else { return };
        self.request(at, sight);
        self.management.command(tag, cmd_sn, bhs);
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
            self.pings.answered_by_initiator(answered, bhs, at, sight);
            return;
        }
        self.request(at, sight);
        if let Some(number) = bhs.cmd_sn().filter(|_| tag != RESERVED_TAG) {
            self.pings.ask(Side::Initiator, tag, number, bhs, at);
        }
    }

    fn nop_in(&mut self, bhs: Bhs<'_>, at: Stamp, numbers: &Numbers) {
        let (Some(answered), Some(tag)) = (bhs.initiator_task_tag(), bhs.target_transfer_tag()) else { return };
        if answered != RESERVED_TAG {
            self.pings.settle(Some(answered));
        } else if let Some(number) = numbers.next_stat().filter(|_| tag != RESERVED_TAG) {
            self.pings.ask(Side::Target, tag, number, bhs, at);
        }
    }

    fn asked_to_log_out(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &Sight<'_>) {
        if let (Some(number), Some(seconds)) = (bhs.stat_sn(), bhs.parameter3())
            && sight.agreed.is_alone
            && self.logout.is_none()
            && seconds > 0
        {
            self.asked = Some(Asked { at, seconds, receipt: Receipt::new(number) });
        }
    }

    /// M7: a Reject of a PDU that is as it must be, as far as this can be judged.
    fn reject(&mut self, bhs: Bhs<'_>, rejected: Bhs<'_>, at: Stamp, tasks: &Open<'_>, sight: &mut Sight<'_>) {
        let reasons = [RejectReason::ProtocolError, RejectReason::CommandNotSupported, RejectReason::InvalidPduField];
        let is_of_format = bhs.reject_reason().is_some_and(|code| reasons.iter().any(|reason| reason.as_u8() == code));
        let tag = rejected.initiator_task_tag();
        let is_known = match rejected.opcode() {
            Some(Opcode::ScsiCommand) => {
                let is_plain = rejected.total_ahs_length_bytes() == Some(0)
                    && (rejected.is_read(), rejected.is_write()) != (Some(true), Some(true));
                is_plain
                    && tag.and_then(|tag| tasks.task(tag)).is_some_and(|task| rejected.cmd_sn() == Some(task.cmd_sn))
            }
            Some(Opcode::NopOut) => self.pings.has(tag),
            _ => false,
        };
        self.pings.settle(tag);
        self.management.rejected(tag);
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
            self.pings.said(Side::Initiator, said, at, sight);
            if let Some(asked) = &mut self.asked
                && asked.receipt.note(said, at, asked.period_ns() + SETTLED_NS)
            {
                sight.report(asked.missed());
                self.asked = None;
            }
            return;
        }
        if let Some(said) = bhs.exp_cmd_sn().filter(|_| sight.agreed.is_alone) {
            self.pings.said(Side::Target, said, at, sight);
        }
        self.management.wait(bhs, opcode, at, sight);
    }

    fn finish(&self, ended: Ended, sight: &mut Sight<'_>) {
        if let Some(logout) = self.logout
            && let Some(waited_ns) = ended.waited_ns(Side::Target, logout.time_ns)
            && waited_ns >= UNANSWERED_NS
        {
            sight.report(Found::new(Rule::M5, Side::Target, logout).only_seen(waited_ns.unsigned_abs()));
        }
        self.pings.finish(ended, sight);
        let closed_ns = |side: Side| ended.closed_ns[side as usize];
        if let Some(asked) = self.asked.filter(|asked| asked.receipt.received_ns.is_some())
            && closed_ns(Side::Initiator).is_none_or(|own_ns| closed_ns(Side::Target) <= Some(own_ns))
            && ended.waited_ns(Side::Target, asked.at.time_ns) >= Some(asked.period_ns() - DELAY_NS)
        {
            sight.report(asked.missed());
        }
    }
}

/// M8: a SNACK without recovery, or for statuses that were never sent.
fn snack(bhs: Bhs<'_>, at: Stamp, numbers: &Numbers, sight: &mut Sight<'_>) {
    let found = Found::new(Rule::M8, Side::Initiator, at);
    if sight.agreed.can_recover == Some(false) {
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

    fn logout(cmd_sn: u32, exp_stat_sn: u32) -> BhsBuilder {
        let header = BhsBuilder::new(Opcode::LogoutRequest).is_immediate(true).is_final(true).initiator_task_tag(0x70);
        of_initiator(header.logout_reason(CLOSE_SESSION), cmd_sn, exp_stat_sn)
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
