//! A live pass: packets of a source without an end so far, and what was read since the last look, in bounded memory.
//!
//! ```text
//! follow      a growing file, and the next one of its ring
//! read_ahead  bytes read ahead, and the lag
//! view        the result of a look
//! ```
//!
//! Time is the capture's, cut into intervals from the first packet on. An interval is looked at a little after its end,
//! when its packets were read. Each cycle is handed over once, in the interval in which it was complete. Nothing is
//! printed, and no call waits longer than its limit.

pub mod follow;
pub mod read_ahead;
#[cfg(test)]
mod tests;
pub mod view;

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::counters::Counter;
use crate::pipeline::Pipeline;
use crate::reader::filter::Filter;
use crate::reader::sequence::{Input, Sequence};
use crate::reader::{CaptureError, CaptureInfo};
use crate::tables::Wanted;
use follow::{Change, FollowState, Followed, OpenedLate};
use read_ahead::ReadAhead;

/// Bytes that are enough to recognise a file header.
const FILE_HEADER_BYTES: usize = 24;
/// Maximum number of open connections.
const CONNECTIONS_MAX: usize = 1 << 12;
/// Bytes of a file that are read ahead: a file can wait.
const FILE_BUFFER_BYTES: usize = 4 << 20;
/// Packets between two looks at the clock.
const CLOCK_EVERY_PACKETS: u32 = 1 << 10;
/// A pause of more intervals than this is one interval.
const INTERVALS_AT_ONCE_MAX: i64 = 60;
/// After so many packets in a row that are this much earlier than the latest, the clock was set back.
const STEP_BACK_PACKETS: u32 = 64;
const STEP_BACK_NS: i64 = 10_000_000_000;
/// A lag below this does not count.
const LAG_NONE: Duration = Duration::from_millis(200);

/// What is always wanted: who breaks the protocol. A judge who missed a part would have to begin anew.
const ALWAYS: Wanted = Wanted { violations: true, ..Wanted::NONE };
/// The senders' behaviour and the time breakdown, too.
const DYNAMICS: Wanted = Wanted { senders: true, budget: true, recoveries: true, retransmissions: true, ..ALWAYS };

/// What to read, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Length of an interval.
    pub interval_ns: i64,
    /// Time from the end of an interval until it is looked at.
    pub settle_ns: i64,
    /// How long past rows are kept.
    pub keep_ns: i64,
    /// A capture filter in libpcap's syntax.
    pub capture_filter: Option<String>,
    /// Maximum number of packets.
    pub packet_limit: Option<u64>,
    /// Whether the senders' behaviour and the time breakdown are wanted.
    pub has_dynamics: bool,
    /// After this time without packets, the capture clock continues by itself.
    pub clock_after: Option<Duration>,
    /// Maximum bytes read ahead.
    pub buffer_bytes: usize,
    /// For a source that cannot wait: at this lag the analysis of the senders stops, and at twice this lag packets are
    /// skipped.
    pub lag_max: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval_ns: 1_000_000_000,
            settle_ns: 250_000_000,
            keep_ns: 10_000_000_000,
            capture_filter: None,
            packet_limit: None,
            has_dynamics: true,
            clock_after: Some(Duration::from_secs(2)),
            buffer_bytes: 256 << 20,
            lag_max: None,
        }
    }
}

/// Where the packets come from.
pub enum Origin {
    /// A file that may grow, or a named pipe; and its name in messages.
    File(String, PathBuf),
    /// Any reader, and its name in messages.
    Reader(String, Box<dyn Read + Send>),
}

/// What the caller should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An interval is over: call [`Live::look`].
    Look,
    /// Nothing: the time limit was reached.
    Nothing,
    /// The input ended: call [`Live::finish`].
    End,
}

/// How well the pass keeps up with its source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pace {
    /// How long the oldest unprocessed bytes have been waiting.
    pub lag: Duration,
    /// Unprocessed bytes.
    pub waiting_bytes: usize,
    /// Whether the analysis of the senders is stopped.
    pub is_reduced: bool,
    /// Whether packets are being skipped.
    pub is_leaving_out: bool,
    /// Packets skipped so far.
    pub left_out_packets: u64,
}

