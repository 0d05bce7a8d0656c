//! Black-outs: a time in which what one host sent passed the tap and had no answer, not even after a timer retransmitted it,
//! and no packet of the other host passed.
//!
//! ```text
//!   answer .. data -> x .. again -> x ................ again -> answer    one host retransmits twice, or the numbers of the
//!   answer .. data -> x .. again -> x .. x <- answers ....... answer      other host's packets show some that never passed
//! ```
//!
//! One lost packet is none: its retransmission is answered. Nor is a host that pauses: its packets have no numbers in between,
//! and it reports each retransmission as received twice in the end (`spurious_packets` of the recovery).

use serde::{Deserialize, Serialize};

use super::gap::TIMER_MIN_NS;
use crate::tables::Recoveries;

/// What the timers of a host retransmitted since the last packet of the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// When the packet was sent first that the first retransmission repeats.
    first_ns: i64,
    /// The last two retransmissions, which are the same if there was one.
    before_ns: i64,
    last_ns: i64,
    /// How many there were.
    count: u16,
}

impl Unanswered {
    /// Notes a retransmission of bytes that were sent first at that time.
    pub fn retransmit(unanswered: &mut Option<Box<Self>>, original_ns: i64, time_ns: i64) {
        match unanswered {
            Some(known) => {
                (known.before_ns, known.last_ns) = (known.last_ns, time_ns);
                known.count = known.count.saturating_add(1);
            }
            None => {
                let first = Self { first_ns: original_ns, before_ns: time_ns, last_ns: time_ns, count: 1 };
                *unanswered = Some(Box::new(first));
            }
        }
    }
}

/// A black-out as far as the packets tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlackOut {
    /// The last packet of the other host before.
    pub from_ns: i64,
    /// Its first one after.
    pub to_ns: i64,
    /// How long it lasted at least: from the first packet that had no answer to the last one.
    pub least_ns: i64,
    /// Whether packets to the other host were lost for certain, and packets of it.
    pub is_to: bool,
    pub is_from: bool,
}

impl BlackOut {
    /// What a silence of the other host shows, with the RTT of the path, and how many packets of that host never passed in it,
    /// by their numbers.
    pub fn of(unanswered: Unanswered, from_ns: i64, to_ns: i64, rtt_ns: i64, missing: Option<u16>) -> Option<Self> {
        let Unanswered { first_ns, before_ns, last_ns, count } = unanswered;
        // a receiver may hold an ACK back for nearly as long as a timer waits
        let wait_ns = TIMER_MIN_NS.max(rtt_ns.saturating_mul(2));
        let lost_ns = [last_ns, before_ns].into_iter().find(|sent_ns| to_ns.saturating_sub(*sent_ns) >= wait_ns)?;
        // only the answer to the first may have been lost
        let least_ns = lost_ns.saturating_sub(first_ns).saturating_sub(rtt_ns).max(0);
        // each one that arrived was answered, and so was the original
        let answers = if lost_ns == last_ns { count.saturating_add(1) } else { count };
        let (is_to, is_from) =
            (missing.is_some_and(|missing| missing < answers), missing.is_some_and(|missing| missing > 0));
        (before_ns < last_ns || is_from).then_some(Self { from_ns, to_ns, least_ns, is_to, is_from })
    }

