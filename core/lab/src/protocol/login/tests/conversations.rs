//! Logins in short form: `>` is the initiator, `<` the target, numbers are stages, `->` is the T bit.

use super::*;
use crate::protocol::keys::{Digest, Parameters};

fn transcript(ending: &Ending) -> String {
    ending.transcript.join("\n")
}

#[test]
fn without_security() {
    let offers = Offers {
        header_digest: Some(vec![Digest::Crc32c, Digest::None]),
        initial_r2t: Some(false),
        max_recv_data_segment_length: Some(65_536),
        max_burst_length: Some(1_048_576),
        ..Offers::default()
    };
    let mut portal = Portal::default();
    portal.admission.offers = Offers {
        header_digest: Some(vec![Digest::None, Digest::Crc32c]),
        initial_r2t: Some(false),
        max_recv_data_segment_length: Some(131_072),
        max_burst_length: Some(524_288),
        ..Offers::default()
    };
    let ending = converse(initiator_settings(offers), leading(), &portal, 8192);
    assert_eq!(
        transcript(&ending),
        "\
> 0->1 InitiatorName=iqn.2026-01.example:initiator TargetName=iqn.2026-01.example:target \
  SessionType=Normal AuthMethod=None
< 0->1 TargetPortalGroupTag=1 AuthMethod=None
> 1->3 HeaderDigest=CRC32C,None InitialR2T=No MaxRecvDataSegmentLength=65536 MaxBurstLength=1048576
< 1->3 HeaderDigest=CRC32C InitialR2T=No MaxBurstLength=524288 MaxRecvDataSegmentLength=131072"
    );
    let (initiator, target, place) = ending.both();
    assert_eq!(place, SessionPlace::Leading);
    assert_eq!((initiator.tsih, target.tsih), (77, 77));
    assert_eq!(initiator.target_portal_group_tag, Some(1));
    assert_eq!(target.initiator_name, INITIATOR);
    assert_eq!(target.target_name.as_deref(), Some(TARGET));
    assert!(!target.is_initiator_authenticated);
    let expected = Parameters {
        header_digest: Digest::Crc32c,
        initial_r2t: false,
        initiator_max_recv_data_segment_length: 65_536,
        target_max_recv_data_segment_length: 131_072,
        max_burst_length: 524_288,
        ..Parameters::default()
    };
    assert_eq!((&initiator.parameters, &target.parameters), (&expected, &expected));
}

#[test]
fn from_the_operational_stage_on() {
    let settings = InitiatorLoginSettings { is_security_skipped: true, ..initiator_settings(Offers::default()) };
    let ending = converse(settings, leading(), &Portal::default(), 8192);
    assert_eq!(
        transcript(&ending),
        "\
> 1->3 InitiatorName=iqn.2026-01.example:initiator TargetName=iqn.2026-01.example:target SessionType=Normal
< 1->3 TargetPortalGroupTag=1"
    );
    ending.both();
}

#[test]
fn chap_one_way() {
    for algorithm in [Algorithm::Md5, Algorithm::Sha256] {
        let settings = InitiatorLoginSettings {
            chap: Some(credentials("joe", "secret of the initiator")),
            chap_algorithms: vec![Algorithm::Sha256, Algorithm::Md5],
            ..initiator_settings(Offers::default())
        };
        let ending = converse(settings, leading(), &chap_portal(algorithm), 8192);
        let expected = "\
> 0 InitiatorName=iqn.2026-01.example:initiator TargetName=iqn.2026-01.example:target SessionType=Normal AuthMethod=CHAP
< 0 TargetPortalGroupTag=1 AuthMethod=CHAP
> 0 CHAP_A=7,5
< 0 CHAP_A=NUMBER CHAP_I=1 CHAP_C=...
> 0->1 CHAP_N=joe CHAP_R=...
< 0->1
> 1->3
< 1->3";
        assert_eq!(transcript(&ending), expected.replace("NUMBER", &algorithm.number().to_string()));
        let (initiator, target, _) = ending.both();
        assert!(initiator.is_initiator_authenticated && target.is_initiator_authenticated);
        assert!(!initiator.is_target_authenticated && !target.is_target_authenticated);
    }
}

#[test]
fn chap_both_ways() {
    let settings = InitiatorLoginSettings {
        chap: Some(credentials("joe", "secret of the initiator")),
        chap_of_target: Some(credentials("disk", "secret of the target")),
        ..initiator_settings(Offers::default())
    };
    let ending = converse(settings, leading(), &chap_portal(Algorithm::Md5), 8192);
    assert_eq!(
        ending.transcript[4..6],
        ["> 0->1 CHAP_N=joe CHAP_R=... CHAP_I=2 CHAP_C=...", "< 0->1 CHAP_N=disk CHAP_R=..."]
    );
    let (initiator, target, _) = ending.both();
    assert!(initiator.is_target_authenticated && target.is_target_authenticated);
}

