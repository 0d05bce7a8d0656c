//! A file that another process writes: at its end, the reader waits for more.
//!
//! It ends when it is stopped, when the file was truncated or replaced, and when the next file of its ring exists
//! (`NAME_00001_DATE.pcapng`, then `NAME_00002_DATE.pcapng`: the names of dumpcap and of `capture`).

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time between two looks for more bytes.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Digits of the file number in a ring.
const RING_DIGITS: usize = 5;

/// Why a followed file ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is shorter than the bytes already read.
    CutShort,
    /// Another file has its name now.
    Replaced,
    /// The next file of its ring exists.
    Next(PathBuf),
}

/// The state of a followed file, shared by its reader and the caller.
#[derive(Debug, Clone, Default)]
pub struct FollowState {
    is_stopped: Arc<AtomicBool>,
    change: Arc<Mutex<Option<Change>>>,
}

impl FollowState {
    /// From now on, the end of the file is the end of the input.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Why it ended; returned once.
    pub fn take_change(&self) -> Option<Change> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A followed file.
#[derive(Debug)]
pub struct Followed {
    path: PathBuf,
    file: File,
    read_bytes: u64,
    state: FollowState,
}

impl Followed {
    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be opened, or is a folder.
    pub fn open(path: &Path, state: FollowState) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Self { path: path.to_owned(), file, read_bytes: 0, state })
    }

    /// Opens the next file of a ring, which may have been compressed since it was found.
    ///
    /// # Errors
    /// As of `open`.
    pub fn open_next(path: &Path, state: FollowState) -> io::Result<Self> {
        Self::open(path, state.clone()).or_else(|error| {
            let mut compressed = path.as_os_str().to_owned();
            compressed.push(".zst");
            if error.kind() == io::ErrorKind::NotFound { Self::open(Path::new(&compressed), state) } else { Err(error) }
        })
    }

    fn change(&self) -> io::Result<Option<Change>> {
        let own = self.file.metadata()?;
        if own.len() < self.read_bytes {
            return Ok(Some(Change::CutShort));
        }
        if let Some(next) = next_of_ring(&self.path) {
            return Ok(Some(Change::Next(next)));
        }
        // a removed file may still be written
        let is_other = |now: fs::Metadata| (now.dev(), now.ino()) != (own.dev(), own.ino());
        Ok(fs::metadata(&self.path).ok().filter(|now| is_other(now.clone())).map(|_| Change::Replaced))
    }
}

impl Read for Followed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // before reading, so that everything written before the change is read
            let is_stopped = self.state.is_stopped.load(Ordering::Relaxed);
            let change = self.change()?;
            let count = if change == Some(Change::CutShort) { 0 } else { self.file.read(buffer)? };
            self.read_bytes += count as u64;
            if count > 0 || is_stopped {
                return Ok(count);
            }
            if change.is_some() {
                *self.state.change.lock().unwrap_or_else(PoisonError::into_inner) = change;
                return Ok(0);
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// A named pipe, opened at the first read: opening may wait for the writer.
#[derive(Debug)]
pub struct OpenedLate {
    path: PathBuf,
    file: Option<File>,
}

impl OpenedLate {
    /// The named pipe, or anything else without a size, at this path.
    pub fn new(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        (!metadata.is_file() && !metadata.is_dir()).then(|| Self { path: path.to_owned(), file: None })
    }
}

impl Read for OpenedLate {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::open(&self.path)?),
        };
        file.read(buffer)
    }
}

