//! Packets of one connection, in capture order -> how each of its two senders behaved.
//!
//! ```text
//! observation  one packet
//! flight       the ledger of sent packets
//! acks         the ledger of ACKs
//! rtt          RTT between the tap and either end
//! load         RTT between both ends while data are in flight, and the queue that stands then
//! sender       one direction as its sender sees it: bytes in flight, window, losses, congestion window (parts: see there)
//! flights      one direction at the tap: runs of packets, the pauses between them, what limited the sender
//! busy_line    when the line was busy with the bytes of a direction
//! black_hole   segments that never arrive while smaller packets do
//! black_out    times in which nothing passed the path
//! pace         nanoseconds per byte between packets that follow each other
//! deliveries   the bytes of a direction as they came out of the line, and how long they were in a queue (packed)
//! timeline     input of the time breakdown
//! early        packets before the first payload, with which all of this begins
//! silence      when a host seemed silent, and its packets were lost before the tap
//! window_hold  when the receiver's window held a sender that is far from the tap
//! sent_clock   when packets were sent, by their TCP timestamps
//! waits        what senders waited for, by what is known at the end
//! line         the rate of the line that connections share
//! apart        all of this in a thread of its own
//! snapshot     state for a live view, and what is dropped to bound memory use
//! ```
//!
//! Directions are those of TCP (0 from the client) until the rows are handed over. The only thing known of iSCSI is
//! whether a packet ends within a PDU. Memory use grows with the wanted rows and with the bytes in flight.

pub mod ack_clock;
pub mod acks;
pub mod analysis;
pub mod apart;
mod black_hole;
mod black_out;
pub mod buffer_level;
pub mod burst;
mod busy_line;
pub mod congestion_window;
pub mod delayed_acks;
pub mod deliveries;
pub mod early;
pub mod flight;
pub mod flights;
pub mod gap;
pub mod held;
pub mod histogram;
pub mod line;
pub mod load;
pub mod lost_acks;
pub mod observation;
mod pace;
mod packed;
pub mod pauses;
pub mod recovery;
mod reductions;
pub mod retransmission;
pub mod rtt;
pub mod scoreboard;
pub mod segment_size;
pub mod send_buffer;
pub mod sender;
pub mod sender_state;
pub mod sent_clock;
mod silence;
pub mod snapshot;
pub mod steadiness;
pub mod stop;
pub mod timeline;
mod waits;
pub mod window_hold;
pub mod window_rows;
pub mod window_scale;
pub mod window_time;

#[cfg(test)]
mod tests;

use crate::stream::class::SegmentClass;
pub use crate::tables::SenderRows as Rows;
use crate::tables::{NULL_NS, SenderRow, Tables, Wanted, budget_part};
use serde::{Deserialize, Serialize};

use crate::stream::progress::Progress;
use black_hole::BlackHole;
use black_out::{BlackOut, Unanswered};
use deliveries::Deliveries;
use flights::Flights;
use load::{At, Load};
use observation::Observation;
use retransmission::Cause;
use rtt::{ROUND_TRIP_MAX_NS, RttSamples, Sample};
use sender::Sender;
use sender_state::{Delays, is_beside};
use silence::Silences;
use timeline::{Hosts, Limited, Timeline};

/// The RTT does not grow if its median under load exceeds that of the path by at most this part of it.
const FLAT_PARTS: i64 = 8;
/// An RTT from which on a path is long, for the windows that hosts have by default.
const FAR_NS: i64 = 5_000_000;
/// A window that is in flight takes at least this part of the RTT at a pace that is its own.
const WINDOW_OF_RTT: f64 = 0.7;

/// Both directions of a connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SenderPair {
    connection: u32,
    /// The wanted tables.
    wanted: Wanted,
    rows: Rows,
    /// By direction of the data: RTT from the tap to the receiver.
    rtts: [RttSamples; 2],
    senders: [Sender; 2],
    flights: [Flights; 2],
    black_holes: [BlackHole; 2],
    deliveries: [Deliveries; 2],
    load: Load,
    progress: Progress,
    silences: [Silences; 2],
    /// By direction of the data.
    unanswered: [Option<Box<Unanswered>>; 2],
}

impl SenderPair {
    /// A new connection.
    pub fn new(connection: u32, wanted: Wanted) -> Self {
        Self {
            connection,
            wanted,
            // the time breakdown needs the losses
            rows: Rows {
                wanted: Wanted {
                    recoveries: wanted.recoveries || wanted.budget,
                    retransmissions: wanted.retransmissions || wanted.budget,
                    ..wanted
                },
                ..Rows::default()
            },
            rtts: [0, 1].map(|direction| RttSamples::new(connection, direction == 0)),
            senders: [0, 1].map(|direction| Sender::new(connection, direction == 0)),
            flights: [0, 1].map(|direction| Flights::new(connection, direction == 0, wanted.flights)),
            black_holes: Default::default(),
            deliveries: Default::default(),
            load: Load::new(wanted.rtt),
            progress: Progress::default(),
            silences: Default::default(),
            unanswered: Default::default(),
        }
    }

