//! A thread reads a source ahead into a queue of bounded size. So a source that cannot wait is read while packets are
//! processed, and the lag is known. Compressed bytes are decompressed there.
//!
//! No byte is lost: when the queue is full, the source waits.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::reader::decompress;

/// Bytes per read.
const READ_BYTES: usize = 256 << 10;

#[derive(Debug, Default)]
struct State {
    /// Bytes and time of each read, oldest first.
    chunks: VecDeque<(Instant, Vec<u8>)>,
    buffered_bytes: usize,
    is_ended: bool,
    failure: Option<io::Error>,
    /// Compression of the source.
    methods: Vec<&'static str>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signals new bytes, or the end.
    has_more: Condvar,
    /// Signals that bytes were taken.
    has_room: Condvar,
}

impl Shared {
    /// Reads until the source ends or is abandoned.
    fn fill(&self, mut reader: Box<dyn Read + Send>, limit_bytes: usize) {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = match reader.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return self.end(Some(error)),
                Ok(0) => return self.end(None),
                Ok(count) => count,
            };
            let chunk = buffer.get(..count).unwrap_or(&buffer).to_vec();
            let mut state = self.lock();
            state.buffered_bytes += chunk.len();
            state.chunks.push_back((Instant::now(), chunk));
            self.has_more.notify_all();
            while state.buffered_bytes >= limit_bytes && !state.is_ended {
                state = self.has_room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_ended {
                return;
            }
        }
    }

    fn end(&self, failure: Option<io::Error>) {
        let mut state = self.lock();
        state.is_ended = true;
        state.failure = failure;
        self.has_more.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source that is read ahead.
#[derive(Debug)]
pub struct ReadAhead {
    shared: Arc<Shared>,
}

impl ReadAhead {
    /// Starts reading, at most `bytes_max` ahead plus one read.
    pub fn start(source: Box<dyn Read + Send>, limit_bytes: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        // the thread ends with its source, or with the process if the source delivers nothing more
        thread::spawn(move || match decompress(source) {
            Ok((reader, methods)) => {
                of_thread.lock().methods = methods;
                of_thread.fill(reader, limit_bytes);
            }
            Err(error) => of_thread.end(Some(error)),
        });
        Self { shared }
    }

    /// A reader of the bytes; it returns `WouldBlock` while there are none.
    pub fn reader(&self) -> FeedReader {
        FeedReader { shared: Arc::clone(&self.shared), chunk: Vec::new(), place: 0 }
    }

    /// Waits until that many bytes are there, or the end. False after the time limit.
    pub fn wait(&self, count: usize, patience: Duration) -> bool {
        let state = self.shared.lock();
        let is_missing = |state: &mut State| state.buffered_bytes < count && !state.is_ended;
        let (_state, timeout) = self
            .shared
            .has_more
            .wait_timeout_while(state, patience, is_missing)
            .unwrap_or_else(PoisonError::into_inner);
        !timeout.timed_out()
    }

    /// How long the oldest bytes have been waiting.
    pub fn lag(&self) -> Duration {
        self.shared.lock().chunks.front().map_or(Duration::ZERO, |(arrived, _)| arrived.elapsed())
    }

    /// Compression of the source, once bytes are there.
    pub fn methods(&self) -> Vec<&'static str> {
        self.shared.lock().methods.clone()
    }

    /// Waiting bytes.
    pub fn buffered_bytes(&self) -> usize {
        self.shared.lock().buffered_bytes
    }

    /// Lets the bytes have arrived earlier.
    #[cfg(test)]
    pub fn age(&self, by: Duration) {
        for (arrived, _) in &mut self.shared.lock().chunks {
            *arrived = arrived.checked_sub(by).expect("the machine has run for longer");
        }
    }

    /// Ends the source with the bytes that have arrived.
    pub fn abandon(&self) {
        let mut state = self.shared.lock();
        state.is_ended = true;
        self.shared.has_more.notify_all();
        self.shared.has_room.notify_all();
    }
}

