//! Why a capture cannot begin: each is one line for the person who asked, and of a kind that a program can tell.

use std::io;
use std::path::Path;

use thiserror::Error;

/// Why a capture cannot begin.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// There is no such interface.
    #[error("there is no interface {0}")]
    NoSuchInterface(String),
    /// The operating system does not let this user capture.
    #[error("no permission to capture on {interface}: {message}")]
    Permission {
        /// The interface.
        interface: String,
        /// What libpcap says.
        message: String,
    },
    /// The interface cannot be opened for another reason.
    #[error("cannot capture on {interface}: {message}")]
    Interface {
        /// The interface.
        interface: String,
        /// What libpcap says.
        message: String,
    },
    /// libpcap does not understand the capture filter.
    #[error("capture filter '{expression}': {message}")]
    Filter {
        /// The filter.
        expression: String,
        /// What libpcap says.
        message: String,
    },
    /// The file cannot be made.
    #[error("cannot write {path}: {message}")]
    Output {
        /// The file.
        path: String,
        /// What the operating system says.
        message: String,
    },
    /// The file exists, and is not to be overwritten.
    #[error("{0} exists; nothing was written (--force overwrites)")]
    Exists(String),
    /// Settings that cannot be meant.
    #[error("{0}")]
    Settings(String),
    /// Somebody wanted the end before it began.
    #[error("stopped before the capture began")]
    Stopped,
}

impl RecordingError {
    /// The kind, in one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoSuchInterface(_) => "no_such_interface",
            Self::Permission { .. } => "permission",
            Self::Interface { .. } => "interface",
            Self::Filter { .. } => "filter",
            Self::Output { .. } => "output",
            Self::Exists(_) => "exists",
            Self::Settings(_) => "settings",
            Self::Stopped => "stopped",
        }
    }

    pub(crate) fn output(path: &Path, error: &io::Error) -> Self {
        let path = path.display().to_string();
        if error.kind() == io::ErrorKind::AlreadyExists {
            Self::Exists(path)
        } else {
            Self::Output { path, message: in_words(error) }
        }
    }
}

/// As the operating system says it, without the number.
pub(crate) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// libpcap's own words.
pub(crate) fn said(error: pcap::Error) -> String {
    match error {
        pcap::Error::PcapError(message) => message,
        error => error.to_string(),
    }
}
