//! Sessions that lost their connection and were rebuilt: until when the initiator could not use them.

use rustc_hash::FxHashMap;

use super::answers::answered_ns;
use crate::stream::progress::OUTAGE_MIN_NS;
use crate::tables::in_flight::{self, kind};
use crate::tables::{Connections, Cycles, NULL_NS, NULL_U32, Sessions};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Takeovers {
    /// The end of each cycle. Reads and writes that a loss cut off wait for those of the next session.
    pub(super) ends_ns: Vec<i64>,
    /// Sessions by number that were idle when they were lost: from when until when there was none to use.
    pub(super) idle: FxHashMap<u32, (i64, i64)>,
}

/// What one session does.
#[derive(Debug, Clone, Copy)]
struct Course {
    /// The session that takes its place.
    next: Option<usize>,
    /// Last packet of its connections.
    lost_ns: i64,
    first_command_ns: i64,
    first_data_ns: i64,
}

impl Takeovers {
    /// The losses among all sessions. `ends_ns` has the end of each cycle, with or without status.
    pub(super) fn find(sessions: &Sessions, connections: &Connections, cycles: &Cycles, ends_ns: &[i64]) -> Self {
        let mut found = Self { ends_ns: ends_ns.to_vec(), idle: FxHashMap::default() };
        let closed_ns: FxHashMap<u32, i64> =
            connections.connection.iter().copied().zip(connections.time_last_ns.iter().copied()).collect();
        let unanswered = (0..cycles.session.len())
            .filter(|&row| answered_ns(cycles, row).is_none() && !cycles.has_capture_gap[row])
            .filter(|&row| kind(cycles, row) == in_flight::DATA);
        let mut cut = Vec::new();
        for row in unanswered {
            let (Some(end_ns), Some(&closed_ns)) = (found.ends_ns.get_mut(row), closed_ns.get(&cycles.connection[row]))
            else {
                continue;
            };
            if cycles.status_ns[row] != NULL_NS {
                *end_ns = closed_ns;
            }
            if *end_ns == closed_ns {
                cut.push(row);
            }
        }
        if sessions.replaces.iter().all(|&replaced| replaced == NULL_U32) {
            return found;
        }
        let courses = courses(sessions, connections, cycles);
        let mut is_idle = vec![true; courses.len()];
        for row in cut {
            let session = cycles.session[row] as usize;
            let (Some(is_idle), Some(end_ns)) = (is_idle.get_mut(session), found.ends_ns.get_mut(row)) else {
                continue;
            };
            if let Some(until_ns) = until_ns(&courses, session, |course| course.first_data_ns) {
                *is_idle = false;
                *end_ns = until_ns.max(cycles.command_first_ns[row]);
            }
        }
        for (number, course) in courses.iter().enumerate().filter(|&(number, _)| is_idle[number]) {
            // a session that never worked has nothing to lose
            let (Some(next), true) = (course.next, course.first_command_ns != NULL_NS) else { continue };
            let Some(until_ns) = until_ns(&courses, number, |course| course.first_command_ns) else { continue };
            let lost_ns = course.lost_ns.min(sessions.time_first_ns[next]);
            if until_ns.saturating_sub(lost_ns) >= OUTAGE_MIN_NS {
                found.idle.insert(number as u32, (lost_ns, until_ns));
            }
        }
        found
    }
}

/// The first such instant of the sessions that take its place, one after another; if there is none, the end of the last.
fn until_ns(courses: &[Course], session: usize, instant: impl Fn(&Course) -> i64) -> Option<i64> {
    let mut course = courses.get(courses.get(session)?.next?)?;
    // a session has a higher number than the one that it replaces, so that this ends
    while instant(course) == NULL_NS {
        match course.next.and_then(|next| courses.get(next)) {
            Some(next) => course = next,
            None => return Some(course.lost_ns),
        }
    }
    Some(instant(course))
}

/// The course of each session, by number.
fn courses(sessions: &Sessions, connections: &Connections, cycles: &Cycles) -> Vec<Course> {
    let unknown = Course { next: None, lost_ns: NULL_NS, first_command_ns: NULL_NS, first_data_ns: NULL_NS };
    let mut courses = vec![unknown; sessions.session.len()];
    for (next, &replaced) in sessions.replaces.iter().enumerate() {
        if let Some(course) = courses.get_mut(replaced as usize) {
            course.next = Some(next);
        }
    }
    for (&session, &last_ns) in connections.session.iter().zip(&connections.time_last_ns) {
        if let Some(course) = courses.get_mut(session as usize) {
            course.lost_ns = course.lost_ns.max(last_ns);
        }
    }
    for (row, &session) in cycles.session.iter().enumerate() {
        let Some(course) = courses.get_mut(session as usize) else { continue };
        let first_ns = cycles.command_first_ns[row];
        if course.first_command_ns == NULL_NS {
            course.first_command_ns = first_ns;
        }
        if course.first_data_ns == NULL_NS && kind(cycles, row) == in_flight::DATA {
            course.first_data_ns = first_ns;
        }
    }
    courses
}
