//! How the number of connections is looked for; never what is found.

use serde::{Deserialize, Serialize};

/// The most connections of a session.
pub const MOST_CONNECTIONS: u16 = 64;

/// Which search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuningRule {
    /// Brackets the peak of goodput and narrows it by the golden section.
    GoldenSection,
    /// Reckons the number from what one connection gives, and confirms it.
    #[default]
    Predicted,
}

/// How the number of connections is found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TuningSettings {
    /// Which search.
    pub rule: TuningRule,
    /// For how long a number is measured.
    pub measure_ns: i64,
    /// Measures until so much has come, in place of a time.
    pub measure_bytes: Option<u64>,
    /// Measures as soon as the connections are there, not when each has ended a command since.
    pub is_unsettled: bool,
    /// With how many the golden section begins; the prediction begins with one.
    pub start_connections: u16,
    /// Never more than so many, 1 to 64.
    pub most_connections: u16,
    /// Bytes per second that the path carries, where it is known.
    pub line_bytes_per_s: Option<f64>,
}

impl Default for TuningSettings {
    fn default() -> Self {
        Self {
            rule: TuningRule::default(),
            measure_ns: 3_000_000_000,
            measure_bytes: None,
            is_unsettled: false,
            start_connections: 4,
            most_connections: MOST_CONNECTIONS,
            line_bytes_per_s: None,
        }
    }
}
