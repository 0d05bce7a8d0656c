//! What the framer asks of the connection whose PDUs it finds.

use iscsitrace_wire::bhs::Bhs;

use crate::counters::Counter;
use crate::iscsi::assumption::Assumed;
use crate::iscsi::digest_use::Digests;
use crate::iscsi::pdu::{Pdu, Stamp};

/// How well a header fits the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It breaks the RFC.
    No,
    /// It keeps the RFC, but its sequence numbers are far from the expected.
    Unlikely,
    /// Nothing speaks against it.
    Possible,
    /// Tags or sequence numbers are the expected ones.
    Certain,
}

/// Who knows the connection.
pub trait Listener {
    /// How well a header (perhaps cut) fits.
    fn judge(&self, header: Bhs<'_>) -> Fit;
    /// A header was read; its PDU follows with [`Listener::pdu`], perhaps much later when bytes of it come late.
    fn begin(&mut self, header: Bhs<'_>, first: Stamp);
    /// How many bytes of a PDU's data to keep for [`Pdu::data`].
    fn keeps_data(&self, header: Bhs<'_>) -> usize;
    /// A PDU, complete or as far as it will ever be; gives the digests from the next PDU on, when it ends a login.
    fn pdu(&mut self, pdu: &Pdu<'_>) -> Option<Digests>;
    /// The bytes of data of the next PDU, whose header was cut away and which begins so many bytes before the end of its
    /// segment; none when that is not known.
    fn assume(&mut self, rest_of_segment: u32) -> Option<u32>;
    /// Whether it could also be something else.
    fn is_ambiguous(&self) -> bool;
    /// What was assumed does not hold: whether it can be assumed otherwise, from its start.
    fn reread(&mut self) -> bool;
    /// What was assumed holds: `header` follows where it ended.
    fn confirm(&mut self, assumed: &[Assumed], header: Bhs<'_>);
    /// What was assumed does not hold.
    fn discard(&mut self);
    /// An oddity.
    fn count(&mut self, counter: Counter, frame: u64, count: u64);
}
