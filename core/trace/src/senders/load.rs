//! The RTT of a connection while data are in flight, queues included; and the queue that stands while they are.
//!
//! ```text
//!   host 0 --- tap --- host 1     a leg is the RTT from the tap to a host; the RTT is the sum of both legs
//! ```
//!
//! A host shows its leg by an answer that it did not hold back: an ACK for two segments, or within a stretch of data; or
//! the echo of a timestamp, when it only waited for that to go on within a PDU. So both directions of a path are measured at
//! any tap. The leg of a host beside the tap is none of the path. It never judges what held a sender.

use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::observation::Observation;
use super::sent_clock::TICK_NS;
use crate::tables::{NULL_NS, RttWindow, RttWindows, SenderRow};

/// The length of a window, from a multiple of it on.
pub const WINDOW_NS: i64 = 250_000_000;
/// A single segment in flight is no load: its ACK may be held back.
const LOAD_SEGMENTS: i64 = 2;
/// Fewer samples tell nothing of a load.
const SAMPLES_MIN: u64 = 20;
/// In a window with a standing queue the least RTT exceeds that of the path by this time at least,
const QUEUE_MIN_NS: i64 = 5_000_000;
/// and by this part of it.
const QUEUE_PARTS: i64 = 2;
/// The mean RTT of a window exceeds that of the path by this time at least where its delay varies: hosts take less to answer;
const LONGER_MIN_NS: i64 = 2_000_000;
/// and by this part of it: less is within what its least shows.
const LONGER_PARTS: i64 = 8;
/// The least of fewer samples in a window may be a host's own time.
const WINDOW_SAMPLES_MIN: u32 = 4;
/// One packet in a window is no mean,
const LATE_COUNT_MIN: u32 = 2;
/// and fewer in all windows do not tell whether the delay varies all the time;
const LATE_USUAL_MIN: u32 = 16;
/// clocks of milliseconds, and virtual hosts, make packets seem late by less than this time.
const LATE_MIN_NS: i64 = 4_000_000;
/// A line has one rate: in so many windows,
const WINDOWS_MIN: usize = 4;
/// their rates deviate by this part of the mean (standard deviation).
const DEVIATION_MAX: f64 = 0.2;
/// Rates that follow what is in flight are those of a longer path, not of a line: if they deviate more, and correlate.
const CORRELATION_MAX: f64 = 0.9;

/// The RTT of both senders of a connection under load.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Load {
    /// The latest RTT from the tap to each host.
    legs_ns: [Option<i64>; 2],
    senders: [UnderLoad; 2],
    /// The delay, beyond that of the fastest, of packets sent with nothing in flight; the last window is open.
    late: Vec<Late>,
}

impl Load {
    /// No samples yet. Medians of windows take memory, and only the table has them.
    pub fn new(are_medians_wanted: bool) -> Self {
        let mut load = Self::default();
        load.senders.iter_mut().for_each(|sender| sender.open = are_medians_wanted.then(Histogram::default));
        load
    }

    /// A host answered: the RTT from the tap to it. `paths_ns` are those of the path to each host, none beside it.
    #[inline]
    pub fn answer(&mut self, host: usize, rtt_ns: i64, paths_ns: [Option<i64>; 2], at: At) {
        if paths_ns[host] == Some(0) || rtt_ns < 0 {
            return;
        }
        self.legs_ns[host] = Some(rtt_ns);
        let leg_ns = |host: usize| if paths_ns[host] == Some(0) { Some(0) } else { self.legs_ns[host] };
        let (Some(one_ns), Some(other_ns)) = (leg_ns(0), leg_ns(1)) else { return };
        for (sender, in_flight) in self.senders.iter_mut().zip(at.in_flight) {
            if in_flight >= LOAD_SEGMENTS * at.segment {
                sender.sample(at.time_ns, one_ns.saturating_add(other_ns), in_flight);
            }
        }
    }

    /// Bytes of a sender arrived.
    #[inline]
    pub fn deliver(&mut self, direction: usize, time_ns: i64, bytes: u32) {
        self.senders[direction].deliver(time_ns, bytes);
    }

