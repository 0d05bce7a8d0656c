//! NOPs that ask for an answer: rules M1 and M2, and T6 for the LUN of an answer.
//!
//! A request counts as received once its receiver acknowledged, in its own stream, something that was sent behind it. From
//! then on an answer that is missing is judged at later PDUs of the receiver, or where it closes the connection in order: never
//! at the mere end of a capture.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use super::rules::{Rule, Side};
use super::sight::{Ended, SETTLED_NS, Sight, UNANSWERED_NS};
use super::violations::Found;
use crate::stream::stamp::Stamp;

/// Requests of a kind that are kept.
pub(super) const KEPT: usize = 64;

/// Keeps a value where there is room.
pub(super) fn push<T>(kept: &mut Vec<T>, new: T, most: usize) {
    if kept.len() < most {
        kept.push(new);
    }
}

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
pub(super) struct Receipt {
    /// A number behind this one acknowledges something that was sent later.
    number: SerialNumber,
    /// When that was acknowledged.
    pub(super) received_ns: Option<i64>,
}

impl Receipt {
    /// That of a request to come.
    pub(super) fn new(number: SerialNumber) -> Self {
        Self { number, received_ns: None }
    }

    /// Its receiver said this number. Returns whether the request has been there for so long.
    pub(super) fn note(&mut self, said: SerialNumber, at: Stamp, for_ns: i64) -> bool {
        if self.received_ns.is_none() && said.is_after(self.number) {
            self.received_ns = Some(at.time_ns);
        }
        self.received_ns.is_some_and(|received_ns| at.time_ns.saturating_sub(received_ns) >= for_ns)
    }
}

/// The NOPs that wait for an answer.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Pings {
    /// By the side that asks.
    of: [Vec<Ping>; 2],
}

impl Pings {
    pub(super) fn is_empty(&self) -> bool {
        self.of.iter().all(Vec::is_empty)
    }

    /// A side asks for an answer under this tag; a number behind `number` acknowledges what it sends later.
    pub(super) fn ask(&mut self, side: Side, tag: u32, number: SerialNumber, bhs: Bhs<'_>, at: Stamp) {
        push(&mut self.of[side as usize], Ping { tag, lun: bhs.lun(), at, receipt: Receipt::new(number) }, KEPT);
    }

    /// The initiator answers a NOP-In.
    pub(super) fn answered_by_initiator(&mut self, tag: u32, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let pings = &mut self.of[Side::Target as usize];
        if let Some(place) = pings.iter().position(|ping| ping.tag == tag) {
            let ping = pings.swap_remove(place);
            if ping.lun != bhs.lun() {
                sight.report(Found::new(Rule::T6, Side::Initiator, at));
            }
        }
    }

    /// Whether a NOP-Out with this tag waits.
    pub(super) fn has(&self, tag: Option<u32>) -> bool {
        self.of[Side::Initiator as usize].iter().any(|ping| Some(ping.tag) == tag)
    }

    /// The target answered or rejected a NOP-Out.
    pub(super) fn settle(&mut self, tag: Option<u32>) {
        self.of[Side::Initiator as usize].retain(|ping| Some(ping.tag) != tag);
    }

    /// A side said this number in another PDU: requests that it received, and did not answer since.
    pub(super) fn said(&mut self, side: Side, said: SerialNumber, at: Stamp, sight: &mut Sight<'_>) {
        let (asker, rule) = asker_and_rule(side);
        self.of[asker as usize].retain_mut(|ping| {
            let is_unanswered = ping.receipt.note(said, at, UNANSWERED_NS);
            if is_unanswered {
                sight.report(Found::new(rule, side, ping.at).only_seen(ping.tag));
            }
            !is_unanswered
        });
    }

    /// The end of the connection: who asked waited no longer.
    pub(super) fn finish(&self, ended: Ended, sight: &mut Sight<'_>) {
        for side in [Side::Target, Side::Initiator] {
            let (asker, rule) = asker_and_rule(side);
            for ping in &self.of[asker as usize] {
                let received_ns = ping.receipt.received_ns;
                if received_ns.is_some_and(|since_ns| ended.waited_ns(asker, since_ns) >= Some(SETTLED_NS)) {
                    sight.report(Found::new(rule, side, ping.at).only_seen(ping.tag));
                }
            }
        }
    }
}

/// Who asks this side, and the rule that it breaks without an answer.
fn asker_and_rule(side: Side) -> (Side, Rule) {
    match side {
        Side::Initiator => (Side::Target, Rule::M1),
        Side::Target => (Side::Initiator, Rule::M2),
    }
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::RESERVED_TAG;

    use super::super::tests::*;
    use super::*;

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
}
