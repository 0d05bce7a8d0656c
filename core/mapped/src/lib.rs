//! A file as windows of memory: no byte is copied that nobody looks at.
//!
//! Of a capture only headers are looked at, so that mapping it takes a third of the time of reading it. This is the
//! one crate of the workspace with unsafe code: two calls, and what makes them sound is written beside them.

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap, MmapOptions};

/// Bytes of a window: large enough that its making does not count, small enough to leave the memory of others alone.
const WINDOW_BYTES: u64 = 16 << 20;

/// A regular file, seen through one window at a time.
#[derive(Debug)]
pub struct MappedFile {
    file: File,
    window: Option<Mmap>,
}

impl MappedFile {
    /// A file that is seen through windows.
    pub fn new(file: File) -> Self {
        Self { file, window: None }
    }

    /// The bytes of the window.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        self.window.as_deref().unwrap_or_default()
    }

    /// Moves the window: from `offset` on, of at least `count` bytes when the file has them. Gives the length of the
    /// window; 0 at the end of the file.
    ///
    /// # Errors
    /// What the operating system says; the window is empty then.
    pub fn slide(&mut self, offset: u64, count: usize) -> io::Result<usize> {
        self.window = None;
        // what is there now: a file may have grown, or been cut, since the last window
        let length = self.file.metadata()?.len().saturating_sub(offset).min(WINDOW_BYTES.max(count as u64));
        let Ok(length) = usize::try_from(length) else { return Err(io::ErrorKind::FileTooLarge.into()) };
        if length == 0 {
            return Ok(0);
        }
        // SAFETY: the mapping is private and read-only, and lies within the file as it is now. Another process that
        // writes into a finished capture changes bytes that this one parses with checks, once each; one that cuts the
        // file within the milliseconds that a window lasts ends this process with SIGBUS, as it would any reader of
        // mapped files. Captures are appended to or replaced, not cut.
        let window = unsafe { MmapOptions::new().offset(offset).len(length).map(&self.file) }?;
        // one call for all page tables instead of a fault for every few pages; kernels before 5.14 do not know it
        let _ = window.advise(Advice::PopulateRead);
        self.window = Some(window);
        Ok(length)
    }
}

/// Starts to bring the bytes from `at` on into the cache, as many as the headers of a packet take.
///
/// Where the next header lies is known before the present packet is worked on: by then it is there.
#[inline(always)]
pub fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in [0, 64, 128] {
        if let Some(byte) = bytes.get(at + line) {
            // SAFETY: a prefetch of any address has no effect but on time; this one is inside the slice.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(byte).cast());
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("iscsitrace-mapped-{}-{}", std::process::id(), bytes.len()));
        File::create(&path).unwrap().write_all(bytes).unwrap();
        let file = File::open(&path).unwrap();
        (path, file)
    }

    #[test]
    fn slides_over_a_file_that_grows() {
        let bytes: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        let (path, opened) = file(&bytes);
        let mut mapped = MappedFile::new(opened);
        assert_eq!(mapped.slide(0, 1).unwrap(), bytes.len());
        assert_eq!(mapped.bytes(), bytes);
        assert_eq!(mapped.slide(4_097, 1).unwrap(), bytes.len() - 4_097);
        assert_eq!(mapped.bytes(), &bytes[4_097..]);
        assert_eq!(mapped.slide(100_000, 1).unwrap(), 0);
        File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert_eq!(mapped.slide(100_000, 1).unwrap(), 4);
        assert_eq!(mapped.bytes(), b"more");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_empty_file_has_no_window() {
        let (path, opened) = file(b"");
        assert_eq!(MappedFile::new(opened).slide(0, 24).unwrap(), 0);
        std::fs::remove_file(path).unwrap();
    }
}
