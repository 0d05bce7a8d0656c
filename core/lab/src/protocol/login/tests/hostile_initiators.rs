//! A target against initiators that violate the RFC: status, reason and section, within its memory limits.

use proptest::prelude::*;

use super::*;
use crate::protocol::chap::{DIGESTS, encode_binary};
use crate::protocol::keys::{Parameters, Violation};
use crate::protocol::login::pdu::ROUNDS_MAX;

/// T bit, C bit, CSG, NSG and text of a request, `|` for NUL.
type Message<'a> = (&'a str, u8, u8, &'a str);

const FIRST: &str =
    "InitiatorName=iqn.2026-01.example:initiator|TargetName=iqn.2026-01.example:target|SessionType=Normal|";

fn request((bits, current_stage, next_stage, text): Message<'_>) -> LoginRequest {
    LoginRequest {
        is_transit: bits.contains('T'),
        is_continue: bits.contains('C'),
        current_stage,
        next_stage,
        data: text.replace("FIRST", FIRST).replace('|', "\0").into_bytes(),
        ..LoginRequest::default()
    }
}

fn answers(portal: &Portal, messages: &[Message<'_>]) -> Vec<Answer> {
    let mut target = TargetLogin::new(challenge(1));
    messages.iter().map(|messages| target.receive(&request(*messages), portal)).collect()
}

/// The refusal of the last of these requests: status, reason, section of RFC 7143.
fn refusal(portal: &Portal, messages: &[Message<'_>]) -> String {
    let mut answers = answers(portal, messages);
    let last = answers.pop().unwrap();
    assert!(answers.iter().all(|answer| answer.outcome == Outcome::Pending), "{messages:?} {answers:?}");
    match last.outcome {
        Outcome::Failed(failure) => {
            assert_eq!(last.response.status, failure.status);
            assert!(!last.response.is_transit);
            let ((class, detail), Violation { what, section }) = (failure.status.codes(), failure.violation);
            format!("{class:02x}{detail:02x} {what} ({section})")
        }
        outcome => panic!("{messages:?} {outcome:?}"),
    }
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.response.data.clone()).unwrap().replace('\0', "|")
}

#[test]
fn each_breach_has_its_status_and_section() {
    let long_name = format!("InitiatorName=iqn.{}|TargetName=iqn.t|", "a".repeat(220));
    let long_key = format!("FIRST{}=1|", "K".repeat(64));
    let long_value = format!("FIRSTMaxBurstLength={}|", "1".repeat(256));
    let long_text = "a".repeat(8193);
    let cases: &[(&[Message<'_>], &str)] = &[
        // names
        (&[("", 0, 0, "TargetName=iqn.t|")], "0207 no InitiatorName in the first Login Request (13.5)"),
        (
            &[("", 0, 0, "InitiatorName=iqn.a|")],
            "0207 no TargetName in the first Login Request of a normal session (13.4)",
        ),
        (&[("", 0, 0, "")], "0207 no InitiatorName in the first Login Request (13.5)"),
        (
            &[("", 0, 0, "InitiatorName=iqn.a|SessionType=Other|")],
            "0209 SessionType is neither Normal nor Discovery (13.21)",
        ),
        (&[("", 0, 0, &long_name)], "0200 InitiatorName is no iSCSI name (4.2.7)"),
        (&[("", 0, 0, "InitiatorName=|TargetName=iqn.t|")], "0200 InitiatorName is no iSCSI name (4.2.7)"),
        (&[("", 0, 0, "InitiatorName=iqn.a|TargetName=iqn.t|")], "0203 no such target (11.13.5)"),
        (&[("", 0, 0, "FIRSTTargetAlias=x|")], "0200 TargetAlias may be sent by targets only (13)"),
        // form
        (&[("", 0, 0, "FIRSTgarbage|")], "0200 text without '=' (6.1)"),
        (&[("", 0, 0, &long_key)], "0200 text with a key of more than 63 bytes (6.1)"),
        (&[("", 1, 0, &long_value)], "0200 the value of MaxBurstLength is longer than 255 bytes (6.1)"),
        (&[("", 0, 0, &long_text)], "0200 a data segment of more than 8192 bytes (13.12)"),
        (
            &[("C", 0, 0, &long_text[1..]), ("C", 0, 0, &long_text[1..]), ("", 0, 0, "a")],
            "0302 more than 16384 bytes of text in one negotiation step (6.1)",
        ),
        // stages
        (&[("", 2, 0, FIRST)], "0200 CSG is no stage of the login phase (11.12.3)"),
        (&[("", 3, 0, FIRST)], "0200 CSG is no stage of the login phase (11.12.3)"),
        (&[("T", 0, 0, FIRST)], "0200 NSG is no stage after CSG (11.12.3)"),
        (&[("T", 1, 0, FIRST)], "0200 NSG is no stage after CSG (11.12.3)"),
        (&[("T", 0, 2, FIRST)], "0200 NSG is no stage after CSG (11.12.3)"),
        (&[("TC", 0, 1, FIRST)], "0200 T and C bit together (11.12.2)"),
        (&[("", 0, 0, FIRST), ("", 1, 0, "")], "0200 CSG is not the stage that both sides are in (11.12.3)"),
        (&[("T", 0, 1, FIRST), ("", 0, 0, "")], "0200 CSG is not the stage that both sides are in (11.12.3)"),
        (&[("", 0, 0, "FIRSTMaxBurstLength=512|")], "0200 MaxBurstLength in the stage SecurityNegotiation (12)"),
        (&[("", 1, 0, "FIRSTAuthMethod=None|")], "0200 AuthMethod in the stage LoginOperationalNegotiation (12)"),
        (&[("", 1, 0, "FIRSTSendTargets=All|")], "0200 SendTargets belongs to the full feature phase (13.3)"),
        (&[("", 0, 0, FIRST), ("", 0, 0, "SessionType=Normal|")], "0200 SessionType is repeated in a login (6.3)"),
        (
            &[("", 0, 0, FIRST), ("", 0, 0, "TargetAlias=x|")],
            "0200 TargetAlias is allowed in the first request only (6.3.1)",
        ),
        // keys
        (
            &[("", 1, 0, "FIRSTMaxBurstLength=512|MaxBurstLength=512|")],
            "0200 MaxBurstLength is repeated in a login (6.3)",
        ),
        (
            &[("", 1, 0, "FIRSTMaxBurstLength=512|"), ("", 1, 0, "MaxBurstLength=512|")],
            "0200 MaxBurstLength is repeated in a login (6.3)",
        ),
        (&[("", 1, 0, "FIRSTMaxBurstLength=Irrelevant|")], "0200 MaxBurstLength=Irrelevant is no offer (6.2)"),
        (
            &[("", 1, 0, "FIRSTMaxRecvDataSegmentLength=511|")],
            "0200 MaxRecvDataSegmentLength=511 is not admissible (13.12)",
        ),
        (
            &[("", 1, 0, "FIRSTMaxRecvDataSegmentLength=16777216|")],
            "0200 MaxRecvDataSegmentLength=16777216 is not admissible (13.12)",
        ),
        // authentication that was not required
        (&[("", 0, 0, "FIRSTAuthMethod=KRB5,SRP|")], "0201 AuthMethod has no value that the target accepts (12.1)"),
        (&[("", 0, 0, "FIRSTCHAP_A=5|")], "0201 CHAP without AuthMethod=CHAP (12.1.3)"),
    ];
    for (messages, expected) in cases {
        assert_eq!(refusal(&Portal::default(), messages), *expected);
    }
}

#[test]
fn each_breach_of_chap_is_an_authentication_failure() {
    let agreed: Message<'_> = ("", 0, 0, "FIRSTAuthMethod=CHAP|");
    let algorithm: Message<'_> = ("", 0, 0, "CHAP_A=5|");
    let long = format!("CHAP_N=joe|CHAP_R=0b{}|", "A".repeat(1368));
    let cases: &[(&[Message<'_>], &str)] = &[
        (&[("T", 1, 3, FIRST)], "the initiator skips the security stage (6.3.1)"),
        (&[("", 0, 0, "FIRSTAuthMethod=None|")], "AuthMethod has no value that the target accepts (12.1)"),
        (&[("", 0, 0, "FIRSTCHAP_A=5|")], "CHAP_A without AuthMethod=CHAP (12.1.3)"),
        (&[agreed, ("", 0, 0, "CHAP_A=6,7,999|")], "CHAP_A has no algorithm that the target supports (12.1.3)"),
        (&[agreed, ("", 0, 0, "CHAP_N=joe|CHAP_R=0x00|")], "CHAP_R without a challenge (12.1.3)"),
        (&[agreed, algorithm, ("", 0, 0, "CHAP_N=joe|")], "CHAP_N and CHAP_R have to be sent together (12.1.3)"),
        (&[agreed, algorithm, ("", 0, 0, "CHAP_N=joe|CHAP_R=zz|")], "CHAP_R is no binary value (12.1.3)"),
        (&[agreed, algorithm, ("", 0, 0, &long)], "CHAP_R is no binary value (12.1.3)"),
        (
            &[agreed, algorithm, ("", 0, 0, "CHAP_N=joe|CHAP_R=0x00|")],
            "CHAP_N and CHAP_R are not those of a known initiator (12.1.3)",
        ),
        (&[agreed, algorithm, ("", 0, 0, "CHAP_I=1|")], "CHAP_I and CHAP_C have to be sent together (12.1.3)"),
        (
            &[agreed, algorithm, ("", 0, 0, "CHAP_I=256|CHAP_C=0x00|")],
            "CHAP_I is no byte or CHAP_C no binary value of 1 to 1024 bytes (12.1.3)",
        ),
        (&[agreed, algorithm, ("", 0, 0, "CHAP_I=1|CHAP_C=0x00|")], "a challenge without CHAP_N and CHAP_R (12.1.3)"),
    ];
    for (messages, expected) in cases {
        let found = refusal(&chap_portal(Algorithm::Md5), messages);
        assert_eq!(found, format!("0201 {expected}"));
    }
}

#[test]
fn an_unknown_name_takes_as_much_work_as_a_known_one() {
    let digests_of = |name: &str| {
        let last = format!("CHAP_N={name}|CHAP_R=0x00|");
        let before = DIGESTS.get();
        let messages = [("", 0, 0, "FIRSTAuthMethod=CHAP|"), ("", 0, 0, "CHAP_A=5|"), ("", 0, 0, &last)];
        let expected = "0201 CHAP_N and CHAP_R are not those of a known initiator (12.1.3)";
        assert_eq!(refusal(&chap_portal(Algorithm::Md5), &messages), expected);
        DIGESTS.get() - before
    };
    assert_eq!(digests_of("joe"), 2);
    assert_eq!(digests_of("nobody"), 2);
    assert_eq!(digests_of("stranger"), 2);
}

#[test]
fn a_reflected_challenge_is_refused() {
    let own = challenge(1);
    let response = encode_binary(&own.response(Algorithm::Md5, &Secret::new("secret of the initiator")));
    let reflected = encode_binary(&own.bytes);
    let last = format!("CHAP_N=joe|CHAP_R={response}|CHAP_I=9|CHAP_C={reflected}|");
    let messages: &[Message<'_>] = &[("", 0, 0, "FIRSTAuthMethod=CHAP|"), ("", 0, 0, "CHAP_A=5|"), ("T", 0, 1, &last)];
    assert_eq!(
        refusal(&chap_portal(Algorithm::Md5), messages),
        "0201 the initiator reflects the target's challenge (9.2.1)"
    );
    assert_eq!(text(&answers(&chap_portal(Algorithm::Md5), messages)[2]), "");
}

#[test]
fn the_security_stage_is_not_left_before_it_is_done() {
    let messages: &[Message<'_>] =
        &[("T", 0, 3, "FIRSTAuthMethod=CHAP|"), ("T", 0, 3, "CHAP_A=5|"), ("T", 0, 3, ""), ("T", 0, 1, "")];
    for answer in answers(&chap_portal(Algorithm::Md5), messages) {
        assert_eq!((answer.response.is_transit, &answer.outcome), (false, &Outcome::Pending));
    }
}

#[test]
fn bad_offers_are_answered_with_reject() {
    let messages: &[Message<'_>] = &[(
        "T",
        1,
        3,
        "FIRSTMaxBurstLength=511|MaxConnections=0|InitialR2T=yes|HeaderDigest=MD5|DataDigest=|ErrorRecoveryLevel=3|\
         DefaultTime2Wait=99999999999999999999|MaxOutstandingR2T=-1|X-com.example=1|IFMarker=Yes|IFMarkInt=2048|",
    )];
    let answers = answers(&Portal::default(), messages);
    assert_eq!(
        text(&answers[0]),
        "TargetPortalGroupTag=1|X-com.example=NotUnderstood|IFMarker=No|IFMarkInt=Reject|MaxBurstLength=Reject|\
         MaxConnections=Reject|InitialR2T=Reject|HeaderDigest=Reject|DataDigest=Reject|ErrorRecoveryLevel=Reject|\
         DefaultTime2Wait=Reject|MaxOutstandingR2T=Reject|"
    );
    let Outcome::Done(logged_in, _) = &answers[0].outcome else { panic!("{:?}", answers[0].outcome) };
    assert_eq!(logged_in.parameters, Parameters::default());
}

#[test]
fn keys_out_of_place_are_irrelevant_or_rejected() {
    let discovery: &[Message<'_>] =
        &[("T", 1, 3, "InitiatorName=iqn.a|SessionType=Discovery|MaxBurstLength=512|DefaultTime2Wait=9|")];
    assert_eq!(text(&answers(&Portal::default(), discovery)[0]), "MaxBurstLength=Irrelevant|DefaultTime2Wait=9|");
    let first_burst: &[Message<'_>] = &[("T", 1, 3, "FIRSTFirstBurstLength=512|InitialR2T=Yes|ImmediateData=No|")];
    assert_eq!(
        text(&answers(&Portal::default(), first_burst)[0]),
        "TargetPortalGroupTag=1|InitialR2T=Yes|ImmediateData=No|FirstBurstLength=Irrelevant|"
    );
    let mut portal = Portal::default();
    portal.admission.place = SessionPlace::Further { parameters: Box::default() };
    let further: &[Message<'_>] = &[("T", 1, 3, "FIRSTMaxConnections=8|HeaderDigest=None|")];
    assert_eq!(text(&answers(&portal, further)[0]), "TargetPortalGroupTag=1|MaxConnections=Reject|HeaderDigest=None|");
}

#[test]
fn an_initiator_that_ignores_the_targets_offer_is_refused() {
    let mut portal = Portal::default();
    portal.admission.offers.max_burst_length = Some(1024);
    let messages: &[Message<'_>] = &[("T", 1, 3, FIRST), ("T", 1, 3, "")];
    assert_eq!(refusal(&portal, messages), "0200 MaxBurstLength stays 262144, but 1024 is required (7.12)");
    let greedy: &[Message<'_>] = &[("T", 1, 3, FIRST), ("T", 1, 3, "MaxBurstLength=2048|")];
    assert_eq!(refusal(&portal, greedy), "0200 MaxBurstLength=2048 is no legal answer to 1024 (6.2.2)");
    // it must not skip the stage in which the target could require authentication
    assert_eq!(
        refusal(&portal, &[("T", 0, 3, FIRST)]),
        "0200 MaxBurstLength stays 262144, but 1024 is required (7.12)"
    );
}

#[test]
fn identity_and_version_are_checked() {
    let mut target = TargetLogin::new(challenge(1));
    let first = request(("", 0, 0, FIRST));
    assert_eq!(target.receive(&first, &Portal::default()).outcome, Outcome::Pending);
    let other = LoginRequest { cid: 1, ..request(("", 0, 0, "")) };
    let answer = target.receive(&other, &Portal::default());
    assert_eq!(answer.response.status, LoginStatus::InitiatorError);
    let newer = LoginRequest { version_min: 1, version_max: 2, ..first };
    let answer = TargetLogin::new(challenge(1)).receive(&newer, &Portal::default());
    assert_eq!(answer.response.status, LoginStatus::UnsupportedVersion);
    // a failed login stays failed
    assert_eq!(
        target.receive(&request(("", 0, 0, FIRST)), &Portal::default()).response.status,
        LoginStatus::InvalidDuringLogin
    );
}

#[test]
fn an_endless_login_is_ended() {
    let mut target = TargetLogin::new(challenge(1));
    let portal = Portal::default();
    let mut answer = target.receive(&request(("", 0, 0, FIRST)), &portal);
    let mut rounds = 1;
    while answer.outcome == Outcome::Pending {
        answer = target.receive(&request(("", 0, 0, "")), &portal);
        rounds += 1;
    }
    assert_eq!(rounds, ROUNDS_MAX + 1);
}

const PIECES: &[&str] = &[
    "FIRST",
    "InitiatorName=iqn.a|",
    "TargetName=iqn.2026-01.example:target|",
    "SessionType=Discovery|",
    "AuthMethod=CHAP|",
    "AuthMethod=None|",
    "CHAP_A=5|",
    "CHAP_I=1|",
    "CHAP_C=0x00|",
    "CHAP_N=joe|",
    "CHAP_R=0b00|",
    "MaxBurstLength=512|",
    "MaxBurstLength=Reject|",
    "HeaderDigest=CRC32C|",
    "FirstBurstLength=1024|",
    "X-a=1|",
    "garbage",
    "=",
    "|",
    "\u{fffd}=",
];

proptest! {
    #[test]
    fn any_requests_are_survived(
        messages in proptest::collection::vec(
            ("T?C?", 0_u8..4, 0_u8..4, proptest::collection::vec(proptest::sample::select(PIECES), 0..5)), 1..12,
        ),
        asks_for_chap: bool,
        part_bytes in 1_usize..200,
    ) {
        let portal = if asks_for_chap { chap_portal(Algorithm::Md5) } else { Portal::default() };
        let mut target = TargetLogin::with_data_segment_bytes(challenge(1), part_bytes);
        for (bits, current_stage, next_stage, pieces) in messages {
            let answer = target.receive(&request((&bits, current_stage, next_stage, &pieces.concat())), &portal);
            prop_assert!(answer.response.data.len() <= part_bytes);
            let is_in = matches!(answer.outcome, Outcome::Done(..));
            prop_assert!(!(is_in && asks_for_chap), "in without a proof");
            prop_assert_eq!(is_in, answer.response.is_transit && answer.response.next_stage == 3);
        }
    }
}
