//! One direction of a connection as its sender sees it: bytes in flight, window, losses, congestion window.
//!
//! ```text
//! acks                when an ACK reaches the sender        scoreboard          bytes in flight, SACKed, lost
//! flight              the packets that were sent            retransmission      cause of a retransmission
//! window_scale        the shift of the window field         recovery            recovery from a loss
//! window_time         how long the window was full          sender_state        the state after a packet
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
//! Here is what it sends; `acks` is what it hears, `retransmissions` what it retransmits, `row` its row.
//!
//! In the time of the data at the tap, an ACK counts from the earliest time of its answer at the tap. Instants at the
//! sender, in the table `window`, are half an RTT earlier.

mod acks;
mod retransmissions;
mod row;

use crate::senders::Rows;
use crate::senders::ack_clock::InFlight;
use crate::senders::acks::Acks;
use crate::senders::delayed_acks::DelayedAcks;
use crate::senders::flight::Flight;
use crate::senders::flights::{Before, Flights};
use crate::senders::gap::{self, Gap, Held};
use crate::senders::held::{Spans, Times};
use crate::senders::lost_acks::LostAcks;
use crate::senders::observation::Observation;
use crate::senders::pauses::{Now, Pauses};
use crate::senders::recovery::{self, Recovery, Sign};
use crate::senders::retransmission::Remembered;
use crate::senders::scoreboard::Scoreboard;
use crate::senders::send_buffer::Span;
use crate::senders::sender_state::{Delays, SenderNs, SenderState};
use crate::senders::sent_clock::TICK_NS;
use crate::senders::stop::Stop;
use crate::senders::timeline::Limited;
use crate::senders::window_hold::{FREE_PARTS, Sent, WindowHold};
use crate::senders::window_scale::{WINDOW_PARTS, WindowScale};
use crate::senders::window_time::WindowTime;
use crate::stream::class::SegmentClass;
use crate::tables::{NULL_NS, Rare, Window, budget_part};
use serde::{Deserialize, Serialize};

/// So many small segments beside others in flight are no chance: their sender does not use Nagle's algorithm.
const SMALL_TOGETHER_MIN: u32 = 4;