#[test]
fn a_wrong_secret_is_refused_by_the_target() {
    for chap in [credentials("joe", "guess"), credentials("jim", "secret of the initiator")] {
        let settings = InitiatorLoginSettings { chap: Some(chap), ..initiator_settings(Offers::default()) };
        let ending = converse(settings, leading(), &chap_portal(Algorithm::Md5), 8192);
        assert_eq!(ending.initiator, Err(LoginError::Refused(LoginStatus::AuthenticationFailure)));
        assert!(matches!(ending.target, Outcome::Failed(_)));
    }
}

#[test]
fn a_target_with_a_wrong_secret_is_refused_by_the_initiator() {
    for chap_of_target in [credentials("disk", "guess"), credentials("tape", "secret of the target")] {
        let settings = InitiatorLoginSettings {
            chap: Some(credentials("joe", "secret of the initiator")),
            chap_of_target: Some(chap_of_target),
            ..initiator_settings(Offers::default())
        };
        let ending = converse(settings, leading(), &chap_portal(Algorithm::Md5), 8192);
        assert_eq!(
            ending.initiator.unwrap_err().to_string(),
            "authentication failed: CHAP_N and CHAP_R are not those of the expected target \
             (RFC 7143 section 12.1.3)"
        );
    }
}

#[test]
fn a_required_chap_is_done_or_the_login_fails() {
    let with = |chap: Option<Credentials>, portal: &Portal| {
        let settings = InitiatorLoginSettings { chap, ..initiator_settings(Offers::default()) };
        converse(settings, leading(), portal, 8192).initiator
    };
    let refused = Err(LoginError::Refused(LoginStatus::AuthenticationFailure));
    assert_eq!(with(None, &chap_portal(Algorithm::Md5)), refused);
    assert_eq!(with(Some(credentials("joe", "secret of the initiator")), &Portal::default()), refused);
    // an initiator for which authentication is optional offers both
    let settings = InitiatorLoginSettings {
        chap: Some(credentials("joe", "secret of the initiator")),
        is_chap_optional: true,
        ..initiator_settings(Offers::default())
    };
    let ending = converse(settings, leading(), &Portal::default(), 8192);
    assert!(ending.transcript[0].ends_with("AuthMethod=CHAP,None"));
    ending.both();
}

#[test]
fn an_initiator_that_requires_target_authentication_stops_without_it() {
    let settings = InitiatorLoginSettings {
        chap: Some(credentials("joe", "secret of the initiator")),
        chap_of_target: Some(credentials("disk", "secret of the target")),
        is_chap_optional: true,
        ..initiator_settings(Offers::default())
    };
    let ending = converse(settings, leading(), &Portal::default(), 8192);
    assert!(matches!(ending.initiator, Err(LoginError::Authentication { .. })));
}

#[test]
fn a_target_offers_keys_that_the_initiator_omitted() {
    let mut portal = Portal::default();
    portal.admission.offers = Offers {
        immediate_data: Some(false),
        max_burst_length: Some(65_536),
        default_time2retain: Some(3600),
        ..Offers::default()
    };
    let ending = converse(initiator_settings(Offers::default()), leading(), &portal, 8192);
    assert_eq!(
        ending.transcript[2..],
        [
            "> 1->3",
            "< 1 ImmediateData=No MaxBurstLength=65536",
            "> 1->3 ImmediateData=No MaxBurstLength=65536",
            "< 1->3"
        ]
    );
    let (initiator, target, _) = ending.both();
    assert_eq!(initiator.parameters, target.parameters);
    assert_eq!(initiator.parameters.max_burst_length, 65_536);
    assert_eq!(initiator.parameters.default_time2retain, 20);
}

#[test]
fn first_burst_length_is_answered_within_max_burst_length() {
    let offers = |max, first| Offers {
        initial_r2t: Some(false),
        max_burst_length: Some(max),
        first_burst_length: Some(first),
        ..Offers::default()
    };
    let mut portal = Portal::default();
    portal.admission.offers = offers(131_072, 131_072);
    let ending = converse(initiator_settings(offers(65_536, 65_536)), leading(), &portal, 8192);
    assert_eq!(ending.transcript[3], "< 1->3 InitialR2T=No MaxBurstLength=65536 FirstBurstLength=65536");
    // an initiator that does not name MaxBurstLength (262144) may offer a longer first burst
    let settings = initiator_settings(Offers { max_burst_length: None, ..offers(0, 1_048_576) });
    portal.admission.offers = offers(1_048_576, 1_048_576);
    let ending = converse(settings, leading(), &portal, 8192);
    assert_eq!(ending.transcript[3], "< 1->3 InitialR2T=No FirstBurstLength=262144");
}

