//! Admission of logins, and their sessions.

use iscsitrace_lab::application::{Application, Closed};
use iscsitrace_lab::protocol::chap::{Algorithm, Challenge, Secret, decode_binary, encode_binary};
use iscsitrace_lab::protocol::login::Authentication;
use iscsitrace_lab::protocol::target::{Limits, Portal, PortalSettings};
use iscsitrace_wire::bhs::BhsBuilder;
use iscsitrace_wire::opcode::Opcode;

use crate::conversation::{Conversation, INITIATOR, LOCAL, SECOND, TARGET, settings, text};

#[test]
fn further_connections_join_their_session() {
    let mut talk = Conversation::logged_in(settings(), &[("MaxConnections", "64")]);
    for place in 1..64 {
        talk.connect();
        talk.log_in(place, &[]);
    }
    assert_eq!(talk.portal.session_count(), 1);
    talk.connect();
    let refused = talk.try_log_in(64, 64, &[("InitiatorName", INITIATOR), ("TargetName", TARGET)]);
    assert_eq!((refused.bhs().status_class(), refused.bhs().status_detail()), (Some(2), Some(6)));
    assert!(!talk.is_open(64));
    for place in 0..64 {
        let ready = talk.test_unit_ready(place as u32);
        talk.send(place, ready, &[]);
        assert_eq!(talk.receive_one(place).bhs().status(), Some(0));
    }
}

#[test]
fn connections_that_log_in_at_the_same_time_count_as_well() {
    let mut talk = Conversation::logged_in(settings(), &[("MaxConnections", "2")]);
    let names = text(&[("InitiatorName", INITIATOR), ("TargetName", TARGET)]);
    // two with the same CID are one connection and its second attempt
    let statuses = [1, 2, 1].map(|cid| {
        let place = talk.connect();
        let request = talk.login_request(cid, 1, 3).is_transit(false);
        talk.send(place, request, &names);
        (place, talk.receive_one(place).bhs().status_detail())
    });
    assert_eq!(statuses.map(|status| status.1), [Some(0), Some(6), Some(0)]);
    for (place, cid) in [(1, 1), (3, 1)] {
        let request = talk.login_request(cid, 1, 3);
        talk.send(place, request, &[]);
        assert_eq!(talk.receive_one(place).bhs().status_class(), Some(0));
    }
    assert_eq!([0, 1, 2, 3].map(|place| talk.is_open(place)), [true, false, false, true]);
}

#[test]
fn a_session_of_another_initiator_cannot_be_joined() {
    let mut talk = Conversation::logged_in(settings(), &[("MaxConnections", "4")]);
    talk.connect();
    for (name, isid) in [("iqn.2025-01.org.iscsitrace:other", 1), (INITIATOR, 2)] {
        let place = talk.connect();
        talk.isid[5] = isid;
        let refused = talk.try_log_in(place, 1, &[("InitiatorName", name), ("TargetName", TARGET)]);
        assert_eq!((refused.bhs().status_class(), refused.bhs().status_detail()), (Some(2), Some(10)));
        assert!(talk.ending(place).unwrap().contains("Session does not exist"));
    }
}

#[test]
fn a_session_is_reinstated_once_the_new_login_is_done() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let old_tsih = talk.tsih;
    let write = talk.write(1, 0, 1);
    talk.send(0, write, &[]);
    talk.receive(0);
    talk.tsih = 0;
    talk.connect();
    assert!(talk.is_open(0));
    talk.log_in(1, &[]);
    assert_ne!(talk.tsih, old_tsih);
    assert!(!talk.is_open(0));
    assert!(talk.ending(0).unwrap().contains("6.3.5"));
    assert_eq!(talk.portal.poll_close(), Some(talk.number(0)));
    assert_eq!(talk.portal.session_count(), 1);
}

#[test]
fn another_isid_leads_another_session() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    (talk.tsih, talk.isid[5]) = (0, 2);
    talk.connect();
    talk.log_in(1, &[]);
    assert_eq!(talk.portal.session_count(), 2);
    assert!(talk.is_open(0));
}

#[test]
fn a_connection_is_reinstated_by_its_cid() {
    let mut talk = Conversation::logged_in(settings(), &[("MaxConnections", "2")]);
    let names = [("InitiatorName", INITIATOR), ("TargetName", TARGET)];
    talk.connect();
    let response = talk.try_log_in(1, 0, &names);
    assert_eq!(response.bhs().status_class(), Some(0));
    assert!(talk.ending(0).unwrap().contains("6.3.4"));
    assert_eq!(talk.portal.session_count(), 1, "the session goes on");
    let ready = talk.test_unit_ready(1);
    talk.send(1, ready, &[]);
    assert_eq!(talk.receive_one(1).bhs().status(), Some(0));
}

