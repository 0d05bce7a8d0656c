//! What happened to bytes that only one tap has seen: from what the receiver acknowledged, and when.
//!
//! A copy seen at the receiver's tap alone must have passed the sender's: capture of the sender's tap missed it. A copy
//! seen at the sender's tap alone was lost by the network if the receiver went on without its bytes; it is missing from
//! the capture of the receiver's tap if the receiver acknowledged them without another copy, or echoed their timestamp.
//! A packet without bytes is acknowledged by nobody: a capture that misses one and a network that loses one look alike, and
//! only the health of the capture tells. Everything else cannot be told.

use super::passage::{Fate, Passage};

const RST: u8 = 4;
const ACK: u8 = 16;

/// What happened; codes as in `CATEGORIES["path_verdict"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Verdict {
    LostInNetwork = 0,
    MissingAtA = 1,
    MissingAtB = 2,
    CannotTell = 3,
    /// Lost in the network, if the capture of the receiver's tap missed nothing: `health` settles it at the end.
    LostUnlessMissed = 4,
}

impl Verdict {
    /// Missing from the capture of this tap.
    pub(super) fn missing_at(tap: usize) -> Self {
        if tap == 0 { Self::MissingAtA } else { Self::MissingAtB }
    }
}

/// Of a passage that only the sender's tap has seen; `receiver` is the other tap. `has_sack`: the receiver reports what
/// it has behind a hole, and what arrived twice.
pub(super) fn of_sent(passage: &Passage, receiver: usize, has_sack: bool) -> Verdict {
    let Fate { is_repeat, is_resent, is_acknowledged, refills, is_awaited, .. } = passage.fate;
    let Fate { is_lacking, is_stale, is_echoed, is_needless, .. } = passage.fate;
    let is_reported_twice = passage.fate.is_reported_twice();
    if is_echoed {
        return Verdict::missing_at(receiver);
    }
    if passage.start == passage.end {
        return if passage.flags & ACK != 0 { Verdict::LostUnlessMissed } else { Verdict::CannotTell };
    }
    if is_needless && has_sack {
        // a receiver answers at once what it has already (RFC 9293, section 3.10.7.4; RFC 2883). A report that no copy at
        // its tap explains says that one came, and not which
        return match (is_reported_twice, is_stale) {
            (true, _) => Verdict::CannotTell,
            (false, true) => Verdict::LostUnlessMissed,
            (false, false) => Verdict::LostInNetwork,
        };
    }
    if is_acknowledged {
        // with an earlier or a later copy, either may be the one that arrived
        return if is_repeat || is_resent { Verdict::CannotTell } else { Verdict::missing_at(receiver) };
    }
    match refills {
        0 if is_lacking => Verdict::LostInNetwork,
        0 => Verdict::CannotTell,
        1 if is_reported_twice => Verdict::missing_at(receiver),
        _ if is_reported_twice => Verdict::CannotTell,
        // an old packet that arrived late is discarded without an ACK
        _ if is_stale => Verdict::LostUnlessMissed,
        _ if has_sack || is_awaited => Verdict::LostInNetwork,
        _ => Verdict::CannotTell,
    }
}

/// Of a passage that only the receiver's tap has seen; `sender` is the other tap. A RST may come from a host between.
pub(super) fn of_received(passage: &Passage, sender: usize) -> Verdict {
    if passage.flags & RST != 0 { Verdict::CannotTell } else { Verdict::missing_at(sender) }
}
