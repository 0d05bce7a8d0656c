//! Rows about the senders of one connection, before they go to the tables.

use crate::tables::{Flights, Recoveries, Retransmissions, RoundTrips, Sacks, Wanted, Windows};
use serde::{Deserialize, Serialize};

/// Rows of one connection, in time order. `to_target` means "from the client" until they are handed over.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Rows {
    pub sacks: Sacks,
    pub window: Windows,
    pub round_trips: RoundTrips,
    pub retransmissions: Retransmissions,
    pub recoveries: Recoveries,
    pub flights: Flights,
    pub wanted: Wanted,
}
