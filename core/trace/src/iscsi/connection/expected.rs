//! Whose data or status comes next in a direction, as far as its last PDU tells.

use serde::{Deserialize, Serialize};

/// The remaining data of a task.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Tail {
    pub(super) tag: u32,
    pub(super) remaining_bytes: u32,
}

/// What is known of the next PDU of one direction.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Expected {
    /// The task whose data or status comes next.
    pub(super) tail: Option<Tail>,
    /// The longest data segment seen: the sender's usual size.
    pub(super) longest_bytes: u32,
}

impl Expected {
    /// Notes a data PDU, after which this many bytes of its task or burst remain.
    #[inline]
    pub(super) fn note_data(&mut self, tag: u32, bytes: u32, remaining_bytes: u32) {
        self.longest_bytes = self.longest_bytes.max(bytes);
        self.tail = Some(Tail { tag, remaining_bytes });
    }
}
