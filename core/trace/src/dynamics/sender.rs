//! One direction of a connection as its sender sees it: outstanding data, window, losses, congestion window.
//!
//! ```text
//! acknowledgments     when an ACK reaches the sender        scoreboard          what is outstanding, SACKed, lost
//! segment_size        a full segment                        retransmission      why bytes were sent again
//! window_scale        the shift of the window field         recovery            a loss and its repair
//! window_time         how long the window was full          congestion_window   what the sending shows of cwnd
//! ```
//!
//! On the time axis of the data at the tap, an ACK counts when its answer could pass the tap first. Instants at the
//! sender, in the table `window`, are half a round trip earlier.

use super::Rows;
use super::acknowledgments::{Acknowledgment, Acknowledgments};
use super::congestion_window::{Between, CongestionWindow, Stop};
use super::observation::Observation;
use super::originals::Originals;
use super::recovery::{self, Recovery, Sign};
use super::retransmission::{self, Cause, Circumstances, Remembered};
use super::scoreboard::Scoreboard;
use super::segment_size::SegmentSize;
use super::window_scale::WindowScale;
use super::window_time::WindowTime;
use crate::tables::{Columns, NULL_NS, Sack, SenderRow, Window, Windows};
use crate::tcp::half::SegmentClass;

/// A pause of this length may make a sender begin anew: the usual least retransmission timeout, less what srtt may differ.
const IDLE_MIN_NS: i64 = 175_000_000;
/// An answer may be so much later than its ACK as half a round trip, and this much.
const PATIENCE_MIN_NS: i64 = 1_000_000;
/// A window that is smaller after a pause by this share was begun anew.
const RESTART_NUMERATOR: i64 = 3;
const RESTART_DENOMINATOR: i64 = 4;
/// Duplicate ACKs, or segments selectively acknowledged, that show a loss (RFC 5681, section 3.2; RFC 6675, section 4).
const DUPLICATES: i64 = 3;
/// Packets of one burst follow each other within this time.
const PAUSE_MAX_NS: i64 = 1_000_000;
/// The usual spacing of a burst follows a sample by this part; so many spacings are a pause.
const SPACING_SMOOTHING: i64 = 16;
const SPACINGS: i64 = 3;
/// Delays between tap and sender may differ by this part of their least.
const LONG_PARTS: i64 = 4;
/// Outstanding data within this part of the receiver's window, and two segments, may be held by it: what the sender knew
/// of the window, and when, is not seen to the segment.
const WINDOW_PARTS: i64 = 16;
/// Segments that are not full and not acknowledged, of which the place is kept.
const SHORT_MAX: usize = 4096;

/// The sender after its last packet that passed the tap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderState {
    /// Highest byte sent less last byte acknowledged, as the sender knew it.
    pub owin: i64,
    /// Of these, what is still thought to be under way (RFC 6675, section 4).
    pub pipe: i64,
    /// The advertised window, as the sender knew it.
    pub rwnd: Option<i64>,
    /// Whether a loss is being repaired.
    pub is_in_recovery: bool,
    /// The last ACK that the sender had when it sent the packet.
    pub last_ack: Option<LastAck>,
}

/// An ACK that let a sender go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastAck {
    /// When its answer could pass the tap first: its capture time, and the round trip from the tap to the sender.
    pub answer_ns: i64,
    /// Whether it acknowledged new data.
    pub is_advance: bool,
    /// Whether it opened a window that had been too small for a full segment.
    pub has_opened_window: bool,
    /// What was outstanding after it.
    pub owin: i64,
}

/// What the paths tell a sender.
#[derive(Debug, Clone, Copy, Default)]
pub struct Delays {
    /// Least round trip from the tap to the sender.
    pub to_sender_ns: i64,
    /// Smoothed round trip of the whole path; 0 while nothing is known.
    pub round_trip_ns: i64,
}

