//! CmdSN, StatSN and what acknowledges them (RFC 7143 section 4.2.2): rules S1 to S13.
//!
//! A number that comes first since the start, or since the last hole, is the baseline.

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use super::rules::{Rule, Side};
use super::sight::{SETTLED_NS, Sight};
use super::violations::Found;
use crate::iscsi::ranges::NEAR;
use crate::stream::stamp::Stamp;

/// After so long without a command, where one came within [`SETTLED_NS`] of the other, an initiator has stopped.
const STOPPED_NS: i64 = 10 * SETTLED_NS;
/// CmdSN whose tags are kept: two lines of a processor's cache.
const TAGS_KEPT: usize = 16;
/// An ExpStatSN that lags by so many statuses does not follow them: no queue is so deep.
const LAG_MAX: i32 = 4096;

/// A CmdSN that was not sent so far, while later ones were.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Skipped {
    number: SerialNumber,
    next: SerialNumber,
    at: Stamp,
    is_behind_immediate: bool,
}

/// ExpCmdSN and MaxCmdSN that an initiator ignores.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Ignored {
    /// The PDU with them.
    at: Stamp,
    /// MaxCmdSN as an initiator keeps it that does not ignore them.
    max: SerialNumber,
}

/// CmdSN and tag of the latest PDUs that are not immediate: a ring.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Tags([(SerialNumber, u32); TAGS_KEPT]);

impl Default for Tags {
    fn default() -> Self {
        Self([(SerialNumber::default(), RESERVED_TAG); TAGS_KEPT])
    }
}

impl Tags {
    fn note(&mut self, number: SerialNumber, tag: u32) {
        self.0[number.0 as usize % TAGS_KEPT] = (number, tag);
    }

    /// The tag of the PDU that had a number.
    fn of(&self, number: SerialNumber) -> Option<u32> {
        let (noted, tag) = self.0[number.0 as usize % TAGS_KEPT];
        (noted == number && tag != RESERVED_TAG).then_some(tag)
    }
}

/// The numbers of a connection since the last hole. What most PDUs need is in its first two cache lines, in this order.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[repr(C)]
pub(super) struct Numbers {
    next_cmd: Option<SerialNumber>,
    /// The CmdSN of the last immediate PDU, if no other came after it.
    immediate: Option<SerialNumber>,
    /// The last ExpCmdSN.
    exp_cmd: Option<SerialNumber>,
    /// The highest ExpCmdSN, and the PDU that said it.
    exp_cmd_max: Option<SerialNumber>,
    exp_cmd_max_by: Stamp,
    /// MaxCmdSN as an initiator keeps it: a lower one is ignored.
    max_cmd: Option<SerialNumber>,
    /// The same, and the next StatSN, by headers whose PDUs are not complete.
    max_cmd_said: Option<SerialNumber>,
    next_stat_said: Option<SerialNumber>,
    /// The latest command that is not immediate.
    commanded_ns: Option<i64>,
    next_stat: Option<SerialNumber>,
    exp_stat_max: Option<SerialNumber>,
    skipped: Option<Box<Skipped>>,
    /// Numbers that an initiator ignores, the first since the latest command.
    ignored: Option<Box<Ignored>>,
    /// PDUs since the last status that carry the next StatSN without using it.
    carriers: u32,
    /// Whether the latest command came soon after the one before it.
    is_busy: bool,
    is_lagging: bool,
    is_frozen: bool,
    /// The first StatSN since the last hole.
    first_stat: Option<SerialNumber>,
    tags: Tags,
}

impl Numbers {
    /// The StatSN that is next, by the PDUs so far.
    pub(super) fn next_stat(&self) -> Option<SerialNumber> {
        self.next_stat
    }

    /// The same, by headers whose PDUs are not complete.
    pub(super) fn next_stat_said(&self) -> Option<SerialNumber> {
        self.next_stat_said
    }

    /// A header of the target.
    #[inline]
    pub(super) fn said(&mut self, bhs: Bhs<'_>) {
        self.max_cmd_said = bhs.max_cmd_sn();
        if let Some(stat_sn) = bhs.stat_sn().filter(|_| bhs.uses_stat_sn()) {
            self.next_stat_said = Some(stat_sn.next());
        }
    }

