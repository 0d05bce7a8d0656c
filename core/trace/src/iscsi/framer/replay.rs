//! Chunks kept since the first assumed header, so that they can be read again with another assumption.

use super::progress::InProgress;
use crate::stream::chunk::Chunk;
use serde::{Deserialize, Serialize};

/// Limits per direction: what a snaplen leaves of 256 PDUs of 64 KiB.
const CHUNKS_MAX: usize = 1 << 14;
const BYTES_MAX: usize = 1 << 20;

/// The kept chunks of one direction.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(captured: &[u8]) -> Chunk<'_> {
        let length = captured.len() as u32;
        Chunk { offset: 0, length, captured, frame: 1, time_ns: 0, is_late: false, is_segment_start: true }
    }

    #[test]
    fn a_replay_has_room_for_one_mebibyte() {
        let mut replay = Replay::new(InProgress::new(), 0);
        let bytes = vec![7; BYTES_MAX - 1];
        assert!(replay.push(&chunk(&bytes)));
        assert!(!replay.push(&chunk(&[1, 2])));
        assert!(replay.push(&chunk(&[3])));
        assert!(!replay.push(&chunk(&[4])));
        let ends: Vec<usize> = replay.chunks.iter().map(|&(_, end)| end).collect();
        assert_eq!((ends, replay.captured[BYTES_MAX - 1]), (vec![BYTES_MAX - 1, BYTES_MAX], 3));
    }

    #[test]
    fn a_replay_has_room_for_16384_chunks() {
        let mut replay = Replay::new(InProgress::new(), 0);
        assert!((0..1 << 14).all(|_| replay.push(&chunk(&[]))));
        assert!(!replay.push(&chunk(&[])));
    }
}