/// A live pass.
pub struct Live {
    settings: Settings,
    filter: Option<Filter>,
    read_ahead: ReadAhead,
    state: FollowState,
    name: String,
    sequence: Option<Sequence>,
    pipeline: Pipeline,
    packet_count: u64,
    left_out_packets: u64,
    /// The current interval, after the first packet.
    interval: Option<(i64, i64)>,
    /// The capture clock: the latest capture time, or later while nothing arrives.
    now_ns: i64,
    /// The latest capture time, and when that packet arrived.
    last_ns: i64,
    heard: Instant,
    far_back_count: u32,
    set_back_to: Option<i64>,
    is_stopped: bool,
    is_abandoned: bool,
    is_over: bool,
    is_reduced: bool,
    is_leaving_out: bool,
    /// Capture time when it last lagged.
    behind_ns: i64,
    change: Option<Change>,
}

impl Live {
    /// Starts reading.
    ///
    /// # Errors
    /// The file cannot be opened, or the filter is invalid.
    pub fn start(origin: Origin, mut settings: Settings) -> Result<Self, CaptureError> {
        let filter = settings.capture_filter.as_deref().map(Filter::new).transpose()?;
        let state = FollowState::default();
        let (name, reader): (String, Box<dyn Read + Send>) = match origin {
            Origin::File(name, path) => {
                if let Some(pipe) = OpenedLate::new(&path) {
                    (name, Box::new(pipe))
                } else {
                    settings.buffer_bytes = settings.buffer_bytes.min(FILE_BUFFER_BYTES);
                    match Followed::open(&path, state.clone()) {
                        Ok(followed) => (name, Box::new(followed)),
                        Err(error) => return Err(CaptureError::Unreadable { name, error }),
                    }
                }
            }
            Origin::Reader(name, reader) => (name, reader),
        };
        let mut pipeline = Pipeline::new(if settings.has_dynamics { DYNAMICS } else { ALWAYS });
        pipeline.limits.connections = CONNECTIONS_MAX;
        pipeline.limits.iscsi_connections = CONNECTIONS_MAX;
        Ok(Self {
            read_ahead: ReadAhead::start(reader, settings.buffer_bytes),
            settings,
            filter,
            state,
            name,
            sequence: None,
            pipeline,
            packet_count: 0,
            left_out_packets: 0,
            interval: None,
            now_ns: i64::MIN,
            last_ns: i64::MIN,
            heard: Instant::now(),
            far_back_count: 0,
            set_back_to: None,
            is_stopped: false,
            is_abandoned: false,
            is_over: false,
            is_reduced: false,
            is_leaving_out: false,
            behind_ns: i64::MIN,
            change: None,
        })
    }

