//! The connection of each open task, in a session of several connections: rule T8.
//!
//! Tasks from before the second connection, and those behind a hole, are not known here.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Open tasks that are kept.
const OPEN_MAX: usize = 1 << 16;

/// The open tasks of a session of several connections.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Allegiance {
    connections: FxHashMap<u32, u32>,
    /// Whether tasks change their connection (RFC 7143 section 7.2.2).
    is_off: bool,
}

impl Allegiance {
    /// A command with this tag came on a connection.
    pub(crate) fn command(&mut self, tag: u32, connection: u32) {
        if self.connections.len() < OPEN_MAX && !self.is_off {
            self.connections.insert(tag, connection);
        }
    }

    /// Its status came there.
    pub(crate) fn end(&mut self, tag: u32, connection: u32) {
        if self.connections.get(&tag) == Some(&connection) {
            self.connections.remove(&tag);
        }
    }

    /// Tasks change their connection from now on.
    pub(crate) fn give_up(&mut self) {
        *self = Self { is_off: true, ..Self::default() };
    }

    /// Another connection that has the task.
    pub(crate) fn other(&self, tag: u32, connection: u32) -> Option<u32> {
        self.connections.get(&tag).copied().filter(|&other| other != connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_known_on_its_connection_until_its_status() {
        let mut allegiance = Allegiance::default();
        allegiance.command(7, 1);
        assert_eq!([allegiance.other(7, 1), allegiance.other(7, 2), allegiance.other(8, 2)], [None, Some(1), None]);
        // a status elsewhere does not end it
        allegiance.end(7, 2);
        assert_eq!(allegiance.other(7, 2), Some(1));
        allegiance.end(7, 1);
        assert_eq!(allegiance.other(7, 2), None);
        allegiance.give_up();
        allegiance.command(9, 1);
        assert_eq!(allegiance.other(9, 2), None);
    }
}
