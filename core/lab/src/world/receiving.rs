//! Taking bytes off a socket: all of them copied into a buffer, or those that nobody looks at thrown away in the kernel.
//!
//! ```text
//! copy     recv of all that is there, 1 MiB at most      the application reads it where it lies, and copies nothing on
//! discard  recv of 4 KiB, which brings headers           until the application says that what follows is unwanted:
//!          recv with MSG_TRUNC                           the kernel lets go of that without copying it (tcp(7))
//! ```
//!
//! `discard` is no way to read a disk: it is what receiving without a copy could save at most, as hardware that places
//! data does, at the price of a system call more for each PDU.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, recv};
use serde::{Deserialize, Serialize};

/// Bytes taken from a socket with one call.
const RECEIVE_BYTES: usize = 1 << 20;
/// Bytes taken at a time where what follows may be unwanted. Less than these is not worth a call of its own.
const LOOK_BYTES: usize = 4 << 10;

/// What is done with bytes that came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// They are copied into a buffer.
    #[default]
    Copy,
    /// Those that nobody looks at are not.
    Discard,
}

/// What one call took.
pub(super) enum Taken<'a> {
    /// These bytes; none at the end of the stream.
    Bytes(&'a [u8]),
    /// So many, which nobody saw.
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

/// A buffer for what sockets receive.
pub(super) struct Receiver {
    how: Receive,
    buffer: Vec<u8>,
}

impl Receiver {
    pub(super) fn new(how: Receive) -> Self {
        Self { how, buffer: vec![0; RECEIVE_BYTES] }
    }

    /// Whether it wants to know what is unwanted.
    pub(super) fn is_discarding(&self) -> bool {
        self.how == Receive::Discard
    }

    /// Takes bytes of which the first `unwanted` are; and whether there may be more, for it got all that it asked for.
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