    /// A packet passed with nothing in flight at the tap, `since_ns` after the last ACK to its sender. What the sender sent
    /// before that ACK reached it was in flight beside what it acknowledged: the packet was `late_ns` later than the path takes
    /// at its least, `path_ns` to the sender and back; where that is not known, it took as long as was last measured.
    #[inline]
    pub fn resume(
        &mut self,
        direction: usize,
        time_ns: i64,
        since_ns: Option<i64>,
        path_ns: Option<i64>,
        late_ns: Option<i64>,
    ) {
        let answer_ns =
            path_ns.zip(late_ns).map(|(path_ns, late_ns)| path_ns.saturating_add(late_ns).saturating_sub(TICK_NS));
        let answer_ns = if path_ns == Some(0) { path_ns } else { answer_ns.or(self.legs_ns[direction]) };
        if answer_ns.zip(since_ns).is_none_or(|(answer_ns, since_ns)| since_ns >= answer_ns) {
            self.senders[direction].resume(time_ns);
        }
    }

    /// A packet of a far host, sent with nothing in flight, reached the tap so much later than the fastest would have.
    pub fn arrive_late(&mut self, time_ns: i64, late_ns: i64) {
        let begun_ns = begin_of(time_ns);
        if self.late.last().is_none_or(|window| window.time_ns < begun_ns) {
            self.late.push(Late { time_ns: begun_ns, ..Late::default() });
        }
        if let Some(window) = self.late.last_mut() {
            window.count += 1;
            window.sum_ns = window.sum_ns.saturating_add(late_ns);
        }
    }

    /// Fills the columns of a sender's row. `path_ns` is the RTT of the path.
    pub fn describe(&self, direction: usize, path_ns: Option<i64>, row: &mut SenderRow) {
        let sender = &self.senders[direction];
        let Some(least_ns) = sender.least_ns.filter(|_| sender.samples.count() >= SAMPLES_MIN) else { return };
        let percentile = |percent: u64| sender.samples.percentile(percent).unwrap_or(NULL_NS).max(least_ns);
        row.rtt_load_least_ns = least_ns;
        row.rtt_load_median_ns = percentile(50);
        row.rtt_load_p95_ns = percentile(95);
        row.rtt_load_count = sender.samples.count();
        if let Some(queue) = self.standing_queue(direction, path_ns) {
            row.standing_queue_ns = queue.spans.iter().map(|&(from_ns, to_ns)| to_ns.saturating_sub(from_ns)).sum();
            row.standing_queue_delay_ns = queue.delay_ns;
            row.standing_queue_bytes_per_s = queue.rates.map_or(NULL_NS, |[_, rate, _]| rate.round() as i64);
        }
    }

    /// The queue that stood before the data of a direction, if one did.
    pub fn standing_queue(&self, direction: usize, path_ns: Option<i64>) -> Option<StandingQueue> {
        self.senders[direction].standing_queue(path_ns?)
    }

    /// The median RTT while data of a sender are in flight; none of too few samples.
    pub fn median_ns(&self, direction: usize) -> Option<i64> {
        let samples = &self.senders[direction].samples;
        samples.percentile(50).filter(|_| samples.count() >= SAMPLES_MIN)
    }

    /// Whether packets of a sender typically waited in a queue. `path_ns` is the RTT of the path.
    pub fn has_queue(&self, direction: usize, path_ns: Option<i64>) -> bool {
        let (Some(median_ns), Some(path_ns)) = (self.median_ns(direction), path_ns) else { return false };
        is_queue(median_ns.saturating_sub(path_ns), path_ns)
    }

