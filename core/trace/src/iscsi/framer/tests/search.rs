//! The search for the next header.

use iscsitrace_wire::serial::SerialNumber;

use super::*;

#[test]
fn a_header_is_found_wherever_its_segments_end() {
    let pdu = nop(CERTAIN, &[0xee; 8]);
    for junk in [1, 7, 46, 47, 48, 100] {
        for cut in 1..56 {
            let mut stream = Stream::search(1000);
            stream.send(&vec![0xff; junk]);
            stream.send(&pdu[..cut]);
            stream.send(&pdu[cut..]);
            stream.send(&pdu);
            let start = 1000 + junk as i64;
            let first = row(CERTAIN, &[0xee; 8], (start, start + 56), (2, 3));
            let second = row(CERTAIN, &[0xee; 8], (start + 56, start + 112), (4, 4));
            assert_eq!(stream.heard.rows, [first, second], "after {junk} bytes, cut after {cut}");
            assert_eq!(stream.framer.explained_bytes, 112);
        }
    }
    // byte by byte, and within a segment
    let mut stream = Stream::search(1000);
    stream.send(&[0xff; 9]);
    pdu.iter().for_each(|byte| stream.send(&[*byte]));
    assert_eq!(stream.heard.rows, [row(CERTAIN, &[0xee; 8], (1009, 1065), (2, 57))]);
    let mut stream = Stream::search(1000);
    stream.send(&[&[0xff; 9][..], &pdu, &pdu].concat());
    let first = row(CERTAIN, &[0xee; 8], (1009, 1065), (1, 1));
    assert_eq!(stream.heard.rows, [first, row(CERTAIN, &[0xee; 8], (1065, 1121), (1, 1))]);
}

#[test]
fn a_header_that_was_sent_before_is_passed_over() {
    let mut stream = Stream::begin();
    stream.send(&nop(CERTAIN, &[]));
    stream.gap(8);
    stream.send(&[&[0xff; 8][..], &nop(PAST, &[]), &nop(CERTAIN, &[])].concat());
    assert_eq!(stream.heard.rows[1..], [row(CERTAIN, &[], (112, 160), (2, 2))]);
    // where a header is due, it is one
    stream.send(&nop(PAST, &[]));
    assert_eq!(stream.heard.rows[2], row(PAST, &[], (160, 208), (3, 3)));
}

#[test]
fn a_header_is_passed_over_if_no_header_follows_it() {
    for (digests, bytes, is_read) in [
        ([false, false], 0, true),
        ([false, false], 4, false),
        ([true, false], 4, true),
        ([true, false], 8, false),
        ([false, true], 4, true),
        ([false, true], 8, false),
        ([true, true], 8, true),
        ([true, true], 12, false),
    ] {
        let mut stream = Stream::with_digests(digests[0], digests[1]);
        stream.send(&[0xff; 48]);
        let pdu = nop_header(CERTAIN).data_segment_length(8).build();
        let behind = nop(LIKELY, &[]);
        stream.send(&[&pdu[..], &vec![0xff; 8 + bytes], &behind].concat());
        assert_eq!(!stream.heard.begun.is_empty(), is_read, "{digests:?}, {bytes} bytes between");
    }
    // what was not captured shows nothing
    let mut stream = Stream::with_digests(false, false);
    stream.send(&[0xff; 48]);
    stream.send(&[&nop(CERTAIN, &[])[..], &[0xff; 47]].concat());
    assert_eq!(stream.heard.begun.len(), 1);
}

#[test]
fn the_end_of_a_stream_is_lost_with_bytes_and_without_a_header() {
    let mut stream = Stream::search(1000);
    assert!(stream.framer.lost_end_bytes().is_none(), "no byte came");
    stream.send(&[0xff; 10]);
    assert!(stream.framer.lost_end_bytes().is_some());
    stream.send(&nop(CERTAIN, &[]));
    assert!(stream.framer.lost_end_bytes().is_none());
    assert!(stream.framer.lost_start_bytes().is_some(), "ten bytes before the first header");
    stream.gap(10);
    assert!(stream.framer.lost_end_bytes().is_some());
}

