//! The tasks of a session, indexed by Initiator Task Tag.
//!
//! It never validates PDUs: `receive` does.

use std::collections::VecDeque;

use iscsitrace_wire::serial::SerialNumber;

use super::ranges::Ranges;

/// Tags of aborted tasks whose late answers are still ignored.
const MOST_GHOSTS: usize = 1024;

/// The data direction of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    #[default]
    None,
    /// Data-In.
    Read,
    /// Data-Out.
    Write,
}

/// A SCSI command to be sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Command {
    /// Logical Unit Number as on the wire.
    pub lun: [u8; 8],
    /// Command descriptor block.
    pub cdb: [u8; 16],
    /// Its data direction.
    pub direction: Direction,
    /// Expected Data Transfer Length.
    pub length_bytes: u32,
}

/// The state of a tag.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Free.
    #[default]
    Free,
    /// A task that ended, but whose completion was not returned to the caller yet.
    Ended,
    /// An aborted task, whose late answers are ignored.
    Ghost,
    Scsi,
    /// A NOP-Out that waits for its answer; a keepalive is not reported to the caller.
    Ping {
        length: u32,
        is_keepalive: bool,
    },
    AbortTask {
        referenced: u32,
    },
    LogicalUnitReset,
    /// SendTargets, or the empty request that an Asynchronous Message requested.
    Text {
        is_discovery: bool,
    },
    Logout {
        reason: u8,
    },
}

impl Kind {
    /// Whether an answer is outstanding.
    fn is_active(self) -> bool {
        !matches!(self, Kind::Free | Kind::Ended | Kind::Ghost)
    }
}

#[derive(Debug, Default)]
pub(super) struct Task {
    pub kind: Kind,
    pub connection: u16,
    /// Whether its PDU was sent.
    pub is_sent: bool,
    pub is_aborting: bool,
    pub is_timed_out: bool,
    pub command: Command,
    pub cmd_sn: SerialNumber,
    pub submitted_ns: i64,
    pub sent_ns: i64,
    pub first_data_ns: Option<i64>,
    /// Bytes received or sent.
    pub transferred: u32,
    /// DataSN or R2TSN of the next PDU of the target.
    pub next_sn: SerialNumber,
    /// Bytes of the current Data-In sequence.
    pub sequence_bytes: u64,
    /// Bytes sent unsolicited or requested: start of the next R2T.
    pub granted: u32,
    pub outstanding_r2t_count: u16,
    /// Transferred ranges, if any order is allowed.
    pub ranges: Ranges,
}

/// All tasks of a session.
#[derive(Debug, Default)]
pub(super) struct TaskTable {
    tasks: Vec<Task>,
    free: Vec<u32>,
    ghosts: VecDeque<u32>,
    /// Tasks with an outstanding answer.
    active_count: usize,
}

impl TaskTable {
    /// A new task under a free tag.
    pub(super) fn insert(&mut self, now_ns: i64, kind: Kind, connection: usize, command: Command) -> u32 {
        let tag = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(Task::default());
            (self.tasks.len() - 1) as u32
        });
        let task = &mut self.tasks[tag as usize];
        let mut ranges = std::mem::take(&mut task.ranges);
        ranges.clear();
        *task = Task { kind, connection: connection as u16, command, submitted_ns: now_ns, ranges, ..Task::default() };
        self.active_count += 1;
        tag
    }

    /// The task of a tag from the target.
    #[inline]
    pub(super) fn get_mut(&mut self, tag: u32) -> Option<&mut Task> {
        self.tasks.get_mut(tag as usize).filter(|task| !matches!(task.kind, Kind::Free | Kind::Ended))
    }

    pub(super) fn get(&self, tag: u32) -> Option<&Task> {
        self.tasks.get(tag as usize).filter(|task| !matches!(task.kind, Kind::Free | Kind::Ended))
    }

    /// Ends a task; its tag is reused after [`TaskTable::release`].
    pub(super) fn end(&mut self, tag: u32) {
        if let Some(task) = self.tasks.get_mut(tag as usize).filter(|task| task.kind.is_active()) {
            task.kind = Kind::Ended;
            self.active_count -= 1;
        }
    }

    /// The completion was returned to the caller: the tag is the next to be reused.
    pub(super) fn release(&mut self, tag: u32) {
        if let Some(task) = self.tasks.get_mut(tag as usize).filter(|task| task.kind == Kind::Ended) {
            task.kind = Kind::Free;
            self.free.push(tag);
        }
    }

    /// Removes a task whose answer may still arrive: its tag is not reused yet.
    pub(super) fn reserve_tag(&mut self, tag: u32) {
        if let Some(task) = self.tasks.get_mut(tag as usize).filter(|task| task.kind.is_active()) {
            task.kind = Kind::Ghost;
            self.active_count -= 1;
            self.ghosts.push_back(tag);
        }
        if self.ghosts.len() > MOST_GHOSTS
            && let Some(tag) = self.ghosts.pop_front()
            && let Some(task) = self.tasks.get_mut(tag as usize)
        {
            task.kind = Kind::Free;
            self.free.push(tag);
        }
    }

    pub(super) fn active_count(&self) -> usize {
        self.active_count
    }

    /// Tag and task of all active tasks.
    pub(super) fn active(&self) -> impl Iterator<Item = (u32, &Task)> {
        let tasks = self.tasks.iter().enumerate().map(|(tag, task)| (tag as u32, task));
        tasks.filter(|(_, task)| task.kind.is_active())
    }
}
