//! Which rows are of a period: commands that had not ended before it, exchanges that began in it, and rows of
//! connections and sessions with packets in it.

use rustc_hash::FxHashSet;

use crate::context::Context;
use crate::tables::{Columns, NULL_NS, NULL_U32, Starts, Tables};

/// Removes what ended before the period, and names commands by their rows. Returns their numbers in the ring.
pub(super) fn keep_since(context: &mut Context, from_ns: i64, starts: &Starts) -> Vec<u32> {
    let tables = &mut context.tables;
    tables.drop_exchanges(starts);
    tables.icmp_errors.drop_first(tables.icmp_errors.row(starts.icmp_errors));
    let cycles = &tables.cycles;
    let is_kept: Vec<bool> = (0..cycles.row_count()).map(|row| cycles.in_flight_until_ns(row) >= from_ns).collect();
    context.let_go(&is_kept);
    let numbers = context.tables.cycles.cycle.clone();
    context.tables.number_cycles_anew();
    numbers
}

/// Removes the rows of connections and sessions without packets since then, and what happened to the others before.
pub(super) fn keep_active(tables: &mut Tables, from_ns: i64) {
    macro_rules! keep {
        ($table:ident where |$row:ident| $is_kept:expr) => {{
            let is_kept: Vec<bool> = (0..tables.$table.row_count()).map(|$row| $is_kept).collect();
            tables.$table.retain(&is_kept);
        }};
    }
    // times in sentences count from the start of the period
    tables.connections.time_first_ns.iter_mut().for_each(|first_ns| *first_ns = (*first_ns).max(from_ns));
    keep!(connections where |row| tables.connections.time_last_ns[row] >= from_ns);
    keep!(sessions where |row| tables.sessions.time_last_ns[row] >= from_ns);
    let connections: FxHashSet<u32> = tables.connections.connection.iter().copied().collect();
    let sessions: FxHashSet<u32> = tables.sessions.session.iter().copied().collect();
    for replaced in tables.sessions.replaces.iter_mut().filter(|replaced| !sessions.contains(replaced)) {
        *replaced = NULL_U32;
    }
    keep!(parameters where |row| connections.contains(&tables.parameters.connection[row]));
    keep!(senders where |row| connections.contains(&tables.senders.connection[row]));
    keep!(retransmissions where |row| tables.retransmissions.time_ns[row] >= from_ns);
    keep!(recoveries where |row| {
        let last_ns = tables.recoveries.time_last_ns[row];
        connections.contains(&tables.recoveries.connection[row]) && (last_ns == NULL_NS || last_ns >= from_ns)
    });
    keep!(host_questions where |row| {
        let questions = &tables.host_questions;
        questions.time_last_ns[row].max(questions.time_answered_ns[row]) >= from_ns
    });
    keep!(logical_units where |row| sessions.contains(&tables.logical_units.session[row]));
    keep!(alua_states where |row| sessions.contains(&tables.alua_states.session[row]));
    keep!(budget where |row| tables.budget.time_last_ns[row] > from_ns);
    tables.budget.time_first_ns.iter_mut().for_each(|first_ns| *first_ns = (*first_ns).max(from_ns));
}
