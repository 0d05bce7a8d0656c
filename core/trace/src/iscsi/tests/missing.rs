//! What a capture with missing packets shows: by sequence numbers, by bytes and by tags.

use super::*;
use crate::iscsi::cycle_row::sense;
use crate::tables::{NULL_NS, NULL_U8};

/// A read of four Data-In of 1024 bytes, some of them missing from the capture: frames 8 to 19.
fn read_without(lost: &[u32], exp_data_sn: u32) -> Tables {
    let mut talk = Talk::login();
    talk.send(true, read(0x30, 100), &[]);
    for data_sn in 0..4 {
        let header = numbered(data_in(0x30, data_sn, data_sn * 1024).is_final(data_sn == 3), None, 101);
        if lost.contains(&data_sn) {
            talk.lose(false, header, &[1; 1024])
        } else {
            talk.send(false, header, &[1; 1024])
        }
    }
    talk.send(false, response(0x30, 501, 101, exp_data_sn), &[]);
    talk.packet(true, 0x10, &[]);
    talk.finish()
}

/// Data PDUs, data bytes, first and last data, whether it is complete, whether it has a gap.
fn data(tables: &Tables) -> (u32, u32, i64, i64, bool, bool) {
    let cycles = &tables.cycles;
    (
        cycles.data_pdu_count[0],
        cycles.data_bytes[0],
        cycles.data_first_ns[0],
        cycles.data_last_ns[0],
        cycles.is_complete[0],
        cycles.has_capture_gap[0],
    )
}

#[test]
fn a_skipped_data_sn_is_a_missing_data_in() {
    let tables = read_without(&[], 4);
    assert_eq!(data(&tables), (4, 4096, at(10), at(17), true, false));
    assert_eq!((missing(&tables), counted(&tables, "data_missing")), ([0, 0], 0));
    let tables = read_without(&[1], 4);
    assert_eq!(data(&tables), (3, 3072, at(10), at(17), false, true));
    assert_eq!((missing(&tables), counted(&tables, "data_missing")), ([0, 1], 1));
    let tables = read_without(&[1, 2], 4);
    assert_eq!(data(&tables), (2, 2048, at(10), at(17), false, true));
    assert_eq!((missing(&tables), counted(&tables, "data_missing")), ([0, 2], 2));
    // without the first, the start of the data is unknown
    let tables = read_without(&[0], 4);
    assert_eq!(data(&tables), (3, 3072, NULL_NS, at(17), false, true));
    assert_eq!((missing(&tables), counted(&tables, "data_missing")), ([0, 1], 1));
}

#[test]
fn the_status_shows_that_the_last_data_in_is_missing() {
    // by ExpDataSN; or by bytes, for a target that leaves it 0
    for exp_data_sn in [4, 0] {
        let tables = read_without(&[3], exp_data_sn);
        assert_eq!(data(&tables), (3, 3072, at(10), NULL_NS, false, true), "ExpDataSN {exp_data_sn}");
        assert_eq!((missing(&tables), counted(&tables, "data_missing")), ([0, 1], 1));
        assert_eq!(tables.cycles.data_acked_ns, [at(20)], "this ACK covers the missing data, too");
        let tables = read_without(&[2, 3], exp_data_sn);
        assert_eq!((missing(&tables), counted(&tables, "data_missing")), ([0, 2], 2));
    }
}

#[test]
fn a_read_without_any_captured_data_counts_by_exp_data_sn() {
    for (exp_data_sn, count) in [(4, 4), (0, 1)] {
        let tables = read_without(&[0, 1, 2, 3], exp_data_sn);
        assert_eq!(data(&tables), (0, 0, NULL_NS, NULL_NS, false, true));
        assert_eq!((missing(&tables), counted(&tables, "data_missing")), ([0, count], count));
    }
}

#[test]
fn an_underflow_explains_data_that_did_not_come() {
    let mut talk = Talk::login();
    talk.send(true, read(0x30, 100), &[]);
    talk.send(false, numbered(data_in(0x30, 0, 0).is_final(true), None, 101), &[1; 1024]);
    talk.send(false, response(0x30, 501, 101, 1).is_underflow(true).residual_count(3072), &[]);
    let tables = talk.finish();
    assert_eq!(data(&tables), (1, 1024, at(10), at(11), true, false));
    assert_eq!(tables.cycles.residual_bytes, [-3072]);
    assert_eq!(missing(&tables), [0, 0]);
}

