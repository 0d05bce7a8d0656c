//! Logins and text rounds: stages, unanswered keys, tags; rules L1, L4 and L6. L2, L3 and L7 are `keys`, L5 is
//! `iscsi/session/rivals`.
//!
//! A login is judged only from its first PDU on, without a hole. The pass keeps its keys.

use iscsitrace_wire::bhs::{Bhs, RESERVED_TAG};
use iscsitrace_wire::key::{OperationalKey, RESERVED_VALUES, ResultFunction};
use iscsitrace_wire::opcode::Opcode;
use serde::{Deserialize, Serialize};

use super::agreed::Agreed;
use super::rules::{Rule, Side};
use super::sight::Sight;
use super::violations::Found;
use crate::iscsi::login;
use crate::iscsi::pdu::Pdu;
use crate::stream::stamp::Stamp;

/// Text of one side in one login that is judged.
const TEXT_MAX: usize = 64 << 10;
/// NSG of the full feature phase (RFC 7143 section 11.12.3).
const FULL_FEATURE_PHASE: u8 = 3;

/// A Login Request without its response.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Request {
    tag: Option<u32>,
    stage: Option<u8>,
    next_stage: Option<u8>,
    is_transit: bool,
    is_continued: bool,
}

/// A text negotiation of the full feature phase.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct TextRound {
    tag: Option<u32>,
    is_final: bool,
    /// The Target Transfer Tag with which it goes on; none before its response.
    transfer_tag: Option<u32>,
}

/// A login of which all was seen so far.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Seen {
    /// The stage of the next request.
    stage: Option<u8>,
    tag: Option<u32>,
    request: Option<Request>,
    /// Whether the text of the initiator, of the target goes on in its next PDU.
    is_continued: [bool; 2],
    text_bytes: usize,
}

/// The login of a connection, and its text rounds.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Login {
    /// Until its end.
    seen: Option<Box<Seen>>,
    text: Option<Box<TextRound>>,
    /// Whether a request came.
    has_begun: bool,
}

impl Seen {
    /// The text of a PDU. Returns whether all of it was seen.
    fn text(&mut self, pdu: &Pdu<'_>, keys: &login::Login, side: Side, at: Stamp, sight: &mut Sight<'_>) -> bool {
        let (own, other) = (side as usize, 1 - side as usize);
        let length = pdu.bhs().data_segment_length().unwrap_or(0) as usize;
        if self.is_continued[other] && length > 0 && side == Side::Initiator {
            sight.report(Found::new(Rule::L6, side, at));
        }
        self.text_bytes += length;
        if pdu.data.len() < length || self.text_bytes > TEXT_MAX || keys.judged.is_cut {
            // it may have had any key
            return false;
        }
        self.is_continued[own] = pdu.bhs().is_continue() == Some(true);
        for &(rule, place) in &keys.judged.broken {
            sight.report(Found::new(rule, side, at).only_seen(place as u64));
        }
        if let Some((first, most)) = keys.judged.bursts_out_of_order() {
            sight.report(Found::new(Rule::L7, side, at).seen(first, most));
        }
        true
    }
}

impl Login {
    /// A Login or Text PDU, of which the pass knows the keys. Returns what was agreed, if it ends a login that was seen from its
    /// start.
    #[cold]
    pub(super) fn take(
        &mut self,
        pdu: &Pdu<'_>,
        opcode: Opcode,
        keys: &login::Login,
        sight: &mut Sight<'_>,
    ) -> Option<Agreed> {
        let (bhs, at) = (pdu.bhs(), pdu.first);
        match opcode {
            Opcode::LoginRequest => self.request(pdu, keys, at, sight),
            Opcode::LoginResponse => return self.response(pdu, keys, at, sight),
            Opcode::TextRequest => self.text_request(bhs, at, sight),
            Opcode::TextResponse => self.text_response(bhs, at, sight),
            _ => {}
        }
        None
    }

