//! The time breakdown of each connection and session: every nanosecond from the first command to the last status is
//! attributed to one part. A session counts its connections as one.
//!
//! ```text
//! scope    one connection, or all connections of a session: its commands -> events in time order
//! answers  when commands end for the initiator
//! change   what an event changes
//! waiting  the commands in flight: who must act, and since when
//! sweep    events -> spans, one part each
//! idle     the part of each command in which the line is idle
//! outage   times without progress, which are a part of their own
//! takeover sessions that were lost and rebuilt
//! ```
//!
//! Computed after the pass, when RTTs, line rates and the order in time are known. The rules are in docs/method.md,
//! section 4.

mod answers;
mod change;
mod idle;
mod outage;
mod scope;
mod sweep;
mod takeover;
#[cfg(test)]
mod tests;
mod waiting;

use std::sync::mpsc;
use std::thread;

use rustc_hash::FxHashMap;

use crate::iscsi::session::succession::Succession;
use crate::senders::timeline::Timeline;
use crate::tables::{Budget, Connections, NULL_U32, Tables};

pub use scope::Between;
use scope::{Ends, Scope};
use takeover::Takeovers;

/// Scopes that a processor takes at once.
const SHARE: usize = 64;

/// Connections of which no byte of the target is missing from the capture, and from when on a command without a status is
/// known to be in flight: always; or from the last data of the target on, where the headers of some PDUs are cut off, as
/// its status may be among them.
fn known_from_ns(connections: &Connections) -> FxHashMap<u32, i64> {
    let rows = (0..connections.connection.len()).filter(|&row| connections.gap_bytes_to_initiator[row] == 0);
    let from_ns = |row: usize| match connections.missing_pdu_count_to_initiator[row] {
        0 => i64::MIN,
        _ => connections.data_last_to_initiator_ns[row],
    };
    rows.map(|row| (connections.connection[row], from_ns(row))).collect()
}

/// Fills `budget`, and what follows from it for each command.
pub fn fill(tables: &mut Tables, timelines: &[Timeline], succession: &Succession) {
    let takeovers = Takeovers::find(&tables.sessions, &tables.connections, &tables.cycles, succession);
    let scopes = fill_scopes(tables, timelines, &takeovers, None);
    idle::fill(&mut tables.cycles, &tables.budget, &scopes);
}

/// The same for a part of the time. The tables must have the commands in flight within it and shortly before.
pub fn fill_between(tables: &mut Tables, timelines: &[Timeline], succession: &Succession, between: &Between<'_>) {
    let takeovers = Takeovers::so_far(&tables.cycles, succession);
    fill_scopes(tables, timelines, &takeovers, Some(between));
}

fn fill_scopes<'a>(
    tables: &mut Tables,
    timelines: &'a [Timeline],
    takeovers: &Takeovers,
    between: Option<&Between<'_>>,
) -> Vec<Scope<'a>> {
    let mut by_connection: Vec<(u32, usize)> =
        timelines.iter().enumerate().map(|(place, timeline)| (timeline.connection, place)).collect();
    by_connection.sort_unstable();
    let place = |connection: u32| {
        by_connection
            .binary_search_by_key(&connection, |&(number, _)| number)
            .ok()
            .and_then(|found| by_connection.get(found))
            .map(|&(_, place)| place)
    };
    // in a live pass some sessions have left
    let numbers = &tables.sessions.session;
    let row = |session: u32| numbers.binary_search(&session).unwrap_or(usize::MAX);
    let mut connections: Vec<Scope<'_>> = timelines.iter().map(Scope::of_connection).collect();
    let mut sessions: Vec<Vec<usize>> = vec![Vec::new(); tables.sessions.session.len()];
    let cycles = &tables.cycles;
    for (cycle, (&connection, &session)) in (0..).zip(cycles.connection.iter().zip(&cycles.session)) {
        let Some(place) = place(connection) else { continue };
        let Some(scope) = connections.get_mut(place) else { continue };
        if scope.session == NULL_U32 {
            scope.session = session;
            if let Some(members) = sessions.get_mut(row(session)) {
                members.push(place);
            }
        }
        scope.cycles.push(cycle);
    }
    if let Some(between) = between {
        for (place, scope) in connections.iter_mut().enumerate() {
            let Some(&session) = between.begun.get(&scope.connection) else { continue };
            if scope.session == NULL_U32 {
                scope.session = session;
                if let Some(members) = sessions.get_mut(row(session)) {
                    members.push(place);
                }
            }
        }
    }
    let rounds = scope::rounds_by_cycle(&tables.rounds);
    let ends = Ends { cycles_ns: &takeovers.ends_ns, known_from_ns: known_from_ns(&tables.connections) };
    for scope in &mut connections {
        if sessions.get(row(scope.session)).is_some_and(|members| members.len() == 1) {
            scope.lost_ns = takeovers.idle.get(&scope.session).copied();
        }
    }
    let mut scopes = connections;
    for members in sessions.into_iter().filter(|members| members.len() > 1) {
        let mut whole = Scope::of_session(members.iter().filter_map(|&place| timelines.get(place)).collect());
        for scope in members.iter().filter_map(|&place| scopes.get(place)) {
            whole.cycles.extend(&scope.cycles);
            whole.session = scope.session;
        }
        whole.cycles.sort_unstable();
        whole.lost_ns = takeovers.idle.get(&whole.session).copied();
        scopes.push(whole);
    }
    let budget_of = |scopes: &[Scope<'_>]| {
        let mut budget = Budget::default();
        for scope in scopes {
            scope.budget(cycles, &tables.rounds, &rounds, &ends, between, |row| {
                budget.push(row);
            });
        }
        budget
    };
    tables.budget = by_shares(&scopes, budget_of);
    scopes
}

/// The rows of all scopes, in their order: made by all processors, if there are many. They come in small shares, so that
/// little of them is held twice.
fn by_shares(scopes: &[Scope<'_>], budget_of: impl Fn(&[Scope<'_>]) -> Budget + Sync) -> Budget {
    let shares = scopes.chunks(SHARE);
    let count =
        if shares.len() > 1 { thread::available_parallelism().map_or(1, usize::from).min(shares.len()) } else { 1 };
    if count == 1 {
        return budget_of(scopes);
    }
    thread::scope(|threads| {
        let made_by = |processor: usize| {
            let (own, budget_of) = (shares.clone().skip(processor).step_by(count), &budget_of);
            let (made, receiver) = mpsc::sync_channel(1);
            let run = move || own.map(budget_of).all(|share| made.send(share).is_ok());
            thread::Builder::new().spawn_scoped(threads, run).map(|_| receiver)
        };
        let Ok(processors) = (0..count).map(made_by).collect::<Result<Vec<_>, _>>() else {
            // no room for so many threads
            return budget_of(scopes);
        };
        let mut budget = Budget::default();
        for (_, made) in shares.clone().zip(processors.iter().cycle()) {
            if let Ok(mut share) = made.recv() {
                budget.append(&mut share);
            }
        }
        budget
    })
}
