//! Which session took the place of which: a new login after a lost connection, or after a refused login; and when the work of
//! a session went on there.
//!
//! Nobody else says so: `sessions.replaces`, the time breakdown of a pass and that of a live pass follow from it.

use rustc_hash::FxHashMap;

use super::{SessionEnd, SessionState};
use crate::tables::{Connections, NULL_NS, NULL_U32, Sessions, session_type};

/// Addresses of initiator and target, and the target's port.
type Place<'a> = (&'a str, &'a str, u16);

/// Fills `sessions.replaces`. Sessions are in the order of their logins.
pub fn fill(sessions: &mut Sessions, connections: &Connections) {
    let mut places: FxHashMap<u32, Place<'_>> = FxHashMap::default();
    for (row, &session) in connections.session.iter().enumerate().filter(|(_, session)| **session != NULL_U32) {
        let addresses = (&connections.initiator_address[row], &connections.target_address[row]);
        places.entry(session).or_insert((addresses.0, addresses.1, connections.target_port[row]));
    }
    let mut replaces = vec![NULL_U32; sessions.session.len()];
    let mut named: FxHashMap<(&str, &str, &str), usize> = FxHashMap::default();
    let mut unnamed: FxHashMap<Place<'_>, usize> = FxHashMap::default();
    for (row, replaced) in replaces.iter_mut().enumerate() {
        let place = places.get(&sessions.session[row]).copied();
        if sessions.initiator_name[row].is_empty() {
            if let Some(place) = place {
                unnamed.insert(place, row);
            }
            continue;
        }
        if sessions.session_type[row] != session_type::NORMAL {
            continue;
        }
        let name = (&sessions.initiator_name[row], &sessions.isid[row], &sessions.target_name[row]);
        let known = named.insert(name, row).or_else(|| {
            let place = place.filter(|place| unnamed.get(place).is_some_and(|&other| is_over(sessions, other, row)))?;
            unnamed.remove(&place)
        });
        let lost = known.filter(|&other| sessions.end[other] != SessionEnd::Logout as u8);
        *replaced = lost.map_or(NULL_U32, |other| sessions.session[other]);
    }
    sessions.replaces = replaces;
}

/// Whether a session of unknown names was over when the other one began: else it is beside it.
fn is_over(sessions: &Sessions, row: usize, next: usize) -> bool {
    sessions.end[row] != SessionEnd::Open as u8 || sessions.time_last_ns[row] <= sessions.time_first_ns[next]
}

/// The sessions that took the place of others, and what they did first.
#[derive(Debug, Default)]
pub struct Succession {
    /// In the order of the table of sessions.
    courses: Vec<Course>,
    /// The place of each, by its number.
    places: FxHashMap<u32, usize>,
}

/// What one session does.
#[derive(Debug, Clone, Copy)]
struct Course {
    /// Place of the session that takes its place.
    next: Option<usize>,
    last_ns: i64,
    first_command_ns: Option<i64>,
    first_data_ns: Option<i64>,
}

impl Succession {
    /// That of these sessions, whose `replaces` is filled.
    pub fn of(sessions: &Sessions, states: &[SessionState]) -> Self {
        let mut found = Self::default();
        if sessions.replaces.iter().all(|&replaced| replaced == NULL_U32) {
            return found;
        }
        found.places = sessions.session.iter().copied().zip(0..).collect();
        let courses = states.iter().zip(&sessions.time_last_ns).map(|(state, &last_ns)| Course {
            next: None,
            last_ns,
            first_command_ns: state.first_command_ns,
            first_data_ns: state.first_data_ns,
        });
        found.courses.extend(courses);
        for (next, replaced) in sessions.replaces.iter().enumerate() {
            let place = found.places.get(replaced).copied();
            if let Some(course) = place.filter(|&place| place < next).and_then(|place| found.courses.get_mut(place)) {
                course.next = Some(next);
            }
        }
        found
    }

    fn next(&self, course: &Course) -> Option<&Course> {
        self.courses.get(course.next?)
    }

    /// The sessions after this one, one after another: each has a higher place than the one before.
    fn after(&self, session: u32) -> impl Iterator<Item = &Course> {
        let course = self.places.get(&session).and_then(|&place| self.courses.get(place));
        let first = course.and_then(|course| self.next(course));
        std::iter::successors(first, |course| self.next(course))
    }

    /// When reads and writes of a session went on: the first one of the sessions that took its place.
    pub fn data_ns(&self, session: u32) -> Option<i64> {
        self.after(session).find_map(|course| course.first_data_ns)
    }

    /// Until when the reads and writes of a session wait, in a pass that is over: if they did not go on, to the end of the last
    /// session that took its place. None if there is none.
    pub fn data_until_ns(&self, session: u32) -> Option<i64> {
        self.data_ns(session).or_else(|| self.after(session).last().map(|course| course.last_ns))
    }

    /// The sessions that were in use, and lost: number, last packet or the start of the next one, and the first command after it,
    /// or the end of the last one.
    pub fn lost(&self, sessions: &Sessions) -> impl Iterator<Item = (u32, i64, i64)> {
        self.courses.iter().zip(&sessions.session).filter_map(|(course, &number)| {
            let (next, _) = (course.next?, course.first_command_ns?);
            let lost_ns = course.last_ns.min(sessions.time_first_ns.get(next).copied().unwrap_or(NULL_NS));
            let went_on = self.after(number).find_map(|course| course.first_command_ns);
            Some((number, lost_ns, went_on.or_else(|| self.after(number).last().map(|course| course.last_ns))?))
        })
    }

