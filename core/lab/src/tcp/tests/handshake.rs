//! Opening, closing, refusing, resetting (RFC 9293, sections 3.5 and 3.6).

use super::pipe::{Fate, MS, Pipe};
use crate::tcp::{ConnectionError, Settings, State};

fn sent(pipe: &Pipe) -> Vec<String> {
    let records = pipe.records.as_ref().unwrap();
    records
        .iter()
        .map(|record| {
            let text = record.segment.to_string();
            let flags = text.split(['[', ']']).nth(1).unwrap();
            format!("{} {} {flags} {}", record.time_ns / MS, record.from, record.segment.payload.len())
        })
        .collect()
}

#[test]
fn three_segments_open_and_four_close() {
    let mut pipe = Pipe::connected(&Settings::default(), 10 * MS);
    pipe.write(0, b"hello");
    pipe.ends[0].close(pipe.now_ns);
    pipe.run_until(pipe.now_ns + 25 * MS);
    assert_eq!(pipe.read(1), b"hello");
    assert!(pipe.ends[1].is_read_finished());
    assert_eq!((pipe.ends[0].state(), pipe.ends[1].state()), (State::FinWait2, State::CloseWait));
    // The other direction still works.
    pipe.write(1, b"bye");
    pipe.ends[1].close(pipe.now_ns);
    pipe.run_until(pipe.now_ns + 25 * MS);
    assert_eq!(pipe.read(0), b"bye");
    assert_eq!((pipe.ends[0].state(), pipe.ends[1].state()), (State::TimeWait, State::Closed));
    assert_eq!(
        sent(&pipe),
        [
            "0 0 S 0",
            "10 1 S. 0",
            "20 0 . 0",
            "35 0 P. 5",
            "35 0 F. 0",
            "45 1 . 0",
            "45 1 . 0",
            "60 1 P. 3",
            "60 1 F. 0",
            "70 0 . 0",
            "70 0 . 0"
        ]
    );
    pipe.run_until(61_000 * MS);
    assert_eq!(pipe.ends[0].state(), State::Closed);
    assert!(pipe.ends.iter().all(|end| end.error().is_none() && end.poll_timeout().is_none()));
}

#[test]
fn bytes_after_both_directions_were_closed_are_answered_with_a_rst() {
    let mut pipe = Pipe::connected(&Settings::default(), 10 * MS);
    pipe.write(1, b"early");
    pipe.run_until(pipe.now_ns + 15 * MS);
    pipe.read(0);
    let before = sent(&pipe).len();
    // they leave at 55 ms, with the ACK of the bytes before them, and cross the FIN
    pipe.write(1, b"on its way");
    pipe.run_until(pipe.now_ns + 5 * MS);
    pipe.ends[0].close_both(pipe.now_ns);
    pipe.run_until(pipe.now_ns + 30 * MS);
    // each takes 10 ms; the ACK of the FIN finds no connection any more
    assert_eq!(sent(&pipe)[before..], ["55 1 P. 10", "55 0 F. 0", "65 0 R 0", "65 1 . 0", "75 0 R 0"]);
    assert_eq!((pipe.ends[0].state(), pipe.ends[1].state()), (State::Closed, State::Closed));
    assert_eq!((pipe.ends[0].error(), pipe.ends[1].error()), (None, Some(ConnectionError::Reset)));
}

#[test]
fn a_retransmission_of_bytes_that_were_read_before_the_close_is_no_reason_for_a_rst() {
    let mut pipe = Pipe::connected(&Settings::default(), 10 * MS);
    pipe.write(1, b"early");
    pipe.run_until(pipe.now_ns + 15 * MS);
    pipe.read(0);
    pipe.ends[0].close_both(pipe.now_ns);
    pipe.run_until(pipe.now_ns + 25 * MS);
    let records = pipe.records.as_ref().unwrap();
    let again = records.iter().find(|record| record.from == 1 && !record.segment.payload.is_empty());
    let again = again.unwrap().segment.clone();
    pipe.ends[0].receive(pipe.now_ns, again);
    assert_eq!(pipe.ends[0].state(), State::FinWait2);
    assert!(!pipe.ends[0].poll_transmit(pipe.now_ns).unwrap().flags.is_rst());
    // nor is the peer's FIN
    pipe.ends[1].close(pipe.now_ns);
    pipe.run_until(pipe.now_ns + 25 * MS);
    assert_eq!((pipe.ends[0].state(), pipe.ends[1].state()), (State::TimeWait, State::Closed));
}

