//! The workload: which commands, at which addresses, in which order.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::dealing::DealingRule;
use super::pattern::Pattern;
use super::tuning::TuningSettings;

/// Which commands; or a plain TCP transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// READ.
    #[default]
    Read,
    /// WRITE.
    Write,
    /// Both, by [`WorkloadSettings::read_share`].
    Mixed,
    /// A plain TCP transfer to the initiator: [`crate::bulk`].
    SocketRead,
    /// A plain TCP transfer to the target.
    SocketWrite,
}

impl Operation {
    /// Whether it is a plain TCP transfer, without iSCSI.
    #[must_use]
    pub fn is_socket(self) -> bool {
        matches!(self, Self::SocketRead | Self::SocketWrite)
    }
}

/// Which addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Sequential, from the start again at the end of the span.
    #[default]
    Sequential,
    /// Random in the span, by the seed, at multiples of the call's size.
    Random,
}

/// The layout of data over several targets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Block i of the data is on target i modulo the number of targets; a target's sessions share its blocks.
    #[default]
    Stripe,
    /// Every target has all the data: a write ends when the slowest target has completed it, reads go to the targets
    /// round robin.
    Mirror,
}

/// The data of writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contents {
    /// [`Pattern`]: each block contains its place.
    #[default]
    Pattern,
    /// Zeros.
    Zeros,
}

/// A workload. Sizes are bytes, and multiples of the logical block length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadSettings {
    /// Which commands.
    pub operation: Operation,
    /// Share of reads in a mixed workload, 0 to 1.
    pub read_share: f64,
    /// I/O size: Expected Data Transfer Length of a command, 512 B to 16 MiB.
    pub block_size_bytes: u32,
    /// Size of a system call, if it differs from that of a command: it is split into commands as in a kernel.
    pub system_call_bytes: Option<u64>,
    /// Largest command of a system call; by default the I/O size.
    pub max_transfer_bytes: Option<u32>,
    /// Queue depth: system calls in progress per session; commands, if a call is one command.
    pub queue_depth: u32,
    /// Which addresses.
    pub access: Access,
    /// Seed of random addresses and of the mix.
    pub seed: u64,
    /// Total bytes.
    pub total_bytes: Option<u64>,
    /// Duration: no call starts later.
    pub duration_ns: Option<i64>,
    /// Think time: pause between the end of a call and the next one in its place.
    pub think_time_ns: i64,
    /// First logical block.
    pub start_lba: u64,
    /// Bytes used from there on; by default all.
    pub span_bytes: Option<u64>,
    /// Whether reads are verified against the pattern.
    pub verify: bool,
    /// The data of writes.
    pub contents: Contents,
    /// Seed of the pattern.
    pub pattern_seed: u64,
    /// Sessions per target.
    pub sessions: u16,
    /// Connections per session, 1 to 64.
    pub connections: u16,
    /// Tuning of their number while the workload runs; `queue_depth` then applies to each connection.
    pub tuning: Option<TuningSettings>,
    /// The layout of data over several targets.
    pub layout: Layout,
    /// Which connection carries the next command.
    pub dealing: DealingRule,
    /// Failed commands that are allowed before the run is stopped.
    pub errors_allowed: u64,
}

impl Default for WorkloadSettings {
    fn default() -> Self {
        Self {
            operation: Operation::Read,
            read_share: 0.5,
            block_size_bytes: 65_536,
            system_call_bytes: None,
            max_transfer_bytes: None,
            queue_depth: 1,
            access: Access::Sequential,
            seed: 1,
            total_bytes: None,
            duration_ns: None,
            think_time_ns: 0,
            start_lba: 0,
            span_bytes: None,
            verify: false,
            contents: Contents::Pattern,
            pattern_seed: 1,
            sessions: 1,
            connections: 1,
            tuning: None,
            layout: Layout::Stripe,
            dealing: DealingRule::TurnThenFinished,
            errors_allowed: 0,
        }
    }
}

/// A workload that is not valid.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidWorkload {
    /// A number outside its bounds.
    #[error("{name} is {value}; it has to be {bounds}")]
    OutOfBounds {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        bounds: &'static str,
    },
    /// It has no end.
    #[error("neither total_bytes nor duration_ns is set, so the workload has no end")]
    Endless,
    /// The operation does not belong to this kind of run.
    #[error("the operation has to be {0}")]
    Operation(&'static str),
    /// Zeros cannot be verified.
    #[error("verify needs the pattern as contents of what is written")]
    VerifyZeros,
}

impl WorkloadSettings {
    /// Bytes of a system call.
    #[must_use]
    pub fn call_bytes(&self) -> u64 {
        self.system_call_bytes.unwrap_or(u64::from(self.block_size_bytes))
    }

    /// Most bytes of a command.
    #[must_use]
    pub fn command_bytes(&self) -> u64 {
        u64::from(self.max_transfer_bytes.unwrap_or(self.block_size_bytes))
    }