/// The sender of one direction.
#[derive(Debug)]
pub struct Sender {
    connection: u32,
    is_from_client: bool,
    is_begun: bool,
    state: SenderState,
    acks: Acknowledgments,
    board: Scoreboard,
    size: SegmentSize,
    scale: WindowScale,
    times: WindowTime,
    originals: Originals,
    remembered: Remembered,
    recovery: Recovery,
    cwnd: CongestionWindow,
    windows: Windows,
    /// Missing to full segments: end of the short segment, and how much.
    short: std::collections::VecDeque<(i64, i64)>,
    short_bytes: i64,
    last_window: u16,
    last_acknowledged: i64,
    stop: Stop,
    between: Between,
    first_ack_ns: i64,
    /// Usual time between packets of a burst.
    spacing_ns: i64,
    last_ack_ns: i64,
    burst_row: usize,
    stop_row: usize,
    sent_ns: Option<i64>,
    advanced_ns: i64,
    recovered_ns: Option<i64>,
    is_probed: bool,
    timeout_point: i64,
    before_pause: Option<i64>,
    peak: i64,
    counts: [u32; 4],
    restart_count: u32,
    owin_max: i64,
    ssthresh_guess: Option<i64>,
}

impl Sender {
    /// A sender of which nothing is known.
    pub fn new(connection: u32, is_from_client: bool) -> Self {
        Self {
            connection,
            is_from_client,
            is_begun: false,
            state: SenderState::default(),
            acks: Acknowledgments::default(),
            board: Scoreboard::default(),
            size: SegmentSize::default(),
            scale: WindowScale::default(),
            times: WindowTime::default(),
            originals: Originals::default(),
            remembered: Remembered::default(),
            recovery: Recovery::default(),
            cwnd: CongestionWindow::default(),
            windows: Windows::default(),
            short: std::collections::VecDeque::new(),
            short_bytes: 0,
            last_window: 0,
            last_acknowledged: 0,
            stop: Stop::default(),
            between: Between::default(),
            first_ack_ns: 0,
            spacing_ns: 0,
            last_ack_ns: 0,
            burst_row: 0,
            stop_row: 0,
            sent_ns: None,
            advanced_ns: i64::MIN,
            recovered_ns: None,
            is_probed: false,
            timeout_point: i64::MIN,
            before_pause: None,
            peak: 0,
            counts: [0; 4],
            restart_count: 0,
            owin_max: 0,
            ssthresh_guess: None,
        }
    }

    /// After its last packet.
    pub fn state(&self) -> SenderState {
        self.state
    }

    /// Payload of a full segment, as far as is known.
    pub fn segment_bytes(&self) -> i64 {
        self.size.bytes()
    }

    /// One of its packets, with or without payload, passed the tap: what it acknowledges.
    #[inline]
    pub fn note_acknowledged(&mut self, seen: &Observation) {
        self.acks.note_acknowledged(seen.acknowledged);
    }

    /// One of its packets, with payload, passed the tap.
    #[inline]
    pub fn transmit(&mut self, seen: &Observation, delays: Delays, rows: &mut Rows) {
        if matches!(seen.class, SegmentClass::Probe | SegmentClass::Copy | SegmentClass::Outside) {
            return;
        }
        self.size.note(seen.length, seen.segment_max, seen.timestamps.is_some());
        self.acks.note_packet(seen, delays.to_sender_ns);
        while let Some((ack, answer_ns, blocks)) = self.acks.next_due(seen.time_ns) {
            self.take(&ack, answer_ns, &blocks, delays, rows);
        }
        self.begin(seen.offset);
        self.judge_burst(seen, delays);
        self.note_pause(seen, delays);
        if rows.wanted.retransmissions && seen.class != SegmentClass::Retransmission {
            self.originals.push(seen.offset, seen.end(), seen.frame, seen.time_ns, self.board.una());
        }
        if seen.class == SegmentClass::Retransmission {
            self.retransmit(seen, delays, rows);
        } else {
            if seen.offset > self.board.sent() {
                let sign = self.sign(seen.frame, seen.time_ns);
                self.recovery.note_sign(Sign { sent: seen.end(), ..sign });
            }
            self.note_short(seen);
        }
        let is_within_pdu = if seen.end() > self.board.sent() { seen.is_within_pdu } else { self.stop.is_within_pdu };
        self.board.send(seen.end());
        let shift = self.scale.inferred();
        if self.scale.note_outstanding(seen.end() - self.last_acknowledged, self.last_window, seen.length) {
            self.widen(shift);
        }
        self.sent_ns = Some(seen.time_ns);
        self.settle(seen.frame, seen.time_ns.saturating_sub(delays.to_sender_ns / 2), rows);
        let segment = self.size.bytes();
        let room = self.state.rwnd.map(|window| (window - self.state.owin, window));
        self.stop = Stop {
            pipe: self.full_pipe(),
            is_within_pdu,
            is_in_recovery: self.state.is_in_recovery,
            is_window_limited: room.is_some_and(|(room, window)| room < 2 * segment + window / WINDOW_PARTS),
        };
        if room.is_some_and(|(room, _)| room < segment) {
            self.cwnd.fill_window();
        }
        self.stop_row = self.windows.row_count();
        self.peak = self.peak.max(self.stop.pipe);
    }

