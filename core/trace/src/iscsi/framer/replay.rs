//! Chunks kept since the first assumed header, so that they can be read again with another assumption.

use super::progress::InProgress;
use crate::tcp::reassembly::Chunk;

/// Limits per direction: what a snaplen leaves of 256 PDUs of 64 KiB.
const CHUNKS_MAX: usize = 1 << 14;
const BYTES_MAX: usize = 1 << 20;

/// The kept chunks of one direction.
#[derive(Debug)]
pub(super) struct Replay {
    /// The PDU under way at the end of the first assumed header.
    pub(super) pdu: InProgress,
    /// Bytes of the first chunk that were used by then.
    pub(super) used: u32,
    /// Each chunk, and where its captured bytes end in `captured`.
    pub(super) chunks: Vec<(Chunk<'static>, usize)>,
    pub(super) captured: Vec<u8>,
}

impl Replay {
    /// No chunks yet.
    pub(super) fn new(pdu: InProgress, used: u32) -> Self {
        Self { pdu, used, chunks: Vec::new(), captured: Vec::new() }
    }

    /// Keeps a chunk; false when there is no room for it.
    pub(super) fn push(&mut self, chunk: &Chunk<'_>) -> bool {
        if self.chunks.len() == CHUNKS_MAX || self.captured.len() + chunk.captured.len() > BYTES_MAX {
            return false;
        }
        self.captured.extend_from_slice(chunk.captured);
        self.chunks.push((chunk.without_bytes(), self.captured.len()));
        true
    }
}
