//! Task management: rules M3, M4 and M10.
//!
//! Which tasks a function ends is known from its response; a task that the target denies exists if its next command shows that
//! nobody else reset the unit.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::management::{ABORT_TASK, FUNCTION_COMPLETE, TASK_DOES_NOT_EXIST};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use iscsitrace_wire::status::Status;
use serde::{Deserialize, Serialize};

use super::pings::{KEPT, push};
use super::rules::{Rule, Side};
use super::sight::{Sight, UNANSWERED_NS};
use super::task::OpenTask;
use super::tasks::Open;
use super::violations::Found;
use crate::stream::stamp::Stamp;
use crate::tables::CycleId;

/// Tasks that a function ended: as many as a reset may end at once.
const ENDED_KEPT: usize = 1 << 10;

/// Functions for the tasks of a logical unit: ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET.
const OF_UNIT: [u8; 3] = [2, 4, 5];
/// Functions for all tasks: TARGET WARM RESET, TARGET COLD RESET.
const OF_TARGET: [u8; 2] = [6, 7];
/// Commands that a unit attention leaves alone: INQUIRY, REPORT LUNS, REQUEST SENSE.
const WITHOUT_UNIT_ATTENTION: [u8; 3] = [0x12, 0xa0, 0x03];

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

/// The functions without a response, and the tasks of those that have one.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Management {
    functions: Vec<Function>,
    /// Tasks that a function ended.
    ended: Vec<(u32, CycleId)>,
    denied: Vec<Denied>,
}

impl Management {
    pub(super) fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.ended.is_empty() && self.denied.is_empty()
    }

    /// The header of a SCSI Command: a task of its tag is another one from now on.
    pub(super) fn command(&mut self, tag: u32, cmd_sn: SerialNumber, bhs: Bhs<'_>) {
        self.ended.retain(|&(ended, _)| ended != tag);
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

    /// A Task Management Function Request.
    pub(super) fn request(&mut self, bhs: Bhs<'_>, at: Stamp) {
        if let (Some(tag), Some(code), Some(cmd_sn)) = (bhs.initiator_task_tag(), bhs.function(), bhs.cmd_sn()) {
            let (referenced, lun) = (bhs.referenced_task_tag(), bhs.lun());
            let function = Function { tag, code, referenced, lun, cmd_sn, at, is_over_since_ns: None };
            push(&mut self.functions, function, KEPT);
        }
    }

    /// Its response; tasks before `doubtful_until` may have ended without a status of their own.
    pub(super) fn response(
        &mut self,
        bhs: Bhs<'_>,
        at: Stamp,
        doubtful_until: Option<SerialNumber>,
        tasks: &mut Open<'_>,
        sight: &mut Sight<'_>,
    ) {
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
        let aborted = referenced.and_then(|tag| tasks.task(tag)).filter(|task| function.ends(task));
        match bhs.response() {
            Some(FUNCTION_COMPLETE) => {
                let ended = match function.reset() {
                    Some(lun) => tasks.reset(lun, |task| function.ends(task)),
                    None => aborted.into_iter().collect(),
                };
                ended.iter().for_each(|task| push(&mut self.ended, (task.tag, task.cycle), ENDED_KEPT));
            }
            Some(TASK_DOES_NOT_EXIST) if function.code == ABORT_TASK && sight.agreed.is_alone => {
                let has_reset = self.functions.iter().any(|function| function.code != ABORT_TASK);
                if let Some(OpenTask { tag, cycle, lun, cmd_sn }) = aborted {
                    // what an initiator in fault sent, its target may rightly not know
                    let is_doubtful = has_reset
                        || sight.has_accused(Side::Initiator)
                        || self.ended.contains(&(tag, cycle))
                        || doubtful_until.is_some_and(|until| until.is_after(cmd_sn));
                    if exp_cmd_sn.is_after(cmd_sn) && !is_doubtful {
                        push(&mut self.denied, Denied { tag, cycle, lun, at, exp_cmd_sn, probe: None }, KEPT);
                    }
                }
            }
            _ => {}
        }
    }

    /// The target rejected the request with this tag.
    pub(super) fn rejected(&mut self, tag: Option<u32>) {
        self.functions.retain(|function| Some(function.tag) != tag);
    }

    /// Tasks may have ended without a status: that one does not exist may be right.
    pub(super) fn doubt(&mut self) {
        self.denied.clear();
    }

    /// A PDU of the target.
    pub(super) fn wait(&mut self, bhs: Bhs<'_>, opcode: Opcode, at: Stamp, sight: &mut Sight<'_>) {
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
        if let Some(place) = self.ended.iter().position(|&(ended, _)| ended == tag) {
            let (tag, cycle) = self.ended.swap_remove(place);
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
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::{BhsBuilder, RESERVED_TAG};

    use super::super::tests::*;
    use super::*;

    fn function(code: u8, tag: u32, referenced: u32, cmd_sn: u32) -> BhsBuilder {
        let header = BhsBuilder::new(Opcode::TaskManagementRequest).is_immediate(true).is_final(true).function(code);
        let header = header.lun(LUN).initiator_task_tag(tag).referenced_task_tag(referenced);
        of_initiator(header, cmd_sn, 500)
    }

    fn function_response(response: u8, tag: u32, stat_sn: u32, exp_cmd_sn: u32) -> BhsBuilder {
        let header = BhsBuilder::new(Opcode::TaskManagementResponse).is_final(true).initiator_task_tag(tag);
        of_target(header.response(response), stat_sn, exp_cmd_sn)
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
}
