//! One direction of a connection as its sender sees it: bytes in flight, window, losses, congestion window.
//!
//! ```text
//! acknowledgments     when an ACK reaches the sender        scoreboard          bytes in flight, SACKed, lost
//! segment_size        a full segment                        retransmission      cause of a retransmission
//! window_scale        the shift of the window field         recovery            recovery from a loss
//! window_time         how long the window was full          originals           which packet carried a byte first
//! short_segments      bytes that segments lack to be full   sender_state        the state after a packet
//! lost_acks           retransmissions for lost ACKs         delayed_acks        ACKs that were held back
//!
//! pauses              what the pauses of a sender show:
//!   burst             packets sent without an ACK between them, and the stop at their end (stop)
//!   congestion_window estimate of cwnd, confirmed by ack_clock, held by window_rows
//!   buffer_level      the level of a full send buffer, and when it was full (send_buffer)
//!   limits            how long what held the sender
//!   reductions        the congestion control
//! ```
//!
//! In the time of the data at the tap, an ACK counts from the earliest time of its answer at the tap. Instants at the
//! sender, in the table `window`, are half an RTT earlier.

use super::Rows;
use super::ack_clock::Flight;
use super::acknowledgments::{Acknowledgment, Acknowledgments};
use super::delayed_acks::{DelayedAcks, Held};
use super::lost_acks::{Again, LostAcks, Place};
use super::observation::{Observation, is_duplicate};
use super::originals::Originals;
use super::pauses::{Now, Pauses};
use super::recovery::{self, Recovery, Sign};
use super::retransmission::{self, Cause, Circumstances, Remembered};
use super::scoreboard::Scoreboard;
use super::segment_size::SegmentSize;
use super::send_buffer::Span;
use super::sender_state::{Delays, LastAck, SenderState};
use super::short_segments::ShortSegments;
use super::stop::Stop;
use super::window_scale::{WINDOW_PARTS, WindowScale};
use super::window_time::WindowTime;
use crate::tables::{NULL_NS, NULL_U8, NULL_U64, Sack, SenderRow, Window};
use crate::tcp::half::SegmentClass;

/// Duplicate ACKs, or SACKed segments, that show a loss (RFC 5681, section 3.2; RFC 6675, section 4).
const DUPLICATES: i64 = 3;

/// The sender of one direction.
#[derive(Debug, Default)]
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
    pauses: Pauses,
    short: ShortSegments,
    lost_acks: LostAcks,
    delayed: DelayedAcks,
    /// The window field of the last ACK that arrived.
    last_window: u16,
    /// Time of the last progress, and whether that ended a recovery.
    advanced_ns: i64,
    recovered_ns: Option<i64>,
    is_probed: bool,
    /// Bytes below this offset were in flight at the last timeout.
    timeout_point: i64,
    /// Retransmissions by cause.
    counts: [u32; 4],
    owin_max: i64,
    /// Maximum bytes in flight since the last snapshot.
    owin_peak: i64,
    ssthresh_guess: Option<i64>,
}

impl Sender {
    /// A new sender.
    pub fn new(connection: u32, is_from_client: bool) -> Self {
        Self { connection, is_from_client, advanced_ns: i64::MIN, timeout_point: i64::MIN, ..Self::default() }
    }

    /// Its state after its last packet.
    pub fn state(&self) -> SenderState {
        self.state
    }

    /// Payload of a full segment, or the usual one.
    pub fn segment_bytes(&self) -> i64 {
        self.size.bytes()
    }

    /// Notes what one of its packets, with or without payload, acknowledges.
    #[inline]
    pub fn note_acknowledged(&mut self, seen: &Observation) {
        self.acks.note_acknowledged(seen.acknowledged);
    }