#[test]
fn a_gap_ends_the_bytes_before_it() {
    let pdu = nop(CERTAIN, &[]);
    let mut stream = Stream::search(1000);
    stream.send(&pdu[..24]);
    stream.gap(4);
    stream.send(&pdu[24..]);
    assert_eq!(stream.heard.rows, []);
    stream.send(&pdu);
    assert_eq!(stream.heard.rows, [row(CERTAIN, &[], (1052, 1100), (3, 3))]);
}

#[test]
fn pdus_start_at_multiples_of_four_bytes_from_the_first_one() {
    let mut stream = Stream::with_digests(false, false);
    stream.send(&nop(POSSIBLE, &[]));
    stream.gap(100);
    // 148 + 6 and 148 + 54 are no multiples, 148 + 104 is one
    stream.send(
        &[&[0xff; 6][..], &nop(CERTAIN, &[]), &nop(CERTAIN + 1, &[]), &[0xff; 2], &nop(CERTAIN + 2, &[])].concat(),
    );
    assert_eq!(stream.heard.rows[1..], [row(CERTAIN + 2, &[], (252, 300), (2, 2))]);
    // nor is 300 + 100 + 5, over the end of a segment
    let pdu = nop(CERTAIN, &[]);
    stream.gap(100);
    stream.send(&[&[0xff; 5][..], &pdu[..20]].concat());
    stream.send(&pdu[20..]);
    assert_eq!(stream.heard.rows.len(), 2);
    // 453 + 3 is one
    stream.send(&[&[0xff; 3][..], &pdu[..20]].concat());
    stream.send(&pdu[20..]);
    assert_eq!(stream.heard.rows[2..], [row(CERTAIN, &[], (456, 504), (5, 6))]);
    // and 605 + 3
    stream.gap(101);
    stream.send(&[&[0xff; 3][..], &pdu].concat());
    assert_eq!(stream.heard.rows[3..], [row(CERTAIN, &[], (608, 656), (7, 7))]);
    // 11 and 37 bytes that are no header, then four more: 667 + 37 + 4
    stream.send(&[0xff; 11]);
    stream.send(&[&[0xff; 41][..], &pdu].concat());
    assert_eq!(stream.heard.rows[4..], [row(CERTAIN, &[], (708, 756), (9, 9))]);
}

/// Whether the search accepts these bytes of a segment, of which this many were captured.
fn accepts(segment: &[u8], kept_bytes: usize, is_segment_start: bool) -> bool {
    let mut stream = Stream::search(0);
    stream.frame = 1;
    let chunk = Chunk { is_segment_start, ..stream.next(segment) };
    stream.take(&Chunk { captured: &segment[..kept_bytes], ..chunk });
    stream.finish();
    !stream.heard.begun.is_empty()
}

#[test]
fn a_possible_header_must_lead_to_the_end_of_its_segment_or_to_another() {
    for digests in [[false, false], [true, false], [false, true], [true, true]] {
        let pdu = |tag| whole(nop_header(tag).data_segment_length(8), &[], &[0xff; 8], digests);
        // the digest of the header is not looked at
        let mut possible = pdu(POSSIBLE);
        possible[48..56].fill(0xff);
        assert!(accepts(&possible, 48, true), "{digests:?}");
        assert!(!accepts(&possible, 48, false), "{digests:?}");
        let followed = [&possible[..], &pdu(POSSIBLE), &[0xff]].concat();
        assert!(accepts(&followed, possible.len() + 48, true), "{digests:?}");
        // with two of its numbers
        assert!(accepts(&followed, possible.len() + 32, true), "{digests:?}");
        assert!(!accepts(&followed, possible.len() + 31, true), "{digests:?}");
        let unlikely = [&possible[..], &pdu(LIKELY - 1), &[0xff]].concat();
        assert!(!accepts(&unlikely, unlikely.len(), true), "{digests:?}");
    }
    let alone = [&nop(POSSIBLE, &[])[..], &[0xff]].concat();
    assert!(!accepts(&alone, 49, true));
    let unlikely = nop(LIKELY - 1, &[]);
    assert!(!accepts(&unlikely, 48, true));
    // a header that is not the first of its segment
    assert!(!accepts(&[&[0xff; 4][..], &nop(POSSIBLE, &[])].concat(), 52, true));
}

