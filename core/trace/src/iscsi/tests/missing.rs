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
    // without it, 4288 bytes are more than one PDU of 4096 bytes
    for (exp_data_sn, count, least) in [(4, 4, 4), (0, 1, 2)] {
        let tables = read_without(&[0, 1, 2, 3], exp_data_sn);
        assert_eq!(data(&tables), (0, 0, NULL_NS, NULL_NS, false, true));
        assert_eq!((missing(&tables), counted(&tables, "data_missing")), ([0, least], count));
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
    assert_eq!((missing(&tables), counted(&tables, "r2t_missing")), ([0, 1], 1));
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

/// A read whose Data-In come in this order of their DataSN, and then its status.
fn read_in_order(talk: &mut Talk, data_sns: &[u32]) {
    talk.send(true, read(0x30, 100), &[]);
    for &data_sn in data_sns {
        talk.send(false, numbered(data_in(0x30, data_sn, data_sn * 1024), None, 101), &[1; 1024]);
    }
    talk.send(false, response(0x30, 501, 101, 4), &[]);
}

#[test]
fn a_data_in_that_comes_late_is_not_missing() {
    // the target sends it again, for a SNACK
    for (data_sns, is_complete, lacking) in
        [(&[0, 3, 1, 2][..], true, 0), (&[0, 3, 2], false, 1), (&[0, 2, 1, 1, 3], true, 0)]
    {
        let mut talk = Talk::login();
        read_in_order(&mut talk, data_sns);
        let tables = talk.finish();
        let (_, bytes, _, _, complete, has_gap) = data(&tables);
        assert_eq!((bytes, complete, has_gap), (4096 - 1024 * lacking, is_complete, !is_complete), "{data_sns:?}");
        let counts = ["data_missing", "data_sn_out_of_order"].map(|name| counted(&tables, name));
        // the streams have no hole: what did not come was not sent
        assert_eq!((counts, missing(&tables)), ([0, 0], [0, 0]), "{data_sns:?}");
    }
}

#[test]
fn a_late_data_in_is_of_its_task_unless_a_command_is_missing() {
    for (is_command_missing, expected) in [(false, (true, 0)), (true, (false, 1))] {
        let mut talk = Talk::login();
        talk.lose(false, numbered(data_in(0x30, 1, 1024), None, 101), &[1; 1024]);
        if is_command_missing {
            // it may have the tag: the target has it when it sends the data
            talk.lose(true, read(0x30, 101), &[]);
        }
        talk.send(true, read(0x30, 100), &[]);
        let exp_cmd_sn = if is_command_missing { 102 } else { 101 };
        for data_sn in [0, 2, 3, 1] {
            talk.send(false, numbered(data_in(0x30, data_sn, data_sn * 1024), None, exp_cmd_sn), &[1; 1024]);
        }
        talk.send(false, response(0x30, 501, exp_cmd_sn, 4), &[]);
        talk.packet(true, 0x10, &[]);
        let tables = talk.finish();
        assert_eq!((tables.cycles.is_complete[0], counted(&tables, "task_tag_reused")), expected);
    }
}

#[test]
fn an_r2t_that_comes_late_is_not_missing() {
    let mut talk = Talk::login();
    talk.send(true, command(0x32, 100, 6144, &[0x2a, 0, 0, 0, 0, 9, 0, 0, 12, 0]).is_write(true), &[]);
    for round in [0, 2, 1] {
        let r2t = BhsBuilder::new(Opcode::ReadyToTransfer).initiator_task_tag(0x32).target_transfer_tag(0x70 + round);
        let r2t = r2t.r2t_sn(SerialNumber(round)).buffer_offset(round * 2048).desired_data_transfer_length(2048);
        talk.send(false, numbered(r2t, Some(501), 101), &[]);
        let data_out = BhsBuilder::new(Opcode::DataOut).is_final(true).initiator_task_tag(0x32);
        let data_out = data_out.target_transfer_tag(0x70 + round).exp_stat_sn(SerialNumber(501));
        talk.send(true, data_out.buffer_offset(round * 2048), &[1; 2048]);
    }
    talk.send(false, response(0x32, 501, 101, 3), &[]);
    let tables = talk.finish();
    assert_eq!((data(&tables).4, missing(&tables), counted(&tables, "r2t_missing")), (true, [0, 0], 0));
}

/// A bidirectional command, in frames of two: command 8, R2T 10, Data-Out 12 and 14, Data-In 16, R2T 18, Data-In 20,
/// Data-Out 22 and 24, Data-In 26, SCSI Response 28. R2Ts and Data-In are numbered 0 to 4 in one sequence (RFC 7143
/// section 11.8). It writes 8192 bytes, as its Expected Data Transfer Length says, and reads 12288.
fn bidirectional_without(lost: &[u64], exp_data_sn: u32) -> Tables {
    let mut talk = Talk::login();
    // XDWRITEREAD(10)
    let command = command(0x33, 100, 8192, &[0x53, 0, 0, 0, 0, 9, 0, 0, 16, 0]).is_read(true).is_write(true);
    talk.send(true, command, &[]);
    let r2t = |number: u32, round: u32| {
        let header = BhsBuilder::new(Opcode::ReadyToTransfer)
            .initiator_task_tag(0x33)
            .target_transfer_tag(0x70 + round)
            .r2t_sn(SerialNumber(number))
            .buffer_offset(round * 4096)
            .desired_data_transfer_length(4096);
        (false, numbered(header, Some(501), 101), 0)
    };
    let data_out = |round: u32, part: u32| {
        let header = BhsBuilder::new(Opcode::DataOut)
            .is_final(part == 1)
            .initiator_task_tag(0x33)
            .target_transfer_tag(0x70 + round)
            .exp_stat_sn(SerialNumber(501))
            .data_sn(SerialNumber(part))
            .buffer_offset(round * 4096 + part * 2048);
        (true, header, 2048)
    };
    let read = |number: u32, part: u32| (false, numbered(data_in(0x33, number, part * 4096), None, 101), 4096);
    let conversation = [
        r2t(0, 0),
        data_out(0, 0),
        data_out(0, 1),
        read(1, 0),
        r2t(2, 1),
        read(3, 1),
        data_out(1, 0),
        data_out(1, 1),
        read(4, 2),
        (false, response(0x33, 501, 101, exp_data_sn), 0),
    ];
    for (to_target, header, bytes) in conversation {
        let data = vec![1; bytes];
        if lost.contains(&(talk.frame + 1)) {
            talk.lose(to_target, header, &data);
        } else {
            talk.send(to_target, header, &data);
        }
    }
    // later PDUs show where the next headers are
    let nop = |opcode| BhsBuilder::new(opcode).target_transfer_tag(RESERVED_TAG);
    let ping = nop(Opcode::NopOut).initiator_task_tag(7).cmd_sn(SerialNumber(101)).exp_stat_sn(SerialNumber(502));
    talk.send(true, ping, &[]);
    talk.send(false, numbered(nop(Opcode::NopIn).initiator_task_tag(7), Some(502), 102), &[]);
    talk.finish()
}

/// Missing PDUs by direction, and how many of them are data and R2Ts.
fn counted_missing(tables: &Tables) -> ([u64; 2], u64, u64) {
    (missing(tables), counted(tables, "data_missing"), counted(tables, "r2t_missing"))
}

#[test]
fn r2ts_and_data_in_of_a_bidirectional_command_share_one_numbering() {
    for exp_data_sn in [5, 0] {
        let tables = bidirectional_without(&[], exp_data_sn);
        assert_eq!(data(&tables), (7, 8192 + 12288, at(12), at(27), true, false), "ExpDataSN {exp_data_sn}");
        assert_eq!(counted_missing(&tables), ([0, 0], 0, 0));
        assert_eq!(counted(&tables, "data_sn_out_of_order"), 0);
        assert_eq!((&tables.rounds.r2t_sn[..], tables.cycles.r2t_first_ns[0]), (&[0, 2][..], at(11)));
        assert_eq!(tables.rounds.bytes, [4096, 4096]);
    }
}

#[test]
fn a_number_that_a_bidirectional_command_skips_is_a_missing_data_in() {
    for lost in [16, 20] {
        let tables = bidirectional_without(&[lost], 5);
        // the first data may be the missing one
        assert_eq!(data(&tables), (6, 8192 + 8192, NULL_NS, at(27), false, true), "frame {lost}");
        assert_eq!(counted_missing(&tables), ([0, 1], 1, 0), "frame {lost}");
    }
    // the last one, by ExpDataSN
    let tables = bidirectional_without(&[26], 5);
    assert_eq!(data(&tables), (6, 8192 + 8192, NULL_NS, NULL_NS, false, true));
    assert_eq!(counted_missing(&tables), ([0, 1], 1, 0));
}

#[test]
fn a_number_that_a_bidirectional_command_skips_is_an_r2t_if_data_out_answer_it() {
    for (lost, r2t_first_ns) in [(10, NULL_NS), (18, at(11))] {
        let tables = bidirectional_without(&[lost], 5);
        assert_eq!(data(&tables), (7, 8192 + 12288, NULL_NS, at(27), false, true), "frame {lost}");
        assert_eq!(counted_missing(&tables), ([0, 1], 0, 1), "frame {lost}");
        assert_eq!(tables.cycles.r2t_first_ns[0], r2t_first_ns, "frame {lost}");
    }
    // an R2T and a Data-In
    assert_eq!(counted_missing(&bidirectional_without(&[18, 20], 5)), ([0, 2], 1, 1));
}

#[test]
fn the_bursts_of_a_bidirectional_command_show_missing_data_out() {
    for (lost, last_ns) in [(12, at(27)), (22, at(27)), (14, NULL_NS), (24, NULL_NS)] {
        let tables = bidirectional_without(&[lost], 5);
        assert_eq!(data(&tables), (6, 6144 + 12288, NULL_NS, last_ns, false, true), "frame {lost}");
        assert_eq!(counted_missing(&tables), ([1, 0], 1, 0), "frame {lost}");
    }
}

#[test]
fn a_bidirectional_command_without_its_status_counts_what_it_skipped() {
    let tables = bidirectional_without(&[16, 18, 28], 5);
    assert!(!tables.cycles.is_complete[0]);
    // and the status
    assert_eq!(counted_missing(&tables), ([0, 3], 1, 1));
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
        assert_eq!(talk.finish().cycles.lba.get(1), lba, "EVPD {evpd}, device type {device_type}");
    }
}

