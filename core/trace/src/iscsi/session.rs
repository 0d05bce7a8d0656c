//! Sessions: connections joined by initiator name, ISID, target name and TSIH (RFC 7143 section 4.4.3, 6.3).
//!
//! It keeps what belongs to a session as a whole: its row, the numbering of its commands, the device types of its
//! logical units. It never sees a PDU.

use std::collections::BTreeSet;

use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::FxHashMap;

use crate::tables::{NULL_NS, NULL_U16, Session, Sessions};

/// How a session ended; codes as in `CATEGORIES["session_end"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SessionEnd {
    /// Logout Request for the session.
    Logout = 0,
    /// Its last connection closed without one.
    Closed = 1,
    /// Its last connection was reset.
    Reset = 2,
    /// A new login took its place.
    Reinstated = 3,
    /// The login was refused.
    Refused = 4,
    /// Open at the end of the capture.
    Open = 5,
}

/// CmdSN values seen ahead of the next that may wait for those between, over all connections of a session.
const AHEAD_MAX: usize = 1024;
/// A value further ahead than any command window is no loss but another count.
const JUMP_MAX: i64 = 1 << 16;

/// Which values of a serial number were seen, when they may come slightly out of order.
#[derive(Debug)]
pub struct SequenceTracker {
    next: Option<SerialNumber>,
    /// Distances from `next` would change as it moves: the values themselves, in a 64-bit unwrapped form.
    ahead: BTreeSet<i64>,
    unwrapped_next: i64,
    missing: u64,
    first: SerialNumber,
    seen: u64,
}

/// What a value was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequence {
    /// The next, or ahead of it.
    Ahead,
    /// Behind the next: seen or given up before.
    Behind,
}

impl Default for SequenceTracker {
    fn default() -> Self {
        Self { next: None, ahead: BTreeSet::new(), unwrapped_next: 0, missing: 0, first: SerialNumber(0), seen: 0 }
    }
}

impl SequenceTracker {
    /// Expects this value next, if none is expected yet.
    pub fn start(&mut self, value: SerialNumber) {
        if self.next.is_none() {
            self.first = value;
            self.next = Some(value);
        }
    }

    /// The value expected next.
    pub fn next(&self) -> Option<SerialNumber> {
        self.next
    }

    /// Takes a value.
    pub fn take(&mut self, value: SerialNumber) -> Sequence {
        if self.next.is_none() {
            self.first = value;
        }
        let next = *self.next.get_or_insert(value);
        let distance = i64::from(value.distance(next));
        if distance < 0 {
            return Sequence::Behind;
        }
        if distance > JUMP_MAX {
            self.finish();
            self.next = Some(value.next());
            return Sequence::Behind;
        }
        let unwrapped = self.unwrapped_next + distance;
        if distance > 0 {
            if !self.ahead.insert(unwrapped) {
                return Sequence::Behind;
            }
        } else {
            self.advance_to(unwrapped + 1);
        }
        self.seen += 1;
        while self.ahead.len() > AHEAD_MAX {
            self.give_up_first();
        }
        Sequence::Ahead
    }

    fn advance_to(&mut self, mut unwrapped: i64) {
        while self.ahead.remove(&unwrapped) {
            unwrapped += 1;
        }
        let step = (unwrapped - self.unwrapped_next) as u32;
        self.unwrapped_next = unwrapped;
        self.next = self.next.map(|next| SerialNumber(next.0.wrapping_add(step)));
    }

    fn give_up_first(&mut self) {
        if let Some(&first) = self.ahead.first() {
            self.missing += (first - self.unwrapped_next).max(0) as u64;
            self.advance_to(first);
        }
    }

    /// Whether two trackers, both finished, may have seen one sequence between them: the values of both lie in one
    /// range, and there is room in it for all that either saw. Gives how many values neither saw.
    pub fn missing_of_both(&self, other: &SequenceTracker) -> Option<u64> {
        let (end, other_end) = (self.next?, other.next?);
        let from = i64::from(other.first.distance(self.first)).min(0);
        let to = i64::from(other_end.distance(self.first)).max(i64::from(end.distance(self.first)));
        let overlap = i64::from(end.distance(other.first)) > 0 && i64::from(other_end.distance(self.first)) > 0;
        let missing = (to - from) - (self.seen + other.seen) as i64;
        (overlap && missing >= 0).then_some(missing as u64)
    }

