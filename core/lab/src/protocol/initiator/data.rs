//! Where the data of tasks comes from and goes to; never how it travels.

/// Data of tasks, named by Initiator Task Tag and by offset in the task's buffer.
///
/// Pieces come in any length, down to a byte, and for a task in any order that the negotiated keys allow.
pub trait TaskData {
    /// Whether the bytes of a read are looked at; those that are not may never be given to [`TaskData::take`].
    fn is_wanted(&self, _initiator_task_tag: u32) -> bool {
        true
    }

    /// Bytes of a read came.
    fn take(&mut self, initiator_task_tag: u32, offset: u32, bytes: &[u8]);

    /// Bytes of a write are to be sent: all of `out` is to be filled.
    fn fill(&mut self, initiator_task_tag: u32, offset: u32, out: &mut [u8]);
}

/// Takes everything, gives zeros.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoData;

impl TaskData for NoData {
    fn take(&mut self, _initiator_task_tag: u32, _offset: u32, _bytes: &[u8]) {}

    fn fill(&mut self, _initiator_task_tag: u32, _offset: u32, out: &mut [u8]) {
        out.fill(0);
    }
}
