//! RTT samples between the tap and one end of a connection.
//!
//! A sample is the time from a packet to the first ACK, cumulative or selective, that covers it. An ACK for several
//! packets gives one sample: that of the latest packet. A retransmission makes the packets in flight ambiguous (Karn's
//! rule). Timestamps are not used: they echo the earliest packet that an ACK covers.

use super::Rows;
use super::flight::Flight;
use super::histogram::Histogram;
use super::load::is_prompt;
use super::observation::Observation;
use super::sender_state::Prompt;
use crate::stream::class::SegmentClass;
use crate::tables::{NULL_NS, RoundTrip, SenderRow};
use serde::{Deserialize, Serialize};

/// The longest plausible RTT: a jump of the capture clock can look longer.
pub const ROUND_TRIP_MAX_NS: i64 = 3_600_000_000_000;
/// With so many samples outliers are left out of the RTT of the path: a packet that overtook others, or took another
/// way, was faster than the path.
const OUTLIERS_FROM: u64 = 20;
/// The smallest samples that are kept: all but the last can be outliers,
const LEAST_KEPT: usize = 3;
/// if they are below three quarters of it.
const OUTLIER_QUARTERS: i64 = 3;
/// One in so many packets was overtaken: then many samples were faster than the path, and a percentile is its RTT.
const REORDERED_PARTS: u64 = 200;
/// That percentile.
const REORDERED_PERCENT: u64 = 10;
/// It is updated after so many samples.
const UPDATE_EVERY: u64 = 32;
/// Weight of a sample in the smoothed RTT: one part in eight (RFC 6298, section 2).
const SMOOTHING: i64 = 8;
/// Weight of a sample in the variation of an RTT: one part in four.
const VARIATION_SMOOTHING: i64 = 4;

/// One sample.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// From the packet to its ACK.
    pub rtt_ns: i64,
    /// Whether the receiver did not hold the ACK back.
    pub is_prompt: bool,
}

/// RTT samples from the tap to the receiver of one direction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RttSamples {
    connection: u32,
    is_from_client: bool,
    syn_ns: Option<i64>,
    has_syn_again: bool,
    acknowledged: Option<i64>,
    /// Bytes below this offset were covered by an ACK, or may have been retransmitted: they give no sample. Without SACK, an ACK
    /// for bytes below the second one may have waited for a hole to be filled.
    sampled: i64,
    ambiguous_until: i64,
    rtt_min_ns: Option<i64>,
    /// The smallest samples of cumulative ACKs, in order; without a handshake of those without data. What came with a host's
    /// answer waited for that, and does not show that a shorter sample is an outlier.
    least_ns: [Option<i64>; LEAST_KEPT],
    /// That of the handshake: later ACKs may all have waited for a host's answer.
    handshake_ns: Option<i64>,
    /// The percentile at the last update.
    low_ns: Option<i64>,
    /// Packets of the direction with payload, and those that were overtaken before the tap.
    packet_count: u64,
    reordered_count: u64,
    smoothed_ns: i64,
    /// Smoothed RTT of ACKs that are not held back, and its variation.
    prompt: Option<(i64, i64)>,
    sizes: Histogram,
    ack_sizes: Histogram,
    /// The longest RTT of an ACK for less than two full segments.
    held_max_ns: Option<i64>,
}

impl RttSamples {
    /// No samples yet.
    pub fn new(connection: u32, is_from_client: bool) -> Self {
        Self {
            connection,
            is_from_client,
            syn_ns: None,
            has_syn_again: false,
            acknowledged: None,
            sampled: i64::MIN,
            ambiguous_until: i64::MIN,
            rtt_min_ns: None,
            least_ns: [None; LEAST_KEPT],
            handshake_ns: None,
            low_ns: None,
            packet_count: 0,
            reordered_count: 0,
            smoothed_ns: 0,
            prompt: None,
            sizes: Histogram::default(),
            ack_sizes: Histogram::default(),
            held_max_ns: None,
        }
    }

