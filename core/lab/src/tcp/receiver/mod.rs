//! The receiving half of an endpoint: bytes in order, the receive window, and when to acknowledge.
//!
//! ```text
//! reassembly       payloads -> bytes in order; SACK blocks
//! acknowledgment   when an ACK is sent
//! ```
//!
//! Places are counted from the peer's SYN, which is at 0; the first byte is at 1. It never sends by itself.

pub mod acknowledgment;
pub mod reassembly;

use bytes::Bytes;

use super::settings::Settings;
use acknowledgment::{Acknowledgment, Situation};
use reassembly::{Arrival, Reassembly};

/// The receiving half.
#[derive(Debug)]
pub struct Receiver {
    /// Bytes received.
    pub bytes: Reassembly,
    /// When ACKs are sent.
    pub acknowledgment: Acknowledgment,
    /// Next place expected: after the bytes, and after the FIN once it arrived.
    pub rcv_nxt: i64,
    /// The window offered last, in bytes, counted from `acknowledged`.
    rcv_wnd: u32,
    /// `rcv_nxt` in the last segment sent.
    acknowledged: i64,
    buffer: u32,
    /// Current limit of the window: Linux opens it as data arrives.
    ssthresh: u32,
    /// Shift of the window field (RFC 7323, section 2).
    pub window_scale: u8,
    mss: u32,
    fin: Option<i64>,
}

impl Receiver {
    /// A receiver before the peer's SYN.
    pub fn new(settings: &Settings) -> Self {
        let buffer = settings.receive_buffer_bytes;
        let mss = u32::from(settings.mss);
        // The window field of a SYN is not scaled; Linux starts with as many whole segments as it can express.
        let segments_of = mss - if settings.timestamps { 12 } else { 0 };
        let initial = buffer.min(65535) / segments_of * segments_of;
        Self {
            bytes: Reassembly::default(),
            acknowledgment: Acknowledgment::new(settings.delayed_ack),
            rcv_nxt: 0,
            rcv_wnd: initial,
            acknowledged: 0,
            buffer,
            ssthresh: initial,
            window_scale: if settings.window_scaling { window_scale(buffer) } else { 0 },
            mss,
            fin: None,
        }
    }

    /// The peer's SYN arrived.
    pub fn synchronize(&mut self) {
        (self.rcv_nxt, self.acknowledged) = (1, 1);
    }

    /// The peer does not scale windows.
    pub fn stop_scaling(&mut self) {
        self.window_scale = 0;
        self.buffer = self.buffer.min(65535);
    }

    /// The open window, in bytes from `rcv_nxt`.
    pub fn window_bytes(&self) -> u32 {
        (self.acknowledged + i64::from(self.rcv_wnd) - self.rcv_nxt).max(0) as u32
    }

    /// Whether a segment lies in the window (RFC 9293, section 3.10.7.4), by Linux's rule.
    pub fn is_acceptable(&self, start: i64, end: i64) -> bool {
        end >= self.acknowledged && start <= self.rcv_nxt + i64::from(self.window_bytes())
    }

    /// `rcv_nxt` in the last segment sent (RFC 7323, section 4.3: Last.ACK.sent).
    pub fn acknowledged(&self) -> i64 {
        self.acknowledged
    }

    /// Takes the payload of an acceptable segment.
    pub fn receive(&mut self, now_ns: i64, start: i64, payload: Bytes, rto_ns: i64) {
        let length = payload.len() as u32;
        // Nothing follows a FIN. Bytes beyond the window, such as a zero window probe, are only answered.
        let window_end = self.rcv_nxt + i64::from(self.window_bytes());
        let room = (self.fin.unwrap_or(window_end).min(window_end) - start).max(0) as usize;
        if room == 0 {
            self.acknowledgment.duplicate_received(self.rcv_wnd);
            return;
        }
        let payload = payload.slice(..payload.len().min(room));
        match self.bytes.insert(start, payload) {
            Arrival::InOrder { is_last_hole_filled } => {
                self.rcv_nxt = self.bytes.next();
                if is_last_hole_filled {
                    self.acknowledgment.hole_filled();
                }
                self.take_fin();
                self.acknowledgment.data_received(now_ns, length, self.mss, self.rcv_wnd, rto_ns);
                if length >= 128 {
                    self.ssthresh = self.ssthresh.saturating_add(2 * self.mss).min(self.buffer);
                }
            }
            Arrival::OutOfOrder => self.acknowledgment.is_owed = true,
            Arrival::Duplicate => self.acknowledgment.duplicate_received(self.rcv_wnd),
        }
    }

    /// The peer's FIN is at `place`.
    pub fn receive_fin(&mut self, place: i64) {
        if self.fin.is_none() && place >= self.rcv_nxt {
            self.fin = Some(place);
        }
        self.acknowledgment.is_owed = true;
        self.acknowledgment.hole_filled();
        self.take_fin();
    }

    fn take_fin(&mut self) {
        if self.fin == Some(self.rcv_nxt) {
            self.rcv_nxt += 1;
        }
    }

