//! Why a capture cannot begin: one line for the user, and a kind for programs.

use std::io;
use std::path::Path;

use thiserror::Error;

/// Why a capture cannot begin.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The interface does not exist.
    #[error("there is no interface {0}")]
    NoSuchInterface(String),
    /// The user has no permission to capture.
    #[error("no permission to capture on {interface}: {message}")]
    Permission {
        /// The interface.
        interface: String,
        /// libpcap's message.
        message: String,
    },
    /// The interface cannot be opened for another reason.
    #[error("cannot capture on {interface}: {message}")]
    Interface {
        /// The interface.
        interface: String,
        /// libpcap's message.
        message: String,
    },
    /// libpcap rejects the capture filter.
    #[error("capture filter '{expression}': {message}")]
    Filter {
        /// The filter.
        expression: String,
        /// libpcap's message.
        message: String,
    },
    /// The file cannot be created.
    #[error("cannot write {path}: {message}")]
    Output {
        /// The file.
        path: String,
        /// The operating system's message.
        message: String,
    },
    /// The file exists and must not be overwritten.
    #[error("{0} exists; nothing was written (--force overwrites)")]
    Exists(String),
    /// Invalid settings.
    #[error("{0}")]
    Settings(String),
    /// The caller stopped it before it began.
    #[error("stopped before the capture began")]
    Stopped,
}

impl RecordingError {
    /// The kind, as one word.
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
            Self::Output { path, message: os_message(error) }
        }
    }
}

/// The operating system's message without the error number.
pub(crate) fn os_message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// libpcap's message.
pub(crate) fn pcap_message(error: pcap::Error) -> String {
    match error {
        pcap::Error::PcapError(message) => message,
        error => error.to_string(),
    }
}
