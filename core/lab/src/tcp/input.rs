//! A segment arrives (RFC 9293, section 3.10.7): handshake, acceptability, ACK, data, FIN, RST.
//!
//! It never trusts a field: a segment that does not fit the connection is answered with an ACK or a RST, or dropped.

use iscsitrace_wire::serial::SerialNumber;

use super::endpoint::{ConnectionError, Endpoint, State, TIME_WAIT_NS};
use super::segment::Segment;
use super::sender::acknowledge::Ack;

/// The place of a sequence number; `initial` is the number of place 0.
fn unwrap_place(initial: u32, place: i64, number: u32) -> i64 {
    let reference = SerialNumber(initial.wrapping_add(place as u32));
    place + i64::from(SerialNumber(number).distance(reference))
}

impl Endpoint {
    /// Takes a segment; poll the resulting segments with `poll_transmit`.
    pub fn receive(&mut self, now_ns: i64, segment: Segment) {
        match self.state {
            State::Closed => self.queue.extend(segment.reset()),
            State::Listen => self.receive_syn(now_ns, &segment),
            State::SynSent => self.receive_syn_ack(now_ns, &segment),
            _ => self.receive_synchronized(now_ns, segment),
        }
    }

    /// RFC 9293, section 3.10.7.2: state LISTEN.
    fn receive_syn(&mut self, now_ns: i64, segment: &Segment) {
        if segment.flags.is_rst() {
            return;
        }
        if segment.flags.is_ack() {
            self.queue.extend(segment.reset());
        } else if segment.flags.is_syn() {
            self.synchronize(segment);
            self.state = State::SynReceived;
            self.sender.snd_wnd = u32::from(segment.window);
            self.sender.send_syn(now_ns);
            self.flush(now_ns);
        }
    }

    /// RFC 9293, section 3.10.7.3: state SYN-SENT, without simultaneous open.
    fn receive_syn_ack(&mut self, now_ns: i64, segment: &Segment) {
        let is_acceptable = segment.acknowledgment_number == self.iss.wrapping_add(1);
        if !segment.flags.is_ack() || !is_acceptable {
            if segment.flags.is_ack() {
                self.queue.extend(segment.reset());
            }
            return;
        }
        if segment.flags.is_rst() {
            self.end(Some(ConnectionError::Refused));
            return;
        }
        if !segment.flags.is_syn() {
            return;
        }
        self.synchronize(segment);
        let echo_ms = self.echo_ms(now_ns, segment);
        self.take_ack(now_ns, segment, 0, echo_ms);
        self.sender.established(now_ns, true);
        self.state = State::Established;
        self.prepare_mss();
        self.send_ack(now_ns);
        self.flush(now_ns);
    }

    /// The peer's SYN: its initial sequence number and options.
    fn synchronize(&mut self, segment: &Segment) {
        let (options, settings) = (&segment.options, &self.settings);
        self.irs = segment.sequence_number;
        self.receiver.synchronize();
        // RFC 7323, section 2.2: both have to offer it.
        match options.window_scale.filter(|_| settings.window_scaling) {
            Some(scale) => (self.peer_window_scale, self.has_window_scaling) = (scale.min(14), true),
            None => self.receiver.stop_scaling(),
        }
        self.has_timestamps = options.timestamps.is_some() && settings.timestamps;
        self.ts_recent = options.timestamps.map_or(0, |(value, _)| value);
        self.sender.has_sack = options.is_sack_permitted && settings.sack;
        // RFC 9293, section 3.7.1: 536 without the peer's MSS option.
        let mss = u32::from(options.maximum_segment_size.unwrap_or(536).max(88)).min(u32::from(settings.mss));
        self.full_mss = mss - if self.has_timestamps { 12 } else { 0 };
        self.sender.mss = self.full_mss;
    }

    /// The echoed timestamp in milliseconds of this end's clock.
    fn echo_ms(&self, now_ns: i64, segment: &Segment) -> Option<i64> {
        let (_, echo) = segment.options.timestamps.filter(|_| self.has_timestamps)?;
        let now_ms = now_ns / 1_000_000;
        let age = ((now_ms as u32).wrapping_add(self.timestamp_offset)).wrapping_sub(echo);
        // An echo from the future is ignored.
        (age < 1 << 31).then(|| now_ms - i64::from(age)).filter(|&echo_ms| echo_ms >= 0 && segment.flags.is_ack())
    }

