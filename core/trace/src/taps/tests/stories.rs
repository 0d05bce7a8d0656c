//! Short stories of one packet each: where it stayed, and what the two captures show of it.

use super::capture::{ACK, Captures, FIN, MS, RST, SYN, Sent, losses};
use crate::tables::taps::Joined;

const BASE: u32 = u32::MAX - 2_499;

/// A connection of both taps that has sent two segments of 1000 bytes; offset 0 is BASE.
fn opened() -> Captures {
    opened_with(false)
}

/// The same; both sides report by SACK, or do not say so.
fn opened_with(is_sack_permitted: bool) -> Captures {
    let mut captures = Captures::default();
    let syn = Sent { acknowledgment_number: 0, is_sack_permitted, ..Sent::data(BASE - 1, 0, 1).with_flags(SYN) };
    captures.pass_both(0, &syn);
    let syn_ack = Sent { sequence_number: 899, is_sack_permitted, ..Sent::ack(BASE, 1).with_flags(SYN | ACK) };
    captures.pass_both(6 * MS, &syn_ack);
    captures.pass_both(12 * MS, &Sent::data(BASE, 0, 2));
    captures.pass_both(13 * MS, &Sent::data(BASE, 1000, 3).with_timestamp(13));
    captures.pass_both(14 * MS, &Sent::data(BASE + 1000, 1000, 4).with_timestamp(14));
    captures.pass_both(20 * MS, &Sent::ack(BASE + 2000, 2));
    captures
}

/// Numbers wrap within the next segment; all are above BASE modulo 2^32.
fn at(offset: u32) -> u32 {
    BASE.wrapping_add(offset)
}

/// Later traffic, so that the captures go on after the story.
fn closed(mut captures: Captures, offset: u32) -> Captures {
    captures.pass_both(5_000 * MS, &Sent::data(at(offset), 100, 90).with_timestamp(5000));
    captures.pass_both(5_006 * MS, &Sent::ack(at(offset + 100), 91));
    captures
}

fn counts(joined: &Joined) -> [u64; 4] {
    let sum = |column: &[u64]| column.iter().sum();
    let paths = &joined.paths;
    [sum(&paths.lost), sum(&paths.missing_at_a), sum(&paths.missing_at_b), sum(&paths.cannot_tell)]
}

#[test]
fn all_that_both_taps_saw_is_matched_with_the_difference_of_its_times() {
    let joined = closed(opened(), 2000).join();
    assert_eq!(losses(&joined), []);
    assert_eq!(joined.paths.matched, [5, 3]);
    assert_eq!((&joined.paths.packets_a[..], &joined.paths.packets_b[..]), (&[5, 3][..], &[5, 3][..]));
    // to the target 5 ms more than the offset, to the initiator 5 ms less
    let transits = &joined.transits;
    let transit = |to_target: bool| 7_000 * MS + if to_target { 5 * MS } else { -5 * MS };
    assert!(transits.to_target.iter().zip(&transits.transit_ns).all(|(&to_target, &ns)| ns == transit(to_target)));
    assert_eq!(transits.payload_bytes, [0, 0, 1000, 1000, 100, 0, 0, 0]);
    // SYNs and ports: tap b sees another port
    assert!(joined.paths.is_translated.iter().all(|&is_translated| is_translated));
}

#[test]
fn a_segment_that_the_receiver_gets_only_again_was_lost() {
    let mut captures = opened();
    captures.pass_sender(30 * MS, &Sent::data(at(2000), 1000, 5).with_timestamp(30));
    captures.pass_both(31 * MS, &Sent::data(at(3000), 1000, 6).with_timestamp(31));
    captures.pass_both(37 * MS, &Sent::ack(at(2000), 3).with_sack(&[(at(3000), at(4000))]));
    captures.pass_both(43 * MS, &Sent::data(at(2000), 1000, 7).with_timestamp(43));
    captures.pass_both(50 * MS, &Sent::ack(at(4000), 4));
    let joined = closed(captures, 4000).join();
    assert_eq!(losses(&joined), [(true, 2000, 3000, "lost_in_network")]);
    assert_eq!(counts(&joined), [1, 0, 0, 0]);
    assert_eq!(joined.path_losses.frame, [7]);
    assert_eq!(joined.path_losses.sequence_number, [at(2000)]);
}

