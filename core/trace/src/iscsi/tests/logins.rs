//! Logins, and the session and the connection that they make.

use super::*;
use crate::tables::{
    Connection, Connections, Login, Logins, NULL_NS, NULL_U8, NULL_U16, NULL_U32, Parameter, Parameters, Session,
    Sessions,
};

/// Both stages: security (0), then operational negotiation (1), then the full feature phase (3). Frames 4 to 11.
fn two_stages() -> Talk {
    let mut talk = Talk::connect();
    let names =
        "InitiatorName=iqn.i\0InitiatorAlias=host\0TargetName=iqn.t\0SessionType=Normal\0AuthMethod=CHAP,None\0";
    talk.send(true, login_request(0, 1), names.as_bytes());
    talk.send(false, login_response(0, 1), b"TargetPortalGroupTag=4\0AuthMethod=None\0TargetAlias=disks\0");
    talk.send(true, login_request(1, 3), b"HeaderDigest=None\0MaxRecvDataSegmentLength=65536\0");
    talk.send(
        false,
        login_response(1, 3).stat_sn(SerialNumber(501)),
        b"HeaderDigest=None\0MaxRecvDataSegmentLength=8192\0",
    );
    talk
}

#[test]
fn each_login_request_and_its_response_are_one_row() {
    let row = Login {
        connection: CONNECTION,
        request_ns: at(5),
        response_ns: at(7),
        request_frame: 5,
        response_frame: 7,
        current_stage: 0,
        next_stage: 1,
        is_transit: true,
        status_class: 0,
        status_detail: 0,
        status_text: "success".into(),
    };
    let second = Login {
        request_ns: at(9),
        response_ns: at(11),
        request_frame: 9,
        response_frame: 11,
        current_stage: 1,
        next_stage: 3,
        ..row.clone()
    };
    assert_eq!(two_stages().finish().logins, Logins::of([row, second]));
}

#[test]
fn a_session_has_the_names_of_its_login() {
    let tables = two_stages().finish();
    let row = Session {
        session: 0,
        session_type: 0,
        initiator_name: "iqn.i".into(),
        initiator_alias: "host".into(),
        target_name: "iqn.t".into(),
        target_alias: "disks".into(),
        isid: "800102030405".into(),
        tsih: 0x0102,
        target_portal_group_tag: 4,
        auth_method: "None".into(),
        connection_count: 1,
        replaces: NULL_U32,
        is_login_captured: true,
        login_status: 0,
        end: 5,
        time_first_ns: at(1),
        time_last_ns: at(11),
        cycle_count: 0,
        read_bytes: 0,
        write_bytes: 0,
        queue_depth_max: 0,
    };
    assert_eq!(tables.sessions, Sessions::of([row]));
}

#[test]
fn a_connection_counts_its_packets_bytes_and_pdus() {
    // data segments with padding: 100 (of 97) and 52 (of 49) to the target, 60 (of 57) and 48 to the initiator
    let row = Connection {
        connection: CONNECTION,
        session: 0,
        cid: 9,
        is_iscsi: true,
        initiator_address: "10.0.0.1".into(),
        initiator_port: 50_000,
        target_address: "10.0.0.2".into(),
        target_port: 3260,
        roles_from: 0,
        frame_first: 1,
        frame_last: 11,
        time_first_ns: at(1),
        time_last_ns: at(11),
        has_syn: true,
        has_fin: false,
        has_rst: false,
        syn_ns: at(1),
        syn_frame: 1,
        syn_ack_ns: at(2),
        is_sack_permitted: false,
        has_timestamps: false,
        handshake_rtt_to_target_ns: 1000,
        handshake_rtt_to_initiator_ns: 1000,
        rtt_to_target_min_ns: 1000,
        rtt_to_initiator_min_ns: 1000,
        header_digest: 0,
        data_digest: 0,
        digest_source: 0,
        time_last_to_target_ns: at(9),
        data_last_to_target_ns: at(9),
        is_dont_fragment_to_target: true,
        packets_to_target: 6,
        stream_bytes_to_target: 2 * 48 + 100 + 52,
        captured_bytes_to_target: 2 * 48 + 100 + 52,
        explained_bytes_to_target: 2 * 48 + 100 + 52,
        pdu_count_to_target: 2,
        // the second PDU of its type
        last_pdu_opcode_to_target: 0x03,
        last_pdu_to_target_ns: at(8),
        last_pdu_to_target_frame: 8,
        last_pdu_opcode_to_initiator: 0x23,
        last_pdu_to_initiator_ns: at(10),
        last_pdu_to_initiator_frame: 10,
        hop_limit_to_target: 64,
        hop_limit_to_initiator: 64,
        time_last_to_initiator_ns: at(11),
        data_last_to_initiator_ns: at(11),
        is_dont_fragment_to_initiator: true,
        packets_to_initiator: 5,
        stream_bytes_to_initiator: 2 * 48 + 60 + 48,
        captured_bytes_to_initiator: 2 * 48 + 60 + 48,
        explained_bytes_to_initiator: 2 * 48 + 60 + 48,
        pdu_count_to_initiator: 2,
        ..Connection::default()
    };
    let mut found = Connections::default();
    found.copy_rows(&two_stages().finish().connections, &[1]);
    assert_eq!(found, Connections::of([row]));
}

