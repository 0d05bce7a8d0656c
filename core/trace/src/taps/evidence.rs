//! Whether two packets with common bytes are the same packet: by TCP timestamps and IP identification, as far as nothing
//! on the way rewrites them, else by time.

use super::passage::Passage;

/// Packets that agreed before a difference counts as proof.
const AGREED_MIN: u32 = 2;
/// Of so many packets at most one may differ.
const AGREED_PER_DIFFERENT: u32 = 8;
/// Without proof, packets are the same only if their transit differs less from the last ones: a retransmission after a
/// timeout comes later (RFC 6298 allows 1 s, Linux 200 ms).
const UNPROVEN_WITHIN_NS: i64 = 200_000_000;

/// How well a field of the packets of one direction agrees at the two taps.
#[derive(Debug, Clone, Copy, Default)]
struct Agreement {
    agreed: u32,
    different: u32,
}

impl Agreement {
    fn note(&mut self, is_equal: bool) {
        if is_equal {
            self.agreed = self.agreed.saturating_add(1);
        } else {
            self.different = self.different.saturating_add(1);
        }
    }

    fn is_contradicted(self) -> bool {
        self.different > self.agreed.saturating_add(AGREED_MIN)
    }

    fn is_unknown(self) -> bool {
        self.agreed == 0 && self.different == 0
    }

    fn is_kept(self) -> bool {
        self.agreed >= AGREED_MIN && self.different.saturating_mul(AGREED_PER_DIFFERENT) <= self.agreed
    }
}

/// What identifies the packets of one direction.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    timestamps: Agreement,
    identification: Agreement,
    /// Time at the receiver's tap less time at the sender's, of the last packets.
    expected_ns: Option<i64>,
}

/// Whether a field is equal; none if it does not count.
fn compared(one: &Passage, other: &Passage) -> (Option<bool>, Option<bool>) {
    let timestamps = match (one.timestamps, other.timestamps) {
        (Some(one_stamps), Some(other_stamps)) if one.start < one.end => Some(one_stamps.0 == other_stamps.0),
        (Some(one_stamps), Some(other_stamps)) => Some(one_stamps == other_stamps),
        (None, None) => None,
        _ => Some(false),
    };
    let has_both = one.has_same_bytes(other) && one.identification != 0 && other.identification != 0;
    (timestamps, has_both.then_some(one.identification == other.identification))
}

impl Evidence {
    /// How far two packets are from being the same; none if they are not. Smaller is better.
    #[inline]
    pub(super) fn distance(&self, sent: &Passage, received: &Passage) -> Option<(u8, u64)> {
        let (timestamps, identification) = compared(sent, received);
        if (timestamps == Some(false) && self.timestamps.is_kept())
            || (identification == Some(false) && self.identification.is_kept())
        {
            return None;
        }
        let is_proven = timestamps == Some(true) || identification == Some(true);
        if sent.start == sent.end && !is_proven && sent.window != received.window {
            return None;
        }
        let transit_ns = received.time_ns.saturating_sub(sent.time_ns);
        let from_expected = self.expected_ns.map_or(0, |expected_ns| transit_ns.abs_diff(expected_ns));
        if !is_proven && from_expected > UNPROVEN_WITHIN_NS.cast_unsigned() {
            return None;
        }
        let different = u8::from(timestamps == Some(false)) + u8::from(identification == Some(false));
        Some((different, from_expected))
    }

    /// Whether everything that identifies packets differs in most of them: another connection with as many bytes.
    pub(super) fn is_contradicted(&self) -> bool {
        let fields = [self.timestamps, self.identification];
        fields.iter().any(|each| each.is_contradicted())
            && fields.iter().all(|each| each.is_contradicted() || each.is_unknown())
    }

    /// Notes two packets that are the same.
    #[inline]
    pub(super) fn note(&mut self, sent: &Passage, received: &Passage) {
        let (timestamps, identification) = compared(sent, received);
        if let Some(is_equal) = timestamps {
            self.timestamps.note(is_equal);
        }
        if let Some(is_equal) = identification {
            self.identification.note(is_equal);
        }
        let transit_ns = received.time_ns.saturating_sub(sent.time_ns);
        self.expected_ns = Some(match self.expected_ns {
            Some(expected_ns) => expected_ns.saturating_add(transit_ns.saturating_sub(expected_ns) / 8),
            None => transit_ns,
        });
    }
}