    /// Prefetches what its state points to, and a packet changes.
    pub fn prefetch_queues(&self) {
        for direction in [0, 1] {
            self.rtts[direction].prefetch();
            self.senders[direction].prefetch_queues();
            self.flights[direction].prefetch_queues();
            self.deliveries[direction].prefetch();
        }
    }

    /// Processes a packet. Captured copies and packets of other streams are not passed in.
    pub fn observe(&mut self, seen: &Observation) {
        let (own, opposite) = (seen.direction, 1 - seen.direction);
        if seen.is_progress {
            self.progress.note(seen.time_ns);
        }
        if self.wanted.senders {
            self.black_holes[own].sent(seen);
            self.black_holes[opposite].answered(seen);
        }
        if self.wanted.budget {
            let (segment, rtt_ns) = (self.senders[own].segment_bytes(), self.round_trip_ns());
            let heard_ns = self.silences[own].heard_ns();
            self.silences[own].note(seen, segment, rtt_ns);
            self.silences[opposite].acknowledge(seen.acknowledged);
            if let (Some(unanswered), Some(from_ns)) = (self.unanswered[opposite].take(), heard_ns) {
                self.end_silence(seen, *unanswered, from_ns);
            }
        }
        self.senders[own].note_sent(seen);
        self.rtts[own].transmit(seen, self.senders[own].flight());
        let sample = self.rtts[opposite].acknowledge(seen, self.senders[opposite].flight(), &mut self.rows);
        let rtt_ns = sample.map(|sample| sample.rtt_ns);
        let released_ns = if seen.length > 0 { self.senders[own].released_ns(seen) } else { None };
        // the sender of the data gets an ACK half an RTT after the tap, and its answer passes the tap half an RTT later
        let delays_of_opposite = self.delays(opposite);
        let was_recovering = self.senders[opposite].state().is_in_recovery;
        self.senders[opposite].acknowledge(seen, delays_of_opposite, &mut self.rows);
        if seen.length > 0 {
            let delays = self.delays(own);
            self.senders[own].transmit(seen, delays, &mut self.flights[own], &mut self.rows);
            if seen.class == SegmentClass::Retransmission {
                self.note_retransmission(seen);
            }
            let state = self.senders[own].state();
            if state.owin <= i64::from(seen.length) {
                let acknowledged_ns = state.last_ack.map(|ack| ack.answer.ack_ns(delays.to_sender_ns));
                let since_ns = acknowledged_ns.map(|acknowledged_ns| seen.time_ns.saturating_sub(acknowledged_ns));
                let late_ns = self.senders[own].late_ns().filter(|_| seen.class == SegmentClass::New);
                self.load.resume(own, seen.time_ns, since_ns, self.legs_ns()[own], late_ns);
                if let Some(late_ns) = late_ns {
                    self.load.arrive_late(seen.time_ns, late_ns);
                }
            }
        }
        // last, because the packets it answers arrived before this acknowledgment
        self.senders[own].note_acknowledged(seen);
        let rtt_to_receiver_ns = self.path_ns(opposite).unwrap_or(0);
        let flight = self.senders[opposite].flight();
        let delivered_bytes = self.flights[opposite].acknowledge(seen, flight, rtt_to_receiver_ns);
        if was_recovering && Progress::is_data(delivered_bytes, false) {
            // what was sent before the recovery arrives, while its sender sends nothing new
            self.progress.note(seen.time_ns);
        }
        if self.wanted.senders || self.wanted.budget || self.wanted.rtt {
            self.note_load(seen, sample, released_ns);
            self.load.deliver(opposite, seen.time_ns, delivered_bytes);
        }
        if self.wanted.senders || self.wanted.budget {
            let answered_ns = rtt_ns.map(|rtt_ns| seen.time_ns.saturating_sub(rtt_ns));
            self.deliveries[opposite].acknowledge(seen, delivered_bytes, answered_ns, rtt_to_receiver_ns);
            if seen.length > 0 {
                // the same end sends it
                let sender = &self.senders[own];
                let answered_ns = sender.acks().echoed_ns(seen).max(answered_ns);
                self.deliveries[own].arrive(seen, sender.segment_bytes(), answered_ns, rtt_to_receiver_ns);
            }
        }
    }

