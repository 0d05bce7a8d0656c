//! Packets of one connection, in capture order -> how each of its two senders behaved.
//!
//! ```text
//! observation  one packet
//! rtt          RTT between the tap and either end
//! sender       one direction as its sender sees it: bytes in flight, window, losses, congestion window (parts: see there)
//! flights      one direction at the tap: runs of packets, the pauses between them, what limited the sender
//! busy_line    when the line was busy with the bytes of a direction
//! pace         nanoseconds per byte between packets that follow each other
//! deliveries   the bytes of a direction as they came out of the line, and how long they were in a queue
//! timeline     input of the time breakdown
//! line         the rate of the line that connections share
//! snapshot     state for a live view, and what is dropped to bound memory use
//! ```
//!
//! Directions are those of TCP (0 from the client) until the rows are handed over. The only thing known of iSCSI is
//! whether a packet ends within a PDU. Memory use grows with the wanted rows and with the bytes in flight.

pub mod acknowledgments;
pub mod burst;
mod busy_line;
pub mod congestion_window;
pub mod deliveries;
pub mod flights;
pub mod histogram;
pub mod limits;
pub mod line;
pub mod observation;
pub mod originals;
mod pace;
pub mod recovery;
mod reductions;
pub mod retransmission;
mod rows;
pub mod rtt;
pub mod scoreboard;
pub mod segment_size;
pub mod send_buffer;
pub mod sender;
pub mod sender_state;
pub mod short_segments;
pub mod snapshot;
pub mod timeline;
pub mod window_rows;
pub mod window_scale;
pub mod window_time;

#[cfg(test)]
mod tests;

use crate::tables::{Columns, NULL_NS, SenderRow, Tables, Wanted, budget_part};

use deliveries::Deliveries;
use flights::Flights;
use observation::Observation;
pub use rows::Rows;
use rtt::RttSamples;
use send_buffer::Span;
use sender::Sender;
use sender_state::{BESIDE_PARTS, Delays};
use timeline::{Limited, Timeline};

/// The longest plausible RTT: a jump of the capture clock can look longer.
const ROUND_TRIP_MAX_NS: i64 = 3_600_000_000_000;

/// Both directions of a connection.
#[derive(Debug)]
pub struct Dynamics {
    connection: u32,
    /// The wanted tables.
    wanted: Wanted,
    rows: Rows,
    /// By direction of the data: RTT from the tap to the receiver.
    rtts: [RttSamples; 2],
    senders: [Sender; 2],
    flights: [Flights; 2],
    deliveries: [Deliveries; 2],
}

impl Dynamics {
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
            flights: [0, 1].map(|direction| Flights::new(connection, direction == 0)),
            deliveries: Default::default(),
        }
    }

    /// Processes a packet. Captured copies and packets of other streams are not passed in.
    pub fn observe(&mut self, seen: &Observation) {
        let (own, opposite) = (seen.direction, 1 - seen.direction);
        self.rtts[own].transmit(seen);
        let rtt_ns = self.rtts[opposite].acknowledge(seen, self.senders[opposite].segment_bytes(), &mut self.rows);
        // the sender of the data gets an ACK half an RTT after the tap, and its answer passes the tap half an RTT later
        let delays = self.delays(opposite);
        self.senders[opposite].acknowledge(seen, delays, &mut self.rows);
        if seen.length > 0 {
            let delays = self.delays(own);
            self.senders[own].transmit(seen, delays, &mut self.rows);
            let rtt_ns = delays.to_sender_ns.saturating_add(self.path_ns(own).unwrap_or(0));
            let sender = &self.senders[own];
            let to_sender_ns = delays.to_sender_ns;
            self.flights[own].packet(seen, sender.state(), sender.segment_bytes(), rtt_ns, to_sender_ns);
            self.flights[opposite].request(seen.time_ns, self.delays(opposite).to_sender_ns);
        }
        // last, because the packets it answers arrived before this acknowledgment
        self.senders[own].note_acknowledged(seen);
        let rtt_to_receiver_ns = self.path_ns(opposite).unwrap_or(0);
        let segment_bytes = self.senders[opposite].segment_bytes();
        let delivered_bytes = self.flights[opposite].acknowledge(seen, segment_bytes, rtt_to_receiver_ns);
        if self.wanted.senders || self.wanted.budget {
            let answered_ns = rtt_ns.map(|rtt_ns| seen.time_ns.saturating_sub(rtt_ns));
            self.deliveries[opposite].acknowledge(seen, delivered_bytes, answered_ns, rtt_to_receiver_ns);
            if seen.length > 0 {
                // the same end sends it
                self.deliveries[own].arrive(seen, self.senders[own].segment_bytes(), answered_ns, rtt_to_receiver_ns);
            }
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
        let least_ns = self.path_ns(direction).unwrap_or(0).saturating_add(to_sender_ns);
        let is_beside = to_sender_ns < least_ns / BESIDE_PARTS;
        Delays { to_sender_ns: if is_beside { 0 } else { to_sender_ns }, round_trip_ns }
    }

    /// Ends the connection: moves its rows to the tables, with iSCSI directions.
    pub fn finish(mut self: Box<Self>, is_client_initiator: bool, tables: &mut Tables) -> Timeline {
        for direction in [0, 1] {
            if self.rows.wanted.flights {
                self.flights[direction].rows().for_each(|row| {
                    self.rows.flights.push(row);
                });
            }
            let delays = self.delays(direction);
            self.senders[direction].finish(delays, &mut self.rows);
            let row = self.sender_row(direction);
            if self.rows.wanted.senders {
                self.rows.senders.push(row);
            }
        }
        let deliveries = std::mem::take(&mut self.deliveries);
        let timeline = self.timeline(is_client_initiator, deliveries);
        let rows = &mut self.rows;
        macro_rules! hand_over {
            ($($table:ident)*) => { $(
                if !self.wanted.$table {
                    rows.$table = Default::default();
                }
                if !is_client_initiator {
                    rows.$table.to_target.iter_mut().for_each(|to_target| *to_target = !*to_target);
                }
                tables.$table.append(&mut rows.$table);
            )* };
        }
        hand_over!(sacks window round_trips retransmissions recoveries flights senders);
        timeline
    }

    /// The row of a direction so far.
    fn sender_row(&self, direction: usize) -> SenderRow {
        let mut row = self.senders[direction].describe();
        self.rtts[direction].describe(self.rtts[1 - direction].is_reordered(), &mut row);
        row
    }

    /// The input of the time breakdown so far.
    fn timeline(&self, is_client_initiator: bool, deliveries: [Deliveries; 2]) -> Timeline {
        let [out, back] = if is_client_initiator { [0, 1] } else { [1, 0] };
        let rtt_ns = |direction: usize| self.path_ns(direction);
        let (lost, needless): (Vec<_>, Vec<_>) = recovery_spans(&self.rows).partition(|&(_, is_loss)| is_loss);
        let needless: Vec<Limited> = needless.into_iter().map(|(span, _)| span).collect();
        let [client, server] = deliveries;
        Timeline {
            connection: self.connection,
            hosts: None,
            deliveries: if is_client_initiator { [client, server] } else { [server, client] },
            rtt_to_target_ns: rtt_ns(out),
            rtt_to_initiator_ns: rtt_ns(back),
            line_busy: [out, back].map(|direction| {
                let [there_ns, back_ns] = [direction, 1 - direction].map(|direction| rtt_ns(direction).unwrap_or(0));
                self.flights[direction].busy_intervals(there_ns, back_ns)
            }),
            limited: [out, back]
                .iter()
                .flat_map(|&direction| {
                    let sender = &self.senders[direction];
                    let limited = self.flights[direction].limited(sender.window_scale());
                    limited.flat_map(|limited| by_send_buffer(limited, sender.send_buffer()))
                })
                .map(|limited| judged(limited, &needless))
                .chain(lost.into_iter().map(|(span, _)| span))
                .collect(),
        }
    }
}

