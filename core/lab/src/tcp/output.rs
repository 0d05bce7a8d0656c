//! Makes the segments that the sender and the receiver want to send, in order.
//!
//! Every segment but the first SYN acknowledges everything received. It never decides what is sent.

use bytes::Bytes;
use iscsitrace_wire::frame::{TcpFlags, TcpOptions};

use super::endpoint::{Endpoint, State};
use super::segment::{ACK, FIN, PSH, SYN, Segment};
use super::sender::Transmission;

/// Most bytes of options in a header.
const OPTIONS_MOST: usize = 40;

impl Endpoint {
    /// The sequence number of a place of this end.
    fn sequence_number(&self, place: i64) -> u32 {
        self.iss.wrapping_add(place as u32)
    }

    /// The timestamp clock of this end: milliseconds (RFC 7323, section 5.4).
    fn timestamp(&self, now_ns: i64) -> u32 {
        ((now_ns / 1_000_000) as u32).wrapping_add(self.timestamp_offset)
    }

    /// Leaves room for a SACK option in data segments, while there are holes.
    pub(super) fn prepare_mss(&mut self) {
        let blocks = if self.sender.has_sack {
            self.receiver.bytes.block_count().min(self.blocks_most(OPTIONS_MOST))
        } else {
            0
        };
        let option = if blocks > 0 { 4 + 8 * blocks as u32 } else { 0 };
        self.sender.mss = self.full_mss.saturating_sub(option).max(1);
    }

    /// SACK blocks that fit into `room` bytes of options beside timestamps.
    fn blocks_most(&self, room: usize) -> usize {
        room.min(OPTIONS_MOST).saturating_sub(if self.has_timestamps { 16 } else { 4 }) / 8
    }

    /// Makes the sender's segments.
    pub(super) fn flush(&mut self, now_ns: i64) {
        let mut outgoing = std::mem::take(&mut self.sender.outgoing);
        for transmission in outgoing.drain(..) {
            let segment = if transmission.start == 0 && !transmission.is_window_probe {
                self.syn(now_ns)
            } else {
                self.data(now_ns, transmission)
            };
            self.queue.push_back(segment);
        }
        self.sender.outgoing = outgoing;
    }

    /// A segment with data or a FIN, or a zero window probe.
    fn data(&mut self, now_ns: i64, transmission: Transmission) -> Segment {
        let Transmission { start, end, is_window_probe } = transmission;
        let payload = if is_window_probe {
            Bytes::new()
        } else {
            self.sender.buffer.slice(start, end.min(self.sender.buffer.end()))
        };
        let mut flags = ACK;
        if self.sender.fin.is_some_and(|fin| end > fin) && !is_window_probe {
            flags |= FIN;
        }
        if !payload.is_empty() {
            if self.sender.buffer.is_pushed(start, start + payload.len() as i64) {
                flags |= PSH;
            }
            self.receiver.acknowledgment.data_sent(now_ns);
        }
        let blocks =
            self.sack_blocks((self.full_mss as usize + self.timestamps_length()).saturating_sub(payload.len()));
        let mut segment = self.segment(now_ns, start, flags);
        segment.payload = payload;
        (segment.options.sack, segment.options.sack_count) = blocks;
        segment
    }

    fn timestamps_length(&self) -> usize {
        if self.has_timestamps { 12 } else { 0 }
    }

    /// Sends an ACK alone.
    pub(super) fn send_ack(&mut self, now_ns: i64) {
        let blocks = self.sack_blocks(OPTIONS_MOST);
        let mut segment = self.segment(now_ns, self.sender.snd_nxt, ACK);
        (segment.options.sack, segment.options.sack_count) = blocks;
        self.queue.push_back(segment);
    }

    /// The blocks of a SACK option that takes at most `room` bytes beside timestamps (RFC 2018, section 3).
    fn sack_blocks(&mut self, room: usize) -> ([(u32, u32); 4], u8) {
        let mut blocks = [(0, 0); 4];
        let mut count = 0;
        if !self.sender.has_sack {
            self.receiver.bytes.forget_duplicate();
        } else if self.receiver.bytes.block_count() > 0 {
            let irs = self.irs;
            let most = self.blocks_most(room).min(4);
            self.receiver.bytes.blocks(most, |start, end| {
                blocks[count] = (irs.wrapping_add(start as u32), irs.wrapping_add(end as u32));
                count += 1;
            });
        }
        (blocks, count as u8)
    }

    /// A SYN, or a SYN with ACK, with its options (RFC 9293, section 3.7.1; RFC 7323, section 2.2).
    fn syn(&mut self, now_ns: i64) -> Segment {
        let is_active = self.state == State::SynSent;
        let window = self.receiver.advertise_in_syn();
        let has_timestamps = if is_active { self.settings.timestamps } else { self.has_timestamps };
        let has_scaling = if is_active { self.settings.window_scaling } else { self.has_window_scaling };
        let options = TcpOptions {
            maximum_segment_size: Some(self.settings.mss),
            window_scale: has_scaling.then_some(self.receiver.window_scale),
            is_sack_permitted: if is_active { self.settings.sack } else { self.sender.has_sack },
            timestamps: has_timestamps.then(|| (self.timestamp(now_ns), if is_active { 0 } else { self.ts_recent })),
            ..TcpOptions::default()
        };
        let flags = TcpFlags(if is_active { SYN } else { SYN | ACK });
        Segment {
            source: self.local,
            destination: self.remote,
            sequence_number: self.iss,
            acknowledgment_number: if is_active { 0 } else { self.irs.wrapping_add(1) },
            flags,
            window,
            options,
            identification: self.next_identification(),
            payload: Bytes::new(),
        }
    }

    /// A segment at `place` that acknowledges everything received.
    pub(super) fn segment(&mut self, now_ns: i64, place: i64, flags: u8) -> Segment {
        let acknowledgment_number = self.irs.wrapping_add(self.receiver.rcv_nxt as u32);
        let window = self.receiver.advertise();
        let timestamps = self.has_timestamps.then(|| (self.timestamp(now_ns), self.ts_recent));
        Segment {
            source: self.local,
            destination: self.remote,
            sequence_number: self.sequence_number(place),
            acknowledgment_number,
            flags: TcpFlags(flags),
            window,
            options: TcpOptions { timestamps, ..TcpOptions::default() },
            identification: self.next_identification(),
            payload: Bytes::new(),
        }
    }

    fn next_identification(&mut self) -> u16 {
        self.identification = self.identification.wrapping_add(1);
        self.identification
    }
}
