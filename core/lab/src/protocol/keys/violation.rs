//! What a side said that the RFC does not allow, for the person who has to mend it.
//!
//! It never holds more of a peer's text than fits a line, and no secret.

/// What a side did that the RFC does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} (RFC 7143 section {section})")]
pub struct Violation {
    /// In words.
    pub what: String,
    /// The section that says so.
    pub section: &'static str,
}

impl Violation {
    pub(crate) fn new(what: impl Into<String>, section: &'static str) -> Violation {
        Violation { what: what.into(), section }
    }
}

/// A peer's value as it may be shown: escaped, and not too much of it.
pub(crate) fn shown(value: &str) -> String {
    const SHOWN_MAX: usize = 40;
    let start: String = value.chars().take(SHOWN_MAX).collect();
    let more = if start.len() < value.len() { "..." } else { "" };
    format!("{}{more}", start.escape_debug())
}