#[test]
fn without_timestamps_the_identification_tells_the_copies_apart() {
    let mut captures = opened();
    captures.pass_sender(30 * MS, &Sent::data(at(2000), 1000, 5));
    captures.pass_both(43 * MS, &Sent::data(at(2000), 1000, 7));
    captures.pass_both(50 * MS, &Sent::ack(at(3000), 4).with_sack(&[(at(5000), at(6000))]));
    let joined = closed(captures, 3000).join();
    assert_eq!(losses(&joined), [(true, 2000, 3000, "lost_in_network")]);
    assert_eq!(joined.path_losses.time_ns[0] % 1_000_000_000, 30 * MS);
}

#[test]
fn a_segment_that_is_acknowledged_without_another_copy_is_missing_from_the_capture() {
    let mut captures = opened();
    captures.pass_sender(30 * MS, &Sent::data(at(2000), 1000, 5).with_timestamp(30));
    captures.pass_both(37 * MS, &Sent::ack(at(3000), 3));
    assert_eq!(losses(&closed(captures, 3000).join()), [(true, 2000, 3000, "missing_at_b")]);
}

#[test]
fn a_segment_that_only_the_receivers_tap_saw_is_missing_at_the_senders() {
    let mut captures = opened();
    captures.pass_receiver(30 * MS, &Sent::data(at(2000), 1000, 5).with_timestamp(30));
    captures.pass_both(37 * MS, &Sent::ack(at(3000), 3));
    assert_eq!(losses(&closed(captures, 3000).join()), [(true, 2000, 3000, "missing_at_a")]);
}

/// The enemy of the rule for losses: the receiver had the bytes, its capture missed them, and its ACK was lost.
#[test]
fn an_unnecessary_retransmission_does_not_make_a_missing_packet_a_loss() {
    let with = |answers: &[Sent]| {
        let mut captures = opened();
        captures.pass_sender(30 * MS, &Sent::data(at(2000), 1000, 5).with_timestamp(30));
        for (answer, time_ns) in answers.iter().zip([37 * MS, 250 * MS]) {
            captures.pass_sender(time_ns, answer);
        }
        captures.pass_both(240 * MS, &Sent::data(at(2000), 1000, 7).with_timestamp(240));
        let told = losses(&closed(captures, 3000).join());
        told.into_iter().find(|&(to_target, ..)| to_target).map(|(.., verdict)| verdict)
    };
    let ack = Sent::ack(at(3000), 3);
    // the copy at tap a is one of two that may have been acknowledged, but the first ACK came before the second copy
    assert_eq!(with(std::slice::from_ref(&ack)), Some("missing_at_b"));
    // a D-SACK says that both arrived
    let twice = Sent::ack(at(3000), 4).with_sack(&[(at(2000), at(3000))]);
    assert_eq!(with(&[Sent::ack(at(2000), 3), twice]), Some("missing_at_b"));
}

/// What the receiver had before, it reports when it comes again: what it did not report, it never got.
#[test]
fn a_retransmission_of_what_the_receiver_had_is_lost_if_it_is_not_reported() {
    let with = |is_sack_permitted: bool, reports: &[i64]| {
        let mut captures = opened_with(is_sack_permitted);
        for (time_ms, identification) in [(230, 5), (630, 6)] {
            captures
                .pass_sender(time_ms * MS, &Sent::data(at(1000), 1000, identification).with_timestamp(time_ms as u32));
        }
        captures.pass_both(1_400 * MS, &Sent::data(at(1000), 1000, 7).with_timestamp(1_400));
        let twice = Sent::ack(at(2000), 3).with_sack(&[(at(1000), at(2000))]);
        for (time_ms, identification) in reports.iter().zip(10..) {
            captures.pass_both(time_ms * MS, &Sent { identification, ..twice.clone() });
        }
        losses(&closed(captures, 2000).join()).iter().map(|row| row.3).collect::<Vec<_>>()
    };
    // the report is of the copy that passed both taps
    assert_eq!(with(true, &[1_406]), ["lost_in_network"; 2]);
    assert_eq!(with(true, &[]), ["lost_in_network"; 2]);
    // one more came, which the capture lacks: of either copy
    assert_eq!(with(true, &[640, 1_406]), ["cannot_tell"; 2]);
    // who does not report says nothing by it
    assert_eq!(with(false, &[]), ["cannot_tell"; 2]);
}

