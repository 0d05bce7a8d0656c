//! Sessions: connections with the same initiator name, ISID, target name and TSIH (RFC 7143 section 4.4.3, 6.3).
//!
//! The state of a whole session: its row, its command numbers, its logical units. PDUs are not seen here.

pub mod endings;
pub mod logical_units;
pub mod missing_commands;
pub mod recent_tags;
pub mod rivals;
pub mod succession;

use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::conformance::allegiance::Allegiance;
use crate::iscsi::ranges::{self, Order, Ranges};
use crate::tables::{
    AluaState, AluaStates, Cycles, Id, LogicalUnit, LogicalUnits, NULL_NS, NULL_U16, Session, Sessions, in_flight,
};
use endings::Endings;
use logical_units::Units;
use missing_commands::{Group, MissingCommands, PduTotals};
use recent_tags::RecentTags;
use rivals::Rivals;

/// How a session ended; codes as in `CATEGORIES["session_end"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SessionEnd {
    /// Logout Request for the session.
    Logout = 0,
    /// Its last connection was closed without logout.
    Closed = 1,
    /// Its last connection was reset.
    Reset = 2,
    /// A new login reinstated it.
    Reinstated = 3,
    /// The login was refused.
    Refused = 4,
    /// Open at the end of the capture.
    Open = 5,
}

/// The state of a session beside its row.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct SessionState {
    /// CmdSN of its commands, over all connections; none before the first.
    pub commands: Option<Ranges>,
    /// Their Initiator Task Tags, over all connections.
    pub recent_tags: RecentTags,
    /// Its logical units.
    pub units: Units,
    /// Open connections.
    pub open_connections: u32,
    /// First connection, for counters.
    pub first_connection: u32,
    /// What was read of its PDUs, and what was not.
    pub totals: PduTotals,
    /// DataSequenceInOrder=No was negotiated: data of a task may come in any order (RFC 7143 section 13.19).
    pub is_data_in_any_order: bool,
    /// What ended commands of more than one connection.
    pub endings: Endings,
    /// The connections of its open tasks, if it has several and that is wanted.
    pub allegiance: Allegiance,
    /// The session whose login reinstated it.
    pub reinstated_by: Option<u32>,
    /// Start of its first command.
    pub first_command_ns: Option<i64>,
    /// Start of its first command that reads, writes or erases data.
    pub first_data_ns: Option<i64>,
}

impl SessionState {
    /// Expects this CmdSN next, if none is expected yet.
    #[inline]
    pub fn expect_cmd_sn(&mut self, cmd_sn: SerialNumber) -> &mut Ranges {
        self.commands.get_or_insert_with(|| cmd_sn.into())
    }

    /// Notes the CmdSN of a command.
    #[inline]
    pub fn note_cmd_sn(&mut self, cmd_sn: SerialNumber) -> Order {
        self.expect_cmd_sn(cmd_sn).note(cmd_sn, &ranges::COMMANDS)
    }

    /// How many of its commands are missing.
    pub fn missing_commands(&self) -> u64 {
        self.commands.as_ref().map_or(0, Ranges::missing)
    }

    /// Notes a command of the session, by its row.
    pub fn note_command(&mut self, row: usize, cycles: &Cycles) {
        let begun_ns = cycles.command_first_ns[row];
        self.first_command_ns.get_or_insert(begun_ns);
        if self.first_data_ns.is_none() && in_flight::kind(cycles, row) == in_flight::DATA {
            self.first_data_ns = Some(begun_ns);
        }
    }
}

/// The names that identify a session, without its TSIH.
type Identity = (String, String, String);

/// All sessions.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct SessionTable {
    /// Their rows.
    pub rows: Sessions,
    /// Their state.
    pub states: Vec<SessionState>,
    /// Logins that reinstated a session, while that may go on.
    pub rivals: Rivals,
    by_identity: FxHashMap<Identity, u32>,
}

impl SessionTable {
    /// The row of a session; beyond all rows if it left.
    pub fn row(&self, session: u32) -> usize {
        self.rows.row(Id::new(session))
    }

