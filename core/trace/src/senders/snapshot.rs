//! State of a connection's senders for a live view, and removal of old rows.

use super::SenderPair;
use super::timeline::Timeline;
use crate::tables::{Columns, Tables, Wanted};

/// A sender at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderSnapshot {
    /// Bytes in flight.
    pub owin_bytes: i64,
    /// Maximum bytes in flight since rows were removed.
    pub owin_peak_bytes: i64,
    /// The receiver's window, if known.
    pub rwnd_bytes: Option<i64>,
    /// The smoothed RTT between the tap and the receiver.
    pub rtt_smoothed_ns: Option<i64>,
}

impl SenderPair {
    /// Both senders now, to the target first.
    pub fn snapshots(&self, is_client_initiator: bool) -> [SenderSnapshot; 2] {
        let order = if is_client_initiator { [0, 1] } else { [1, 0] };
        order.map(|direction| {
            let sender = &self.senders[direction];
            SenderSnapshot {
                owin_bytes: sender.state().owin,
                owin_peak_bytes: sender.owin_peak(),
                rwnd_bytes: sender.state().rwnd,
                rtt_smoothed_ns: self.rtts[direction].smoothed_ns(),
            }
        })
    }

    /// Copies the results so far, with iSCSI directions: the rows, and the timeline.
    pub fn copy_to(&self, is_client_initiator: bool, tables: &mut Tables) -> Timeline {
        for direction in [0, 1] {
            let mut row = self.sender_row(direction);
            row.to_target ^= !is_client_initiator;
            tables.senders.push(row);
        }
        self.rows.clone().hand_over(Wanted::ALL, is_client_initiator, tables);
        self.timeline(is_client_initiator, self.deliveries.clone())
    }

    /// Removes rows from before `before_ns`; totals and open recoveries stay.
    pub fn forget(&mut self, before_ns: i64) {
        let held = [0, 1].map(|direction| self.held(direction));
        let rows = &mut self.rows;
        // an open recovery keeps the rows after it
        let count = |first_ns: &[i64]| first_ns.iter().take_while(|&&time_ns| time_ns < before_ns).count();
        let (retransmissions, recoveries) =
            (count(&rows.retransmissions.time_ns), count(&rows.recoveries.time_first_ns));
        if let Some(made) = rows.retransmissions.made() {
            made.drop_first(retransmissions);
        }
        if let Some(made) = rows.recoveries.made() {
            made.drop_first(recoveries);
        }
        for (sender, held) in self.senders.iter_mut().zip(&held) {
            sender.forget_rows(retransmissions, recoveries);
            sender.forget(before_ns, held);
        }
        self.flights.iter_mut().for_each(|flights| flights.forget(before_ns));
        self.deliveries.iter_mut().for_each(|deliveries| deliveries.forget(before_ns));
        self.load.forget(before_ns);
        self.progress.forget(before_ns);
        self.silences.iter_mut().for_each(|silences| silences.forget(before_ns));
    }

    /// Number of rows held, for tests of their removal.
    pub fn row_count(&self) -> usize {
        self.rows.retransmissions.row_count() + self.rows.recoveries.row_count()
    }
}