/// The second of two copies in order is acknowledged with the first, and no SACK was ever needed.
#[test]
fn lost_segments_that_came_again_in_order_were_lost() {
    let with = |is_sack_permitted: bool| {
        let mut captures = opened_with(is_sack_permitted);
        for (time_ms, offset, identification) in [(30, 2000, 5), (31, 3000, 6)] {
            let sent = Sent::data(at(offset), 1000, identification).with_timestamp(time_ms as u32);
            captures.pass_sender(time_ms * MS, &sent);
            let again = Sent { identification: identification + 4, ..sent.with_timestamp(200 + time_ms as u32) };
            captures.pass_both((200 + time_ms) * MS, &again);
        }
        captures.pass_both(240 * MS, &Sent::ack(at(4000), 4));
        losses(&closed(captures, 4000).join()).iter().map(|row| row.3).collect::<Vec<_>>()
    };
    assert_eq!(with(true), ["lost_in_network"; 2]);
    // the first was awaited when its copy came
    assert_eq!(with(false), ["lost_in_network", "cannot_tell"]);
}

/// Another enemy: a packet that others overtook, with a timestamp older than the one that the receiver has by then. It
/// is discarded (RFC 7323, section 5), and its capture missed it.
#[test]
fn a_late_packet_that_the_receiver_may_have_discarded_is_no_loss() {
    let with = |echo: u32| {
        let mut captures = opened();
        // reordering
        captures.pass(0, 22 * MS, &Sent::data(at(2000), 1000, 5).with_timestamp(22));
        captures.pass(1, 31 * MS, &Sent::data(at(2000), 1000, 5).with_timestamp(22));
        captures.pass_both(23 * MS, &Sent::data(at(3000), 1000, 6).with_timestamp(23));
        captures.pass_sender(32 * MS, &Sent::data(at(4000), 1000, 7).with_timestamp(32));
        captures.pass_both(38 * MS, &Sent { echo, ..Sent::ack(at(4000), 3).with_timestamp(900) });
        captures.pass_both(50 * MS, &Sent::data(at(4000), 1000, 8).with_timestamp(50));
        captures.pass_both(60 * MS, &Sent::ack(at(5000), 4).with_sack(&[(at(9000), at(9001))]));
        losses(&closed(captures, 5000).join()).iter().map(|row| row.3).collect::<Vec<_>>()
    };
    // one packet in doubt says nothing of its capture
    assert_eq!(with(40), ["cannot_tell"]);
    assert_eq!(with(23), ["lost_in_network"]);
}

#[test]
fn a_segment_that_the_receiver_still_lacks_after_a_second_was_lost() {
    let mut captures = opened();
    for (time_ms, identification) in [(30, 5), (230, 6), (630, 7)] {
        captures.pass_sender(time_ms * MS, &Sent::data(at(2000), 1000, identification).with_timestamp(time_ms as u32));
    }
    captures.pass_both(2_000 * MS, &Sent::ack(at(2000), 3).with_flags(ACK | FIN));
    let joined = captures.join();
    assert_eq!(losses(&joined), [(true, 2000, 3000, "lost_in_network"); 3]);
}

#[test]
fn nothing_is_said_of_what_the_receiver_never_answered() {
    let mut captures = opened();
    captures.pass_sender(30 * MS, &Sent::data(at(2000), 1000, 5).with_timestamp(30));
    captures.pass_both(31 * MS, &Sent::data(at(3000), 1000, 6).with_timestamp(31));
    captures.pass_both(60 * MS, &Sent::data(at(4000), 1000, 7).with_timestamp(60));
    assert_eq!(losses(&captures.join()), [(true, 2000, 3000, "cannot_tell")]);
}

