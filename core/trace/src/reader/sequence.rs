//! Several captures as one stream of packets: the files of a ring buffer, a single file, or standard input.
//!
//! Files are sorted by the time of their first packet and opened one at a time; frame numbers continue across them. An
//! input that can be read only once (a pipe) is not opened before its turn; with one of them the given order is used.
//!
//! A wrong input is an error if no packet was read before. Later, an input that cannot be read is counted, and the next
//! one follows. The newest file of a ring can still be empty: such inputs are counted, unless there is no other.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iscsitrace_sys::AHEAD_FROM_BYTES;
use iscsitrace_wire::tcp_info::TcpSample;

use super::capture::Capture;
use super::compressed;
use super::error::CaptureError;
use super::info::CaptureInfo;
use super::record::{Packet, Record};
use crate::counters::{Counter, Counters};

/// Packets of several interfaces or capture queues are stored in turn: their times differ by less than this.
const QUEUES_APART_NS: i64 = 1_000_000_000;

/// Where the bytes of one capture come from.
pub enum Input {
    /// A file, or another path that can be opened.
    Path(PathBuf),
    /// Any reader, and its name in messages.
    Reader {
        /// Its name in messages.
        name: String,
        /// Its bytes.
        reader: Box<dyn Read + Send>,
    },
    /// A reader of decompressed bytes, and their compression methods (see [`super::decompress`]).
    Decompressed {
        /// Its name in messages.
        name: String,
        /// Its bytes.
        reader: Box<dyn Read + Send>,
        /// Such as `gzip`, the outermost first.
        methods: Vec<&'static str>,
    },
}

impl Input {
    /// Its name in messages.
    pub fn name(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Reader { name, .. } | Self::Decompressed { name, .. } => name.clone(),
        }
    }

    /// The size of a file that can be opened more than once.
    fn file_bytes(&self) -> Option<u64> {
        match self {
            Self::Path(path) => path.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len()),
            Self::Reader { .. } | Self::Decompressed { .. } => None,
        }
    }

    /// Whether it can be read only once, as a pipe.
    fn is_read_once(&self) -> bool {
        match self {
            Self::Path(path) => path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()),
            Self::Reader { .. } | Self::Decompressed { .. } => true,
        }
    }

    fn open(self, bytes_read: &Arc<AtomicU64>) -> Result<Capture, CaptureError> {
        let name = self.name();
        let reader: Box<dyn Read + Send> = match self {
            Self::Path(path) => match open_file(&path) {
                Ok(file) if is_worth_mapping(&file) => return Capture::map(file, name, Arc::clone(bytes_read)),
                Ok(file) => Box::new(file),
                Err(error) => return Err(CaptureError::Unreadable { name, error }),
            },
            Self::Reader { reader, .. } => reader,
            Self::Decompressed { reader, methods, .. } => return Capture::open_decompressed(reader, &name, &methods),
        };
        Capture::open(Box::new(Metered { reader, bytes_read: Arc::clone(bytes_read) }), &name)
    }
}

/// Opens a file. A folder would open too and fail later, with a message without its name.
fn open_file(path: &PathBuf) -> io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
}

/// Whether a file is large, regular and not compressed. Reading takes less time than mapping without a thread ahead.
fn is_worth_mapping(file: &File) -> bool {
    let mut first = [0; 4];
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() >= AHEAD_FROM_BYTES)
        && file.read_exact_at(&mut first, 0).is_ok()
        && !compressed::is_compressed(first)
}

/// Counts the bytes read, before decompression.
struct Metered {
    reader: Box<dyn Read + Send>,
    bytes_read: Arc<AtomicU64>,
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// The progress in bytes of the files on disk.
#[derive(Debug, Clone)]
pub struct Progress {
    bytes_read: Arc<AtomicU64>,
    /// Bytes of all inputs; none unless all are files.
    pub bytes_total: Option<u64>,
}

impl Progress {
    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}

/// Several captures, read one after another.
pub struct Sequence {
    waiting: VecDeque<Input>,
    current: Option<Capture>,
    /// Number of the last frame before the current input.
    frame: u64,
    done: Vec<CaptureInfo>,
    last_time_ns: i64,
    progress: Progress,
    /// Samples of TCP_INFO of the inputs so far, if they are wanted.
    samples: Option<Vec<TcpSample>>,
}

impl Sequence {
    /// Sorts the inputs and opens the first.
    ///
    /// # Errors
    /// The first input, or any of several files, is unreadable or not a capture; or no input has any packet.
    pub fn open(inputs: Vec<Input>, counters: &mut Counters) -> Result<Self, CaptureError> {
        let bytes_total = inputs.iter().map(Input::file_bytes).sum();
        let progress = Progress { bytes_read: Arc::default(), bytes_total };
        let waiting = if inputs.len() > 1 { in_order_of_time(inputs)? } else { inputs };
        Self::start(waiting, progress, (0, i64::MIN), counters)
    }

    /// Opens a capture that comes after others, of which the last packet had this frame number and time.
    ///
    /// # Errors
    /// No packet was read before, and it is unreadable, not a capture, or has no packet.
    pub fn open_after(input: Input, reached: (u64, i64), counters: &mut Counters) -> Result<Self, CaptureError> {
        let progress = Progress { bytes_read: Arc::default(), bytes_total: input.file_bytes() };
        Self::start(vec![input], progress, reached, counters)
    }

    fn start(
        waiting: Vec<Input>,
        progress: Progress,
        (frame, last_time_ns): (u64, i64),
        counters: &mut Counters,
    ) -> Result<Self, CaptureError> {
        let waiting = waiting.into();
        let done = Vec::new();
        let mut sequence = Self { waiting, current: None, frame, done, last_time_ns, progress, samples: None };
        sequence.open_next(counters)?;
        Ok(sequence)
    }

