//! Settings of a link, and their validation. Holds values only; `direction` builds the parts.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::loss::{BurstLossSettings, InterruptionSettings};
use super::reorder::ReorderingSettings;

/// Longest delay: a mistaken unit should not look like a dead link.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSettings {
    /// From the initiator to the target.
    pub to_target: DirectionSettings,
    /// From the target to the initiator.
    pub to_initiator: DirectionSettings,
    /// Seed of all random numbers: the same seed and packets have the same fates.
    pub seed: u64,
    /// Whether the log has a record for every packet, not only counters.
    pub is_logging_packets: bool,
}

/// One direction of a link. A packet passes the parts in this order: interruptions, queue, line, loss, delay, jitter, reordering. So a
/// lost packet has used the line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectionSettings {
    /// Bit rate of the line; without one, transmission is instant and there is no queue.
    pub rate_bps: Option<u64>,
    /// Bytes on the line beyond the frame. 0 counts the frame as a capture shows it; 24 adds Ethernet's preamble, check
    /// sequence and gap.
    pub overhead_bytes: u32,
    /// Queue limit in packets, without the one being sent; none for no limit.
    pub queue_packets: Option<u64>,
    /// Queue limit in bytes of frames; none for no limit. Both limits apply.
    pub queue_bytes: Option<u64>,
    /// Probability of independent loss. Multiples of 2^-53, so of 1/65536, are exact.
    pub loss_probability: f64,
    /// Loss in bursts, in addition to independent loss.
    pub burst_loss: Option<BurstLossSettings>,
    /// One-way delay.
    pub delay_ns: u64,
    /// Most jitter in addition to the delay; uniformly distributed from 0.
    pub jitter_ns: u64,
    /// Whether jitter reorders packets. If not, a packet waits for those before it.
    pub is_jitter_reordering: bool,
    /// Share of the packets that are held back.
    pub reorder_probability: f64,
    /// How long they are held back.
    pub reorder_by_ns: u64,
    /// Faults: packets are dropped for a while.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interruptions: Vec<InterruptionSettings>,
    /// Faults: packets are held back for a while.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reorderings: Vec<ReorderingSettings>,
}

impl Default for DirectionSettings {
    fn default() -> Self {
        Self {
            rate_bps: None,
            overhead_bytes: 0,
            queue_packets: Some(1000),
            queue_bytes: None,
            loss_probability: 0.0,
            burst_loss: None,
            delay_ns: 0,
            jitter_ns: 0,
            is_jitter_reordering: false,
            reorder_probability: 0.0,
            reorder_by_ns: 0,
            interruptions: Vec::new(),
            reorderings: Vec::new(),
        }
    }
}

/// A setting that is not valid.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("link setting {direction}.{field} is {value}; it has to be {needed}")]
pub struct SettingsError {
    direction: &'static str,
    field: &'static str,
    value: String,
    needed: &'static str,
}

impl LinkSettings {
    /// Both directions with the same settings.
    pub fn symmetric(direction: DirectionSettings, seed: u64) -> Self {
        Self { to_target: direction.clone(), to_initiator: direction, seed, is_logging_packets: false }
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// The first that is not valid.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.to_target.check("to_target")?;
        self.to_initiator.check("to_initiator")
    }
}

impl DirectionSettings {
    fn check(&self, direction: &'static str) -> Result<(), SettingsError> {
        let error = |field, value, needed| Err(SettingsError { direction, field, value, needed });
        if self.rate_bps == Some(0) {
            return error("rate_bps", "0".into(), "at least 1, or absent");
        }
        let burst_loss = self.burst_loss.unwrap_or_default();
        for (field, probability) in [
            ("loss_probability", self.loss_probability),
            ("burst_loss.enter_probability", burst_loss.enter_probability),
            ("burst_loss.leave_probability", burst_loss.leave_probability),
            ("burst_loss.loss_in_good_probability", burst_loss.loss_in_good_probability),
            ("burst_loss.loss_in_bad_probability", burst_loss.loss_in_bad_probability),
            ("reorder_probability", self.reorder_probability),
        ] {
            if !(0.0..=1.0).contains(&probability) {
                return error(field, probability.to_string(), "from 0 to 1");
            }
        }
        let shares = self.interruptions.iter().map(|fault| ("interruptions.probability", fault.probability));
        for (field, probability) in
            shares.chain(self.reorderings.iter().map(|fault| ("reorderings.probability", fault.probability)))
        {
            if !(0.0..=1.0).contains(&probability) {
                return error(field, probability.to_string(), "from 0 to 1");
            }
        }
        for (field, nanoseconds) in
            [("delay_ns", self.delay_ns), ("jitter_ns", self.jitter_ns), ("reorder_by_ns", self.reorder_by_ns)]
        {
            if nanoseconds > LONGEST_NS {
                return error(field, nanoseconds.to_string(), "at most an hour");
            }
        }
        if self.reorder_probability > 0.0 && self.reorder_by_ns == 0 {
            return error("reorder_by_ns", "0".into(), "more than 0 when packets are to be reordered");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_sets_the_named_fields_and_unknown_ones_are_refused() {
        let json = r#"{"to_target": {"rate_bps": 320000000, "delay_ns": 8000000, "loss_probability": 0.0000152587890625},
            "to_initiator": {"queue_packets": null, "burst_loss": {"enter_probability": 0.01}}, "seed": 7}"#;
        let settings: LinkSettings = serde_json::from_str(json).unwrap();
        assert_eq!(settings.to_target.rate_bps, Some(320_000_000));
        assert_eq!(settings.to_target.queue_packets, Some(1000));
        assert_eq!(settings.to_target.loss_probability * 65536.0, 1.0);
        assert_eq!(settings.to_initiator.queue_packets, None);
        assert_eq!(settings.to_initiator.burst_loss.unwrap().leave_probability, 1.0);
        let again: LinkSettings = serde_json::from_str(&serde_json::to_string(&settings).unwrap()).unwrap();
        assert_eq!(again, settings);
        assert!(serde_json::from_str::<LinkSettings>(r#"{"to_target": {"rate": 1}}"#).is_err());
    }

    #[test]
    fn invalid_settings_are_reported() {
        let refused = |direction| LinkSettings::symmetric(direction, 0).check().unwrap_err().to_string();
        assert_eq!(
            refused(DirectionSettings { rate_bps: Some(0), ..Default::default() }),
            "link setting to_target.rate_bps is 0; it has to be at least 1, or absent"
        );
        for loss_probability in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(
                refused(DirectionSettings { loss_probability, ..Default::default() }).contains("loss_probability is")
            );
        }
        assert!(refused(DirectionSettings { delay_ns: u64::MAX, ..Default::default() }).contains("at most an hour"));
        assert!(
            refused(DirectionSettings { reorder_probability: 0.1, ..Default::default() }).contains("reorder_by_ns")
        );
        assert_eq!(LinkSettings::default().check(), Ok(()));
    }
}
