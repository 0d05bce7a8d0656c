//! The command window of a session: CmdSN over all its connections (RFC 7143 section 4.2.2.1).
//!
//! ```text
//!   ... ExpCmdSN ........ CmdSN ........ MaxCmdSN
//!        next expected      next to be     last that may
//!        by the target      sent           be sent
//! ```
//!
//! It never sends: the session checks it before each command.

use iscsitrace_wire::serial::SerialNumber;

use super::violation::Violation;

/// CmdSN, ExpCmdSN and MaxCmdSN as the initiator keeps them.
#[derive(Debug, Clone, Copy)]
pub struct CommandWindow {
    cmd_sn: SerialNumber,
    exp_cmd_sn: SerialNumber,
    max_cmd_sn: SerialNumber,
    /// Immediate requests that a target may still count as numbered ones.
    immediate_count: u32,
}

impl CommandWindow {
    /// A window that is closed until the target opens it; `cmd_sn` is that of the first command.
    #[must_use]
    pub fn new(cmd_sn: u32) -> Self {
        let cmd_sn = SerialNumber(cmd_sn);
        let max_cmd_sn = SerialNumber(cmd_sn.0.wrapping_sub(1));
        Self { cmd_sn, exp_cmd_sn: cmd_sn, max_cmd_sn, immediate_count: 0 }
    }

    /// The CmdSN of the next command; immediate commands carry it without advancing it.
    #[must_use]
    pub fn cmd_sn(&self) -> SerialNumber {
        self.cmd_sn
    }

    /// MaxCmdSN.
    #[must_use]
    pub fn max_cmd_sn(&self) -> SerialNumber {
        self.max_cmd_sn
    }

    /// Whether a command that is not immediate may be sent.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.cmd_sn.is_after(self.max_cmd_sn)
    }

    /// Assigns the CmdSN of a command that is sent now.
    pub fn take(&mut self) -> SerialNumber {
        let taken = self.cmd_sn;
        self.cmd_sn = taken.next();
        taken
    }

    /// Uses the CmdSN of the last command again (S2).
    #[must_use]
    pub fn reuse(&self) -> SerialNumber {
        SerialNumber(self.cmd_sn.0.wrapping_sub(1))
    }

    /// An immediate request was sent, under the CmdSN of the next command.
    pub fn pass(&mut self) {
        self.immediate_count = self.immediate_count.saturating_add(1);
    }

    /// Takes the numbers of a PDU of the target; false when the target counts immediate requests, contrary to RFC 7143.
    /// Then CmdSN continues as that target expects.
    ///
    /// # Errors
    /// It acknowledges a command that was not sent.
    pub fn update(&mut self, exp_cmd_sn: SerialNumber, max_cmd_sn: SerialNumber) -> Result<bool, Violation> {
        // Section 4.2.2.1: a MaxCmdSN below ExpCmdSN - 1 makes both be ignored.
        if max_cmd_sn.next().is_before(exp_cmd_sn) {
            return Ok(true);
        }
        let is_ahead = exp_cmd_sn.is_after(self.cmd_sn);
        if is_ahead {
            let counted = exp_cmd_sn.0.wrapping_sub(self.cmd_sn.0);
            let Some(left) = self.immediate_count.checked_sub(counted) else {
                return Err(Violation::ExpCmdSnAhead { exp_cmd_sn, cmd_sn: self.cmd_sn });
            };
            (self.cmd_sn, self.immediate_count) = (exp_cmd_sn, left);
        }
        // Section 4.2.2.1: PDUs of several connections overtake each other, so only a larger number counts.
        if exp_cmd_sn.is_after(self.exp_cmd_sn) {
            self.exp_cmd_sn = exp_cmd_sn;
        }
        if max_cmd_sn.is_after(self.max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
        Ok(!is_ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(exp_cmd_sn: u32, max_cmd_sn: u32) -> (SerialNumber, SerialNumber) {
        (SerialNumber(exp_cmd_sn), SerialNumber(max_cmd_sn))
    }

    fn update(window: &mut CommandWindow, exp_cmd_sn: u32, max_cmd_sn: u32) -> Result<bool, Violation> {
        let (exp_cmd_sn, max_cmd_sn) = numbers(exp_cmd_sn, max_cmd_sn);
        window.update(exp_cmd_sn, max_cmd_sn)
    }

    #[test]
    fn commands_up_to_max_cmd_sn_may_be_sent_across_the_wrap() {
        let mut window = CommandWindow::new(u32::MAX - 1);
        assert!(!window.is_open());
        assert_eq!(update(&mut window, u32::MAX - 1, 1), Ok(true));
        let mut sent = Vec::new();
        while window.is_open() {
            sent.push(window.take().0);
        }
        assert_eq!(sent, [u32::MAX - 1, u32::MAX, 0, 1]);
    }

    #[test]
    fn the_window_never_shrinks() {
        let mut window = CommandWindow::new(10);
        assert_eq!(update(&mut window, 10, 20), Ok(true));
        assert_eq!(update(&mut window, 10, 12), Ok(true), "an older PDU of another connection");
        assert_eq!(window.max_cmd_sn(), SerialNumber(20));
    }

    #[test]
    fn a_max_cmd_sn_below_the_window_is_ignored_and_a_closed_window_is_valid() {
        let mut window = CommandWindow::new(10);
        assert_eq!(update(&mut window, 10, 9), Ok(true), "closed");
        assert!(!window.is_open());
        assert_eq!(update(&mut window, 500, 100), Ok(true), "ignored, both of them");
        assert!(!window.is_open());
    }

    #[test]
    fn commands_that_were_not_sent_cannot_be_acknowledged() {
        let mut window = CommandWindow::new(10);
        let (exp_cmd_sn, cmd_sn) = numbers(11, 10);
        assert_eq!(update(&mut window, 11, 20), Err(Violation::ExpCmdSnAhead { exp_cmd_sn, cmd_sn }));
    }

    /// Behaviour of istgt.
    #[test]
    fn a_target_that_counts_immediate_requests_is_followed() {
        let mut window = CommandWindow::new(u32::MAX);
        (0..2).for_each(|_| window.pass());
        assert_eq!(update(&mut window, 0, 20), Ok(false));
        assert_eq!(window.take(), SerialNumber(0));
        assert_eq!(update(&mut window, 1, 20), Ok(true));
        assert_eq!(update(&mut window, 2, 20), Ok(false));
        let (exp_cmd_sn, cmd_sn) = numbers(3, 2);
        assert_eq!(update(&mut window, 3, 20), Err(Violation::ExpCmdSnAhead { exp_cmd_sn, cmd_sn }), "two were sent");
    }
}