/// A reader of the queue.
#[derive(Debug)]
pub struct FeedReader {
    shared: Arc<Shared>,
    chunk: Vec<u8>,
    place: usize,
}

impl Read for FeedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.place >= self.chunk.len() {
            let mut state = self.shared.lock();
            let Some((_, chunk)) = state.chunks.pop_front() else {
                return match (state.failure.take(), state.is_ended) {
                    (Some(error), _) => Err(error),
                    (None, true) => Ok(0),
                    (None, false) => Err(io::ErrorKind::WouldBlock.into()),
                };
            };
            state.buffered_bytes -= chunk.len();
            self.shared.has_room.notify_all();
            (self.chunk, self.place) = (chunk, 0);
        }
        let rest = self.chunk.get(self.place..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(room), Some(bytes)) = (buffer.get_mut(..count), rest.get(..count)) {
            room.copy_from_slice(bytes);
        }
        self.place += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn all_bytes_arrive_in_order_with_any_queue_size() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let feed = ReadAhead::start(Box::new(io::Cursor::new(bytes.clone())), 1);
        let (mut reader, mut found, mut buffer) = (feed.reader(), Vec::new(), vec![0; 100_000]);
        loop {
            assert!(feed.wait(1, PATIENCE));
            match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => found.extend_from_slice(&buffer[..count]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert!(found == bytes);
        assert_eq!(feed.buffered_bytes(), 0);
    }

    #[test]
    fn an_error_follows_the_bytes_before_it() {
        struct Failing(bool);
        impl Read for Failing {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::Error::other("broken"));
                }
                // more than the detection of compression needs
                buffer[0] = 7;
                buffer[1] = 8;
                Ok(buffer.len().min(4))
            }
        }
        let feed = ReadAhead::start(Box::new(Failing(false)), 1 << 20);
        assert!(feed.wait(5, PATIENCE));
        let mut buffer = [0; 8];
        let mut reader = feed.reader();
        assert_eq!(reader.read(&mut buffer).unwrap(), 4);
        assert_eq!(buffer, [7, 8, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reader.read(&mut buffer).unwrap_err().to_string(), "broken");
    }

    #[test]
    fn a_full_queue_stops_the_source() {
        let limit_bytes = 2 * READ_BYTES;
        let feed = ReadAhead::start(Box::new(io::repeat(7)), limit_bytes);
        assert!(feed.wait(limit_bytes, PATIENCE));
        std::thread::sleep(Duration::from_millis(20));
        let full_bytes = feed.buffered_bytes();
        assert!((limit_bytes..=limit_bytes + READ_BYTES).contains(&full_bytes), "{full_bytes}");
        // reading makes room
        let mut buffer = vec![0; READ_BYTES];
        let mut reader = feed.reader();
        let read_bytes: usize = (0..16).map(|_| reader.read(&mut buffer).unwrap_or(0)).sum();
        assert!(read_bytes > 0);
        assert!(feed.wait(limit_bytes, PATIENCE));
        feed.abandon();
    }

    #[test]
    fn waiting_ends_with_the_bytes_the_end_or_the_time_limit() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        struct UntilDropped(std::sync::mpsc::Receiver<()>);
        impl Read for UntilDropped {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                Ok(0)
            }
        }
        let source = io::Cursor::new(b"bytes").chain(UntilDropped(receiver));
        let feed = ReadAhead::start(Box::new(source), 1 << 20);
        assert!(feed.wait(5, PATIENCE));
        assert!(!feed.wait(6, Duration::from_millis(5)));
        std::thread::sleep(Duration::from_millis(5));
        assert!(feed.lag() >= Duration::from_millis(5));
        drop(sender);
        assert!(feed.wait(6, PATIENCE), "the source ended");
        let mut buffer = [0; 8];
        let mut reader = feed.reader();
        let counts = [(); 3].map(|()| reader.read(&mut buffer).unwrap());
        assert_eq!((counts.iter().sum::<usize>(), feed.buffered_bytes(), feed.lag()), (5, 0, Duration::ZERO));
    }
}
