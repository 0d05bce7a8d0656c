//! Rows about the senders of one connection, before they go to the tables.

use crate::tables::{Flights, Rare, Recoveries, Retransmissions, RoundTrips, RttWindows, Sacks, Wanted, Windows};
use serde::{Deserialize, Serialize};

/// Rows of one connection, in time order. `to_target` means "from the client" until they are handed over.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Rows {
    pub sacks: Rare<Sacks>,
    pub window: Rare<Windows>,
    pub rtt: Rare<RttWindows>,
    pub round_trips: Rare<RoundTrips>,
    pub retransmissions: Rare<Retransmissions>,
    pub recoveries: Rare<Recoveries>,
    pub flights: Rare<Flights>,
    pub wanted: Wanted,
}
