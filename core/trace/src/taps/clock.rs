//! The offset between the clocks of two taps, well enough to read both captures in the order of time. The results
//! never use it: they have each tap's own times.
//!
//! The offset lies above every transit to the initiator and below every transit to the target, delays being positive.

/// Extremes are taken over two stretches of this length: clocks drift, and are stepped.
const STRETCH_NS: i64 = 2_000_000_000;

/// The least value of the present stretch of time and the one before.
#[derive(Debug, Clone, Copy, Default)]
struct Least {
    from_ns: i64,
    present: Option<i64>,
    before: Option<i64>,
}

impl Least {
    #[inline]
    fn note(&mut self, time_ns: i64, value: i64) {
        if self.present.is_none() || time_ns.saturating_sub(self.from_ns) > STRETCH_NS {
            self.before = self.present;
            self.present = None;
            self.from_ns = time_ns;
        }
        self.present = Some(self.present.map_or(value, |least| least.min(value)));
    }

    fn value(&self) -> Option<i64> {
        self.present.into_iter().chain(self.before).min()
    }
}

/// Clock of tap b less clock of tap a.
#[derive(Debug)]
pub(super) struct Offset {
    hint_ns: i64,
    to_target: Least,
    /// Of negative transits: the greatest is the least.
    to_initiator: Least,
    ns: i64,
    until_update: u32,
}

impl Offset {
    pub(super) fn new(hint_ns: i64) -> Self {
        Self { hint_ns, to_target: Least::default(), to_initiator: Least::default(), ns: hint_ns, until_update: 1 }
    }

    #[inline]
    pub(super) fn ns(&self) -> i64 {
        self.ns
    }

    #[inline]
    pub(super) fn note(&mut self, to_target: bool, time_a_ns: i64, transit_ns: i64) {
        if to_target {
            self.to_target.note(time_a_ns, transit_ns);
        } else {
            self.to_initiator.note(time_a_ns, transit_ns.saturating_neg());
        }
        self.until_update -= 1;
        if self.until_update == 0 {
            self.until_update = 16;
            self.update();
        }
    }

    fn update(&mut self) {
        let (above, below) = (self.to_target.value(), self.to_initiator.value().map(i64::saturating_neg));
        self.ns = match (above, below) {
            (Some(above), Some(below)) if (below..=above).contains(&self.hint_ns) => self.hint_ns,
            (Some(above), Some(below)) => below.midpoint(above),
            (Some(above), None) => self.hint_ns.min(above),
            (None, Some(below)) => self.hint_ns.max(below),
            (None, None) => self.hint_ns,
        };
    }
}