#[test]
fn a_possible_header_with_its_digest_is_accepted_anywhere() {
    let pdu = whole(nop_header(POSSIBLE), &[], &[], [true, false]);
    assert!(accepts(&[&[0xff; 3][..], &pdu, &[0xff]].concat(), 56, true));
    assert!(!accepts(&[&[0xff; 3][..], &pdu[..51], &[0xff; 2]].concat(), 56, true));
    assert!(!accepts(&[&[0xff; 3][..], &pdu].concat(), 54, true));
}

#[test]
fn a_cut_header_is_accepted_with_its_task_tag() {
    let pdu = nop(CERTAIN, &[0xee; 8]);
    for (kept_bytes, is_accepted) in [(48, true), (47, true), (20, true), (19, false)] {
        let mut stream = Stream::search(0);
        stream.send_cut(&pdu, kept_bytes);
        assert_eq!(!stream.heard.begun.is_empty(), is_accepted, "{kept_bytes} bytes");
        if !is_accepted {
            continue;
        }
        // a data digest may follow in another packet
        let expected = Row { header_bytes: kept_bytes, last: None, ..row(CERTAIN, &[], (0, 56), (1, 1)) };
        assert_eq!(stream.heard.rows, [expected]);
        let is_cut = kept_bytes < 48;
        assert_eq!(stream.heard.counted, if is_cut { vec![(Counter::PduHeaderCut, 1)] } else { vec![] });
    }
    // its last bytes come with the next segment
    let mut stream = Stream::search(0);
    stream.send_cut(&pdu[..40], 24);
    stream.send(&pdu[40..]);
    let expected = Row { header_bytes: 24, ..row(CERTAIN, &[0xee; 8], (0, 56), (1, 2)) };
    assert_eq!((stream.heard.rows, stream.heard.counted), (vec![expected], vec![(Counter::PduHeaderCut, 2)]));
}

#[test]
fn bytes_behind_cut_ones_start_no_header() {
    let pdu = nop(CERTAIN, &[]);
    let mut stream = Stream::search(0);
    stream.send_cut(&[&[0xff; 60][..], &pdu[..10]].concat(), 60);
    stream.send(&pdu[10..]);
    assert_eq!(stream.heard.rows, []);
    // PDUs of both may be read once a header shows where they begin
    assert_eq!(stream.framer.unread_since_ns(), Some(at(1).time_ns));
}

#[test]
fn the_search_begins_within_the_bytes_that_were_no_header() {
    let pdu = nop(CERTAIN, &[]);
    // four unexpected bytes before the header, in segments that end after this many bytes
    for (first_bytes, first_frame) in [(3, 3), (4, 3), (5, 2), (30, 2), (48, 2), (51, 2)] {
        let mut stream = Stream::with_digests(false, false);
        stream.send(&nop(POSSIBLE, &[]));
        let bytes = [&[0xff; 4][..], &pdu].concat();
        stream.send(&bytes[..first_bytes]);
        stream.send(&bytes[first_bytes..]);
        let last_frame = 3;
        assert_eq!(
            stream.heard.rows[1..],
            [row(CERTAIN, &[], (52, 100), (first_frame, last_frame))],
            "{first_bytes} bytes first"
        );
        let end_of_header = if first_bytes < 48 { 3 } else { 2 };
        let counted = [(Counter::PduInvalid, end_of_header), (Counter::SyncLost, end_of_header)];
        assert_eq!(stream.heard.counted, counted);
        assert!(stream.framer.lost_start_bytes().is_none());
    }
    // in one segment, and at the start of the stream
    let mut stream = Stream::with_digests(false, false);
    stream.send(&[&[0xff; 4][..], &pdu].concat());
    assert_eq!(stream.heard.rows, [row(CERTAIN, &[], (4, 52), (1, 1))]);
    assert!(stream.framer.lost_start_bytes().is_some());
}