    /// That of tables by hand.
    #[cfg(test)]
    pub fn of_tables(tables: &crate::tables::Tables) -> Self {
        let cycles = &tables.cycles;
        let mut states: Vec<SessionState> = tables.sessions.session.iter().map(|_| SessionState::default()).collect();
        for (row, &session) in cycles.session.iter().enumerate() {
            if let Some(state) = states.get_mut(session as usize) {
                state.note_command(row, cycles);
            }
        }
        Self::of(&tables.sessions, &states)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Connection, Session};

    /// A session of this ISID (none if its login was not captured), how it ended, and its time.
    fn sessions(rows: &[(&str, SessionEnd, i64, i64)]) -> Sessions {
        let mut sessions = Sessions::default();
        for (number, &(isid, end, time_first_ns, time_last_ns)) in (0..).zip(rows) {
            let name = |name: &str| if isid.is_empty() { String::new() } else { name.to_owned() };
            sessions.push(Session {
                session: number,
                session_type: session_type::NORMAL,
                initiator_name: name("iqn.i"),
                target_name: name("iqn.t"),
                isid: isid.to_owned(),
                end: end as u8,
                time_first_ns,
                time_last_ns,
                ..Session::default()
            });
        }
        sessions
    }

    fn found(mut sessions: Sessions) -> Vec<u32> {
        let mut connections = Connections::default();
        for &session in &sessions.session {
            connections.push(Connection {
                session,
                initiator_address: "10.0.0.1".into(),
                target_address: "10.0.0.2".into(),
                target_port: 3260,
                ..Connection::default()
            });
        }
        fill(&mut sessions, &connections);
        sessions.replaces
    }

    #[test]
    fn a_login_takes_the_place_of_a_lost_session_and_of_a_refused_one() {
        use SessionEnd::{Open, Refused, Reset};
        let rows = [("a", Reset, 0, 1), ("b", Open, 0, 9), ("a", Refused, 2, 3), ("a", Open, 4, 9)];
        assert_eq!(found(sessions(&rows)), [NULL_U32, NULL_U32, 0, 2]);
    }

    #[test]
    fn a_logout_ends_the_story() {
        let rows = [("a", SessionEnd::Logout, 0, 1), ("a", SessionEnd::Open, 2, 3)];
        assert_eq!(found(sessions(&rows)), [NULL_U32; 2]);
    }

    #[test]
    fn discoveries_replace_nothing() {
        let mut rows = sessions(&[("a", SessionEnd::Reset, 0, 1), ("a", SessionEnd::Open, 2, 3)]);
        rows.session_type.fill(session_type::DISCOVERY);
        assert_eq!(found(rows), [NULL_U32; 2]);
    }

    /// Sessions with the numbers 3 to 6, each of which replaces the one before, and their first command and read.
    fn successors(begun: [(Option<i64>, Option<i64>); 4]) -> (Sessions, Succession) {
        use SessionEnd::{Open, Reset};
        let rows = [("a", Reset, 0, 1), ("a", Reset, 10, 11), ("a", Reset, 20, 21), ("a", Open, 30, 31)];
        let mut sessions = sessions(&rows);
        sessions.session = vec![3, 4, 5, 6];
        sessions.replaces = vec![NULL_U32, 3, 4, 5];
        let states = begun.map(|(first_command_ns, first_data_ns)| SessionState {
            first_command_ns,
            first_data_ns,
            ..SessionState::default()
        });
        let succession = Succession::of(&sessions, &states);
        (sessions, succession)
    }

    #[test]
    fn work_goes_on_with_the_first_read_or_write_of_a_session_after_it() {
        let (sessions, succession) =
            successors([(Some(0), Some(0)), (None, None), (Some(22), None), (Some(32), Some(33))]);
        assert_eq!(
            [3, 4, 5, 6, 7].map(|session| succession.data_ns(session)),
            [Some(33), Some(33), Some(33), None, None]
        );
        assert_eq!([3, 6].map(|session| succession.data_until_ns(session)), [Some(33), None]);
        // the second was never in use
        assert_eq!(succession.lost(&sessions).collect::<Vec<_>>(), [(3, 1, 22), (5, 21, 32)]);
    }

    #[test]
    fn work_that_does_not_go_on_waits_to_the_end_of_the_last_session() {
        let (sessions, succession) = successors([(Some(0), Some(0)), (None, None), (None, None), (None, None)]);
        assert_eq!((succession.data_ns(3), succession.data_until_ns(3)), (None, Some(31)));
        assert_eq!(succession.lost(&sessions).collect::<Vec<_>>(), [(3, 1, 31)]);
    }

    #[test]
    fn a_session_of_unknown_names_is_replaced_only_if_it_is_over() {
        use SessionEnd::{Open, Reset};
        assert_eq!(found(sessions(&[("", Reset, 0, 9), ("a", Open, 5, 9)])), [NULL_U32, 0]);
        assert_eq!(found(sessions(&[("", Open, 0, 4), ("a", Open, 5, 9)])), [NULL_U32, 0]);
        assert_eq!(found(sessions(&[("", Open, 0, 9), ("a", Open, 5, 9)])), [NULL_U32, NULL_U32]);
        // only once
        let rows = [("", Reset, 0, 4), ("a", Open, 5, 9), ("b", Open, 6, 9)];
        assert_eq!(found(sessions(&rows)), [NULL_U32, 0, NULL_U32]);
    }
}