    /// A PDU of the initiator.
    #[inline]
    pub(super) fn of_initiator(&mut self, bhs: Bhs<'_>, opcode: Opcode, at: Stamp, sight: &mut Sight<'_>) {
        let found = |rule| Found::new(rule, Side::Initiator, at);
        if let Some(exp_stat) = bhs.exp_stat_sn().filter(|_| opcode != Opcode::LoginRequest) {
            self.exp_stat(exp_stat, at, sight);
        }
        let Some(cmd_sn) = bhs.cmd_sn() else { return };
        if opcode == Opcode::LoginRequest {
            // all of a login have one CmdSN, which the first command takes (RFC 7143 section 11.12.9)
            self.next_cmd = Some(cmd_sn);
            return;
        }
        if bhs.is_immediate() != Some(false) {
            self.next_cmd.get_or_insert(cmd_sn);
            self.immediate = Some(cmd_sn);
            return;
        }
        let tag = bhs.initiator_task_tag().unwrap_or(RESERVED_TAG);
        if let Some(max) = self.max_cmd
            && sight.is_whole
            && sight.agreed.is_alone
            && cmd_sn.is_after(max)
            && self.max_cmd_said.is_none_or(|said| cmd_sn.is_after(said))
        {
            sight.report(found(Rule::S3).seen(cmd_sn.0, max.0));
        }
        let next = *self.next_cmd.get_or_insert(cmd_sn);
        let distance = cmd_sn.distance(next);
        if let Some(said) = self.exp_cmd_max
            && distance == 0
            && said.is_after(cmd_sn)
        {
            sight.report(Found::new(Rule::S5, Side::Target, self.exp_cmd_max_by).seen(said.0, cmd_sn.0));
            // said once: what follows from it is no violation of its own
            self.exp_cmd_max = None;
        }
        if distance < 0 {
            if distance > -NEAR {
                self.again(cmd_sn, tag, at, sight);
            }
            return;
        }
        if distance > 0 && distance < NEAR && self.skipped.is_none() {
            let is_behind_immediate = distance == 1 && self.immediate == Some(next);
            self.skipped = Some(Box::new(Skipped { number: next, next: cmd_sn, at, is_behind_immediate }));
        }
        self.tags.note(cmd_sn, tag);
        self.next_cmd = Some(cmd_sn.next());
        self.immediate = None;
        self.is_busy = self.commanded_ns.is_some_and(|before_ns| at.time_ns.saturating_sub(before_ns) <= SETTLED_NS);
        self.commanded_ns = Some(at.time_ns);
        self.is_frozen = false;
    }

    /// A CmdSN behind the next one: a retry, one that was skipped, or a second task.
    #[cold]
    fn again(&mut self, cmd_sn: SerialNumber, tag: u32, at: Stamp, sight: &mut Sight<'_>) {
        if self.skipped.as_ref().is_some_and(|skipped| skipped.number == cmd_sn) {
            self.skipped = None;
            return;
        }
        if let (Some(other), Some(next)) = (self.tags.of(cmd_sn), self.next_cmd)
            && other != tag
            && sight.agreed.is_alone
        {
            sight.report(Found::new(Rule::S2, Side::Initiator, at).seen(cmd_sn.0, next.0));
        }
    }

    #[inline]
    fn exp_stat(&mut self, exp_stat: SerialNumber, at: Stamp, sight: &mut Sight<'_>) {
        let found = |expected: SerialNumber| Found::new(Rule::S12, Side::Initiator, at).seen(exp_stat.0, expected.0);
        let max = *self.exp_stat_max.get_or_insert(exp_stat);
        if exp_stat.is_before(max) {
            sight.report(found(max));
            return;
        }
        self.exp_stat_max = Some(exp_stat);
        let Some(next) = self.next_stat else { return };
        if exp_stat.is_after(next) && self.next_stat_said.is_none_or(|said| exp_stat.is_after(said)) {
            sight.report(found(next));
            // it may be right, and the target wrong
            self.next_stat = None;
        } else if next.distance(exp_stat) > LAG_MAX && !self.is_lagging {
            self.is_lagging = true;
            sight.report(Found::new(Rule::S13, Side::Initiator, at).seen(exp_stat.0, next.0));
        }
    }

    /// A PDU of the target.
    #[inline]
    pub(super) fn of_target(&mut self, bhs: Bhs<'_>, opcode: Opcode, at: Stamp, sight: &mut Sight<'_>) {
        if let (Some(exp), Some(max)) = (bhs.exp_cmd_sn(), bhs.max_cmd_sn()) {
            if opcode == Opcode::LoginResponse {
                self.raise(max);
            } else {
                self.window(exp, max, at, sight);
            }
        }
        self.stat(bhs, at, sight);
    }

    /// MaxCmdSN as an initiator keeps it.
    fn raise(&mut self, max: SerialNumber) {
        if self.max_cmd.is_none_or(|known| !max.is_before(known)) {
            self.max_cmd = Some(max);
        }
        if let Some(ignored) = &mut self.ignored
            && max.is_after(ignored.max)
        {
            ignored.max = max;
        }
    }