#[test]
fn both_close_at_once() {
    let mut pipe = Pipe::connected(&Settings::default(), 10 * MS);
    pipe.ends[0].close(pipe.now_ns);
    pipe.ends[1].close(pipe.now_ns);
    pipe.run_until(pipe.now_ns + 15 * MS);
    assert_eq!((pipe.ends[0].state(), pipe.ends[1].state()), (State::Closing, State::Closing));
    pipe.run_until(pipe.now_ns + 15 * MS);
    assert_eq!((pipe.ends[0].state(), pipe.ends[1].state()), (State::TimeWait, State::TimeWait));
}

#[test]
fn a_lost_syn_is_retransmitted_after_one_two_and_four_seconds() {
    let mut pipe = Pipe::alike(&Settings::default(), 10 * MS);
    let mut losses = 3;
    pipe.judge = Box::new(move |_, _| {
        losses -= 1;
        if losses >= 0 { Fate::Lost } else { Fate::Arrives }
    });
    pipe.ends[0].connect(0);
    pipe.run_until(8_000 * MS);
    assert_eq!(sent(&pipe)[..4], ["0 0 S 0", "1000 0 S 0", "3000 0 S 0", "7000 0 S 0"]);
    // More than one SYN was lost: the window is a segment.
    assert_eq!(pipe.ends[0].tcp_info().cwnd, 1);
    assert_eq!(pipe.ends[0].tcp_info().ssthresh, i32::MAX as u32);
}

#[test]
fn an_unanswered_syn_times_out() {
    let mut pipe = Pipe::alike(&Settings::default(), 10 * MS);
    pipe.judge = Box::new(|_, _| Fate::Lost);
    pipe.ends[0].connect(0);
    pipe.run_until(1_000_000 * MS);
    assert_eq!(pipe.ends[0].error(), Some(ConnectionError::TimedOut));
    // Six times more, as tcp_syn_retries says: 1 + 2 + 4 + ... + 64 s.
    assert_eq!(sent(&pipe).len(), 7);
}

#[test]
fn a_closed_port_refuses() {
    let mut pipe = Pipe::alike(&Settings::default(), 10 * MS);
    pipe.ends[1].close(0);
    pipe.ends[0].connect(0);
    pipe.run_until(100 * MS);
    assert_eq!(sent(&pipe), ["0 0 S 0", "10 1 R. 0"]);
    assert_eq!((pipe.ends[0].state(), pipe.ends[0].error()), (State::Closed, Some(ConnectionError::Refused)));
}

#[test]
fn an_aborted_connection_is_reset() {
    let mut pipe = Pipe::connected(&Settings::default(), 10 * MS);
    pipe.write(1, &[1; 100]);
    pipe.ends[0].abort(pipe.now_ns);
    pipe.run_until(pipe.now_ns + 15 * MS);
    assert_eq!((pipe.ends[1].state(), pipe.ends[1].error()), (State::Closed, Some(ConnectionError::Reset)));
    assert_eq!((pipe.ends[0].state(), pipe.ends[0].error()), (State::Closed, None));
}

#[test]
fn a_blind_reset_is_only_challenged() {
    // RFC 5961, section 3.2: in the window, but not at its very beginning.
    let mut pipe = Pipe::connected(&Settings::default(), 10 * MS);
    let syn_ack = pipe.records.as_ref().unwrap()[1].segment.clone();
    let mut reset = syn_ack.clone();
    reset.flags.0 = 4;
    reset.sequence_number = syn_ack.sequence_number.wrapping_add(1000);
    pipe.ends[0].receive(pipe.now_ns, reset.clone());
    assert_eq!(pipe.ends[0].state(), State::Established);
    assert!(pipe.ends[0].poll_transmit(pipe.now_ns).unwrap().flags.is_ack());
    reset.sequence_number = syn_ack.sequence_number.wrapping_add(1);
    pipe.ends[0].receive(pipe.now_ns, reset);
    assert_eq!(pipe.ends[0].error(), Some(ConnectionError::Reset));
}

#[test]
fn options_that_one_end_does_not_offer_are_not_used() {
    let plain = Settings { sack: false, timestamps: false, window_scaling: false, mss: 1000, ..Settings::default() };
    for settings in [[plain.clone(), Settings::default()], [Settings::default(), plain]] {
        let mut pipe = Pipe::new(settings, MS);
        pipe.connect();
        pipe.write(0, &[1; 5000]);
        pipe.write(1, &[1; 5000]);
        pipe.run_until(pipe.now_ns + 10 * MS);
        for record in &pipe.records.as_ref().unwrap()[1..] {
            let options = record.segment.options;
            assert!(options.timestamps.is_none() && options.window_scale.is_none() && !options.is_sack_permitted);
            assert!(record.segment.payload.len() <= 1000);
        }
        assert!(pipe.ends.iter().all(|end| end.tcp_info().snd_wnd <= 65535));
    }
}