    /// The contents of a target's volume: the same on all mirror sides, different on every stripe.
    #[must_use]
    pub fn pattern(&self, target: usize) -> Pattern {
        let place = if self.layout == Layout::Stripe { target as u64 } else { 0 };
        Pattern { seed: self.pattern_seed.wrapping_add(place) }
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub fn validate(&self) -> Result<(), InvalidWorkload> {
        const COMMAND: &str = "a multiple of 512 from 512 to 16777216 bytes";
        const CALL: &str = "a multiple of 512 from 512 to 1073741824 bytes";
        let tuning = self.tuning.clone().unwrap_or_default();
        let (most, start, measure_ns) = (tuning.most_connections, tuning.start_connections, tuning.measure_ns);
        let change = tuning.change_to.unwrap_or(1);
        let (measure_bytes, line) = (tuning.measure_bytes.unwrap_or(1), tuning.line_bytes_per_s.unwrap_or(1.0));
        let is_size = |bytes: u64, most: u64| (512..=most).contains(&bytes) && bytes.is_multiple_of(512);
        let checks = [
            (
                "block_size_bytes",
                is_size(u64::from(self.block_size_bytes), 16 << 20),
                self.block_size_bytes.to_string(),
                COMMAND,
            ),
            ("max_transfer_bytes", is_size(self.command_bytes(), 16 << 20), self.command_bytes().to_string(), COMMAND),
            ("system_call_bytes", is_size(self.call_bytes(), 1 << 30), self.call_bytes().to_string(), CALL),
            ("queue_depth", (1..=65_536).contains(&self.queue_depth), self.queue_depth.to_string(), "1 to 65536"),
            (
                "sessions",
                !self.operation.is_socket() || self.sessions == 1,
                self.sessions.to_string(),
                "1 for a socket",
            ),
            ("sessions", (1..=1024).contains(&self.sessions), self.sessions.to_string(), "1 to 1024"),
            ("connections", (1..=64).contains(&self.connections), self.connections.to_string(), "1 to 64"),
            (
                "connections",
                self.tuning.is_none() || self.connections == 1 && !self.operation.is_socket(),
                self.connections.to_string(),
                "1, and not of a socket, where their number is looked for",
            ),
            ("most_connections", (1..=64).contains(&most), most.to_string(), "1 to 64"),
            ("start_connections", (1..=64).contains(&start), start.to_string(), "1 to 64"),
            ("change_to", (1..=64).contains(&change), change.to_string(), "1 to 64"),
            ("measure_ns", measure_ns > 0, measure_ns.to_string(), "1 or more"),
            ("measure_bytes", measure_bytes > 0, measure_bytes.to_string(), "1 or more"),
            ("line_bytes_per_s", line > 0.0, line.to_string(), "more than 0"),
            ("read_share", (0.0..=1.0).contains(&self.read_share), self.read_share.to_string(), "0 to 1"),
            ("think_time_ns", self.think_time_ns >= 0, self.think_time_ns.to_string(), "0 or more"),
            ("duration_ns", self.duration_ns.is_none_or(|ns| ns > 0), format!("{:?}", self.duration_ns), "1 or more"),
            ("total_bytes", self.total_bytes != Some(0), "0".to_owned(), "512 or more"),
            ("span_bytes", self.span_bytes != Some(0), "0".to_owned(), "512 or more"),
        ];
        if let Some((name, _, value, bounds)) = checks.into_iter().find(|(_, is_good, ..)| !is_good) {
            return Err(InvalidWorkload::OutOfBounds { name, value, bounds });
        }
        if self.total_bytes.is_none() && self.duration_ns.is_none() {
            return Err(InvalidWorkload::Endless);
        }
        if self.verify && self.contents == Contents::Zeros && self.operation != Operation::Read {
            return Err(InvalidWorkload::VerifyZeros);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl Fn(&mut WorkloadSettings)) -> String {
        let mut settings = WorkloadSettings { total_bytes: Some(1 << 20), ..WorkloadSettings::default() };
        assert_eq!(settings.validate(), Ok(()));
        change(&mut settings);
        settings.validate().unwrap_err().to_string()
    }

    #[test]
    fn invalid_workloads_are_one_line_errors() {
        let text = refused(|settings| settings.block_size_bytes = 1000);
        assert_eq!(text, "block_size_bytes is 1000; it has to be a multiple of 512 from 512 to 16777216 bytes");
        assert_eq!(refused(|settings| settings.connections = 65), "connections is 65; it has to be 1 to 64");
        let text = refused(|settings| settings.total_bytes = None);
        assert_eq!(text, "neither total_bytes nor duration_ns is set, so the workload has no end");
    }

    #[test]
    fn settings_are_read_from_json_and_unknown_names_are_refused() {
        let text =
            r#"{"operation": "mixed", "read_share": 0.7, "system_call_bytes": 512000, "max_transfer_bytes": 130560}"#;
        let settings: WorkloadSettings = serde_json::from_str(text).unwrap();
        assert_eq!((settings.call_bytes(), settings.command_bytes()), (512_000, 130_560));
        let error = serde_json::from_str::<WorkloadSettings>(r#"{"blocksize": 1}"#).unwrap_err();
        assert!(error.to_string().contains("unknown field `blocksize`"), "{error}");
    }
}
