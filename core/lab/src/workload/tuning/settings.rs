//! Settings of the tuning of the number of connections.

use serde::{Deserialize, Serialize};

/// The most connections of a session.
pub const MOST_CONNECTIONS: u16 = 64;

/// The search rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TuningRule {
    /// Brackets the peak of goodput and narrows it by the golden section.
    GoldenSection,
    /// The same without regard to scatter: doubles the first number, and the larger of two measurements wins.
    PlainGoldenSection,
    /// No search: keeps the first number, and measures it; then, if set, another one.
    Measured,
    /// Computes the number from the goodput of one connection, and confirms it.
    #[default]
    Predicted,
}

/// The tuning of the number of connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TuningSettings {
    /// The search rule.
    pub rule: TuningRule,
    /// Duration of a measurement.
    pub measure_ns: i64,
    /// Measures until commands with this many bytes have completed, instead of a time.
    pub measure_bytes: Option<u64>,
    /// Measures as soon as the connections are open, not when each has completed a command; and counts completed
    /// commands, not data as it arrives.
    pub is_unsettled: bool,
    /// First number; the prediction starts with one.
    pub start_connections: u16,
    /// Without a search: the number after `change_after` measurements.
    pub change_to: Option<u16>,
    /// Measurements of the first number before the change.
    pub change_after: u32,
    /// Most connections, 1 to 64.
    pub most_connections: u16,
    /// Rate of the path in bytes per second, if it is known.
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
            change_to: None,
            change_after: 1,
            most_connections: MOST_CONNECTIONS,
            line_bytes_per_s: None,
        }
    }
}
