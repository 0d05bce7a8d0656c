//! Headers that were sent before. Payload can hold PDUs of its own session, as a capture does that is written to the target
//! it shows. Where the header before them is missing from the capture, they look like those that come next, but for what
//! either side said of them already.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::IscsiConnection;
use crate::context::Context;
use crate::iscsi::framer::listener::Found;

/// The last commands among which the one with a tag is looked for.
const COMMANDS_MAX: usize = 1 << 10;
/// The longest data segment that a header can announce.
const DATA_MAX: u32 = (1 << 24) - 1;
/// A PDU is longer than its data by a header, AHS, padding and digests.
const BESIDE_DATA_MAX: u64 = LENGTH_BYTES as u64 + 4 * 255 + 3 + 8;

impl IscsiConnection {
    /// Whether a header that the search found was sent before. A header in its regular place is not checked, because commands
    /// can be retried; nor is one further on than a PDU is long, because payload ends there.
    pub(super) fn is_past(&self, header: Bhs<'_>, found: Found, to_target: bool, context: &Context) -> bool {
        let longest = self.longest_data[usize::from(!to_target)].unwrap_or(DATA_MAX);
        if found.searched_bytes > u64::from(longest) + BESIDE_DATA_MAX {
            return false;
        }
        let is_past = if to_target {
            self.is_past_request(header, found.time_ns, context)
        } else {
            self.is_past_answer(header, found.time_ns)
        };
        is_past || self.is_of_another_connection(header, context)
    }

    /// The session had this command, or the target acknowledged it; or fewer statuses are acknowledged than before.
    fn is_past_request(&self, header: Bhs<'_>, time_ns: i64, context: &Context) -> bool {
        // an immediate command has the number of the next one
        let cmd_sn = header.cmd_sn().filter(|_| header.is_immediate() == Some(false));
        let session = self.session.and_then(|session| context.sessions.state(session));
        // a login may say any
        let said = self.exp_stat_sn.filter(|&said| self.stat_sn().is_some_and(|sent| !said.is_after(sent)));
        is_before(header.exp_stat_sn(), said)
            || cmd_sn.is_some_and(|cmd_sn| {
                session.is_some_and(|state| state.commands.as_ref().is_some_and(|commands| commands.has(cmd_sn)))
                    || self.acknowledged[0].has(cmd_sn, time_ns)
            })
    }

    /// Its status was there, or was acknowledged; fewer commands are acknowledged than before; or its R2T was there.
    fn is_past_answer(&self, header: Bhs<'_>, time_ns: i64) -> bool {
        // an R2T has the number of the next status
        let is_r2t = header.opcode() == Some(Opcode::ReadyToTransfer);
        let has_stat_sn = header.opcode() != Some(Opcode::DataIn) || header.has_status() == Some(true);
        let stat_sn = header.stat_sn().filter(|_| has_stat_sn);
        is_before(stat_sn, self.stat_sn())
            || is_before(header.exp_cmd_sn(), self.exp_cmd_sn)
            || stat_sn.is_some_and(|stat_sn| !is_r2t && self.acknowledged[1].has(stat_sn, time_ns))
            || is_r2t && self.had_ready_to_transfer(header)
            || self.unclaimed.iter().any(|kept| kept.header == header.as_bytes())
    }

    /// Whether the task with its tag had an R2T of this number, and sent no status since: no other task can have the tag.
    fn had_ready_to_transfer(&self, header: Bhs<'_>) -> bool {
        let task = header.initiator_task_tag().and_then(|tag| self.tasks.get(&tag));
        header.stat_sn().is_some_and(|stat_sn| self.stat_sn() == Some(stat_sn))
            && task.is_some_and(|task| task.had_ready_to_transfer(header))
    }

    /// Whether the last command of the session with its tag was sent on another connection (RFC 7143 section 4.2.5.1:
    /// connection allegiance).
    fn is_of_another_connection(&self, header: Bhs<'_>, context: &Context) -> bool {
        let is_of_task = matches!(
            header.opcode(),
            Some(Opcode::DataIn | Opcode::ReadyToTransfer | Opcode::ScsiResponse | Opcode::DataOut)
        );
        let Some(tag) = header.initiator_task_tag().filter(|tag| is_of_task && !self.tasks.contains_key(tag)) else {
            return false;
        };
        let cycles = &context.tables.cycles;
        let tags = cycles.initiator_task_tag.iter().zip(&cycles.session).zip(&cycles.connection).rev();
        let mut commands = tags.take(COMMANDS_MAX).filter(|&((_, &session), _)| Some(session) == self.session);
        commands.find(|&((&each, _), _)| each == tag).is_some_and(|(_, &connection)| connection != self.number)
    }
}