    /// Prefetches what its state points to.
    pub fn prefetch(&self) {
        self.sizes.prefetch();
        self.ack_sizes.prefetch();
    }

    /// The RTT of the path so far, without queues and outliers. `has_reordered_acks` is whether packets with the ACKs
    /// overtake each other.
    pub fn path_ns(&self, has_reordered_acks: bool) -> Option<i64> {
        let least_ns = self.rtt_min_ns?;
        let robust_ns = match (self.least_ns[LEAST_KEPT - 1], self.handshake_ns) {
            (_, handshake_ns) if has_reordered_acks => {
                self.low_ns.map(|low_ns| handshake_ns.map_or(low_ns, |handshake_ns| low_ns.min(handshake_ns)))
            }
            (Some(third_ns), Some(handshake_ns)) => Some(third_ns.min(handshake_ns)),
            (third_ns, _) => third_ns,
        };
        let is_outlier = |robust_ns: &i64| least_ns < robust_ns / 4 * OUTLIER_QUARTERS;
        Some(robust_ns.filter(is_outlier).filter(|_| self.sizes.count() >= OUTLIERS_FROM).unwrap_or(least_ns))
    }

    /// The least RTT so far.
    pub fn least_ns(&self) -> Option<i64> {
        self.rtt_min_ns
    }

    /// Whether packets of the direction overtake each other before the tap.
    pub fn is_reordered(&self) -> bool {
        self.reordered_count * REORDERED_PARTS > self.packet_count
    }

    /// The smoothed RTT (RFC 6298, section 2).
    pub fn smoothed_ns(&self) -> Option<i64> {
        self.rtt_min_ns.map(|_| self.smoothed_ns)
    }

    /// The RTT of ACKs that are not held back: those for two full segments, and that of the SYN.
    pub fn prompt(&self) -> Option<Prompt> {
        self.prompt.map(|(usual_ns, variation_ns)| Prompt { usual_ns, latest_ns: usual_ns + 4 * variation_ns })
    }

    /// RFC 6298, section 2.
    #[inline]
    fn note_prompt(&mut self, rtt_ns: i64) {
        self.prompt = Some(match self.prompt {
            None => (rtt_ns, rtt_ns / 2),
            Some((usual_ns, variation_ns)) => (
                usual_ns + (rtt_ns - usual_ns) / SMOOTHING,
                variation_ns + ((rtt_ns - usual_ns).abs() - variation_ns) / VARIATION_SMOOTHING,
            ),
        });
    }

    /// Notes a packet of the direction.
    #[inline]
    pub fn transmit(&mut self, seen: &Observation, flight: &Flight) {
        if seen.flags.is_syn() {
            self.has_syn_again |= self.syn_ns.is_some();
            self.syn_ns = Some(seen.time_ns);
        }
        self.packet_count += u64::from(seen.length > 0);
        self.reordered_count += u64::from(seen.class == SegmentClass::Reordered);
        if seen.class == SegmentClass::Retransmission
            && let Some(highest) = flight.highest()
        {
            self.ambiguous_until = highest;
            self.sampled = self.sampled.max(highest);
        }
    }

