//! Settings of one end of a connection; defaults are those of a Linux 6.1 host.
//!
//! It never compares the settings of both ends: the handshake does.

use serde::{Deserialize, Serialize};

/// Congestion control (RFC 5681, RFC 9438).
///
/// Tahoe is that of 4.3BSD-Tahoe (Jacobson, 1988), as simulators still have it; no Linux kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum CongestionControl {
    /// No fast recovery: a loss restarts slow start from one segment. Windows grow with each ACK.
    Tahoe,
    /// Additive increase, multiplicative decrease by half (RFC 5681).
    Reno,
    /// Growth along a cubic function of time, decrease to 0.7 (RFC 9438).
    #[default]
    Cubic,
}

/// The settings of one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Congestion control.
    pub congestion_control: CongestionControl,
    /// HyStart: whether CUBIC leaves slow start when RTTs grow or ACKs arrive in long trains (on in Linux).
    pub hystart: bool,
    /// MSS that this end sends in its SYN, in bytes; timestamps take 12 bytes of it.
    pub mss: u16,
    /// Send buffer: bytes that may be written and not yet acknowledged.
    pub send_buffer_bytes: u32,
    /// Largest receive window, in bytes: that of a Linux socket with twice this SO_RCVBUF.
    pub receive_buffer_bytes: u32,
    /// Delayed ACKs: they wait for a second segment, for data that carries them, or for 40 ms.
    pub delayed_ack: bool,
    /// Nagle: small segments wait while an earlier small one is unacknowledged; off is TCP_NODELAY.
    pub nagle: bool,
    /// Offers selective acknowledgment (RFC 2018, RFC 2883).
    pub sack: bool,
    /// Offers timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offers window scaling (RFC 7323); without it no window exceeds 65535 bytes.
    pub window_scaling: bool,
    /// Initial congestion window, in segments (RFC 6928).
    pub initial_window: u32,
    /// Whether the congestion window shrinks after an idle time longer than the RTO.
    pub slow_start_after_idle: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            congestion_control: CongestionControl::Cubic,
            hystart: true,
            mss: 1460,
            send_buffer_bytes: 4 << 20,
            receive_buffer_bytes: 3 << 20,
            delayed_ack: true,
            nagle: true,
            sack: true,
            timestamps: true,
            window_scaling: true,
            initial_window: 10,
            slow_start_after_idle: true,
        }
    }
}

/// A setting that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Linux accepts no smaller MSS, and an IP packet holds no larger one.
    #[error("mss is {0} bytes; it has to be from 88 to 65483")]
    Mss(u16),
    /// The initial window is too small or too large.
    #[error("initial_window is {0} segments; it has to be from 1 to 1000")]
    InitialWindow(u32),
    /// A buffer smaller than a segment, or larger than the largest window (RFC 7323, section 2.3).
    #[error("{name} is {bytes} bytes; it has to be from {least} to 1073725440")]
    Buffer {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        bytes: u32,
        /// The smallest valid value.
        least: u32,
    },
}

/// The largest window: 65535 shifted by 14 (RFC 7323, section 2.3).
pub const MAXIMUM_WINDOW_BYTES: u32 = 65535 << 14;

impl Settings {
    /// Checks all settings.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn check(&self) -> Result<(), SettingsError> {
        if !(88..=65483).contains(&self.mss) {
            return Err(SettingsError::Mss(self.mss));
        }
        if !(1..=1000).contains(&self.initial_window) {
            return Err(SettingsError::InitialWindow(self.initial_window));
        }
        let least = u32::from(self.mss);
        for (name, bytes) in
            [("send_buffer_bytes", self.send_buffer_bytes), ("receive_buffer_bytes", self.receive_buffer_bytes)]
        {
            if !(least..=MAXIMUM_WINDOW_BYTES).contains(&bytes) {
                return Err(SettingsError::Buffer { name, bytes, least });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_as_json_and_unknown_names_are_refused() {
        let settings: Settings =
            serde_json::from_str(r#"{"congestion_control": "reno", "nagle": false}"#).expect("good");
        assert_eq!(
            settings,
            Settings { congestion_control: CongestionControl::Reno, nagle: false, ..Settings::default() }
        );
        assert!(serde_json::from_str::<Settings>(r#"{"naggle": false}"#).is_err());
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let settings = Settings { mss: 40, ..Settings::default() };
        assert_eq!(settings.check(), Err(SettingsError::Mss(40)));
        let settings = Settings { receive_buffer_bytes: 1000, ..Settings::default() };
        assert_eq!(
            settings.check().expect_err("too small").to_string(),
            "receive_buffer_bytes is 1000 bytes; it has to be from 1460 to 1073725440"
        );
        assert_eq!(Settings::default().check(), Ok(()));
    }
}
