//! What a target says of its logical units while an initiator scans.

use super::*;
use crate::tables::{AluaState, AluaStates, LogicalUnit, LogicalUnits};

const INQUIRY: [u8; 36] = *b"\x00\x00\x06\x12\x1f\x10\x00\x02VENDOR  PRODUCT         1.0 ";
const SERIAL: &[u8] = b"\x00\x80\x00\x04abcd";
/// A T10 designator of 12 bytes, an NAA 6 designator, relative target port 2, target port group 7.
const IDENTIFICATION: &[u8] = b"\x00\x83\x00\x34\
    \x02\x01\x00\x0cVENDOR  abcd\
    \x01\x03\x00\x10\x60\x01\x40\x50\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\
    \x51\x94\x00\x04\x00\x00\x00\x02\
    \x51\x95\x00\x04\x00\x00\x00\x07";
const NAA: &str = "naa.60014050000000000000000000000001";
const CAPACITY_10: &[u8] = &[0, 0, 0x1f, 0xff, 0, 0, 2, 0];
const INQUIRY_CDB: &[u8] = &[0x12, 0, 0, 0, 36];
const IDENTIFICATION_CDB: &[u8] = &[0x12, 1, 0x83, 0, 255];

/// One read of parameter data, in Data-In of these sizes; frames: two for each PDU.
fn report(talk: &mut Talk, tag: u32, cdb: &[u8], data: &[u8], pdu_bytes: usize) {
    talk.send(true, command(tag, tag, 255, cdb).is_read(true), &[]);
    let mut offset = 0;
    for (data_sn, part) in (0..).zip(data.chunks(pdu_bytes)) {
        talk.send(false, numbered(data_in(tag, data_sn, offset), None, tag + 1), part);
        offset += part.len() as u32;
    }
    let pdu_count = data.len().div_ceil(pdu_bytes) as u32;
    talk.send(false, response(tag, 501 + tag - 100, tag + 1, pdu_count), &[]);
}

#[test]
fn a_scan_describes_the_logical_unit() {
    let mut talk = Talk::login();
    let mut block_limits = [0; 64];
    block_limits[..8].copy_from_slice(&[0, 0xb0, 0, 60, 0, 0, 0, 8]);
    block_limits[8..16].copy_from_slice(&[0, 0, 0x40, 0, 0, 0, 0x10, 0]);
    block_limits[28..32].copy_from_slice(&[0, 0, 0x20, 0]);
    let mut capacity_16 = [0; 32];
    capacity_16[6..16].copy_from_slice(&[0x1f, 0xff, 0, 0, 2, 0, 0, 0x03, 0, 7]);
    let groups = |state: u8| [0, 0, 0, 12, state, 0xff, 0, 7, 0, 0, 0, 1, 0, 0, 0, 2];
    let reports: [(&[u8], &[u8], usize); 10] = [
        (INQUIRY_CDB, &INQUIRY, 255),
        (&[0x12, 1, 0x80, 0, 255], SERIAL, 255),
        // cut in the middle of a designator, twice
        (IDENTIFICATION_CDB, IDENTIFICATION, 22),
        (&[0x12, 1, 0xb0, 0, 64], &block_limits, 16),
        (&[0x25], CAPACITY_10, 255),
        (&[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32], &capacity_16, 255),
        (&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255], &groups(1), 255),
        (&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255], &groups(1), 255),
        (&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255], &groups(0x80), 255),
        // data of another kind that is kept by nothing
        (&[0x12, 1, 0x00, 0, 255], &[0, 0, 0, 1, 0x83], 255),
    ];
    let mut frames = Vec::new();
    for (tag, (cdb, data, pdu_bytes)) in (100..).zip(reports) {
        report(&mut talk, tag, cdb, data, pdu_bytes);
        frames.push(talk.frame);
    }
    let tables = talk.finish();
    let unit = LogicalUnit {
        session: 0,
        lun: 3,
        frame_first: 8,
        time_first_ns: at(8),
        peripheral_qualifier: 0,
        device_type: 0,
        tpgs: 1,
        vendor: "VENDOR".into(),
        product: "PRODUCT".into(),
        revision: "1.0".into(),
        unit_serial_number: "abcd".into(),
        designator: NAA.into(),
        relative_target_port: 2,
        target_port_group: 7,
        block_bytes: 512,
        block_count: 0x2000,
        physical_block_bytes: 4096,
        lowest_aligned_lba: 7,
        optimal_granularity_blocks: 8,
        maximum_transfer_blocks: 0x4000,
        optimal_transfer_blocks: 0x1000,
        unmap_granularity_blocks: 0x2000,
    };
    assert_eq!(tables.logical_units, LogicalUnits::of([unit]));
    // the report comes two frames before the last of its SCSI Response
    let state = |place: usize, state, is_preferred| AluaState {
        session: 0,
        lun: 3,
        time_ns: at(frames[place] - 2),
        frame: frames[place] - 2,
        target_port_group: 7,
        state,
        is_preferred,
    };
    assert_eq!(tables.alua_states, AluaStates::of([state(6, 1, false), state(8, 0, true)]));
    assert_eq!(counted(&tables, "logical_units_not_listed"), 0);
}

