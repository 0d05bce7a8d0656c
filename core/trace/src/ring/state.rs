//! The state of a pass: its bytes, written as they are made. A copy of them all would take as long as making them.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A state of another version cannot be read: its layout is that of the structs, of which this has a hash (`build.rs`).
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("STATE_LAYOUT"));

/// Why a state cannot be continued.
#[derive(Debug, Error)]
pub enum StateError {
    /// It is damaged.
    #[error("the state of the pass is damaged: {0}")]
    Damaged(postcard::Error),
    /// Another version wrote it.
    #[error("the state of the pass is of version {0}, this is {VERSION}")]
    OtherVersion(String),
}

/// What was written.
///
/// # Errors
/// The bytes are not a state, or one of another version.
pub(super) fn read<'bytes, T: Deserialize<'bytes>>(state: &'bytes [u8]) -> Result<T, StateError> {
    let (version, rest): (String, _) = postcard::take_from_bytes(state).map_err(StateError::Damaged)?;
    if version != VERSION {
        return Err(StateError::OtherVersion(version));
    }
    postcard::from_bytes(rest).map_err(StateError::Damaged)
}

/// Writes all that is known.
///
/// # Errors
/// Those of the writer.
pub(super) fn write(known: &impl Serialize, writer: impl Write) -> io::Result<()> {
    let mut writer = Writer { writer, error: None };
    writer.add(VERSION)?;
    writer.add(known)?;
    writer.flush()
}

/// Keeps the error of a writer, of which postcard tells nothing.
struct Writer<W> {
    writer: W,
    error: Option<io::Error>,
}

impl<W: Write> Writer<W> {
    fn add(&mut self, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
        let written = postcard::to_io(value, &mut *self).map(|_| ());
        written.map_err(|error| self.error.take().unwrap_or_else(|| io::Error::other(error)))
    }
}

impl<W> Writer<W> {
    fn told<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = error.kind();
            self.error = Some(error);
            kind.into()
        })
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes);
        self.told(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.writer.flush();
        self.told(flushed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufWriter;

    use super::*;

    /// A disk with room for some bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            if count == 0 { Err(io::Error::from_raw_os_error(28)) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_error_of_a_full_disk_is_told() {
        let known = (7_u32, "text");
        let mut state = Vec::new();
        write(&known, &mut state).expect("a vector takes everything");
        assert_eq!(read::<(u32, &str)>(&state).expect("a state"), known);
        for room in [0, 1, state.len() - 1] {
            for error in [write(&known, Disk(room)), write(&known, BufWriter::new(Disk(room)))] {
                assert_eq!(error.expect_err("no room").raw_os_error(), Some(28), "{room}");
            }
        }
        write(&known, Disk(state.len())).expect("room");
    }
}