    /// Gives up what is still awaited; gives how many values were never seen.
    pub fn finish(&mut self) -> u64 {
        while !self.ahead.is_empty() {
            self.give_up_first();
        }
        self.missing
    }
}

/// What is known of a session beyond its row.
#[derive(Debug, Default)]
pub struct SessionState {
    /// CmdSN of its commands, over all connections.
    pub commands: SequenceTracker,
    /// Peripheral device type by logical unit, from INQUIRY.
    pub device_types: FxHashMap<u64, u8>,
    /// Connections now open.
    pub open_connections: u32,
    /// First connection, for counters.
    pub first_connection: u32,
    /// Its tasks, and what they took.
    pub taken: Taken,
}

/// What the tasks of a session took: the measure for those whose command was not seen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Tasks that ended.
    pub tasks: u64,
    /// Data-Out PDUs of them; Data-In (without status) and R2T PDUs. Seen or missing.
    pub pdus: [u64; 2],
    /// Data and R2T PDUs seen of tasks whose command was not, by direction (to the target first).
    pub orphans: [u64; 2],
}

impl Taken {
    /// Both together.
    pub fn with(&self, other: &Taken) -> Taken {
        let sum = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
        Taken {
            tasks: self.tasks + other.tasks,
            pdus: sum(self.pdus, other.pdus),
            orphans: sum(self.orphans, other.orphans),
        }
    }

    /// About how many PDUs of each direction went with so many commands that were not seen.
    pub fn missing_with_commands(&self, commands: u64) -> [u64; 2] {
        let share = |pdus: u64, orphans: u64| match self.tasks {
            0 => 0,
            tasks => ((pdus * commands + tasks / 2) / tasks).saturating_sub(orphans),
        };
        [share(self.pdus[0], self.orphans[0]), share(self.pdus[1], self.orphans[1])]
    }
}

/// Logical units of one session whose device type is remembered.
const DEVICE_TYPES_MAX: usize = 4096;

impl SessionState {
    /// Notes the device type of a logical unit.
    pub fn note_device_type(&mut self, lun: u64, device_type: u8) {
        if self.device_types.len() < DEVICE_TYPES_MAX {
            self.device_types.insert(lun, device_type);
        }
    }
}

/// Commands of a session that were not seen, and about how many data and R2T PDUs with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingCommands {
    /// Commands.
    pub commands: u64,
    /// Other PDUs, by direction (to the target first).
    pub pdus: [u64; 2],
}

/// Sessions that are looked at for the other half of one whose login was not captured.
const PARTNERS_MAX: usize = 256;

/// Names that make a session, but for its TSIH.
type Identity = (String, String, String);

/// All sessions.
#[derive(Debug, Default)]
pub struct SessionTable {
    /// Their rows.
    pub rows: Sessions,
    /// What else is known of each.
    pub states: Vec<SessionState>,
    by_identity: FxHashMap<Identity, u32>,
}

impl SessionTable {
    /// A session whose login was not captured.
    pub fn open_unknown(&mut self, connection: u32) -> u32 {
        self.push(Session { connection_count: 1, ..Session::default() }, connection)
    }

    /// The session of a first login on a connection, by its names; `tsih` as the initiator sent it (0 asks for a new
    /// session). Gives its number, and the session that it takes the place of.
    pub fn login(&mut self, row: Session, tsih: u16, connection: u32) -> (u32, Option<u32>) {
        let identity = (row.initiator_name.clone(), row.isid.clone(), row.target_name.clone());
        let known = self.by_identity.get(&identity).copied();
        if tsih != 0
            && let Some(session) = known
            && self.rows.tsih[session as usize] == tsih
        {
            self.rows.connection_count[session as usize] += 1;
            self.states[session as usize].open_connections += 1;
            return (session, None);
        }
        let replaced = known.filter(|&session| {
            tsih == 0
                && self.rows.end[session as usize] == SessionEnd::Open as u8
                && self.rows.tsih[session as usize] != NULL_U16
        });
        if let Some(old) = replaced {
            self.rows.end[old as usize] = SessionEnd::Reinstated as u8;
        }
        let session = self.push(Session { connection_count: 1, is_login_captured: tsih == 0, ..row }, connection);
        self.by_identity.insert(identity, session);
        (session, replaced)
    }

    fn push(&mut self, mut row: Session, connection: u32) -> u32 {
        let session = self.states.len() as u32;
        row.session = session;
        self.rows.push(row);
        self.states.push(SessionState { open_connections: 1, first_connection: connection, ..SessionState::default() });
        session
    }