#[test]
fn a_snaplen_leaves_what_is_complete_before_the_cut() {
    let described = |kept_bytes: usize| {
        let mut talk = Talk::login();
        talk.send(true, command(100, 100, 255, IDENTIFICATION_CDB).is_read(true), &[]);
        talk.kept_bytes = kept_bytes;
        // in two Data-In, each in two packets of 20 and 28 + data bytes
        talk.send(false, numbered(data_in(100, 0, 0), None, 101), &IDENTIFICATION[..40]);
        talk.send(false, numbered(data_in(100, 1, 40), None, 101), &IDENTIFICATION[40..]);
        talk.kept_bytes = usize::MAX;
        talk.send(false, response(100, 501, 101, 2), &[]);
        let units = talk.finish().logical_units;
        (units.designator[0].to_owned(), units.relative_target_port[0], units.target_port_group[0])
    };
    assert_eq!(described(usize::MAX), (NAA.to_owned(), 2, 7));
    assert_eq!(described(28 + 40), (NAA.to_owned(), 2, 7));
    // the second PDU begins behind a hole; the T10 designator ends at byte 20
    assert_eq!(described(28 + 39), ("t10.VENDOR  abcd".to_owned(), u16::MAX, u16::MAX));
    assert_eq!(described(28 + 20), ("t10.VENDOR  abcd".to_owned(), u16::MAX, u16::MAX));
    assert_eq!(described(28 + 19), (String::new(), u16::MAX, u16::MAX));
}

/// Two Data-In of each of these commands in turn, the first of all before the second of any; command N is to LUN N.
fn interleaved(count: u32) -> LogicalUnits {
    let mut talk = Talk::login();
    for place in 0..count {
        let header = command(100 + place, 100 + place, 255, IDENTIFICATION_CDB).is_read(true);
        talk.send(true, header.lun([0, place as u8, 0, 0, 0, 0, 0, 0]), &[]);
    }
    for (data_sn, part, offset) in [(0, &IDENTIFICATION[..30], 0), (1, &IDENTIFICATION[30..], 30)] {
        for place in 0..count {
            let header = data_in(100 + place, data_sn, offset).is_final(data_sn == 1);
            talk.send(false, numbered(header, None, 100 + count), part);
        }
    }
    talk.finish().logical_units
}

#[test]
fn data_of_several_commands_at_once_is_kept_apart() {
    let units = interleaved(3);
    assert_eq!(units.lun, [0, 1, 2]);
    assert_eq!(units.designator, [NAA; 3]);
    // of more than 16 the oldest are forgotten
    let many = interleaved(17);
    assert_eq!(&many.designator[0], "t10.VENDOR  abcd");
    assert_eq!(many.designator.len(), 17);
    assert!(many.designator.iter().skip(1).all(|name| name == NAA));
}

#[test]
fn data_with_a_wrong_digest_says_nothing() {
    let answered = "DataDigest=CRC32C\0TargetPortalGroupTag=4\0";
    let mut talk = Talk::connect();
    talk.send(true, login_request(1, 3), format!("{REQUESTED}DataDigest=CRC32C\0").as_bytes());
    talk.send(false, login_response(1, 3), answered.as_bytes());
    for (tag, data, is_intact) in [(100, INQUIRY, true), (101, [0x05; 36], false)] {
        talk.send(true, command(tag, tag, 36, INQUIRY_CDB).is_read(true), &[]);
        let header = numbered(data_in(tag, 0, 0).is_final(true), None, tag + 1);
        let digest = iscsitrace_wire::digest::to_wire(iscsitrace_wire::digest::crc32c(&data));
        let mut bytes = header.data_segment_length(36).build().to_vec();
        bytes.extend_from_slice(&data);
        bytes.extend_from_slice(&if is_intact { digest } else { [0; 4] });
        talk.packet(false, 0x18, &bytes);
    }
    let tables = talk.finish();
    assert_eq!(counted(&tables, "data_digest_error"), 1);
    assert_eq!((tables.logical_units.device_type[0], &tables.logical_units.vendor[0]), (0, "VENDOR"));
}

#[test]
fn every_addressed_lun_is_a_row_even_if_its_target_says_nothing() {
    let mut talk = Talk::login();
    for (tag, lun) in [(100, 3), (101, 9), (102, 3)] {
        talk.send(true, read(tag, tag).lun([0, lun, 0, 0, 0, 0, 0, 0]), &[]);
    }
    let units = talk.finish().logical_units;
    assert_eq!((&units.lun[..], &units.frame_first[..]), (&[3, 9][..], &[8, 10][..]));
    assert_eq!(units.device_type, [u8::MAX; 2]);
    assert_eq!(units.designator, [""; 2]);
}

#[test]
fn the_device_type_gives_later_operation_codes_their_meaning() {
    let mut talk = Talk::login();
    let mut tape = INQUIRY;
    tape[0] = 1;
    report(&mut talk, 100, INQUIRY_CDB, &tape, 255);
    talk.send(true, command(101, 101, 0, &[0x1b, 0, 0, 0, 1]), &[]);
    let operation = talk.finish().cycles.operation[1];
    assert_eq!(iscsitrace_wire::cdb::Operation::ALL[usize::from(operation)].as_str(), "load_unload");
}

#[test]
fn a_persistent_reservation_has_its_action_and_type() {
    let mut talk = Talk::login();
    // RESERVE of Exclusive Access - All Registrants; READ RESERVATION; READ(10)
    talk.send(true, command(100, 100, 24, &[0x5f, 1, 8]).is_write(true), &[0; 24]);
    talk.send(true, command(101, 101, 24, &[0x5e, 1]).is_read(true), &[]);
    talk.send(true, read(102, 102), &[]);
    let cycles = talk.finish().cycles;
    assert_eq!(cycles.service_action, [1, 1, u16::MAX]);
    assert_eq!(cycles.reservation_type, [8, u8::MAX, u8::MAX]);
}