    /// Whether the FIN was reached.
    pub fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.rcv_nxt > fin)
    }

    /// An unacceptable segment that is not a plain ACK: an ACK reports what was received (RFC 2883, section 4.1).
    pub fn refuse(&mut self, start: i64, end: i64) {
        if end > start && start < self.rcv_nxt {
            self.acknowledgment.duplicate_received(self.rcv_wnd);
            self.bytes.report_duplicate(start, end.min(self.rcv_nxt));
        }
    }

    /// Whether an ACK is to be sent now.
    pub fn is_ack_due(&mut self, now_ns: i64, has_sack: bool, srtt_us: i64) -> bool {
        if !self.acknowledgment.is_owed {
            return false;
        }
        let situation = Situation {
            unacknowledged: self.rcv_nxt - self.acknowledged,
            is_window_open: self.next_window() >= self.rcv_wnd,
            has_holes: self.bytes.has_holes(),
            has_sack,
            rcv_nxt: self.rcv_nxt,
            srtt_us,
        };
        self.acknowledgment.is_due(now_ns, &situation)
    }

    /// The application read bytes; whether to send an ACK now, a pending one or a window update (RFC 9293, section
    /// 3.8.6.2.2).
    pub fn consume(&mut self, count: usize) -> bool {
        self.bytes.consume(count);
        let is_drained = self.bytes.ready_bytes() == 0;
        if self.acknowledgment.is_due_after_reading(is_drained, self.rcv_nxt - self.acknowledged) {
            return true;
        }
        let now_open = self.window_bytes();
        if self.fin.is_none() && u64::from(now_open) * 2 <= u64::from(self.buffer) {
            let next = self.next_window();
            return next > 0 && next >= now_open.saturating_mul(2);
        }
        false
    }

    /// The window to offer now, not below the open one: Linux's __tcp_select_window.
    fn next_window(&self) -> u32 {
        let free = self.buffer.saturating_sub(self.bytes.ready_bytes() as u32);
        let mss = self.acknowledgment.full_segment.min(self.buffer);
        // RFC 9293, section 3.8.6.2.2: silly window avoidance.
        if free < self.buffer / 2 && (free < self.buffer >> 4 || free < mss) {
            return 0;
        }
        let free = free.min(self.ssthresh);
        if self.window_scale > 0 {
            let unit = 1 << self.window_scale;
            return free.next_multiple_of(unit);
        }
        if self.rcv_wnd <= free.saturating_sub(mss) || self.rcv_wnd > free { free / mss * mss } else { self.rcv_wnd }
    }

    /// The window field of a segment sent now, which acknowledges everything received.
    pub fn advertise(&mut self) -> u16 {
        // RFC 9293, section 3.8.6: the right edge never moves back.
        let mut window = self.next_window().max(self.window_bytes());
        let unit = 1_u32 << self.window_scale;
        window = window.next_multiple_of(unit).min(u32::from(u16::MAX) << self.window_scale);
        self.rcv_wnd = window;
        self.acknowledged = self.rcv_nxt;
        self.acknowledgment.sent();
        (window >> self.window_scale) as u16
    }

    /// The window field of a SYN, which is not scaled.
    pub fn advertise_in_syn(&mut self) -> u16 {
        self.acknowledged = self.rcv_nxt;
        self.acknowledgment.sent();
        self.rcv_wnd = self.rcv_wnd.min(65535);
        self.rcv_wnd as u16
    }
}

/// The window scale for a buffer, as Linux chooses it.
fn window_scale(buffer: u32) -> u8 {
    (32 - buffer.leading_zeros()).saturating_sub(16).min(14) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_the_smallest_for_the_buffer() {
        for (buffer, scale) in
            [(1460, 0), (65535, 0), (65536, 1), (131_071, 1), (131_072, 2), (6 << 20, 7), (65535 << 14, 14)]
        {
            assert_eq!(window_scale(buffer), scale, "{buffer}");
            assert!(u64::from(buffer) < 65536_u64 << scale);
        }
    }

    #[test]
    fn the_window_closes_with_unread_bytes_and_opens_when_much_is_read() {
        let settings = Settings { receive_buffer_bytes: 64_000, window_scaling: false, ..Settings::default() };
        let mut receiver = Receiver::new(&settings);
        receiver.synchronize();
        let mut place = 1;
        for _ in 0..44 {
            receiver.receive(0, place, Bytes::from_static(&[0; 1448]), 200_000_000);
            place += 1448;
            receiver.advertise();
        }
        assert_eq!(receiver.window_bytes(), 0, "less than a segment is free");
        // A segment read opens nothing; half of the buffer does.
        assert!(!receiver.consume(1448));
        assert_eq!(receiver.advertise(), 0);
        assert!((0..20).any(|_| receiver.consume(1448)));
        assert!(receiver.advertise() >= 1448);
    }
    #[test]
    fn bytes_beyond_the_window_or_a_fin_are_cut_off() {
        let mut receiver = Receiver::new(&Settings::default());
        receiver.synchronize();
        let window_end = 1 + i64::from(receiver.window_bytes());
        // RFC 9293, section 3.10.7.4: it begins where the window ends.
        receiver.receive(0, window_end, Bytes::from_static(&[0; 100]), 200_000_000);
        assert_eq!(receiver.bytes.block_count(), 0);
        receiver.receive(0, window_end - 10, Bytes::from_static(&[0; 100]), 200_000_000);
        let mut blocks = Vec::new();
        receiver.bytes.blocks(4, |start, end| blocks.push((start, end)));
        assert_eq!(blocks, [(window_end - 10, window_end)]);
        receiver.receive_fin(51);
        receiver.receive(0, 1, Bytes::from_static(&[0; 100]), 200_000_000);
        assert_eq!((receiver.bytes.ready_bytes(), receiver.rcv_nxt), (50, 52));
        assert!(receiver.is_finished());
    }
}