    /// Continues reading until there is something to do, or until the time limit.
    ///
    /// # Errors
    /// The input is not a capture or cannot be read, and no packet was read before.
    pub fn advance(&mut self, patience: Duration) -> Result<Step, CaptureError> {
        let deadline = Instant::now() + patience;
        if self.sequence.is_none() && !self.open(patience)? {
            return Ok(if self.is_over { Step::End } else { Step::Nothing });
        }
        let mut until_clock = CLOCK_EVERY_PACKETS;
        while !self.is_over {
            if self.set_back_to.is_some() || self.is_due(self.now_ns) {
                return Ok(Step::Look);
            }
            let Some(sequence) = &mut self.sequence else { break };
            let Some(packet) = sequence.next_packet(self.pipeline.counters())? else {
                if let Some(step) = self.wait(deadline)? {
                    return Ok(step);
                }
                continue;
            };
            let time_ns = packet.time_ns;
            let is_wanted = match &mut self.filter {
                Some(filter) => filter.matches(packet.link_type, packet.data),
                None => true,
            };
            if is_wanted {
                self.packet_count += 1;
                if self.is_leaving_out {
                    self.left_out_packets += 1;
                    self.pipeline.counters().add(Counter::PacketsLeftOut, None, packet.frame);
                } else {
                    self.pipeline.packet(&packet);
                }
                self.interval.get_or_insert_with(|| (time_ns, time_ns.saturating_add(self.settings.interval_ns)));
                let is_far_back = time_ns < self.now_ns.saturating_sub(STEP_BACK_NS);
                self.far_back_count = if is_far_back { self.far_back_count + 1 } else { 0 };
                if self.far_back_count >= STEP_BACK_PACKETS {
                    // the clock was set back: the current interval ends, and the intervals restart
                    self.far_back_count = 0;
                    self.set_back_to = Some(time_ns);
                }
                self.last_ns = self.last_ns.max(time_ns);
                self.now_ns = self.now_ns.max(time_ns);
                self.is_over = self.settings.packet_limit.is_some_and(|limit| self.packet_count >= limit);
            }
            until_clock -= 1;
            if until_clock == 0 {
                until_clock = CLOCK_EVERY_PACKETS;
                self.heard = Instant::now();
                self.govern();
                if self.heard >= deadline {
                    return Ok(if self.is_due(self.now_ns) { Step::Look } else { Step::Nothing });
                }
            }
        }
        // a complete interval is not the last
        let is_whole = self.interval.is_some_and(|(_, to_ns)| self.now_ns >= to_ns);
        Ok(if is_whole { Step::Look } else { Step::End })
    }

    /// Waits for the first bytes and detects the format. False while there are too few.
    fn open(&mut self, patience: Duration) -> Result<bool, CaptureError> {
        if !self.read_ahead.wait(FILE_HEADER_BYTES, patience) {
            return Ok(false);
        }
        if self.is_abandoned && self.read_ahead.buffered_bytes() < FILE_HEADER_BYTES {
            // abandoned before any bytes
            self.is_over = true;
            return Ok(false);
        }
        let input = self.input(self.name.clone());
        self.sequence = Some(Sequence::open(vec![input], self.pipeline.counters())?);
        self.heard = Instant::now();
        self.govern();
        Ok(true)
    }

