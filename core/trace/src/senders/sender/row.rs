//! The row of a sender in the table `senders`.

use super::Sender;
use crate::tables::{NULL_NS, NULL_U8, NULL_U64, SenderRow};

impl Sender {
    /// The row of the sender so far.
    pub fn describe(&self) -> SenderRow {
        let (least, largest) = self.times.extremes();
        let [fast, timeouts, probes, unknown] = self.counts;
        let mut row = SenderRow {
            connection: self.connection,
            to_target: self.is_from_client,
            has_super_segments: self.flight.size().has_super_segments(),
            owin_max_bytes: self.owin_max,
            sndbuf_level_bytes: self.pauses.buffer_level().map_or(NULL_NS, |level| level.min(self.owin_max)),
            rwnd_min_bytes: least.map_or(NULL_NS, |window| window << self.scale.inferred()),
            rwnd_max_bytes: largest.map_or(NULL_NS, |window| window << self.scale.inferred()),
            window_full_ns: self.times.full_ns,
            zero_window_ns: self.times.zero_ns,
            // what is held still is added when all is known (`held`)
            rwnd_limited_ns: if self.scale.is_proven() { self.held_before.window_ns } else { NULL_NS },
            cwnd_limited_ns: self.held_before.congestion_ns,
            sndbuf_limited_ns: self.held_before.buffer_ns,
            congestion_control: self.pauses.congestion_control().unwrap_or(NULL_U8),
            fast_retransmit_count: fast,
            timeout_count: timeouts,
            tail_probe_count: probes,
            unknown_retransmit_count: unknown,
            spurious_count: self.remembered.spurious_count(),
            recovery_count: self.recovery.count() - self.remembered.needless_count(),
            recovery_ns: self.recovery.time_ns(),
            ssthresh_guess_bytes: self.ssthresh_guess.unwrap_or(NULL_NS),
            restart_after_idle_count: self.pauses.restart_count(),
            delayed_ack_wait_count: self.delayed.count,
            delayed_ack_wait_ns: self.delayed.time_ns,
            delayed_ack_wait_frame: self.delayed.longest.map_or(NULL_U64, |(_, frame)| frame),
            ..SenderRow::default()
        };
        if let Some(bytes) = self.flight.size().known() {
            row.segment_bytes = bytes;
        }
        if let Some((shift, is_inferred)) = self.scale.found() {
            (row.window_scale, row.is_window_scale_inferred) = (shift, is_inferred);
        }
        row
    }
}
