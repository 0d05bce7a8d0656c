//! Whole rows of every table about the senders, of one loss and its recovery.

use std::fmt::Debug;

use super::*;
use crate::senders::deliveries::{Deliveries, Delivery};
use crate::senders::held;
use crate::senders::timeline::{Limited, Timeline};
use crate::stream::progress::Progress;
use crate::tables::{
    Flight, NULL_NS, NULL_U8, NULL_U32, NULL_U64, Recovery, Retransmission, RoundTrip, Sack, SenderRow, Window,
};

/// One recovered loss; frame 20 continues.
fn one_loss() -> Conversation {
    let mut talk = recovered_loss();
    talk.data(144 * MS, 1);
    talk
}

/// The results of a finished connection, and its timeline.
fn finished(talk: Conversation, is_client_initiator: bool) -> (Tables, Timeline) {
    let mut tables = Tables::default();
    let timeline = Box::new(talk.senders).finish(is_client_initiator, &mut tables);
    held::settle(&mut [timeline.clone()], &tables.cycles, &mut tables.senders);
    (tables, timeline)
}

/// The results of a connection that goes on.
fn copied(talk: &Conversation, is_client_initiator: bool) -> (Tables, Timeline) {
    let mut tables = Tables::default();
    let timeline = talk.senders.copy_to(is_client_initiator, &mut tables);
    held::settle(&mut [timeline.clone()], &tables.cycles, &mut tables.senders);
    (tables, timeline)
}

/// A table equals one of these rows in every column.
macro_rules! assert_rows {
    ($table:expr, $rows:expr) => {{
        let mut expected = $table.clone();
        expected.retain(&vec![false; $table.connection.len()]);
        $rows.into_iter().for_each(|row| {
            expected.push(row);
        });
        assert_same(&$table, &expected);
    }};
}

fn assert_same(found: &impl Debug, expected: &impl Debug) {
    assert_eq!(format!("{found:#?}"), format!("{expected:#?}"));
}

#[test]
fn sack_blocks_have_the_direction_of_the_data() {
    for is_client_initiator in [true, false] {
        let rows = [(15, 121, 4000), (16, 122, 5000), (17, 123, 6000)].map(|(frame, ms, right_offset_bytes)| Sack {
            connection: CONNECTION,
            to_target: is_client_initiator,
            frame,
            time_ns: ms * MS,
            left_offset_bytes: 3000,
            right_offset_bytes,
            is_duplicate: false,
        });
        assert_rows!(finished(one_loss(), is_client_initiator).0.sacks, rows);
    }
}

#[test]
fn each_ack_or_sack_of_new_bytes_is_an_rtt_sample() {
    for is_client_initiator in [true, false] {
        let samples = [(true, 2, 0, 20), (false, 3, 0, 0), (true, 14, 120, 20), (true, 15, 121, 21)];
        let rows = samples.into_iter().chain([(true, 16, 122, 22), (true, 17, 123, 23)]);
        let rows = rows.map(|(is_from_client, frame, ms, rtt_ms)| RoundTrip {
            connection: CONNECTION,
            to_target: is_from_client == is_client_initiator,
            frame,
            time_ns: ms * MS,
            rtt_ns: rtt_ms * MS,
            is_handshake: frame <= 3,
        });
        assert_rows!(finished(one_loss(), is_client_initiator).0.round_trips, rows);
    }
}

fn recovery(is_client_initiator: bool) -> Recovery {
    Recovery {
        connection: CONNECTION,
        to_target: is_client_initiator,
        cause: 0,
        time_first_ns: 121 * MS,
        time_last_ns: 143 * MS,
        frame_first: 15,
        frame_last: 19,
        retransmitted_packets: 1,
        retransmitted_bytes: 1000,
        spurious_packets: 0,
        ack_loss: NULL_U8,
        delayed_ack_ns: 0,
        black_out_first_ns: NULL_NS,
        black_out_last_ns: NULL_NS,
        black_out_least_ns: NULL_NS,
        is_black_out_to_receiver: false,
        is_black_out_from_receiver: false,
        pipe_before_bytes: 8000,
        pipe_after_bytes: 0,
    }
}

#[test]
fn a_retransmission_names_its_original_and_its_recovery() {
    for is_client_initiator in [true, false] {
        let (tables, _) = finished(one_loss(), is_client_initiator);
        let row = Retransmission {
            connection: CONNECTION,
            to_target: is_client_initiator,
            frame: 18,
            time_ns: 123 * MS,
            stream_offset_bytes: 2000,
            payload_bytes: 1000,
            cause: 0,
            is_spurious: false,
            original_frame: 6,
            original_ns: 100 * MS,
        };
        assert_rows!(tables.retransmissions, [row]);
        assert_rows!(tables.recoveries, [recovery(is_client_initiator)]);
    }
}

