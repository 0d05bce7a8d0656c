//! Sessions that others reinstated, and when those went on with their work.
//!
//! Between a black-out and its end the commands of a lost session wait, and nobody else does. As soon as the new session
//! reads or writes, no time is lost any more.

use rustc_hash::FxHashMap;

use super::Live;
use crate::iscsi::session::SessionEnd;
use crate::tables::in_flight::{self, kind};
use crate::tables::{Columns, Sessions};

impl Live {
    /// Notes when sessions that others reinstated were read or written again, on the others: until then their commands
    /// waited.
    pub(super) fn note_takeovers(&mut self) {
        let Sessions { session: numbers, initiator_name, isid, target_name, end, .. } =
            &self.pipeline.context.sessions.rows;
        let is_waiting =
            |place: usize| end[place] == SessionEnd::Reinstated as u8 && !self.taken_over.contains_key(&numbers[place]);
        if !(0..numbers.len()).any(is_waiting) {
            return;
        }
        let mut next: FxHashMap<_, usize> = FxHashMap::default();
        let mut awaited: FxHashMap<u32, u32> = FxHashMap::default();
        for place in (0..numbers.len()).rev() {
            let later = next.insert((&initiator_name[place], &isid[place], &target_name[place]), place);
            if let Some(later) = later.filter(|_| is_waiting(place)) {
                awaited.insert(numbers[later], numbers[place]);
            }
        }
        let cycles = &self.pipeline.context.tables.cycles;
        for row in (0..cycles.row_count()).filter(|&row| kind(cycles, row) == in_flight::DATA) {
            if let Some(number) = awaited.remove(&cycles.session[row]) {
                self.taken_over.insert(number, cycles.command_first_ns[row]);
            }
        }
    }

    /// When another session took over the work of this one.
    pub(super) fn taken_over_ns(&self, session: u32) -> Option<i64> {
        self.taken_over.get(&session).copied()
    }
}
