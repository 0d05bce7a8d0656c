//! Operational keys: what a side offers, how two sides agree, and what is in force then (RFC 7143 sections 6.2 and 13).
//!
//! ```text
//! choice       values that are one of a list
//! offers       what one side wants
//! parameters   what is in force
//! negotiation  one side of the talk: offers, answers, and what the peer did wrong
//! violation    what is told of that
//! ```
//!
//! The table of keys is `iscsitrace_wire::key`. This knows keys and values, not PDUs: who may send which when is `login`.

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
