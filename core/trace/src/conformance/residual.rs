//! The final response of a SCSI command: residuals, and whether all bytes were transferred; rules S17 and D17 to D20.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::status::Status;

use super::rules::{Rule, Side};
use super::sight::Sight;
use super::task::Task;
use super::violations::Found;
use crate::stream::stamp::Stamp;
use crate::tables::NULL_U64;

impl Task {
    /// The final response: residuals, and whether all bytes were transferred.
    #[inline]
    pub(super) fn judge_end(&self, bhs: Bhs<'_>, tag: u32, at: Stamp, sight: &mut Sight<'_>) {
        let found = |rule| Found::new(rule, Side::Target, at).of(tag, self.cycle);
        let (is_over, is_under) = (bhs.is_overflow() == Some(true), bhs.is_underflow() == Some(true));
        // the field counts with its bit alone
        let residual = if is_over || is_under { bhs.residual_count().unwrap_or(0) } else { 0 };
        if (is_over && is_under) || ((is_over || is_under) && residual == 0) {
            sight.report(found(Rule::D20).only_seen(residual));
        }
        let counted = self.data_in_count + self.next_r2t;
        if let Some(exp_data_sn) = bhs.exp_data_sn().map(|number| number.0)
            && !sight.is_recovering
            && exp_data_sn != 0
            && exp_data_sn != self.data_in_count
            && exp_data_sn != self.next_r2t
            && exp_data_sn != counted
        {
            sight.report(found(Rule::S17).seen(exp_data_sn, counted));
        }
        let is_exact = self.byte_count == u64::from(self.expected_bytes);
        if is_exact && !is_over && !is_under && (self.asked_bytes == self.byte_count || self.asked_bytes == NULL_U64) {
            // as most are
            return;
        }
        let is_good = bhs.status() == Some(Status::Good as u8);
        if !is_good || self.is_in_doubt || self.is_bidirectional() || (is_over && is_under) {
            return;
        }
        let expected = u64::from(self.expected_bytes).saturating_sub(if is_under { residual.into() } else { 0 });
        if self.byte_count < expected {
            let rule = if self.is_write { Rule::D18 } else { Rule::D17 };
            if self.is_read || self.is_write {
                sight.report(found(rule).seen(self.byte_count, expected));
            }
        } else if let Some(right) = self.right_residual(residual.into(), is_over, is_under) {
            sight.report(found(Rule::D19).seen(residual, right));
        }
    }

    /// The residual that the final response must have instead of its own: by what the command asks for, or else by the data
    /// of a read that ended early. None if it is right by either, or if neither is known. A write's initiator may send more
    /// than the command asks for: of the data that came, how much the target used does not show.
    #[inline]
    fn right_residual(&self, residual: u64, is_over: bool, is_under: bool) -> Option<u64> {
        let expected = u64::from(self.expected_bytes);
        let is_contrary = |asked: u64| (is_over && asked < expected) || (is_under && asked > expected);
        let asked = Some(self.asked_bytes).filter(|&asked| asked != NULL_U64 && !is_contrary(asked));
        let by_cdb = asked.map(|asked| asked.abs_diff(expected));
        let by_data = is_under.then(|| expected - self.byte_count.min(expected));
        let is_right = by_cdb == Some(residual) || by_data == Some(residual);
        by_cdb.or(by_data.filter(|_| !self.is_write)).filter(|_| !is_right)
    }
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::{BhsBuilder, RESERVED_TAG};
    use iscsitrace_wire::opcode::Opcode;

    use super::super::tests::*;
    use super::*;

    /// A read of this Expected Data Transfer Length that ends GOOD, after so many bytes of data.
    fn ended(talk: Talk, expected_bytes: u32, data_bytes: usize, end: impl Fn(BhsBuilder) -> BhsBuilder) -> bool {
        let read = command(5, 100, 500).is_read(true).expected_data_transfer_length(expected_bytes);
        let mut talk = talk.all([read]);
        let data = BhsBuilder::new(Opcode::DataIn).initiator_task_tag(5).target_transfer_tag(RESERVED_TAG);
        talk.send(of_target(data.is_final(true), 0, 101), &vec![1; data_bytes]);
        let talk = talk.all([end(status(5, 0, 500, 101))]);
        assert!(
            talk.found().iter().all(|&(rule, side, _)| (rule, side) == (Rule::D19, Side::Target)),
            "{:?}",
            talk.found()
        );
        !talk.found().is_empty()
    }

    #[test]
    fn the_residual_is_that_of_the_command_or_of_its_data() {
        let asking = |bytes| Talk::logged_in(0).asks(bytes);
        let over = |count: u32| move |end: BhsBuilder| end.is_overflow(true).residual_count(count);
        let under = |count: u32| move |end: BhsBuilder| end.is_underflow(true).residual_count(count);
        let none = |end: BhsBuilder| end;
        // the command has more than the initiator expects
        assert!(!ended(asking(8192), 4096, 4096, over(4096)));
        assert!(ended(asking(8192), 4096, 4096, over(512)));
        assert!(ended(asking(8192), 4096, 4096, none));
        assert!(ended(asking(4096), 4096, 4096, over(512)));
        // less, by the command or by what the device had
        assert!(!ended(asking(4096), 8192, 4096, under(4096)));
        assert!(!ended(asking(8192), 8192, 4096, under(4096)));
        assert!(ended(asking(4096), 8192, 4096, under(8192)));
        assert!(!ended(asking(4096), 4096, 4096, none));
        // what it asks for is not known: a hole, an unknown size of blocks
        assert!(!ended(Talk::logged_in(0), 4096, 4096, over(512)));
        assert!(ended(Talk::logged_in(0), 8192, 4096, under(8192)));
    }

    #[test]
    fn of_a_write_the_data_do_not_show_what_the_command_asks_for() {
        // less is written than the initiator sends
        for (talk, is_told) in [(Talk::logged_in(0), false), (Talk::logged_in(0).asks(128), true)] {
            let write = command(5, 100, 500).is_write(true).expected_data_transfer_length(512);
            let mut talk = talk;
            talk.send(write, &[1; 512]);
            let end = status(5, 0, 500, 101).is_underflow(true).residual_count(256);
            assert_eq!(!talk.all([end]).found().is_empty(), is_told);
        }
    }
}