#[test]
fn an_ack_that_one_tap_saw_cannot_be_told() {
    let mut captures = opened();
    captures.pass_both(30 * MS, &Sent::data(at(2000), 1000, 5).with_timestamp(30));
    captures.pass_sender(37 * MS, &Sent::ack(at(2500), 3));
    captures.pass_both(38 * MS, &Sent::ack(at(3000), 4));
    let joined = closed(captures, 3000).join();
    assert_eq!(losses(&joined), [(false, 0, 0, "cannot_tell")]);
    assert_eq!(joined.paths.cannot_tell_empty, [0, 1]);
}

/// A capture that misses packets does not miss ACKs alone.
#[test]
fn acks_are_lost_if_the_capture_missed_nothing_with_payload() {
    let with = |is_payload_missing: bool| {
        let mut captures = opened();
        for round in 0..40_u32 {
            let (time_ns, offset) = (i64::from(30 + 10 * round) * MS, 2000 + 1000 * round);
            captures.pass_both(time_ns, &Sent::data(at(offset), 1000, 100 + round as u16).with_timestamp(30 + round));
            let ack = Sent::ack(at(offset + 1000), 200 + round as u16);
            if round % 4 == 1 {
                captures.pass_sender(time_ns + 6 * MS, &ack)
            } else {
                captures.pass_both(time_ns + 6 * MS, &ack)
            }
        }
        let data = Sent::data(at(42_000), 1000, 300).with_timestamp(500);
        if is_payload_missing {
            captures.pass_receiver(500 * MS, &data)
        } else {
            captures.pass_both(500 * MS, &data)
        }
        captures.pass_both(507 * MS, &Sent::ack(at(43_000), 300));
        counts(&closed(captures, 43_000).join())
    };
    assert_eq!(with(false), [10, 0, 0, 0]);
    // tap a, which has not seen these ACKs, missed a packet with payload, too
    assert_eq!(with(true), [0, 1, 0, 10]);
}

/// The data sender echoes the timestamp of an ACK: it had arrived. Of two with the same timestamp, either may have.
#[test]
fn an_ack_whose_timestamp_is_echoed_is_missing_from_the_capture() {
    let with = |others: &[Sent]| {
        let mut captures = opened();
        captures.pass_both(21 * MS, &Sent::ack(at(2000), 3).with_timestamp(600));
        others.iter().for_each(|other| captures.pass_sender(37 * MS, other));
        captures.pass_both(50 * MS, &Sent { echo: 610, ..Sent::data(at(2000), 1000, 5).with_timestamp(50) });
        captures.pass_both(57 * MS, &Sent::ack(at(3000), 9).with_timestamp(620));
        losses(&closed(captures, 3000).join()).iter().map(|row| row.3).collect::<Vec<_>>()
    };
    let ack = |identification| Sent::ack(at(2000), identification).with_timestamp(610);
    assert_eq!(with(&[ack(4)]), ["missing_at_a"]);
    assert_eq!(with(&[ack(4), ack(5)]), ["cannot_tell"; 2]);
    // nothing echoes this one
    assert_eq!(with(&[Sent::ack(at(2000), 4).with_timestamp(605)]), ["cannot_tell"]);
}

#[test]
fn a_reset_that_one_tap_saw_may_come_from_a_host_between() {
    let mut captures = opened();
    captures.pass_receiver(30 * MS, &Sent::data(at(2000), 0, 0).with_flags(RST));
    assert_eq!(losses(&closed(captures, 2000).join()), [(true, 2000, 2000, "cannot_tell")]);
}

#[test]
fn what_passed_before_the_other_capture_began_is_outside_and_no_loss() {
    let mut captures = closed(opened(), 2000);
    captures.packets[1].retain(|&(time_ns, _)| time_ns > 4_000 * MS);
    let joined = captures.join();
    assert_eq!(losses(&joined), []);
    assert_eq!(joined.paths.outside, [4, 2]);
    assert_eq!(joined.paths.matched, [1, 1]);
}

