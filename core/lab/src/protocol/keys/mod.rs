//! Operational keys: offers, negotiation, and negotiated parameters (RFC 7143 sections 6.2 and 13).
//!
//! ```text
//! choice       values of list keys
//! offers       the values that one side wants
//! parameters   the negotiated parameters
//! negotiation  one side of the negotiation: offers, answers, checks
//! violation    violations by the peer
//! ```
//!
//! The table of keys is `iscsitrace_wire::key`. This knows keys and values, not PDUs: `login` knows when a key may be
//! sent.

mod choice;
mod negotiation;
mod offers;
mod parameters;
mod violation;

pub use choice::{Digest, TaskReporting};
pub use negotiation::{Negotiation, Scope};
pub use offers::{InvalidOffers, Offers};
pub use parameters::Parameters;
pub use violation::Violation;
