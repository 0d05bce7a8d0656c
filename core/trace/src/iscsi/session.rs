//! Sessions: connections joined by initiator name, ISID, target name and TSIH (RFC 7143 section 4.4.3, 6.3).
//!
//! It keeps what belongs to a session as a whole: its row, the numbering of its commands, the device types of its
//! logical units. It never sees a PDU.

use std::ops::Range;

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

/// A value further ahead than any command window is no loss but another count.
const JUMP_MAX: i32 = 1 << 16;
/// Runs of values, the last ones, between which a late value is still looked for.
const OPEN_RUNS_MAX: usize = 1024;

/// Which values of a serial number were seen, when they may come out of order.
#[derive(Debug, Clone, Default)]
pub struct SequenceTracker {
    /// Runs of values in unwrapped form, in order and never touching. The first is empty when nothing was seen of where
    /// the sequence starts.
    runs: Vec<Range<i64>>,
    /// Values missing from counts that others took the place of.
    given_up: u64,
}

/// What a value was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sequence {
    /// The next, ahead of it, or a late one that was missing.
    Ahead,
    /// Seen or given up before, or of another count.
    Behind,
}

impl SequenceTracker {
    /// Expects this value next, if none is expected yet.
    pub fn start(&mut self, value: SerialNumber) {
        if self.runs.is_empty() {
            let at = i64::from(value.0);
            self.runs.push(at..at);
        }
    }

    /// Takes a value.
    pub fn take(&mut self, value: SerialNumber) -> Sequence {
        self.start(value);
        let Some(last) = self.runs.last_mut() else { return Sequence::Behind };
        let distance = value.distance(SerialNumber(last.end as u32));
        let at = last.end + i64::from(distance);
        match distance {
            ..0 => return self.take_late(at),
            0 => last.end += 1,
            1..=JUMP_MAX => self.runs.push(at..at + 1),
            _ => {
                self.given_up = self.missing();
                self.runs.clear();
                self.runs.push(at..at + 1);
                return Sequence::Behind;
            }
        }
        Sequence::Ahead
    }

    /// Takes a value that lies before the end of the last run.
    fn take_late(&mut self, at: i64) -> Sequence {
        let open = self.runs.len().saturating_sub(OPEN_RUNS_MAX);
        let after = open + self.runs.get(open..).unwrap_or_default().partition_point(|run| run.start <= at);
        let before = after.wrapping_sub(1);
        match self.runs.get(before) {
            Some(run) if after > open && run.end <= at => {}
            _ => return Sequence::Behind,
        }
        let end = match self.runs.get(after) {
            Some(next) if next.start == at + 1 => self.runs.remove(after).end,
            _ => at + 1,
        };
        match self.runs.get_mut(before) {
            Some(run) if run.end == at => run.end = end,
            _ => self.runs.insert(after, at..end),
        }
        Sequence::Ahead
    }

    /// Keeps so many of the last runs: what is missing before them is missing for good.
    pub fn forget(&mut self, kept: usize) {
        if self.runs.len() > 2 * kept.max(1) {
            let missing = self.missing();
            self.runs.drain(..self.runs.len() - kept);
            self.given_up = 0;
            self.given_up = missing - self.missing();
        }
    }

    /// How many values are missing between those that were seen.
    pub fn missing(&self) -> u64 {
        let ends = self.runs.iter().map(|run| run.end);
        let holes = self.runs.iter().skip(1).zip(ends).map(|(next, end)| (next.start - end) as u64);
        self.given_up + holes.sum::<u64>()
    }