    /// A packet to it passed the tap.
    #[inline]
    pub fn acknowledge(&mut self, seen: &Observation, delays: Delays, rows: &mut Rows) {
        let Some(acknowledged) = seen.acknowledged else { return };
        if !self.is_begun {
            self.begin(acknowledged);
        }
        if rows.wanted.sacks && seen.sack_count > 0 {
            self.list_sacks(seen, acknowledged, rows);
        }
        self.times.note(i64::from(seen.window) << seen.window_scale.unwrap_or(0), seen.flags.is_syn());
        (self.last_window, self.last_acknowledged) = (seen.window, acknowledged.max(self.last_acknowledged));
        self.acks.push(seen, acknowledged, delays.to_sender_ns);
        if self.acks.is_full()
            && let Some((ack, blocks)) = self.acks.take_oldest()
        {
            self.take(&ack, ack.time_ns.saturating_add(delays.to_sender_ns), &blocks, delays, rows);
        }
    }

    fn begin(&mut self, place: i64) {
        if !self.is_begun {
            self.is_begun = true;
            self.board.start(place);
        }
    }

    /// An ACK reached the sender; its answer could pass the tap at `answer_ns` first.
    fn take(&mut self, ack: &Acknowledgment, answer_ns: i64, blocks: &[(i64, i64)], delays: Delays, rows: &mut Rows) {
        let before = self.state;
        let segment = self.size.bytes();
        let window = self.scale.bytes(ack);
        let una_before = self.board.una();
        let is_advance = ack.acknowledged > una_before;
        let has_news = self.take_blocks(ack, blocks, rows);
        if is_advance {
            self.board.acknowledge(ack.acknowledged);
            self.remembered.acknowledge(
                ack.acknowledged,
                ack.timestamps.map(|(_, echo)| echo),
                &mut rows.retransmissions,
            );
            self.advanced_ns = answer_ns;
            self.is_probed = false;
            self.drop_short();
            self.cwnd.acknowledge(ack.acknowledged, self.board.sent(), segment);
        } else if ack.length == 0
            && ack.acknowledged == una_before
            && ack.block_count() == 0
            && before.rwnd == Some(window)
            && self.board.owin() > 0
        {
            self.board.duplicate(segment);
        }
        let is_recovering = self.recovery.cause().is_some();
        if self.board.sacked_bytes() > 0 {
            let sign = self.sign(ack.frame, ack.time_ns);
            self.recovery.note_sign(sign);
            if has_news && self.has_shown_loss(segment) {
                self.board.lose_below(self.board.highest_sacked());
            }
        }
        let pipe = self.board.pipe();
        let mut where_to = self.recovery_rows(rows);
        if is_recovering && is_advance {
            if self.recovery.acknowledge(self.board.una(), ack.frame, ack.time_ns, pipe, &mut where_to) {
                self.board.forget_losses();
                self.recovered_ns = Some(answer_ns);
                self.cwnd.reduce();
            }
        } else if is_advance {
            self.recovery.acknowledge(self.board.una(), ack.frame, ack.time_ns, pipe, &mut where_to);
        }
        if is_advance || has_news || before.rwnd != Some(window) {
            if !self.between.has_ack {
                self.between.has_ack = true;
                self.first_ack_ns = answer_ns;
                self.between.calm_ns = answer_ns.saturating_sub(self.last_ack_ns);
            }
            self.last_ack_ns = answer_ns;
        }
        self.between.has_request |= ack.length > 0;
        let room = |owin: i64, window: Option<i64>| window.is_none_or(|window| window - owin >= segment);
        let has_opened_window =
            !room(before.owin, before.rwnd) && room(self.board.owin(), Some(window)) && before.rwnd.is_some();
        self.state.rwnd = Some(window);
        self.settle(ack.frame, answer_ns.saturating_sub(delays.to_sender_ns / 2), rows);
        self.state.last_ack = Some(LastAck { answer_ns, is_advance, has_opened_window, owin: self.state.owin });
    }