/// A write of two R2Ts of 4096 bytes with two Data-Out each; the PDUs of these frames are missing from the capture.
/// Command 8, R2T 10, Data-Out 12 and 14, R2T 16, Data-Out 18 and 20, SCSI Response 22.
fn write_without(lost: &[u64]) -> Tables {
    let mut talk = Talk::login();
    let command = command(0x32, 100, 8192, &[0x2a, 0, 0, 0, 0, 9, 0, 0, 16, 0]).is_write(true);
    talk.send(true, command, &[]);
    for round in 0..2 {
        let r2t = BhsBuilder::new(Opcode::ReadyToTransfer)
            .initiator_task_tag(0x32)
            .target_transfer_tag(0x70 + round)
            .r2t_sn(SerialNumber(round))
            .buffer_offset(round * 4096)
            .desired_data_transfer_length(4096);
        let mut pdus = vec![(false, numbered(r2t, Some(501), 101), 0)];
        for part in 0..2 {
            let data_out = BhsBuilder::new(Opcode::DataOut)
                .is_final(part == 1)
                .initiator_task_tag(0x32)
                .target_transfer_tag(0x70 + round)
                .exp_stat_sn(SerialNumber(501))
                .data_sn(SerialNumber(part))
                .buffer_offset(round * 4096 + part * 2048);
            pdus.push((true, data_out, 2048));
        }
        for (to_target, header, bytes) in pdus {
            let data = vec![1; bytes];
            if lost.contains(&(talk.frame + 1)) {
                talk.lose(to_target, header, &data);
            } else {
                talk.send(to_target, header, &data);
            }
        }
    }
    talk.send(false, response(0x32, 501, 101, 2), &[]);
    // a later PDU shows where the next header is
    let nop = BhsBuilder::new(Opcode::NopOut)
        .initiator_task_tag(RESERVED_TAG)
        .target_transfer_tag(RESERVED_TAG)
        .cmd_sn(SerialNumber(101))
        .exp_stat_sn(SerialNumber(502));
    talk.send(true, nop, &[]);
    talk.packet(false, 0x10, &[]);
    talk.finish()
}

#[test]
fn a_skipped_r2t_sn_is_a_missing_r2t() {
    let tables = write_without(&[]);
    assert_eq!(data(&tables), (4, 8192, at(12), at(21), true, false));
    assert_eq!((missing(&tables), counted(&tables, "r2t_missing")), ([0, 0], 0));
    let tables = write_without(&[10]);
    // it counts once, although Data-Out of its Target Transfer Tag show it, too
    assert_eq!((missing(&tables), counted(&tables, "r2t_missing")), ([0, 1], 1));
    assert_eq!(data(&tables), (4, 8192, at(12), at(21), false, true));
    assert_eq!((&tables.rounds.r2t_sn[..], tables.cycles.r2t_first_ns[0]), (&[1][..], NULL_NS));
    assert_eq!(tables.cycles.solicited_bytes, [8192]);
}

#[test]
fn data_out_without_its_r2t_show_that_it_is_missing() {
    let tables = write_without(&[16]);
    assert_eq!(counted(&tables, "r2t_missing"), 1);
    assert_eq!(missing(&tables).iter().sum::<u64>(), 1);
    assert_eq!(data(&tables), (4, 8192, at(12), at(21), false, true));
}

#[test]
fn a_skipped_data_sn_in_a_burst_is_a_missing_data_out() {
    let tables = write_without(&[12]);
    assert_eq!((missing(&tables), counted(&tables, "data_missing")), ([1, 0], 1));
    assert_eq!(data(&tables), (3, 6144, NULL_NS, at(21), false, true));
    assert_eq!((&tables.rounds.bytes[..], &tables.rounds.data_pdu_count[..]), (&[2048, 4096][..], &[1, 2][..]));
    assert_eq!(tables.rounds.data_first_ns, [NULL_NS, at(18)]);
    // the last of the last burst, by its bytes
    let tables = write_without(&[20]);
    assert_eq!((missing(&tables), counted(&tables, "data_missing")), ([1, 0], 1));
    assert_eq!(data(&tables), (3, 6144, at(12), NULL_NS, false, true));
}