    /// How much longer the path took than at its least, where a queue stood on it or its delay varies. `path_ns` is the RTT
    /// of the path.
    pub fn excess(&self, path_ns: Option<i64>) -> Vec<Excess> {
        let Some(path_ns) = path_ns else { return Vec::new() };
        let mut found: Vec<Excess> = self
            .senders
            .iter()
            .flat_map(|sender| &sender.windows)
            .filter(|window| window.count >= WINDOW_SAMPLES_MIN)
            .filter(|window| is_longer(window.mean_ns().saturating_sub(path_ns), LONGER_MIN_NS, path_ns))
            .map(|window| Excess {
                time_ns: window.time_ns,
                by_ns: window.most_ns().saturating_sub(path_ns),
                unloaded_ns: 0,
            })
            .collect();
        found.sort_unstable();
        // of both directions the least
        found.dedup_by_key(|window| window.time_ns);
        let measured_count = found.len();
        // a path whose delay varies: a few packets of a window tell less of the mean than all do
        let all = Late::of_all(&self.late);
        let usual_ns = all.longer_ns(path_ns).filter(|_| all.count >= LATE_USUAL_MIN);
        for late in &self.late {
            let Some(longer_ns) = late.longer_ns(path_ns).max(usual_ns) else { continue };
            // one way: the other one varies as much, and a wait is one of each
            let (time_ns, by_ns) = (late.time_ns, longer_ns.saturating_mul(2));
            match found[..measured_count].binary_search_by_key(&time_ns, |window| window.time_ns) {
                Ok(place) => found[place].unloaded_ns = by_ns,
                Err(_) if self.is_measured(time_ns) => {}
                Err(_) => found.push(Excess { time_ns, by_ns, unloaded_ns: by_ns }),
            }
        }
        found.sort_unstable();
        found
    }

    /// Whether answers tell the RTT in a window.
    fn is_measured(&self, time_ns: i64) -> bool {
        self.senders.iter().any(|sender| {
            let found = sender.windows.binary_search_by_key(&time_ns, |window| window.time_ns);
            found.is_ok_and(|place| sender.windows[place].count >= WINDOW_SAMPLES_MIN)
        })
    }

    /// The rows of a direction.
    pub fn rows(&self, connection: u32, direction: usize) -> RttWindows {
        let mut table = RttWindows::default();
        for window in self.senders[direction].windows() {
            table.push(RttWindow {
                connection,
                to_target: direction == 0,
                time_ns: window.time_ns,
                rtt_least_ns: window.least_ns,
                rtt_median_ns: window.median_ns,
                sample_count: window.count,
                delivered_bytes: window.bytes,
                in_flight_bytes: window.in_flight / i64::from(window.count.max(1)),
                is_busy: window.is_busy,
            });
        }
        table
    }

    /// Removes windows from before, except the last.
    pub fn forget(&mut self, before_ns: i64) {
        self.senders.iter_mut().for_each(|sender| sender.forget(before_ns));
        let last = self.late.len().saturating_sub(1);
        self.late.drain(
            ..self.late.partition_point(|window| window.time_ns.saturating_add(WINDOW_NS) <= before_ns).min(last),
        );
    }
}

/// When a host answered, with how many bytes in flight from each sender.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// Capture time of the answer.
    pub time_ns: i64,
    /// By direction.
    pub in_flight: [i64; 2],
    /// The payload of a full segment.
    pub segment: i64,
}

/// By how much the RTT of a path exceeded its least in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Excess {
    /// The start of the window.
    pub time_ns: i64,
    /// The excess.
    pub by_ns: i64,
    /// That of packets sent with nothing in flight: none of it is a queue of the connection's own.
    pub unloaded_ns: i64,
}

/// A queue that never emptied while data were in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StandingQueue {
    /// When it stood: ordered and disjoint.
    pub spans: Vec<(i64, i64)>,
    /// Its median delay.
    pub delay_ns: i64,
    /// The windows in which it stood.
    pub window_count: usize,
    /// The rate at which the data left it, in bytes per second, if that was one rate: lower quartile, median and upper
    /// quartile of the windows.
    pub rates: Option<[f64; 3]>,
}

/// The samples of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct UnderLoad {
    least_ns: Option<i64>,
    samples: Histogram,
    /// Windows with samples; the last is open.
    windows: Vec<Window>,
    /// The samples of the open window, if medians are wanted.
    open: Option<Histogram>,
    /// When it last sent with nothing in flight.
    resumed_ns: i64,
}

/// One window.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Window {
    time_ns: i64,
    least_ns: i64,
    /// Once it is over.
    median_ns: i64,
    /// The sum over the samples.
    sum_ns: i64,
    count: u32,
    /// Whether data were in flight throughout.
    is_busy: bool,
    bytes: u64,
    /// The sum over the samples.
    in_flight: i64,
}

impl Window {
    /// As far above the mean as the least is below it: about the longest.
    fn most_ns(&self) -> i64 {
        self.mean_ns().saturating_mul(2).saturating_sub(self.least_ns)
    }