fn is_before(value: Option<SerialNumber>, said: Option<SerialNumber>) -> bool {
    value.zip(said).is_some_and(|(value, said)| value.is_before(said))
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::BhsBuilder;

    use super::super::tests::{command, data_in, opened, r2t, response, take};
    use super::*;

    const READ: u32 = 0x30;
    const WRITE: u32 = 0x31;
    /// After the frames of everything below.
    const LATER: Found = Found { time_ns: 1_000_000, searched_bytes: 0 };

    const fn number(value: u32) -> SerialNumber {
        SerialNumber(value)
    }

    fn request(tag: u32, cmd_sn: u32, exp_stat_sn: u32) -> BhsBuilder {
        command(tag, true).cmd_sn(number(cmd_sn)).exp_stat_sn(number(exp_stat_sn))
    }

    fn status(tag: u32, stat_sn: u32, exp_cmd_sn: u32) -> BhsBuilder {
        response(tag).stat_sn(number(stat_sn)).exp_cmd_sn(number(exp_cmd_sn)).max_cmd_sn(number(exp_cmd_sn))
    }

    /// A connection with these PDUs, one a frame.
    fn after(pdus: &[BhsBuilder]) -> (IscsiConnection, Context) {
        let (mut connection, mut context) = (IscsiConnection::new(1), Context::default());
        for (frame, &header) in (1..).zip(pdus) {
            take(&mut connection, &mut context, frame, header);
        }
        (connection, context)
    }

    fn is_past((connection, context): &(IscsiConnection, Context), header: BhsBuilder, found: Found) -> bool {
        let header = header.build();
        let to_target = Bhs::new(&header).opcode().is_some_and(Opcode::is_initiator);
        connection.is_past(Bhs::new(&header), found, to_target, context)
    }

    #[test]
    fn a_command_that_was_there_or_was_acknowledged_is_past() {
        let known = after(&[request(1, 10, 5), request(2, 12, 5)]);
        for (cmd_sn, expected) in [(10, true), (11, false), (12, true), (13, false)] {
            assert_eq!(is_past(&known, request(9, cmd_sn, 5), LATER), expected, "{cmd_sn}");
        }
        // an immediate one has the number of the next
        assert!(!is_past(&known, request(9, 12, 5).is_immediate(true), LATER));
        let acknowledged = after(&[request(1, 10, 5), status(1, 5, 12)]);
        assert_eq!([11, 12].map(|cmd_sn| is_past(&acknowledged, request(9, cmd_sn, 6), LATER)), [true, false]);
        // as far as a PDU can be long
        let far = |searched_bytes| is_past(&known, request(9, 10, 5), Found { searched_bytes, ..LATER });
        assert_eq!([(1 << 24) + 1078, (1 << 24) + 1079].map(far), [true, false]);
    }

    #[test]
    fn fewer_acknowledged_statuses_than_before_are_past() {
        let known = after(&[request(1, 10, 5), status(1, 5, 11), request(2, 11, 6)]);
        assert_eq!(
            [5, 6, 7].map(|exp_stat_sn| is_past(&known, request(9, 12, exp_stat_sn), LATER)),
            [true, false, false]
        );
        // the initiator says what no target sent, as in a login
        let any = after(&[status(1, 5, 10), request(2, 10, 1 << 20)]);
        assert!(!is_past(&any, request(9, 11, 6), LATER));
    }

    #[test]
    fn a_status_that_was_there_or_was_acknowledged_is_past() {
        let known = after(&[request(1, 10, 5), request(2, 11, 5), status(1, 5, 12)]);
        assert_eq!([5, 6].map(|stat_sn| is_past(&known, status(2, stat_sn, 12), LATER)), [true, false]);
        assert_eq!([11, 12].map(|exp_cmd_sn| is_past(&known, status(2, 6, exp_cmd_sn), LATER)), [true, false]);
        let acknowledged = after(&[request(1, 10, 5), status(1, 5, 11), request(2, 11, 6), request(3, 12, 7)]);
        assert_eq!([6, 7].map(|stat_sn| is_past(&acknowledged, status(2, stat_sn, 13), LATER)), [true, false]);
        // the fourth frame came at 4000 ns: a packet before it may have the status that it acknowledges
        let found = |time_ns| is_past(&acknowledged, status(2, 6, 13), Found { time_ns, ..LATER });
        assert_eq!([3999, 4000, 4001].map(found), [false, false, true]);
        // one initiator always says 1
        let constant = after(&[request(1, 10, 1), status(1, 1 << 20, 11), request(2, 11, 1)]);
        assert!(!is_past(&constant, status(2, (1 << 20) + 1, 12), LATER));
    }

    #[test]
    fn an_r2t_is_past_if_its_task_had_its_number_and_no_status_since() {
        let numbered = |tag, r2t_sn, stat_sn| {
            let numbers = r2t(tag, 0, 512).exp_cmd_sn(number(11)).max_cmd_sn(number(11));
            numbers.r2t_sn(number(r2t_sn)).stat_sn(number(stat_sn))
        };
        let (mut connection, mut context) = opened(&[(WRITE, 0x2a)]);
        take(&mut connection, &mut context, 2, numbered(WRITE, 0, 5));
        // without a task, and kept until there is one
        take(&mut connection, &mut context, 3, numbered(7, 3, 5));
        let known = (connection, context);
        for (header, expected) in [
            (numbered(WRITE, 0, 5), true),
            (numbered(WRITE, 1, 5), false),
            // its status may be missing, and with it a command with its tag
            (numbered(WRITE, 0, 6), false),
            (numbered(7, 3, 5), true),
            (numbered(7, 4, 5), false),
        ] {
            assert_eq!(is_past(&known, header, LATER), expected);
        }
    }

    #[test]
    fn a_task_of_another_connection_is_not_here() {
        let (mut connection, mut context) = opened(&[(READ, 0x28)]);
        let mut other = IscsiConnection::new(2);
        other.session = connection.session;
        for (frame, tag) in [(2, 7), (3, 8)] {
            take(&mut other, &mut context, frame, command(tag, true));
        }
        // the last one with the tag counts
        take(&mut connection, &mut context, 4, command(8, true));
        take(&mut connection, &mut context, 5, status(8, 5, 11));
        let known = (connection, context);
        let numbered = |tag| data_in(tag, 0, 512).exp_cmd_sn(number(11));
        assert_eq!([READ, 7, 8, 9].map(|tag| is_past(&known, numbered(tag), LATER)), [false, true, false, false]);
    }
}