/// The spans of recoveries that ended, and whether something was lost: not if all their retransmissions were
/// unnecessary.
fn recovery_spans(rows: &Rows) -> impl Iterator<Item = (Limited, bool)> + '_ {
    let recoveries = &rows.recoveries;
    (0..recoveries.row_count()).filter(|&row| recoveries.time_last_ns[row] != NULL_NS).map(|row| {
        let span = Limited {
            from_ns: recoveries.time_first_ns[row],
            to_ns: recoveries.time_last_ns[row],
            part: budget_part::LOSS_RECOVERY,
            frame: recoveries.frame_first[row],
        };
        (span, recoveries.retransmitted_packets[row] > recoveries.spurious_packets[row])
    })
}

/// A wait of a sender, in pieces: for the send buffer where that was full and the congestion window seemed to be.
fn by_send_buffer(limited: Limited, full: &[Span]) -> Vec<Limited> {
    if limited.part != budget_part::CONGESTION_WINDOW {
        return vec![limited];
    }
    let mut pieces = Vec::new();
    let mut from_ns = limited.from_ns;
    for span in full {
        let until_ns = span.until.map_or(i64::MAX, |until| until.time_ns).min(limited.to_ns);
        let since_ns = span.from.time_ns.max(from_ns);
        if since_ns < until_ns {
            pieces.push(Limited { from_ns, to_ns: since_ns, ..limited });
            pieces.push(Limited { from_ns: since_ns, to_ns: until_ns, part: budget_part::SEND_BUFFER, ..limited });
            from_ns = until_ns;
        }
    }
    pieces.push(Limited { from_ns, ..limited });
    pieces.retain(|piece| piece.from_ns < piece.to_ns || *piece == limited);
    pieces
}

/// A wait of a sender: for the congestion window where it seemed to be for a loss, and nothing was lost.
fn judged(limited: Limited, needless: &[Limited]) -> Limited {
    let is_needless = limited.part == budget_part::LOSS_RECOVERY
        && needless.iter().any(|span| span.from_ns <= limited.to_ns && limited.from_ns <= span.to_ns);
    Limited { part: if is_needless { budget_part::CONGESTION_WINDOW } else { limited.part }, ..limited }
}

#[cfg(test)]
mod by_send_buffer_tests {
    use super::*;
    use send_buffer::Place;

    #[test]
    fn a_wait_for_the_congestion_window_is_cut_where_the_send_buffer_was_full() {
        let part = budget_part::CONGESTION_WINDOW;
        let wait = Limited { from_ns: 10, to_ns: 50, part, frame: 1 };
        let at = |time_ns| Place { time_ns, row: 0 };
        let full = [
            Span { from: at(0), until: Some(at(15)) },
            Span { from: at(20), until: Some(at(30)) },
            Span { from: at(45), until: None },
        ];
        let pieces: Vec<_> =
            by_send_buffer(wait, &full).into_iter().map(|piece| (piece.from_ns, piece.to_ns, piece.part)).collect();
        let buffer = budget_part::SEND_BUFFER;
        assert_eq!(pieces, [(10, 15, buffer), (15, 20, part), (20, 30, buffer), (30, 45, part), (45, 50, buffer)]);
        assert_eq!(by_send_buffer(wait, &[]), [wait]);
        let other = Limited { part: budget_part::RECEIVE_WINDOW, ..wait };
        assert_eq!(by_send_buffer(other, &full), [other]);
    }
}