    /// Both as one sequence, if they can be one: each saw values within the range of the other, and none was seen by
    /// both.
    fn joined(&self, other: &SequenceTracker) -> Option<SequenceTracker> {
        let range = self.runs.first()?.start..self.runs.last()?.end;
        let theirs = other.runs.first()?.start..other.runs.last()?.end;
        let distance = SerialNumber(theirs.start as u32).distance(SerialNumber(range.start as u32));
        let shift = range.start + i64::from(distance) - theirs.start;
        if range.start.max(theirs.start + shift) >= range.end.min(theirs.end + shift) {
            return None;
        }
        let mut ours = self.runs.iter().cloned().peekable();
        let mut theirs = other.runs.iter().map(|run| run.start + shift..run.end + shift).peekable();
        let mut runs: Vec<Range<i64>> = Vec::new();
        loop {
            let is_ours_next = match (ours.peek(), theirs.peek()) {
                (Some(our), Some(their)) => our.start <= their.start,
                (our, _) => our.is_some(),
            };
            let Some(run) = (if is_ours_next { ours.next() } else { theirs.next() }) else { break };
            match runs.last_mut() {
                Some(last) if run.start == last.end => last.end = run.end,
                Some(last) if run.start < last.end => {
                    if !run.is_empty() {
                        return None;
                    }
                }
                _ => runs.push(run),
            }
        }
        Some(SequenceTracker { runs, given_up: self.given_up + other.given_up })
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
    /// DataSequenceInOrder=No is in force: data of a task may come in any order (RFC 7143 section 13.19).
    pub is_data_in_any_order: bool,
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

/// Groups that are looked at for the other connections of a session whose login was not captured.
const PARTNERS_MAX: usize = 256;

/// Sessions that are one: several connections, their logins not captured.
struct Group {
    commands: SequenceTracker,
    taken: Taken,
    is_login_captured: bool,
    /// The first connection of the first member that lacks commands.
    lacking_connection: Option<u32>,
}

impl Group {
    fn new(state: &SessionState, is_login_captured: bool) -> Self {
        let lacking_connection = (state.commands.missing() > 0).then_some(state.first_connection);
        Self { commands: state.commands.clone(), taken: state.taken, is_login_captured, lacking_connection }
    }

    /// Both as one, if they can be.
    fn joined(&self, other: &Group) -> Option<Group> {
        if self.is_login_captured && other.is_login_captured {
            return None;
        }
        Some(Group {
            commands: self.commands.joined(&other.commands)?,
            taken: self.taken.with(&other.taken),
            is_login_captured: self.is_login_captured || other.is_login_captured,
            lacking_connection: self.lacking_connection.or(other.lacking_connection),
        })
    }
}

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
    /// Sessions so far: the number of the next.
    count: u32,
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
        row.session = self.count;
        self.count += 1;
        self.rows.push(row);
        self.states.push(SessionState { open_connections: 1, first_connection: connection, ..SessionState::default() });
        session
    }

