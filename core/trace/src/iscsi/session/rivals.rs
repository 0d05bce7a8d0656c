//! Logins with the ISID of a session that its initiator goes on with: rule L5.
//!
//! A login that reinstates a session is legal (RFC 7143 section 6.3.5): its initiator has lost that session, and no longer
//! acts in it. What it had written before may still come. So only a PDU counts that acknowledges a status from after the
//! login: whoever sent it had the session still in use.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::stream::stamp::Stamp;

/// Sessions that are kept.
const KEPT: usize = 1 << 10;

/// A login that reinstated a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rival {
    /// Its connection.
    pub connection: u32,
    /// Its first Login Request.
    pub at: Stamp,
    /// A connection of the old session, and the first status on it from after the login.
    status: Option<(u32, SerialNumber)>,
}

/// The logins, by the session that each reinstated.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Rivals(FxHashMap<u32, Rival>);

impl Rivals {
    /// A login on this connection reinstated a session.
    pub fn add(&mut self, session: u32, connection: u32, at: Stamp) {
        if self.0.len() < KEPT {
            self.0.insert(session, Rival { connection, at, status: None });
        }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A PDU of a session on one of its connections. Returns the login, once, if the PDU shows that the session is in use.
    pub fn note(&mut self, session: u32, connection: u32, bhs: Bhs<'_>, first: Stamp) -> Option<Rival> {
        let rival = self.0.get_mut(&session).filter(|rival| first.time_ns > rival.at.time_ns)?;
        if let Some(stat_sn) = bhs.stat_sn().filter(|_| bhs.uses_stat_sn()) {
            rival.status.get_or_insert((connection, stat_sn));
            return None;
        }
        let (of, stat_sn) = rival.status?;
        let is_in_use = of == connection && bhs.exp_stat_sn().is_some_and(|said| said.is_after(stat_sn));
        is_in_use.then(|| self.0.remove(&session)).flatten()
    }

    /// Sessions leave.
    pub fn let_go(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.0.retain(|&session, _| is_kept(session));
    }
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::BhsBuilder;
    use iscsitrace_wire::opcode::Opcode;

    use super::*;

    fn at(time_ns: i64) -> Stamp {
        Stamp { time_ns, frame: time_ns as u64 }
    }

    /// PDUs of the old session: time, and StatSN of the target or ExpStatSN of the initiator. Whether it is in use.
    fn is_in_use(pdus: &[(i64, Opcode, u32)]) -> bool {
        let mut rivals = Rivals::default();
        rivals.add(4, 9, at(100));
        pdus.iter().any(|&(time_ns, opcode, number)| {
            let number = SerialNumber(number);
            let header = BhsBuilder::new(opcode);
            let header = if opcode.is_initiator() { header.exp_stat_sn(number) } else { header.stat_sn(number) };
            rivals.note(4, 3, Bhs::new(&header.build()), at(time_ns)).is_some_and(|rival| rival.connection == 9)
        })
    }

    #[test]
    fn a_session_is_in_use_if_its_initiator_acknowledges_what_came_after_the_login() {
        let (command, response) = (Opcode::ScsiCommand, Opcode::ScsiResponse);
        assert!(is_in_use(&[(90, response, 6), (110, response, 7), (120, command, 8)]));
        // written before
        assert!(!is_in_use(&[(90, response, 6), (110, response, 7), (120, command, 7)]));
        assert!(!is_in_use(&[(90, response, 6), (95, command, 7), (120, command, 7)]));
    }
}
