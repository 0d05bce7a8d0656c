//! Which connection of a session carries the next command.
//!
//! It never sends.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DealingRule {
    /// Round robin at first, then the connection that completed a command.
    #[default]
    TurnThenFinished,
    /// Round robin.
    Turn,
    /// The connection with the fewest commands in flight, the first of several.
    LeastLoaded,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Commands in flight.
    load: usize,
    /// Whether it accepts more.
    is_open: bool,
}

/// The connections of one session, and their commands in flight.
#[derive(Debug)]
pub struct Dealer {
    rule: DealingRule,
    places: Vec<Place>,
    finished: VecDeque<usize>,
    next: usize,
}

impl Dealer {
    /// For a session with this many connections.
    #[must_use]
    pub fn new(rule: DealingRule, connections: usize) -> Self {
        let places = vec![Place { load: 0, is_open: true }; connections];
        Self { rule, places, finished: VecDeque::new(), next: 0 }
    }

    /// Assigns the next command to a connection; none when no connection accepts commands.
    pub fn deal(&mut self) -> Option<usize> {
        let chosen = match self.rule {
            DealingRule::TurnThenFinished => self.next_finished().or_else(|| self.next_in_turn()),
            DealingRule::Turn => self.next_in_turn(),
            DealingRule::LeastLoaded => {
                let open = self.places.iter().enumerate().filter(|(_, place)| place.is_open);
                open.map(|(index, place)| (place.load, index)).min().map(|(_, index)| index)
            }
        }?;
        if let Some(place) = self.places.get_mut(chosen) {
            place.load += 1;
        }
        Some(chosen)
    }

    fn next_finished(&mut self) -> Option<usize> {
        while let Some(index) = self.finished.pop_front() {
            if self.places.get(index).is_some_and(|place| place.is_open) {
                return Some(index);
            }
        }
        None
    }

    fn next_in_turn(&mut self) -> Option<usize> {
        let count = self.places.len();
        let chosen = (0..count).map(|step| (self.next + step) % count).find(|index| self.places[*index].is_open)?;
        self.next = (chosen + 1) % count;
        Some(chosen)
    }

    /// A command of a connection ended.
    pub fn finish(&mut self, connection: usize) {
        if let Some(place) = self.places.get_mut(connection) {
            place.load = place.load.saturating_sub(1);
            if place.is_open && self.rule == DealingRule::TurnThenFinished {
                self.finished.push_back(connection);
            }
        }
    }

    /// A connection accepts commands from now on, as if it had just completed `count` commands.
    pub fn join(&mut self, connection: usize, count: usize) {
        let nobody = Place { load: 0, is_open: false };
        self.places.resize(self.places.len().max(connection + 1), nobody);
        self.places[connection].is_open = true;
        if self.rule == DealingRule::TurnThenFinished {
            self.finished.extend(std::iter::repeat_n(connection, count));
        }
    }

    /// A connection accepts no more commands.
    pub fn retire(&mut self, connection: usize) {
        if let Some(place) = self.places.get_mut(connection) {
            place.is_open = false;
        }
    }

    /// Number of connections that accept commands.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.places.iter().filter(|place| place.is_open).count()
    }

    /// Commands in flight on connections that accept no more.
    #[must_use]
    pub fn leaving_load(&self) -> usize {
        self.places.iter().filter(|place| !place.is_open).map(|place| place.load).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(dealer: &mut Dealer, count: usize) -> Vec<usize> {
        (0..count).filter_map(|_| dealer.deal()).collect()
    }

    #[test]
    fn round_robin_first_then_the_connection_that_finished() {
        let mut dealer = Dealer::new(DealingRule::TurnThenFinished, 3);
        assert_eq!(dealt(&mut dealer, 5), [0, 1, 2, 0, 1]);
        dealer.finish(2);
        dealer.finish(0);
        assert_eq!(dealt(&mut dealer, 3), [2, 0, 2], "2 and 0 finished, then 2 is in turn");
    }

    #[test]
    fn round_robin_regardless_of_completions() {
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

    #[test]
    fn a_new_connection_gets_the_next_command_and_a_leaving_one_keeps_its_commands() {
        for rule in [DealingRule::TurnThenFinished, DealingRule::LeastLoaded] {
            let mut dealer = Dealer::new(rule, 2);
            assert_eq!(dealt(&mut dealer, 4), [0, 1, 0, 1]);
            dealer.join(2, 2);
            assert_eq!((dealt(&mut dealer, 2), dealer.open_count()), (vec![2, 2], 3), "{rule:?}");
            dealer.retire(1);
            assert_eq!((dealer.open_count(), dealer.leaving_load()), (2, 2));
            dealer.finish(1);
            assert_eq!(dealer.leaving_load(), 1);
            assert_ne!(dealer.deal(), Some(1), "{rule:?}");
        }
        let mut dealer = Dealer::new(DealingRule::Turn, 1);
        dealer.join(1, 1);
        assert_eq!(dealt(&mut dealer, 4), [0, 1, 0, 1]);
    }
}
