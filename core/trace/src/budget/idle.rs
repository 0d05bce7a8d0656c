//! The time of each command in which the line of its connection was idle: all that is not transfer.

use super::scope::Scope;
use crate::tables::{Budget, Columns, Cycles, NULL_U32, budget_part};

/// Fills `cycles.idle_ns` of the commands whose time the breakdown of their connection covers. The rows of `budget` are in
/// the order of the scopes.
pub(super) fn fill(cycles: &mut Cycles, budget: &Budget, scopes: &[Scope<'_>]) {
    let mut from = 0;
    for scope in scopes.iter().filter(|scope| scope.connection != NULL_U32) {
        let count = budget.connection[from..].iter().take_while(|&&number| number == scope.connection).count();
        let idle = IdleTime::of(budget, from, count);
        for row in scope.cycles.iter().map(|&cycle| cycle as usize) {
            let [start, end] = [cycles.command_first_ns[row], cycles.end_ns[row]].map(|time_ns| idle.until(time_ns));
            if let (Some(start), Some(end)) = (start, end)
                && start <= end
            {
                cycles.idle_ns.set(row, end.saturating_sub(start));
            }
        }
        from += count;
    }
    debug_assert!(
        budget.connection[from..].iter().all(|&number| number == NULL_U32),
        "{from} of {}",
        budget.row_count()
    );
}

/// The idle time of one connection.
struct IdleTime<'a> {
    firsts_ns: &'a [i64],
    lasts_ns: &'a [i64],
    parts: &'a [u8],
    /// Up to each stretch.
    before_ns: Vec<i64>,
}

impl<'a> IdleTime<'a> {
    fn of(budget: &'a Budget, from: usize, count: usize) -> Self {
        let rows = from..from + count;
        let (firsts_ns, lasts_ns) = (&budget.time_first_ns[rows.clone()], &budget.time_last_ns[rows.clone()]);
        let mut found = Self { firsts_ns, lasts_ns, parts: &budget.part[rows], before_ns: Vec::with_capacity(count) };
        let mut sum_ns = 0;
        for (row, &last_ns) in lasts_ns.iter().enumerate() {
            found.before_ns.push(sum_ns);
            sum_ns = found.of_stretch(row, last_ns).saturating_add(sum_ns);
        }
        found
    }

    /// Idle time of a stretch until an instant in it.
    fn of_stretch(&self, row: usize, time_ns: i64) -> i64 {
        if self.parts[row] == budget_part::TRANSFER { 0 } else { time_ns.saturating_sub(self.firsts_ns[row]) }
    }

    /// Idle time until an instant; none where that is not covered.
    fn until(&self, time_ns: i64) -> Option<i64> {
        let row = self.lasts_ns.partition_point(|&last_ns| last_ns < time_ns);
        let first_ns = self.firsts_ns.get(row)?;
        (*first_ns <= time_ns).then(|| self.of_stretch(row, time_ns).saturating_add(self.before_ns[row]))
    }
}
