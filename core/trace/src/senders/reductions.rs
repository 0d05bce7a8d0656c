//! How a sender reduces its congestion window after a loss, which names its congestion control: Reno to a half (RFC 5681,
//! section 3.1), CUBIC to 0.7 (RFC 9438, section 4.6).

use serde::{Deserialize, Serialize};
/// Codes of `CATEGORIES["congestion_control"]`.
const RENO: u8 = 0;
const CUBIC: u8 = 1;
/// Windows after a loss, of those before, in parts of a hundred: about a half, about 0.7. Between them lies what neither
/// does, and estimates that are a segment off.
const RANGES: [(i64, i64); 2] = [(46, 55), (63, 73)];
/// A name takes so many reductions,
const COUNT_MIN: u32 = 3;
/// two in five of all,
const SHARE: (u32, u32) = (2, 5);
/// and twice as many as the other.
const LEAD: u32 = 2;

/// The reductions of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Reductions {
    /// The last estimate before the current loss, or the latest one.
    before: Option<i64>,
    is_reduced: bool,
    all: u32,
    named: [u32; 2],
    /// Losses and idle times so far.
    epoch: u32,
}

impl Reductions {
    /// The number of losses and idle times so far: an estimate belongs to one.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The window was lost: a recovery begins. After a second one, or a timeout, how much the first reduced is unknown.
    pub fn lose(&mut self, is_timeout: bool) {
        self.epoch += 1;
        if self.is_reduced || is_timeout {
            self.before = None;
        }
        self.is_reduced = true;
    }

    /// The window may have shrunk while the sender was idle.
    pub fn pause(&mut self) {
        *self = Self { before: None, is_reduced: false, epoch: self.epoch + 1, ..*self };
    }

    /// An estimate outside of recoveries.
    pub fn note(&mut self, estimate: i64, epoch: u32) {
        if epoch != self.epoch {
            return;
        }
        if let (true, Some(before)) = (self.is_reduced, self.before) {
            let percent = estimate * 100 / before.max(1);
            self.all += 1;
            for (count, (least, most)) in self.named.iter_mut().zip(RANGES) {
                *count += u32::from((least..=most).contains(&percent));
            }
        }
        (self.before, self.is_reduced) = (Some(estimate), false);
    }

    /// The congestion control, if the reductions tell.
    pub fn name(&self) -> Option<u8> {
        let [reno, cubic] = self.named;
        let is = |own: u32, other: u32| own >= COUNT_MIN && own * SHARE.1 >= self.all * SHARE.0 && own >= LEAD * other;
        is(reno, cubic).then_some(RENO).or(is(cubic, reno).then_some(CUBIC))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Losses that reduce a window of 100 to these.
    fn after(windows: &[i64]) -> Option<u8> {
        let mut reductions = Reductions::default();
        for &window in windows {
            reductions.note(100, reductions.epoch());
            reductions.lose(false);
            reductions.note(window, reductions.epoch());
        }
        reductions.name()
    }

    #[test]
    fn a_half_is_reno_and_seven_tenths_are_cubic() {
        assert_eq!(after(&[50, 46, 55]), Some(RENO));
        assert_eq!(after(&[70, 63, 73]), Some(CUBIC));
        assert_eq!(after(&[50, 50]), None, "too few");
        assert_eq!(after(&[45, 56, 62, 74, 100, 85]), None);
    }

    #[test]
    fn a_name_takes_two_fifths_and_twice_as_many_as_the_other() {
        assert_eq!(after(&[50, 50, 50, 50, 90, 90, 90, 90, 90, 90]), Some(RENO));
        assert_eq!(after(&[50, 50, 50, 90, 90, 90, 90, 90]), None);
        assert_eq!(after(&[70, 70, 70, 70, 50, 50]), Some(CUBIC));
        assert_eq!(after(&[70, 70, 70, 70, 50, 50, 50]), None);
    }

    #[test]
    fn only_one_loss_between_two_estimates_tells() {
        let mut reductions = Reductions::default();
        for _ in 0..9 {
            reductions.note(100, reductions.epoch());
            reductions.lose(false);
            reductions.lose(false);
            reductions.note(50, reductions.epoch());
            // a timeout, an idle time, an estimate of before the loss
            reductions.note(100, reductions.epoch());
            reductions.lose(true);
            reductions.note(50, reductions.epoch());
            reductions.note(100, reductions.epoch());
            reductions.pause();
            reductions.note(50, reductions.epoch());
            let epoch = reductions.epoch();
            reductions.lose(false);
            reductions.note(50, epoch);
            reductions.pause();
        }
        assert_eq!(reductions.name(), None);
        assert_eq!(reductions.all, 0);
    }
}
