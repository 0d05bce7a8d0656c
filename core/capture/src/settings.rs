//! What is wanted of a capture. It comes as JSON, and is checked where it is used.

use std::path::PathBuf;

use serde::Deserialize;

/// What is wanted of a capture.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureSettings {
    /// At least one.
    pub interfaces: Vec<InterfaceSettings>,
    /// Where the packets go.
    pub output: OutputSettings,
    /// When the capture ends by itself.
    pub stop: Limits,
    /// Keeps only what is around slow commands.
    pub trigger: Option<TriggerSettings>,
    /// Finds portals by content.
    pub learn: Option<LearnSettings>,
    /// What the files say of their making.
    pub section: SectionSettings,
    /// dumpcap, as the source of packets in place of libpcap.
    pub helper: Option<PathBuf>,
}

/// An interface and how it is opened.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceSettings {
    /// As `eth0`.
    pub name: String,
    /// As the operating system describes it.
    #[serde(default)]
    pub description: String,
    /// Of libpcap; without one, what goes to and from the ports of iSCSI.
    #[serde(default)]
    pub filter: Option<String>,
    /// Bytes kept of a packet.
    #[serde(default = "whole_packets")]
    pub snaplen: u32,
    /// Whether packets for others are captured, too.
    #[serde(default)]
    pub is_promiscuous: bool,
    /// The kernel's buffer.
    #[serde(default = "kernel_buffer")]
    pub buffer_bytes: u32,
    /// As `adapter_unsynced`; else the host's clock.
    #[serde(default)]
    pub time_stamp_type: Option<String>,
}

fn whole_packets() -> u32 {
    262_144
}

fn kernel_buffer() -> u32 {
    64 << 20
}

/// Where the packets go.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputSettings {
    /// A file, a FIFO, or `-` for standard output; without a ring only.
    pub path: PathBuf,
    /// Whether a file that exists is overwritten.
    pub is_forced: bool,
    /// When a file is followed by the next.
    pub next_file: Option<Limits>,
    /// Files kept at most, the last ones.
    pub kept_files: Option<usize>,
}

/// Bounds, whichever is reached first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Packets written.
    pub packets: Option<u64>,
    /// Time since the beginning.
    pub duration_ns: Option<u64>,
    /// Bytes written.
    pub bytes: Option<u64>,
    /// Files written.
    pub files: Option<u64>,
}

/// Keeps only what is around slow commands.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerSettings {
    /// As `latency>50ms`.
    pub condition: String,
    /// How long before such a command.
    pub before_ns: i64,
    /// How long after its end.
    pub after_ns: i64,
    /// Memory for what may be needed later.
    pub memory_bytes: usize,
}

/// Finds portals by content.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnSettings {
    /// How long it looks at a time.
    pub look_ns: u64,
    /// How often.
    pub every_ns: u64,
}

/// What the files say of their making.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "the names are those of the file format")]
pub struct SectionSettings {
    pub hardware: String,
    pub operating_system: String,
    pub application: String,
    pub comment: String,
}
