//! PDUs whose header the snaplen cut away: what must have been there, once a header follows.

use super::*;
use crate::tables::NULL_U8;

impl Talk {
    /// Sends a PDU of which nothing is captured but its packets.
    fn cut(&mut self, to_target: bool, header: BhsBuilder, data: &[u8]) {
        self.kept_bytes = 0;
        self.send(to_target, header, data);
        self.kept_bytes = usize::MAX;
    }

    /// Sends a PDU without data in one packet, of which the first bytes are captured.
    fn whole(&mut self, to_target: bool, header: BhsBuilder, kept_bytes: usize) {
        self.kept_bytes = kept_bytes;
        self.packet(to_target, 0x18, &header.build());
        self.kept_bytes = usize::MAX;
    }
}

/// A read with its only Data-In, which has the status.
fn read_with_status_in_data(talk: &mut Talk, tag: u32, place: u32, is_cut: bool) {
    let header = numbered(data_in(tag, 0, 0).is_final(true).has_status(true), Some(501 + place), 101 + place);
    if is_cut { talk.cut(false, header, &[1; 4096]) } else { talk.send(false, header, &[1; 4096]) }
}

#[test]
fn cut_data_before_its_status_is_data_alone() {
    let mut talk = Talk::login();
    talk.send(true, read(0x30, 100), &[]);
    talk.send(false, numbered(data_in(0x30, 0, 0), None, 101), &[1; 3072]);
    talk.cut(false, numbered(data_in(0x30, 1, 3072).is_final(true), None, 101), &[2; 1024]);
    talk.send(false, response(0x30, 501, 101, 2), &[]);
    talk.packet(true, 0x10, &[]);
    let tables = talk.finish();
    let cycles = &tables.cycles;
    assert_eq!((cycles.data_bytes[0], cycles.data_pdu_count[0], cycles.data_pdu_bytes_max[0]), (4096, 2, 3072));
    assert_eq!((cycles.data_first_ns[0], cycles.data_last_ns[0], cycles.data_last_frame.get(0)), (at(10), at(13), 13));
    assert_eq!((cycles.data_acked_ns[0], cycles.status_ns[0], cycles.status[0]), (at(16), at(15), 0));
    assert_eq!((cycles.has_capture_gap[0], cycles.is_complete[0]), (true, false));
    assert_eq!((missing(&tables), counted(&tables, "header_assumed")), ([0, 1], 1));
    for name in ["pdu_without_task", "data_missing", "status_missing", "cycle_incomplete", "sync_lost"] {
        assert_eq!(counted(&tables, name), 0, "{name}");
    }
    // the PDU has no row: login, command; login, Data-In, SCSI Response
    assert_eq!(tables.pdus.opcode.len(), 5);
    let connections = &tables.connections;
    assert_eq!((connections.pdu_count_to_target[1], connections.pdu_count_to_initiator[1]), (2, 3));
}

#[test]
fn cut_data_with_the_status_ends_its_read() {
    let mut talk = Talk::login();
    talk.send(true, read(0x30, 100), &[]);
    read_with_status_in_data(&mut talk, 0x30, 0, false);
    talk.send(true, read(0x31, 101), &[]);
    talk.send(false, numbered(data_in(0x31, 0, 0), None, 102), &[1; 2048]);
    let header = data_in(0x31, 1, 2048).is_final(true).has_status(true);
    talk.cut(false, numbered(header, Some(502), 102), &[1; 2048]);
    talk.send(true, read(0x32, 102), &[]);
    read_with_status_in_data(&mut talk, 0x32, 2, false);
    let tables = talk.finish();
    let cycles = &tables.cycles;
    assert_eq!(cycles.data_bytes, [4096; 3]);
    assert_eq!(cycles.status_ns, [at(11), at(17), at(21)]);
    assert_eq!(cycles.status_frame, [11, 17, 21]);
    assert_eq!(cycles.status, [0, NULL_U8, 0]);
    assert_eq!(cycles.is_status_in_data, [true; 3]);
    assert_eq!(cycles.queue_depth, [1; 3]);
    assert_eq!((missing(&tables), counted(&tables, "header_assumed")), ([0, 1], 1));
    assert_eq!((counted(&tables, "cycle_incomplete"), counted(&tables, "status_missing")), (1, 0));
}

