//! Operational keys: what a side offers, how two sides agree, and what is in force then (RFC 7143 sections 6.2 and 13).
//!
//! ```text
//! key          the keys, and how the value of each comes about
//! offers       what one side wants
//! parameters   what is in force
//! negotiation  one side of the talk: offers, answers, and what the peer did wrong
//! violation    what is told of that
//! ```
//!
//! It knows keys and values, not PDUs: who may speak when is `login`.

mod key;
mod negotiation;
mod offers;
mod parameters;
mod violation;

pub use key::{Digest, Key, TaskReporting};
pub use negotiation::{Negotiation, Scope};
pub use offers::{InvalidOffers, Offers};
pub use parameters::Parameters;
pub use violation::Violation;