#[test]
fn two_copies_at_the_receivers_tap_were_duplicated_and_all_packets_twice_are_the_captures() {
    let mut captures = opened();
    let twice = Sent::data(at(2000), 1000, 5).with_timestamp(30);
    captures.pass_both(30 * MS, &twice);
    captures.pass_receiver(33 * MS, &twice);
    let joined = closed(captures.clone(), 3000).join();
    assert_eq!((losses(&joined), &joined.paths.duplicated[..]), (vec![], &[1, 0][..]));
    // the any device: each packet is captured twice
    let mut doubled = closed(captures, 3000);
    let again: Vec<_> = doubled.packets[1].iter().map(|(time_ns, sent)| (time_ns + 2_000, sent.clone())).collect();
    doubled.packets[1].extend(again);
    let joined = doubled.join();
    assert_eq!(losses(&joined), []);
    assert_eq!(joined.paths.matched, [6, 3]);
    assert_eq!(joined.paths.packets_b, [6, 3]);
}

#[test]
fn an_overtaken_packet_is_reordered_and_no_loss() {
    let mut captures = opened();
    captures.pass(0, 30 * MS, &Sent::data(at(2000), 1000, 5).with_timestamp(30));
    captures.pass(1, 39 * MS, &Sent::data(at(2000), 1000, 5).with_timestamp(30));
    captures.pass_both(31 * MS, &Sent::data(at(3000), 1000, 6).with_timestamp(31));
    captures.pass_both(37 * MS, &Sent::ack(at(2000), 3).with_sack(&[(at(3000), at(4000))]));
    captures.pass_both(45 * MS, &Sent::ack(at(4000), 4));
    let joined = closed(captures, 4000).join();
    assert_eq!(losses(&joined), []);
    assert_eq!(joined.paths.reordered, [1, 0]);
}

#[test]
fn marks_and_hops_between_the_taps_are_counted() {
    let mut captures = opened();
    let sent = Sent { traffic_class: 0x2a << 2 | 2, ..Sent::data(at(2000), 1000, 5).with_timestamp(30) };
    captures.pass_sender(30 * MS, &sent);
    captures.pass_receiver(30 * MS, &Sent { traffic_class: 3, hop_limit: 61, ..sent.clone() });
    let joined = closed(captures, 3000).join();
    assert_eq!((&joined.paths.dscp_changed[..], &joined.paths.ce_marked[..]), (&[1, 0][..], &[1, 0][..]));
    assert_eq!(joined.paths.hops, [0, 0]);
}

/// A firewall may shift all sequence numbers of a connection, acknowledgments and SACKs with them.
#[test]
fn shifted_sequence_numbers_are_matched_by_the_syns() {
    let mut captures = closed(opened(), 2000);
    const SHIFT: u32 = 0x1234_5678;
    for (_, sent) in &mut captures.packets[1] {
        if sent.to_target {
            sent.sequence_number = sent.sequence_number.wrapping_add(SHIFT);
        } else {
            sent.acknowledgment_number = sent.acknowledgment_number.wrapping_add(SHIFT);
        }
    }
    let joined = captures.join();
    assert_eq!((losses(&joined), &joined.paths.matched[..]), (vec![], &[5, 3][..]));
}

#[test]
fn packets_of_which_nothing_agrees_are_of_two_connections() {
    let is_terminated = |shift: u16| {
        let mut captures = Captures::default();
        for number in 0..20_u16 {
            let sent = |number: u16, renumbered: u16| {
                let sent = Sent::data(at(u32::from(number) * 1000), 1000, renumbered + 1);
                sent.with_timestamp(100 + u32::from(renumbered))
            };
            captures.pass_sender(i64::from(number) * MS, &sent(number, number));
            captures.pass_receiver(i64::from(number) * MS, &sent(number, number + shift));
        }
        closed(captures, 20_000).join().paths.is_terminated[0]
    };
    assert_eq!((is_terminated(0), is_terminated(7)), (false, true));
}
