//! The blocks of a transfer, at the sender and at the receiver. The first byte of a block marks the last block, because
//! a transfer for a given time has no length that both sides know.

use super::message::{Report, Request};

/// First byte of a block that is not the last, and all other bytes: no iSCSI opcode.
const MORE: u8 = b'U';
/// First byte of the last block: no iSCSI opcode.
const LAST: u8 = b'W';

impl Request {
    /// Length of the block that starts after this many bytes.
    fn block_length(&self, before_bytes: u64) -> u64 {
        u64::from(self.block_bytes).min(self.limit_bytes.saturating_sub(before_bytes))
    }
}

/// The sender's state.
#[derive(Debug)]
pub struct Sending {
    request: Request,
    started_ns: i64,
    /// Bytes handed out.
    pub bytes: u64,
    is_ended: bool,
}

impl Sending {
    /// Starts now.
    pub fn new(request: Request, now_ns: i64) -> Self {
        Self { request, started_ns: now_ns, bytes: 0, is_ended: false }
    }

    /// Makes the next block the last.
    pub fn stop(&mut self) {
        self.request.limit_ns = 0;
    }

    /// Appends the next block, if there is one.
    pub fn poll_transmit(&mut self, now_ns: i64, out: &mut Vec<u8>) {
        let length = self.request.block_length(self.bytes);
        if self.is_ended || length == 0 {
            return;
        }
        self.is_ended = now_ns.saturating_sub(self.started_ns) >= self.request.limit_ns;
        out.push(if self.is_ended { LAST } else { MORE });
        out.resize(out.len() + length as usize - 1, MORE);
        self.bytes += length;
    }
}

/// The receiver's state.
#[derive(Debug)]
pub struct Receiving {
    request: Request,
    /// Bytes received.
    pub bytes: u64,
    /// Remaining bytes of the current block.
    block_left: u64,
    is_last: bool,
    first_ns: Option<i64>,
    last_ns: i64,
    /// The first arrival in the second half of the transfer, and the bytes received by then.
    half: Option<(i64, u64)>,
}

impl Receiving {
    /// The state for a request, before its first byte.
    pub fn new(request: Request) -> Self {
        Self { request, bytes: 0, block_left: 0, is_last: false, first_ns: None, last_ns: 0, half: None }
    }

    /// Bytes of the current block after its first byte that need not be read.
    pub fn unwanted(&self) -> usize {
        usize::try_from(self.block_left).unwrap_or(usize::MAX)
    }

    /// This many of them arrived.
    pub fn skip(&mut self, now_ns: i64, count: usize) {
        let count = self.block_left.min(count as u64);
        self.block_left -= count;
        self.bytes += count;
        self.note(now_ns);
    }

    /// Bytes arrived; those after the end are ignored.
    pub fn receive(&mut self, now_ns: i64, mut bytes: &[u8]) {
        while let Some(&first) = bytes.first().filter(|_| !self.is_over()) {
            if self.block_left == 0 {
                self.is_last = first == LAST;
                self.block_left = self.request.block_length(self.bytes);
            }
            let taken = bytes.len().min(usize::try_from(self.block_left).unwrap_or(usize::MAX));
            self.block_left -= taken as u64;
            self.bytes += taken as u64;
            bytes = &bytes[taken..];
        }
        self.note(now_ns);
    }

    /// Bytes arrived.
    fn note(&mut self, now_ns: i64) {
        let since_ns = now_ns.saturating_sub(*self.first_ns.get_or_insert(now_ns));
        self.last_ns = now_ns;
        if self.half.is_none() && (self.bytes >= self.request.limit_bytes / 2 || since_ns >= self.request.limit_ns / 2)
        {
            self.half = Some((now_ns, self.bytes));
        }
    }

    /// Whether the transfer is complete.
    pub fn is_over(&self) -> bool {
        self.bytes >= self.request.limit_bytes || (self.is_last && self.block_left == 0)
    }

    /// The report so far.
    pub fn report(&self) -> Report {
        let (half_ns, half_bytes) = self.half.unwrap_or((self.last_ns, self.bytes));
        Report {
            bytes: self.bytes,
            first_ns: self.first_ns.unwrap_or(self.last_ns),
            half_ns,
            last_ns: self.last_ns,
            steady_bytes: self.bytes - half_bytes,
        }
    }
}