    /// A host retransmitted: whether a timer of it did, with what it had sent.
    #[cold]
    fn note_retransmission(&mut self, seen: &Observation) {
        let rows = &self.rows.retransmissions;
        if let (Some(&frame), Some(&cause), Some(&original_ns)) =
            (rows.frame.last(), rows.cause.last(), rows.original_ns.last())
            && frame == seen.frame
            && original_ns != NULL_NS
            && [Cause::Timeout as u8, Cause::TailProbe as u8].contains(&cause)
        {
            Unanswered::retransmit(&mut self.unanswered[seen.direction], original_ns, seen.time_ns);
        }
    }

    /// A packet of a host ends its silence, in which timers of the other host retransmitted.
    #[cold]
    fn end_silence(&mut self, seen: &Observation, unanswered: Unanswered, from_ns: i64) {
        let missing = self.silences[seen.direction].missing_before(seen);
        let rtt_ns = self.round_trip_ns().unwrap_or(0);
        if let Some(black_out) = BlackOut::of(unanswered, from_ns, seen.time_ns, rtt_ns, missing)
            && let Some(row) = self.senders[1 - seen.direction].recovery_row()
        {
            black_out.show(row, &mut self.rows.recoveries);
        }
    }

    /// A host answered, to data or to what released its own: a sample of the RTT under load, if it did not hold that back.
    #[inline]
    fn note_load(&mut self, seen: &Observation, sample: Option<Sample>, released_ns: Option<i64>) {
        let acknowledged_ns = sample.filter(|sample| sample.is_prompt).map(|sample| sample.rtt_ns);
        let echoed_ns = released_ns.map(|released_ns| seen.time_ns.saturating_sub(released_ns));
        let Some(rtt_ns) = acknowledged_ns.into_iter().chain(echoed_ns).min() else { return };
        let at = At {
            time_ns: seen.time_ns,
            in_flight: [0, 1].map(|direction| self.senders[direction].state().owin),
            segment: self.senders[seen.direction].segment_bytes(),
        };
        self.load.answer(seen.direction, rtt_ns, self.legs_ns(), at);
    }

    /// The RTT of the path from the tap to each host; 0 to one beside the tap, none while it is not known.
    fn legs_ns(&self) -> [Option<i64>; 2] {
        // the receiver of a direction is the host of the other
        let paths_ns = [1, 0].map(|direction| self.path_ns(direction));
        let sum_ns = paths_ns.iter().fold(0_i64, |sum_ns, path_ns| sum_ns.saturating_add(path_ns.unwrap_or(0)));
        paths_ns.map(|path_ns| path_ns.map(|path_ns| if is_beside(path_ns, sum_ns) { 0 } else { path_ns }))
    }

    /// The RTT of the path between both hosts.
    fn round_trip_ns(&self) -> Option<i64> {
        let [one_ns, other_ns] = self.legs_ns();
        Some(one_ns?.saturating_add(other_ns?))
    }

    /// Whether a pace is that of a window or send buffer per RTT: a segment, or what a full one holds, takes so much of the RTT
    /// at this pace that the RTT would grow under load, as it does before a line; and it does not.
    fn is_of_window(&self, direction: usize, ns_per_byte: f64) -> bool {
        let Some(path_ns) = self.round_trip_ns() else { return false };
        let (sender, median_ns) = (&self.senders[direction], self.load.median_ns(direction));
        let takes_ns = |bytes: i64| bytes as f64 * ns_per_byte;
        let is_flat = |median_ns: i64, path_ns: i64| median_ns <= path_ns.saturating_add(path_ns / FLAT_PARTS);
        let least_ns = self.rtts.iter().filter_map(RttSamples::least_ns).fold(0_i64, i64::saturating_add);
        let segment_ns = takes_ns(sender.segment_bytes());
        let is_slow = segment_ns > (path_ns / FLAT_PARTS) as f64;
        // behind a line, each segment takes that much longer than a packet without data
        let is_short =
            |median_ns: i64| is_flat(median_ns, least_ns) || ((median_ns - least_ns) as f64) < segment_ns / 2.0;
        let holds = |window: i64| takes_ns(window) >= WINDOW_OF_RTT * path_ns as f64;
        let is_full = || sender.bounded_owin().is_some_and(holds);
        match median_ns {
            Some(median_ns) => is_slow && is_short(median_ns) || is_flat(median_ns, path_ns) && is_full(),
            // far away a pace alone is no line
            None => path_ns >= FAR_NS && is_full(),
        }
    }

    /// The RTT of the path from the tap to the receiver of a direction.
    fn path_ns(&self, direction: usize) -> Option<i64> {
        self.rtts[direction].path_ns(self.rtts[1 - direction].is_reordered())
    }

