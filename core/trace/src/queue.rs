//! Queue depth of every cycle, and the session totals that follow from it.
//!
//! Computed after the pass: bytes behind a hole are read late, so the order in time is known only then.

use iscsitrace_wire::serial::SerialNumber;

use crate::iscsi::session::SessionTable;
use crate::iscsi::session::command_numbers::CommandNumbers;
use crate::tables::{Cycles, NULL_NS, NULL_U32};

/// Fills `queue_depth` and `next_command_ns` of every cycle, and the totals of every session. `ends_ns` has the end of
/// each cycle, with or without status.
pub fn fill(cycles: &mut Cycles, ends_ns: &[i64], sessions: &mut SessionTable) {
    let SessionTable { rows: sessions, states, .. } = sessions;
    for (session, mut order) in by_session(cycles, sessions.session.len()).into_iter().enumerate() {
        order.sort_by_key(|&cycle| cycles.command_first_ns[cycle as usize]);
        let mut ends: Vec<i64> = order.iter().filter_map(|&cycle| ends_ns.get(cycle as usize).copied()).collect();
        ends.sort_unstable();
        let mut ended = 0;
        for (issued, &cycle) in order.iter().enumerate() {
            let cycle = cycle as usize;
            let now_ns = cycles.command_first_ns[cycle];
            while ends.get(ended).is_some_and(|&end_ns| end_ns <= now_ns) && ended <= issued {
                ended += 1;
            }
            let depth = (issued + 1).saturating_sub(ended).max(1) as u32;
            cycles.queue_depth[cycle] = depth;
            sessions.queue_depth_max[session] = sessions.queue_depth_max[session].max(depth);
            sessions.cycle_count[session] += 1;
            let written = written_bytes(cycles, cycle);
            sessions.write_bytes[session] += u64::from(written);
            sessions.read_bytes[session] += u64::from(cycles.data_bytes[cycle] - written);
        }
        let commands = states.get(session).map(|state| &state.commands);
        for pair in order.windows(2) {
            let (cycle, next) = (pair[0] as usize, pair[1] as usize);
            if let Some(next_ns) = next_command_ns(cycles, cycle, next, commands) {
                cycles.next_command_ns[cycle] = next_ns;
            }
        }
    }
}

/// The time of the next command, after a command that was alone in flight: none if it began before the status, or if
/// commands between both were not captured.
pub(crate) fn next_command_ns(
    cycles: &Cycles,
    cycle: usize,
    next: usize,
    commands: Option<&CommandNumbers>,
) -> Option<i64> {
    let (status_ns, next_ns) = (cycles.status_ns[cycle], cycles.command_first_ns[next]);
    let is_next = cycles.queue_depth[cycle] == 1 && status_ns != NULL_NS && next_ns >= status_ns;
    let (from, to) = (SerialNumber(cycles.cmd_sn[cycle]), SerialNumber(cycles.cmd_sn[next]));
    (is_next && commands.is_none_or(|commands| commands.has_all(from, to))).then_some(next_ns)
}

/// The bytes of a cycle that went to the target. For a bidirectional command: Data-Out and immediate data.
pub(crate) fn written_bytes(cycles: &Cycles, cycle: usize) -> u32 {
    let data_bytes = cycles.data_bytes[cycle];
    if !cycles.is_write[cycle] {
        0
    } else if !cycles.is_read[cycle] {
        data_bytes
    } else {
        let solicited = cycles.unsolicited_bytes[cycle].saturating_add(cycles.solicited_bytes[cycle]);
        cycles.immediate_bytes[cycle].saturating_add(solicited).min(data_bytes)
    }
}

/// The cycles of each session, in table order.
fn by_session(cycles: &Cycles, session_count: usize) -> Vec<Vec<u32>> {
    let mut sessions = vec![Vec::new(); session_count];
    for (cycle, &session) in (0..).zip(&cycles.session) {
        if session != NULL_U32
            && let Some(members) = sessions.get_mut(session as usize)
        {
            members.push(cycle);
        }
    }
    sessions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::CycleRow;
    use proptest::prelude::*;

    #[test]
    fn payload_is_counted_by_direction() {
        let mut cycles = Cycles::default();
        let row = CycleRow { session: 0, ..CycleRow::default() };
        cycles.push(CycleRow { is_read: true, data_bytes: 5000, ..row.clone() });
        cycles.push(CycleRow { is_write: true, data_bytes: 700, solicited_bytes: 700, ..row.clone() });
        cycles.push(CycleRow {
            is_read: true,
            is_write: true,
            data_bytes: 90,
            immediate_bytes: 10,
            unsolicited_bytes: 20,
            solicited_bytes: 30,
            ..row
        });
        let mut sessions = SessionTable::default();
        sessions.open_unknown(0);
        fill(&mut cycles, &[], &mut sessions);
        assert_eq!((sessions.rows.read_bytes[0], sessions.rows.write_bytes[0]), (5000 + 30, 700 + 60));
    }

    proptest! {
        /// Compared with counting the open commands one by one.
        #[test]
        fn equals_brute_force(tasks in proptest::collection::vec((0i64..100, 1i64..40, any::<bool>()), 1..30)) {
            let mut cycles = Cycles::default();
            let mut sessions = SessionTable::default();
            sessions.open_unknown(0);
            let mut ends_ns = Vec::new();
            for &(start_ns, duration_ns, has_status) in &tasks {
                let end_ns = start_ns + duration_ns;
                cycles.push(CycleRow {
                    session: 0,
                    command_first_ns: start_ns,
                    status_ns: if has_status { end_ns } else { NULL_NS },
                    ..CycleRow::default()
                });
                ends_ns.push(end_ns);
            }
            fill(&mut cycles, &ends_ns, &mut sessions);
            for (own, &(start_ns, duration_ns, has_status)) in tasks.iter().enumerate() {
                // commands issued before it, or at the same instant and earlier in the table, that have not ended
                let depth = 1 + tasks.iter().enumerate().filter(|&(other, &(other_start_ns, other_duration_ns, _))| {
                    (other_start_ns, other) < (start_ns, own) && other_start_ns + other_duration_ns > start_ns
                }).count();
                prop_assert_eq!(cycles.queue_depth[own] as usize, depth);
                let next = tasks.iter().enumerate().filter(|&(other, &(other_start_ns, ..))| (other_start_ns, other) > (start_ns, own))
                    .map(|(_, &(other_start_ns, ..))| other_start_ns).min();
                let expected = match next {
                    Some(next_ns) if depth == 1 && has_status && next_ns >= start_ns + duration_ns => next_ns,
                    _ => NULL_NS,
                };
                prop_assert_eq!(cycles.next_command_ns[own], expected);
            }
        }
    }
}
