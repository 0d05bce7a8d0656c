//! A connection as the listener of its two framers.

use std::ops::Range;

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::parameter_data::ParameterData;

use super::IscsiConnection;
use super::kept_data::{WRITE_START_BYTES_MAX, begins_write, kept_bytes};
use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::digest_use::Digests;
use crate::iscsi::framer::listener::{Found, Listener};
use crate::iscsi::noted::{Note, NotedPdu};
use crate::iscsi::pdu::Pdu;
use crate::iscsi::synchroniser::{Fit, Judge, Kept};
use crate::stream::stamp::Stamp;

/// A connection listening to the framer of one direction.
pub struct ConnectionListener<'a> {
    /// The connection.
    pub connection: &'a mut IscsiConnection,
    /// The state that all connections share.
    pub context: &'a mut Context,
    /// The direction.
    pub to_target: bool,
    /// Whether PDUs of the other direction may have passed that were not read, or will be read later than they came.
    pub is_out_of_step: bool,
    /// Whether bytes are read later than they came.
    pub is_reading_kept: bool,
}

impl<'a> ConnectionListener<'a> {
    /// A connection that listens to the framer of one direction.
    pub fn new(
        connection: &'a mut IscsiConnection,
        context: &'a mut Context,
        to_target: bool,
        is_out_of_step: bool,
    ) -> Self {
        Self { connection, context, to_target, is_out_of_step, is_reading_kept: false }
    }

    /// What the data of a Data-In says of a logical unit.
    fn describes(&self, header: Bhs<'_>) -> Option<ParameterData> {
        header.initiator_task_tag().and_then(|tag| self.connection.tasks.get(&tag))?.describes
    }

    #[cold]
    fn note(&mut self, pdu: &Pdu<'_>) {
        let describes = self.describes(pdu.bhs()).filter(|_| pdu.bhs().opcode() == Some(Opcode::DataIn));
        let noted = NotedPdu::new(pdu, self.connection.number, self.to_target, describes);
        self.context.note(|| Note::Pdu(noted));
    }
}

impl Judge for ConnectionListener<'_> {
    #[inline]
    fn judge(&self, header: Bhs<'_>) -> Fit {
        self.connection.judge(header, self.to_target)
    }
}

impl Listener for ConnectionListener<'_> {
    fn is_past(&self, header: Bhs<'_>, found: Found) -> bool {
        self.connection.is_past(header, found, self.to_target, self.context)
    }

    #[inline]
    fn begin(&mut self, header: Bhs<'_>, first: Stamp) {
        if self.is_out_of_step || self.is_reading_kept {
            self.connection.note_unread();
        }
        if self.to_target {
            self.connection.begin(header, first, self.context);
        } else {
            self.connection.judge_said(header);
        }
    }

    #[inline]
    fn keeps_data(&self, header: Bhs<'_>) -> usize {
        if self.context.tables.wanted.write_starts && begins_write(header) {
            return WRITE_START_BYTES_MAX;
        }
        kept_bytes(header, || self.describes(header).is_some())
    }

    #[inline]
    fn pdu(&mut self, pdu: &Pdu<'_>) -> Option<Digests> {
        if self.context.notes.is_some() {
            self.note(pdu);
        }
        self.connection.take(pdu, self.to_target, self.context)
    }

    fn due(&self, start: i64, after: i64, digests: [bool; 2]) -> [Option<i64>; 2] {
        self.connection.due(self.to_target, (start, after), digests, &self.context.tables.cycles)
    }

    fn explain(&mut self, bytes: Range<i64>, digests: [bool; 2], header: Bhs<'_>, kept: &Kept) -> Option<bool> {
        self.connection.explain(self.to_target, bytes, digests, header, kept, self.context)
    }

    fn found_again(&mut self, is_reading_kept: bool) {
        self.is_reading_kept = is_reading_kept;
        self.connection.note_unread();
    }

    fn wait(&mut self, is_waiting: bool) {
        self.connection.wait(self.to_target, is_waiting);
    }

    fn late_digest(&mut self, offset: i64) {
        let (connection, to_target) = (self.connection.number, self.to_target);
        self.context.note(|| Note::LateDigest { connection, to_target, offset });
    }

    fn count(&mut self, counter: Counter, frame: u64, count: u64) {
        self.context.counters.add_many(counter, Some(self.connection.number), frame, count);
    }
}