/// The next file of a ring, if it exists.
fn next_of_ring(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    // the number between the last two underscores, or after the last
    let (start, number, rest) = name.rmatch_indices('_').take(2).find_map(|(at, _)| {
        let after = name.get(at + 1..)?;
        let number = after.get(..RING_DIGITS)?;
        let rest = after.get(RING_DIGITS..)?;
        let is_number =
            number.bytes().all(|byte| byte.is_ascii_digit()) && !rest.starts_with(|c: char| c.is_ascii_digit());
        is_number.then_some((name.get(..=at)?, number.parse::<u32>().ok()?, rest))
    })?;
    let next = format!("{start}{:0width$}", (number + 1) % 100_000, width = RING_DIGITS);
    // a finished file may be compressed, and then the next one, too
    let plain = |text: &str| text.strip_suffix(".zst").unwrap_or(text).to_owned();
    let suffix = plain(rest.find('.').and_then(|at| rest.get(at..)).unwrap_or_default());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter(|entry| {
            let other = entry.file_name();
            other.to_str().is_some_and(|other| {
                let tail = other.strip_prefix(&next).map(plain);
                tail.is_some_and(|tail| tail.ends_with(&suffix) && (tail.starts_with('_') || tail == suffix))
            })
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A temporary folder.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("iscsitrace-follow-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, bytes).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn rest(followed: &mut Followed) -> Vec<u8> {
        let mut bytes = Vec::new();
        followed.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_next_file_of_a_ring_may_be_compressed_already() {
        let folder = Folder::new("compressed");
        let first = folder.write("a_00001_20261121190000.pcapng", b"first");
        folder.write(".a_00002_20261121190100.pcapng.9.partial", b"half");
        assert_eq!(next_of_ring(&first), None);
        let second = folder.write("a_00002_20261121190100.pcapng.zst", b"second");
        folder.write("a_00002_20261121190100.txt.zst", b"not a capture");
        assert_eq!(next_of_ring(&first), Some(second.clone()));
        let third = folder.write("a_00003_20261121190200.pcapng", b"third");
        assert_eq!(next_of_ring(&second), Some(third));
    }

    #[test]
    fn the_next_file_of_a_ring_may_be_compressed_before_it_is_opened() {
        let folder = Folder::new("renamed");
        let compressed = folder.write("a_00002_20261121190100.pcapng.zst", b"second");
        let next = |name: &str| Followed::open_next(&folder.0.join(name), FollowState::default());
        assert_eq!(next("a_00002_20261121190100.pcapng").unwrap().path, compressed);
        assert_eq!(next("a_00003_20261121190200.pcapng").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn after_the_stop_the_end_of_the_file_is_the_end() {
        let folder = Folder::new("stop");
        let path = folder.write("a.pcap", b"one");
        let state = FollowState::default();
        let mut followed = Followed::open(&path, state.clone()).unwrap();
        let mut buffer = [0; 2];
        assert_eq!(followed.read(&mut buffer).unwrap(), 2);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"two").unwrap();
        state.stop();
        assert_eq!(rest(&mut followed), b"etwo");
        assert_eq!(state.take_change(), None);
    }

    #[test]
    fn a_truncated_or_replaced_file_ends_with_the_reason() {
        let folder = Folder::new("change");
        let path = folder.write("a.pcap", b"one");
        let state = FollowState::default();
        let mut followed = Followed::open(&path, state.clone()).unwrap();
        let mut buffer = [0; 3];
        assert_eq!(followed.read(&mut buffer).unwrap(), 3);
        fs::write(&path, b"o").unwrap();
        assert_eq!(rest(&mut followed), b"");
        assert_eq!(state.take_change(), Some(Change::CutShort));
        let mut followed = Followed::open(&path, state.clone()).unwrap();
        let other = folder.write("b.pcap", b"other");
        fs::rename(other, &path).unwrap();
        assert_eq!(rest(&mut followed), b"o");
        assert_eq!(state.take_change(), Some(Change::Replaced));
    }

    #[test]
    fn the_next_file_of_a_ring_follows() {
        let folder = Folder::new("ring");
        let first = folder.write("san_00009_20261121120000.pcapng", b"one");
        assert_eq!(next_of_ring(&first), None);
        folder.write("san_00011_20261121120200.pcapng", b"");
        folder.write("other_00010_20261121120100.pcapng", b"");
        assert_eq!(next_of_ring(&first), None);
        let second = folder.write("san_00010_20261121120100.pcapng", b"two");
        assert_eq!(next_of_ring(&first), Some(second.clone()));
        let state = FollowState::default();
        assert_eq!(rest(&mut Followed::open(&first, state.clone()).unwrap()), b"one");
        assert_eq!(state.take_change(), Some(Change::Next(second)));
        assert_eq!(next_of_ring(Path::new("capture.pcapng")), None);
        assert_eq!(next_of_ring(Path::new("a_00001.pcap")), None);
    }

    #[test]
    fn a_ring_goes_on_with_the_next_number_of_the_same_kind() {
        let folder = Folder::new("names");
        let next = |name: &str| {
            let found = next_of_ring(&folder.0.join(name))?;
            Some(found.file_name()?.to_str()?.to_owned())
        };
        for name in
            ["a_00002.pcap", "a_00003-old.pcap", "a_00004.pcapng", "b_00000_2026.pcap", "d_00002", "e_000021.pcap"]
        {
            folder.write(name, b"");
        }
        assert_eq!(next("a_00001.pcap").as_deref(), Some("a_00002.pcap"));
        // another name, or another kind of file
        assert_eq!(next("a_00002.pcap"), None);
        assert_eq!(next("a_00003.pcap"), None);
        assert_eq!(next("b_99999_2025.pcap").as_deref(), Some("b_00000_2026.pcap"));
        assert_eq!(next("d_00001").as_deref(), Some("d_00002"));
        // five digits
        assert_eq!(next("e_000020.pcap"), None);
        assert_eq!(next("e_0002.pcap"), None);
        assert_eq!(next("e_0000x.pcap"), None);
        // the latest, if the ring was started anew
        folder.write("b_00000_2027.pcap", b"");
        assert_eq!(next("b_99999_2025.pcap").as_deref(), Some("b_00000_2027.pcap"));
    }

    #[test]
    fn a_file_without_a_size_is_opened_at_its_first_read() {
        let folder = Folder::new("late");
        assert!(OpenedLate::new(&folder.0).is_none());
        assert!(OpenedLate::new(&folder.write("a.pcap", b"")).is_none());
        assert!(OpenedLate::new(&folder.0.join("none")).is_none());
        let mut zeros = OpenedLate::new(Path::new("/dev/zero")).unwrap();
        assert!(zeros.file.is_none());
        let mut buffer = [7; 10];
        assert_eq!((zeros.read(&mut buffer).unwrap(), buffer), (10, [0; 10]));
        assert_eq!(OpenedLate::new(Path::new("/dev/null")).unwrap().read(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn a_folder_is_no_file_to_follow() {
        let folder = Folder::new("folder");
        let error = Followed::open(&folder.0, FollowState::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }
}
