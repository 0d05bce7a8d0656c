//! What a capture tells while it runs, and at its end. It goes as JSON.

use std::path::PathBuf;

use serde::Serialize;

/// Who wants the capture, and is told of it.
pub trait Caller {
    /// PortalSearch at the progress, at least every 50 ms; true ends the capture.
    fn watch(&mut self, progress: &Progress) -> bool;

    /// The name of the file of that number, counted from 1, when there are several; none ends the capture.
    fn next_path(&mut self, number: u64) -> Option<PathBuf>;
}

/// How far a capture is.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Progress {
    /// Since it began.
    pub elapsed_ns: u64,
    /// Packets that the filters let pass, dropped ones too.
    pub seen_count: u64,
    /// Packets written to files.
    pub written_count: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
    /// Packets dropped for lack of room.
    pub dropped_count: u64,
    /// Commands that the trigger has found.
    pub slow_count: u64,
    /// What happened since the last look.
    pub events: Vec<Event>,
}

/// What a person should be told at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// A file was begun.
    File {
        /// Its name.
        path: String,
    },
    /// Packets were dropped.
    Dropped {
        /// Where.
        interface: String,
        /// How many since the last time that it was told.
        count: u64,
        /// How many in all.
        total: u64,
    },
    /// Portals were found by their content.
    Portals {
        /// Address and port of each.
        portals: Vec<String>,
        /// The capture filter from now on.
        filter: String,
    },
    /// A command was found that the trigger is for.
    Slow {
        /// What it was, and how slow.
        text: String,
    },
    /// Anything else that limits what the capture is worth.
    Warning {
        /// In a sentence.
        text: String,
    },
}

/// Why a capture ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", content = "message", rename_all = "snake_case")]
pub enum End {
    /// Somebody wanted it.
    Stopped,
    /// A limit was reached: so many packets, so long, so many bytes, so many files.
    Limit,
    /// The reader of its output has gone.
    Closed,
    /// The interface has gone, or gives an error.
    Interface(String),
    /// A file cannot be written (on).
    Output(String),
}

/// What was captured on an interface.
#[derive(Debug, Default, Clone, Serialize)]
pub struct InterfaceCounts {
    /// Its name.
    pub name: String,
    /// LINKTYPE_ value.
    pub link_type: u16,
    /// The capture filter at the end.
    pub filter: String,
    /// Packets that the filter let pass, dropped ones too.
    pub seen_count: u64,
    /// Of these, dropped for lack of room in the kernel's buffer.
    pub dropped_count: u64,
    /// Dropped by the interface or its driver, before anybody saw them.
    pub dropped_by_interface_count: u64,
    /// Packets written to files.
    pub written_count: u64,
}

/// How a capture ended.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Why.
    pub end: End,
    /// Of each interface.
    pub interfaces: Vec<InterfaceCounts>,
    /// The files that there are now.
    pub files: Vec<String>,
    /// What was told last.
    pub progress: Progress,
}
