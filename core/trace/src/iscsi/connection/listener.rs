//! A connection as the listener of its two framers.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::parameter_data::ParameterData;

use super::IscsiConnection;
use super::kept_data::{WRITE_START_BYTES_MAX, begins_write, kept_bytes};
use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::assumption::Assumed;
use crate::iscsi::digest_use::Digests;
use crate::iscsi::framer::listener::{Fit, Found, Listener};
use crate::iscsi::noted::{Note, NotedPdu};
use crate::iscsi::pdu::Pdu;
use crate::stream::stamp::Stamp;

/// A connection listening to the framer of one direction.
pub struct ConnectionListener<'a> {
    /// The connection.
    pub connection: &'a mut IscsiConnection,
    /// The state that all connections share.
    pub context: &'a mut Context,
    /// The direction.
    pub to_target: bool,
}

impl ConnectionListener<'_> {
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

impl Listener for ConnectionListener<'_> {
    #[inline]
    fn judge(&self, header: Bhs<'_>) -> Fit {
        self.connection.judge(header, self.to_target)
    }

    fn is_past(&self, header: Bhs<'_>, found: Found) -> bool {
        self.connection.is_past(header, found, self.to_target, self.context)
    }

    #[inline]
    fn begin(&mut self, header: Bhs<'_>, first: Stamp) {
        if self.to_target {
            self.connection.begin(header, first, self.context);
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

    fn assume(&mut self, rest_of_segment: u32) -> Option<u32> {
        self.connection.assume(self.to_target, rest_of_segment, self.context)
    }

    fn is_ambiguous(&self) -> bool {
        self.connection.is_ambiguous(self.to_target)
    }

    fn reread(&mut self) -> bool {
        self.connection.assumptions[usize::from(!self.to_target)].reread()
    }

    fn confirm(&mut self, assumed: &[Assumed], header: Bhs<'_>) {
        for each in assumed {
            let (connection, to_target, offset) = (self.connection.number, self.to_target, each.offset);
            let header = || each.header[..each.header_known].into();
            self.context.note(|| Note::Assumed { connection, to_target, offset, header: header() });
        }
        self.connection.confirm(self.to_target, assumed, header, self.context);
    }

    fn discard(&mut self) {
        self.connection.discard(self.to_target);
    }

    fn late_digest(&mut self, offset: i64) {
        let (connection, to_target) = (self.connection.number, self.to_target);
        self.context.note(|| Note::LateDigest { connection, to_target, offset });
    }

    fn count(&mut self, counter: Counter, frame: u64, count: u64) {
        self.context.counters.add_many(counter, Some(self.connection.number), frame, count);
    }
}
