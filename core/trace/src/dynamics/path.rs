//! Round-trip times between the tap and one end of a connection.

use super::Rows;
use super::observation::Observation;
use crate::tables::SenderRow;

/// From the tap to the receiver of one direction, and back.
#[derive(Debug)]
pub struct Path {
    connection: u32,
    is_from_client: bool,
    rtt_min_ns: Option<i64>,
    samples: std::collections::VecDeque<(i64, i64)>,
}

impl Path {
    /// A path of which nothing is known.
    pub fn new(connection: u32, is_from_client: bool) -> Self {
        Self { connection, is_from_client, rtt_min_ns: None, samples: Default::default() }
    }

    /// The least round-trip time so far.
    pub fn rtt_min_ns(&self) -> Option<i64> {
        self.rtt_min_ns
    }

    /// A packet of the direction passed the tap.
    pub fn transmit(&mut self, seen: &Observation) {
        let end = seen.end() + i64::from(seen.flags.is_syn());
        if (seen.length > 0 || seen.flags.is_syn()) && self.samples.len() < 256 {
            self.samples.push_back((if seen.flags.is_syn() { 0 } else { end }, seen.time_ns));
        }
    }

    /// A packet of the opposite direction passed the tap.
    pub fn acknowledge(&mut self, seen: &Observation, _rows: &mut Rows) {
        let Some(acknowledged) = seen.acknowledged else { return };
        while let Some(&(end, time_ns)) = self.samples.front()
            && end <= acknowledged
        {
            self.samples.pop_front();
            let rtt_ns = seen.time_ns.saturating_sub(time_ns);
            self.rtt_min_ns = Some(self.rtt_min_ns.map_or(rtt_ns, |least| least.min(rtt_ns)));
        }
    }

    /// What it knows for the sender's row.
    pub fn describe(&self, row: &mut SenderRow) {
        row.connection = self.connection;
        row.to_target = self.is_from_client;
    }
}