    fn recovery_rows<'a>(&self, rows: &'a mut Rows) -> recovery::Rows<'a> {
        recovery::Rows {
            table: &mut rows.recoveries,
            wanted: rows.wanted.recoveries,
            connection: self.connection,
            is_from_client: self.is_from_client,
        }
    }

    /// Whether the scoreboard shows a loss (RFC 6675, section 4, IsLost; RFC 8985 while one is repaired).
    fn has_shown_loss(&self, segment: i64) -> bool {
        self.recovery.cause().is_some()
            || self.board.sacked_bytes() > (DUPLICATES - 1) * segment
            || self.board.sacked_count() as i64 >= DUPLICATES
    }

    /// True when a block told something new.
    fn take_blocks(&mut self, ack: &Acknowledgment, blocks: &[(i64, i64)], rows: &mut Rows) -> bool {
        let mut has_news = false;
        let blocks = blocks.get(..ack.block_count()).unwrap_or_default();
        for (index, &(left, right)) in blocks.iter().enumerate() {
            if index == 0 && is_duplicate(blocks, ack.acknowledged) {
                self.remembered.duplicate_arrived(left, right, &mut rows.retransmissions);
            } else {
                has_news |= self.board.sack(left, right);
            }
        }
        has_news
    }

    fn list_sacks(&self, seen: &Observation, acknowledged: i64, rows: &mut Rows) {
        for (index, &(left, right)) in seen.sacks().iter().enumerate() {
            rows.sacks.push(Sack {
                connection: self.connection,
                to_target: self.is_from_client,
                frame: seen.frame,
                time_ns: seen.time_ns,
                left_offset_bytes: left,
                right_offset_bytes: right,
                is_duplicate: index == 0 && is_duplicate(seen.sacks(), acknowledged),
            });
        }
    }

    /// A packet begins a burst: the one before it can be judged.
    #[inline]
    fn judge_burst(&mut self, seen: &Observation, delays: Delays) {
        let since_ns = seen.time_ns.saturating_sub(self.sent_ns.unwrap_or(seen.time_ns)).max(0);
        if !self.between.has_ack && !self.between.has_request {
            if since_ns < PAUSE_MAX_NS {
                self.spacing_ns += (since_ns - self.spacing_ns) / SPACING_SMOOTHING;
            }
            return;
        }
        let patience_ns = delays.round_trip_ns / 2 + PATIENCE_MIN_NS;
        let between = Between {
            answer_ns: seen.time_ns.saturating_sub(self.first_ack_ns).max(0),
            is_long_pause: since_ns >= delays.to_sender_ns / LONG_PARTS,
            is_pause: since_ns >= SPACINGS * self.spacing_ns,
            is_new: seen.class == SegmentClass::New,
            ..self.between
        };
        let estimate = self.cwnd.judge(self.stop, between, patience_ns, self.size.bytes());
        if let Some(estimate) = estimate {
            // where a loss is repaired, and in slow start, an ACK changes the window
            let until = if self.stop.is_in_recovery || self.cwnd.is_growing() {
                self.stop_row
            } else {
                self.windows.row_count()
            };
            let rows = self.burst_row..until;
            for row in rows {
                if let (Some(cwnd), Some(is_valid)) =
                    (self.windows.cwnd_estimate_bytes.get_mut(row), self.windows.is_valid.get_mut(row))
                {
                    (*cwnd, *is_valid) = (estimate, true);
                }
            }
            if let Some(before) = self.before_pause.take()
                && estimate * RESTART_DENOMINATOR <= before * RESTART_NUMERATOR
            {
                self.restart_count += 1;
            }
        }
        self.burst_row = self.windows.row_count();
        self.between = Between::default();
    }

    /// After a pause a sender may begin anew with a small window (RFC 5681, section 4.1).
    #[inline]
    fn note_pause(&mut self, seen: &Observation, delays: Delays) {
        let Some(sent_ns) = self.sent_ns else { return };
        let pause_ns = seen.time_ns.saturating_sub(sent_ns);
        if pause_ns >= IDLE_MIN_NS.max(2 * delays.round_trip_ns) && self.board.owin() == 0 {
            self.before_pause = Some(self.peak);
            self.peak = 0;
            self.cwnd.reduce();
        }
    }

    fn retransmit(&mut self, seen: &Observation, delays: Delays, rows: &mut Rows) {
        let heard_ns = self.advanced_ns.max(self.sent_ns.unwrap_or(i64::MIN));
        let circumstances = Circumstances {
            una: self.board.una(),
            sent: self.board.sent(),
            sacked_bytes: self.board.sacked_bytes(),
            recovery: self.recovery.cause(),
            has_just_recovered: self.recovered_ns == Some(self.advanced_ns),
            timeout_point: self.timeout_point,
            quiet_ns: seen.time_ns.saturating_sub(heard_ns),
            round_trip_ns: delays.round_trip_ns,
            is_probed: self.is_probed,
            has_sack: seen.is_sack_permitted,
        };
        let (cause, is_timer) = retransmission::cause(seen.offset, seen.end(), &circumstances);
        let is_timeout = cause == Cause::Timeout && is_timer;
        let sign = self.sign(seen.frame, seen.time_ns);
        let mut where_to = self.recovery_rows(rows);
        let sign_pipe = self.recovery.first_sign().map_or(sign.pipe, |first| first.pipe);
        let begins = self.recovery.retransmit(cause, is_timeout, sign, seen.length, &mut where_to);
        match cause {
            Cause::Timeout if is_timer => {
                self.board.lose_all();
                self.timeout_point = self.board.sent();
            }
            Cause::TailProbe => self.is_probed = true,
            Cause::Fast => {
                self.board.lose_below(self.board.highest_sacked().max(seen.end()));
            }
            _ => {}
        }
        if begins && self.cwnd.is_slow_start() {
            self.ssthresh_guess.get_or_insert(sign_pipe);
        }
        if begins || is_timeout {
            self.cwnd.lose();
        }
        if cause != Cause::TailProbe {
            self.board.send_again(seen.offset, seen.end());
        }
        if cause != Cause::Timeout || is_timer {
            self.counts[cause as usize] += 1;
        }
        let row = rows.wanted.retransmissions.then(|| {
            let original = self.originals.of(seen.offset);
            rows.retransmissions.push(retransmission::row(seen, self.connection, self.is_from_client, cause, original))
        });
        self.remembered.push(seen, seen.offset <= self.board.una(), row);
        if rows.wanted.retransmissions {
            self.originals.push(seen.offset, seen.end(), seen.frame, seen.time_ns, self.board.una());
        }
    }

    fn sign(&self, frame: u64, time_ns: i64) -> Sign {
        Sign { frame, time_ns, pipe: self.state.pipe, sent: self.board.sent() }
    }

    /// The shift of the window field is larger than it was thought to be: so were all windows.
    #[cold]
    fn widen(&mut self, shift_before: u8) {
        let more = self.scale.inferred() - shift_before;
        for window in self.windows.rwnd_bytes.iter_mut().filter(|window| **window != NULL_NS) {
            *window <<= more;
        }
        self.state.rwnd = self.state.rwnd.map(|window| window << more);
        self.times.begin_anew();
    }

    /// Notes what a segment lacks to be a full one.
    #[inline]
    fn note_short(&mut self, seen: &Observation) {
        let segment = self.size.bytes();
        let over = i64::from(seen.length) % segment;
        if over > 0 && self.short.len() < SHORT_MAX {
            self.short.push_back((seen.end(), segment - over));
            self.short_bytes += segment - over;
        }
    }

    fn drop_short(&mut self) {
        while let Some(&(end, missing)) = self.short.front()
            && end <= self.board.una()
        {
            self.short_bytes -= missing;
            self.short.pop_front();
        }
    }

    /// The pipe, if every segment were a full one: windows are counted in segments.
    fn full_pipe(&self) -> i64 {
        self.state.pipe + self.short_bytes
    }

    /// After a change: the state, the time that the window was full, and a row.
    #[inline]
    fn settle(&mut self, frame: u64, time_ns: i64, rows: &Rows) {
        let (owin, pipe) = (self.board.owin(), self.board.pipe());
        let is_changed = (owin, pipe) != (self.state.owin, self.state.pipe)
            || self.windows.rwnd_bytes.last() != Some(&self.state.rwnd.unwrap_or(NULL_NS));
        (self.state.owin, self.state.pipe) = (owin, pipe);
        self.state.is_in_recovery = self.recovery.cause().is_some();
        self.owin_max = self.owin_max.max(owin);
        self.times.set(time_ns, owin, self.state.rwnd, self.size.bytes());
        if rows.wanted.window && is_changed {
            let time_ns = self.windows.time_ns.last().map_or(time_ns, |&last_ns| last_ns.max(time_ns));
            self.windows.push(Window {
                connection: self.connection,
                to_target: self.is_from_client,
                time_ns,
                frame,
                owin_bytes: owin,
                pipe_bytes: pipe,
                rwnd_bytes: self.state.rwnd.unwrap_or(NULL_NS),
                ..Window::default()
            });
        }
    }

    /// The end of the direction: its row.
    pub fn finish(&mut self, delays: Delays, rows: &mut Rows) -> SenderRow {
        while let Some((ack, blocks)) = self.acks.take_oldest() {
            self.take(&ack, ack.time_ns.saturating_add(delays.to_sender_ns), &blocks, delays, rows);
        }
        rows.window.append(&mut self.windows);
        let (least, largest) = self.times.extremes();
        let [fast, timeouts, probes, unknown] = self.counts;
        let mut row = SenderRow {
            connection: self.connection,
            to_target: self.is_from_client,
            has_super_segments: self.size.has_super_segments(),
            owin_max_bytes: self.owin_max,
            rwnd_min_bytes: least.map_or(NULL_NS, |window| window << self.scale.inferred()),
            rwnd_max_bytes: largest.map_or(NULL_NS, |window| window << self.scale.inferred()),
            window_full_ns: self.times.full_ns,
            zero_window_ns: self.times.zero_ns,
            fast_retransmit_count: fast,
            timeout_count: timeouts,
            tail_probe_count: probes,
            unknown_retransmit_count: unknown,
            spurious_count: self.remembered.spurious_count(),
            recovery_count: self.recovery.count(),
            recovery_ns: self.recovery.time_ns(),
            ssthresh_guess_bytes: self.ssthresh_guess.unwrap_or(NULL_NS),
            restart_after_idle_count: self.restart_count,
            ..SenderRow::default()
        };
        if let Some(bytes) = self.size.known() {
            row.segment_bytes = bytes;
        }
        if let Some((shift, is_inferred)) = self.scale.found() {
            (row.window_scale, row.is_window_scale_inferred) = (shift, is_inferred);
        }
        row
    }
}

/// Whether the first block tells of bytes that came twice (RFC 2883, section 4).
fn is_duplicate(blocks: &[(i64, i64)], acknowledged: i64) -> bool {
    match *blocks {
        [first, ..] if first.0 < acknowledged => true,
        [first, second, ..] => first.0 >= second.0 && first.1 <= second.1,
        _ => false,
    }
}