#[test]
fn the_window_table_has_a_row_for_each_change() {
    for is_client_initiator in [true, false] {
        let row = |frame, ms, owin, pipe| Window {
            connection: CONNECTION,
            to_target: is_client_initiator,
            time_ns: ms * MS,
            frame,
            owin_bytes: owin * SEGMENT,
            pipe_bytes: pipe * SEGMENT,
            cwnd_estimate_bytes: NULL_NS,
            is_valid: false,
            rwnd_bytes: 60_000,
        };
        let mut rows = vec![row(2, 0, 0, 0)];
        rows.extend((1..=10).map(|sent| row(3 + sent as u64, 100, sent, sent)));
        // two acknowledged; one and two SACKed; with the third the hole is lost
        rows.extend([row(14, 120, 8, 8), row(15, 121, 8, 7), row(16, 122, 8, 6), row(17, 123, 8, 4)]);
        // the window is the pipe during the recovery, but a segment is too much of it
        rows.extend([row(18, 123, 8, 5), row(19, 143, 0, 0), row(20, 144, 1, 1)]);
        // the server is 20 ms away: the window of frame 3 reaches it 10 ms later
        rows.push(Window { to_target: !is_client_initiator, ..row(3, 10, 0, 0) });
        assert_rows!(finished(one_loss(), is_client_initiator).0.window, rows);
    }
}

#[test]
fn flights_are_what_pauses_separate() {
    for is_client_initiator in [true, false] {
        let first = Flight {
            connection: CONNECTION,
            to_target: is_client_initiator,
            frame_first: 4,
            frame_last: 13,
            time_first_ns: 100 * MS,
            time_last_ns: 100 * MS,
            bytes: 10_000,
            packet_count: 10,
            pause_ns: NULL_NS,
            release: 4,
            owin_before_bytes: 0,
            rwnd_before_bytes: NULL_NS,
            is_within_pdu: false,
            is_in_recovery: false,
            has_retransmission: false,
        };
        let again = Flight {
            frame_first: 18,
            frame_last: 18,
            time_first_ns: 123 * MS,
            time_last_ns: 123 * MS,
            bytes: 1000,
            packet_count: 1,
            pause_ns: 23 * MS,
            // no ACK acknowledged more
            release: 3,
            owin_before_bytes: 10_000,
            rwnd_before_bytes: 60_000,
            is_in_recovery: true,
            has_retransmission: true,
            ..first.clone()
        };
        let last = Flight {
            frame_first: 20,
            frame_last: 20,
            time_first_ns: 144 * MS,
            time_last_ns: 144 * MS,
            pause_ns: 21 * MS,
            release: 0,
            owin_before_bytes: 8000,
            has_retransmission: false,
            ..again.clone()
        };
        assert_rows!(finished(one_loss(), is_client_initiator).0.flights, [first, again, last]);
    }
}

/// The rows of the client and of the server.
fn senders(is_client_initiator: bool) -> [SenderRow; 2] {
    let client = SenderRow {
        connection: CONNECTION,
        to_target: is_client_initiator,
        rtt_min_ns: 20 * MS,
        // of fewer than 20 samples
        rtt_path_ns: 20 * MS,
        // of 20, 20, 21, 22 and 23 ms the third and the fifth: the middle of their classes of 2^19 ns
        rtt_median_ns: (40 << 19) + (1 << 18),
        rtt_p95_ns: (43 << 19) + (1 << 18),
        rtt_count: 5,
        rtt_load_least_ns: NULL_NS,
        rtt_load_median_ns: NULL_NS,
        rtt_load_p95_ns: NULL_NS,
        rtt_load_count: 0,
        standing_queue_ns: 0,
        standing_queue_delay_ns: NULL_NS,
        standing_queue_bytes_per_s: NULL_NS,
        segment_bytes: 1000,
        has_super_segments: false,
        window_scale: 0,
        is_window_scale_inferred: false,
        owin_max_bytes: 10_000,
        sndbuf_level_bytes: NULL_NS,
        rwnd_min_bytes: 60_000,
        rwnd_max_bytes: 60_000,
        window_full_ns: 0,
        zero_window_ns: 0,
        rwnd_limited_ns: 0,
        // from the retransmission on
        cwnd_limited_ns: 0,
        sndbuf_limited_ns: 0,
        kernel_busy_ns: NULL_NS,
        kernel_retransmitted_segments: NULL_U32,
        congestion_control: NULL_U8,
        fast_retransmit_count: 1,
        timeout_count: 0,
        tail_probe_count: 0,
        unknown_retransmit_count: 0,
        spurious_count: 0,
        recovery_count: 1,
        recovery_ns: 22 * MS,
        ssthresh_guess_bytes: NULL_NS,
        restart_after_idle_count: 0,
        delayed_ack_wait_count: 0,
        delayed_ack_wait_ns: 0,
        delayed_ack_wait_frame: NULL_U64,
        arrived_segment_bytes: 1000,
        blocked_bytes: NULL_NS,
        blocked_retransmissions: 0,
        blocked_first_ns: NULL_NS,
        blocked_last_ns: NULL_NS,
        blocked_frame: NULL_U64,
        is_blocked_by_size: false,
        delayed_ack_max_ns: NULL_NS,
        // the median of 2000 and 8000
        bytes_per_ack: 2000,
        line: NULL_U32,
        line_bytes_per_s: NULL_NS,
        line_wire_bytes_per_s: NULL_NS,
        line_low_bytes_per_s: NULL_NS,
        line_high_bytes_per_s: NULL_NS,
        line_stretch_count: 0,
        line_queue_ns: NULL_NS,
        is_line_from_acks: false,
    };
    let server = SenderRow {
        connection: CONNECTION,
        to_target: !is_client_initiator,
        rtt_min_ns: 0,
        rtt_path_ns: 0,
        rtt_median_ns: 0,
        rtt_p95_ns: 0,
        rtt_count: 1,
        window_scale: 0,
        rwnd_min_bytes: 60_000,
        rwnd_max_bytes: 60_000,
        rwnd_limited_ns: 0,
        ..SenderRow::default()
    };
    [client, server]
}