    /// No packet is available: what to do instead. None if there may be one now.
    fn wait(&mut self, deadline: Instant) -> Result<Option<Step>, CaptureError> {
        if !self.sequence.as_ref().is_some_and(Sequence::is_waiting) {
            self.change = self.state.take_change();
            if let Some(Change::Next(path)) = &self.change {
                return self.follow(path.clone()).map(|()| None);
            }
            self.is_over = true;
            return Ok(None);
        }
        self.govern();
        // the clock of a quiet capture continues
        let quiet = self.heard.elapsed();
        if self.settings.clock_after.is_some_and(|patience| quiet >= patience) {
            let quiet_ns = i64::try_from(quiet.as_nanos()).unwrap_or(i64::MAX);
            self.now_ns = self.now_ns.max(self.last_ns.saturating_add(quiet_ns));
            if self.is_due(self.now_ns) {
                return Ok(Some(Step::Look));
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !self.read_ahead.wait(1, left) {
            return Ok(Some(Step::Nothing));
        }
        self.heard = Instant::now();
        Ok(None)
    }

    /// Continues with the next file of a ring.
    fn follow(&mut self, path: PathBuf) -> Result<(), CaptureError> {
        let name = path.display().to_string();
        match Followed::open_next(&path, self.state.clone()) {
            Ok(followed) => {
                self.read_ahead = ReadAhead::start(Box::new(followed), self.settings.buffer_bytes);
                while !self.read_ahead.wait(FILE_HEADER_BYTES, LAG_NONE) && !self.is_stopped {}
                let input = self.input(name);
                if let Some(sequence) = &mut self.sequence {
                    sequence.add(input);
                }
                Ok(())
            }
            Err(error) => Err(CaptureError::Unreadable { name, error }),
        }
    }

    fn input(&self, name: String) -> Input {
        Input::Decompressed { name, reader: Box::new(self.read_ahead.reader()), methods: self.read_ahead.methods() }
    }

    fn is_due(&self, now_ns: i64) -> bool {
        self.interval.is_some_and(|(_, to_ns)| now_ns >= to_ns.saturating_add(self.settings.settle_ns))
    }

    /// Ends the current interval; the next one starts at its end.
    fn close_interval(&mut self, is_last: bool) -> (i64, i64) {
        let (from_ns, to_ns) = self.interval.unwrap_or((0, 0));
        if is_last {
            return (from_ns, self.now_ns.max(from_ns));
        }
        let interval_ns = self.settings.interval_ns.max(1);
        let over_ns = self.now_ns.saturating_sub(self.settings.settle_ns).saturating_sub(to_ns);
        let more = over_ns / interval_ns;
        let to_ns = if more > INTERVALS_AT_ONCE_MAX { to_ns.saturating_add(more * interval_ns) } else { to_ns };
        self.interval = Some((to_ns, to_ns.saturating_add(interval_ns)));
        (from_ns, to_ns)
    }

    /// After a look: restarts the intervals if the clock was set back.
    fn turn_clock(&mut self) {
        if let Some(time_ns) = self.set_back_to.take() {
            (self.now_ns, self.last_ns) = (time_ns, time_ns);
            self.interval = Some((time_ns, time_ns.saturating_add(self.settings.interval_ns)));
            self.pipeline.ledger.begin_anew();
        }
    }

    /// Stops work that there is no time for.
    fn govern(&mut self) {
        let Some(lag_max) = self.settings.lag_max else { return };
        let (lag, waiting) = (self.read_ahead.lag(), self.read_ahead.buffered_bytes());
        let quarter = self.settings.buffer_bytes / 4;
        if lag > LAG_NONE || lag_max.is_zero() {
            self.behind_ns = self.now_ns;
        }
        if !self.is_reduced && (lag >= lag_max || waiting >= 2 * quarter) {
            self.is_reduced = true;
            self.set_dynamics(false);
        }
        if lag >= lag_max * 2 || waiting >= 3 * quarter {
            self.is_leaving_out = true;
        }
    }

    /// At the end of an interval: resumes packets as soon as there is no lag, and the analysis of the senders after a
    /// while without lag.
    fn recover(&mut self) {
        if self.settings.lag_max.is_none_or(|lag_max| lag_max.is_zero()) {
            return;
        }
        let is_behind = self.read_ahead.lag() > LAG_NONE;
        if !is_behind {
            self.is_leaving_out = false;
        }
        if self.is_reduced && !is_behind && self.now_ns.saturating_sub(self.behind_ns) > self.settings.keep_ns {
            self.is_reduced = false;
            self.set_dynamics(self.settings.has_dynamics);
        }
    }

    fn set_dynamics(&mut self, is_wanted: bool) {
        self.pipeline.set_wanted(if is_wanted { DYNAMICS } else { ALWAYS });
    }

    /// Makes the current end the end of the input: a file is read as far as it is written now, another source as far as
    /// it has arrived.
    pub fn stop(&mut self) {
        self.is_stopped = true;
        self.state.stop();
    }

    /// The same for a source that does not end by itself and may never deliver anything more.
    pub fn abandon(&mut self) {
        self.stop();
        self.is_abandoned = true;
        self.read_ahead.abandon();
    }

    /// How well the pass keeps up.
    pub fn pace(&self) -> Pace {
        Pace {
            lag: self.read_ahead.lag(),
            waiting_bytes: self.read_ahead.buffered_bytes(),
            is_reduced: self.is_reduced,
            is_leaving_out: self.is_leaving_out,
            left_out_packets: self.left_out_packets,
        }
    }

    /// Why the input ended, if it was not its end.
    pub fn change(&self) -> Option<&Change> {
        self.change.as_ref()
    }

    /// Metadata of the captures.
    pub fn infos(&self) -> Vec<CaptureInfo> {
        self.sequence.iter().flat_map(Sequence::infos).cloned().collect()
    }

    /// Number of rows held.
    pub fn row_count(&self) -> usize {
        self.pipeline.row_count()
    }

    /// Packets that passed the filter.
    pub fn packet_count(&self) -> u64 {
        self.packet_count
    }
}
