//! With any offers, both sides end with the same parameters: those of a naive implementation of the result functions.

use proptest::prelude::*;

use super::*;
use crate::protocol::keys::{Digest, Parameters, TaskReporting};

fn lists<T: Clone + std::fmt::Debug + 'static>(values: &'static [T]) -> impl Strategy<Value = Option<Vec<T>>> {
    let list = proptest::sample::subsequence(values, 1..=values.len()).prop_shuffle();
    proptest::option::of(list)
}

fn lengths() -> impl Strategy<Value = Option<u32>> {
    proptest::option::of(prop_oneof![
        Just(512_u32),
        Just(16_777_215),
        Just(262_144),
        512_u32..16_777_216,
        512_u32..9000
    ])
}

prop_compose! {
    fn offers()(
        digests in (lists(&[Digest::None, Digest::Crc32c]), lists(&[Digest::None, Digest::Crc32c])),
        booleans in proptest::array::uniform4(any::<Option<bool>>()),
        lengths in (lengths(), lengths(), lengths()),
        connections in proptest::option::of(prop_oneof![1_u32..=8, Just(65_535)]),
        times in proptest::array::uniform2(proptest::option::of(0_u32..=3600)),
        outstanding in proptest::option::of(1_u32..=65_535),
        level in proptest::option::of(0_u32..=2),
        reporting in lists(&[TaskReporting::Rfc3720, TaskReporting::ResponseFence, TaskReporting::FastAbort]),
        protocol_level in proptest::option::of(0_u32..=31),
    ) -> Offers {
        let (max_recv_data_segment_length, max_burst_length, first_burst_length) = lengths;
        Offers {
            header_digest: digests.0,
            data_digest: digests.1,
            max_connections: connections,
            initial_r2t: booleans[0],
            immediate_data: booleans[1],
            max_recv_data_segment_length,
            max_burst_length,
            first_burst_length: match (first_burst_length, max_burst_length) {
                (Some(first), Some(max)) => Some(first.min(max)),
                (first, _) => first,
            },
            default_time2wait: times[0],
            default_time2retain: times[1],
            max_outstanding_r2t: outstanding,
            data_pdu_in_order: booleans[2],
            data_sequence_in_order: booleans[3],
            error_recovery_level: level,
            task_reporting: reporting,
            iscsi_protocol_level: protocol_level,
        }
    }
}

/// The first of the initiator's list that the target supports.
fn first_common<T: PartialEq + Copy>(initiator: &Option<Vec<T>>, target: &Option<Vec<T>>, default: T) -> Option<T> {
    let or_default = |list: &Option<Vec<T>>| list.clone().unwrap_or(vec![default]);
    let target = or_default(target);
    or_default(initiator).into_iter().find(|value| target.contains(value))
}