#[test]
fn short_sense_data_have_the_fields_that_they_contain() {
    // the key is in byte 2, code and qualifier are in bytes 12 and 13; only SenseLength bytes count
    let data = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 1, 0, 0, 0, 0];
    let fixed = |length: u8, kept: usize| sense(&[&[0, length], &data[..kept]].concat());
    let (none, key, code, all) = (None, Some((5, NULL_U8, NULL_U8)), Some((5, 0x24, NULL_U8)), Some((5, 0x24, 1)));
    for (bytes, expected) in [(0, none), (1, none), (2, none), (3, key), (12, key), (13, code), (14, all), (18, all)] {
        assert_eq!(fixed(bytes as u8, 18), expected, "SenseLength {bytes}");
        // the same where the snaplen cut the data
        assert_eq!(fixed(18, bytes), expected, "{bytes} bytes captured");
    }
    assert_eq!(sense(&[0]), None);
    let data = [0x72, 6, 0x29, 2, 0, 0, 0, 0];
    let expected = [none, none, Some((6, NULL_U8, NULL_U8)), Some((6, 0x29, NULL_U8)), Some((6, 0x29, 2))];
    for (bytes, expected) in (0..).zip(expected) {
        assert_eq!(sense(&[&[0, 8], &data[..bytes]].concat()), expected, "{bytes} bytes captured");
    }
}