    /// The state of a session.
    #[inline]
    pub fn state(&self, session: u32) -> Option<&SessionState> {
        self.states.get(self.row(session))
    }

    /// The same, to change it.
    #[inline]
    pub fn state_mut(&mut self, session: u32) -> Option<&mut SessionState> {
        let row = self.row(session);
        self.states.get_mut(row)
    }

    /// Adds a session whose login was not captured.
    pub fn open_unknown(&mut self, connection: u32) -> u32 {
        self.push(Session { connection_count: 1, ..Session::default() }, connection)
    }

    /// The session of a first login on a connection, by its names; `tsih` as sent by the initiator (0 requests a new
    /// session). Returns its number, and the session that it reinstates.
    pub fn login(&mut self, row: Session, tsih: u16, connection: u32) -> (u32, Option<u32>) {
        let identity = (row.initiator_name.clone(), row.isid.clone(), row.target_name.clone());
        let known = self.by_identity.get(&identity).copied();
        if tsih != 0
            && let Some(session) = known
            && let row = self.row(session)
            && self.rows.tsih[row] == tsih
        {
            self.rows.connection_count[row] += 1;
            self.states[row].open_connections += 1;
            return (session, None);
        }
        let replaced = known.filter(|&session| {
            let row = self.row(session);
            tsih == 0 && self.rows.end[row] == SessionEnd::Open as u8 && self.rows.tsih[row] != NULL_U16
        });
        if let Some(old) = replaced {
            let row = self.row(old);
            self.rows.end[row] = SessionEnd::Reinstated as u8;
        }
        let session = self.push(Session { connection_count: 1, is_login_captured: tsih == 0, ..row }, connection);
        self.by_identity.insert(identity, session);
        if let Some(state) = replaced.and_then(|old| self.state_mut(old)) {
            state.reinstated_by = Some(session);
        }
        (session, replaced)
    }

    fn push(&mut self, mut row: Session, connection: u32) -> u32 {
        let session = self.rows.next_id().number();
        row.session = session;
        self.rows.push(row);
        self.states.push(SessionState { open_connections: 1, first_connection: connection, ..SessionState::default() });
        session
    }

    /// The sessions leave whose flag is not set.
    pub fn let_go(&mut self, is_kept: &[bool]) {
        self.rows.let_go(is_kept);
        let mut is_kept = is_kept.iter();
        self.states.retain(|_| is_kept.next().copied().unwrap_or(true));
        let rows = &self.rows;
        self.by_identity.retain(|_, session| rows.has(Id::new(*session)));
        self.rivals.let_go(|session| rows.has(Id::new(session)));
    }

    /// Closes a connection of the session; the session ends with its last one.
    pub fn close_connection(&mut self, session: u32, end: SessionEnd) {
        let row = self.row(session);
        let (Some(state), Some(row_end)) = (self.states.get_mut(row), self.rows.end.get_mut(row)) else {
            return;
        };
        state.open_connections = state.open_connections.saturating_sub(1);
        if state.open_connections == 0 && *row_end == SessionEnd::Open as u8 {
            *row_end = end as u8;
        }
    }

    /// Notes how a session ended, unless it is known already.
    pub fn end(&mut self, session: u32, end: SessionEnd) {
        let row = self.row(session);
        if let Some(row_end) = self.rows.end.get_mut(row)
            && *row_end == SessionEnd::Open as u8
        {
            *row_end = end as u8;
        }
    }

    /// Whether a login that the target accepted took its place.
    pub fn is_replaced(&self, session: u32) -> bool {
        let next = self.state(session).and_then(|state| state.reinstated_by);
        next.and_then(|next| self.rows.tsih.get(self.row(next))).is_some_and(|&tsih| tsih != NULL_U16)
    }

