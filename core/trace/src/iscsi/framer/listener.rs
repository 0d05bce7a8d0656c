//! What the framer needs from the connection whose PDUs it finds.

use iscsitrace_wire::bhs::Bhs;
use std::ops::Range;

use crate::counters::Counter;
use crate::iscsi::digest_use::Digests;
use crate::iscsi::pdu::Pdu;
use crate::iscsi::synchroniser::{Judge, Kept};
use crate::stream::stamp::Stamp;

/// Where the search found a header.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Capture time of its first byte.
    pub time_ns: i64,
    /// How far the search has come since the position of the next header became unknown, or since the last hole.
    pub searched_bytes: u64,
}

/// The connection, as the framer sees it.
pub trait Listener: Judge {
    /// Whether a header that fits was sent before, as one in payload is.
    fn is_past(&self, header: Bhs<'_>, found: Found) -> bool;
    /// A header was read. Its PDU follows with [`Listener::pdu`], possibly much later, if bytes of it come late.
    fn begin(&mut self, header: Bhs<'_>, first: Stamp);
    /// How many bytes of a PDU's data to keep for [`Pdu::data`].
    fn keeps_data(&self, header: Bhs<'_>) -> usize;
    /// A PDU, complete or as far as it will ever be. Returns the digests from the next PDU on, if it ends a login.
    fn pdu(&mut self, pdu: &Pdu<'_>) -> Option<Digests>;
    /// The end behind `after` of one of the PDUs that the tasks expect from `start` on, with these digests: if the status of a
    /// read comes apart, and if it comes with its data. None if nothing is expected, or known to be otherwise.
    fn due(&self, start: i64, after: i64, digests: [bool; 2]) -> [Option<i64>; 2];
    /// PDUs whose headers were cut away, in these bytes before `header`, count for their tasks if the tasks expect PDUs that fill
    /// them. Returns whether the last of them had data; none if nothing fits.
    fn explain(&mut self, bytes: Range<i64>, digests: [bool; 2], header: Bhs<'_>, kept: &Kept) -> Option<bool>;
    /// A header was found where the position of the next one was unknown: PDUs may have passed before it. If they were kept,
    /// they are read now, later than they came, until it is called again.
    fn found_again(&mut self, is_reading_kept: bool);
    /// Whether PDUs whose headers were cut away may be explained later.
    fn wait(&mut self, is_waiting: bool);
    /// The digest of the last data came after its PDU was handed over, at this stream offset.
    fn late_digest(&mut self, offset: i64);
    /// Counts an oddity.
    fn count(&mut self, counter: Counter, frame: u64, count: u64);
}
