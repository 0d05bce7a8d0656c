//! Receiving from a socket: all bytes copied into a buffer, or unwanted bytes discarded in the kernel.
//!
//! ```text
//! copy     recv of up to 1 MiB                           the application reads it in place, without another copy
//! discard  recv of 4 KiB, for headers                    until the application reports unwanted bytes:
//!          recv with MSG_TRUNC                           the kernel drops them without copying (tcp(7))
//! ```
//!
//! `discard` cannot read a disk. It shows the most that receiving without a copy could save, as hardware with direct
//! data placement does, at the cost of one more system call per PDU.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, recv};
use serde::{Deserialize, Serialize};

/// Most bytes per system call.
const RECEIVE_BYTES: usize = 1 << 20;
/// Bytes per call where the next bytes may be unwanted. Fewer unwanted bytes are not worth a call.
const LOOK_BYTES: usize = 4 << 10;

/// What to do with received bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// Copy them into a buffer.
    #[default]
    Copy,
    /// Discard unwanted ones in the kernel.
    Discard,
}

/// The result of one call.
pub(super) enum Taken<'a> {
    /// These bytes; none at the end of the stream.
    Bytes(&'a [u8]),
    /// This many discarded bytes.
    Gone(usize),
}

impl Taken<'_> {
    pub(super) fn count(&self) -> usize {
        match self {
            Taken::Bytes(bytes) => bytes.len(),
            Taken::Gone(count) => *count,
        }
    }
}

/// A receive buffer.
pub(super) struct Receiver {
    how: Receive,
    buffer: Vec<u8>,
}

impl Receiver {
    pub(super) fn new(how: Receive) -> Self {
        Self { how, buffer: vec![0; RECEIVE_BYTES] }
    }

    /// Whether it has to know which bytes are unwanted.
    pub(super) fn is_discarding(&self) -> bool {
        self.how == Receive::Discard
    }

    /// Receives bytes, the first `unwanted` of which are unwanted; and whether there may be more, because the call was
    /// filled.
    pub(super) fn take(&mut self, socket: impl AsFd, unwanted: usize) -> io::Result<(Taken<'_>, bool)> {
        let is_gone = self.is_discarding() && unwanted >= LOOK_BYTES;
        let most = match self.how {
            Receive::Discard if is_gone => unwanted.min(RECEIVE_BYTES),
            Receive::Discard => LOOK_BYTES,
            Receive::Copy => RECEIVE_BYTES,
        };
        let flags = if is_gone { RecvFlags::TRUNC } else { RecvFlags::empty() };
        let (count, _) = recv(socket, &mut self.buffer[..most], flags)?;
        let taken = if is_gone && count > 0 { Taken::Gone(count) } else { Taken::Bytes(&self.buffer[..count]) };
        Ok((taken, count == most))
    }
}
