//! Delayed ACKs for which a recovery or slow start waits, and other waits.

use super::*;

/// A segment that a timer repeats at 400 ms; the ACK comes after so long, and the sender answers after so long.
fn after_timeout(ack_ms: i64, answer_ms: i64, answer: impl Fn(&mut Conversation, i64)) -> Tables {
    let mut talk = Conversation::begin();
    talk.data(100 * MS, 1);
    talk.again(400 * MS, 0);
    talk.ack((400 + ack_ms) * MS, 1, &[]);
    answer(&mut talk, (400 + ack_ms + answer_ms) * MS);
    talk.finish()
}

fn waited(tables: &Tables) -> (u32, i64, Vec<i64>) {
    let row = tables.senders.to_target.iter().position(|&to_target| to_target).expect("the client's row");
    let ms = tables.recoveries.delayed_ack_ns.iter().map(|ns| ns / MS).collect();
    (tables.senders.delayed_ack_wait_count[row], tables.senders.delayed_ack_wait_ns[row] / MS, ms)
}

#[test]
fn a_recovery_waits_for_an_ack_that_is_held_back() {
    // the SYN took 20 ms: an ACK later than 20 + 4 * 10 ms is late, by what is beyond 20 ms
    for (ack_ms, expected) in [(20, 0), (60, 0), (61, 41), (220, 200), (570, 550), (571, 0)] {
        let tables = after_timeout(ack_ms, 0, |talk, now_ns| talk.data(now_ns, 1));
        assert_eq!(waited(&tables), (u32::from(expected > 0), expected, vec![expected]), "{ack_ms} ms");
    }
}

#[test]
fn only_a_sender_that_waited_is_delayed() {
    let none = (0, 0, vec![0]);
    let after = |answer_ms, answer: &dyn Fn(&mut Conversation, i64)| waited(&after_timeout(220, answer_ms, answer));
    assert_eq!(after(0, &|_, _| ()), none, "it had no more to send");
    assert_eq!(after(30, &|talk, now_ns| talk.data(now_ns, 1)), none, "it came later");
    assert_eq!(after(0, &|talk, now_ns| talk.piece(now_ns, 400, None, 0)), none, "less than a segment");
    let asked = |talk: &mut Conversation, now_ns| {
        talk.request(now_ns, 0, 1);
        talk.data(now_ns, 1);
    };
    assert_eq!(after(0, &asked), none, "an answer to a request");
}

#[test]
fn a_slow_start_of_one_segment_waits() {
    let slow_start = |in_flight: i64| {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, in_flight);
        talk.ack(160 * MS + MS, in_flight, &[]);
        talk.data(161 * MS, 2);
        waited(&talk.finish())
    };
    assert_eq!(slow_start(1), (1, 41, vec![]));
    assert_eq!(slow_start(2), (0, 0, vec![]), "two segments are acknowledged at once");
}

#[test]
fn after_a_timeout_only_the_retransmission_is_in_the_pipe() {
    for (acknowledged, expected) in [(1, vec![200]), (4, vec![0])] {
        let mut talk = Conversation::begin();
        talk.data(100 * MS, 4);
        talk.again(400 * MS, 0);
        // an ACK that fills the hole is sent at once: this one took another way
        talk.ack(620 * MS, acknowledged, &[]);
        if acknowledged == 1 {
            talk.again(620 * MS, 1);
        } else {
            talk.data(620 * MS, 1);
        }
        assert_eq!(waited(&talk.finish()).2, expected, "{acknowledged} segments");
    }
}

#[test]
fn a_long_queue_is_no_delayed_ack() {
    // ACKs of four segments, which no receiver holds back, take 300 ms
    let mut talk = Conversation::begin();
    for round in 0..20 {
        talk.data((1_000 + round * 300) * MS, 4);
        talk.ack((1_300 + round * 300) * MS, 4 + 4 * round, &[]);
    }
    talk.data(7_000 * MS, 1);
    talk.ack(7_300 * MS, 81, &[]);
    talk.data(7_300 * MS, 2);
    assert_eq!(waited(&talk.finish()).0, 0);
}

#[test]
fn without_a_prompt_ack_nothing_is_known() {
    let mut talk = Conversation::without_syn();
    talk.data(100 * MS, 1);
    talk.ack(320 * MS, 1, &[]);
    talk.data(320 * MS, 2);
    assert_eq!(waited(&talk.finish()).0, 0);
}