#[test]
fn a_login_has_its_time() {
    let mut talk = Conversation::new(settings());
    talk.connect();
    assert_eq!(talk.portal.poll_timeout(), Some(15 * SECOND));
    talk.pass(15 * SECOND - 1);
    assert!(talk.is_open(0));
    talk.pass(15 * SECOND);
    assert_eq!(talk.ending(0).unwrap(), "not logged in after 15 s (RFC 7143 section 8.1.2)");
    assert_eq!(talk.portal.poll_close(), Some(talk.number(0)));
    assert_eq!(talk.portal.poll_timeout(), None);
    let mut talk = Conversation::logged_in(settings(), &[]);
    talk.pass(60 * SECOND);
    assert!(talk.is_open(0));
}

#[test]
fn a_flood_of_connections_is_refused() {
    let limits = Limits { half_open_count: 3, connection_count: 5, ..Limits::default() };
    let mut talk = Conversation::new(PortalSettings { limits, ..settings() });
    for _ in 0..3 {
        talk.connect();
    }
    assert_eq!(talk.try_connect(LOCAL), None);
    talk.log_in(0, &[]);
    talk.connect();
    assert_eq!(talk.try_connect(LOCAL), None);
    let number = talk.number(1);
    talk.portal.closed(0, number, Closed::Failed("reset".into()));
    assert_eq!(talk.ending(1).unwrap(), "connection failure (RFC 7143 section 7.14): reset");
    talk.connect();
    assert_eq!(talk.portal.log().counters.refused_connections, 2);
}

#[test]
fn other_pdus_before_the_login_are_refused() {
    let mut talk = Conversation::new(settings());
    talk.connect();
    let nop = BhsBuilder::new(Opcode::NopOut).initiator_task_tag(1);
    talk.send(0, nop, &[]);
    let response = talk.receive_one(0);
    assert_eq!((response.bhs().status_class(), response.bhs().status_detail()), (Some(2), Some(11)));
    assert!(!talk.is_open(0));
    assert!(talk.ending(0).unwrap().contains("NOP-Out before the full feature phase"));
}

#[test]
fn unknown_targets_are_not_found() {
    let mut talk = Conversation::new(settings());
    talk.connect();
    let names = [("InitiatorName", INITIATOR), ("TargetName", "iqn.2025-01.org.iscsitrace:none")];
    let response = talk.try_log_in(0, 0, &names);
    assert_eq!((response.bhs().status_class(), response.bhs().status_detail()), (Some(2), Some(3)));
    assert!(!talk.is_open(0));
}

#[test]
fn a_session_ends_with_its_last_connection() {
    let mut talk = Conversation::logged_in(settings(), &[("MaxConnections", "2")]);
    talk.connect();
    talk.log_in(1, &[]);
    for place in 0..2 {
        assert_eq!(talk.portal.session_count(), 1);
        let number = talk.number(place);
        talk.portal.closed(0, number, Closed::ByPeer);
    }
    assert_eq!(talk.portal.session_count(), 0);
    assert!(talk.ending(1).unwrap().contains("without a Logout"));
}

/// One-way and mutual CHAP, as settings come from a user.
fn chap() -> PortalSettings {
    let chap: Authentication = serde_json::from_str(
        r#"{"initiators": [{"name": "joe", "secret": "initiator-secret"}],
            "target": {"name": "disk", "secret": "the-target-secret"}}"#,
    )
    .unwrap();
    PortalSettings { chap: Some(chap), ..settings() }
}

