//! Compresses finished files with zstd, one after another, in a thread of low priority.
//!
//! A compressed file appears under its name when it is complete; then the original goes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// zstd's default.
const LEVEL: i32 = 3;
/// Below every thread that has something better to do.
const NICE: i32 = 19;
/// The ending of compressed files.
pub const ENDING: &str = "zst";

/// What became of a file.
#[derive(Debug)]
pub struct Compressed {
    /// The file.
    pub source: PathBuf,
    /// The compressed one, or why there is none. Without its source, NotFound.
    pub result: io::Result<PathBuf>,
}

/// The thread.
pub struct Compressor {
    waiting: Sender<PathBuf>,
    done: Receiver<Compressed>,
    thread: JoinHandle<()>,
}

impl Compressor {
    /// Starts the thread.
    pub fn start() -> Self {
        let (waiting, sources) = channel::<PathBuf>();
        let (sender, done) = channel();
        let thread = thread::spawn(move || {
            let _ = rustix::process::nice(NICE);
            for source in sources {
                let result = compress(&source);
                if sender.send(Compressed { source, result }).is_err() {
                    break;
                }
            }
        });
        Self { waiting, done, thread }
    }

    /// Compresses this file later, if it is not compressed yet.
    pub fn compress(&self, path: &Path) {
        if path.extension().is_none_or(|ending| ending != ENDING) {
            // the thread ends only when this does
            let _ = self.waiting.send(path.to_owned());
        }
    }

    /// What was done since the last call.
    pub fn done(&self) -> Vec<Compressed> {
        self.done.try_iter().collect()
    }

    /// Waits for all files.
    pub fn finish(self) -> Vec<Compressed> {
        drop(self.waiting);
        let _ = self.thread.join();
        self.done.try_iter().collect()
    }
}

/// Compresses one file; the result has its permissions and its time.
fn compress(source: &Path) -> io::Result<PathBuf> {
    let mut from = File::open(source)?;
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    // not a name of the ring, and no other thread has it
    let partial = source.with_file_name(format!(".{name}.{}.partial", std::process::id()));
    let path = source.with_file_name(format!("{name}.{ENDING}"));
    let written = (|| {
        let to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        let mut encoder = zstd::Encoder::new(&to, LEVEL)?;
        encoder.include_checksum(true)?;
        io::copy(&mut from, &mut encoder)?;
        encoder.finish()?;
        let metadata = from.metadata()?;
        to.set_permissions(metadata.permissions())?;
        to.set_modified(metadata.modified()?)?;
        fs::rename(&partial, &path)
    })();
    if let Err(error) = written {
        let _ = fs::remove_file(&partial);
        return Err(error);
    }
    if let Err(error) = fs::remove_file(source) {
        // removed meanwhile: then neither is wanted
        let _ = fs::remove_file(&path);
        return Err(error);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_by_its_compressed_form() {
        let folder = std::env::temp_dir().join(format!("iscsitrace-compressor-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let source = folder.join("a.pcapng");
        let content: Vec<u8> = (0..100_000_u32).flat_map(|number| (number / 100).to_le_bytes()).collect();
        fs::write(&source, &content).unwrap();
        fs::set_permissions(&source, fs::Permissions::from_mode(0o640)).unwrap();
        let modified = fs::metadata(&source).unwrap().modified().unwrap();
        let compressor = Compressor::start();
        compressor.compress(&source);
        compressor.compress(&folder.join("gone.pcapng"));
        let done = compressor.finish();
        let path = done[0].result.as_ref().unwrap();
        assert_eq!(path, &folder.join("a.pcapng.zst"));
        assert_eq!(done[1].result.as_ref().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(zstd::decode_all(File::open(path).unwrap()).unwrap(), content);
        let metadata = fs::metadata(path).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.modified().unwrap()), (0o640, modified));
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a.pcapng.zst"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