    /// Processes one of its packets with payload.
    #[inline]
    pub fn transmit(&mut self, seen: &Observation, delays: Delays, rows: &mut Rows) {
        if matches!(seen.class, SegmentClass::Probe | SegmentClass::Copy | SegmentClass::Outside) {
            return;
        }
        self.size.note(seen.length, seen.segment_max, seen.timestamps.is_some());
        self.acks.note_packet(seen, delays.to_sender_ns);
        if let Some((count, heard)) = self.lost_acks.send(seen) {
            self.lose_acks(count, heard, rows);
        }
        while let Some((ack, answer_ns, blocks)) = self.acks.next_due(seen.time_ns) {
            self.take(&ack, answer_ns, &blocks, delays, rows);
        }
        self.begin(seen.offset);
        let has_more = self.pauses.burst.stop.is_within_pdu || !self.pauses.burst.has_request();
        let segment = self.size.bytes();
        let mut where_to = recovery_rows(self.connection, self.is_from_client, rows);
        self.delayed.send(seen, has_more, segment, delays.round_trip_ns, &mut where_to);
        let last_ns = self.pauses.burst.last_ns();
        // an overtaken packet was sent before others, not now
        if seen.class != SegmentClass::Reordered {
            self.end_pause(seen, last_ns, delays);
        }
        if rows.wanted.retransmissions && seen.class != SegmentClass::Retransmission {
            self.originals.push(seen.offset, seen.end(), seen.frame, seen.time_ns, self.board.una());
        }
        if seen.class == SegmentClass::Retransmission {
            self.retransmit(seen, last_ns, delays, rows);
        } else {
            if seen.offset > self.board.sent() {
                let sign = self.sign(seen.frame, seen.time_ns);
                self.recovery.note_sign(Sign { sent: seen.end(), ..sign });
            }
            self.short.push(seen.end(), seen.length, self.size.bytes());
        }
        let is_within_pdu =
            if seen.end() > self.board.sent() { seen.is_within_pdu() } else { self.pauses.burst.stop.is_within_pdu };
        if self.scale.is_inferred() {
            let shift = self.scale.inferred();
            let latest = self.acks.arrived_by(seen.time_ns.saturating_sub(delays.to_sender_ns));
            let (acknowledged, window) = latest.unwrap_or((self.board.una(), self.last_window));
            let outstanding = seen.end() - acknowledged;
            // a later ACK may have been faster than the path
            let is_exact = delays.to_sender_ns == 0;
            let least = if is_exact { outstanding } else { outstanding - outstanding / WINDOW_PARTS };
            if self.scale.note_outstanding(least, window, seen.length) {
                self.widen(shift);
            }
        }
        // bytes beyond the window show that a later ACK had arrived
        while !self.scale.is_inferred()
            && self.state.rwnd.is_some_and(|window| seen.end() - self.board.una() > window)
            && let Some((ack, blocks)) = self.acks.take_oldest()
        {
            self.take(&ack, seen.time_ns, &blocks, delays, rows);
        }
        self.board.send(seen.end());
        self.settle(seen.frame, seen.time_ns.saturating_sub(delays.to_sender_ns / 2), rows);
        let segment = self.size.bytes();
        let room = self.state.rwnd.map(|window| (window - self.state.owin, window));
        let has_room = |bytes: i64| room.is_none_or(|(room, _)| room >= bytes);
        if !has_room(segment) {
            self.pauses.cwnd.fill_window();
        }
        // far from the sender, what is in flight is known less exactly than the window
        let is_beyond = delays.to_sender_ns > 0 && self.pauses.cwnd.is_beyond_window() && self.scale.is_proven();
        self.state.is_window_full = !has_room(segment);
        self.state.is_window_smaller = is_beyond || (!has_room(2 * segment) && self.pauses.cwnd.is_window_full());
        let stop = Stop {
            flight: Flight {
                pipe: self.state.pipe + self.short.missing_bytes(),
                sent: self.board.sent() + self.short.missing_in_all(),
                end: self.board.sent(),
                una: self.board.una(),
            },
            room: room.map(|(room, _)| room),
            lost: self.board.owin() - self.board.sacked_bytes() - self.state.pipe,
            is_within_pdu,
            left: seen.left_of_pdu.map(i64::from),
            is_in_recovery: self.state.is_in_recovery,
            is_window_limited: is_beyond
                || room.is_some_and(|(room, window)| {
                    let unsure = if delays.to_sender_ns > 0 { window / WINDOW_PARTS } else { 0 };
                    room < 2 * segment + unsure
                }),
        };
        self.pauses.stop(stop);
    }

