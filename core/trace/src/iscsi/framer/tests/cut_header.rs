//! Headers that the snaplen cut away.

use super::*;

/// A PDU of 56 bytes, and one without data that fits certainly.
fn pdus() -> (Vec<u8>, Vec<u8>) {
    (nop(POSSIBLE, &[0xee; 8]), nop(CERTAIN, &[]))
}

/// A stream after one PDU, with these possible data lengths of the next ones.
fn after_one(apart: &[u32], in_data: &[u32]) -> Stream {
    let mut stream = Stream::with_digests(false, false);
    stream.heard.possible = [apart.to_vec(), in_data.to_vec()];
    stream.send(&pdus().0);
    stream
}

#[test]
fn what_is_expected_was_there_if_a_header_follows_it() {
    let (pdu, next) = pdus();
    for kept_bytes in [0, 7] {
        let mut stream = after_one(&[8, 8], &[]);
        stream.send_cut(&pdu, kept_bytes);
        assert_eq!(stream.framer.unread_since_ns(), Some(at(2).time_ns));
        // the second one, in two segments
        stream.send_cut(&pdu[..50], kept_bytes);
        assert_eq!((stream.framer.left_of_pdu(162), stream.framer.left_of_pdu(168)), (Some(6), None));
        stream.send_cut(&pdu[50..], 0);
        assert_eq!((stream.framer.explained_bytes, stream.heard.is_waiting), (56, true));
        stream.send(&next);
        assert_eq!(stream.heard.explained, [(56, 112, at(2), at(2)), (112, 168, at(3), at(4))]);
        assert_eq!(stream.heard.rows[1..], [row(CERTAIN, &[], (168, 216), (5, 5))]);
        assert_eq!((stream.framer.explained_bytes, stream.framer.unread_since_ns()), (216, None));
        assert_eq!((&stream.heard.counted[..], stream.heard.given_up), (&[][..], 0));
        // once
        stream.send(&next);
        assert_eq!(stream.heard.explained.len(), 2);
    }
}

#[test]
fn the_packets_of_a_cut_header_are_those_with_its_bytes() {
    let (pdu, next) = pdus();
    let mut stream = after_one(&[8], &[]);
    // it begins at the end of a whole segment
    stream.send(&pdu[..5]);
    stream.send_cut(&pdu[5..], 0);
    stream.send(&next);
    assert_eq!(stream.heard.explained, [(56, 112, at(2), at(3))]);
}

#[test]
fn a_header_with_its_length_is_read() {
    for kept_bytes in [8, 19, 20] {
        let mut stream = after_one(&[4], &[]);
        stream.send_cut(&pdus().0, kept_bytes);
        let tag = (kept_bytes == 20).then_some(POSSIBLE);
        let cut = Row { tag, header_bytes: kept_bytes, ..row(POSSIBLE, &[], (56, 112), (2, 2)) };
        assert_eq!(stream.heard.rows[1..], [cut]);
        assert_eq!(stream.heard.counted, [(Counter::PduHeaderCut, 2)]);
    }
}

#[test]
fn where_nothing_is_expected_the_position_is_lost() {
    let (pdu, next) = pdus();
    let mut stream = after_one(&[], &[]);
    stream.send_cut(&pdu, 7);
    assert_eq!((&stream.heard.counted[..], stream.heard.is_waiting), (&[(Counter::SyncLost, 2)][..], false));
    stream.send(&next);
    assert_eq!(stream.heard.rows[1..], [row(CERTAIN, &[], (112, 160), (3, 3))]);
    assert_eq!(stream.framer.explained_bytes, 104);
    // and where more comes than is expected
    let mut stream = after_one(&[8], &[]);
    stream.send_cut(&pdu, 0);
    assert_eq!(stream.heard.counted, []);
    stream.send_cut(&pdu, 0);
    assert_eq!((&stream.heard.counted[..], stream.heard.given_up), (&[(Counter::SyncLost, 3)][..], 1));
    stream.send(&next);
    assert_eq!((stream.heard.explained.len(), stream.heard.rows.len()), (0, 2));
}