#[test]
fn text_over_several_pdus() {
    let settings = InitiatorLoginSettings {
        login_data_segment_bytes: 60,
        ..initiator_settings(Offers { max_burst_length: Some(65_536), ..Offers::default() })
    };
    let ending = converse(settings, leading(), &Portal::default(), 30);
    assert_eq!(
        transcript(&ending),
        "\
> 0 C InitiatorName=iqn.2026-01.example:initiator TargetName=iqn.2
< 0
> 0->1 026-01.example:target SessionType=Normal AuthMethod=None
< 0 C TargetPortalGroupTag=1 AuthMet
> 0
< 0 hod=None
> 0->1
< 0->1
> 1->3 MaxBurstLength=65536
< 1->3 MaxBurstLength=65536"
    );
    ending.both();
}

#[test]
fn a_further_connection_negotiates_only_keys_of_a_connection() {
    let session = Parameters { max_connections: 4, max_burst_length: 131_072, ..Parameters::default() };
    let mut portal = Portal::default();
    portal.admission.place = SessionPlace::Further { parameters: Box::new(session.clone()) };
    let identity = SessionIdentity { tsih: 77, cid: 3, session: Some(Box::new(session.clone())), ..leading() };
    let ending = converse(initiator_settings(Offers::usual()), identity, &portal, 8192);
    assert_eq!(
        ending.transcript[2..],
        [
            "> 1->3 HeaderDigest=None DataDigest=None MaxRecvDataSegmentLength=262144",
            "< 1->3 HeaderDigest=None DataDigest=None"
        ]
    );
    let (initiator, target, place) = ending.both();
    let expected = Parameters { initiator_max_recv_data_segment_length: 262_144, ..session };
    assert_eq!((&initiator.parameters, &target.parameters), (&expected, &expected));
    assert_eq!((target.tsih, target.cid), (77, 3));
    assert!(matches!(place, SessionPlace::Further { .. }));
}

#[test]
fn discovery_names_no_target() {
    let settings = InitiatorLoginSettings {
        session_type: SessionType::Discovery,
        target_name: None,
        ..initiator_settings(Offers::usual())
    };
    let ending = converse(settings, leading(), &Portal::default(), 8192);
    assert_eq!(
        transcript(&ending),
        "\
> 0->1 InitiatorName=iqn.2026-01.example:initiator SessionType=Discovery AuthMethod=None
< 0->1 AuthMethod=None
> 1->3 HeaderDigest=None DataDigest=None MaxRecvDataSegmentLength=262144 \
  DefaultTime2Wait=2 DefaultTime2Retain=0 ErrorRecoveryLevel=0
< 1->3 HeaderDigest=None DataDigest=None DefaultTime2Wait=2 DefaultTime2Retain=0 ErrorRecoveryLevel=0"
    );
    let (initiator, target, _) = ending.both();
    assert_eq!((initiator.session_type, target.session_type), (SessionType::Discovery, SessionType::Discovery));
}

#[test]
fn a_redirection_returns_the_addresses() {
    for (status, is_permanent) in
        [(LoginStatus::TargetMovedTemporarily, false), (LoginStatus::TargetMovedPermanently, true)]
    {
        let mut refusal = LoginFailure::new(status, "moved", "11.13.5");
        refusal.target_addresses = vec!["10.0.0.2:3260,1".to_owned(), "[2001:db8::2]:3260".to_owned()];
        let portal = Portal { refusal: Some(refusal), ..Portal::default() };
        let ending = converse(initiator_settings(Offers::default()), leading(), &portal, 8192);
        let target_addresses = vec!["10.0.0.2:3260,1".to_owned(), "[2001:db8::2]:3260".to_owned()];
        assert_eq!(ending.initiator, Ok(Step::Redirected(Redirection { is_permanent, target_addresses })));
    }
}

#[test]
fn a_refusal_has_the_words_of_the_rfc() {
    let settings = InitiatorLoginSettings {
        target_name: Some("iqn.2026-01.example:another".to_owned()),
        ..initiator_settings(Offers::default())
    };
    let ending = converse(settings, leading(), &Portal::default(), 8192);
    assert_eq!(ending.initiator.unwrap_err().to_string(), "the target refused the login: Not Found (0x0203)");
}

#[test]
fn invalid_login_settings_are_refused() {
    let message = |settings: InitiatorLoginSettings| settings.validate().unwrap_err().to_string();
    let good = initiator_settings(Offers::usual());
    assert_eq!(good.validate(), Ok(()));
    assert_eq!(
        message(InitiatorLoginSettings { target_name: None, ..good.clone() }),
        "a normal session needs a TargetName (RFC 7143 section 13.4)"
    );
    assert_eq!(
        message(InitiatorLoginSettings { initiator_name: "a b".to_owned(), ..good.clone() }),
        "InitiatorName is no iSCSI name (RFC 7143 section 4.2.7)"
    );
    let same = Some(credentials("joe", "same"));
    assert_eq!(
        message(InitiatorLoginSettings { chap: same.clone(), chap_of_target: same.clone(), ..good.clone() }),
        "initiator and target must have different CHAP secrets (RFC 7143 section 9.2.1)"
    );
    assert_eq!(
        message(InitiatorLoginSettings { chap_of_target: same, ..good }),
        "a target authenticates itself only to an initiator that does so, too (RFC 7143 section 12.1.3)"
    );
}