    /// The rows of `logical_units` and `alua_states`, by session.
    pub fn logical_units(&self) -> (LogicalUnits, AluaStates) {
        let (mut units, mut states) = (LogicalUnits::default(), AluaStates::default());
        for (&session, state) in self.rows.session.iter().zip(&self.states) {
            for row in &state.units.rows {
                units.push(LogicalUnit { session, ..row.clone() });
            }
            for row in &state.units.states {
                states.push(AluaState { session, ..row.clone() });
            }
        }
        (units, states)
    }

    /// The missing commands of each session, by a connection that lacks some. Sessions whose numbers form one sequence
    /// count as one if at most one login was captured: they are connections of one session.
    pub fn missing_commands(&self) -> Vec<(u32, MissingCommands)> {
        let sessions = self.states.iter().zip(&self.rows.is_login_captured);
        missing_commands::of_groups(sessions.map(|(state, &is_login_captured)| {
            Group::new(state.commands.as_ref(), state.totals, state.first_connection, is_login_captured)
        }))
    }

    /// Extends a session's time to that of a connection.
    pub fn note_time(&mut self, session: u32, first_ns: i64, last_ns: i64) {
        let row = self.row(session);
        let first = &mut self.rows.time_first_ns[row];
        *first = if *first == NULL_NS { first_ns } else { (*first).min(first_ns) };
        let last = &mut self.rows.time_last_ns[row];
        *last = (*last).max(last_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(isid: &str) -> Session {
        Session { initiator_name: "iqn.i".into(), target_name: "iqn.t".into(), isid: isid.into(), ..Session::default() }
    }

    #[test]
    fn connections_join_by_tsih_and_a_new_login_reinstates() {
        let mut sessions = SessionTable::default();
        assert_eq!(sessions.login(named("a"), 0, 0), (0, None));
        sessions.rows.tsih[0] = 7;
        assert_eq!(sessions.login(named("a"), 7, 1), (0, None));
        assert_eq!(sessions.login(named("b"), 0, 2), (1, None));
        assert_eq!(sessions.login(named("a"), 0, 3), (2, Some(0)));
        assert_eq!(sessions.rows.end, [SessionEnd::Reinstated as u8, SessionEnd::Open as u8, SessionEnd::Open as u8]);
        assert_eq!(sessions.rows.connection_count, [2, 1, 1]);
        // the target has not answered yet, or refuses
        assert!(!sessions.is_replaced(0));
        sessions.rows.tsih[2] = 8;
        assert_eq!([0, 1, 2].map(|session| sessions.is_replaced(session)), [true, false, false]);
    }

    #[test]
    fn remaining_sessions_keep_their_numbers_and_names() {
        let mut sessions = SessionTable::default();
        for (connection, isid) in (0..).zip(["a", "b", "c"]) {
            sessions.login(named(isid), 0, connection);
        }
        sessions.let_go(&[false, true, true]);
        assert_eq!([0, 1, 2].map(|session| sessions.row(session) < 2), [false, true, true]);
        assert_eq!(sessions.rows.session, [1, 2]);
        sessions.rows.tsih[1] = 7;
        assert_eq!(sessions.login(named("c"), 7, 3), (2, None));
        // a session that left is new again
        assert_eq!(sessions.login(named("a"), 0, 4), (3, None));
        assert_eq!(sessions.rows.session, [1, 2, 3]);
    }

    #[test]
    fn a_login_that_joins_an_unseen_session_opens_a_row_without_its_login() {
        let mut sessions = SessionTable::default();
        assert_eq!(sessions.login(named("a"), 9, 0), (0, None));
        assert!(!sessions.rows.is_login_captured[0]);
    }

    /// Sessions without logins that saw these CmdSN; session N began on connection N.
    fn seen(sessions: &[&[u32]]) -> SessionTable {
        let mut table = SessionTable::default();
        for (connection, values) in (0..).zip(sessions) {
            let session = table.open_unknown(connection);
            for &value in *values {
                table.states[session as usize].note_cmd_sn(SerialNumber(value));
            }
        }
        table
    }

    /// Connection and number of the missing commands.
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
    fn connections_with_alternating_numbers_are_one_session() {
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
        // the second and third fill a hole of the first together, and do not overlap
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
}
