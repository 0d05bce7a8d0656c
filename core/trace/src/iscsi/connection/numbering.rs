//! The sequence numbers of a connection: CmdSN, StatSN and ExpStatSN (RFC 7143 section 4.2.2).

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::IscsiConnection;
use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::ranges::{Order, Ranges, STATUSES};
use crate::stream::stamp::Stamp;

impl IscsiConnection {
    /// The next StatSN, if one is known.
    pub(super) fn stat_sn(&self) -> Option<SerialNumber> {
        self.statuses.as_ref().map(Ranges::next)
    }

    /// A status came whose number was not captured.
    pub(super) fn pass_status(&mut self) {
        self.statuses.as_mut().into_iter().for_each(|statuses| statuses.pass(1));
    }

    /// Notes the sequence numbers of a PDU.
    pub(super) fn note_numbers(&mut self, bhs: Bhs<'_>, opcode: Opcode, first: Stamp, context: &mut Context) {
        let frame = first.frame;
        if opcode.is_initiator() {
            if let Some(exp_stat_sn) = bhs.exp_stat_sn() {
                self.exp_stat_sn = Some(exp_stat_sn);
                self.note_statuses(exp_stat_sn, first.time_ns, context);
                // that of a login may be any
                if opcode != Opcode::LoginRequest {
                    self.acknowledged[1].note(exp_stat_sn, first.time_ns);
                }
            }
            let Some(cmd_sn) = bhs.cmd_sn() else { return };
            self.cmd_sn = Some(cmd_sn);
            if opcode == Opcode::LoginRequest {
                if let Some(session) = self.session
                    && let Some(state) = context.sessions.state_mut(session)
                {
                    state.expect_cmd_sn(cmd_sn);
                }
                return;
            }
            let session = self.session(context);
            let Some(state) = context.sessions.state_mut(session) else { return };
            if bhs.is_immediate() == Some(false) {
                self.acknowledged[0].take(cmd_sn, first.time_ns);
            }
            if bhs.is_immediate() == Some(true) {
                // it carries the next number, and does not use it
                state.expect_cmd_sn(cmd_sn);
            } else if matches!(state.note_cmd_sn(cmd_sn), Order::Again | Order::Other) && !self.is_whole {
                context.counters.add(Counter::CmdSnOutOfOrder, Some(self.number), frame);
            }
            return;
        }
        self.exp_cmd_sn = bhs.exp_cmd_sn().or(self.exp_cmd_sn);
        if let Some(exp_cmd_sn) = bhs.exp_cmd_sn() {
            self.acknowledged[0].note(exp_cmd_sn, first.time_ns);
        }
        self.max_cmd_sn = bhs.max_cmd_sn().or(self.max_cmd_sn);
        let advances = bhs.uses_stat_sn();
        let Some(stat_sn) = bhs.stat_sn() else {
            // the PDU counts already, and not again as a missing number
            if advances {
                self.pass_status();
            }
            return;
        };
        // a Data-In without status has no StatSN; R2T and unsolicited NOP-In carry the next one without using it
        if !advances {
            self.statuses.get_or_insert_with(|| stat_sn.into());
            return;
        }
        self.acknowledged[1].take(stat_sn, first.time_ns);
        // nor is the one before the first known
        self.lost_statuses.is_next_unknown &= self.statuses.is_none();
        self.note_statuses(stat_sn, first.time_ns, context);
        let order = self.statuses.get_or_insert_with(|| stat_sn.into()).note(stat_sn, &STATUSES);
        if order != Order::Again {
            self.lost_statuses.found(stat_sn);
        }
        if order == Order::Next {
            return;
        }
        if self.is_whole {
            return;
        }
        if order.is_behind() {
            context.counters.add(Counter::StatSnOutOfOrder, Some(self.number), frame);
        }
        self.missing.add_bare(1, order.missing());
        context.counters.change(Counter::StatusMissing, Some(self.number), frame, order.missing());
    }
}