    /// Notes a packet of the opposite direction, and returns its sample.
    #[inline]
    pub fn acknowledge(&mut self, seen: &Observation, flight: &Flight, rows: &mut Rows) -> Option<Sample> {
        let acknowledged = seen.acknowledged?;
        let before = self.acknowledged.unwrap_or_else(|| {
            self.shake_hands(seen, rows);
            acknowledged
        });
        self.acknowledged = Some(before);
        let newly = acknowledged - before;
        if newly > 0 {
            self.acknowledged = Some(acknowledged);
            self.ack_sizes.add(newly);
        }
        let mut covered = acknowledged;
        for &(left, right) in seen.sacks() {
            if left > acknowledged {
                covered = covered.max(right);
            }
        }
        let sent_ns = flight.last_between(self.sampled, covered)?;
        self.sampled = covered;
        if before < self.ambiguous_until && covered == acknowledged {
            return None;
        }
        let rtt_ns = seen.time_ns.saturating_sub(sent_ns);
        self.sample(rtt_ns, seen, false, rows);
        if covered == acknowledged && (self.handshake_ns.is_some() || seen.length == 0) {
            self.note_least(rtt_ns);
        }
        if newly < 2 * flight.size().bytes() && covered == acknowledged {
            self.held_max_ns = self.held_max_ns.max(Some(rtt_ns));
        } else if covered == acknowledged {
            self.note_prompt(rtt_ns.clamp(0, ROUND_TRIP_MAX_NS));
        }
        let is_last = flight.highest().is_none_or(|highest| highest <= covered);
        Some(Sample { rtt_ns, is_prompt: is_prompt(newly, flight.size().bytes(), is_last, seen) })
    }

    /// The first ACK: a sample of the handshake, if the SYN was captured.
    fn shake_hands(&mut self, seen: &Observation, rows: &mut Rows) {
        if let (Some(syn_ns), false, Some(0)) = (self.syn_ns, self.has_syn_again, seen.acknowledged) {
            let rtt_ns = seen.time_ns.saturating_sub(syn_ns);
            self.sample(rtt_ns, seen, true, rows);
            self.note_least(rtt_ns);
            self.handshake_ns = Some(rtt_ns).filter(|rtt_ns| *rtt_ns >= 0);
            self.note_prompt(rtt_ns.clamp(0, ROUND_TRIP_MAX_NS));
        }
    }

    /// Keeps the smallest samples. What SACK reported overtook other packets, or others were lost.
    #[inline]
    fn note_least(&mut self, rtt_ns: i64) {
        let mut own = Some(rtt_ns).filter(|rtt_ns| *rtt_ns >= 0);
        for kept in &mut self.least_ns {
            if own.is_some() && kept.is_none_or(|least| own < Some(least)) {
                std::mem::swap(kept, &mut own);
            }
        }
    }

    fn sample(&mut self, rtt_ns: i64, seen: &Observation, is_handshake: bool, rows: &mut Rows) {
        if rtt_ns < 0 {
            return;
        }
        self.smoothed_ns += if self.rtt_min_ns.is_none() { rtt_ns } else { (rtt_ns - self.smoothed_ns) / SMOOTHING };
        self.rtt_min_ns = Some(self.rtt_min_ns.map_or(rtt_ns, |least| least.min(rtt_ns)));
        self.sizes.add(rtt_ns);
        if self.sizes.count().is_multiple_of(UPDATE_EVERY) {
            self.low_ns = self.sizes.percentile(REORDERED_PERCENT);
        }
        if rows.wanted.round_trips {
            rows.round_trips.push(RoundTrip {
                connection: self.connection,
                to_target: self.is_from_client,
                frame: seen.frame,
                time_ns: seen.time_ns,
                rtt_ns,
                is_handshake,
            });
        }
    }

    /// Fills the RTT columns of the sender's row.
    pub fn describe(&self, has_reordered_acks: bool, row: &mut SenderRow) {
        let Some(least_ns) = self.rtt_min_ns else { return };
        row.rtt_min_ns = least_ns;
        row.rtt_path_ns = self.path_ns(has_reordered_acks).unwrap_or(least_ns);
        row.rtt_median_ns = self.sizes.percentile(50).unwrap_or(NULL_NS).max(least_ns);
        row.rtt_p95_ns = self.sizes.percentile(95).unwrap_or(NULL_NS).max(least_ns);
        row.rtt_count = self.sizes.count();
        if let Some(held_ns) = self.held_max_ns {
            row.delayed_ack_max_ns = held_ns.saturating_sub(least_ns).max(0);
        }
        if let Some(bytes) = self.ack_sizes.percentile(50) {
            row.bytes_per_ack = u32::try_from(bytes).unwrap_or(u32::MAX - 1);
        }
    }
}