    fn request(&mut self, pdu: &Pdu<'_>, keys: &login::Login, at: Stamp, sight: &mut Sight<'_>) {
        let bhs = pdu.bhs();
        let found = |rule| Found::new(rule, Side::Initiator, at);
        let (tag, stage) = (bhs.initiator_task_tag(), bhs.current_stage());
        if !self.has_begun {
            self.has_begun = true;
            self.seen = sight.is_whole.then(|| Box::new(Seen { tag, ..Seen::default() }));
        }
        let Some(login) = &mut self.seen else { return };
        if tag != login.tag {
            sight.report(found(Rule::L6).seen(tag.unwrap_or(0), login.tag.unwrap_or(0)));
            login.tag = tag;
        }
        if let (Some(seen), Some(expected)) = (stage, login.stage)
            && seen != expected
        {
            sight.report(found(Rule::L1).seen(seen, expected));
        } else if let (Some(next), Some(stage)) = (bhs.next_stage(), stage)
            && next <= stage
        {
            // T asks to go on
            sight.report(found(Rule::L1).seen(next, if stage == 0 { 1_u8 } else { FULL_FEATURE_PHASE }));
        }
        login.stage = stage;
        login.request = Some(Request {
            tag,
            stage,
            next_stage: bhs.next_stage(),
            is_transit: bhs.is_transit() == Some(true),
            is_continued: bhs.is_continue() == Some(true),
        });
        if !login.text(pdu, keys, Side::Initiator, at, sight) {
            self.seen = None;
        }
    }

    fn response(&mut self, pdu: &Pdu<'_>, keys: &login::Login, at: Stamp, sight: &mut Sight<'_>) -> Option<Agreed> {
        let bhs = pdu.bhs();
        let found = |rule| Found::new(rule, Side::Target, at);
        if bhs.status_class() != Some(0) {
            // the login ends here
            self.seen = None;
            return None;
        }
        let login = self.seen.as_mut()?;
        let request = login.request.take()?;
        let (stage, next_stage) = (bhs.current_stage(), bhs.next_stage());
        if bhs.initiator_task_tag() != request.tag {
            sight.report(found(Rule::L6).seen(bhs.initiator_task_tag().unwrap_or(0), request.tag.unwrap_or(0)));
        }
        if let (Some(seen), Some(expected)) = (stage, request.stage)
            && seen != expected
        {
            sight.report(found(Rule::L1).seen(seen, expected));
        } else if let Some(next) = next_stage
            && (!request.is_transit || request.next_stage.is_some_and(|asked| next > asked))
        {
            // on to a stage for which the initiator did not ask
            sight.report(found(Rule::L1).seen(next, request.next_stage.or(request.stage).unwrap_or(0)));
        }
        if request.is_continued && bhs.data_segment_length().unwrap_or(0) > 0 {
            sight.report(found(Rule::L6));
        }
        if !login.text(pdu, keys, Side::Target, at, sight) {
            self.seen = None;
            return None;
        }
        login.stage = next_stage.or(request.stage);
        if next_stage != Some(FULL_FEATURE_PHASE) {
            return None;
        }
        self.seen = None;
        Some(end(keys, at, sight))
    }

    fn text_request(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let (Some(transfer_tag), Some(is_final)) = (bhs.target_transfer_tag(), bhs.is_final()) else { return };
        let tag = bhs.initiator_task_tag();
        if is_final && bhs.is_continue() == Some(true) {
            sight.report(Found::new(Rule::L6, Side::Initiator, at).only_seen(transfer_tag));
        }
        if transfer_tag != RESERVED_TAG && sight.is_whole {
            let is_of_round = |round: &&TextRound| round.tag == tag && round.transfer_tag == Some(transfer_tag);
            if self.text.as_deref().filter(is_of_round).is_none() {
                let expected = self.text.as_ref().and_then(|round| round.transfer_tag).unwrap_or(RESERVED_TAG);
                sight.report(Found::new(Rule::L6, Side::Initiator, at).seen(transfer_tag, expected));
            }
        }
        self.text = Some(Box::new(TextRound { tag, is_final, transfer_tag: None }));
    }

