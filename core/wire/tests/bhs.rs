//! The basic header segment compared with the shared vectors, which were written by hand from the RFC's figures.

use std::collections::{BTreeMap, BTreeSet};

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, Field, field_end};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use proptest::prelude::*;
use serde_json::Value;

struct Vector {
    name: String,
    pdu: String,
    bytes: Vec<u8>,
    fields: BTreeMap<String, Value>,
    total_length: (u64, u64),
}

fn vectors() -> Vec<Vector> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/bhs.json");
    let text = std::fs::read_to_string(path).expect(path);
    let list: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let string = |value: &Value| value.as_str().expect("a string").to_owned();
    list.iter()
        .map(|vector| Vector {
            name: string(&vector["name"]),
            pdu: string(&vector["pdu"]),
            bytes: vector["hex"].as_array().expect("rows").iter().flat_map(|row| bytes_of(&string(row))).collect(),
            fields: serde_json::from_value(vector["fields"].clone()).expect("a map"),
            total_length: (
                vector["total_length"]["no_digests"].as_u64().expect("a number"),
                vector["total_length"]["both_digests"].as_u64().expect("a number"),
            ),
        })
        .collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits")).collect()
}

fn hex(bytes: &[u8]) -> Value {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// Every accessor, by the name that the vectors use.
fn view(bhs: Bhs<'_>) -> BTreeMap<String, Value> {
    let serial = |number: Option<SerialNumber>| number.map(|number| Value::from(number.0));
    let fields: [(&str, Option<Value>); 60] = [
        ("opcode", bhs.opcode().map(|opcode| opcode.as_u8().into())),
        ("is_immediate", bhs.is_immediate().map(Value::from)),
        ("total_ahs_length_bytes", bhs.total_ahs_length_bytes().map(Value::from)),
        ("data_segment_length", bhs.data_segment_length().map(Value::from)),
        ("is_final", bhs.is_final().map(Value::from)),
        ("is_continue", bhs.is_continue().map(Value::from)),
        ("is_transit", bhs.is_transit().map(Value::from)),
        ("current_stage", bhs.current_stage().map(Value::from)),
        ("next_stage", bhs.next_stage().map(Value::from)),
        ("is_read", bhs.is_read().map(Value::from)),
        ("is_write", bhs.is_write().map(Value::from)),
        ("task_attribute", bhs.task_attribute().map(Value::from)),
        ("is_acknowledge_requested", bhs.is_acknowledge_requested().map(Value::from)),
        ("has_status", bhs.has_status().map(Value::from)),
        ("is_overflow", bhs.is_overflow().map(Value::from)),
        ("is_underflow", bhs.is_underflow().map(Value::from)),
        ("is_bidirectional_read_overflow", bhs.is_bidirectional_read_overflow().map(Value::from)),
        ("is_bidirectional_read_underflow", bhs.is_bidirectional_read_underflow().map(Value::from)),
        ("function", bhs.function().map(Value::from)),
        ("logout_reason", bhs.logout_reason().map(Value::from)),
        ("snack_type", bhs.snack_type().map(Value::from)),
        ("lun", bhs.lun().map(|lun| hex(&lun))),
        ("initiator_task_tag", bhs.initiator_task_tag().map(Value::from)),
        ("target_transfer_tag", bhs.target_transfer_tag().map(Value::from)),
        ("cmd_sn", serial(bhs.cmd_sn())),
        ("stat_sn", serial(bhs.stat_sn())),
        ("exp_stat_sn", serial(bhs.exp_stat_sn())),
        ("exp_cmd_sn", serial(bhs.exp_cmd_sn())),
        ("max_cmd_sn", serial(bhs.max_cmd_sn())),
        ("data_sn", serial(bhs.data_sn())),
        ("r2t_sn", serial(bhs.r2t_sn())),
        ("exp_data_sn", serial(bhs.exp_data_sn())),
        ("buffer_offset", bhs.buffer_offset().map(Value::from)),
        ("desired_data_transfer_length", bhs.desired_data_transfer_length().map(Value::from)),
        ("expected_data_transfer_length", bhs.expected_data_transfer_length().map(Value::from)),
        ("cdb", bhs.cdb().map(|cdb| hex(&cdb))),
        ("response", bhs.response().map(Value::from)),
        ("status", bhs.status().map(Value::from)),
        ("snack_tag", bhs.snack_tag().map(Value::from)),
        ("bidirectional_read_residual_count", bhs.bidirectional_read_residual_count().map(Value::from)),
        ("residual_count", bhs.residual_count().map(Value::from)),
        ("version_max", bhs.version_max().map(Value::from)),
        ("version_min", bhs.version_min().map(Value::from)),
        ("version_active", bhs.version_active().map(Value::from)),
        ("isid", bhs.isid().map(|isid| hex(&isid))),
        ("tsih", bhs.tsih().map(Value::from)),
        ("cid", bhs.cid().map(Value::from)),
        ("status_class", bhs.status_class().map(Value::from)),
        ("status_detail", bhs.status_detail().map(Value::from)),
        ("referenced_task_tag", bhs.referenced_task_tag().map(Value::from)),
        ("ref_cmd_sn", serial(bhs.ref_cmd_sn())),
        ("time2wait", bhs.time2wait().map(Value::from)),
        ("time2retain", bhs.time2retain().map(Value::from)),
        ("beg_run", serial(bhs.beg_run())),
        ("run_length", bhs.run_length().map(Value::from)),
        ("async_event", bhs.async_event().map(Value::from)),
        ("async_vcode", bhs.async_vcode().map(Value::from)),
        ("parameter1", bhs.parameter1().map(Value::from)),
        ("parameter2", bhs.parameter2().map(Value::from)),
        ("parameter3", bhs.parameter3().map(Value::from)),
    ];
    let reject_reason = ("reject_reason", bhs.reject_reason().map(Value::from));
    let present = fields.into_iter().chain([reject_reason]);
    present.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The byte after the last that must be captured to read a field, from the figures of RFC 7143 section 11.
fn needed_bytes(name: &str, pdu: &str) -> usize {
    match name {
        "opcode" | "is_immediate" => 1,
        "total_ahs_length_bytes" => 5,
        "data_segment_length" => 8,
        "response" | "version_max" | "reject_reason" => 3,
        "status" | "version_min" | "version_active" => 4,
        // The tag or event after it shows whether the LUN is meaningful.
        "lun" if ["NOP-Out", "NOP-In", "SCSI Data-Out", "Text Request", "Text Response"].contains(&pdu) => 24,
        "lun" if pdu == "Asynchronous Message" => 37,
        "lun" | "tsih" => 16,
        "isid" => 14,
        "initiator_task_tag" => 20,
        "cid" => 22,
        "target_transfer_tag" | "expected_data_transfer_length" | "referenced_task_tag" | "snack_tag" => 24,
        "cmd_sn" | "stat_sn" => 28,
        "exp_stat_sn" | "exp_cmd_sn" => 32,
        "max_cmd_sn" | "ref_cmd_sn" => 36,
        "status_class" | "async_event" => 37,
        "status_detail" | "async_vcode" => 38,
        "data_sn" | "r2t_sn" | "exp_data_sn" | "parameter1" => 40,
        "time2wait" | "parameter2" => 42,
        "buffer_offset" | "bidirectional_read_residual_count" | "beg_run" | "time2retain" | "parameter3" => 44,
        "desired_data_transfer_length" | "residual_count" | "run_length" | "cdb" => 48,
        // All that is left is in byte 1.
        _ => 2,
    }
}

#[test]
fn every_pdu_type_has_a_vector() {
    let pdus: BTreeSet<String> = vectors().into_iter().map(|vector| vector.pdu).collect();
    let names: BTreeSet<String> = Opcode::ALL.iter().map(|opcode| opcode.name().to_owned()).collect();
    assert_eq!(pdus, names);
}

#[test]
fn the_view_has_exactly_the_fields_of_the_type() {
    for vector in vectors() {
        let bhs = Bhs::new(&vector.bytes);
        assert_eq!(bhs.opcode().map(Opcode::name), Some(vector.pdu.as_str()), "{}", vector.name);
        assert_eq!(view(bhs), vector.fields, "{}", vector.name);
        let lengths = (bhs.total_length(false, false), bhs.total_length(true, true));
        assert_eq!(lengths, (Some(vector.total_length.0), Some(vector.total_length.1)), "{}", vector.name);
    }
}

#[test]
fn bytes_after_the_header_change_nothing() {
    for vector in vectors() {
        let longer = [vector.bytes.clone(), vec![0xff; 100]].concat();
        assert_eq!(view(Bhs::new(&longer)), vector.fields, "{}", vector.name);
    }
}

#[test]
fn a_cut_header_shows_the_fields_before_the_cut() {
    for vector in vectors() {
        for captured in 0..=48 {
            let bhs = Bhs::new(&vector.bytes[..captured]);
            let mut expected = vector.fields.clone();
            expected.retain(|name, _| needed_bytes(name, &vector.pdu) <= captured);
            assert_eq!(view(bhs), expected, "{} cut after {captured} bytes", vector.name);
            assert_eq!(bhs.total_length(false, false).is_some(), captured >= 8, "{}", vector.name);
            assert_eq!(bhs.is_valid().is_ok(), captured > 0, "{} cut after {captured} bytes", vector.name);
        }
    }
}

#[test]
fn field_ends_are_those_of_the_figures() {
    assert_eq!(field_end(Opcode::ScsiCommand, Field::CmdSn), Some(28));
    assert_eq!(field_end(Opcode::ScsiCommand, Field::StatSn), None);
    assert_eq!(field_end(Opcode::ScsiCommand, Field::ExpectedDataTransferLength), Some(24));
    assert_eq!(field_end(Opcode::DataOut, Field::CmdSn), None);
    assert_eq!(field_end(Opcode::DataOut, Field::ExpStatSn), Some(32));
    assert_eq!(field_end(Opcode::DataIn, Field::Lun), Some(16));
    assert_eq!(field_end(Opcode::DataIn, Field::Status), Some(4));
    assert_eq!(field_end(Opcode::ScsiResponse, Field::Lun), None);
    assert_eq!(field_end(Opcode::ReadyToTransfer, Field::DataSn), Some(40));
    assert_eq!(field_end(Opcode::Reject, Field::InitiatorTaskTag), Some(20));
    assert_eq!(field_end(Opcode::LoginRequest, Field::TargetTransferTag), None);
    assert_eq!(field_end(Opcode::NopIn, Field::MaxCmdSn), Some(36));
}

#[test]
fn one_line_tells_the_pdu() {
    let lines: Vec<String> = vectors().iter().map(|vector| Bhs::new(&vector.bytes).to_string()).collect();
    assert!(lines.contains(&"SCSI Data-In ITT 0x1000000f DSL 36 F U S".to_owned()), "{lines:#?}");
    assert!(lines.contains(&"Login Request ITT 0x10000005 DSL 258 I T".to_owned()), "{lines:#?}");
    assert_eq!(Bhs::new(&[0x25, 0x80]).to_string(), "SCSI Data-In F (cut after 2 of 48 bytes)");
    assert_eq!(Bhs::new(&[0x1c]).to_string(), "unknown opcode 0x1c (cut after 1 of 48 bytes)");
    assert_eq!(Bhs::new(&[]).to_string(), "empty header");
}

/// Invalid headers: (vector, byte, value, reported byte), each violating one requirement of RFC 7143.
#[test]
fn one_wrong_byte_makes_a_header_implausible() {
    let cases: [(&str, usize, u8, u8); 39] = [
        ("NOP-Out, ping from the initiator", 0, 0x1c, 0),
        ("NOP-Out, ping from the initiator", 0, 0x80, 0),
        ("NOP-Out, ping from the initiator", 1, 0x00, 1),
        ("NOP-Out, ping from the initiator", 4, 0x01, 4),
        ("NOP-Out, ping from the initiator", 47, 0x01, 47),
        ("NOP-In, ping from the target", 0, 0x60, 0),
        ("NOP-In, ping from the target", 36, 0x01, 36),
        ("SCSI Command, write with immediate data", 1, 0x21 | 0x10, 1),
        ("SCSI Command, write with immediate data", 1, 0xa5, 1),
        ("SCSI Command, write with immediate data", 1, 0xc1, 5),
        ("SCSI Command, write with immediate data", 1, 0x01, 1),
        ("SCSI Command, write with immediate data", 3, 0x01, 3),
        ("SCSI Command, write with immediate data", 4, 65, 4),
        ("SCSI Command, write with immediate data", 5, 0x05, 5),
        ("SCSI Response, bidirectional", 1, 0x14, 1),
        ("SCSI Response, bidirectional", 2, 0x02, 2),
        ("SCSI Response, bidirectional", 3, 0x01, 3),
        ("Task Management Function Request, ABORT TASK", 1, 0x80, 1),
        ("Task Management Function Request, ABORT TASK", 1, 0x80 | 13, 1),
        ("Task Management Function Request, ABORT TASK", 7, 0x01, 5),
        ("Task Management Function Response", 2, 8, 2),
        ("Login Request", 0, 0x03, 0),
        ("Login Request", 1, 0x87 | 0x10, 1),
        ("Login Request", 1, 0x8b, 1),
        ("Login Request", 1, 0x82, 1),
        ("Login Request", 2, 0x01, 2),
        ("Login Response, refused", 36, 0x04, 36),
        ("Login Response, to be continued", 1, 0x4c, 1),
        ("Text Response", 1, 0x81, 1),
        ("SCSI Data-Out, solicited", 0, 0x45, 0),
        ("SCSI Data-Out, solicited", 1, 0x81, 1),
        ("SCSI Data-In, last with status", 3, 0x03, 3),
        ("Logout Request, close the connection", 1, 0x83, 1),
        ("Logout Response", 2, 0x04, 2),
        ("SNACK Request, Status", 1, 0x84, 1),
        ("Ready To Transfer", 1, 0x00, 1),
        ("Asynchronous Message, SCSI event", 36, 0x06, 36),
        ("Asynchronous Message, SCSI event", 16, 0x00, 16),
        ("Reject, protocol error", 2, 0x00, 2),
    ];
    let vectors = vectors();
    for (name, byte, value, blamed) in cases {
        let vector = vectors.iter().find(|vector| vector.name == name).expect(name);
        let mut bytes = vector.bytes.clone();
        assert_ne!(bytes[byte], value, "{name}");
        bytes[byte] = value;
        let invalid = Bhs::new(&bytes).is_valid().expect_err(name);
        assert_eq!(invalid.byte, blamed, "{name}: {invalid}");
    }
}

#[test]
fn multi_byte_values_are_checked_too() {
    let command = BhsBuilder::new(Opcode::ScsiCommand).is_final(true).initiator_task_tag(7);
    assert!(Bhs::new(&command.build()).is_valid().is_ok());
    for (header, blamed) in [
        (command.initiator_task_tag(u32::MAX), 16),
        (command.expected_data_transfer_length(512), 20),
        (command.is_write(true).expected_data_transfer_length(511).data_segment_length(512), 5),
        (BhsBuilder::new(Opcode::ReadyToTransfer).target_transfer_tag(1), 44),
        (BhsBuilder::new(Opcode::DataIn).buffer_offset(u32::MAX).data_segment_length(1), 40),
    ] {
        assert_eq!(Bhs::new(&header.build()).is_valid().expect_err("invalid").byte, blamed);
    }
}

/// From the values of a vector, the builder must make its bytes.
fn rebuilt(fields: &BTreeMap<String, Value>) -> [u8; 48] {
    let opcode = fields["opcode"].as_u64().and_then(|opcode| Opcode::from_u8(opcode as u8)).expect("an opcode");
    let mut builder = BhsBuilder::new(opcode);
    for (name, value) in fields {
        let flag = value.as_bool().unwrap_or(false);
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        let (short, byte, serial) = (number as u16, number as u8, SerialNumber(number));
        let string = bytes_of(value.as_str().unwrap_or(""));
        builder = match name.as_str() {
            "opcode" => builder,
            "is_immediate" => builder.is_immediate(flag),
            "total_ahs_length_bytes" => builder.total_ahs_length_words(byte / 4),
            "data_segment_length" => builder.data_segment_length(number),
            "is_final" => builder.is_final(flag),
            "is_continue" => builder.is_continue(flag),
            "is_transit" => builder.is_transit(flag),
            "current_stage" => builder.current_stage(byte),
            "next_stage" => builder.next_stage(byte),
            "is_read" => builder.is_read(flag),
            "is_write" => builder.is_write(flag),
            "task_attribute" => builder.task_attribute(byte),
            "is_acknowledge_requested" => builder.is_acknowledge_requested(flag),
            "has_status" => builder.has_status(flag),
            "is_overflow" => builder.is_overflow(flag),
            "is_underflow" => builder.is_underflow(flag),
            "is_bidirectional_read_overflow" => builder.is_bidirectional_read_overflow(flag),
            "is_bidirectional_read_underflow" => builder.is_bidirectional_read_underflow(flag),
            "function" => builder.function(byte),
            "logout_reason" => builder.logout_reason(byte),
            "snack_type" => builder.snack_type(byte),
            "lun" => builder.lun(string.try_into().expect("8 bytes")),
            "initiator_task_tag" => builder.initiator_task_tag(number),
            "target_transfer_tag" => builder.target_transfer_tag(number),
            "cmd_sn" => builder.cmd_sn(serial),
            "stat_sn" => builder.stat_sn(serial),
            "exp_stat_sn" => builder.exp_stat_sn(serial),
            "exp_cmd_sn" => builder.exp_cmd_sn(serial),
            "max_cmd_sn" => builder.max_cmd_sn(serial),
            "data_sn" => builder.data_sn(serial),
            "r2t_sn" => builder.r2t_sn(serial),
            "exp_data_sn" => builder.exp_data_sn(serial),
            "buffer_offset" => builder.buffer_offset(number),
            "desired_data_transfer_length" => builder.desired_data_transfer_length(number),
            "expected_data_transfer_length" => builder.expected_data_transfer_length(number),
            "cdb" => builder.cdb(string.try_into().expect("16 bytes")),
            "response" => builder.response(byte),
            "status" => builder.status(byte),
            "snack_tag" => builder.snack_tag(number),
            "bidirectional_read_residual_count" => builder.bidirectional_read_residual_count(number),
            "residual_count" => builder.residual_count(number),
            "version_max" => builder.version_max(byte),
            "version_min" => builder.version_min(byte),
            "version_active" => builder.version_active(byte),
            "isid" => builder.isid(string.try_into().expect("6 bytes")),
            "tsih" => builder.tsih(short),
            "cid" => builder.cid(short),
            "status_class" => builder.status_class(byte),
            "status_detail" => builder.status_detail(byte),
            "referenced_task_tag" => builder.referenced_task_tag(number),
            "ref_cmd_sn" => builder.ref_cmd_sn(serial),
            "time2wait" => builder.time2wait(short),
            "time2retain" => builder.time2retain(short),
            "beg_run" => builder.beg_run(serial),
            "run_length" => builder.run_length(number),
            "async_event" => builder.async_event(byte),
            "async_vcode" => builder.async_vcode(byte),
            "parameter1" => builder.parameter1(short),
            "parameter2" => builder.parameter2(short),
            "parameter3" => builder.parameter3(short),
            "reject_reason" => builder.reject_reason(byte),
            unknown => panic!("no setter for {unknown}"),
        };
    }
    builder.build()
}

#[test]
fn the_builder_makes_the_bytes_of_the_vectors() {
    for vector in vectors() {
        assert_eq!(rebuilt(&vector.fields).as_slice(), vector.bytes, "{}", vector.name);
    }
}

proptest! {
    /// The builder can write every value that a view shows, and the view then shows the same.
    #[test]
    fn shown_headers_can_be_built(
        mut header in proptest::collection::vec(any::<u8>(), 48),
        opcode in proptest::sample::select(&Opcode::ALL),
        words in 0_u8..64,
    ) {
        header[0] = (header[0] & 0x40) | opcode.as_u8();
        header[4] = words;
        let fields = view(Bhs::new(&header));
        let built = rebuilt(&fields);
        prop_assert_eq!(view(Bhs::new(&built)), fields);
    }

    /// No bytes, of any length, make the view or the check panic.
    #[test]
    fn any_bytes_have_a_view(header in proptest::collection::vec(any::<u8>(), 0..60)) {
        let bhs = Bhs::new(&header);
        prop_assert!(bhs.is_valid().is_err() || bhs.opcode().is_some());
        prop_assert!(!bhs.to_string().is_empty());
        prop_assert!(view(bhs).len() < 60);
    }

    /// Truncation never changes a field: it is the same or absent.
    #[test]
    fn a_cut_only_removes_fields(header in proptest::collection::vec(any::<u8>(), 48), captured in 0_usize..48) {
        let whole = view(Bhs::new(&header));
        for (name, value) in view(Bhs::new(&header[..captured])) {
            prop_assert_eq!(Some(&value), whole.get(&name), "{}", name);
        }
    }
}