    /// Numbers that an initiator ignores.
    #[cold]
    fn ignore(&mut self, max: SerialNumber, at: Stamp) {
        let earlier = self.ignored.as_deref().map(|ignored| ignored.at);
        let at = earlier.filter(|earlier| self.commanded_ns <= Some(earlier.time_ns)).unwrap_or(at);
        self.ignored = Some(Box::new(Ignored { at, max }));
    }

    #[inline]
    fn window(&mut self, exp: SerialNumber, max: SerialNumber, at: Stamp, sight: &mut Sight<'_>) {
        let found = |rule, seen: SerialNumber, expected: SerialNumber| {
            Found::new(rule, Side::Target, at).seen(seen.0, expected.0)
        };
        let least = SerialNumber(exp.0.wrapping_sub(1));
        if max.is_before(least) {
            sight.report(found(Rule::S7, max, least));
            self.ignore(max, at);
        } else {
            self.raise(max);
        }
        let last = *self.exp_cmd.get_or_insert(exp);
        if exp.is_before(last) {
            sight.report(found(Rule::S6, exp, last));
            self.ignore(max, at);
        } else {
            self.exp_cmd = Some(exp);
        }
        if self.exp_cmd_max.is_none_or(|said| exp.is_after(said)) {
            (self.exp_cmd_max, self.exp_cmd_max_by) = (Some(exp), at);
            if let Some(next) = self.next_cmd
                && sight.is_whole
                && sight.agreed.is_alone
                && exp.is_after(next)
            {
                sight.report(found(Rule::S5, exp, next));
                self.exp_cmd_max = None;
            }
        }
        self.settle(at, sight);
    }

    /// What takes time to be certain.
    #[inline]
    fn settle(&mut self, at: Stamp, sight: &mut Sight<'_>) {
        if let Some(skipped) = self.skipped.as_deref().copied() {
            if self.exp_cmd.is_some_and(|exp| exp.is_after(skipped.number)) {
                // another connection of the session had it
                self.skipped = None;
            } else if self.exp_cmd == Some(skipped.number)
                && at.time_ns.saturating_sub(skipped.at.time_ns) >= SETTLED_NS
            {
                let rule = if skipped.is_behind_immediate { Rule::S4 } else { Rule::S1 };
                let found = Found::new(rule, Side::Initiator, skipped.at);
                sight.report(found.seen(skipped.next.0, skipped.number.0));
                self.skipped = None;
            }
        }
        if let (Some(next), Some(max), Some(commanded_ns)) = (self.next_cmd, self.max_cmd, self.commanded_ns)
            && !self.is_frozen
            && (self.ignored.is_some() || next.is_after(max))
        {
            let silent_ns = at.time_ns.saturating_sub(commanded_ns);
            let is_closed = next.is_after(max);
            let by = match self.ignored.as_deref().copied() {
                Some(ignored) if is_closed && silent_ns >= SETTLED_NS => Some((ignored.at, max)),
                // some initiators take such numbers
                Some(Ignored { at, max })
                    if silent_ns >= STOPPED_NS && at.time_ns >= commanded_ns && self.is_busy && next.is_after(max) =>
                {
                    Some((at, max))
                }
                // the target has no task that it could be busy with
                _ if is_closed && silent_ns >= STOPPED_NS && sight.is_idle && sight.is_whole => Some((at, max)),
                _ => None,
            };
            if let Some((by, max)) = by {
                self.is_frozen = true;
                sight.report(Found::new(Rule::S8, Side::Target, by).seen(next.0, max.0));
            }
        }
    }

    #[inline]
    fn stat(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let Some(stat_sn) = bhs.stat_sn() else { return };
        if !bhs.uses_stat_sn() {
            self.carriers += 1;
            return;
        }
        let next = *self.next_stat.get_or_insert_with(|| {
            self.first_stat.get_or_insert(stat_sn);
            stat_sn
        });
        let distance = stat_sn.distance(next);
        let found = |rule| Found::new(rule, Side::Target, at).seen(stat_sn.0, next.0);
        if distance > 0 {
            let is_of_carriers = u32::try_from(distance).is_ok_and(|ahead| ahead <= self.carriers);
            sight.report(found(if is_of_carriers { Rule::S11 } else { Rule::S9 }));
            self.next_stat = Some(stat_sn.next());
        } else if distance == 0 {
            self.next_stat = Some(stat_sn.next());
        } else if self.first_stat.is_some_and(|first| !stat_sn.is_before(first)) && !sight.is_recovering {
            sight.report(found(Rule::S10));
        }
        self.carriers = 0;
    }
}