    fn mean_ns(&self) -> i64 {
        self.sum_ns / i64::from(self.count.max(1))
    }
}

/// Packets of one window that were sent with nothing in flight.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct Late {
    time_ns: i64,
    count: u32,
    sum_ns: i64,
}

impl Late {
    fn mean_ns(&self) -> i64 {
        self.sum_ns / i64::from(self.count.max(1))
    }

    fn of_all(windows: &[Self]) -> Self {
        windows.iter().fold(Self::default(), |all, window| Self {
            count: all.count.saturating_add(window.count),
            sum_ns: all.sum_ns.saturating_add(window.sum_ns),
            ..all
        })
    }

    /// The mean, where it is longer than a host takes.
    fn longer_ns(&self, path_ns: i64) -> Option<i64> {
        Some(self.mean_ns()).filter(|&mean_ns| self.count >= LATE_COUNT_MIN && is_longer(mean_ns, LATE_MIN_NS, path_ns))
    }
}

impl UnderLoad {
    #[inline]
    fn sample(&mut self, time_ns: i64, rtt_ns: i64, in_flight: i64) {
        self.least_ns = Some(self.least_ns.map_or(rtt_ns, |least_ns| least_ns.min(rtt_ns)));
        self.samples.add(rtt_ns);
        let begun_ns = begin_of(time_ns);
        if self.windows.last().is_none_or(|window| window.time_ns < begun_ns) {
            self.begin(begun_ns, rtt_ns);
        }
        if let Some(open) = &mut self.open {
            open.add(rtt_ns);
        }
        if let Some(window) = self.windows.last_mut() {
            window.least_ns = window.least_ns.min(rtt_ns);
            window.count += 1;
            window.sum_ns = window.sum_ns.saturating_add(rtt_ns);
            window.in_flight = window.in_flight.saturating_add(in_flight);
        }
    }

    /// Begins a window. It is busy if it follows another, until nothing is in flight.
    fn begin(&mut self, time_ns: i64, rtt_ns: i64) {
        let is_next = self.windows.last().is_some_and(|window| window.time_ns.saturating_add(WINDOW_NS) == time_ns);
        if let (Some(window), Some(open)) = (self.windows.last_mut(), &mut self.open) {
            window.median_ns = median_of(open, window.least_ns);
            open.clear();
        }
        let is_busy = is_next && self.resumed_ns < time_ns;
        if self.windows.is_empty() {
            // most connections are short
            self.windows.reserve_exact(1);
        }
        self.windows.push(Window { time_ns, least_ns: rtt_ns, is_busy, ..Window::default() });
    }

    #[inline]
    fn deliver(&mut self, time_ns: i64, bytes: u32) {
        if let Some(window) = self.windows.last_mut().filter(|window| window.time_ns == begin_of(time_ns)) {
            window.bytes += u64::from(bytes);
        }
    }

    /// Nothing was in flight, since some time in the last window.
    #[inline]
    fn resume(&mut self, time_ns: i64) {
        self.resumed_ns = time_ns;
        if let Some(last) = self.windows.last_mut() {
            last.is_busy = false;
        }
    }

    /// All windows. That which is open is not known to be busy until its end.
    fn windows(&self) -> impl Iterator<Item = Window> + '_ {
        let last = self.windows.len().wrapping_sub(1);
        self.windows.iter().enumerate().map(move |(place, window)| {
            if place == last {
                let median_ns = self.open.as_ref().map_or(0, |open| median_of(open, window.least_ns));
                Window { median_ns, is_busy: false, ..*window }
            } else {
                *window
            }
        })
    }

    fn standing_queue(&self, path_ns: i64) -> Option<StandingQueue> {
        let standing_ns = |window: &Window| window.least_ns.saturating_sub(path_ns);
        let is_standing = |window: &Window| window.is_busy && is_queue(standing_ns(window), path_ns);
        let windows: Vec<Window> = self.windows().filter(is_standing).collect();
        let rates = Rates::of(&windows);
        if windows.is_empty() || rates.follow_flight {
            return None;
        }
        let mut delays_ns: Vec<i64> = windows.iter().map(standing_ns).collect();
        delays_ns.sort_unstable();
        Some(StandingQueue {
            delay_ns: delays_ns[delays_ns.len() / 2],
            window_count: windows.len(),
            rates: rates.flat,
            spans: windows.iter().map(|window| (window.time_ns, window.time_ns.saturating_add(WINDOW_NS))).collect(),
        })
    }

    fn forget(&mut self, before_ns: i64) {
        let count = self.windows.iter().take_while(|window| window.time_ns < before_ns).count();
        self.windows.drain(..count.min(self.windows.len().saturating_sub(1)));
    }
}

