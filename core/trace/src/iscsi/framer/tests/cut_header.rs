//! Headers that the snaplen cut away.

use super::*;
use crate::iscsi::assumption::ASSUMED_MAX;

/// A PDU of 56 bytes, and one without data that fits certainly.
fn pdus() -> (Vec<u8>, Vec<u8>) {
    (nop(POSSIBLE, &[0xee; 8]), nop(CERTAIN, &[]))
}

/// A stream after one PDU, with these possible data lengths of the next ones.
fn after_one(possible: &[&[u32]]) -> Stream {
    let mut stream = Stream::with_digests(false, false);
    stream.heard.possible = possible.iter().map(|lengths| lengths.to_vec()).collect();
    stream.send(&pdus().0);
    stream
}

#[test]
fn an_assumption_counts_when_a_header_follows_it() {
    let (pdu, next) = pdus();
    for kept_bytes in [0, 8, 19] {
        let mut stream = after_one(&[&[8, 8]]);
        stream.send_cut(&pdu, kept_bytes);
        assert_eq!(stream.framer.unread_since_ns(), Some(at(2).time_ns));
        // the second one, in two segments
        stream.send_cut(&pdu[..50], kept_bytes);
        stream.send_cut(&pdu[50..], 0);
        assert_eq!(stream.framer.explained_bytes, 56);
        stream.send(&next);
        let assumed = [(56, 112, at(2), Some(at(2))), (112, 168, at(3), Some(at(4)))];
        assert_eq!(stream.heard.confirmed, assumed);
        assert_eq!(stream.heard.rows[1..], [row(CERTAIN, &[], (168, 216), (5, 5))]);
        assert_eq!((stream.framer.explained_bytes, stream.framer.unread_since_ns()), (216, None));
        // from the start of the PDU to the end of its segment
        assert_eq!(stream.heard.rests, [56, 50]);
        assert_eq!(stream.heard.counted, []);
        // once
        stream.send(&next);
        assert_eq!(stream.heard.confirmed.len(), 2);
    }
}

#[test]
fn twenty_bytes_of_a_header_need_no_assumption() {
    let mut stream = after_one(&[&[8]]);
    stream.send_cut(&pdus().0, 20);
    assert_eq!(stream.heard.rests, []);
    let cut = Row { header_bytes: 20, ..row(POSSIBLE, &[], (56, 112), (2, 2)) };
    assert_eq!(stream.heard.rows[1..], [cut]);
    assert_eq!(stream.heard.counted, [(Counter::PduHeaderCut, 2)]);
}

#[test]
fn a_captured_data_segment_length_is_better_than_an_assumption() {
    let (pdu, next) = pdus();
    // a header without its tag has its length from byte 8 on
    for (kept_bytes, assumed_bytes, is_assumed) in [(8, 4, false), (19, 4, false), (7, 8, true), (8, 8, true)] {
        let mut stream = after_one(&[&[assumed_bytes]]);
        stream.send_cut(&pdu, kept_bytes);
        stream.send(&next);
        assert_eq!(
            stream.heard.confirmed.len(),
            usize::from(is_assumed),
            "{kept_bytes} bytes, {assumed_bytes} assumed"
        );
        let cut = Row { tag: None, header_bytes: kept_bytes, ..row(POSSIBLE, &[], (56, 112), (2, 2)) };
        let last = row(CERTAIN, &[], (112, 160), (3, 3));
        assert_eq!(stream.heard.rows[1..], if is_assumed { vec![last] } else { vec![cut, last] });
        assert_eq!(stream.heard.discarded, u32::from(!is_assumed));
    }
}

#[test]
fn without_an_assumption_a_header_without_its_length_is_searched() {
    let (pdu, next) = pdus();
    for (kept_bytes, is_lost) in [(7, true), (8, false)] {
        let mut stream = after_one(&[]);
        stream.send_cut(&pdu, kept_bytes);
        let counter = if is_lost { Counter::SyncLost } else { Counter::PduHeaderCut };
        assert_eq!(stream.heard.counted, [(counter, 2)]);
        stream.send(&next);
        assert_eq!(stream.heard.rows.last(), Some(&row(CERTAIN, &[], (112, 160), (3, 3))));
        assert_eq!(stream.framer.explained_bytes, if is_lost { 104 } else { 160 });
    }
}

#[test]
fn no_more_than_a_limit_is_assumed_in_a_row() {
    let (pdu, next) = pdus();
    for (count, is_lost) in [(ASSUMED_MAX, false), (ASSUMED_MAX + 1, true)] {
        let mut stream = after_one(&[&[8; ASSUMED_MAX + 1]]);
        (0..count).for_each(|_| stream.send_cut(&pdu, 0));
        stream.send(&next);
        assert_eq!(stream.heard.confirmed.len(), if is_lost { 0 } else { ASSUMED_MAX });
        assert_eq!(stream.heard.counted.len(), usize::from(is_lost));
    }
}

