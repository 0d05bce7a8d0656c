//! Progress and result of a capture, as JSON.

use std::path::PathBuf;

use serde::Serialize;

/// The caller of a capture.
pub trait Caller {
    /// PortalSearch at the progress, at least every 50 ms; true ends the capture.
    fn watch(&mut self, progress: &Progress) -> bool;

    /// The name of the file with that number, from 1, in a ring; none stops the capture.
    fn next_path(&mut self, number: u64) -> Option<PathBuf>;
}

/// The progress of a capture.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Progress {
    /// Time since the start.
    pub elapsed_ns: u64,
    /// Packets that passed the filters, including dropped ones.
    pub seen_count: u64,
    /// Packets written to files.
    pub written_count: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
    /// Samples of TCP_INFO written to files.
    pub tcp_info_count: u64,
    /// Packets dropped.
    pub dropped_count: u64,
    /// Commands that the trigger found.
    pub slow_count: u64,
    /// Events since the last report.
    pub events: Vec<Event>,
}

/// An event that the user should see at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// A file was created.
    File {
        /// Its name.
        path: String,
    },
    /// Packets were dropped.
    Dropped {
        /// The interface.
        interface: String,
        /// Packets dropped since the last such event.
        count: u64,
        /// Packets dropped in total.
        total: u64,
    },
    /// Portals were found by their content.
    Portals {
        /// Address and port of each.
        portals: Vec<String>,
        /// The new capture filter.
        filter: String,
    },
    /// The trigger found a command.
    Slow {
        /// The command and its latency.
        text: String,
    },
    /// Anything else that limits the value of the capture.
    Warning {
        /// The text.
        text: String,
    },
}

/// Why a capture ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", content = "message", rename_all = "snake_case")]
pub enum End {
    /// The caller stopped it.
    Stopped,
    /// A limit was reached: packets, time, bytes or files.
    Limit,
    /// The reader of its output closed it.
    Closed,
    /// The interface is gone, or reports an error.
    Interface(String),
    /// A file cannot be written.
    Output(String),
}

/// The counts of an interface.
#[derive(Debug, Default, Clone, Serialize)]
pub struct InterfaceCounts {
    /// Its name.
    pub name: String,
    /// LINKTYPE_ value.
    pub link_type: u16,
    /// The last capture filter.
    pub filter: String,
    /// Packets that passed the filter, including dropped ones.
    pub seen_count: u64,
    /// Packets dropped for lack of kernel buffer.
    pub dropped_count: u64,
    /// Packets dropped by the interface or its driver.
    pub dropped_by_interface_count: u64,
    /// Packets written to files.
    pub written_count: u64,
}

/// The result of a capture.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// The interfaces.
    pub interfaces: Vec<InterfaceCounts>,
    /// The existing files.
    pub files: Vec<String>,
    /// The last progress.
    pub progress: Progress,
}