    /// Processes a packet to it.
    #[inline]
    pub fn acknowledge(&mut self, seen: &Observation, delays: Delays, rows: &mut Rows) {
        let Some(acknowledged) = seen.acknowledged else { return };
        if !self.is_begun {
            self.begin(acknowledged);
        }
        if rows.wanted.sacks {
            self.list_sacks(seen, acknowledged, rows);
        }
        self.times.note(i64::from(seen.window) << seen.window_scale.unwrap_or(0), seen.flags.is_syn());
        if let Some(count) = self.lost_acks.acknowledge(seen, acknowledged, self.size.bytes()) {
            self.remembered.follow_lost_acks(count, Place::BeforeTap, rows);
        }
        self.acks.push(seen, acknowledged, delays.to_sender_ns);
        if self.acks.is_full()
            && let Some((ack, blocks)) = self.acks.take_oldest()
        {
            self.take(&ack, ack.time_ns.saturating_add(delays.to_sender_ns), &blocks, delays, rows);
        }
    }

    /// ACKs from before this timestamp never reached the sender, which retransmitted so many packets for that.
    #[cold]
    fn lose_acks(&mut self, count: u32, heard: u32, rows: &mut Rows) {
        while let Some((ack, blocks)) = self.acks.take_before(heard) {
            let blocks = blocks.get(..ack.block_count()).unwrap_or_default();
            if let Some(&(left, right)) = blocks.first().filter(|_| is_duplicate(blocks, ack.acknowledged)) {
                self.remembered.duplicate_arrived(left, right, rows);
            }
        }
        self.remembered.follow_lost_acks(count, Place::BeyondTap, rows);
    }

    fn begin(&mut self, place: i64) {
        if !self.is_begun {
            self.is_begun = true;
            self.board.start(place);
        }
    }

    /// An ACK reached the sender; its answer can pass the tap at `answer_ns` at the earliest.
    fn take(&mut self, ack: &Acknowledgment, answer_ns: i64, blocks: &[(i64, i64)], delays: Delays, rows: &mut Rows) {
        let before = self.state;
        let segment = self.size.bytes();
        let window = self.scale.bytes(ack);
        self.last_window = ack.window;
        let una_before = self.board.una();
        let is_advance = ack.acknowledged > una_before;
        self.note_delay(ack, answer_ns, delays);
        let has_news = self.take_blocks(ack, blocks, rows);
        if is_advance {
            self.board.acknowledge(ack.acknowledged);
            self.remembered.acknowledge(ack.acknowledged, ack.timestamps.map(|(_, echo)| echo), rows);
            self.advanced_ns = answer_ns;
            self.is_probed = false;
            self.short.acknowledge(self.board.una());
            self.pauses.acknowledge(ack.acknowledged, self.board.sent(), segment, answer_ns);
        } else if ack.length == 0
            && ack.acknowledged == una_before
            && ack.block_count() == 0
            && before.rwnd == Some(window)
            && self.board.owin() > 0
        {
            self.board.duplicate(segment);
        }
        if self.board.sacked_bytes() > 0 {
            let sign = self.sign(ack.frame, ack.time_ns);
            self.recovery.note_sign(sign);
            if has_news && self.has_shown_loss(segment) {
                self.board.lose_below(self.board.highest_sacked());
            }
        }
        let pipe = self.board.pipe();
        let mut where_to = self.recovery_rows(rows);
        if is_advance && self.recovery.acknowledge(self.board.una(), ack.frame, ack.time_ns, pipe, &mut where_to) {
            self.board.forget_losses();
            self.recovered_ns = Some(answer_ns);
            self.pauses.reduce();
        }
        if is_advance || has_news || before.rwnd != Some(window) {
            self.pauses.burst.acknowledge(answer_ns);
        }
        if ack.length > 0 {
            self.pauses.burst.request();
        }
        let room = |owin: i64, window: Option<i64>| window.is_none_or(|window| window - owin >= segment);
        let has_opened_window =
            !room(before.owin, before.rwnd) && room(self.board.owin(), Some(window)) && before.rwnd.is_some();
        self.state.rwnd = Some(window);
        self.state.inferred_scale = self.scale.is_inferred().then(|| self.scale.inferred());
        self.settle(ack.frame, answer_ns.saturating_sub(delays.to_sender_ns / 2), rows);
        self.state.last_ack = Some(LastAck { answer_ns, is_advance, has_opened_window, owin: self.state.owin });
    }

