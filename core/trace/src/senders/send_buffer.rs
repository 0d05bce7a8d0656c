//! When a sender filled its send buffer: spans of time at the tap, and of rows in the table `window`.

use serde::{Deserialize, Serialize};
/// A time, and a row of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Time of a packet of the sender at the tap.
    pub time_ns: i64,
    /// The next row.
    pub row: usize,
}

/// A span; without an end while it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its start.
    pub from: Place,
    /// Its end.
    pub until: Option<Place>,
}

/// The spans of one sender, in order.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct SendBuffer {
    spans: Vec<Span>,
    /// The start of the current round, and of the round in which the current level began.
    round: Place,
    level: Place,
    /// The last loss; none before any.
    lost: Option<Place>,
}

impl SendBuffer {
    /// Whether the buffer is full at present, or not: at `place`.
    pub fn set(&mut self, is_full: bool, place: Place) {
        match self.spans.last_mut().filter(|span| span.until.is_none()) {
            Some(span) if !is_full => span.until = Some(place),
            None if is_full => self.spans.push(Span { from: place, until: None }),
            _ => {}
        }
    }

    /// A round ended, in which a level began, or not.
    pub fn end_round(&mut self, begins_level: bool, place: Place) {
        if begins_level {
            self.level = self.round;
        }
        self.round = place;
    }

    /// The current level is that of the full buffer.
    pub fn find(&mut self) {
        self.spans.push(Span { from: self.level, until: None });
    }

    /// The stops since the last loss were those of the full buffer.
    pub fn find_since_loss(&mut self) {
        if !self.is_full() {
            let from = self.lost.unwrap_or(Place { time_ns: i64::MIN, row: 0 });
            self.spans.retain(|span| (span.from.row, span.from.time_ns) < (from.row, from.time_ns));
            self.spans.push(Span { from, until: None });
        }
    }

    /// A loss: from now on another window may hold the sender.
    pub fn lose(&mut self, place: Place) {
        self.set(false, place);
        self.lost = Some(place);
    }

    /// There was no loss.
    pub fn undo(&mut self) {
        self.lost = None;
    }

    /// Whether the buffer is full at present.
    pub fn is_full(&self) -> bool {
        self.spans.last().is_some_and(|span| span.until.is_none())
    }

    /// The spans.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Removes spans from before, except the last.
    pub fn forget(&mut self, before_ns: i64) {
        let is_old = |span: &&Span| span.until.is_some_and(|until| until.time_ns < before_ns);
        let count = self.spans.iter().take_while(is_old).count();
        self.spans.drain(..count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: i64) -> Place {
        Place { time_ns, row: time_ns as usize / 10 }
    }

    #[test]
    fn a_buffer_was_full_from_the_round_on_in_which_its_level_began() {
        let mut buffer = SendBuffer::default();
        buffer.end_round(true, at(10));
        buffer.end_round(true, at(20));
        buffer.end_round(false, at(30));
        buffer.find();
        assert!(buffer.is_full());
        buffer.set(true, at(40));
        buffer.set(false, at(50));
        buffer.set(false, at(60));
        buffer.set(true, at(70));
        assert_eq!(buffer.spans(), [Span { from: at(10), until: Some(at(50)) }, Span { from: at(70), until: None }]);
        buffer.forget(50);
        assert_eq!(buffer.spans().len(), 2);
        buffer.forget(51);
        assert_eq!(buffer.spans().len(), 1);
        buffer.forget(i64::MAX);
        assert!(buffer.is_full());
    }

    #[test]
    fn after_a_loss_the_buffer_was_full_since_then() {
        let mut buffer = SendBuffer::default();
        buffer.set(true, at(20));
        buffer.set(false, at(30));
        buffer.find_since_loss();
        let begin = Place { time_ns: i64::MIN, row: 0 };
        buffer.lose(at(50));
        buffer.set(true, at(60));
        buffer.set(false, at(70));
        buffer.find_since_loss();
        assert_eq!(buffer.spans(), [Span { from: begin, until: Some(at(50)) }, Span { from: at(50), until: None }]);
        buffer.set(false, at(80));
        buffer.undo();
        buffer.find_since_loss();
        assert_eq!(buffer.spans(), [Span { from: begin, until: None }]);
    }
}
