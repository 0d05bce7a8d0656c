//! Logout (RFC 7143 sections 11.14 and 11.15).

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, LENGTH_BYTES};
use iscsitrace_wire::opcode::Opcode;

use super::connection::Phase;
use super::ending::Ending;
use super::log::TaskEnd;
use super::output::{Outgoing, Then};
use super::portal::Portal;
use super::rule::TargetRule;
use crate::application::ConnectionNumber;

/// Responses (RFC 7143 section 11.15.1).
const CLOSED: u8 = 0;
const CID_NOT_FOUND: u8 = 1;
const RECOVERY_NOT_SUPPORTED: u8 = 2;

impl Portal {
    /// Takes a Logout Request in its turn.
    pub(super) fn take_logout(&mut self, now_ns: i64, number: ConnectionNumber, header: &[u8; LENGTH_BYTES]) {
        if self.breaches.breaks(TargetRule::M5) {
            return self.return_credit(number, Self::credit_of(header));
        }
        let bhs = Bhs::new(header);
        let Some(tsih) = self.connections.get(&number).and_then(|connection| connection.tsih()) else { return };
        let Some(session) = self.sessions.get(&tsih) else { return };
        let cid = bhs.cid().unwrap_or_default();
        let named = session.connections.iter().find(|(known, _)| *known == cid).map(|(_, number)| *number);
        let (response, then) = match (bhs.logout_reason(), named) {
            (Some(0), _) => (CLOSED, Then::EndSession(Ending::LoggedOut)),
            (Some(1), Some(named)) if named == number => (CLOSED, Then::EndConnection(Ending::LoggedOut)),
            (Some(1), Some(named)) => {
                self.end_connection(now_ns, named, Ending::LoggedOut);
                (CLOSED, Then::Nothing)
            }
            (Some(1), None) => (CID_NOT_FOUND, Then::Nothing),
            // at ErrorRecoveryLevel 0 no connection is recovered
            _ => (RECOVERY_NOT_SUPPORTED, Then::Nothing),
        };
        // RFC 7143 section 7.6: unanswered commands are never answered
        let (is_session, is_end) = (matches!(then, Then::EndSession(_)), then != Then::Nothing);
        if is_end {
            self.drop_commands(tsih, TaskEnd::Aborted, |command| is_session || command.connection == number);
        }
        let header_out = BhsBuilder::new(Opcode::LogoutResponse)
            .initiator_task_tag(bhs.initiator_task_tag().unwrap_or_default())
            .response(response);
        self.send(now_ns, number, Outgoing::status(header_out, Vec::new(), Self::credit_of(header), then));
        if is_end {
            self.finish_connection(now_ns, number, Ending::LoggedOut);
        }
    }

    /// Whether a connection has only its last responses left to send.
    #[must_use]
    pub fn is_closing(&self, number: ConnectionNumber) -> bool {
        self.connections.get(&number).is_some_and(|connection| matches!(connection.phase, Phase::Over(_)))
    }
}