    /// An ACK reaches the sender: whether it was held back while the sender waited for it.
    #[inline]
    fn note_delay(&mut self, ack: &Acknowledgment, answer_ns: i64, delays: Delays) {
        if ack.length > 0 {
            self.delayed.request();
        } else if (1..2 * self.size.bytes()).contains(&(ack.acknowledged - self.board.una()))
            && self.state.pipe < 2 * self.size.bytes()
            && !self.state.is_window_full
            && let (Some(sent_ns), Some(prompt)) = (self.pauses.burst.last_ns(), delays.prompt)
        {
            let (is_in_recovery, row) = (self.recovery.cause().is_some(), self.recovery.row());
            let held = Held { frame: ack.frame, time_ns: ack.time_ns, answer_ns, is_in_recovery, row };
            self.delayed.acknowledge(held, sent_ns, prompt);
        }
    }

    fn recovery_rows<'a>(&self, rows: &'a mut Rows) -> recovery::Rows<'a> {
        recovery_rows(self.connection, self.is_from_client, rows)
    }

    /// Whether the scoreboard shows a loss (RFC 6675, section 4, IsLost; during a recovery RFC 8985).
    fn has_shown_loss(&self, segment: i64) -> bool {
        self.recovery.cause().is_some()
            || self.board.sacked_bytes() > (DUPLICATES - 1) * segment
            || self.board.sacked_count() as i64 >= DUPLICATES
    }

    /// Processes SACK blocks. True if one is new.
    fn take_blocks(&mut self, ack: &Acknowledgment, blocks: &[(i64, i64)], rows: &mut Rows) -> bool {
        let mut has_news = false;
        let blocks = blocks.get(..ack.block_count()).unwrap_or_default();
        for (index, &(left, right)) in blocks.iter().enumerate() {
            if index == 0 && is_duplicate(blocks, ack.acknowledged) {
                self.remembered.duplicate_arrived(left, right, rows);
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

    /// A packet is sent: what the pause before it shows, if there was one.
    #[inline]
    fn end_pause(&mut self, seen: &Observation, last_ns: Option<i64>, delays: Delays) {
        let segment = self.size.bytes();
        let now = Now {
            una: self.board.una(),
            segment,
            is_window_smaller: self.state.is_window_smaller,
            recovery: self.recovery.count(),
        };
        let stop = self.pauses.end(seen, delays, now);
        if let (Some(room), Some(window)) = (stop.and_then(|stop| stop.room), self.state.rwnd)
            && room < 2 * segment
        {
            self.scale.note_stop(-room, window, self.board.una(), self.board.sent());
        }
        if let (Some(last_ns), 0) = (last_ns, self.board.owin()) {
            self.pauses.rest(last_ns, seen.time_ns, delays.round_trip_ns);
        }
    }

    fn retransmit(&mut self, seen: &Observation, last_ns: Option<i64>, delays: Delays, rows: &mut Rows) {
        let heard_ns = self.advanced_ns.max(last_ns.unwrap_or(i64::MIN));
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
            has_timestamps: seen.timestamps.is_some(),
        };
        // an ACK that passed the tap before then would have arrived, even twice as late as usual
        let heard_ns = seen.time_ns.saturating_sub(delays.to_sender_ns).saturating_sub(delays.round_trip_ns);
        let passed =
            self.acks.arrived_by(heard_ns).map_or(self.board.una(), |(passed, _)| passed.max(self.board.una()));
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
        if begins && self.pauses.cwnd.is_slow_start() {
            self.ssthresh_guess.get_or_insert(sign_pipe);
        }
        if begins || is_timeout {
            self.pauses.lose(is_timeout);
        }
        if cause != Cause::TailProbe {
            self.board.retransmit_range(seen.offset, seen.end());
        }
        if cause != Cause::Timeout || is_timer {
            self.counts[cause as usize] += 1;
        }
        let row = rows.wanted.retransmissions.then(|| {
            let original = self.originals.of(seen.offset);
            rows.retransmissions.push(retransmission::row(seen, self.connection, self.is_from_client, cause, original))
        });
        let recovery = (self.recovery.count(), self.recovery.row());
        self.remembered.push(seen, seen.offset <= self.board.una(), row, recovery, rows);
        let has_sacks = self.board.sacked_bytes() > 0;
        self.lost_acks.retransmit(seen, Again { cause, is_timer, has_sacks, passed });
        if rows.wanted.retransmissions {
            self.originals.push(seen.offset, seen.end(), seen.frame, seen.time_ns, self.board.una());
        }
    }

    fn sign(&self, frame: u64, time_ns: i64) -> Sign {
        Sign { frame, time_ns, pipe: self.state.pipe, sent: self.board.sent() }
    }

    /// The inferred window scale grew: so do all windows.
    #[cold]
    fn widen(&mut self, shift_before: u8) {
        let more = self.scale.inferred() - shift_before;
        self.pauses.windows.widen(more);
        self.state.rwnd = self.state.rwnd.map(|window| window << more);
        self.times.begin_anew();
        self.pauses.limits.widen();
    }

    /// After a change: updates the state and the time of a full window, and adds a row.
    #[inline]
    fn settle(&mut self, frame: u64, time_ns: i64, rows: &Rows) {
        let (owin, pipe) = (self.board.owin(), self.board.pipe());
        let is_changed = (owin, pipe) != (self.state.owin, self.state.pipe)
            || self.pauses.windows.last_rwnd() != Some(self.state.rwnd.unwrap_or(NULL_NS));
        (self.state.owin, self.state.pipe) = (owin, pipe);
        self.state.is_in_recovery = self.recovery.cause().is_some();
        self.owin_max = self.owin_max.max(owin);
        self.owin_peak = self.owin_peak.max(owin);
        self.times.set(time_ns, owin, self.state.rwnd, self.size.bytes());
        if rows.wanted.window && is_changed {
            self.pauses.windows.push(Window {
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

    /// Ends the direction: ACKs on their way arrive.
    pub fn finish(&mut self, delays: Delays, rows: &mut Rows) {
        while let Some((ack, blocks)) = self.acks.take_oldest() {
            self.take(&ack, ack.time_ns.saturating_add(delays.to_sender_ns), &blocks, delays, rows);
        }
        self.pauses.finish(&self.remembered, &mut rows.window);
    }

    /// When its send buffer held it.
    pub fn send_buffer(&self) -> &[Span] {
        self.pauses.send_buffer()
    }

    /// The window scale, and whether a wait for the receiver's window is proven with it.
    pub fn window_scale(&self) -> &WindowScale {
        &self.scale
    }

    /// Maximum bytes in flight since the last call.
    pub fn take_owin_peak(&mut self) -> i64 {
        std::mem::replace(&mut self.owin_peak, self.state.owin)
    }

    /// The first rows of the connection's tables were removed.
    pub fn forget_rows(&mut self, retransmissions: usize, recoveries: usize) {
        self.remembered.forget_rows(retransmissions, recoveries);
        self.recovery.forget_rows(recoveries);
        self.delayed.forget_rows(recoveries);
    }

    /// Removes spans from before.
    pub fn forget(&mut self, before_ns: i64) {
        self.pauses.forget(before_ns);
    }

    /// The row of the sender so far.
    pub fn describe(&self) -> SenderRow {
        let (least, largest) = self.times.extremes();
        let [fast, timeouts, probes, unknown] = self.counts;
        let [window_ns, congestion_ns, buffer_ns] = self.pauses.limits.times_ns();
        let mut row = SenderRow {
            connection: self.connection,
            to_target: self.is_from_client,
            has_super_segments: self.size.has_super_segments(),
            owin_max_bytes: self.owin_max,
            rwnd_min_bytes: least.map_or(NULL_NS, |window| window << self.scale.inferred()),
            rwnd_max_bytes: largest.map_or(NULL_NS, |window| window << self.scale.inferred()),
            window_full_ns: self.times.full_ns,
            zero_window_ns: self.times.zero_ns,
            rwnd_limited_ns: if self.scale.is_proven() { window_ns } else { NULL_NS },
            cwnd_limited_ns: congestion_ns,
            sndbuf_limited_ns: buffer_ns,
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
        if let Some(bytes) = self.size.known() {
            row.segment_bytes = bytes;
        }
        if let Some((shift, is_inferred)) = self.scale.found() {
            (row.window_scale, row.is_window_scale_inferred) = (shift, is_inferred);
        }
        row
    }
}

/// Where the rows of recoveries are written.
fn recovery_rows(connection: u32, is_from_client: bool, rows: &mut Rows) -> recovery::Rows<'_> {
    recovery::Rows { table: &mut rows.recoveries, wanted: rows.wanted.recoveries, connection, is_from_client }
}
