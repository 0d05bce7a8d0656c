//! Which session took the place of which: a new login after a lost connection, or after a refused login.

use rustc_hash::FxHashMap;

use super::SessionEnd;
use crate::tables::{Connections, NULL_U32, Sessions, session_type};

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