#[test]
fn a_cut_status_ends_its_read() {
    for is_habit_known in [true, false] {
        let mut talk = Talk::login();
        let commands = if is_habit_known { 3 } else { 2 };
        for place in 0..commands {
            let tag = 0x30 + place;
            talk.send(true, read(tag, 100 + place), &[]);
            talk.send(false, numbered(data_in(tag, 0, 0).is_final(true), None, 101 + place), &[1; 4096]);
            let status = response(tag, 501 + place, 101 + place, 1);
            if place == commands - 2 { talk.cut(false, status, &[]) } else { talk.send(false, status, &[]) }
        }
        let tables = talk.finish();
        let cut = commands as usize - 2;
        let status_frame = 8 + 6 * cut as u64 + 5;
        let cycles = &tables.cycles;
        assert_eq!((cycles.status_ns[cut], cycles.status_frame.get(cut)), (at(status_frame), status_frame));
        assert_eq!((cycles.status[cut], cycles.status[cut + 1]), (NULL_U8, 0));
        assert_eq!((cycles.is_status_in_data[cut], cycles.has_capture_gap[cut]), (false, true));
        assert_eq!((missing(&tables), counted(&tables, "header_assumed")), ([0, 1], 1));
        assert_eq!((counted(&tables, "cycle_incomplete"), counted(&tables, "status_missing")), (1, 0));
        assert!(cycles.queue_depth.iter().eq(vec![1; commands as usize]));
    }
}

#[test]
fn cut_data_belong_to_the_oldest_reads_without_any() {
    let mut talk = Talk::login();
    // a write without data so far
    talk.send(true, command(0x40, 100, 4096, &[0x2a]).is_write(true), &[]);
    for place in 1..=4 {
        talk.send(true, read(0x30 + place, 100 + place), &[]);
    }
    read_with_status_in_data(&mut talk, 0x31, 0, false);
    read_with_status_in_data(&mut talk, 0x32, 1, true);
    read_with_status_in_data(&mut talk, 0x33, 2, true);
    read_with_status_in_data(&mut talk, 0x34, 3, false);
    let tables = talk.finish();
    let cycles = &tables.cycles;
    assert_eq!(cycles.data_bytes, [0, 4096, 4096, 4096, 4096]);
    assert!(cycles.status_frame.iter().skip(1).eq([19, 21, 23, 25]));
    assert!(cycles.data_first_frame.iter().skip(1).eq([18, 20, 22, 24]));
    assert!(cycles.data_last_frame.iter().skip(1).eq([19, 21, 23, 25]));
    assert_eq!((missing(&tables), counted(&tables, "header_assumed")), ([0, 2], 2));
    assert_eq!(counted(&tables, "status_missing"), 0);
}

#[test]
fn a_first_status_in_cut_data_shows_the_habit() {
    let mut talk = Talk::login();
    for place in 0..4 {
        talk.send(true, read(0x30 + place, 100 + place), &[]);
    }
    talk.send(false, numbered(data_in(0x30, 0, 0), None, 104), &[1; 2048]);
    let header = data_in(0x30, 1, 2048).is_final(true).has_status(true);
    talk.cut(false, numbered(header, Some(501), 104), &[1; 2048]);
    talk.send(false, numbered(data_in(0x31, 0, 0), None, 104), &[1; 2048]);
    let header = data_in(0x31, 1, 2048).is_final(true).has_status(true);
    talk.cut(false, numbered(header, Some(502), 104), &[1; 2048]);
    talk.send(false, numbered(data_in(0x32, 0, 0), None, 104), &[1; 2048]);
    let tables = talk.finish();
    assert_eq!([0, 1].map(|row| tables.cycles.status_frame.get(row)), [19, 23]);
    assert_eq!(tables.cycles.is_status_in_data[..2], [true, true]);
    assert_eq!((missing(&tables)[1] >= 2, counted(&tables, "header_assumed")), (true, 2));
}

#[test]
fn cut_data_of_a_burst_follow_its_captured_data() {
    let mut talk = Talk::login();
    talk.send(true, command(0x32, 100, 8192, &[0x2a, 0, 0, 0, 0, 9, 0, 0, 16, 0]).is_write(true), &[]);
    let r2t = BhsBuilder::new(Opcode::ReadyToTransfer)
        .initiator_task_tag(0x32)
        .target_transfer_tag(0x70)
        .desired_data_transfer_length(8192);
    talk.send(false, numbered(r2t, Some(501), 101), &[]);
    let data_out = |data_sn: u32, is_last| {
        BhsBuilder::new(Opcode::DataOut)
            .is_final(is_last)
            .initiator_task_tag(0x32)
            .target_transfer_tag(0x70)
            .exp_stat_sn(SerialNumber(501))
            .data_sn(SerialNumber(data_sn))
            .buffer_offset(data_sn * 3072)
    };
    talk.send(true, data_out(0, false), &[1; 3072]);
    talk.cut(true, data_out(1, false), &[1; 3072]);
    // the rest of the burst
    talk.cut(true, data_out(2, true), &[1; 2048]);
    talk.send(false, response(0x32, 501, 101, 0), &[]);
    talk.send(true, read(0x33, 101), &[]);
    let tables = talk.finish();
    let cycles = &tables.cycles;
    assert_eq!((missing(&tables), counted(&tables, "header_assumed")), ([2, 0], 2));
    assert_eq!(cycles.initiator_task_tag, [0x32, 0x33]);
    assert_eq!((cycles.status_ns[0], cycles.status[0]), (at(19), 0));
    assert_eq!(counted(&tables, "sync_lost"), 0);
}

