//! Which connection of a session carries the next command.
//!
//! It never sends.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DealingRule {
    /// In turn at first, then to the connection that finished a command.
    #[default]
    TurnThenFinished,
    /// In turn.
    Turn,
    /// To the connection with the fewest commands, the first of several.
    LeastLoaded,
}

/// The connections of one session, and what they carry.
#[derive(Debug)]
pub struct Dealer {
    rule: DealingRule,
    /// Commands under way, per connection; none for one that takes no more.
    loads: Vec<Option<usize>>,
    finished: VecDeque<usize>,
    next: usize,
}

impl Dealer {
    /// For a session with this many connections.
    #[must_use]
    pub fn new(rule: DealingRule, connections: usize) -> Self {
        Self { rule, loads: vec![Some(0); connections], finished: VecDeque::new(), next: 0 }
    }

    /// The connection for the next command, which it carries from now on; none when none takes any.
    pub fn deal(&mut self) -> Option<usize> {
        let chosen = match self.rule {
            DealingRule::TurnThenFinished => self.next_finished().or_else(|| self.next_in_turn()),
            DealingRule::Turn => self.next_in_turn(),
            DealingRule::LeastLoaded => {
                let loads = self.loads.iter().enumerate();
                loads.filter_map(|(index, load)| Some((*load.as_ref()?, index))).min().map(|(_, index)| index)
            }
        }?;
        if let Some(Some(load)) = self.loads.get_mut(chosen) {
            *load += 1;
        }
        Some(chosen)
    }

    fn next_finished(&mut self) -> Option<usize> {
        while let Some(index) = self.finished.pop_front() {
            if matches!(self.loads.get(index), Some(Some(_))) {
                return Some(index);
            }
        }
        None
    }

    fn next_in_turn(&mut self) -> Option<usize> {
        let count = self.loads.len();
        let chosen = (0..count).map(|step| (self.next + step) % count).find(|index| self.loads[*index].is_some())?;
        self.next = (chosen + 1) % count;
        Some(chosen)
    }

    /// A command of a connection ended.
    pub fn finish(&mut self, connection: usize) {
        if let Some(Some(load)) = self.loads.get_mut(connection) {
            *load = load.saturating_sub(1);
            if self.rule == DealingRule::TurnThenFinished {
                self.finished.push_back(connection);
            }
        }
    }

    /// A connection takes no more commands.
    pub fn retire(&mut self, connection: usize) {
        if let Some(load) = self.loads.get_mut(connection) {
            *load = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(dealer: &mut Dealer, count: usize) -> Vec<usize> {
        (0..count).filter_map(|_| dealer.deal()).collect()
    }

    #[test]
    fn in_turn_first_then_to_whichever_finished() {
        let mut dealer = Dealer::new(DealingRule::TurnThenFinished, 3);
        assert_eq!(dealt(&mut dealer, 5), [0, 1, 2, 0, 1]);
        dealer.finish(2);
        dealer.finish(0);
        assert_eq!(dealt(&mut dealer, 3), [2, 0, 2], "2 and 0 finished, then 2 is in turn");
    }

    #[test]
    fn in_turn_whatever_finishes() {
        let mut dealer = Dealer::new(DealingRule::Turn, 3);
        assert_eq!(dealt(&mut dealer, 2), [0, 1]);
        dealer.finish(0);
        assert_eq!(dealt(&mut dealer, 2), [2, 0]);
    }

    #[test]
    fn to_the_least_loaded() {
        let mut dealer = Dealer::new(DealingRule::LeastLoaded, 3);
        assert_eq!(dealt(&mut dealer, 4), [0, 1, 2, 0]);
        dealer.finish(2);
        assert_eq!(dealt(&mut dealer, 2), [2, 1]);
    }

    #[test]
    fn a_retired_connection_gets_nothing() {
        for rule in [DealingRule::TurnThenFinished, DealingRule::Turn, DealingRule::LeastLoaded] {
            let mut dealer = Dealer::new(rule, 2);
            assert_eq!(dealt(&mut dealer, 2), [0, 1]);
            dealer.finish(0);
            dealer.retire(0);
            assert_eq!(dealt(&mut dealer, 2), [1, 1], "{rule:?}");
            dealer.retire(1);
            assert_eq!(dealer.deal(), None);
        }
    }
}
