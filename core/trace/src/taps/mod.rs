//! Two captures of the same traffic, read by headers alone: which connections they share, and what happened to their
//! packets between the two taps.
//!
//! ```text
//! header     packet -> the fields that a join compares
//! numbering  connections, numbered as the pass numbers them
//! seen       the connections of one capture
//! join       two captures in lockstep -> pairs of connections
//! direction  one direction of a pair: packets of two taps matched by bytes
//! passage    what one tap has seen and the other not yet
//! stream     sequence numbers -> offsets   copies   packets seen twice
//! evidence   which copy is which           verdict  where a copy stayed   skipped  packets that neither tap saw
//! health     what each capture missed
//! output     rows   envelope  extremes over time   clock  the order of reading
//! ```
//!
//! Tap a is the one nearer to the initiator. Memory grows with connections, and with what is in flight between the taps
//! or missing at one of them; reaching a bound is counted.

mod clock;
mod copies;
mod direction;
mod envelope;
mod evidence;
mod header;
mod health;
mod join;
mod numbering;
mod output;
mod passage;
mod seen;
mod skipped;
mod stream;
#[cfg(test)]
mod tests;
mod verdict;

pub use join::{Pair, join};
pub use seen::{Seen, connections_seen};
