//! Sessions that lost their connection and were rebuilt: until when the initiator could not use them.

use rustc_hash::FxHashMap;

use super::answers::answered_ns;
use crate::iscsi::session::succession::Succession;
use crate::stream::progress::OUTAGE_MIN_NS;
use crate::tables::ended_by::{CAPTURE_END, CONNECTION_END, SESSION_END};
use crate::tables::in_flight::{self, kind};
use crate::tables::{Connections, Cycles, NULL_NS, Sessions};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Takeovers {
    /// The end of each cycle for the initiator. Reads and writes that a loss cut off wait for those of the next session.
    pub(super) ends_ns: Vec<i64>,
    /// Sessions by number that were idle when they were lost: from when until when there was none to use.
    pub(super) idle: FxHashMap<u32, (i64, i64)>,
}

impl Takeovers {
    /// The losses among all sessions.
    pub(super) fn find(
        sessions: &Sessions,
        connections: &Connections,
        cycles: &Cycles,
        succession: &Succession,
    ) -> Self {
        let mut found = Self { ends_ns: cycles.end_ns.clone(), idle: FxHashMap::default() };
        let closed_ns: FxHashMap<u32, i64> =
            connections.connection.iter().copied().zip(connections.time_last_ns.iter().copied()).collect();
        let lost = succession.lost(sessions);
        found.idle.extend(
            lost.filter(|&(_, lost_ns, until_ns)| until_ns.saturating_sub(lost_ns) >= OUTAGE_MIN_NS)
                .map(|(session, lost_ns, until_ns)| (session, (lost_ns, until_ns))),
        );
        let unanswered = (0..cycles.session.len())
            .filter(|&row| answered_ns(cycles, row).is_none() && !cycles.has_capture_gap[row])
            .filter(|&row| kind(cycles, row) == in_flight::DATA);
        for row in unanswered {
            let is_cut = matches!(cycles.ended_by[row], CONNECTION_END | SESSION_END | CAPTURE_END);
            let (true, Some(&closed_ns)) =
                (is_cut || cycles.status_ns[row] != NULL_NS, closed_ns.get(&cycles.connection[row]))
            else {
                continue;
            };
            let session = cycles.session[row];
            let until_ns = succession.data_until_ns(session);
            if until_ns.is_some() {
                found.idle.remove(&session);
            }
            found.ends_ns[row] = until_ns.map_or(closed_ns, |until_ns| until_ns.max(cycles.command_first_ns[row]));
        }
        found
    }

    /// Those so far, of a live pass: commands in flight whose session another one took the place of.
    pub(super) fn so_far(cycles: &Cycles, succession: &Succession) -> Self {
        let mut ends_ns = cycles.end_ns.clone();
        for (row, end_ns) in ends_ns.iter_mut().enumerate().filter(|(_, end_ns)| **end_ns == NULL_NS) {
            if let Some(data_ns) = succession.data_ns(cycles.session[row]) {
                *end_ns = data_ns.max(cycles.command_first_ns[row]);
            }
        }
        Self { ends_ns, idle: FxHashMap::default() }
    }
}