    /// A connection of the session closed; the session ends with its last one.
    pub fn close_connection(&mut self, session: u32, end: SessionEnd) {
        let (Some(state), Some(row_end)) =
            (self.states.get_mut(session as usize), self.rows.end.get_mut(session as usize))
        else {
            return;
        };
        state.open_connections = state.open_connections.saturating_sub(1);
        if state.open_connections == 0 && *row_end == SessionEnd::Open as u8 {
            *row_end = end as u8;
        }
    }

    /// Marks how a session ended, unless that is known already.
    pub fn end(&mut self, session: u32, end: SessionEnd) {
        if let Some(row_end) = self.rows.end.get_mut(session as usize)
            && *row_end == SessionEnd::Open as u8
        {
            *row_end = end as u8;
        }
    }

    /// The commands of each session that were not seen, by its first connection. Two sessions without their logins
    /// whose numbers make one sequence are reckoned as one: they are connections of one session.
    pub fn missing_commands(&mut self) -> Vec<(u32, MissingCommands)> {
        self.states.iter_mut().for_each(|state| {
            state.commands.finish();
        });
        let mut found = Vec::new();
        for (session, state) in self.states.iter().enumerate() {
            if state.commands.missing == 0 {
                continue;
            }
            let partner =
                (0..self.states.len().min(PARTNERS_MAX)).filter(|&other| other != session).find_map(|other| {
                    let is_known = self.rows.is_login_captured[session] && self.rows.is_login_captured[other];
                    let missing = state.commands.missing_of_both(&self.states[other].commands).filter(|_| !is_known)?;
                    Some((other, missing))
                });
            let (commands, taken) = match partner {
                // the first of the two speaks for both
                Some((other, _)) if other < session => continue,
                Some((other, missing)) => (missing, state.taken.with(&self.states[other].taken)),
                None => (state.commands.missing, state.taken),
            };
            if commands > 0 {
                let pdus = taken.missing_with_commands(commands);
                found.push((state.first_connection, MissingCommands { commands, pdus }));
            }
        }
        found
    }

    /// Stretches a session's time over one of its connections.
    pub fn note_time(&mut self, session: u32, first_ns: i64, last_ns: i64) {
        let session = session as usize;
        let first = &mut self.rows.time_first_ns[session];
        *first = if *first == NULL_NS { first_ns } else { (*first).min(first_ns) };
        let last = &mut self.rows.time_last_ns[session];
        *last = (*last).max(last_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(isid: &str) -> Session {
        Session { initiator_name: "iqn.i".into(), target_name: "iqn.t".into(), isid: isid.into(), ..Session::default() }
    }

    #[test]
    fn connections_join_by_tsih_and_a_new_login_takes_the_place() {
        let mut sessions = SessionTable::default();
        assert_eq!(sessions.login(named("a"), 0, 0), (0, None));
        sessions.rows.tsih[0] = 7;
        assert_eq!(sessions.login(named("a"), 7, 1), (0, None));
        assert_eq!(sessions.login(named("b"), 0, 2), (1, None));
        assert_eq!(sessions.login(named("a"), 0, 3), (2, Some(0)));
        assert_eq!(sessions.rows.end, [SessionEnd::Reinstated as u8, SessionEnd::Open as u8, SessionEnd::Open as u8]);
        assert_eq!(sessions.rows.connection_count, [2, 1, 1]);
    }

    #[test]
    fn a_login_that_joins_an_unseen_session_opens_a_row_without_its_login() {
        let mut sessions = SessionTable::default();
        assert_eq!(sessions.login(named("a"), 9, 0), (0, None));
        assert!(!sessions.rows.is_login_captured[0]);
    }

    proptest! {
        /// Whatever is lost and however it is mixed, the missing values between the first and the last are counted.
        #[test]
        fn missing_values_are_counted(start: u32, lost in proptest::collection::btree_set(1u32..200, 0..50), seed: u64) {
            let mut values: Vec<u32> = (0..201).filter(|value| !lost.contains(value)).collect();
            // neighbours change places, but the first stays
            let mut state = seed;
            for place in 1..values.len() - 1 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if state >> 63 == 1 {
                    values.swap(place, place + 1);
                }
            }
            let mut tracker = SequenceTracker::default();
            for value in values {
                prop_assert_eq!(tracker.take(SerialNumber(start.wrapping_add(value))), Sequence::Ahead);
            }
            prop_assert_eq!(tracker.finish(), lost.len() as u64);
        }
    }
}