#[test]
fn data_that_never_arrives_brings_no_status() {
    // the rest of the only Data-In is lost on the path; or it is missing from the capture, and acknowledged
    for is_acknowledged in [false, true] {
        let mut talk = Talk::login();
        talk.send(true, read(0x30, 100), &[]);
        let header = numbered(data_in(0x30, 0, 0).is_final(true).has_status(true), Some(501), 101);
        talk.packet(false, 0x18, &header.data_segment_length(4096).build());
        if is_acknowledged {
            talk.is_losing = true;
            talk.packet(false, 0x18, &[1; 4096]);
            talk.is_losing = false;
        }
        talk.packet(true, 0x11, &[]);
        let tables = talk.finish();
        let cycles = &tables.cycles;
        assert_eq!((cycles.status[0], cycles.status_ns[0]), (if is_acknowledged { 0 } else { NULL_U8 }, NULL_NS));
        assert_eq!((cycles.has_capture_gap[0], cycles.is_complete[0]), (is_acknowledged, false));
        assert_eq!(tables.pdus.has_capture_gap.last(), Some(&is_acknowledged));
    }
}

#[test]
fn a_stream_whose_syn_is_missing_begins_where_its_answer_says() {
    let mut talk = Talk::new();
    talk.is_losing = true;
    talk.packet(true, 0x02, &[]);
    talk.is_losing = false;
    talk.packet(false, 0x12, &[]);
    talk.packet(true, 0x10, &[]);
    // its header has two packets: it is found only where it is expected
    talk.send(true, login_request(1, 3), REQUESTED.as_bytes());
    talk.lose(true, read(0x30, 100), &[]);
    talk.send(true, read(0x31, 101), &[]);
    talk.packet(false, 0x10, &[]);
    let tables = talk.finish();
    assert_eq!(tables.sessions.initiator_name, ["iqn.i"]);
    assert_eq!((missing(&tables)[0], counted(&tables, "command_missing")), (1, 1));
}

#[test]
fn an_immediate_command_in_mid_session_carries_the_number_of_the_next_one() {
    for is_captured in [true, false] {
        let mut talk = Talk::new();
        let ping = BhsBuilder::new(Opcode::NopOut).is_immediate(true).is_final(true).initiator_task_tag(0x20);
        let ping = ping.target_transfer_tag(RESERVED_TAG).cmd_sn(SerialNumber(100)).exp_stat_sn(SerialNumber(500));
        talk.packet(true, 0x18, &ping.build());
        talk.is_losing = !is_captured;
        talk.packet(true, 0x18, &read(0x30, 100).build());
        talk.is_losing = false;
        talk.packet(false, 0x18, &response(0x30, 500, 101, 0).build());
        talk.packet(true, 0x18, &read(0x31, 101).build());
        talk.packet(false, 0x18, &response(0x31, 501, 102, 0).build());
        talk.packet(true, 0x10, &[]);
        assert_eq!(missing(&talk.finish())[0], u64::from(!is_captured), "captured: {is_captured}");
    }
}