    /// Writes it to the row of a recovery, whose longest it is.
    pub fn show(self, row: usize, rows: &mut Recoveries) {
        let length_ns = |from_ns: i64, to_ns: i64| to_ns.saturating_sub(from_ns);
        if let (Some(from_ns), Some(to_ns), Some(least_ns), Some(is_to), Some(is_from)) = (
            rows.black_out_first_ns.get_mut(row),
            rows.black_out_last_ns.get_mut(row),
            rows.black_out_least_ns.get_mut(row),
            rows.is_black_out_to_receiver.get_mut(row),
            rows.is_black_out_from_receiver.get_mut(row),
        ) && length_ns(self.from_ns, self.to_ns) > length_ns(*from_ns, *to_ns)
        {
            (*from_ns, *to_ns) = (self.from_ns, self.to_ns);
            (*least_ns, *is_to, *is_from) = (self.least_ns, self.is_to, self.is_from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::Recovery;

    const MS: i64 = 1_000_000;

    /// The black-out of a host that sent at 0 ms and retransmitted at these times in ms, in a silence of the other host until
    /// then, of which so many packets never passed; with an RTT of 10 ms.
    fn found(retransmitted: &[i64], until: i64, missing: Option<u16>) -> Option<BlackOut> {
        let mut unanswered = None;
        for ms in retransmitted {
            Unanswered::retransmit(&mut unanswered, 0, ms * MS);
        }
        BlackOut::of(*unanswered?, -5 * MS, until * MS, 10 * MS, missing)
    }

    fn least_ms(retransmitted: &[i64], until: i64, missing: u16) -> Option<i64> {
        let found = found(retransmitted, until, Some(missing))?;
        assert_eq!((found.from_ns, found.to_ns), (-5 * MS, until * MS));
        Some(found.least_ns / MS)
    }

    #[test]
    fn two_retransmissions_of_which_the_last_is_answered_show_one() {
        assert_eq!(least_ms(&[210, 420], 430, 0), Some(200));
        // a probe, and a time-out
        assert_eq!(least_ms(&[20, 230], 235, 0), Some(10));
        assert_eq!(least_ms(&[20, 230], 420, 0), Some(220));
        assert_eq!(least_ms(&[210, 420, 840], 1700, 0), Some(830));
    }

    #[test]
    fn one_lost_packet_shows_none() {
        assert_eq!(least_ms(&[210], 220, 0), None);
        assert_eq!(least_ms(&[210], 220, 1), None);
        // its ACK was held back, or it came after a delay
        assert_eq!(least_ms(&[210], 410, 0), None);
        // a probe, and retransmissions of the rest
        assert_eq!(least_ms(&[20, 40], 50, 1), None);
    }

    #[test]
    fn one_retransmission_without_an_answer_takes_lost_packets_of_the_other_host() {
        assert_eq!(least_ms(&[210], 420, 1), Some(200));
        assert_eq!(least_ms(&[210], 420, 0), None);
        assert_eq!(least_ms(&[], 420, 1), None);
        assert_eq!(found(&[210], 420, None), None, "a host that does not number its packets in turn");
    }

    #[test]
    fn each_packet_that_arrived_was_answered() {
        let ways = |retransmitted: &[i64], until, missing| {
            found(retransmitted, until, missing).map(|black_out| (black_out.is_to, black_out.is_from))
        };
        // one of the original and the retransmission was lost, or both were answered in vain; the last one was answered
        assert_eq!(ways(&[210, 420], 430, Some(1)), Some((true, true)));
        assert_eq!(ways(&[210, 420], 430, Some(2)), Some((false, true)));
        assert_eq!(ways(&[210, 420], 430, Some(0)), Some((true, false)));
        assert_eq!(ways(&[210, 420], 430, None), Some((false, false)));
        assert_eq!(ways(&[210, 420], 820, Some(2)), Some((true, true)));
        assert_eq!(ways(&[210], 420, Some(2)), Some((false, true)));
    }

    #[test]
    fn a_recovery_has_its_longest() {
        let mut rows = Recoveries::of([Recovery::default()]);
        for (until, missing) in [(430, 1), (900, 0), (440, 1)] {
            found(&[210, 420], until, Some(missing)).unwrap().show(0, &mut rows);
        }
        assert_eq!((rows.black_out_first_ns[0], rows.black_out_last_ns[0]), (-5 * MS, 900 * MS));
        assert_eq!(rows.black_out_least_ns[0], 410 * MS);
        assert_eq!((rows.is_black_out_to_receiver[0], rows.is_black_out_from_receiver[0]), (true, false));
    }
}