/// RFC 7143 section 13, key by key; none when the two cannot agree.
fn naive(i: &Offers, t: &Offers, session: Option<&Parameters>, is_discovery: bool) -> Option<Parameters> {
    let minimum = |a: Option<u32>, b: Option<u32>, default: u32| a.unwrap_or(default).min(b.unwrap_or(default));
    let of_connection = |base: Parameters| {
        Some(Parameters {
            header_digest: first_common(&i.header_digest, &t.header_digest, Digest::None)?,
            data_digest: first_common(&i.data_digest, &t.data_digest, Digest::None)?,
            initiator_max_recv_data_segment_length: i.max_recv_data_segment_length.unwrap_or(8192),
            target_max_recv_data_segment_length: t.max_recv_data_segment_length.unwrap_or(8192),
            ..base
        })
    };
    if let Some(session) = session {
        return of_connection(session.clone());
    }
    let of_every_session = of_connection(Parameters {
        default_time2wait: i.default_time2wait.unwrap_or(2).max(t.default_time2wait.unwrap_or(2)),
        default_time2retain: minimum(i.default_time2retain, t.default_time2retain, 20),
        error_recovery_level: minimum(i.error_recovery_level, t.error_recovery_level, 0),
        ..Parameters::default()
    })?;
    if is_discovery {
        return Some(of_every_session);
    }
    let initial_r2t = i.initial_r2t.unwrap_or(true) || t.initial_r2t.unwrap_or(true);
    let immediate_data = i.immediate_data.unwrap_or(true) && t.immediate_data.unwrap_or(true);
    let max_burst_length = minimum(i.max_burst_length, t.max_burst_length, 262_144);
    let first_burst_length = match initial_r2t && !immediate_data {
        true => 65_536,
        false => minimum(i.first_burst_length, t.first_burst_length, 65_536),
    };
    Some(Parameters {
        max_connections: minimum(i.max_connections, t.max_connections, 1),
        initial_r2t,
        immediate_data,
        max_burst_length,
        first_burst_length: first_burst_length.min(max_burst_length),
        max_outstanding_r2t: minimum(i.max_outstanding_r2t, t.max_outstanding_r2t, 1),
        data_pdu_in_order: i.data_pdu_in_order.unwrap_or(true) || t.data_pdu_in_order.unwrap_or(true),
        data_sequence_in_order: i.data_sequence_in_order.unwrap_or(true) || t.data_sequence_in_order.unwrap_or(true),
        task_reporting: first_common(&i.task_reporting, &t.task_reporting, TaskReporting::Rfc3720)?,
        iscsi_protocol_level: minimum(i.iscsi_protocol_level, t.iscsi_protocol_level, 1),
        ..of_every_session
    })
}

fn judge(ending: Ending, expected: Option<Parameters>) -> Result<(), TestCaseError> {
    match expected {
        Some(expected) => {
            let (initiator, target, _) = ending.both();
            prop_assert_eq!(&initiator.parameters, &expected);
            prop_assert_eq!(&target.parameters, &expected);
            prop_assert_eq!(initiator.remarks, Vec::<String>::new());
            prop_assert_eq!(target.remarks, Vec::<String>::new());
        }
        None => {
            let has_failed = !matches!(ending.initiator, Ok(Step::Done(_)));
            prop_assert!(has_failed, "{:#?}", ending.transcript);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn a_leading_connection(
        initiator in offers(), target in offers(), parts in (64_usize..2000, 64_usize..2000), is_skipped: bool,
    ) {
        let expected = naive(&initiator, &target, None, false);
        let mut portal = Portal::default();
        portal.admission.offers = target;
        let settings = InitiatorLoginSettings {
            login_data_segment_bytes: parts.0,
            is_security_skipped: is_skipped,
            ..initiator_settings(initiator)
        };
        judge(converse(settings, leading(), &portal, parts.1), expected)?;
    }

    #[test]
    fn a_discovery_session(initiator in offers(), target in offers()) {
        let expected = naive(&initiator, &target, None, true);
        let mut portal = Portal::default();
        portal.admission.offers = target;
        let settings = InitiatorLoginSettings {
            session_type: SessionType::Discovery,
            target_name: None,
            ..initiator_settings(initiator)
        };
        judge(converse(settings, leading(), &portal, 8192), expected)?;
    }

    #[test]
    fn a_further_connection(
        of_session in (offers(), offers()), initiator in offers(), target in offers(), cid: u16,
    ) {
        let Some(session) = naive(&of_session.0, &of_session.1, None, false) else { return Ok(()) };
        let expected = naive(&initiator, &target, Some(&session), false);
        let mut portal = Portal::default();
        portal.admission.offers = target;
        portal.admission.place =
            SessionPlace::Further { parameters: Box::new(session.clone()) };
        let identity = SessionIdentity { tsih: 77, cid, session: Some(Box::new(session)), ..leading() };
        judge(converse(initiator_settings(initiator), identity, &portal, 8192), expected)?;
    }
}
