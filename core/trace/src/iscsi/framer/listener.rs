//! What the framer needs from the connection whose PDUs it finds.

use iscsitrace_wire::bhs::Bhs;

use crate::counters::Counter;
use crate::iscsi::assumption::Assumed;
use crate::iscsi::digest_use::Digests;
use crate::iscsi::pdu::Pdu;
use crate::stream::stamp::Stamp;

/// How well a header fits the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It violates the RFC.
    No,
    /// It conforms, but its sequence numbers are far from the expected ones.
    Unlikely,
    /// Nothing contradicts it.
    Possible,
    /// Its tags or sequence numbers are the expected ones.
    Certain,
}

/// Where the search found a header.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Capture time of its first byte.
    pub time_ns: i64,
    /// How far the search has come since the position of the next header became unknown, or since the last hole.
    pub searched_bytes: u64,
}

/// The connection, as the framer sees it.
pub trait Listener {
    /// How well a (possibly incomplete) header fits.
    fn judge(&self, header: Bhs<'_>) -> Fit;
    /// Whether a header that fits was sent before, as one in payload is.
    fn is_past(&self, header: Bhs<'_>, found: Found) -> bool;
    /// A header was read. Its PDU follows with [`Listener::pdu`], possibly much later, if bytes of it come late.
    fn begin(&mut self, header: Bhs<'_>, first: Stamp);
    /// How many bytes of a PDU's data to keep for [`Pdu::data`].
    fn keeps_data(&self, header: Bhs<'_>) -> usize;
    /// A PDU, complete or as far as it will ever be. Returns the digests from the next PDU on, if it ends a login.
    fn pdu(&mut self, pdu: &Pdu<'_>) -> Option<Digests>;
    /// The data bytes of the next PDU, whose header was cut away and which starts this many bytes before the end of its
    /// segment; none if unknown.
    fn assume(&mut self, rest_of_segment: u32) -> Option<u32>;
    /// Whether other assumptions are possible.
    fn is_ambiguous(&self) -> bool;
    /// The assumptions were wrong: whether others are possible, from the start.
    fn reread(&mut self) -> bool;
    /// The assumptions were right: `header` follows them.
    fn confirm(&mut self, assumed: &[Assumed], header: Bhs<'_>);
    /// The assumptions were wrong.
    fn discard(&mut self);
    /// The digest of the last data came after its PDU was handed over, at this stream offset.
    fn late_digest(&mut self, offset: i64);
    /// Counts an oddity.
    fn count(&mut self, counter: Counter, frame: u64, count: u64);
}
