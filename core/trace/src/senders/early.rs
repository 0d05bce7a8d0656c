//! The packets of a connection before its first payload: the analysis of its senders begins with that.
//!
//! Scans, refused and unanswered SYNs never get so far, and cost no more than their packets here.

use super::SenderPair;
use super::observation::Observation;
use crate::tables::Wanted;
use serde::{Deserialize, Serialize};

/// Packets without payload that are kept: more than a handshake has.
const KEPT_MAX: usize = 8;

/// A connection without payload so far.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Early {
    wanted: Wanted,
    packets: Vec<Observation>,
}

impl Early {
    /// A new connection with these tables.
    pub fn new(wanted: Wanted) -> Self {
        Self { wanted, packets: Vec::new() }
    }

    /// Whether as many packets are kept as can be.
    pub fn is_full(&self) -> bool {
        self.packets.len() >= KEPT_MAX
    }

    /// Keeps a packet.
    pub fn keep(&mut self, seen: &Observation) {
        // most connections without payload have one packet
        self.packets.reserve_exact(1);
        self.packets.push(*seen);
    }

    /// Begins the analysis, with the packets so far.
    #[cold]
    pub fn begin(self, connection: u32) -> Box<SenderPair> {
        let mut senders = Box::new(SenderPair::new(connection, self.wanted));
        self.packets.iter().for_each(|packet| senders.observe(packet));
        senders
    }
}
