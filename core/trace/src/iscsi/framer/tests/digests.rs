//! Which digests the framer infers without a login.

use super::*;
use crate::iscsi::digest_use::DigestUse::{self, ByLength, Inferred, Known, Unknown};

/// The use of header and data digests after segments, each with its captured bytes.
fn inferred(segments: &[(&[u8], usize)]) -> [DigestUse; 2] {
    let mut stream = Stream::begin();
    segments.iter().for_each(|&(bytes, kept_bytes)| stream.send_cut(bytes, kept_bytes));
    [stream.framer.header_digest, stream.framer.data_digest]
}

#[test]
fn the_bytes_after_a_header_are_its_digest_or_not() {
    let bare = nop(POSSIBLE, &[]);
    let with_digest = whole(nop_header(POSSIBLE), &[], &[], [true, false]);
    let with_data = nop(POSSIBLE, &[0xff; 8]);
    let both = whole(nop_header(POSSIBLE).data_segment_length(8), &[], &[0xff; 8], [true, false]);
    for (segment, kept_bytes, digest) in [
        (&with_digest, 52, Inferred(true)),
        (&with_data, 56, Inferred(false)),
        (&both, 60, Inferred(true)),
        // the bytes were cut away: the length of the segment shows it
        (&bare, 48, Inferred(false)),
        (&bare, 20, Inferred(false)),
        (&with_digest, 51, ByLength),
        (&with_digest, 20, ByLength),
        // with data its length shows nothing
        (&with_data, 51, Unknown),
        (&both, 51, Unknown),
    ] {
        let length = segment.len();
        assert_eq!(inferred(&[(segment, kept_bytes)])[0], digest, "{kept_bytes} of {length} bytes captured");
    }
    // a header with data that ends with its segment: its data follow without a digest
    assert_eq!(inferred(&[(&with_data[..48], 48)])[0], Inferred(false));
    assert_eq!(inferred(&[(&with_data[..52], 51)])[0], Unknown);
}

#[test]
fn a_header_with_an_ahs_infers_nothing() {
    let header = BhsBuilder::new(Opcode::ScsiCommand).initiator_task_tag(1).is_final(true).total_ahs_length_words(1);
    let pdu = whole(header.initiator_task_tag(POSSIBLE), &[0xff; 4], &[], [false, false]);
    assert_eq!(inferred(&[(&pdu, 52)]), [Unknown, Unknown]);
}

#[test]
fn the_bytes_after_the_data_are_their_digest_or_not() {
    let with_digest = whole(nop_header(POSSIBLE).data_segment_length(5), &[], &[0xff; 5], [false, true]);
    let next = nop(POSSIBLE, &[]);
    let mut stream = Stream::begin();
    stream.send(&with_digest);
    stream.send(&next);
    let first = Row { digests_ok: [None, Some(true)], ..row(POSSIBLE, &[0xff; 5], (0, 60), (1, 1)) };
    assert_eq!(stream.heard.rows, [first, row(POSSIBLE, &[], (60, 108), (2, 2))]);
    assert_eq!(stream.framer.data_digest, Inferred(true));
    assert!(!stream.framer.is_digest_unknown());
    // another PDU follows in the segment
    let mut stream = Stream::begin();
    stream.send(&[nop(POSSIBLE, &[0xff; 5]), next].concat());
    assert_eq!(stream.heard.rows, [row(POSSIBLE, &[0xff; 5], (0, 56), (1, 1)), row(POSSIBLE, &[], (56, 104), (1, 1))]);
    assert_eq!(stream.framer.data_digest, Inferred(false));
    // three bytes after the data were captured, or none of the data
    assert_eq!(inferred(&[(&with_digest, 59)])[1], Unknown);
    assert_eq!(inferred(&[(&with_digest, 55)])[1], Unknown);
}

