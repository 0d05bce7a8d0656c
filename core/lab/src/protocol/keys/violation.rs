//! A violation of the RFC in a negotiation, for a person.
//!
//! It quotes at most one line of a peer's text, and no secret.

/// A violation of the RFC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} (RFC 7143 section {section})")]
pub struct Violation {
    /// Description.
    pub what: String,
    /// The section of RFC 7143.
    pub section: &'static str,
}

impl Violation {
    pub(crate) fn new(what: impl Into<String>, section: &'static str) -> Violation {
        Violation { what: what.into(), section }
    }
}

/// A peer's value for output: escaped and truncated.
pub(crate) fn shown(value: &str) -> String {
    const SHOWN_MAX: usize = 40;
    let start: String = value.chars().take(SHOWN_MAX).collect();
    let more = if start.len() < value.len() { "..." } else { "" };
    format!("{}{more}", start.escape_debug())
}
