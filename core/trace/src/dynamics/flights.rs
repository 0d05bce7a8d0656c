//! One direction at the tap: runs of payload packets, the pauses between them, and the pace of the line.

use super::Rows;
use super::observation::Observation;
use super::sender::SenderState;
use crate::tables::SenderRow;

/// The flights of one direction.
#[derive(Debug)]
pub struct Flights {
    connection: u32,
    is_from_client: bool,
}

impl Flights {
    /// A direction of which nothing was seen.
    pub fn new(connection: u32, is_from_client: bool) -> Self {
        Self { connection, is_from_client }
    }

    /// A packet with payload; `sender` is its sender after it.
    pub fn packet(&mut self, _seen: &Observation, _sender: SenderState, _rows: &mut Rows) {}

    /// The end of the direction.
    pub fn finish(&mut self, _rows: &mut Rows) {}

    /// What it knows for the sender's row.
    pub fn describe(&self, row: &mut SenderRow) {
        row.connection = self.connection;
        row.to_target = self.is_from_client;
    }
}
