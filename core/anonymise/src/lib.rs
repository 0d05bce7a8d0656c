//! A capture whose tables are equal but for names, and which holds nothing of the original.
//!
//! ```text
//! key        a secret -> numbers that only its owner can repeat (HMAC-SHA-256)
//! address    IP and MAC addresses -> others         name   names, serial numbers, designators -> others
//! text       login text and SendTargets             data   what targets say of logical units; sense data
//! planner    PDUs -> what stands where in each stream, digests included -> plan
//! frame      one packet of TCP: known headers, and the payload of the plan
//! emptied    any other packet: its length, and why it is none of TCP
//! passes     first pass: the plan; second pass: the packets
//! ```
//!
//! Every byte that is written is known: a field of a header that is read, or a name's replacement. Everything else is
//! zero, whatever it was: data, PDUs that were not decoded, options that are not known, other protocols.

mod address;
mod checksum;
mod data;
mod emptied;
mod frame;
mod key;
mod name;
mod passes;
mod plan;
mod planner;
mod text;

pub use key::KEY_BYTES;
pub use passes::{Failure, Outcome, Settings, anonymise};