#[test]
fn parameters_are_the_keys_in_order_then_the_defaults() {
    let parameters = two_stages().finish().parameters;
    let expected = [
        ("InitiatorName", "iqn.i", "", "iqn.i", "", 1),
        ("AuthMethod", "CHAP,None", "None", "None", "None", 0),
        ("HeaderDigest", "None", "None", "None", "None", 0),
        ("MaxRecvDataSegmentLength", "65536", "8192", "65536", "8192", 1),
        ("MaxBurstLength", "", "", "262144", "262144", 2),
    ];
    for (key, initiator_value, target_value, effective_initiator, effective_target, source) in expected {
        let place = parameters.key.iter().position(|name| name == key).expect(key);
        let mut row = Parameters::default();
        row.copy_rows(&parameters, &[place]);
        let expected = Parameter {
            connection: CONNECTION,
            session: 0,
            key: key.into(),
            initiator_value: initiator_value.into(),
            target_value: target_value.into(),
            effective_initiator: effective_initiator.into(),
            effective_target: effective_target.into(),
            source,
        };
        assert_eq!(row, Parameters::of([expected]));
    }
}

#[test]
fn a_refused_login_has_the_meaning_of_its_status() {
    // RFC 7143 section 11.13.5
    let texts = [
        (1, 1, "target moved temporarily"),
        (1, 2, "target moved permanently"),
        (1, 3, "redirection"),
        (2, 0, "initiator error"),
        (2, 1, "authentication failure"),
        (2, 2, "authorization failure"),
        (2, 3, "not found"),
        (2, 4, "target removed"),
        (2, 5, "unsupported version"),
        (2, 6, "too many connections"),
        (2, 7, "missing parameter"),
        (2, 8, "can't include in session"),
        (2, 9, "session type not supported"),
        (2, 10, "session does not exist"),
        (2, 11, "invalid during login"),
        (2, 12, "initiator error"),
        (3, 0, "target error"),
        (3, 1, "service unavailable"),
        (3, 2, "out of resources"),
    ];
    for (class, detail, text) in texts {
        let mut talk = Talk::connect();
        talk.send(true, login_request(1, 3), REQUESTED.as_bytes());
        let response = BhsBuilder::new(Opcode::LoginResponse)
            .current_stage(1)
            .isid(ISID)
            .initiator_task_tag(1)
            .status_class(class)
            .status_detail(detail);
        talk.send(false, response, &[]);
        let tables = talk.finish();
        let row = Login {
            connection: CONNECTION,
            request_ns: at(5),
            response_ns: at(7),
            request_frame: 5,
            response_frame: 7,
            current_stage: 1,
            next_stage: 3,
            is_transit: false,
            status_class: class,
            status_detail: detail,
            status_text: text.into(),
        };
        assert_eq!(tables.logins, Logins::of([row]));
        assert_eq!(tables.sessions.login_status, [u16::from(class) * 256 + u16::from(detail)]);
        // 4 refused; the target gave no TSIH
        assert_eq!((tables.sessions.end[0], tables.sessions.tsih[0]), (4, NULL_U16));
        // a redirection is no refusal
        let is_refused = tables.counters.name.iter().any(|name| name == "login_refused");
        assert_eq!(is_refused, class != 1, "class {class}");
    }
}

#[test]
fn a_login_request_without_a_response_has_none() {
    let mut talk = Talk::connect();
    talk.send(true, login_request(1, 3).is_transit(false), REQUESTED.as_bytes());
    let tables = talk.finish();
    let row = Login {
        connection: CONNECTION,
        request_ns: at(5),
        request_frame: 5,
        current_stage: 1,
        next_stage: NULL_U8,
        ..Login::default()
    };
    assert_eq!(tables.logins, Logins::of([row]));
    assert_eq!(tables.logins.response_ns, [NULL_NS]);
    assert_eq!(tables.sessions.target_portal_group_tag, [u32::MAX]);
}
