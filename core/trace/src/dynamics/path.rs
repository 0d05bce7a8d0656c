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
}

impl Path {
    /// A path of which nothing is known.
    pub fn new(connection: u32, is_from_client: bool) -> Self {
        Self { connection, is_from_client, rtt_min_ns: None }
    }

    /// The least round-trip time so far.
    pub fn rtt_min_ns(&self) -> Option<i64> {
        self.rtt_min_ns
    }

    /// A packet of the direction passed the tap.
    pub fn transmit(&mut self, _seen: &Observation) {}

    /// A packet of the opposite direction passed the tap.
    pub fn acknowledge(&mut self, _seen: &Observation, _rows: &mut Rows) {}

    /// What it knows for the sender's row.
    pub fn describe(&self, row: &mut SenderRow) {
        row.connection = self.connection;
        row.to_target = self.is_from_client;
    }
}
