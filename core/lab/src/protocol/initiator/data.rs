//! The interface to the data of commands; never how it is transferred.

/// Data of commands, by Initiator Task Tag and offset in the command's buffer.
///
/// Pieces have any length, down to a byte, and for one command any order that the negotiated parameters allow.
pub trait TaskData {
    /// Whether the bytes of a read are wanted; unwanted ones may not be passed to [`TaskData::take`].
    fn is_wanted(&self, _initiator_task_tag: u32) -> bool {
        true
    }

    /// Takes bytes of a read.
    fn take(&mut self, initiator_task_tag: u32, offset: u32, bytes: &[u8]);

    /// Fills `out` with bytes of a write.
    fn fill(&mut self, initiator_task_tag: u32, offset: u32, out: &mut [u8]);
}

/// Ignores reads, writes zeros.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoData;

impl TaskData for NoData {
    fn take(&mut self, _initiator_task_tag: u32, _offset: u32, _bytes: &[u8]) {}

    fn fill(&mut self, _initiator_task_tag: u32, _offset: u32, out: &mut [u8]) {
        out.fill(0);
    }
}
