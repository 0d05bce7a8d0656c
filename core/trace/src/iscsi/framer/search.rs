//! A search for the next header, because its position is unknown.

use serde::{Deserialize, Serialize};

use crate::iscsi::synchroniser::Synchroniser;

/// A search under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Search {
    pub(super) synchroniser: Synchroniser,
    /// Where the header should have been.
    pub(super) lost_at: i64,
    /// That position, or the end of the last hole since.
    pub(super) searched_from: i64,
    /// Whether that position is certain, with bytes there that are no header.
    pub(super) is_place_known: bool,
    /// Whether the PDU before it carried data.
    pub(super) is_after_data: bool,
    /// Whether it is the first one of its stream.
    pub(super) is_first: bool,
    /// Where the header was cut away: the end of the PDU under way, as the tasks expect it ([`Listener::due`]).
    ///
    /// [`Listener::due`]: super::listener::Listener::due
    pub(super) due: [Option<i64>; 2],
}

impl Search {
    /// Of a stream whose start was not captured.
    pub(super) fn at_start(offset: i64) -> Box<Self> {
        Box::new(Self {
            synchroniser: Synchroniser::new(offset, None, true),
            lost_at: offset,
            searched_from: offset,
            is_place_known: false,
            is_after_data: false,
            is_first: true,
            due: [None; 2],
        })
    }

    /// Whether the header was cut away, and its PDU is expected.
    pub(super) fn is_due(&self) -> bool {
        self.due != [None; 2]
    }

    /// Bytes that the PDU under way still lacks at an offset, as far as is expected: 0 within the header of the next one.
    pub(super) fn left_of_pdu(&self, offset: i64) -> Option<u64> {
        let due = self.due.into_iter().flatten().min().filter(|&due| due != offset)?;
        Some((due - offset).max(0).unsigned_abs())
    }

    /// The header may be in a hole that ends here, with its data behind it.
    pub(super) fn pass_hole(&mut self, gap_end: i64) {
        (self.is_place_known, self.searched_from) = (false, gap_end);
        self.synchroniser.keeps_all = self.is_first;
        self.synchroniser.skip_to(gap_end);
    }
}
