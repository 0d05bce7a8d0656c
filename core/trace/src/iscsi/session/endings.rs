//! What ended commands of a session beyond one connection: resets, logouts and logins. A connection reads here what others
//! were told.

use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use crate::iscsi::task::Task;
use crate::tables::ended_by;

/// The latest that are kept: of a hostile session there may be any number.
const KEPT: usize = 64;

/// A task management function that ends many tasks (RFC 7143 section 11.5.1, RFC 7144 section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    /// Of this logical unit; none for all.
    lun: Option<u64>,
    /// CmdSN of the request: later commands are not covered.
    cmd_sn: Option<SerialNumber>,
}

impl Reset {
    /// That function, if it is one; a logical unit that was not captured covers no task.
    pub fn of(function: u8, lun: Option<u64>, cmd_sn: Option<SerialNumber>) -> Option<Self> {
        match function {
            2 | 4 | 5 => lun.map(|lun| Self { lun: Some(lun), cmd_sn }),
            6 | 7 | 11 => Some(Self { lun: None, cmd_sn }),
            _ => None,
        }
    }

    /// The logical unit whose tasks it ends; none for all.
    pub fn lun(&self) -> Option<u64> {
        self.lun
    }

    /// Whether it ends a task: one of its logical unit that was sent before (RFC 7143 section 4.2.3.3). An immediate command
    /// has no number, and counts as sent before.
    pub fn covers(&self, task: &Task) -> bool {
        let is_later = self.cmd_sn.zip(task.cmd_sn).is_some_and(|(own, of_task)| !of_task.is_before(own));
        !is_later && (self.lun.is_none() || task.lun == self.lun)
    }
}

/// What ends commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// The session was logged out or reinstated.
    Session,
    /// A connection was logged out or reinstated.
    Connection {
        /// Its CID.
        cid: u16,
        /// It has a lower number than this: the connection that reinstates it has the same CID.
        before: u32,
    },
    /// A reset was completed.
    Reset {
        /// Which commands it covers.
        reset: Reset,
        /// The connection of the request, which knows it.
        from: u32,
    },
    /// None: a task went on on another connection.
    Moved {
        /// Its tag.
        tag: u32,
        /// The connection that has it now.
        to: u32,
    },
}

/// The endings of a session, in order.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Endings(Vec<(i64, Ending)>);

impl Endings {
    /// Adds one.
    pub fn note(&mut self, time_ns: i64, ending: Ending) {
        if self.0.len() >= KEPT {
            self.0.remove(0);
        }
        self.0.push((time_ns, ending));
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first that ended a task, and its code: sent at `begun_ns` on a connection of this CID and number.
    pub fn of(&self, task: &Task, begun_ns: i64, cid: Option<u16>, connection: u32) -> Option<(i64, u8)> {
        let since = self.0.iter().filter(|&&(time_ns, _)| time_ns >= begun_ns);
        let ends = since.filter_map(|&(time_ns, ending)| {
            let by = match ending {
                Ending::Session => ended_by::SESSION_END,
                Ending::Connection { cid: of, before } if cid == Some(of) && connection < before => {
                    ended_by::CONNECTION_END
                }
                Ending::Reset { reset, from } if from != connection && reset.covers(task) => ended_by::RESET,
                _ => return None,
            };
            Some((time_ns, by))
        });
        ends.min()
    }

    /// Whether the task with this tag went on on another connection than this one.
    pub fn is_moved(&self, tag: u32, connection: u32) -> bool {
        let moved = self.0.iter().rev().find_map(|&(_, ending)| match ending {
            Ending::Moved { tag: of, to } if of == tag => Some(to),
            _ => None,
        });
        moved.is_some_and(|to| to != connection)
    }
}
