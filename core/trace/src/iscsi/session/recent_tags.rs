//! How soon an initiator takes an Initiator Task Tag again, by the commands of a session that were captured: some take the
//! one of the last command that ended, others all of a large pool in turn.

use iscsitrace_wire::bhs::RESERVED_TAG;
use serde::{Deserialize, Serialize};

/// Commands whose tags are kept: no tag is known to be taken again later than after so many.
const KEPT: usize = 32;
/// Commands that could have taken a tag again and took others, until a pool in turn is certain: initiators that take the last one
/// need another only where more commands are in flight than ever before.
const ENOUGH: usize = 4;

/// The tags of the last commands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecentTags {
    /// A ring: the one at `next` is the oldest.
    tags: [u32; KEPT],
    next: usize,
    /// Commands that could have taken a tag again, up to so many as are enough.
    count: usize,
    /// Whether one did.
    is_again: bool,
}

impl Default for RecentTags {
    fn default() -> Self {
        Self { tags: [RESERVED_TAG; KEPT], next: 0, count: 0, is_again: false }
    }
}

impl RecentTags {
    /// Adds the tag of a command; `has_ended` if an earlier one has ended.
    #[inline]
    pub fn note(&mut self, tag: u32, has_ended: bool) {
        if self.is_again {
            return;
        }
        self.is_again = self.tags.contains(&tag);
        self.count = (self.count + usize::from(has_ended)).min(ENOUGH);
        if let Some(place) = self.tags.get_mut(self.next) {
            *place = tag;
        }
        self.next = (self.next + 1) % KEPT;
    }

    /// After how many commands a tag may be taken again: 1 is the next one. Before there were enough commands to know, and
    /// once one took a tag again, it may be any: the shortest distance may yet come, or be that of a missing command.
    pub fn least_distance(&self) -> u32 {
        if self.is_again || self.count < ENOUGH { 1 } else { KEPT as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After commands with these tags; none before `ended_from` could take one again.
    fn least_distance(tags: impl IntoIterator<Item = u32>, ended_from: usize) -> u32 {
        let mut recent = RecentTags::default();
        tags.into_iter().enumerate().for_each(|(place, tag)| recent.note(tag, place >= ended_from));
        recent.least_distance()
    }

    #[test]
    fn a_pool_in_turn_is_known_after_four_commands() {
        for (count, expected) in [(0, 1), (1, 1), (3, 1), (4, 32), (100, 32)] {
            assert_eq!(least_distance(0..count, 0), expected, "{count}");
        }
        // a tag is there again after 33 commands
        assert_eq!(least_distance((0..33).chain(0..33), 0), 32);
    }

    #[test]
    fn as_long_as_none_has_ended_no_tag_can_be_taken_again() {
        for (ended_from, expected) in [(60, 32), (61, 1)] {
            assert_eq!(least_distance(0..64, ended_from), expected, "{ended_from}");
        }
    }

    #[test]
    fn one_that_is_taken_again_may_be_taken_again_at_once() {
        assert_eq!(least_distance((0..32).chain([0]).chain(100..200), 0), 1);
        assert_eq!(least_distance((0..50).chain([49]), 0), 1);
    }
}
