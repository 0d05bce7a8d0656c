//! Segments of a hostile peer: none of them changes the connection.

use bytes::Bytes;

use super::pipe::{MS, Pipe};
use crate::tcp::segment::{ACK, RST};
use crate::tcp::{Segment, Settings, State};

/// What the passive end sent last.
fn last_of_passive(pipe: &Pipe) -> Segment {
    let records = pipe.records.as_ref().unwrap();
    records.iter().rev().find(|record| record.from == 1).unwrap().segment.clone()
}

#[test]
fn sack_blocks_without_negotiation_are_ignored() {
    let mut pipe = Pipe::connected(&Settings { sack: false, ..Settings::default() }, 10 * MS);
    pipe.write(0, &[1; 10 * 1448]);
    pipe.run_until(pipe.now_ns + 11 * MS);
    let mut ack = last_of_passive(&pipe);
    // an old ACK, with a block of segments in flight
    pipe.ends[0].receive(pipe.now_ns, ack.clone());
    pipe.run_until(pipe.now_ns + 15 * MS);
    pipe.write(0, &[1; 20 * 1448]);
    assert_eq!(pipe.ends[0].tcp_info().unacked, 20);
    let first = pipe.records.as_ref().unwrap()[0].segment.sequence_number.wrapping_add(1);
    ack.acknowledgment_number = first.wrapping_add(5 * 1448);
    ack.options.sack_count = 1;
    ack.options.sack[0] = (first.wrapping_add(12 * 1448), first.wrapping_add(14 * 1448));
    pipe.ends[0].receive(pipe.now_ns, ack);
    assert_eq!(pipe.ends[0].tcp_info().sacked, 0);
}

#[test]
fn a_handshake_is_not_completed_by_a_wrong_ack() {
    // RFC 9293, section 3.10.7.4, fifth check, SYN-RECEIVED: SND.UNA < SEG.ACK <= SND.NXT, or a RST.
    for (off, what) in [(u32::MAX, "nothing"), (1, "something never sent")] {
        let mut pipe = Pipe::alike(&Settings { timestamps: false, ..Settings::default() }, 10 * MS);
        pipe.ends[0].connect(0);
        pipe.run_until(15 * MS);
        assert_eq!(pipe.ends[1].state(), State::SynReceived);
        let syn = pipe.records.as_ref().unwrap()[0].segment.clone();
        let iss = last_of_passive(&pipe).sequence_number;
        let acknowledgment_number = iss.wrapping_add(1).wrapping_add(off);
        let mut forged = Segment {
            sequence_number: syn.sequence_number.wrapping_add(1),
            acknowledgment_number,
            payload: Bytes::from_static(b"too early"),
            ..syn
        };
        forged.flags.0 = ACK;
        forged.options = Default::default();
        pipe.ends[1].receive(pipe.now_ns, forged);
        let answer = pipe.ends[1].poll_transmit(pipe.now_ns).unwrap();
        assert_eq!((answer.flags.0, answer.sequence_number), (RST, acknowledgment_number), "{what}");
        assert_eq!((pipe.ends[1].state(), pipe.ends[1].readable()), (State::SynReceived, &[][..]), "{what}");
        // the correct ACK still completes the handshake
        pipe.run_until(50 * MS);
        assert_eq!(pipe.ends[1].state(), State::Established, "{what}");
    }
}

#[test]
fn data_with_a_very_old_ack_is_only_challenged() {
    // RFC 5961, section 5.2: older than SND.UNA less the largest window that the peer offered.
    let mut pipe = Pipe::connected(&Settings { timestamps: false, ..Settings::default() }, 10 * MS);
    let ack = pipe.records.as_ref().unwrap()[2].segment.clone();
    let taken = |pipe: &mut Pipe, old: u32| {
        let mut forged = ack.clone();
        forged.acknowledgment_number = ack.acknowledgment_number.wrapping_sub(old);
        forged.payload = Bytes::from_static(b"injected");
        pipe.ends[1].receive(pipe.now_ns, forged);
        assert!(pipe.ends[1].poll_transmit(pipe.now_ns).is_some());
        pipe.ends[1].readable().len()
    };
    assert_eq!(taken(&mut pipe, 100_000_000), 0);
    assert_eq!(taken(&mut pipe, 1000), 8);
}
