//! The walk from PDU to PDU: parts, digests, gaps, and what is known in between.

use super::*;

const DATA: [u8; 5] = [0xe1, 0xe2, 0xe3, 0xe4, 0xe5];

/// A SCSI Command with two words of AHS and five bytes of data, and its length.
fn command(digests: [bool; 2]) -> Vec<u8> {
    let header = BhsBuilder::new(Opcode::ScsiCommand)
        .is_final(true)
        .is_write(true)
        .initiator_task_tag(CERTAIN)
        .expected_data_transfer_length(5)
        .total_ahs_length_words(2)
        .data_segment_length(5);
    whole(header, &[0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8], &DATA, digests)
}

#[test]
fn a_pdu_is_whole_wherever_its_segments_end() {
    for (digests, length) in [([false, false], 64), ([true, false], 68), ([false, true], 68), ([true, true], 72)] {
        let pdu = command(digests);
        assert_eq!(pdu.len(), length);
        let expected = Row {
            digests_ok: digests.map(|is_used| is_used.then_some(true)),
            ..row(CERTAIN, &DATA, (64, 64 + length as i64), (2, 3))
        };
        for cut in 1..length {
            let mut stream = Stream::with_digests(digests[0], digests[1]);
            // another PDU before it, with another CRC
            let earlier = whole(nop_header(POSSIBLE).data_segment_length(8), &[], &[0xff; 8], digests);
            let earlier_length = earlier.len() as i64;
            stream.send(&earlier);
            stream.send(&pdu[..cut]);
            stream.send(&pdu[cut..]);
            let shift = earlier_length - 64;
            let expected = Row { offset: 64 + shift, end: expected.end + shift, ..expected.clone() };
            assert_eq!(stream.heard.rows[1..], [expected], "digests {digests:?}, cut after {cut} bytes");
            assert_eq!(stream.heard.begun[1], (Some(CERTAIN), at(2)));
            assert_eq!(stream.heard.counted, []);
            assert_eq!(stream.framer.explained_bytes, earlier_length as u64 + length as u64);
        }
        let mut stream = Stream::with_digests(digests[0], digests[1]);
        pdu.iter().for_each(|byte| stream.send(&[*byte]));
        let expected =
            Row { offset: 0, end: length as i64, first: at(1), last: Some(at(length as u64)), ..expected.clone() };
        assert_eq!(stream.heard.rows, [expected]);
    }
}

#[test]
fn a_changed_byte_is_an_error_of_the_digest_that_covers_it() {
    use Counter::{DataDigestError, HeaderDigestError};
    // Initiator Task Tag, AHS, header digest; data, padding, data digest
    for (place, counter) in [
        (19, HeaderDigestError),
        (55, HeaderDigestError),
        (56, HeaderDigestError),
        (59, HeaderDigestError),
        (60, DataDigestError),
        (67, DataDigestError),
        (68, DataDigestError),
        (71, DataDigestError),
    ] {
        let mut pdu = command([true, true]);
        pdu[place] ^= 0x80;
        let mut stream = Stream::with_digests(true, true);
        stream.send(&pdu);
        let is_header = counter == HeaderDigestError;
        assert_eq!(stream.heard.rows[0].digests_ok, [Some(!is_header), Some(is_header)], "byte {place}");
        assert_eq!((&stream.heard.counted[..], stream.framer.digest_errors), (&[(counter, 1)][..], 1));
    }
}

#[test]
fn a_digest_is_verified_only_if_all_its_bytes_were_captured() {
    let pdu = command([true, true]);
    for (kept_bytes, header_ok, data_ok) in
        [(72, Some(true), Some(true)), (71, Some(true), None), (64, Some(true), None), (59, None, None)]
    {
        let mut stream = Stream::with_digests(true, true);
        stream.send_cut(&pdu, kept_bytes);
        assert_eq!(stream.heard.rows[0].digests_ok, [header_ok, data_ok], "{kept_bytes} bytes");
        assert_eq!((stream.heard.rows[0].end, stream.framer.explained_bytes), (72, 72));
    }
}