/// The sender of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Sender {
    connection: u32,
    is_from_client: bool,
    is_begun: bool,
    state: SenderState,
    flight: Flight,
    acks: Acks,
    board: Scoreboard,
    scale: WindowScale,
    times: WindowTime,
    remembered: Rare<Remembered>,
    recovery: Recovery,
    pauses: Pauses,
    spans: Spans,
    /// How long it was held in spans that are forgotten.
    held_before: Times,
    hold: WindowHold,
    lost_acks: LostAcks,
    delayed: DelayedAcks,
    /// Small segments that it sent while another one was in flight.
    small_together: u32,
    /// The window field of the last ACK that arrived.
    last_window: u16,
    /// The last progress, and whether that ended a recovery.
    advanced: SenderNs,
    recovered: Option<SenderNs>,
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
        Self { connection, is_from_client, advanced: SenderNs::NEVER, timeout_point: i64::MIN, ..Self::default() }
    }

    /// Prefetches what its state points to.
    pub fn prefetch_queues(&self) {
        self.acks.prefetch();
        self.flight.prefetch();
    }

    /// Its state after its last packet.
    pub fn state(&self) -> SenderState {
        self.state
    }

    /// The delay of the last packet of new data beyond that of the fastest one, where timestamps tell.
    pub fn late_ns(&self) -> Option<i64> {
        self.hold.late_ns()
    }

    /// The packets that it sent.
    #[inline]
    pub fn flight(&self) -> &Flight {
        &self.flight
    }

    /// Payload of a full segment, or the usual one.
    #[inline]
    pub fn segment_bytes(&self) -> i64 {
        self.flight.size().bytes()
    }

    /// Notes one of its packets in the ledgers, before anything reads them.
    #[inline]
    pub fn note_sent(&mut self, seen: &Observation) {
        self.acks.note_echo(seen);
        if seen.length > 0 {
            self.flight.send(seen, self.board.una());
        }
    }

    /// When the packet passed that let it send this one; none if it did not only wait for ACKs. It did if its packet before
    /// ended within a PDU, with data in flight.
    #[inline]
    pub fn released_ns(&self, seen: &Observation) -> Option<i64> {
        let has_more = self.pauses.burst.stop.is_within_pdu && self.state.owin > 0;
        let is_waiting = has_more && !self.state.is_in_recovery && seen.class == SegmentClass::New;
        self.acks.released_ns(seen).filter(|_| is_waiting)
    }

    /// The ACKs to it.
    #[inline]
    pub fn acks(&self) -> &Acks {
        &self.acks
    }

    /// Notes what one of its packets, with or without payload, acknowledges.
    #[inline]
    pub fn note_acknowledged(&mut self, seen: &Observation) {
        self.acks.note_acknowledged(seen.acknowledged);
    }

    /// Processes one of its packets with payload.
    #[inline]
    pub fn transmit(&mut self, seen: &Observation, delays: Delays, flights: &mut Flights, rows: &mut Rows) {
        if matches!(seen.class, SegmentClass::Probe | SegmentClass::Copy | SegmentClass::Outside) {
            return;
        }
        self.times.pass(seen.time_ns);
        let is_near = delays.to_sender_ns < TICK_NS;
        let is_echo = !is_near && self.acks.released_ns(seen).is_some();
        self.acks.note_packet(seen, delays.to_sender_ns);
        if let Some((count, heard)) = self.lost_acks.send(seen) {
            self.lose_acks(count, heard, rows);
        }
        while let Some((ack, answer, blocks)) = self.acks.next_due(seen.time_ns) {
            self.take(&ack, answer, &blocks, delays, rows);
        }
        self.begin(seen.offset);
        let has_request = self.pauses.burst.has_request();
        let has_more = self.pauses.burst.stop.has_more() || !has_request;
        let last_ns = self.pauses.burst.last_ns();
        // near the tap the window that held it is known without its timestamps
        if seen.class == SegmentClass::New && !is_near {
            let sent = Sent {
                had_more: has_more,
                segment: self.segment_bytes(),
                shift: self.scale.found().map(|(shift, _)| shift),
                delays,
                patience_ns: Pauses::patience_ns(delays),
            };
            self.hold.send(seen, self.acks.echoed(), sent);
        }
        let begins_burst = seen.class != SegmentClass::Reordered && self.end_pause(seen, last_ns, delays);
        if seen.class == SegmentClass::Retransmission {
            self.retransmit(seen, last_ns, delays, rows);
        } else if seen.offset > self.board.sent() {
            let sign = self.sign(seen.frame, seen.time_ns);
            self.recovery.note_sign(Sign { sent: seen.end(), ..sign });
        }
        let is_within_pdu =
            if seen.end() > self.board.sent() { seen.is_within_pdu() } else { self.pauses.burst.stop.is_within_pdu };
        if self.scale.is_inferred() {
            let shift = self.scale.inferred();
            let latest = self.acks.arrived_by(SenderNs::of_packet(seen.time_ns).ack_ns(delays.to_sender_ns));
            let known = latest.unwrap_or((self.board.una(), self.last_window));
            // the RTT to the sender may be too long so far; its packet echoes the newest ACK that it can have had
            let echoed = self.acks.echoed_by(seen).map(|tick| (tick.acknowledged, tick.window));
            let (acknowledged, window) = echoed.filter(|echoed| echoed.0 > known.0).unwrap_or(known);
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
            self.take(&ack, SenderNs::of_packet(seen.time_ns), &blocks, delays, rows);
        }
        self.board.send(seen.end());
        self.settle(seen.frame, SenderNs::of_packet(seen.time_ns).at_sender_ns(delays.to_sender_ns), rows);
        let segment = self.segment_bytes();
        let stop = last_ns.map(|_| self.pauses.burst.stop);
        let before = Before { has_request, una: self.board.una() };
        let is_pause = flights.pass(seen, before, stop.as_ref(), segment);
        let gap = stop.as_ref().filter(|_| is_pause || begins_burst).map(|stop| Gap {
            stop,
            seen,
            has_request,
            ack: self.state.last_ack,
            known: self.known_by(seen.time_ns.saturating_add(gap::within_ns(delays.least_ns)), delays.to_sender_ns),
            is_in_recovery: self.recovery.cause().is_some(),
            has_lost: self.recovery.count() > 0,
            is_done: flights.is_done(stop),
            is_near,
            echo_within_ns: is_echo.then(|| Pauses::patience_ns(delays)),
            segment,
            rtt_ns: delays.least_ns,
        });
        if let Some(gap) = &gap {
            let held = gap.held();
            self.spans.note(gap, held.or_else(|| gap.may_be_held()), is_pause);
            if begins_burst {
                self.note_full_window(gap, held);
            }
        }
        self.delayed.send(gap.as_ref(), &mut recovery_rows(self.connection, self.is_from_client, rows));
        flights.add(seen, is_pause, gap.as_ref());
        let room = self.state.rwnd.map(|window| (window - self.state.owin, window));
        let has_room = |bytes: i64| room.is_none_or(|(room, _)| room >= bytes);
        if let Some((_, window)) = room.filter(|(room, _)| *room < segment) {
            self.pauses.cwnd.fill_window(window);
        }
        // far from the sender, what is in flight is known less exactly than the window
        let is_beyond = delays.to_sender_ns > 0
            && room.is_some_and(|(_, window)| self.pauses.cwnd.is_beyond_window(window))
            && self.scale.is_proven();
        self.state.is_window_full = !has_room(segment);
        self.state.is_window_smaller = is_beyond || (!has_room(2 * segment) && self.pauses.cwnd.is_window_full());
        let is_small = i64::from(seen.length) < segment;
        if is_small && seen.class == SegmentClass::New {
            self.note_small(seen, delays);
        }
        // an overtaken packet was sent before others, not now
        let last = stop.filter(|_| seen.class == SegmentClass::Reordered);
        let stop = Stop {
            time_ns: last.map_or(seen.time_ns, |last| last.time_ns),
            length: last.map_or(seen.length, |last| last.length),
            state: SenderState { last_ack: last.map_or(self.state.last_ack, |last| last.state.last_ack), ..self.state },
            small_end: self.pauses.burst.stop.small_end.max(if is_small { seen.end() } else { 0 }),
            flight: InFlight {
                pipe: self.state.pipe + self.flight.short_from(self.board.una()),
                sent: self.board.sent() + self.flight.short(),
                end: self.board.sent(),
                una: self.board.una(),
            },
            room: room.map(|(room, _)| room),
            lost: self.board.owin() - self.board.sacked_bytes() - self.state.pipe,
            is_within_pdu,
            left: seen.left_of_pdu.map(i64::from),
            left_of_burst: i64::from(seen.left_of_burst),
            is_window_limited: is_beyond || room.is_some_and(|(room, window)| room * FREE_PARTS < window),
        };
        self.pauses.stop(stop, delays, segment);
    }

    fn begin(&mut self, place: i64) {
        if !self.is_begun {
            self.is_begun = true;
            self.board.start(place);
        }
    }

    /// What it can have known to be acknowledged, by the ACKs that passed the tap an RTT before. The minimum RTT may belong to
    /// a packet that was answered late.
    fn known_by(&self, time_ns: i64, to_sender_ns: i64) -> i64 {
        let passed = self.acks.acknowledged_at(SenderNs::of_packet(time_ns).ack_ns(to_sender_ns));
        passed.map_or(self.board.una(), |passed| passed.max(self.board.una()))
    }

    /// A small segment while another one is in flight: Nagle's algorithm would have held it back (RFC 9293, section 3.7.4;
    /// Linux's holds nothing else). What the sender can have known counts as acknowledged.
    #[inline]
    fn note_small(&mut self, seen: &Observation, delays: Delays) {
        let small_end = self.pauses.burst.stop.small_end;
        if small_end > self.board.una() {
            let soon_ns = seen.time_ns.saturating_add(gap::within_ns(delays.least_ns));
            let echoed = self.acks.echoed_by(seen).map_or(0, |tick| tick.acknowledged);
            let is_together = small_end > self.known_by(soon_ns, delays.to_sender_ns).max(echoed);
            self.small_together += u32::from(is_together);
        }
    }

    /// A sender that stops at its window again and again proves the scale of that.
    #[inline]
    fn note_full_window(&mut self, gap: &Gap<'_>, held: Option<Held>) {
        if held.is_some_and(|held| held.part == budget_part::RECEIVE_WINDOW && !held.needs_queue)
            && gap.has_more()
            && let (Some(room), Some(window)) = (gap.stop.room, self.state.rwnd)
            && room < 2 * gap.segment
        {
            self.scale.note_stop(-room, window, self.board.una(), gap.stop.flight.end);
        }
    }

    /// A packet is sent: what the pause before it shows, if there was one. Returns whether a burst begins with it.
    #[inline]
    fn end_pause(&mut self, seen: &Observation, last_ns: Option<i64>, delays: Delays) -> bool {
        let now = Now { una: self.board.una(), segment: self.segment_bytes(), recovery: self.recovery.count() };
        let begins_burst = self.pauses.end(seen, delays, now);
        if let (Some(last_ns), 0) = (last_ns, self.board.owin()) {
            self.pauses.rest(last_ns, seen.time_ns, delays.round_trip_ns);
        }
        begins_burst
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
        self.hold.widen();
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
        self.times.set(time_ns, owin, self.state.rwnd, self.segment_bytes());
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
            self.take(&ack, SenderNs::of_ack(ack.time_ns, delays.to_sender_ns), &blocks, delays, rows);
        }
        self.pauses.finish(&self.remembered, &mut rows.window);
    }

    /// The row of its recovery in progress.
    pub fn recovery_row(&self) -> Option<usize> {
        self.recovery.row()
    }

    /// When its send buffer held it.
    pub fn send_buffer(&self) -> &[Span] {
        self.pauses.send_buffer()
    }

    /// When gaps show that it was held. Far from the tap its gaps do not tell which window it was, from when on its timestamps
    /// do.
    pub fn held(&self) -> impl Iterator<Item = Limited> + '_ {
        let told_ns = self.hold.timed_since_ns().unwrap_or(i64::MAX);
        let has_nagle = self.small_together < SMALL_TOGETHER_MIN;
        self.spans.iter(&self.scale, has_nagle).flat_map(move |span| {
            let is_told = span.part == budget_part::RECEIVE_WINDOW && span.to_ns > told_ns;
            let (before, after) = if !is_told {
                (Some(span), None)
            } else {
                let since_ns = span.from_ns.max(told_ns);
                let before = Limited { to_ns: since_ns, ..span };
                let after = Limited { from_ns: since_ns, part: budget_part::CONGESTION_WINDOW, ..span };
                (Some(before).filter(|before| before.from_ns < before.to_ns), Some(after))
            };
            before.into_iter().chain(after)
        })
    }

    /// When the receiver's window held it, far from the tap.
    pub fn held_by_window(&self) -> impl Iterator<Item = Limited> + '_ {
        self.hold.limited(self.scale.is_proven())
    }

    /// The most bytes in flight so far, if they filled the receiver's window or the send buffer: none if neither bounds them.
    pub fn bounded_owin(&self) -> Option<i64> {
        let (_, largest) = self.times.extremes();
        let room = largest.map(|window| (window << self.scale.inferred()) - self.owin_max);
        let is_bounded = room.is_some_and(|room| room < 2 * self.segment_bytes()) || self.pauses.is_buffer_full();
        is_bounded.then_some(self.owin_max)
    }

    /// Maximum bytes in flight since rows were removed.
    pub fn owin_peak(&self) -> i64 {
        self.owin_peak
    }

    /// The first rows of the connection's tables were removed.
    pub fn forget_rows(&mut self, retransmissions: usize, recoveries: usize) {
        if let Some(remembered) = self.remembered.made() {
            remembered.forget_rows(retransmissions, recoveries);
        }
        self.recovery.forget_rows(recoveries);
        self.delayed.forget_rows(recoveries);
    }

    /// Removes spans from before; `held` are all of them.
    pub fn forget(&mut self, before_ns: i64, held: &[Limited]) {
        self.held_before.add_before(before_ns, held);
        self.owin_peak = self.state.owin;
        self.pauses.forget(before_ns);
        self.hold.forget(before_ns);
        self.spans.forget(before_ns);
    }
}

/// Where the rows of recoveries are written.
fn recovery_rows(connection: u32, is_from_client: bool, rows: &mut Rows) -> recovery::Rows<'_> {
    recovery::Rows { table: &mut rows.recoveries, wanted: rows.wanted.recoveries, connection, is_from_client }
}