/// Runs the security stage; returns the status, and whether the target was authenticated.
fn authenticate(secret: &str, is_mutual: bool) -> (Conversation, (u8, u8), bool) {
    let mut talk = Conversation::new(chap());
    talk.connect();
    let mut say = |pairs: &[(&str, &str)], is_transit: bool| {
        let header = talk.login_request(0, 0, if is_transit { 1 } else { 0 }).is_transit(is_transit);
        talk.send(0, header, &text(pairs));
        let response = talk.receive_one(0);
        let status = (response.bhs().status_class().unwrap(), response.bhs().status_detail().unwrap());
        let pairs = iscsitrace_wire::text::pairs(&response.data).flatten();
        let pairs: Vec<_> = pairs.map(|(key, value)| (key.to_owned(), value.into_owned())).collect();
        (status, move |key: &str| pairs.iter().find(|(said, _)| said == key).map(|(_, value)| value.clone()))
    };
    let (_, answer) = say(&[("InitiatorName", INITIATOR), ("TargetName", TARGET), ("AuthMethod", "CHAP,None")], false);
    assert_eq!(answer("AuthMethod").as_deref(), Some("CHAP"));
    let (_, answer) = say(&[("CHAP_A", "5")], false);
    let theirs = Challenge {
        identifier: answer("CHAP_I").unwrap().parse().unwrap(),
        bytes: decode_binary(&answer("CHAP_C").unwrap()).unwrap(),
    };
    let response = encode_binary(&theirs.response(Algorithm::Md5, &Secret::new(secret)));
    let ours = Challenge { identifier: 9, bytes: vec![3; 16] };
    let challenge = encode_binary(&ours.bytes);
    let mut pairs = vec![("CHAP_N", "joe"), ("CHAP_R", &response)];
    if is_mutual {
        pairs.extend([("CHAP_I", "9"), ("CHAP_C", &challenge)]);
    }
    let (status, answer) = say(&pairs, true);
    let proof = answer("CHAP_R").and_then(|proof| decode_binary(&proof));
    let is_proved =
        proof.is_some_and(|proof| ours.is_answered_by(&proof, Algorithm::Md5, &Secret::new("the-target-secret")));
    (talk, status, is_proved)
}

#[test]
fn chap_accepts_the_correct_secret() {
    for is_mutual in [false, true] {
        let (talk, status, is_proved) = authenticate("initiator-secret", is_mutual);
        assert_eq!((status, is_proved, talk.is_open(0)), ((0, 0), is_mutual, true));
    }
    let (talk, status, _) = authenticate("another-secret", false);
    assert_eq!((status, talk.is_open(0)), ((2, 1), false));
    assert!(talk.ending(0).unwrap().contains("Authentication Failure"), "{:?}", talk.ending(0));
}

#[test]
fn chap_cannot_be_skipped() {
    let mut talk = Conversation::new(chap());
    talk.connect();
    let response = talk.try_log_in(0, 0, &[("InitiatorName", INITIATOR), ("TargetName", TARGET)]);
    assert_eq!((response.bhs().status_class(), response.bhs().status_detail()), (Some(2), Some(1)));
    assert!(!talk.is_open(0));
}

#[test]
fn challenges_are_new_for_each_connection_and_come_from_the_seed() {
    let challenges = |seed| {
        let mut talk = Conversation::new(PortalSettings { seed, ..chap() });
        [0, 1].map(|_| {
            let place = talk.connect();
            let names = [("InitiatorName", INITIATOR), ("TargetName", TARGET), ("AuthMethod", "CHAP")];
            for pairs in [&names[..], &[("CHAP_A", "5")]] {
                let header = talk.login_request(place as u16, 0, 0).is_transit(false);
                talk.send(place, header, &text(pairs));
            }
            talk.receive(place).pop().unwrap().data
        })
    };
    let first = challenges(1);
    assert_ne!(first[0], first[1]);
    assert_eq!(first, challenges(1));
    assert_ne!(first, challenges(2));
}

#[test]
fn invalid_portal_settings_are_refused() {
    let error = |settings: PortalSettings| Portal::new(settings).err().map(|error| error.to_string());
    assert_eq!(error(settings()), None);
    let mut twice = settings();
    twice.targets.push(twice.targets[0].clone());
    assert_eq!(error(twice), Some(format!("two targets are named {TARGET}")));
    let closed = PortalSettings { command_window_count: 0, ..settings() };
    assert_eq!(error(closed).unwrap(), "a command window of 0 commands: from 1 to 32768 are possible");
    let mut nobody = chap();
    nobody.chap.as_mut().unwrap().initiators.clear();
    assert!(error(nobody).unwrap().contains("12.1.3"));
    let json = r#"{"status": "apart_held", "read_delay": {"distribution": "exponential", "mean_ns": 5},
        "faults": [{"fault": "bad_data_digest", "nth": 5, "operation": "read"}], "keys": {"max_connections": 8},
        "targets": [{"target_name": "iqn.2025-01.org.iscsitrace:a", "logical_units": [{"medium": "ram", "size_bytes": 1048576}]}]}"#;
    assert_eq!(error(serde_json::from_str(json).unwrap()), None);
    assert!(serde_json::from_str::<PortalSettings>(r#"{"listen": "127.0.0.1"}"#).is_err());
}