#[test]
fn each_direction_has_a_sender() {
    for is_client_initiator in [true, false] {
        assert_rows!(finished(one_loss(), is_client_initiator).0.senders, senders(is_client_initiator));
    }
}

fn timeline(is_client_initiator: bool) -> Timeline {
    let mut rtts_ns = [Some(20 * MS), Some(0)];
    // the rate of the line is unknown, so no time is its own
    let mut line_busy = [[100, 123, 144].map(|ms| (ms * MS, ms * MS)).to_vec(), Vec::new()];
    let delivery =
        |ms, begun_ms: Option<i64>, bytes| Delivery { time_ns: ms * MS, begun_ns: begun_ms.map(|ms| ms * MS), bytes };
    let mut client = Deliveries::default();
    let arrived = [delivery(100, None, 10_000), delivery(123, None, 1000), delivery(144, None, 1000)];
    arrived.into_iter().for_each(|delivery| client.arrived.push(delivery));
    // the first ACK begins the count; the next two are 1 and 2 ms later than the RTT, in one queue; the last is for a
    // retransmission too
    let acknowledged = [delivery(122, Some(100), 2000), delivery(123, Some(100), 1000), delivery(143, None, 5000)];
    acknowledged.into_iter().for_each(|delivery| client.acknowledged.push(delivery));
    (client.payload_bytes, client.packet_count, client.segment_bytes) = (12_000, 12, SEGMENT);
    let mut deliveries = [client, Deliveries::default()];
    if !is_client_initiator {
        rtts_ns.reverse();
        line_busy.reverse();
        deliveries.reverse();
    }
    let part = part::LOSS_RECOVERY;
    let mut limited = [
        // the recovery itself, and the pause before the retransmission: what comes after it waited for no loss
        vec![
            Limited { from_ns: 121 * MS, to_ns: 143 * MS, part, frame: 15, needs_queue: false },
            Limited { from_ns: 100 * MS, to_ns: 123 * MS, part, frame: 18, needs_queue: false },
        ],
        Vec::new(),
    ];
    if !is_client_initiator {
        limited.reverse();
    }
    // the ACK of what arrived behind the hole
    let mut progress = Progress::default();
    progress.note(143 * MS);
    Timeline {
        connection: CONNECTION,
        rtt_to_target_ns: rtts_ns[0],
        rtt_to_initiator_ns: rtts_ns[1],
        hosts: None,
        line_busy,
        queued: Default::default(),
        excess: Vec::new(),
        standing: [None, None],
        deliveries,
        limited,
        stalls: Vec::new(),
        progress,
        silences: Default::default(),
    }
}

#[test]
fn the_timeline_has_rtts_the_line_and_the_recovery() {
    for is_client_initiator in [true, false] {
        assert_same(&finished(one_loss(), is_client_initiator).1, &timeline(is_client_initiator));
    }
}

#[test]
fn a_live_copy_has_the_results_so_far() {
    let mut talk = one_loss();
    // at the end of a connection the ACKs on their way arrive too: here none is
    for is_client_initiator in [true, false] {
        let (tables, found) = copied(&talk, is_client_initiator);
        assert_rows!(tables.recoveries, [recovery(is_client_initiator)]);
        assert_same(&found, &timeline(is_client_initiator));
        let mut rows = senders(is_client_initiator);
        // the first window of the server is still on its way
        (rows[1].window_scale, rows[1].is_window_scale_inferred) = (NULL_U8, false);
        rows[1].rwnd_limited_ns = NULL_NS;
        assert_rows!(tables.senders, rows);
    }
    assert_eq!(talk.senders.row_count(), 2);
    // rows at and after the instant stay
    talk.senders.forget(121 * MS);
    assert_eq!(talk.senders.row_count(), 2);
    talk.senders.forget(122 * MS);
    assert_eq!(talk.senders.row_count(), 1);
    talk.senders.forget(124 * MS);
    assert_eq!(talk.senders.row_count(), 0);
}
