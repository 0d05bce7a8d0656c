//! A file as windows of memory: only the bytes that are used are loaded. What becomes of memory that was freed.
//!
//! A capture's headers are all that is used of it, so mapping copies nothing, and a thread makes the windows. This is
//! the only crate with unsafe code: a few calls, each with the reason why it is sound.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use memmap2::{Mmap, MmapOptions};

/// Bytes of a window: large enough that creating it does not matter, small enough not to displace other memory: five of
/// them count as memory of the process.
const WINDOW_BYTES: u64 = 4 << 20;
/// Overlap with the next window, so that a record over the end of a window is complete in one of them.
const OVERLAP_BYTES: u64 = 128 << 10;
/// From this size on, a thread creates the windows ahead of their use.
pub const AHEAD_FROM_BYTES: u64 = 32 * WINDOW_BYTES;
/// Bytes that Linux maps at a fault (`fault_around_bytes`).
const FAULT_AROUND_BYTES: usize = 64 << 10;
/// Windows created ahead.
const WINDOWS_AHEAD: usize = 2;

/// Gives freed memory back to the system where the allocator keeps it in pieces, as glibc's does.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the allocator's own locks, and changes no memory that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Makes the allocator keep what is freed from now on for what is allocated next, where glibc's would give each large
/// block back, and get the next one page by page. For the whole process, and for good.
pub fn keep_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the allocator's own locks, and changes two of its numbers: blocks up to the largest size that it
    // allows come from its heap, whose free end goes back from the second size on.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 20);
    }
}

/// Makes all threads take memory from one heap: each of several would keep what its peaks left in pieces. For the whole process,
/// and for good.
pub fn share_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the allocator's own locks, and changes one of its numbers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// A part of a file.
#[derive(Debug)]
struct Window {
    map: Mmap,
    /// Offset of its first byte in the file.
    offset: u64,
}

impl Window {
    /// The window from `offset` on, of at most `length` bytes; none at the end of the file.
    fn open(file: &File, offset: u64, length: u64) -> io::Result<Option<Self>> {
        // the size now: a file may have grown, or been truncated, since the last window
        let length = file.metadata()?.len().saturating_sub(offset).min(length);
        let Ok(length) = usize::try_from(length) else { return Err(io::ErrorKind::FileTooLarge.into()) };
        if length == 0 {
            return Ok(None);
        }
        // SAFETY: the mapping is private and read-only, and lies within the file as it is now. Another process that
        // writes into a finished capture changes bytes that this one parses with checks, once each. One that truncates
        // the file within the milliseconds of a window ends this process with SIGBUS, like any reader of mapped files.
        // Captures are appended to or replaced, not truncated.
        let map = unsafe { MmapOptions::new().offset(offset).len(length).map(file) }?;
        // Linux maps the cached pages around one that is touched: a quarter less work than MADV_POPULATE_READ
        for around in map.chunks(FAULT_AROUND_BYTES) {
            std::hint::black_box(around[0]);
        }
        Ok(Some(Self { map, offset }))
    }

    fn end(&self) -> u64 {
        self.offset + self.map.len() as u64
    }
}

/// A thread that creates windows ahead, and releases them: both take as long as reading them.
#[derive(Debug)]
struct Ahead {
    windows: Receiver<Window>,
    used: Sender<Window>,
}

impl Ahead {
    fn start(file: Arc<File>) -> io::Result<Self> {
        let (windows_to, windows) = sync_channel(WINDOWS_AHEAD);
        let (used, used_from) = channel();
        thread::Builder::new().name("windows".into()).spawn(move || make_windows(&file, &windows_to, &used_from))?;
        Ok(Self { windows, used })
    }
}

/// Runs until the end of the file, an error (which the reader will get itself) or the end of the reader.
fn make_windows(file: &File, windows: &SyncSender<Window>, used: &Receiver<Window>) {
    let mut offset = 0;
    while let Ok(Some(window)) = Window::open(file, offset, WINDOW_BYTES + OVERLAP_BYTES) {
        offset += WINDOW_BYTES;
        if windows.send(window).is_err() {
            break;
        }
        used.try_iter().for_each(drop);
    }
}

/// A regular file, seen through one window at a time.
#[derive(Debug)]
pub struct MappedFile {
    file: Arc<File>,
    window: Option<Window>,
    ahead: Option<Ahead>,
}

impl MappedFile {
    /// A file, seen through windows.
    pub fn new(file: File) -> Self {
        let file = Arc::new(file);
        let is_large = file.metadata().is_ok_and(|metadata| metadata.len() >= AHEAD_FROM_BYTES);
        let ahead = if is_large { Ahead::start(Arc::clone(&file)).ok() } else { None };
        Self { file, window: None, ahead }
    }