    /// The delays of the path, for the sender of a direction.
    fn delays(&self, direction: usize) -> Delays {
        let there = &self.rtts[direction];
        let to_sender_ns = self.path_ns(1 - direction).unwrap_or(0);
        let round_trip_ns = there.smoothed_ns().unwrap_or(0).saturating_add(to_sender_ns).min(ROUND_TRIP_MAX_NS);
        // beside a host, the tap measures the host's ACK delay, which is longer than its send delay
        let to_receiver_ns = self.path_ns(direction).unwrap_or(0);
        let whole_ns = to_receiver_ns.saturating_add(to_sender_ns);
        let to_sender_ns = if is_beside(to_sender_ns, whole_ns) { 0 } else { to_sender_ns };
        let least_ns = to_receiver_ns.saturating_add(to_sender_ns);
        let is_reordered = there.is_reordered();
        Delays { to_sender_ns, least_ns, round_trip_ns, prompt: there.prompt(), is_reordered }
    }

    /// Ends the connection: moves its rows to the tables, with iSCSI directions.
    pub fn finish(mut self: Box<Self>, is_client_initiator: bool, tables: &mut Tables) -> Timeline {
        for direction in [0, 1] {
            if self.rows.wanted.flights {
                self.flights[direction].rows().for_each(|row| {
                    self.rows.flights.push(row);
                });
            }
            if self.rows.wanted.rtt {
                self.rows.rtt.append(&mut self.load.rows(self.connection, direction));
            }
            let delays = self.delays(direction);
            self.senders[direction].finish(delays, &mut self.rows);
            if self.wanted.senders {
                let mut row = self.sender_row(direction);
                row.to_target ^= !is_client_initiator;
                tables.senders.push(row);
            }
        }
        let deliveries = std::mem::take(&mut self.deliveries).map(Deliveries::end);
        let timeline = self.timeline(is_client_initiator, deliveries);
        self.rows.hand_over(self.wanted, is_client_initiator, tables);
        timeline
    }

    /// The same, with both ends of the connection.
    fn end(self: Box<Self>, is_client_initiator: bool, hosts: Hosts, tables: &mut Tables) -> Timeline {
        Timeline { hosts: Some(hosts), ..self.finish(is_client_initiator, tables) }
    }

    /// The row of a direction so far.
    fn sender_row(&self, direction: usize) -> SenderRow {
        let mut row = self.senders[direction].describe();
        self.rtts[direction].describe(self.rtts[1 - direction].is_reordered(), &mut row);
        self.black_holes[direction].describe(&mut row);
        self.load.describe(direction, self.round_trip_ns(), &mut row);
        row
    }

    /// When the sender of a direction was held, or when the cause is unknown.
    fn held(&self, direction: usize) -> Vec<Limited> {
        let sender = &self.senders[direction];
        let to_sender_ns = self.delays(direction).to_sender_ns;
        let (mut held, needless) = waits::recoveries(&self.rows.recoveries, direction == 0, to_sender_ns);
        let has_queue = self.load.has_queue(direction, self.round_trip_ns());
        for mut wait in sender.held() {
            if wait.part == budget_part::PROPAGATION && !has_queue {
                wait.part = budget_part::INITIATOR_SERVICE;
            }
            waits::push(wait, sender.send_buffer(), &needless, &mut held);
        }
        held.extend(self.flights[direction].unknown());
        held.extend(sender.held_by_window());
        held
    }

    /// The input of the time breakdown so far.
    fn timeline(&self, is_client_initiator: bool, deliveries: [Deliveries; 2]) -> Timeline {
        let [out, back] = if is_client_initiator { [0, 1] } else { [1, 0] };
        let rtt_ns = |direction: usize| self.path_ns(direction);
        let [client, server] = deliveries;
        Timeline {
            connection: self.connection,
            hosts: None,
            deliveries: if is_client_initiator { [client, server] } else { [server, client] },
            rtt_to_target_ns: rtt_ns(out),
            rtt_to_initiator_ns: rtt_ns(back),
            line_busy: [out, back].map(|direction| {
                let [there_ns, back_ns] = [direction, 1 - direction].map(|direction| rtt_ns(direction).unwrap_or(0));
                self.flights[direction]
                    .busy_intervals(there_ns, back_ns, |ns_per_byte| self.is_of_window(direction, ns_per_byte))
            }),
            queued: Default::default(),
            limited: [out, back].map(|direction| self.held(direction)),
            excess: self.load.excess(self.round_trip_ns()),
            standing: [out, back].map(|direction| self.load.standing_queue(direction, self.round_trip_ns())),
            stalls: waits::stalls(&self.rows.recoveries),
            progress: self.progress.clone(),
            silences: [out, back].map(|direction| self.silences[direction].spans().to_vec()),
        }
    }
}