#[test]
fn a_header_found_eight_bytes_later_shows_two_digests() {
    use crate::iscsi::digest_use::DigestUse::{ByLength, Inferred};
    let pdu = whole(nop_header(CERTAIN).data_segment_length(8), &[], &[0xee; 8], [true, true]);
    for (has_gap, digest) in [(false, ByLength), (true, Inferred(false))] {
        let mut stream = Stream::begin();
        (stream.framer.header_digest, stream.framer.data_digest) = (Inferred(false), Inferred(false));
        stream.send(&pdu);
        if has_gap {
            // after a gap the distance shows nothing
            stream.gap(64);
        }
        // without the bytes after its header
        stream.send_cut(&pdu, 48);
        let found = [stream.framer.header_digest, stream.framer.data_digest];
        assert_eq!(found, [digest; 2], "with a gap: {has_gap}");
    }
}

/// A PDU whose header is possible, with this many bytes of data.
fn possible(bytes: usize) -> Vec<u8> {
    nop(POSSIBLE, &vec![0xee; bytes])
}

#[test]
fn a_possible_header_leads_to_the_first_one() {
    // the first is longer than its segment, the second begins within one: neither is accepted alone
    let (first, second, certain) = (possible(1000), possible(2000), nop(CERTAIN, &[]));
    for cut in [48, 400, 1047] {
        let mut stream = Stream::search(1000);
        stream.send(&first[..cut]);
        assert_eq!(stream.heard.rows, []);
        stream.send(&[&first[cut..], &second[..1500]].concat());
        assert_eq!(stream.heard.rows.len(), 1);
        stream.send(&second[1500..]);
        stream.send(&certain);
        let rows = [
            row(POSSIBLE, &first[48..], (1000, 2048), (1, 2)),
            row(POSSIBLE, &second[48..], (2048, 4096), (2, 3)),
            row(CERTAIN, &[], (4096, 4144), (4, 4)),
        ];
        assert_eq!(stream.heard.rows, rows, "cut after {cut} bytes");
        assert_eq!((stream.framer.explained_bytes, stream.framer.lost_start_bytes()), (3144, None));
    }
}

#[test]
fn only_a_header_where_another_of_the_same_session_leads_is_the_first_one() {
    let found = |first: Vec<u8>, second: Vec<u8>| {
        let mut stream = Stream::search(1000);
        stream.send(&first[..400]);
        stream.send(&[&first[400..], &second[..1500]].concat());
        stream.heard.rows.len()
    };
    let header =
        |stat_sn, bytes| nop_header(POSSIBLE).stat_sn(SerialNumber(stat_sn)).data_segment_length(bytes).build();
    let with_data = |header: [u8; 48], bytes| [&header[..], &vec![0xee; bytes]].concat();
    let second = possible(2000);
    assert_eq!(found(possible(1000), second.clone()), 1);
    assert_eq!(found(with_data(header(0, 900), 1000), second.clone()), 0);
    assert_eq!(found(with_data(header(1 << 20, 1000), 1000), second.clone()), 0);
    // zeros have small numbers, and are no header
    assert_eq!(found(possible(1000), vec![0; 2048]), 0);
    assert_eq!(found(vec![0; 1048], second), 0);
}

#[test]
fn more_segments_than_are_kept_may_come_before_the_first_header() {
    // three PDUs of 256 KiB, all but the headers at the starts of segments
    let mut stream = Stream::search(1000);
    for _ in 0..3 {
        possible(256 << 10).chunks(1448).for_each(|segment| stream.send(segment));
    }
    stream.send(&nop(CERTAIN, &[]));
    assert_eq!((stream.heard.rows.len(), stream.framer.lost_start_bytes()), (4, None));
}

/// The places that are found of two PDUs, of which the first starts a segment, and a certain one; the header of the second
/// is not whole.
fn before_a_missing_header(first: &[u8], starts_segment: bool) -> Vec<(i64, i64)> {
    let mut stream = Stream::search(1000);
    if !starts_segment {
        stream.send(&[&[0xee; 4], &first[..400]].concat());
    } else {
        stream.send(&first[..400]);
    }
    stream.send(&first[400..]);
    stream.gap(40);
    stream.send(&possible(2000)[40..]);
    stream.send(&nop(CERTAIN, &[]));
    stream.heard.rows.iter().map(|row| (row.offset, row.end)).collect()
}

