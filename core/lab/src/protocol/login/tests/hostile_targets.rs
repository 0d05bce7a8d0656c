//! An initiator against targets that violate the RFC.

use proptest::prelude::*;

use super::*;
use crate::protocol::login::pdu::ROUNDS_MAX;

/// T and C bit, CSG, NSG and text of a response, `|` for NUL.
type Message<'a> = (&'a str, u8, u8, &'a str);

fn response((bits, current_stage, next_stage, text): Message<'_>) -> LoginResponse {
    LoginResponse {
        is_transit: bits.contains('T'),
        is_continue: bits.contains('C'),
        current_stage,
        next_stage,
        isid: leading().isid,
        tsih: 77,
        data: text.replace('|', "\0").into_bytes(),
        ..LoginResponse::default()
    }
}

fn steps(settings: InitiatorLoginSettings, messages: &[Message<'_>]) -> Vec<Result<Step, LoginError>> {
    let (mut initiator, _) = InitiatorLogin::start(settings, leading(), challenge(2)).unwrap();
    messages.iter().map(|messages| initiator.receive(&response(*messages))).collect()
}

/// The initiator's error for the last of these responses.
fn error_of(settings: InitiatorLoginSettings, messages: &[Message<'_>]) -> String {
    let mut steps = steps(settings, messages);
    let last = steps.pop().unwrap();
    assert!(steps.iter().all(|step| matches!(step, Ok(Step::Send(_)))), "{messages:?} {steps:?}");
    last.unwrap_err().to_string()
}

fn offering() -> InitiatorLoginSettings {
    initiator_settings(Offers {
        initial_r2t: Some(true),
        immediate_data: Some(false),
        max_burst_length: Some(1024),
        default_time2wait: Some(5),
        ..Offers::default()
    })
}

const IN_OPERATIONAL: Message<'static> = ("T", 0, 1, "TargetPortalGroupTag=1|AuthMethod=None|");

#[test]
fn each_breach_is_reported_with_its_section() {
    let long = "a".repeat(8193);
    let cases: &[(&[Message<'_>], &str)] = &[
        (&[("T", 0, 3, "AuthMethod=None|")], "NSG 3 where LoginOperationalNegotiation was requested (11.13.6)"),
        (&[("TC", 0, 1, "")], "T and C bit together (11.13.7)"),
        (&[("", 1, 0, "")], "CSG 1 in the stage SecurityNegotiation (11.12.3)"),
        (&[("", 0, 0, &long)], "a data segment of more than 8192 bytes (13.12)"),
        (
            &[("C", 0, 0, &long[1..]), ("C", 0, 0, &long[1..]), ("C", 0, 0, "a")],
            "more than 16384 bytes of text in one negotiation step (6.1)",
        ),
        (&[("C", 0, 0, "a"), ("T", 0, 1, "=b|")], "T bit in the response to a request without it (11.13.6)"),
        (&[("", 0, 0, "garbage|")], "text without '=' (6.1)"),
        (&[("", 0, 0, "SessionType=Normal|")], "SessionType may be sent by initiators only (13)"),
        (&[("", 0, 0, "MaxBurstLength=512|")], "MaxBurstLength in the stage SecurityNegotiation (12)"),
        (&[("", 0, 0, "TargetPortalGroupTag=65536|")], "TargetPortalGroupTag is no number of 16 bits (13.9)"),
        (&[IN_OPERATIONAL, ("", 1, 0, "AuthMethod=None|")], "AuthMethod is repeated in a login (6.3)"),
        (
            &[IN_OPERATIONAL, ("T", 1, 3, "MaxBurstLength=2048|")],
            "MaxBurstLength=2048 is no legal answer to 1024 (6.2.2)",
        ),
        (&[IN_OPERATIONAL, ("T", 1, 3, "MaxBurstLength=0|")], "MaxBurstLength=0 is no legal answer to 1024 (6.2.2)"),
        (&[IN_OPERATIONAL, ("T", 1, 3, "DefaultTime2Wait=4|")], "DefaultTime2Wait=4 is no legal answer to 5 (6.2.2)"),
        (&[IN_OPERATIONAL, ("T", 1, 3, "InitialR2T=No|")], "InitialR2T=No is no legal answer to Yes (6.2.2)"),
        (&[IN_OPERATIONAL, ("T", 1, 3, "ImmediateData=Yes|")], "ImmediateData=Yes is no legal answer to No (6.2.2)"),
        (
            &[IN_OPERATIONAL, ("T", 1, 3, "MaxRecvDataSegmentLength=0|")],
            "MaxRecvDataSegmentLength=0 is not admissible (13.12)",
        ),
        (
            &[IN_OPERATIONAL, ("T", 1, 3, "MaxOutstandingR2T=4|")],
            "the target leaves the stage with a key that needs an answer (11.13.6)",
        ),
        (
            &[IN_OPERATIONAL, ("", 1, 0, "MaxBurstLength=512|"), ("", 1, 0, "MaxBurstLength=512|")],
            "MaxBurstLength is repeated in a login (6.3)",
        ),
        (
            &[IN_OPERATIONAL, ("T", 1, 3, "MaxBurstLength=Reject|DefaultTime2Wait=5|")],
            "MaxBurstLength stays 262144, but 1024 is required (7.12)",
        ),
    ];
    for (messages, expected) in cases {
        let found = error_of(offering(), messages).replace("RFC 7143 section ", "");
        assert_eq!(found, format!("the target violated the protocol: {expected}"));
    }
}

#[test]
fn a_choice_is_one_of_those_offered() {
    use crate::protocol::keys::Digest;
    let settings = initiator_settings(Offers { header_digest: Some(vec![Digest::None]), ..Offers::default() });
    assert_eq!(
        error_of(settings, &[IN_OPERATIONAL, ("T", 1, 3, "HeaderDigest=CRC32C|")]),
        "the target violated the protocol: HeaderDigest=CRC32C is no legal answer to None (RFC 7143 section 6.2.1)"
    );
}

#[test]
fn breaches_of_chap_are_failed_authentication() {
    let settings = InitiatorLoginSettings {
        chap: Some(credentials("joe", "secret of the initiator")),
        chap_of_target: Some(credentials("disk", "secret of the target")),
        ..initiator_settings(Offers::default())
    };
    let method: Message<'_> = ("", 0, 0, "AuthMethod=CHAP|");
    let asked: Message<'_> = ("", 0, 0, "CHAP_A=5|CHAP_I=1|CHAP_C=0x0102|");
    let own = format!("CHAP_A=5|CHAP_I=1|CHAP_C=0x{}|", "02".repeat(16));
    let cases: &[(&[Message<'_>], &str)] = &[
        (&[("", 0, 0, "AuthMethod=None|")], "AuthMethod is answered with a value that was not offered"),
        (&[("", 0, 0, "AuthMethod=Reject|")], "AuthMethod is answered with a value that was not offered"),
        (&[method, ("", 0, 0, "CHAP_A=7|")], "CHAP_A is answered with an algorithm that was not offered"),
        (&[method, ("", 0, 0, "CHAP_I=1|CHAP_C=0x01|")], "a challenge without CHAP_A"),
        (&[method, ("", 0, 0, &own)], "both sides have the same challenge"),
        (&[method, ("", 0, 0, "CHAP_N=disk|CHAP_R=0x00|")], "CHAP_R that was not requested"),
        (
            &[method, asked, ("T", 0, 1, "CHAP_N=disk|CHAP_R=0x00|")],
            "CHAP_N and CHAP_R are not those of the expected target",
        ),
        (&[method, asked, ("T", 0, 1, "")], "the target does not authenticate itself"),
    ];
    for (messages, expected) in cases {
        let found = error_of(settings.clone(), messages);
        assert!(found.starts_with(&format!("authentication failed: {expected} (RFC 7143 section 12.1")), "{found}");
    }
}

#[test]
fn harmless_violations_are_recorded_as_remarks() {
    let settings = initiator_settings(Offers {
        max_burst_length: Some(1_048_576),
        immediate_data: Some(false),
        initial_r2t: Some(false),
        ..Offers::default()
    });
    let messages: &[Message<'_>] =
        &[("T", 0, 1, "AuthMethod=None|"), ("T", 1, 3, "X-com.example=1|MaxBurstLength=65536|")];
    let Some(Ok(Step::Done(done))) = steps(settings, messages).pop() else { panic!("no login") };
    // ImmediateData=No needs no answer, InitialR2T=No needs one
    assert_eq!((done.parameters.immediate_data, done.parameters.initial_r2t), (false, true));
    assert_eq!(
        done.remarks,
        [
            "the target's last response has keys that can no longer be answered",
            "InitialR2T was offered and not answered (RFC 7143 section 6.2.2)",
            "the target does not send its TargetPortalGroupTag (RFC 7143 section 13.9)",
        ]
    );
}

#[test]
fn an_endless_login_ends_with_an_error() {
    let (mut initiator, _) = InitiatorLogin::start(offering(), leading(), challenge(2)).unwrap();
    let mut rounds = 0;
    while matches!(initiator.receive(&response(("", 0, 0, ""))), Ok(Step::Send(_))) {
        rounds += 1;
    }
    assert_eq!(rounds, ROUNDS_MAX);
}

#[test]
fn the_last_response_has_the_sessions_tsih() {
    let last = |tsih: u16, own: u16| {
        let identity = SessionIdentity { tsih: own, session: (own != 0).then(Box::default), ..leading() };
        let (mut initiator, _) =
            InitiatorLogin::start(initiator_settings(Offers::default()), identity, challenge(2)).unwrap();
        initiator.receive(&response(IN_OPERATIONAL)).unwrap();
        initiator.receive(&LoginResponse { tsih, ..response(("T", 1, 3, "")) })
    };
    assert!(last(0, 0).unwrap_err().to_string().contains("no TSIH"));
    assert!(last(78, 77).unwrap_err().to_string().contains("TSIH of another session"));
    assert!(matches!(last(77, 77), Ok(Step::Done(_))));
}

const PIECES: &[&str] = &[
    "TargetPortalGroupTag=1|",
    "AuthMethod=CHAP|",
    "AuthMethod=None|",
    "CHAP_A=5|",
    "CHAP_I=1|",
    "CHAP_C=0x00|",
    "CHAP_N=disk|",
    "CHAP_R=0b00|",
    "MaxBurstLength=512|",
    "MaxBurstLength=Reject|",
    "HeaderDigest=CRC32C|",
    "X-a=1|",
    "TargetAddress=a|",
    "garbage",
    "=",
    "|",
];

proptest! {
    #[test]
    fn any_responses_are_survived(
        messages in proptest::collection::vec(
            ("T?C?", 0_u8..4, 0_u8..4, proptest::collection::vec(proptest::sample::select(PIECES), 0..5)), 1..12,
        ),
        asks_for_proof: bool,
        part_bytes in 1_usize..200,
    ) {
        let mut settings = InitiatorLoginSettings { login_data_segment_bytes: part_bytes, ..offering() };
        if asks_for_proof {
            settings.chap = Some(credentials("joe", "secret of the initiator"));
            settings.chap_of_target = Some(credentials("disk", "secret of the target"));
        }
        let (mut initiator, _) = InitiatorLogin::start(settings, leading(), challenge(2)).unwrap();
        for (bits, current_stage, next_stage, pieces) in messages {
            match initiator.receive(&response((&bits, current_stage, next_stage, &pieces.concat()))) {
                Ok(Step::Send(request)) => prop_assert!(request.data.len() <= part_bytes),
                Ok(Step::Done(_)) => prop_assert!(!asks_for_proof, "in without a proof"),
                Ok(Step::Redirected(_)) | Err(_) => break,
            }
        }
    }
}