    /// Frame number and time of the last packet.
    pub fn reached(&self) -> (u64, i64) {
        (self.current.as_ref().map_or(self.frame, |current| current.frame), self.last_time_ns)
    }

    /// The next packet of the whole input, or none at its end.
    ///
    /// # Errors
    /// An input is unreadable or not a capture, and no packet was read before.
    #[inline]
    pub fn next_packet(&mut self, counters: &mut Counters) -> Result<Option<Packet<'_>>, CaptureError> {
        let record = loop {
            if let Some(record) = self.next_record(counters)? {
                break record;
            }
            if self.is_waiting() {
                return Ok(None);
            }
            if !self.open_next(counters)? {
                return Ok(None);
            }
        };
        Ok(self.current.as_ref().map(|current| current.packet(record)))
    }

    /// The frame after the next one, if it is in memory; else empty. It is not checked.
    #[inline]
    pub fn after_next(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], Capture::after_next)
    }

    /// Whether there is no packet now, but may be later (the reader returned `WouldBlock`).
    pub fn is_waiting(&self) -> bool {
        self.current.as_ref().is_some_and(Capture::is_waiting)
    }

    /// From now on, samples of TCP_INFO within the captures are collected for [`Sequence::take_samples`].
    pub fn keep_samples(&mut self) {
        self.samples.get_or_insert_default();
        if let Some(current) = &mut self.current {
            current.keep_samples();
        }
    }

    /// The samples of TCP_INFO so far.
    pub fn take_samples(&mut self) -> Vec<TcpSample> {
        let mut samples = self.samples.as_mut().map(std::mem::take).unwrap_or_default();
        if let Some(current) = &mut self.current {
            samples.append(&mut current.take_samples());
        }
        samples
    }

    /// Appends a capture.
    pub fn add(&mut self, input: Input) {
        self.waiting.push_back(input);
    }

    /// Metadata of each capture in reading order; of the current one as far as known.
    pub fn infos(&self) -> impl Iterator<Item = &CaptureInfo> {
        self.done.iter().chain(self.current.as_ref().map(Capture::info))
    }

    /// Removes the metadata of all but the last captures that were read to their end, and returns it.
    pub fn forget_infos(&mut self, kept: usize) -> Vec<CaptureInfo> {
        let count = self.done.len().saturating_sub(kept);
        self.done.drain(..count).collect()
    }

    /// The progress; may be read from another thread.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    #[inline]
    fn next_record(&mut self, counters: &mut Counters) -> Result<Option<Record>, CaptureError> {
        let Some(current) = &mut self.current else { return Ok(None) };
        let record = match current.next_record(counters) {
            Err(_) if current.frame > 0 => {
                counters.add(Counter::InputUnreadable, None, current.frame);
                return Ok(None);
            }
            record => record?,
        };
        let Some(record) = record else { return Ok(None) };
        if record.time_ns < self.last_time_ns {
            let is_far = self.last_time_ns.saturating_sub(record.time_ns) > QUEUES_APART_NS;
            let counter = if is_far { Counter::TimeRunsBackwards } else { Counter::PacketsDisordered };
            counters.add(counter, None, current.frame);
        }
        self.last_time_ns = record.time_ns;
        Ok(Some(record))
    }

    #[cold]
    fn open_next(&mut self, counters: &mut Counters) -> Result<bool, CaptureError> {
        let mut nothing_in = None;
        while let Some(input) = self.waiting.pop_front() {
            if let Some(mut ended) = self.current.take() {
                if let Some(samples) = &mut self.samples {
                    samples.append(&mut ended.take_samples());
                }
                self.frame = ended.frame;
                self.done.push(ended.info);
            }
            let name = input.name();
            let (counter, format) = match input.open(&self.progress.bytes_read) {
                Ok(mut next) => {
                    next.continue_after(self.frame);
                    if self.samples.is_some() {
                        next.keep_samples();
                    }
                    self.current = Some(next);
                    return Ok(true);
                }
                Err(error) if error.is_nothing_there() => {
                    nothing_in.get_or_insert(error);
                    (Counter::InputEmpty, "empty")
                }
                Err(error) if self.frame == 0 => return Err(error),
                Err(_) => (Counter::InputUnreadable, "unreadable"),
            };
            counters.add(counter, None, self.frame);
            self.done.push(CaptureInfo { name, format, is_cut_short: true, ..CaptureInfo::default() });
        }
        match nothing_in {
            Some(error) if self.frame == 0 && self.done.iter().all(|info| info.format == "empty") => Err(error),
            _ => Ok(false),
        }
    }
}

/// Sorts files by the time of their first packet. Files without packets come first, where their metadata is read. With
/// an input that can be read only once, files are checked too, but the order stays.
fn in_order_of_time(inputs: Vec<Input>) -> Result<Vec<Input>, CaptureError> {
    let can_be_sorted = !inputs.iter().any(Input::is_read_once);
    let mut timed = Vec::with_capacity(inputs.len());
    for input in inputs {
        let first_time_ns = match &input {
            Input::Path(path) if !input.is_read_once() => match Input::Path(path.clone()).open(&Arc::default()) {
                Ok(mut capture) => capture.next_packet(&mut Counters::default())?.map(|packet| packet.time_ns),
                Err(error) if error.is_nothing_there() => None,
                Err(error) => return Err(error),
            },
            Input::Path(_) | Input::Reader { .. } | Input::Decompressed { .. } => None,
        };
        timed.push((first_time_ns, input));
    }
    if can_be_sorted {
        timed.sort_by_key(|&(first_time_ns, _)| first_time_ns);
    }
    Ok(timed.into_iter().map(|(_, input)| input).collect())
}
