//! What was counted before a period: its own counts are what came after (`=> counter` in the declarations of the tables).

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::counters::Counter;
use crate::tables::{Columns, Connections, CounterRows, Senders, Sessions, Tables};

/// The rows of connections, sessions and senders at the end of a period.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Totals {
    connections: Connections,
    sessions: Sessions,
    senders: Senders,
    /// Commands missing from the capture, by connection.
    missing_commands: FxHashMap<u32, u64>,
}

impl Totals {
    /// Leaves in these tables what came after these totals; returns the new ones.
    pub(super) fn take_from(&self, tables: &mut Tables) -> Self {
        let Tables { connections, sessions, senders, .. } = tables;
        Self {
            connections: replace_since(connections, &self.connections, Connections::since),
            sessions: replace_since(sessions, &self.sessions, Sessions::since),
            senders: replace_since(senders, &self.senders, Senders::since),
            missing_commands: FxHashMap::default(),
        }
    }

    /// The same for the counter of missing commands, which is computed of the whole ring; the others count the period alone.
    pub(super) fn take_missing(&self, totals: &mut Self, counters: &mut CounterRows) {
        let name = Counter::CommandMissing.definition().name;
        let is_missing: Vec<bool> = counters.name.iter().map(|each| each == name).collect();
        for row in (0..counters.row_count()).filter(|&row| is_missing[row]) {
            let connection = counters.connection[row];
            totals.missing_commands.insert(connection, counters.count[row]);
            let before = self.missing_commands.get(&connection).copied().unwrap_or(0);
            counters.count[row] = counters.count[row].saturating_sub(before);
        }
        let is_kept: Vec<bool> =
            (0..counters.row_count()).map(|row| !is_missing[row] || counters.count[row] > 0).collect();
        counters.retain(&is_kept);
    }
}

/// Puts what came after `before` in the place of a table, which is returned.
fn replace_since<T>(table: &mut T, before: &T, since: impl FnOnce(&T, &T) -> T) -> T {
    let own = since(table, before);
    std::mem::replace(table, own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{NULL_NS, NULL_U64, SenderRow, Session};

    #[test]
    fn a_period_has_what_came_after_the_one_before() {
        let sender = |fast_retransmit_count, rwnd_limited_ns, delayed_ack_wait_count, blocked_last_ns| SenderRow {
            connection: 7,
            rtt_count: 9,
            fast_retransmit_count,
            rwnd_limited_ns,
            delayed_ack_wait_count,
            delayed_ack_wait_frame: 40,
            blocked_bytes: 1000,
            blocked_frame: 30,
            blocked_last_ns,
            ..SenderRow::default()
        };
        let before = Senders::of([sender(2, 500, 3, 60)]);
        // no segment was blocked since, and no ACK held back
        let since = Senders::of([sender(5, 800, 3, 60)]).since(&before);
        assert_eq!((since.fast_retransmit_count[0], since.rtt_count[0]), (3, 9));
        assert_eq!((since.rwnd_limited_ns[0], since.delayed_ack_wait_count[0]), (300, 0));
        assert_eq!((since.delayed_ack_wait_frame[0], since.blocked_bytes[0]), (NULL_U64, NULL_NS));
        // a duration that is not known
        let since = Senders::of([sender(2, NULL_NS, 4, 61)]).since(&before);
        assert_eq!((since.rwnd_limited_ns[0], since.delayed_ack_wait_frame[0]), (NULL_NS, 40));
        assert_eq!((since.blocked_bytes[0], since.blocked_frame[0]), (1000, 30));
        // another direction has its own counts
        let since = Senders::of([SenderRow { to_target: true, ..sender(5, 0, 0, 60) }]).since(&before);
        assert_eq!(since.fast_retransmit_count, [5]);
    }

    #[test]
    fn sessions_count_the_commands_of_the_period() {
        let sessions = |cycle_count, read_bytes| {
            Sessions::of([Session { cycle_count, read_bytes, queue_depth_max: 4, ..Session::default() }])
        };
        let mut tables = Tables { sessions: sessions(10, 1000), ..Tables::default() };
        let totals = Totals::default().take_from(&mut tables);
        assert_eq!((tables.sessions.cycle_count[0], tables.sessions.read_bytes[0]), (10, 1000));
        tables.sessions = sessions(12, 1500);
        totals.take_from(&mut tables);
        assert_eq!((tables.sessions.cycle_count[0], tables.sessions.read_bytes[0]), (2, 500));
        assert_eq!(tables.sessions.queue_depth_max, [4]);
    }
}