#[test]
fn a_skipped_stat_sn_is_a_missing_status() {
    let mut talk = Talk::login();
    for (place, tag) in (0..).zip([0x30, 0x31]) {
        talk.send(true, read(tag, 100 + place), &[]);
        talk.send(false, numbered(data_in(tag, 0, 0).is_final(true), None, 101 + place), &[1; 4096]);
        let status = response(tag, 501 + place, 101 + place, 1);
        if place == 0 { talk.lose(false, status, &[]) } else { talk.send(false, status, &[]) }
    }
    talk.packet(true, 0x10, &[]);
    let tables = talk.finish();
    assert_eq!((missing(&tables), counted(&tables, "status_missing")), ([0, 1], 1));
    assert_eq!(counted(&tables, "cycle_incomplete"), 1);
    assert_eq!(tables.cycles.is_complete, [false, true]);
    assert_eq!(tables.cycles.status_ns, [NULL_NS, at(19)]);
    assert_eq!((tables.cycles.status[0], tables.cycles.response[0]), (NULL_U8, NULL_U8));
    // the first command stays in flight
    assert_eq!(tables.cycles.queue_depth, [1, 2]);
}

#[test]
fn a_tag_in_use_ends_the_earlier_command() {
    let mut talk = Talk::login();
    talk.send(true, read(0x30, 100), &[]);
    talk.send(true, read(0x30, 101), &[]);
    talk.send(false, numbered(data_in(0x30, 0, 0).is_final(true), None, 102), &[1; 4096]);
    talk.send(false, response(0x30, 501, 102, 1), &[]);
    let tables = talk.finish();
    assert_eq!(counted(&tables, "task_tag_reused"), 1);
    assert_eq!((&tables.cycles.data_bytes[..], &tables.cycles.is_complete[..]), (&[0, 4096][..], &[false, true][..]));
    assert_eq!(tables.cycles.queue_depth, [1, 1]);
    // without a hole in the capture nothing counts as missing
    assert_eq!(missing(&tables), [0, 0]);
}

#[test]
fn cut_login_text_leaves_the_digests_unknown() {
    // 2 unknown; login 0, unknown 2
    for (kept_bytes, digest, source) in [(usize::MAX, 0, 0), (60, 2, 2)] {
        let mut talk = Talk::connect();
        talk.kept_bytes = kept_bytes;
        talk.send(true, login_request(1, 3), REQUESTED.as_bytes());
        talk.send(false, login_response(1, 3), ANSWERED.as_bytes());
        let connections = talk.finish().connections;
        assert_eq!((connections.header_digest[1], connections.data_digest[1]), (digest, digest));
        assert_eq!(connections.digest_source[1], source);
    }
}

#[test]
fn the_device_type_of_an_inquiry_decides_what_a_command_is() {
    // READ(6): a tape has no LBA; a page of vital product data (EVPD) is no standard INQUIRY data
    for (evpd, device_type, lba) in [(0, 0, 7), (0, 1, u64::MAX), (1, 1, 7)] {
        let mut talk = Talk::login();
        talk.send(true, command(0x30, 100, 36, &[0x12, evpd, 0, 0, 36]).is_read(true), &[]);
        let header = data_in(0x30, 0, 0).is_final(true).has_status(true);
        talk.send(false, numbered(header, Some(501), 101), &[device_type; 36]);
        talk.send(true, command(0x31, 101, 1024, &[0x08, 0, 0, 7, 2]).is_read(true), &[]);
        assert_eq!(talk.finish().cycles.lba[1], lba, "EVPD {evpd}, device type {device_type}");
    }
}

#[test]
fn sense_data_have_two_formats() {
    // SPC-4 section 4.5: fixed 0x70 and 0x71, descriptor 0x72 and 0x73
    let fixed = |code| [0, 18, code, 0, 0xf5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x24, 1, 0, 0, 0, 0];
    let descriptor = |code| [0, 8, code, 0xf6, 0x29, 2, 0, 0, 0, 0];
    for code in [0x70, 0x71, 0xf0] {
        assert_eq!(sense(&fixed(code)), Some((5, 0x24, 1)));
    }
    for code in [0x72, 0x73] {
        assert_eq!(sense(&descriptor(code)), Some((6, 0x29, 2)));
    }
    for code in [0x6f, 0x74] {
        assert_eq!(sense(&fixed(code)), None);
    }
    // the other bits beside a sense key are FILEMARK, EOM and ILI
    assert_eq!(sense(&descriptor(0xf2)), Some((6, 0x29, 2)));
    // only SenseLength bytes count
    assert_eq!(sense(&[0, 13, 0x70, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x24, 1]), None);
    assert_eq!(sense(&[0]), None);
}
