//! The output of one file: complete blocks only, to a new file, a FIFO or standard output.
//!
//! Blocks are buffered and written in batches; between two writes the file is readable. A file is new, private to its
//! owner, and never overwritten unless requested. Writing to a pipe regularly asks whether to continue waiting.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::error::RecordingError;
use crate::ring::mark_written;

/// Bytes buffered before a write.
const GATHERED_BYTES: usize = 256 << 10;
/// Time between two questions whether to continue.
const PATIENCE: Duration = Duration::from_millis(50);
const OWNER_ONLY: u32 = 0o600;

/// Asks whether to continue waiting for the reader of a pipe.
pub type Patience<'a> = &'a mut dyn FnMut() -> bool;

/// The output of one file.
pub struct Output {
    file: File,
    /// Whether it is a pipe, opened for non-blocking writes.
    is_pipe: bool,
    gathered: Vec<u8>,
    /// Bytes so far, including buffered ones.
    pub byte_count: u64,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend_from_slice(bytes);
        self.byte_count += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output {
    /// Opens a file; `-` is standard output. A FIFO waits for its reader as long as `patience` allows.
    ///
    /// # Errors
    /// The file exists and must not be overwritten, or cannot be created; or the FIFO has no reader.
    pub fn open(path: &Path, is_forced: bool, patience: Patience<'_>) -> Result<Self, RecordingError> {
        let failed = |error: io::Error| RecordingError::output(path, &error);
        if path.as_os_str() == "-" {
            let (file, is_pipe) = standard_output().map_err(failed)?;
            return Ok(Self::over(file, is_pipe));
        }
        let existing = fs::metadata(path).map(|metadata| metadata.file_type());
        if existing.as_ref().is_ok_and(FileTypeExt::is_fifo) {
            return open_fifo(path, patience);
        }
        if existing.as_ref().is_ok_and(FileTypeExt::is_char_device) {
            // such as /dev/null: there is nothing to overwrite
            return OpenOptions::new().write(true).open(path).map(|file| Self::over(file, false)).map_err(failed);
        }
        if is_forced && existing.is_ok_and(|kind| kind.is_file()) {
            // a new file with its own permissions
            fs::remove_file(path).map_err(failed)?;
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path).map_err(failed)?;
        mark_written(&file);
        Ok(Self::over(file, false))
    }

    fn over(file: File, is_pipe: bool) -> Self {
        Self { file, is_pipe, gathered: Vec::with_capacity(2 * GATHERED_BYTES), byte_count: 0 }
    }

    /// Whether somebody reads it while it is written.
    pub fn is_pipe(&self) -> bool {
        self.is_pipe
    }

    /// At the end of a block: writes if the buffer is full.
    ///
    /// # Errors
    /// The file cannot be written, or the caller stopped waiting.
    #[inline]
    pub fn end_block(&mut self, patience: Patience<'_>) -> io::Result<()> {
        if self.gathered.len() >= GATHERED_BYTES { self.drain(patience) } else { Ok(()) }
    }

    /// Whether the buffer is empty.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.gathered.is_empty()
    }

    /// Truncates a file after a write error to its first bytes, which are complete blocks.
    pub fn keep(&mut self, bytes: u64) {
        if !self.is_pipe {
            // if truncation fails, a reader reports an incomplete last record
            let _ = self.file.set_len(bytes);
        }
    }

    /// Writes the buffer.
    ///
    /// # Errors
    /// The file cannot be written; `TimedOut` if the caller stopped waiting.
    pub fn drain(&mut self, patience: Patience<'_>) -> io::Result<()> {
        let result = if self.is_pipe {
            write_with_patience(&self.file, &self.gathered, patience)
        } else {
            self.file.write_all(&self.gathered)
        };
        self.gathered.clear();
        result
    }
}

fn open_fifo(path: &Path, patience: Patience<'_>) -> Result<Output, RecordingError> {
    let without_waiting = OFlags::NONBLOCK.bits() as i32;
    loop {
        match OpenOptions::new().write(true).custom_flags(without_waiting).open(path) {
            Ok(file) => return Ok(Output::over(file, true)),
            // it has no reader yet
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                if !patience() {
                    return Err(RecordingError::Stopped);
                }
                thread::sleep(PATIENCE);
            }
            Err(error) => return Err(RecordingError::output(path, &error)),
        }
    }
}

/// Standard output. A pipe is reopened, so that non-blocking mode applies to this process only.
fn standard_output() -> io::Result<(File, bool)> {
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    if !file.metadata()?.file_type().is_fifo() {
        return Ok((file, false));
    }
    let without_waiting = OFlags::NONBLOCK.bits() as i32;
    match OpenOptions::new().write(true).custom_flags(without_waiting).open("/proc/self/fd/1") {
        Ok(pipe) => Ok((pipe, true)),
        Err(_) => Ok((file, false)),
    }
}

fn write_with_patience(mut pipe: &File, mut bytes: &[u8], patience: Patience<'_>) -> io::Result<()> {
    while !bytes.is_empty() {
        match pipe.write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let limit = Timespec { tv_sec: 0, tv_nsec: PATIENCE.subsec_nanos().into() };
                let is_ready =
                    poll(&mut [PollFd::new(&pipe, PollFlags::OUT)], Some(&limit)).is_ok_and(|count| count > 0);
                if !is_ready && !patience() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("iscsitrace-output-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder for the test");
        folder
    }

    #[test]
    fn a_file_is_private_and_not_overwritten_without_force() {
        let path = folder("mode").join("capture.pcapng");
        let mut output = Output::open(&path, false, &mut || true).expect("a new file");
        output.write_all(b"first").and_then(|()| output.drain(&mut || true)).expect("written");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let Err(refusal) = Output::open(&path, false, &mut || true) else { panic!("overwritten") };
        assert_eq!(refusal.kind(), "exists");
        assert_eq!(fs::read(&path).expect("there"), b"first");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("permissions");
        Output::open(&path, true, &mut || true).expect("asked for");
        let after = fs::metadata(&path).expect("there");
        assert_eq!((after.len(), after.permissions().mode() & 0o777), (0, 0o600));
    }

    #[test]
    fn opening_a_fifo_without_reader_ends_when_the_caller_stops() {
        let path = folder("fifo").join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo");
        assert!(made.success());
        let mut asked = 0;
        let Err(refusal) = Output::open(&path, false, &mut || {
            asked += 1;
            asked < 3
        }) else {
            panic!("opened")
        };
        assert_eq!((refusal.kind(), asked), ("stopped", 3));
    }
}