/// The rates of windows.
#[derive(Debug, Default, PartialEq)]
struct Rates {
    /// Bytes per second, if it is one rate: lower quartile, median and upper quartile.
    flat: Option<[f64; 3]>,
    /// Whether they follow what is in flight.
    follow_flight: bool,
}

impl Rates {
    fn of(windows: &[Window]) -> Self {
        if windows.len() < WINDOWS_MIN {
            return Self::default();
        }
        let mut rates: Vec<f64> = windows.iter().map(|window| window.bytes as f64 * 1e9 / WINDOW_NS as f64).collect();
        let flights: Vec<f64> =
            windows.iter().map(|window| window.in_flight as f64 / f64::from(window.count.max(1))).collect();
        let (rate, deviation) = spread(&rates);
        let (flight, flights_deviation) = spread(&flights);
        let products = rates.iter().zip(&flights).map(|(one, other)| (one - rate) * (other - flight));
        let covariance = products.sum::<f64>() / rates.len() as f64;
        let is_flat = deviation <= DEVIATION_MAX * rate;
        Self {
            flat: quartiles(&mut rates).filter(|_| is_flat),
            follow_flight: !is_flat && covariance > CORRELATION_MAX * deviation * flights_deviation,
        }
    }
}

/// Mean and standard deviation.
fn spread(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / values.len() as f64).sqrt())
}

/// Lower quartile, median and upper quartile.
pub fn quartiles(values: &mut [f64]) -> Option<[f64; 3]> {
    let last = values.len().checked_sub(1)?;
    let mut at = |quarter: usize| {
        let place = quarter as f64 / 4.0 * last as f64;
        let (_, &mut below, above) = values.select_nth_unstable_by(place as usize, f64::total_cmp);
        let upper = above.iter().copied().min_by(f64::total_cmp).unwrap_or(below);
        below * (1.0 - place.fract()) + upper * place.fract()
    };
    Some([at(1), at(2), at(3)])
}

/// Whether the RTT of a window exceeds that of the path by so much that a queue stood on it.
fn is_queue(excess_ns: i64, path_ns: i64) -> bool {
    excess_ns >= QUEUE_MIN_NS.max(path_ns / QUEUE_PARTS)
}

/// Whether a path takes longer than at its least, by this time or more.
fn is_longer(excess_ns: i64, min_ns: i64, path_ns: i64) -> bool {
    excess_ns >= min_ns.max(path_ns / LONGER_PARTS)
}

fn begin_of(time_ns: i64) -> i64 {
    time_ns.saturating_sub(time_ns.rem_euclid(WINDOW_NS))
}

fn median_of(samples: &Histogram, least_ns: i64) -> i64 {
    samples.percentile(50).unwrap_or(least_ns).max(least_ns)
}

/// Whether an ACK was not held back: it covers two segments, or data followed that it covers, or it reports a hole.
#[inline]
pub fn is_prompt(newly: i64, segment: i64, is_last: bool, seen: &Observation) -> bool {
    newly >= LOAD_SEGMENTS * segment || !is_last || seen.sack_count > 0
}

#[cfg(test)]
mod tests {
    use super::quartiles;

    #[test]
    fn quartiles_lie_between_the_values_around_them() {
        assert_eq!(quartiles(&mut []), None);
        assert_eq!(quartiles(&mut [7.0]), Some([7.0; 3]));
        assert_eq!(quartiles(&mut [2.0, 1.0]), Some([1.25, 1.5, 1.75]));
        assert_eq!(quartiles(&mut [9.0, 1.0, 5.0, 3.0, 7.0]), Some([3.0, 5.0, 7.0]));
        assert_eq!(quartiles(&mut [4.0, 8.0, 2.0, 6.0]), Some([3.5, 5.0, 6.5]));
    }
}