    /// Drops sessions, and gives the new places of all: none of those that are gone. Numbers stay as they are.
    pub fn retain(&mut self, is_kept: &[bool]) -> Vec<Option<u32>> {
        let mut next = 0;
        let places: Vec<Option<u32>> = is_kept
            .iter()
            .map(|&is_kept| {
                next += u32::from(is_kept);
                is_kept.then(|| next - 1)
            })
            .collect();
        self.rows.retain(is_kept);
        let mut kept = is_kept.iter();
        self.states.retain(|_| kept.next().copied().unwrap_or(true));
        self.by_identity.retain(|_, place| match places.get(*place as usize).copied().flatten() {
            Some(new) => {
                *place = new;
                true
            }
            None => false,
        });
        places
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

    /// The commands of each session that were not seen, by a connection that lacks some of them. Sessions whose numbers
    /// make one sequence are reckoned as one, if the login of at most one was captured: they are connections of one
    /// session.
    pub fn missing_commands(&self) -> Vec<(u32, MissingCommands)> {
        let mut groups: Vec<Group> = Vec::new();
        for (state, &is_login_captured) in self.states.iter().zip(&self.rows.is_login_captured) {
            let mut group = Group::new(state, is_login_captured);
            while let Some((place, joined)) = groups
                .iter()
                .take(PARTNERS_MAX)
                .enumerate()
                .find_map(|(place, other)| Some((place, other.joined(&group)?)))
            {
                groups.remove(place);
                group = joined;
            }
            groups.push(group);
        }
        let missing = groups.iter().filter_map(|group| {
            let commands = group.commands.missing();
            let pdus = group.taken.missing_with_commands(commands);
            Some((group.lacking_connection?, MissingCommands { commands, pdus })).filter(|_| commands > 0)
        });
        missing.collect()
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
    fn sessions_that_stay_keep_their_numbers_and_are_found_by_name() {
        let mut sessions = SessionTable::default();
        for (connection, isid) in (0..).zip(["a", "b", "c"]) {
            sessions.login(named(isid), 0, connection);
        }
        assert_eq!(sessions.retain(&[false, true, true]), [None, Some(0), Some(1)]);
        assert_eq!(sessions.rows.session, [1, 2]);
        sessions.rows.tsih[1] = 7;
        assert_eq!(sessions.login(named("c"), 7, 3), (1, None));
        // one that is gone begins anew
        assert_eq!(sessions.login(named("a"), 0, 4), (2, None));
        assert_eq!(sessions.rows.session, [1, 2, 3]);
    }

    #[test]
    fn runs_that_are_forgotten_leave_what_is_missing_between_them() {
        let mut tracker = SequenceTracker::default();
        (0..100).for_each(|run| {
            tracker.take(SerialNumber(10 * run));
        });
        let missing = tracker.missing();
        tracker.forget(20);
        assert_eq!((tracker.missing(), tracker.runs.len()), (missing, 20));
        assert_eq!(tracker.take(SerialNumber(985)), Sequence::Ahead);
        assert_eq!(tracker.missing(), missing - 1);
        assert_eq!(tracker.take(SerialNumber(5)), Sequence::Behind);
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
            prop_assert_eq!(tracker.missing(), lost.len() as u64);
        }
    }

    /// Sessions without logins that saw these CmdSN; session N began on connection N.
    fn seen(sessions: &[&[u32]]) -> SessionTable {
        let mut table = SessionTable::default();
        for (connection, values) in (0..).zip(sessions) {
            let session = table.open_unknown(connection);
            for &value in *values {
                table.states[session as usize].commands.take(SerialNumber(value));
            }
        }
        table
    }

    /// Connection and number of the commands that were not seen.
    fn missing(sessions: &[&[u32]]) -> Vec<(u32, u64)> {
        let found = seen(sessions).missing_commands();
        found.into_iter().map(|(connection, missing)| (connection, missing.commands)).collect()
    }

    #[test]
    fn sessions_that_saw_the_same_numbers_are_not_one() {
        let complete: Vec<u32> = (500..510).collect();
        let lossy: Vec<u32> = (1..700).chain(750..2001).collect();
        assert_eq!(missing(&[&lossy]), [(0, 50)]);
        assert_eq!(missing(&[&complete, &lossy]), [(1, 50)]);
        assert_eq!(missing(&[&lossy, &complete]), [(0, 50)]);
    }

    #[test]
    fn connections_that_take_turns_are_one_session() {
        for start in [0, u32::MAX - 100] {
            let every_third =
                |turn: u32| -> Vec<u32> { (turn..300).step_by(3).map(|value| start.wrapping_add(value)).collect() };
            let [first, second, mut third] = [every_third(0), every_third(1), every_third(2)];
            assert_eq!(missing(&[&first, &second, &third]), []);
            third.remove(20);
            third.remove(20);
            assert_eq!(missing(&[&first, &second, &third]), [(0, 2)]);
        }
    }

    #[test]
    fn connections_are_joined_in_any_order() {
        // the second and the third fill a hole of the first between them, and do not overlap
        let outer: Vec<u32> = (0..100).chain(200..300).collect();
        let (left, right): (Vec<u32>, Vec<u32>) = ((100..110).collect(), (110..199).collect());
        for order in [[&outer, &left, &right], [&left, &right, &outer], [&right, &outer, &left]] {
            let lacking = order.iter().position(|&values| values == &outer).unwrap() as u32;
            assert_eq!(missing(&order.map(Vec::as_slice)), [(lacking, 1)]);
        }
    }

    #[test]
    fn two_captured_logins_are_two_sessions() {
        let mut table = seen(&[&[1, 3, 5], &[2, 4, 6]]);
        assert_eq!(table.missing_commands(), []);
        table.rows.is_login_captured = vec![true, false];
        assert_eq!(table.missing_commands(), []);
        table.rows.is_login_captured = vec![true, true];
        let commands: Vec<_> = table.missing_commands().iter().map(|(_, missing)| missing.commands).collect();
        assert_eq!(commands, [2, 2]);
    }

    #[test]
    fn a_late_value_is_no_longer_missing_and_counts_once() {
        let mut tracker = SequenceTracker::default();
        tracker.start(SerialNumber(9));
        for (value, expected, missing) in [
            (10, Sequence::Ahead, 1),
            (14, Sequence::Ahead, 4),
            (12, Sequence::Ahead, 3),
            (12, Sequence::Behind, 3),
            (13, Sequence::Ahead, 2),
            (9, Sequence::Ahead, 1),
            (8, Sequence::Behind, 1),
            (11, Sequence::Ahead, 0),
            (15, Sequence::Ahead, 0),
            // another count
            (1 << 20, Sequence::Behind, 0),
            ((1 << 20) + 2, Sequence::Ahead, 1),
            (16, Sequence::Behind, 1),
        ] {
            assert_eq!((tracker.take(SerialNumber(value)), tracker.missing()), (expected, missing), "{value}");
        }
    }
}
