//! What all operational keys of Login and Text PDUs have in common: how a value comes about, and which values are none
//! (RFC 7143 section 6.2).
//!
//! It never knows a key by its name: whoever negotiates, or follows a negotiation, has a table of those.

/// How the value in force comes about (RFC 7143 section 6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultFunction {
    /// Each side declares its own.
    Declare,
    /// The first of the originator's list that the responder supports.
    Choose,
    /// The smaller of the two.
    Minimum,
    /// The larger of the two.
    Maximum,
    /// Yes when both say Yes.
    And,
    /// Yes when either says Yes.
    Or,
}

/// Words that are answers and never offers: with them no value comes about (RFC 7143 section 6.2).
pub const RESERVED_VALUES: &[&str] = &["Reject", "Irrelevant", "NotUnderstood"];