    /// The bytes of the window.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.window.as_ref().map_or(&[], |window| &window.map)
    }

    /// Offset in the file of the window's first byte.
    pub fn offset(&self) -> u64 {
        self.window.as_ref().map_or(0, |window| window.offset)
    }

    /// Moves the window so that it shows `count` bytes from `offset` of the file on, or all that the file has. Returns
    /// the position of these bytes in [`MappedFile::bytes`]; empty at the end of the file.
    ///
    /// # Errors
    /// The operating system's error; the window is empty then.
    pub fn slide(&mut self, offset: u64, count: usize) -> io::Result<Range<usize>> {
        let wanted_end = offset.saturating_add(count as u64);
        let used = self.window.take();
        if let Some(ahead) = &self.ahead {
            if let Some(used) = used {
                let _ = ahead.used.send(used);
            }
            let mut windows = ahead.windows.iter();
            self.window = windows.find(|window| window.offset + WINDOW_BYTES > offset);
            if self.window.is_none() {
                self.ahead = None;
            }
        }
        let is_shown = |window: &Window| window.offset <= offset && window.end() >= wanted_end;
        if !self.window.as_ref().is_some_and(is_shown) {
            self.window = Window::open(&self.file, offset, WINDOW_BYTES.max(count as u64))?;
        }
        Ok(self.window.as_ref().map_or(0..0, |window| (offset - window.offset) as usize..window.map.len()))
    }
}

/// Prefetches the bytes from `at` on, as many as the headers of a packet have.
///
/// The position of the next header is known before the current packet is processed: it is loaded by then.
#[inline(always)]
pub fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    for byte in [0, 64, 128].into_iter().filter_map(|line| bytes.get(at + line)) {
        // SAFETY: a prefetch of any address affects only the time; this one is within the slice.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(byte).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}

/// From so many states of some KB on they are prefetched: fewer stay in the caches.
pub const PREFETCHED_FROM: usize = 128;

/// Prefetches all cache lines of a value; not of what it points to.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    const LINE_BYTES: usize = 64;
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of::<T>()).step_by(LINE_BYTES) {
        let line = std::ptr::from_ref(value).cast::<i8>().wrapping_add(at);
        // SAFETY: a prefetch of any address affects only the time; this one is within the value.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, LINE_BYTES);
}

/// Prefetches the first and the last value of a queue, which change.
#[inline]
pub fn prefetch_ends<T>(queue: &VecDeque<T>) {
    queue.front().into_iter().chain(queue.back()).for_each(prefetch_value);
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("iscsitrace-sys-{}-{}", std::process::id(), bytes.len()));
        File::create(&path).unwrap().write_all(bytes).unwrap();
        let file = File::open(&path).unwrap();
        (path, file)
    }

    #[test]
    fn slides_over_a_file_that_grows() {
        let bytes: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        let (path, opened) = file(&bytes);
        let mut mapped = MappedFile::new(opened);
        assert_eq!(mapped.slide(0, 1).unwrap(), 0..bytes.len());
        assert_eq!(mapped.bytes(), bytes);
        let shown = mapped.slide(4_097, 1).unwrap();
        assert_eq!(mapped.bytes()[shown], bytes[4_097..]);
        assert_eq!(mapped.slide(100_000, 1).unwrap(), 0..0);
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        let shown = mapped.slide(100_000, 1).unwrap();
        assert_eq!(mapped.bytes()[shown], *b"more");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_empty_file_has_no_window() {
        let (path, opened) = file(b"");
        assert_eq!(MappedFile::new(opened).slide(0, 24).unwrap(), 0..0);
        std::fs::remove_file(path).unwrap();
    }

    /// Every byte is at its position, for all steps: small, over the end of windows, larger than a window.
    #[test]
    fn a_large_file_is_shown_whole_by_windows_made_ahead() {
        let length = AHEAD_FROM_BYTES + 12_345;
        let path = std::env::temp_dir().join(format!("iscsitrace-sys-{}-large", std::process::id()));
        let written = File::create(&path).unwrap();
        written.set_len(length).unwrap();
        // a mark every 64 KiB in a sparse file
        for place in (0..length - 8).step_by(64 << 10) {
            std::os::unix::fs::FileExt::write_all_at(&written, &place.to_le_bytes(), place).unwrap();
        }
        let mut mapped = MappedFile::new(File::open(&path).unwrap());
        assert!(mapped.ahead.is_some());
        let steps = [64 << 10, 192 << 10, WINDOW_BYTES, 3 * WINDOW_BYTES / 2, 128 << 10];
        let (mut place, mut marks) = (0, 0);
        for step in steps.iter().cycle() {
            let shown = mapped.slide(place, *step as usize).unwrap();
            let shown = &mapped.bytes()[shown];
            assert!(shown.len() as u64 >= (*step).min(length - place));
            for mark in (0..shown.len() - 8).step_by(64 << 10) {
                assert_eq!(shown[mark..mark + 8], (place + mark as u64).to_le_bytes());
                marks += 1;
            }
            place += step;
            if place + 8 >= length {
                break;
            }
        }
        assert!(marks > 100);
        std::fs::remove_file(path).unwrap();
    }
}
