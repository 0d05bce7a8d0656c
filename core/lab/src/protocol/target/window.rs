//! The command window of a session: the order of commands over all connections (RFC 7143 section 4.2.2.1).
//!
//! ```text
//!   CmdSN ...  | ExpCmdSN ......... MaxCmdSN |  ...
//!     ignored  |  next    held until its turn|  ignored
//! ```
//!
//! It orders PDUs; it never parses them.

use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::FxHashMap;

/// The turn of a command that is not immediate, by its CmdSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Now.
    Now,
    /// After others that have not arrived.
    Later,
    /// Never: outside the window, or a duplicate.
    Never,
}

/// The window, and PDUs that arrived before their turn.
#[derive(Debug)]
pub(super) struct CommandWindow<T> {
    exp_cmd_sn: SerialNumber,
    max_cmd_sn: SerialNumber,
    held: FxHashMap<u32, T>,
}

impl<T> CommandWindow<T> {
    /// A window of `depth` commands from `exp_cmd_sn` on.
    pub(super) fn new(exp_cmd_sn: SerialNumber, depth: u32) -> Self {
        Self { exp_cmd_sn, max_cmd_sn: exp_cmd_sn + depth.wrapping_sub(1), held: FxHashMap::default() }
    }

    pub(super) fn exp_cmd_sn(&self) -> SerialNumber {
        self.exp_cmd_sn
    }

    pub(super) fn max_cmd_sn(&self) -> SerialNumber {
        self.max_cmd_sn
    }

    /// Whether the window is closed: MaxCmdSN = ExpCmdSN - 1.
    pub(super) fn is_closed(&self) -> bool {
        self.exp_cmd_sn.is_after(self.max_cmd_sn)
    }

    /// The turn of a command.
    pub(super) fn turn(&self, cmd_sn: SerialNumber) -> Turn {
        if cmd_sn == self.exp_cmd_sn && !self.is_closed() {
            Turn::Now
        } else if !self.has(cmd_sn) || self.held.contains_key(&cmd_sn.0) {
            Turn::Never
        } else {
            Turn::Later
        }
    }

    /// Whether the window has this CmdSN.
    pub(super) fn has(&self, cmd_sn: SerialNumber) -> bool {
        cmd_sn.distance(self.exp_cmd_sn) >= 0 && self.max_cmd_sn.distance(cmd_sn) >= 0
    }

    /// Advances past a command in its turn.
    pub(super) fn advance(&mut self) {
        self.exp_cmd_sn = self.exp_cmd_sn.next();
    }

    /// Holds a PDU that arrived before its turn.
    pub(super) fn hold(&mut self, cmd_sn: SerialNumber, what: T) {
        self.held.insert(cmd_sn.0, what);
    }

    /// The PDU held under this CmdSN.
    pub(super) fn held_mut(&mut self, cmd_sn: SerialNumber) -> Option<&mut T> {
        self.held.get_mut(&cmd_sn.0)
    }

    /// The next held PDU whose turn has come.
    pub(super) fn next_held(&mut self) -> Option<T> {
        if self.held.is_empty() {
            return None;
        }
        let what = self.held.remove(&self.exp_cmd_sn.0)?;
        self.advance();
        Some(what)
    }

    /// A command is done: returns its credit. MaxCmdSN never decreases.
    pub(super) fn release(&mut self) {
        self.max_cmd_sn = self.max_cmd_sn.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_window_is_from_exp_cmd_sn_to_max_cmd_sn() {
        let mut window = CommandWindow::<()>::new(SerialNumber(u32::MAX), 3);
        assert_eq!(window.max_cmd_sn(), SerialNumber(1));
        let turns =
            |window: &CommandWindow<()>| [u32::MAX - 1, u32::MAX, 0, 1, 2].map(|sn| window.turn(SerialNumber(sn)));
        assert_eq!(turns(&window), [Turn::Never, Turn::Now, Turn::Later, Turn::Later, Turn::Never]);
        window.hold(SerialNumber(0), ());
        assert_eq!(turns(&window), [Turn::Never, Turn::Now, Turn::Never, Turn::Later, Turn::Never]);
        window.advance();
        assert_eq!(window.next_held(), Some(()));
        assert_eq!(window.next_held(), None);
        assert_eq!(turns(&window), [Turn::Never, Turn::Never, Turn::Never, Turn::Now, Turn::Never]);
        window.advance();
        assert!(window.is_closed());
        assert_eq!(turns(&window), [Turn::Never; 5]);
        window.release();
        assert_eq!(turns(&window), [Turn::Never, Turn::Never, Turn::Never, Turn::Never, Turn::Now]);
    }

    proptest! {
        /// Any order of arrival within the window, with duplicates, is delivered once and in the order of CmdSN.
        #[test]
        fn commands_are_delivered_once_and_in_order(
            start: u32, depth in 1u32..20, arrivals in proptest::collection::vec(0u32..40, 0..300)
        ) {
            let mut window = CommandWindow::new(SerialNumber(start), depth);
            let mut delivered = Vec::new();
            let mut came = std::collections::BTreeSet::new();
            for arrival in arrivals {
                let cmd_sn = SerialNumber(start) + arrival;
                let expected = delivered.len() as u32;
                let is_taken = arrival >= expected && arrival < depth.max(1) && !came.contains(&arrival);
                match window.turn(cmd_sn) {
                    Turn::Now => {
                        prop_assert!(is_taken && arrival == expected);
                        window.advance();
                        delivered.push(arrival);
                    }
                    Turn::Later => {
                        prop_assert!(is_taken && arrival > expected);
                        window.hold(cmd_sn, arrival);
                    }
                    Turn::Never => prop_assert!(!is_taken),
                }
                if is_taken {
                    came.insert(arrival);
                }
                while let Some(held) = window.next_held() {
                    delivered.push(held);
                }
                let in_order: Vec<u32> = (0..delivered.len() as u32).collect();
                prop_assert_eq!(&delivered, &in_order);
            }
        }
    }
}