#[test]
fn a_header_without_its_tag_counts_as_missing() {
    for (kept_bytes, is_missing) in [(8, 1), (19, 1), (20, 0), (27, 0), (48, 0)] {
        let mut talk = Talk::login();
        // nothing tells that these two must come: they are not assumed
        let request =
            BhsBuilder::new(Opcode::TaskManagementRequest).function(5).is_immediate(true).initiator_task_tag(0x20);
        talk.send(true, request.cmd_sn(SerialNumber(100)).exp_stat_sn(SerialNumber(501)), &[]);
        let answer = BhsBuilder::new(Opcode::TaskManagementResponse).initiator_task_tag(0x20);
        talk.whole(false, numbered(answer, Some(501), 100), kept_bytes);
        // a command is found by its tag, and by its CmdSN, 8 bytes behind it
        talk.whole(true, read(0x30, 100), if is_missing == 1 { kept_bytes } else { kept_bytes.max(28) });
        talk.send(false, response(0x30, 502, 101, 0), &[]);
        talk.send(true, read(0x31, 101), &[]);
        talk.send(false, response(0x31, 503, 102, 0), &[]);
        let tables = talk.finish();
        let connections = &tables.connections;
        let found = [connections.pdu_count_to_target[1], connections.pdu_count_to_initiator[1]];
        assert_eq!((found, missing(&tables)), ([4 - is_missing; 2], [is_missing; 2]), "{kept_bytes} bytes");
        // neither is missing by its number as well
        assert_eq!(counted(&tables, "status_missing"), 0, "{kept_bytes} bytes");
        assert_eq!(counted(&tables, "pdu_header_cut"), if kept_bytes < 48 { 2 } else { 0 });
        // type and length are known
        assert_eq!(tables.pdus.opcode.len(), 8);
        assert_eq!(connections.explained_bytes_to_initiator[1], connections.stream_bytes_to_initiator[1]);
    }
}

#[test]
fn without_any_tag_all_pdus_are_missing() {
    for (kept_bytes, found) in [(10, [0, 0]), (20, [3, 2])] {
        let mut talk = Talk::connect();
        talk.whole(true, login_request(1, 3), kept_bytes);
        talk.whole(false, login_response(1, 3), kept_bytes);
        talk.whole(true, read(0x30, 100), kept_bytes);
        talk.whole(false, response(0x30, 501, 101, 0), kept_bytes);
        talk.whole(true, read(0x31, 101), kept_bytes);
        let tables = talk.finish();
        let connections = &tables.connections;
        assert_eq!([connections.pdu_count_to_target[1], connections.pdu_count_to_initiator[1]], found);
        assert_eq!(missing(&tables), [3 - found[0], 2 - found[1]]);
        assert_eq!((connections.is_iscsi[1], tables.sessions.session.len()), (true, 1));
    }
}

#[test]
fn a_header_behind_a_digest_that_was_cut_away_is_found() {
    // 60 bytes of each packet are captured: the login does not tell that the data have a digest
    let mut talk = Talk::connect();
    talk.kept_bytes = 60;
    talk.send(true, login_request(1, 3), REQUESTED.as_bytes());
    talk.send(false, login_response(1, 3), ANSWERED.as_bytes());
    for place in 0..4 {
        let write = command(0x30 + place, 100 + place, 512, &[0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0]).is_write(true);
        let header = write.exp_stat_sn(SerialNumber(501 + place)).data_segment_length(512).build();
        talk.packet(true, 0x18, &[&header[..], &[7; 512 + 4]].concat());
        talk.packet(false, 0x18, &response(0x30 + place, 501 + place, 101 + place, 0).build());
    }
    let tables = talk.finish();
    assert_eq!(tables.cycles.command_frame, [8, 10, 12, 14]);
    assert_eq!(tables.cycles.status_frame, [9, 11, 13, 15]);
    assert_eq!(missing(&tables), [0, 0]);
}