#[test]
fn as_much_data_is_kept_as_is_wanted_and_captured_from_the_first_byte_on() {
    let data: Vec<u8> = (0xe0..0xec).collect();
    let pdu = nop(POSSIBLE, &data);
    let kept = |keeps: usize, kept_of_first: usize| {
        let mut stream = Stream::with_digests(false, false);
        stream.heard.keeps = Some(keeps);
        stream.send_cut(&pdu[..52], kept_of_first);
        stream.send(&pdu[52..]);
        stream.heard.rows[0].data.clone()
    };
    assert_eq!(kept(20, 52), data);
    assert_eq!(kept(6, 52), data[..6]);
    assert_eq!(kept(3, 52), data[..3]);
    assert_eq!(kept(0, 52), []);
    // bytes behind missing ones are not the next ones
    assert_eq!(kept(20, 50), data[..2]);
    // nor is padding data
    let mut stream = Stream::with_digests(false, false);
    stream.send(&nop(POSSIBLE, &[7; 9]));
    assert_eq!(stream.heard.rows[0].data, [7; 9]);
}

#[test]
fn the_last_packet_of_a_pdu_is_the_latest() {
    let pdu = nop(POSSIBLE, &[0xff; 8]);
    let mut stream = Stream::with_digests(false, false);
    // frame 3 was held behind the hole that frame 9 filled
    for (frame, bytes, is_late) in [(1, &pdu[..10], false), (9, &pdu[10..30], true), (3, &pdu[30..], false)] {
        stream.frame = frame;
        let chunk = Chunk { is_late, ..stream.next(bytes) };
        stream.take(&chunk);
    }
    stream.send(&pdu);
    let late = Row { is_late: true, ..row(POSSIBLE, &[0xff; 8], (0, 56), (1, 9)) };
    assert_eq!(stream.heard.rows, [late, row(POSSIBLE, &[0xff; 8], (56, 112), (4, 4))]);
}

#[test]
fn a_gap_within_data_leaves_the_next_header_in_place() {
    let pdu = whole(nop_header(POSSIBLE).data_segment_length(16), &[], &[0xff; 16], [true, true]);
    for (from, to) in [(50, 51), (52, 60), (60, 68), (60, 70), (60, 71)] {
        let mut stream = Stream::with_digests(true, true);
        stream.send(&pdu);
        stream.send(&pdu[..from]);
        stream.gap((to - from) as i64);
        stream.send(&pdu[to..]);
        stream.send(&pdu);
        // the digest that the gap touches cannot be verified
        let digests_ok = if from < 52 { [None, Some(true)] } else { [Some(true), None] };
        let data = if from < 52 { &[0xff; 16][..] } else { &[0xff; 16][..from - 52] };
        let second = Row { has_capture_gap: true, digests_ok, ..row(POSSIBLE, data, (72, 144), (2, 3)) };
        let third = Row { digests_ok: [Some(true); 2], ..row(POSSIBLE, &[0xff; 16], (144, 216), (4, 4)) };
        assert_eq!(stream.heard.rows[1..], [second, third], "a gap from {from} to {to}");
        assert_eq!(stream.heard.counted, []);
    }
}

#[test]
fn a_gap_to_the_end_of_a_pdu_hides_its_completion() {
    let pdu = nop(POSSIBLE, &[0xff; 8]);
    let mut stream = Stream::with_digests(false, false);
    stream.send(&pdu);
    stream.send(&pdu[..50]);
    stream.gap(6);
    let cut = Row { last: None, has_capture_gap: true, ..row(POSSIBLE, &[0xff; 2], (56, 112), (2, 2)) };
    assert_eq!(stream.heard.rows[1..], std::slice::from_ref(&cut)[..]);
    stream.send(&pdu);
    assert_eq!(stream.heard.rows[2..], [row(POSSIBLE, &[0xff; 8], (112, 168), (3, 3))]);
    assert_eq!(stream.heard.counted, []);
    // one byte more: the next header is searched from there on
    let mut stream = Stream::with_digests(false, false);
    stream.send(&pdu);
    stream.send(&pdu[..50]);
    stream.gap(7);
    assert_eq!(stream.heard.rows[1..], [cut]);
    assert_eq!(stream.heard.counted, [(Counter::SyncLost, 2)]);
    assert_eq!(stream.framer.lost_end_bytes(), Some(1));
}

#[test]
fn a_gap_within_a_header_loses_it() {
    for known in [0, 1, 47] {
        let pdu = nop(POSSIBLE, &[0xff; 8]);
        let mut stream = Stream::with_digests(false, false);
        stream.send(&pdu);
        stream.send(&pdu[..known]);
        stream.gap(60);
        assert_eq!(stream.heard.rows.len(), 1);
        let frame = if known > 0 { 2 } else { 0 };
        assert_eq!(stream.heard.counted, [(Counter::SyncLost, frame)], "{known} bytes");
        assert!(stream.framer.lost_end_bytes().is_some());
    }
}