#[test]
fn a_data_digest_may_come_in_the_next_segment() {
    let with_digest = whole(nop_header(POSSIBLE).data_segment_length(8), &[], &[0xff; 8], [false, true]);
    let next = nop(POSSIBLE, &[]);
    for (follows, digest, start) in
        [([&with_digest[56..], &next].concat(), Inferred(true), 60), (next.clone(), Inferred(false), 56)]
    {
        let mut stream = Stream::begin();
        stream.send(&with_digest[..56]);
        // handed over at once
        assert_eq!(stream.heard.rows, [row(POSSIBLE, &[0xff; 8], (0, 56), (1, 1))]);
        assert!(stream.framer.is_digest_unknown());
        stream.send(&follows);
        assert_eq!(stream.heard.rows[1], row(POSSIBLE, &[], (start, start + 48), (2, 2)));
        assert_eq!(stream.framer.data_digest, digest);
        assert_eq!(stream.framer.explained_bytes, start as u64 + 48);
        assert_eq!(stream.heard.late_digests, if start == 60 { vec![56] } else { vec![] });
        assert_eq!(stream.heard.counted, []);
    }
}

#[test]
fn a_segment_of_four_bytes_after_cut_data_is_their_digest() {
    let data = whole(nop_header(POSSIBLE).data_segment_length(8), &[], &[0xff; 8], [false, true]);
    let bare = nop(POSSIBLE, &[]);
    // the data were cut away, so that their CRC is unknown
    assert_eq!(inferred(&[(&data[..56], 50), (&data[56..], 4)])[1], ByLength);
    assert_eq!(inferred(&[(&data[..56], 50), (&bare[..3], 3)])[1], Unknown);
    assert_eq!(inferred(&[(&data[..56], 50), (&bare[..5], 5)])[1], Unknown);
    // no digest follows a PDU without data
    assert_eq!(inferred(&[(&bare, 48), (&bare[..4], 4)])[1], Unknown);
    // the four bytes come at the end of a longer segment, or do not start one
    assert_eq!(inferred(&[(&data[..50], 50), (&data[50..], 2)])[1], Unknown);
    let mut stream = Stream::begin();
    stream.send_cut(&data[..56], 50);
    stream.frame += 1;
    let chunk = Chunk { is_segment_start: false, ..stream.next(&data[56..]) };
    stream.take(&chunk);
    assert_eq!(stream.framer.data_digest, Unknown);
}

#[test]
fn while_a_digest_of_cut_data_may_follow_the_end_of_a_pdu_is_unknown() {
    let data = nop(CERTAIN, &[0xff; 8]);
    let last = |stream: &Stream, row: usize| stream.heard.rows[row].last;
    let mut stream = Stream::begin();
    stream.send_cut(&data, 50);
    stream.send_cut(&data, 50);
    // the second header came where no digest leaves room for it
    assert_eq!((last(&stream, 0), last(&stream, 1)), (None, Some(at(2))));
    assert_eq!(stream.framer.data_digest, Inferred(false));
    // data that is whole, of a stream that is cut, and with header digests
    let mut stream = Stream::begin();
    stream.send_cut(&data, 50);
    stream.framer.agree(Digests { header: Some(true), data: None });
    let with_digests = whole(nop_header(CERTAIN).data_segment_length(8), &[], &[0xff; 8], [true; 2]);
    stream.send(&with_digests[..60]);
    stream.send(&with_digests[60..]);
    stream.send(&with_digests);
    assert_eq!((last(&stream, 1), last(&stream, 2)), (None, Some(at(4))));
    assert_eq!(stream.framer.data_digest, Inferred(true));
    // not behind a login, which has no digests
    let mut stream = Stream::with_digests(false, false);
    stream.send(&data);
    stream.framer.agree(Digests { header: None, data: None });
    stream.send_cut(&data, 50);
    assert_eq!((last(&stream, 1), stream.framer.data_digest), (None, Unknown));
}

#[test]
fn a_gap_after_the_data_leaves_their_digest_unknown() {
    let with_digest = whole(nop_header(POSSIBLE).data_segment_length(8), &[], &[0xff; 8], [false, true]);
    let mut stream = Stream::begin();
    stream.send(&with_digest[..56]);
    stream.gap(4);
    stream.send(&nop(CERTAIN, &[]));
    assert_eq!(stream.framer.data_digest, Unknown);
}