#[test]
fn the_header_after_an_assumption_must_be_certain_or_start_its_segment() {
    let pdu = pdus().0;
    let follow = |next: &[u8], is_apart: bool| {
        let mut stream = after_one(&[&[8]]);
        if is_apart {
            stream.send_cut(&pdu, 0);
            stream.send(next);
        } else {
            // the header was cut away, but the next one not
            stream.frame += 1;
            let chunk = Chunk { captured: &[], ..stream.next(&pdu) };
            stream.take(&chunk);
            let chunk = Chunk { is_segment_start: false, ..stream.next(next) };
            stream.take(&chunk);
        }
        stream.heard
    };
    let possible = nop(POSSIBLE, &[]);
    assert_eq!(follow(&possible, true).confirmed.len(), 1);
    assert_eq!(follow(&possible, false).counted, [(Counter::PduInvalid, 2), (Counter::SyncLost, 2)]);
    assert_eq!(follow(&nop(CERTAIN, &[]), false).confirmed.len(), 1);
    assert_eq!(follow(&[0xff; 48], true).counted, [(Counter::PduInvalid, 3), (Counter::SyncLost, 3)]);
    // it starts its segment, but not with its first byte
    let mut stream = after_one(&[&[8]]);
    stream.send_cut(&pdu, 0);
    stream.send(&possible[..4]);
    stream.send(&possible[4..]);
    assert_eq!(stream.heard.confirmed, []);
}

#[test]
fn a_header_within_assumed_data_begins_the_next_possibility() {
    let next = pdus().1;
    let bare = nop(POSSIBLE, &[]);
    // eight bytes of data are assumed first; there are none
    let mut stream = after_one(&[&[8], &[0]]);
    stream.send_cut(&bare, 0);
    stream.send(&next);
    assert_eq!(stream.heard.confirmed, [(56, 104, at(2), Some(at(2)))]);
    assert_eq!(stream.heard.rows[1..], [row(CERTAIN, &[], (104, 152), (3, 3))]);
    assert_eq!((stream.framer.explained_bytes, &stream.heard.counted[..]), (152, &[][..]));
    stream.send(&next);
    assert_eq!(stream.heard.rows[2..], [row(CERTAIN, &[], (152, 200), (4, 4))]);
    // its task tag is enough
    for (kept_bytes, confirmed) in [(20, 1), (19, 0)] {
        let mut stream = after_one(&[&[8], &[0]]);
        stream.send_cut(&bare, 0);
        stream.send_cut(&next, kept_bytes);
        assert_eq!(stream.heard.confirmed.len(), confirmed, "{kept_bytes} bytes");
    }
    // a header that may be data, and bytes within a segment, contradict nothing
    for (bytes, is_segment_start) in [(&bare, true), (&next, false)] {
        let mut stream = after_one(&[&[48], &[0]]);
        stream.send_cut(&bare, 0);
        stream.frame += 1;
        let chunk = Chunk { is_segment_start, ..stream.next(bytes) };
        stream.take(&chunk);
        stream.send(&next);
        assert_eq!(stream.heard.confirmed, [(56, 152, at(2), Some(at(3)))]);
    }
}

#[test]
fn a_wrong_assumption_is_read_again_over_all_its_packets() {
    let (pdu, next) = pdus();
    // 200 bytes of data are assumed first; there are eight, and another PDU of 56 bytes with an unread header
    let mut stream = after_one(&[&[200], &[8, 8]]);
    stream.send_cut(&[&pdu[..], &pdu[..20]].concat(), 0);
    stream.send_cut(&pdu[20..], 0);
    stream.send(&next);
    assert_eq!(stream.heard.confirmed, [(56, 112, at(2), Some(at(2))), (112, 168, at(2), Some(at(3)))]);
    assert_eq!(stream.heard.rows[1..], [row(CERTAIN, &[], (168, 216), (4, 4))]);
    assert_eq!((stream.framer.explained_bytes, &stream.heard.counted[..]), (216, &[][..]));
    stream.send(&next);
    assert_eq!(stream.heard.rows.len(), 3);
}

#[test]
fn without_a_right_possibility_the_place_is_lost() {
    let next = pdus().1;
    let bare = nop(POSSIBLE, &[]);
    for possible in [&[&[8][..]][..], &[&[8], &[12]]] {
        let mut stream = after_one(possible);
        stream.send_cut(&bare, 0);
        stream.send(&next);
        assert_eq!(stream.heard.confirmed, []);
        assert_eq!(stream.heard.counted, [(Counter::SyncLost, 3)]);
        // it continues with the header that showed it
        assert_eq!(stream.heard.rows[1..], [row(CERTAIN, &[], (104, 152), (3, 3))]);
        stream.send(&next);
        assert_eq!(stream.heard.rows[2..], [row(CERTAIN, &[], (152, 200), (4, 4))]);
        assert_eq!(stream.framer.explained_bytes, 56 + 48 + 48);
    }
}

#[test]
fn an_assumption_at_the_end_counts_for_nothing() {
    let mut stream = after_one(&[&[8]]);
    stream.send_cut(&pdus().0, 0);
    stream.finish();
    assert_eq!((stream.heard.rows.len(), stream.heard.confirmed.len(), stream.heard.discarded), (1, 0, 1));
    // nor with a gap after it or in it
    for known in [56, 50] {
        let mut stream = after_one(&[&[8]]);
        stream.send_cut(&pdus().0[..known], 0);
        stream.gap(4);
        assert_eq!(stream.heard.counted.len(), 1, "{known} bytes");
        stream.finish();
        assert_eq!((stream.heard.rows.len(), stream.framer.explained_bytes), (1, 56));
    }
}