    /// RFC 9293, section 3.10.7.4: all other states.
    fn receive_synchronized(&mut self, now_ns: i64, segment: Segment) {
        let start = unwrap_place(self.irs, self.receiver.rcv_nxt, segment.sequence_number);
        let end = start + i64::from(segment.sequence_length());
        if !self.is_acceptable(now_ns, &segment, start, end) {
            return;
        }
        if !segment.flags.is_ack() {
            return;
        }
        if let Some((value, _)) = segment.options.timestamps.filter(|_| self.has_timestamps)
            && SerialNumber(self.ts_recent).distance(SerialNumber(value)) <= 0
            && start <= self.receiver.acknowledged()
        {
            // RFC 7323, section 4.3.
            self.ts_recent = value;
        }
        let place = unwrap_place(self.iss, self.sender.snd_una, segment.acknowledgment_number);
        let is_answer = place > self.sender.snd_una && place <= self.sender.snd_nxt;
        if self.state == State::SynReceived && !is_answer {
            return self.queue.extend(segment.reset());
        }
        // RFC 5961, section 5.2: an ACK far below snd_una may be an attack.
        let oldest = self.sender.snd_una - i64::from(self.sender.largest_window);
        if !(oldest..=self.sender.snd_nxt).contains(&place) {
            return self.send_ack(now_ns);
        }
        let echo_ms = self.echo_ms(now_ns, &segment);
        self.prepare_mss();
        self.take_ack(now_ns, &segment, start, echo_ms);
        if self.state == State::SynReceived && self.sender.snd_una > 0 {
            self.sender.established(now_ns, false);
            self.state = State::Established;
        }
        self.take_ack_of_fin(now_ns);
        let has_fin = segment.flags.is_fin();
        let payload_end = start + segment.payload.len() as i64;
        if self.is_read_closed
            && matches!(self.state, State::FinWait1 | State::FinWait2)
            && payload_end > self.receiver.rcv_nxt
            && !segment.payload.is_empty()
        {
            // RFC 9293, section 3.6.1: a RST shows that data was lost
            self.queue.extend(segment.reset());
            return self.end(None);
        }
        if !segment.payload.is_empty() {
            let rto_ns = self.sender.round_trip.rto_us() * 1000;
            self.receiver.receive(now_ns, start, segment.payload, rto_ns);
        }
        if has_fin && payload_end <= self.receiver.rcv_nxt + i64::from(self.receiver.window_bytes()) {
            self.receiver.receive_fin(payload_end);
        }
        if self.receiver.is_finished() {
            self.take_fin(now_ns);
        }
        self.prepare_mss();
        self.sender.transmit(now_ns, false);
        self.flush(now_ns);
        if self.receiver.is_ack_due(now_ns, self.sender.has_sack, self.sender.round_trip.srtt_us()) {
            self.send_ack(now_ns);
        }
    }

    /// Checks first to fourth of RFC 9293, section 3.10.7.4, and PAWS (RFC 7323, section 5.3).
    fn is_acceptable(&mut self, now_ns: i64, segment: &Segment, start: i64, end: i64) -> bool {
        if segment.flags.is_rst() {
            // RFC 5961, section 3.2: a RST counts only at exactly rcv_nxt.
            if start == self.receiver.rcv_nxt && self.state == State::TimeWait {
                self.end(None);
            } else if start == self.receiver.rcv_nxt {
                let is_refused = self.state == State::SynReceived;
                self.end(Some(if is_refused { ConnectionError::Refused } else { ConnectionError::Reset }));
            } else if self.receiver.is_acceptable(start, end) {
                self.send_ack(now_ns);
            }
            return false;
        }
        if segment.flags.is_syn() {
            // RFC 5961, section 4.2; and a retransmitted SYN, because the SYN with ACK was lost.
            if self.state == State::SynReceived && start == 0 {
                self.answer_syn_again(now_ns);
            } else {
                self.send_ack(now_ns);
            }
            return false;
        }
        let is_outdated = segment
            .options
            .timestamps
            .filter(|_| self.has_timestamps)
            .is_some_and(|(value, _)| SerialNumber(self.ts_recent).is_after(SerialNumber(value)));
        if is_outdated || !self.receiver.is_acceptable(start, end) {
            // A reordered ACK needs no answer.
            if end > start || !is_outdated {
                self.receiver.refuse(start, end);
                self.send_ack(now_ns);
            }
            return false;
        }
        true
    }

    /// Sends the SYN with ACK once more.
    fn answer_syn_again(&mut self, now_ns: i64) {
        self.sender.outgoing.push(super::sender::Transmission { start: 0, end: 1, is_window_probe: false });
        self.flush(now_ns);
    }

    /// Passes the ACK to the sender, as places.
    fn take_ack(&mut self, now_ns: i64, segment: &Segment, sequence_place: i64, echo_ms: Option<i64>) {
        let snd_una = self.sender.snd_una;
        let place = |number| unwrap_place(self.iss, snd_una, number);
        let shift = if segment.flags.is_syn() { 0 } else { self.peer_window_scale };
        let options = &segment.options;
        let block_count = usize::from(options.sack_count.min(4));
        let mut ack = Ack {
            place: place(segment.acknowledgment_number),
            sequence_place,
            window_bytes: u32::from(segment.window) << shift,
            blocks: [(0, 0); 4],
            block_count,
            has_data: !segment.payload.is_empty() || segment.flags.is_fin(),
            echo_ms,
        };
        for (block, &(left, right)) in ack.blocks.iter_mut().zip(&options.sack[..block_count]) {
            *block = (place(left), place(right));
        }
        self.sender.acknowledge(now_ns, &ack);
    }

    /// Fifth check: our FIN may be acknowledged.
    fn take_ack_of_fin(&mut self, now_ns: i64) {
        if self.sender.fin.is_none() || !self.sender.is_drained() {
            return;
        }
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.wait(now_ns),
            State::LastAck => self.end(None),
            _ => {}
        }
    }

    /// Eighth check: the peer's FIN was reached.
    fn take_fin(&mut self, now_ns: i64) {
        match self.state {
            State::Established | State::SynReceived => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.wait(now_ns),
            _ => {}
        }
    }

    /// RFC 9293, section 3.6.1: old segments must not reach a new connection.
    fn wait(&mut self, now_ns: i64) {
        self.state = State::TimeWait;
        self.sender.stop_timer();
        self.close_at_ns = Some(now_ns + TIME_WAIT_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_survive_the_wrap(initial: u32, place in 0i64..1 << 40, distance in -(1i64 << 30)..1 << 30) {
            let number = initial.wrapping_add((place + distance) as u32);
            prop_assert_eq!(unwrap_place(initial, place, number), place + distance);
        }
    }
}
