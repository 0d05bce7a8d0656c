//! The files of a ring: which finished ones stay, also those of earlier captures, and their compression.
//!
//! The oldest file goes first, and the current one never. A file that another capture writes is not touched.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock, statvfs};

use crate::compressor::{Compressed, Compressor};
use crate::confinement::folder_of;
use crate::error::os_message;
use crate::settings::{OutputSettings, Retention};

/// Time between two looks at the age of files and at the free space.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A finished file.
#[derive(Debug)]
struct Finished {
    path: PathBuf,
    bytes: u64,
    /// When it was last written.
    ended: SystemTime,
}

impl Finished {
    fn at(path: PathBuf) -> Option<Self> {
        let metadata = fs::metadata(&path).ok()?;
        Some(Self { bytes: metadata.len(), ended: metadata.modified().ok()?, path })
    }
}

/// The files of a capture: finished ones, the oldest first, and the current one.
pub struct Ring {
    keep: Retention,
    finished: VecDeque<Finished>,
    current: Option<PathBuf>,
    compressor: Option<Compressor>,
    looked: Instant,
}

impl Ring {
    /// The ring with the files of earlier captures that nobody writes.
    pub fn new(settings: &OutputSettings) -> Self {
        let compressor = settings.is_compressed.then(Compressor::start);
        let mut finished: Vec<Finished> =
            settings.earlier.iter().filter(|path| !is_written(path)).cloned().filter_map(Finished::at).collect();
        finished.sort_by(|one, other| (one.ended, &one.path).cmp(&(other.ended, &other.path)));
        if let Some(compressor) = &compressor {
            finished.iter().for_each(|file| compressor.compress(&file.path));
        }
        Self { keep: settings.keep, finished: finished.into(), current: None, compressor, looked: Instant::now() }
    }

    /// A file begins.
    pub fn begin(&mut self, path: PathBuf) {
        self.current = Some(path);
    }

    /// The current file is complete.
    pub fn end(&mut self) {
        let Some(file) = self.current.take().and_then(Finished::at) else { return };
        let path = file.path.clone();
        // listed before it can come back compressed: what is not listed then has been removed
        self.finished.push_back(file);
        if let Some(compressor) = &self.compressor {
            compressor.compress(&path);
        }
    }

    /// Whether it is time to tidy.
    pub fn is_due(&self) -> bool {
        self.looked.elapsed() >= LOOK_EVERY
    }

    /// Removes what is too old or too much; `current_bytes` are those of the current file. Reports what fails.
    pub fn tidy(&mut self, current_bytes: u64, mut warn: impl FnMut(String)) {
        self.looked = Instant::now();
        let done: Vec<Compressed> = self.compressor.iter().flat_map(Compressor::done).collect();
        done.into_iter().for_each(|compressed| self.note(compressed, &mut warn));
        let now = SystemTime::now();
        let mut bytes: u64 = current_bytes + self.finished.iter().map(|file| file.bytes).sum::<u64>();
        // a file system may free space later: one file at a time
        let mut is_space_asked = self.is_space_short();
        while let Some(oldest) = self.finished.front() {
            let count = self.finished.len() + usize::from(self.current.is_some());
            let age = now.duration_since(oldest.ended).unwrap_or_default();
            let is_excess = self.keep.files.is_some_and(|files| count > files.max(1))
                || self.keep.bytes.is_some_and(|limit| bytes > limit)
                || self.keep.age_ns.is_some_and(|limit| age > Duration::from_nanos(limit))
                || is_space_asked;
            if !is_excess {
                break;
            }
            is_space_asked = false;
            let Some(oldest) = self.finished.pop_front() else { break };
            bytes = bytes.saturating_sub(oldest.bytes);
            if let Err(error) = fs::remove_file(&oldest.path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                warn(format!("cannot remove {}: {}", oldest.path.display(), os_message(&error)));
            }
        }
    }

    /// Waits for the compression of the last files.
    pub fn finish(&mut self, mut warn: impl FnMut(String)) {
        if let Some(compressor) = self.compressor.take() {
            compressor.finish().into_iter().for_each(|compressed| self.note(compressed, &mut warn));
        }
    }

    /// The existing files, the last one last.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.finished.iter().map(|file| file.path.as_path()).chain(self.current.as_deref())
    }

    fn note(&mut self, compressed: Compressed, warn: &mut impl FnMut(String)) {
        let file = self.finished.iter_mut().find(|file| file.path == compressed.source);
        match (compressed.result, file) {
            (Ok(path), Some(file)) => {
                if let Some(now) = Finished::at(path) {
                    *file = now;
                }
            }
            // removed in the meantime
            (Ok(path), None) => drop(fs::remove_file(path)),
            (Err(error), _) if error.kind() == std::io::ErrorKind::NotFound => {}
            (Err(error), _) => {
                warn(format!("cannot compress {}: {}", compressed.source.display(), os_message(&error)));
            }
        }
    }

    fn is_space_short(&self) -> bool {
        let (Some(limit), Some(path)) = (self.keep.free_bytes, self.paths().last()) else { return false };
        statvfs(folder_of(path)).is_ok_and(|space| space.f_bavail.saturating_mul(space.f_frsize) < limit)
    }
}

/// Marks a file as being written, for as long as it is open.
pub fn mark_written(file: &File) {
    // a file system without locks has no marks
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
}

fn is_written(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}