#[test]
fn a_pdu_lacks_bytes_only_while_it_is_read() {
    let pdu = nop(POSSIBLE, &[0xff; 8]);
    let mut stream = Stream::with_digests(false, false);
    assert_eq!(stream.framer.left_of_pdu(0), None);
    for (to, left) in [(20, Some(0)), (47, Some(0)), (48, Some(8)), (52, Some(4)), (55, Some(1)), (56, None)] {
        let from = stream.offset as usize;
        stream.send(&pdu[from..to]);
        assert_eq!(stream.framer.left_of_pdu(to as i64), left, "after {to} bytes");
        assert_eq!(stream.framer.left_of_pdu(to as i64 - 1), None, "the walk has passed that byte");
        // behind a hole, if the header tells where the PDU ends
        let beyond = left.filter(|left| *left > 1).map(|left| left - 1);
        assert_eq!(stream.framer.left_of_pdu(to as i64 + 1), beyond, "a hole after {to} bytes");
        assert_eq!(stream.framer.left_of_pdu(to as i64 + 9), None, "perhaps the next PDU");
    }
    // a PDU of a header alone ends with it
    stream.send(&nop(POSSIBLE, &[]));
    assert_eq!(stream.framer.left_of_pdu(104), None);
    stream.gap(1);
    assert_eq!(stream.framer.left_of_pdu(105), None);
}

#[test]
fn bytes_are_unread_from_the_first_packet_of_an_incomplete_pdu() {
    let pdu = nop(POSSIBLE, &[0xff; 8]);
    let mut stream = Stream::with_digests(false, false);
    assert_eq!(stream.framer.unread_since_ns(), None);
    for (to, since) in [(1, Some(1000)), (48, Some(1000)), (55, Some(1000)), (56, None)] {
        let from = stream.offset as usize;
        stream.send(&pdu[from..to]);
        assert_eq!(stream.framer.unread_since_ns(), since, "after {to} bytes");
    }
    stream.send(&pdu[..30]);
    assert_eq!(stream.framer.unread_since_ns(), Some(5000));
    // while searching: the bytes that may start a header
    stream.gap(100);
    assert_eq!(stream.framer.unread_since_ns(), None);
    stream.send(&[0xff; 10]);
    stream.send(&[0xff; 40]);
    // the last 47 bytes begin in the sixth frame
    assert_eq!(stream.framer.unread_since_ns(), Some(6000));
    stream.send(&[0xff; 7]);
    assert_eq!(stream.framer.unread_since_ns(), Some(7000));
}

#[test]
fn a_retransmission_marks_the_pdu_whose_bytes_it_repeats() {
    let pdu = nop(POSSIBLE, &[0xff; 8]);
    for (start, end, is_late) in [(76, 80, false), (75, 80, true), (0, 56, false), (0, 57, true)] {
        let mut stream = Stream::with_digests(false, false);
        stream.send(&pdu);
        stream.framer.mark_retransmitted(0, 56);
        stream.send(&pdu[..20]);
        stream.framer.mark_retransmitted(start, end);
        stream.send(&pdu[20..]);
        let marked: Vec<bool> = stream.heard.rows.iter().map(|row| row.is_late).collect();
        assert_eq!(marked, [false, is_late], "bytes {start} to {end}");
    }
}

#[test]
fn at_the_end_a_pdu_with_a_whole_header_is_handed_over() {
    let pdu = nop(POSSIBLE, &[0xff; 8]);
    for (known, count) in [(47, 0), (48, 1), (50, 1)] {
        let mut stream = Stream::with_digests(false, false);
        stream.send(&pdu);
        stream.send(&pdu[..known]);
        stream.finish();
        assert_eq!(stream.heard.rows.len(), 1 + count, "{known} bytes");
        if let [_, found] = &stream.heard.rows[..] {
            let data = &[0xff; 8][..known - 48];
            let expected = Row { last: None, is_unfinished: true, ..row(POSSIBLE, data, (56, 112), (2, 2)) };
            assert_eq!((found, stream.framer.explained_bytes), (&expected, 56 + known as u64));
            // once
            stream.finish();
            assert_eq!(stream.heard.rows.len(), 2);
        }
    }
}
