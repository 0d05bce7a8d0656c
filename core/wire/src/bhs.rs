//! The 48-byte basic header segment of a PDU (RFC 7143 section 11.2.1): a view over as much of it as was captured.
//!
//! ```text
//!  0  |.|I| opcode |F| opcode-specific                          |
//!  4  |TotalAHSLength| DataSegmentLength                        |
//!  8  | LUN, or opcode-specific                                 |
//! 16  | Initiator Task Tag                                      |
//! 20  | opcode-specific (28 bytes) ...                          |
//! ```
//!
//! A field is `None` if its bytes were not captured, if PDUs of this type do not have it, or if the RFC gives it no
//! meaning in this PDU (the LUN of a Data-In without the A bit, StatSN of a Data-In without status). The view does not
//! validate: [`Bhs::is_valid`] does. Nothing after byte 48 is read: AHS, digests and data are the caller's.

mod builder;
mod fields;
mod layout;
mod plausibility;
mod view;

pub use builder::BhsBuilder;
pub use fields::{Field, field_end};
pub use layout::{LENGTH_BYTES, RESERVED_TAG};
pub use plausibility::Invalid;
pub use view::Bhs;