    fn text_response(&mut self, bhs: Bhs<'_>, at: Stamp, sight: &mut Sight<'_>) {
        let (Some(transfer_tag), Some(is_final)) = (bhs.target_transfer_tag(), bhs.is_final()) else { return };
        let Some(mut round) = self.text.take().filter(|round| round.tag == bhs.initiator_task_tag()) else { return };
        // a text that is over has no tag, one that goes on has one; the initiator must be done, too
        let is_tagged = transfer_tag != RESERVED_TAG;
        if is_final == is_tagged || (is_final && !round.is_final) {
            sight.report(Found::new(Rule::L6, Side::Target, at).only_seen(transfer_tag));
        }
        if !is_final {
            round.transfer_tag = Some(transfer_tag);
            self.text = Some(round);
        }
    }
}

/// What was agreed by the end of a login, and what must have been settled by then.
fn end(login: &login::Login, at: Stamp, sight: &mut Sight<'_>) -> Agreed {
    let mut agreed = Agreed::without_keys(login.is_further);
    let mut open = Vec::new();
    let (mut is_discovery, mut key_count) = (false, 0);
    for (number, offer) in login.negotiation.offers().enumerate() {
        key_count = number + 1;
        is_discovery |= offer.key == "SessionType" && offer.initiator == Some("Discovery");
        let Some(key) = OperationalKey::from_name(offer.key) else { continue };
        agreed.set(key, offer.initiator, offer.target);
        let (side, value) = match (offer.initiator, offer.target) {
            (Some(value), None) => (Side::Target, value),
            (None, Some(value)) => (Side::Initiator, value),
            _ => continue,
        };
        let needs_answer = match key.result_function() {
            ResultFunction::And => value != "No",
            ResultFunction::Or => value != "Yes",
            ResultFunction::Declare => false,
            _ => true,
        };
        if needs_answer && !RESERVED_VALUES.contains(&value) {
            open.push((number, key, side));
        }
    }
    for (number, key, side) in open {
        // the initiator had no request left to answer what came last
        let is_last = side == Side::Initiator && number + login.judged.new_keys >= key_count;
        if !is_discovery && !is_last {
            sight.report(Found::new(Rule::L4, side, at).only_seen(key as u64));
        }
    }
    agreed
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::BhsBuilder;

    use super::super::tests::*;
    use super::*;
    use iscsitrace_wire::serial::SerialNumber;

    const NAMES: &str = "InitiatorName=iqn.i|TargetName=iqn.t|SessionType=Normal|";

    fn bytes(text: &str) -> Vec<u8> {
        text.replace('|', "\0").into_bytes()
    }

    /// A login in one exchange: frames 1 and 2.
    fn exchanged(asked: &str, answered: &str) -> Vec<(Rule, Side, u64)> {
        let mut talk = Talk::default();
        talk.send(login_request(1, 3), &bytes(&format!("{NAMES}{asked}")));
        talk.send(login_response(1, 3, 499), &bytes(answered));
        talk.found()
    }

    #[test]
    fn a_target_chooses_from_the_list_that_it_was_offered() {
        assert_eq!(exchanged("HeaderDigest=CRC32C,None|", "HeaderDigest=CRC32C|"), []);
        assert_eq!(exchanged("HeaderDigest=CRC32C|", "HeaderDigest=None|"), [(Rule::L2, Side::Target, 2)]);
        assert_eq!(exchanged("HeaderDigest=CRC32C|", "HeaderDigest=Reject|"), []);
        assert_eq!(exchanged("DataDigest=None|", "DataDigest=CRC32C,None|"), [], "an offer of its own");
    }

    #[test]
    fn a_result_follows_from_the_offer() {
        let wrong = [(Rule::L3, Side::Target, 2)];
        for (asked, right, is_wrong) in [
            ("MaxBurstLength=65536|", "MaxBurstLength=4096|", "MaxBurstLength=131072|"),
            ("DefaultTime2Wait=5|", "DefaultTime2Wait=5|", "DefaultTime2Wait=2|"),
            ("ImmediateData=No|", "ImmediateData=No|", "ImmediateData=Yes|"),
            ("InitialR2T=Yes|", "InitialR2T=Yes|", "InitialR2T=No|"),
        ] {
            assert_eq!(exchanged(asked, right), [], "{right}");
            assert_eq!(exchanged(asked, is_wrong), wrong, "{is_wrong}");
        }
        assert_eq!(exchanged("InitialR2T=No|ImmediateData=Yes|", "InitialR2T=Yes|ImmediateData=No|"), []);
    }

    #[test]
    fn a_value_is_within_the_range_of_its_key() {
        assert_eq!(exchanged("MaxRecvDataSegmentLength=512|", "MaxRecvDataSegmentLength=16777215|"), []);
        assert_eq!(exchanged("MaxRecvDataSegmentLength=511|", ""), [(Rule::L3, Side::Initiator, 1)]);
        assert_eq!(exchanged("", "MaxRecvDataSegmentLength=16777216|"), [(Rule::L3, Side::Target, 2)]);
        assert_eq!(exchanged("InitialR2T=maybe|", "InitialR2T=Yes|"), [(Rule::L3, Side::Initiator, 1)]);
    }

    #[test]
    fn each_key_is_answered_once() {
        assert_eq!(exchanged("MaxConnections=4|", ""), [(Rule::L4, Side::Target, 2)]);
        assert_eq!(exchanged("MaxConnections=4|", "MaxConnections=Irrelevant|"), []);
        // only one result is possible, and declarations have no answer
        assert_eq!(exchanged("ImmediateData=No|InitialR2T=Yes|MaxRecvDataSegmentLength=8192|", ""), []);
        assert_eq!(exchanged("MaxBurstLength=512|MaxBurstLength=512|", "MaxBurstLength=512|").len(), 1);
        assert_eq!(exchanged("MaxBurstLength=Reject|", ""), [(Rule::L4, Side::Initiator, 1)]);
        // a key that was never sent to RFC 7143
        assert_eq!(exchanged("X-own=1|", ""), []);
        let mut talk = Talk::default();
        talk.send(login_request(1, 3), &bytes("InitiatorName=iqn.i|SessionType=Discovery|MaxConnections=4|"));
        talk.send(login_response(1, 3, 499), b"");
        assert_eq!(talk.found(), [], "irrelevant in a discovery session");
    }

    #[test]
    fn a_first_burst_is_within_a_burst() {
        let bursts = |first, most| format!("FirstBurstLength={first}|MaxBurstLength={most}|");
        let equal = bursts(65536, 65536);
        assert_eq!(exchanged(&equal, &equal), []);
        assert_eq!(exchanged(&bursts(65537, 65536), &equal), [(Rule::L7, Side::Initiator, 1)]);
        assert_eq!(exchanged(&equal, &bursts(65536, 32768)), [(Rule::L7, Side::Target, 2)]);
        // each key may be offered without the other
        assert_eq!(exchanged("MaxBurstLength=512|", "MaxBurstLength=512|"), []);
    }

    #[test]
    fn a_hole_and_a_refusal_leave_nothing_to_judge() {
        let mut talk = Talk::default();
        talk.send(login_request(0, 1), b"MaxConnections=4\0");
        let mut talk = talk.hole();
        talk.send(login_response(1, 3, 499), b"HeaderDigest=CRC32C\0");
        assert_eq!(talk.found(), []);
        let mut talk = Talk::default();
        talk.send(login_request(1, 3), b"MaxConnections=4\0");
        talk.send(login_response(1, 3, 499).status_class(2), b"");
        assert_eq!(talk.found(), []);
    }

    #[test]
    fn a_login_goes_on_as_both_sides_agree() {
        let stages = |headers: Vec<BhsBuilder>| Talk::default().all(headers).found();
        let (first, second) = (login_request(0, 1), login_request(1, 3));
        let answered = login_response(0, 1, 499);
        assert_eq!(stages(vec![first, answered, second, login_response(1, 3, 500)]), []);
        // the initiator stays where both have left
        let again = stages(vec![first, answered, first]);
        assert_eq!(again, [(Rule::L1, Side::Initiator, 3)]);
        // the target goes on without being asked, or further than it was asked, or is elsewhere
        let waiting = BhsBuilder::new(Opcode::LoginRequest).initiator_task_tag(1).cid(1);
        let waiting = waiting.cmd_sn(SerialNumber(100));
        assert_eq!(stages(vec![waiting, answered]), [(Rule::L1, Side::Target, 2)]);
        assert_eq!(stages(vec![first, login_response(0, 3, 499)]), [(Rule::L1, Side::Target, 2)]);
        assert_eq!(stages(vec![first, login_response(1, 3, 499)]), [(Rule::L1, Side::Target, 2)]);
        // the initiator asks for a stage that is not further on
        let staying = login_request(0, 0);
        assert_eq!(stages(vec![staying]), [(Rule::L1, Side::Initiator, 1)]);
        assert_eq!(stages(vec![login_request(0, 3)]), []);
        // another tag
        let renamed = login_request(1, 3).initiator_task_tag(2);
        assert_eq!(stages(vec![first, answered, renamed]), [(Rule::L6, Side::Initiator, 3)]);
        let renamed = login_response(0, 1, 499).initiator_task_tag(2);
        assert_eq!(stages(vec![first, renamed]), [(Rule::L6, Side::Target, 2)]);
    }

    #[test]
    fn text_that_goes_on_is_not_answered_before_its_end() {
        let talk = |answer: &[u8]| {
            let mut talk = Talk::default();
            let part = BhsBuilder::new(Opcode::LoginRequest).is_continue(true).current_stage(1).initiator_task_tag(1);
            talk.send(part.cmd_sn(SerialNumber(100)), b"InitiatorName=iqn.");
            let response = BhsBuilder::new(Opcode::LoginResponse).current_stage(1).initiator_task_tag(1);
            talk.send(of_target(response, 499, 100), answer);
            talk.send(login_request(1, 3), b"i\0MaxConnections=1\0");
            talk.send(login_response(1, 3, 500), b"MaxConnections=1\0");
            talk.found()
        };
        assert_eq!(talk(b""), []);
        assert_eq!(talk(b"TargetAlias=a\0"), [(Rule::L6, Side::Target, 2)]);
    }

    #[test]
    fn a_text_round_goes_on_under_its_tags() {
        let request = |tag: u32, transfer_tag: u32, is_final: bool, cmd_sn: u32| {
            let header = BhsBuilder::new(Opcode::TextRequest).is_final(is_final).initiator_task_tag(tag);
            of_initiator(header.target_transfer_tag(transfer_tag), cmd_sn, 500)
        };
        let response = |transfer_tag: u32, is_final: bool, stat_sn: u32, exp_cmd_sn: u32| {
            let header = BhsBuilder::new(Opcode::TextResponse).is_final(is_final).initiator_task_tag(8);
            of_target(header.target_transfer_tag(transfer_tag), stat_sn, exp_cmd_sn)
        };
        let whole = |headers: Vec<BhsBuilder>| Talk::logged_in(0).all(headers).found();
        let first = request(8, RESERVED_TAG, true, 100);
        let goes_on = response(0x44, false, 500, 101);
        let last = response(RESERVED_TAG, true, 501, 102);
        assert_eq!(whole(vec![first, goes_on, request(8, 0x44, true, 101), last]), []);
        let wrong = whole(vec![first, goes_on, request(8, 0x45, true, 101)]);
        assert_eq!(wrong, [(Rule::L6, Side::Initiator, 5)]);
        let wrong = [(Rule::L6, Side::Target, 4)];
        assert_eq!(whole(vec![first, response(0x44, true, 500, 101)]), wrong);
        assert_eq!(whole(vec![first, response(RESERVED_TAG, false, 500, 101)]), wrong);
        assert_eq!(whole(vec![request(8, RESERVED_TAG, false, 100), response(RESERVED_TAG, true, 500, 101)]), wrong);
        // text that goes on is not final
        let wrong = [(Rule::L6, Side::Initiator, 3)];
        assert_eq!(whole(vec![first.is_continue(true)]), wrong);
        assert_eq!(whole(vec![request(8, RESERVED_TAG, false, 100).is_continue(true)]), []);
        // its beginning may be in the hole
        assert_eq!(Talk::logged_in(0).hole().all([request(8, 0x44, true, 101), last]).found(), []);
    }
}
