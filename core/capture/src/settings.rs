//! The settings of a capture. They come as JSON, and are checked where they are used.

use std::path::PathBuf;

use serde::Deserialize;

/// The settings of a capture.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureSettings {
    /// At least one interface.
    pub interfaces: Vec<InterfaceSettings>,
    /// The output.
    pub output: OutputSettings,
    /// Limits that end the capture.
    pub stop: Limits,
    /// Keeps only the time around slow commands.
    pub trigger: Option<TriggerSettings>,
    /// Finds portals by content.
    pub learn: Option<LearnSettings>,
    /// Interval between samples of the kernel's TCP_INFO.
    pub tcp_info_every_ns: Option<u64>,
    /// Metadata for the files.
    pub section: SectionSettings,
    /// Whether the thread gives up what a capture does not need, for good.
    pub is_confined: bool,
    /// The path of dumpcap, to capture with it instead of libpcap.
    pub helper: Option<PathBuf>,
}

/// An interface and how to open it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceSettings {
    /// The name, such as `eth0`.
    pub name: String,
    /// The operating system's description.
    #[serde(default)]
    pub description: String,
    /// The capture filter; by default the iSCSI ports.
    #[serde(default)]
    pub filter: Option<String>,
    /// Maximum captured bytes of a packet.
    #[serde(default = "whole_packets")]
    pub snaplen: u32,
    /// Whether packets for other hosts are captured, too.
    #[serde(default)]
    pub is_promiscuous: bool,
    /// The kernel's buffer.
    #[serde(default = "kernel_buffer")]
    pub buffer_bytes: u32,
    /// The clock, such as `adapter_unsynced`; by default the host's.
    #[serde(default)]
    pub time_stamp_type: Option<String>,
}

fn whole_packets() -> u32 {
    262_144
}

fn kernel_buffer() -> u32 {
    64 << 20
}

/// The output.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputSettings {
    /// A file, a FIFO, or `-` for standard output; not with a ring.
    pub path: PathBuf,
    /// Whether an existing file is overwritten.
    pub is_forced: bool,
    /// Limits after which the next file starts.
    pub next_file: Option<Limits>,
    /// Which finished files of a ring stay.
    pub keep: Retention,
    /// Files of earlier captures of the ring.
    pub earlier: Vec<PathBuf>,
    /// Whether finished files are compressed.
    pub is_compressed: bool,
}

/// Limits of a ring; a file that exceeds one of them is removed, the oldest first.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Files, the current one included.
    pub files: Option<usize>,
    /// Bytes of all files.
    pub bytes: Option<u64>,
    /// Time since the end of a file.
    pub age_ns: Option<u64>,
    /// Bytes of the file system that stay free.
    pub free_bytes: Option<u64>,
}

/// Limits; the first one reached counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Packets written.
    pub packets: Option<u64>,
    /// Time since the start.
    pub duration_ns: Option<u64>,
    /// Bytes written.
    pub bytes: Option<u64>,
    /// Files written.
    pub files: Option<u64>,
}

/// Keeps only the time around slow commands.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggerSettings {
    /// The condition, such as `latency>50ms`.
    pub condition: String,
    /// Time kept before such a command.
    pub before_ns: i64,
    /// Time kept after its end.
    pub after_ns: i64,
    /// Memory for packets that may be needed later.
    pub memory_bytes: usize,
}

/// Finds portals by content.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnSettings {
    /// Length of a sample.
    pub look_ns: u64,
    /// Time between two samples.
    pub every_ns: u64,
}

/// Metadata for the files.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs, reason = "the names are those of the file format")]
pub struct SectionSettings {
    pub hardware: String,
    pub operating_system: String,
    pub application: String,
    pub comment: String,
}
