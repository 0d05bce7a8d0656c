//! The rows that the dynamics of one connection write.

use crate::tables::{Flights, Recoveries, Retransmissions, RoundTrips, Sacks, Senders, Wanted, Windows};

/// Rows of one connection, in order of time; `to_target` says "from the client" until they are handed over.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Rows {
    pub sacks: Sacks,
    pub window: Windows,
    pub round_trips: RoundTrips,
    pub retransmissions: Retransmissions,
    pub recoveries: Recoveries,
    pub flights: Flights,
    pub senders: Senders,
    pub wanted: Wanted,
}