#[test]
fn a_header_before_one_that_is_missing_takes_two_numbers_and_the_start_of_a_segment() {
    let (first, certain) = ((1000, 2048), (4096, 4144));
    assert_eq!(before_a_missing_header(&possible(1000), true), [first, certain]);
    assert_eq!(before_a_missing_header(&possible(1000), false), [(4100, 4148)]);
    assert_eq!(before_a_missing_header(&[0; 1048], true), [certain]);
    for (stat_sn, is_read) in [(1 << 14, false), ((1 << 14) - 1, true)] {
        let header = nop_header(POSSIBLE).stat_sn(SerialNumber(stat_sn)).data_segment_length(1000).build();
        let found = before_a_missing_header(&[&header[..], &[0xee; 1000]].concat(), true);
        assert_eq!(found.len(), 1 + usize::from(is_read), "{stat_sn}");
    }
    // a Data-In without a status has two numbers, a Data-Out one
    for (opcode, is_read) in [(Opcode::DataIn, true), (Opcode::DataOut, false)] {
        let header = BhsBuilder::new(opcode).initiator_task_tag(POSSIBLE).data_segment_length(1000).build();
        let found = before_a_missing_header(&[&header[..], &[0xee; 1000]].concat(), true);
        assert_eq!(found.len(), 1 + usize::from(is_read), "{opcode:?}");
    }
}

#[test]
fn bytes_that_lead_elsewhere_are_no_pdus() {
    let first = possible(1000);
    for (length, is_read) in [(1000, true), (996, false), (1012, false)] {
        let mut stream = Stream::search(1000);
        stream.send(&first[..400]);
        stream.send(&vec![0xee; 48 + length - 400]);
        stream.send(&nop(CERTAIN, &[]));
        assert_eq!(stream.heard.rows.len(), 1 + usize::from(is_read), "a PDU of {length} bytes");
        let lost = (!is_read).then_some(48 + length as u64);
        assert_eq!(stream.framer.lost_start_bytes(), lost);
    }
    // sequence numbers of another session
    for (stat_sn, count) in [(SerialNumber(100), 2), (SerialNumber(1 << 20), 1)] {
        let mut stream = Stream::search(1000);
        stream.send(&nop_header(POSSIBLE).stat_sn(stat_sn).data_segment_length(1000).build());
        stream.send(&[0xee; 1000]);
        stream.send(&nop(CERTAIN, &[]));
        assert_eq!(stream.heard.rows.len(), count, "{stat_sn:?}");
    }
}

#[test]
fn pdus_lead_over_holes_in_their_data_only() {
    let bytes = [possible(1000), possible(2000)].concat();
    // bytes that are missing, PDUs that are found, and which of these has the hole
    let cases = [
        (48..400, 3, Some(0)),
        (400..1048, 3, Some(0)),
        (1200..3096, 3, Some(1)),
        // to a header with a hole; with another hole in the header that would lead there
        (1000..1100, 2, Some(0)),
        (1060..1200, 2, None),
        (20..1100, 1, None),
    ];
    for (hole, found, hit) in cases {
        let mut stream = Stream::search(1000);
        stream.send(&bytes[..hole.start]);
        stream.gap(hole.len() as i64);
        if hole.end < bytes.len() {
            stream.send(&bytes[hole.end..]);
        }
        stream.send(&nop(CERTAIN, &[]));
        let places: Vec<(i64, i64)> = stream.heard.rows.iter().map(|row| (row.offset, row.end)).collect();
        let expected = [(1000, 2048), (2048, 4096), (4096, 4144)];
        let is_known = |&(start, _): &(i64, i64)| match found {
            1 => start == 4096,
            2 => start != 2048,
            _ => true,
        };
        assert_eq!(places, expected.into_iter().filter(is_known).collect::<Vec<_>>(), "{hole:?}");
        assert_eq!(stream.heard.rows.iter().position(|row| row.has_capture_gap), hit, "{hole:?}");
        assert_eq!(stream.framer.lost_start_bytes(), (found == 1).then_some(3096), "{hole:?}");
    }
}

#[test]
fn a_later_search_begins_where_the_position_was_lost() {
    let mut stream = Stream::search(1000);
    stream.send(&nop(CERTAIN, &[]));
    stream.gap(4);
    stream.send(&possible(1000)[..400]);
    stream.send(&possible(1000)[400..]);
    stream.send(&nop(CERTAIN, &[]));
    assert_eq!(stream.heard.rows.len(), 2);
}