#[test]
fn the_header_that_follows_is_certain_or_starts_its_segment_where_it_is_expected() {
    let pdu = pdus().0;
    // longer than its segment, so that it is possible and no more
    let possible = &nop(POSSIBLE, &[1; 8])[..52];
    let follow = |next: &[u8], data_bytes: u32, is_segment_start: bool| {
        let mut stream = after_one(&[data_bytes, 8], &[]);
        stream.send_cut(&pdu, 0);
        stream.frame += 1;
        let chunk = Chunk { is_segment_start, ..stream.next(next) };
        stream.take(&chunk);
        stream.heard.explained.len()
    };
    assert_eq!(follow(possible, 8, true), 1);
    assert_eq!(follow(possible, 8, false), 0);
    assert_eq!(follow(possible, 12, true), 0);
    let certain = nop(CERTAIN, &[]);
    assert_eq!([true, false].map(|is_segment_start| follow(&certain, 8, is_segment_start)), [1, 1]);
    assert_eq!(follow(&[0xff; 48], 8, true), 0);
    // at the start of a segment, with its tag
    for (kept_bytes, explained) in [(20, 1), (19, 0)] {
        let mut stream = after_one(&[8, 8], &[]);
        stream.send_cut(&pdu, 0);
        stream.send_cut(&certain, kept_bytes);
        assert_eq!(stream.heard.explained.len(), explained, "{kept_bytes} bytes");
    }
}

#[test]
fn one_of_the_possibilities_ends_where_the_header_is() {
    let (pdu, next) = pdus();
    for possible in [[&[200][..], &[8, 8]], [&[8, 8], &[200]]] {
        let mut stream = after_one(possible[0], possible[1]);
        stream.send_cut(&[&pdu[..], &pdu[..20]].concat(), 0);
        stream.send_cut(&pdu[20..], 0);
        stream.send(&next);
        assert_eq!(stream.heard.explained, [(56, 112, at(2), at(2)), (112, 168, at(2), at(3))]);
        assert_eq!(stream.heard.rows[1..], [row(CERTAIN, &[], (168, 216), (4, 4))]);
        assert_eq!((stream.framer.explained_bytes, &stream.heard.counted[..]), (216, &[][..]));
        stream.send(&next);
        assert_eq!(stream.heard.rows.len(), 3);
    }
}

#[test]
fn where_no_possibility_ends_with_the_header_the_position_was_lost() {
    let next = pdus().1;
    let bare = nop(POSSIBLE, &[]);
    let mut stream = after_one(&[8], &[12]);
    stream.send_cut(&bare, 0);
    stream.send(&next);
    assert_eq!((stream.heard.explained.len(), stream.heard.given_up), (0, 1));
    assert_eq!(stream.heard.counted, [(Counter::SyncLost, 3)]);
    // it continues with the header that showed it
    assert_eq!(stream.heard.rows[1..], [row(CERTAIN, &[], (104, 152), (3, 3))]);
    stream.send(&next);
    assert_eq!(stream.heard.rows[2..], [row(CERTAIN, &[], (152, 200), (4, 4))]);
    assert_eq!(stream.framer.explained_bytes, 56 + 48 + 48);
}

#[test]
fn what_is_expected_at_the_end_counts_for_nothing() {
    let mut stream = after_one(&[8], &[]);
    stream.send_cut(&pdus().0, 0);
    stream.finish();
    assert_eq!((stream.heard.rows.len(), stream.heard.explained.len(), stream.heard.counted.len()), (1, 0, 0));
    // nor with a gap after it or in it
    for known in [56, 50] {
        let mut stream = after_one(&[8], &[]);
        stream.send_cut(&pdus().0[..known], 0);
        stream.gap(4);
        assert_eq!((stream.heard.counted.len(), stream.heard.given_up), (1, 1), "{known} bytes");
        stream.finish();
        assert_eq!((stream.heard.rows.len(), stream.framer.explained_bytes), (1, 56));
    }
}