fn framer(header_digest: DigestUse, data_digest: DigestUse) -> Framer {
    Framer { header_digest, data_digest, ..Framer::new(0, true) }
}

#[test]
fn a_direction_takes_over_what_the_other_inferred() {
    let uses = [Unknown, Inferred(false), Inferred(true), Known(false), Known(true)];
    for own in uses {
        for other in uses {
            let taken = if own == Unknown && matches!(other, Inferred(_)) { other } else { own };
            let mut framer = framer(own, Known(false));
            framer.infer_from(&self::framer(other, Unknown));
            assert_eq!((framer.header_digest, framer.data_digest), (taken, Known(false)), "{own:?} {other:?}");
            framer = self::framer(Known(false), own);
            framer.infer_from(&self::framer(Unknown, other));
            assert_eq!((framer.header_digest, framer.data_digest), (Known(false), taken), "{own:?} {other:?}");
            assert_eq!(framer.is_digest_unknown(), taken == Unknown);
        }
    }
    assert!(framer(Unknown, Known(true)).is_digest_unknown());
    assert!(!framer(Inferred(false), Known(true)).is_digest_unknown());
}

#[test]
fn a_digest_that_only_lengths_show_is_wrong_before_it_has_matched() {
    let good = whole(nop_header(CERTAIN), &[], &[], [true, false]);
    let bad = [&good[..48], &[0; 4]].concat();
    for (sent, digest, counted) in [
        (vec![&good, &bad], Inferred(true), 1),
        // no PDU with a right digest came before it: there are no digests
        (vec![&bad], Unknown, 0),
    ] {
        let mut stream = Stream::begin();
        (stream.framer.header_digest, stream.framer.data_digest) = (ByLength, Inferred(false));
        for pdu in sent {
            stream.send(pdu);
        }
        assert_eq!(stream.framer.header_digest, digest);
        assert_eq!(stream.framer.digest_errors, counted);
        assert_eq!(stream.heard.counted.len() as u64, counted);
    }
}

#[test]
fn a_login_begins_without_digests_and_agrees_on_them() {
    let mut framer = framer(Inferred(true), Inferred(true));
    framer.begin_login();
    assert_eq!((framer.header_digest, framer.data_digest), (Known(false), Known(false)));
    framer.agree(Digests { header: Some(true), data: None });
    assert_eq!((framer.header_digest, framer.data_digest), (Known(true), Unknown));
    framer.agree(Digests { header: None, data: Some(true) });
    assert_eq!((framer.header_digest, framer.data_digest), (Unknown, Known(true)));
}

#[test]
fn a_header_after_its_expected_place_shows_digests() {
    let (no, yes, seems) = (Inferred(false), Inferred(true), ByLength);
    for (beyond, after_data, before, after) in [
        // both digests, one of data, one of a header
        (8, true, [no, no], [seems, seems]),
        (4, true, [no, no], [no, seems]),
        (4, true, [yes, no], [yes, seems]),
        (4, false, [no, no], [seems, no]),
        // the header has its digest already
        (8, true, [yes, no], [yes, Unknown]),
        (4, false, [yes, no], [yes, Unknown]),
        // another distance says only that an absence was inferred too early
        (8, false, [no, no], [Unknown, Unknown]),
        (12, true, [no, yes], [Unknown, yes]),
        (0, true, [no, no], [no, no]),
        // what the login shows stays
        (8, true, [Known(false), no], [Known(false), seems]),
        (4, true, [no, Known(false)], [no, Known(false)]),
        (4, false, [Known(false), no], [Known(false), no]),
        (12, true, [Known(false), Known(false)], [Known(false), Known(false)]),
    ] {
        let mut framer = framer(before[0], before[1]);
        framer.reconsider_digests(beyond, after_data);
        assert_eq!([framer.header_digest, framer.data_digest], after, "{beyond} {after_data} {before:?}");
    }
}
