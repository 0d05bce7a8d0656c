//! Which command an answer belongs to, where the capture lacks statuses and commands with the same tag.

use super::*;
use crate::tables::{NULL_NS, NULL_U64};

const TAG: u32 = 0x30;
const OTHER: u32 = 0x31;

fn test_unit_ready(tag: u32, cmd_sn: u32) -> BhsBuilder {
    command(tag, cmd_sn, 0, &[0])
}

/// Commands with CmdSN 100 and 101 in frames 8 to 11, with these tags.
fn two_in_flight(tags: [u32; 2]) -> Talk {
    let mut talk = Talk::login();
    for (cmd_sn, tag) in (100..).zip(tags) {
        talk.send(true, test_unit_ready(tag, cmd_sn), &[]);
    }
    talk
}

/// A PDU, captured or not.
fn say(talk: &mut Talk, is_captured: bool, to_target: bool, header: BhsBuilder) {
    if is_captured { talk.send(to_target, header, &[]) } else { talk.lose(to_target, header, &[]) }
}

/// `status_frame` and `is_complete` of each command, after a PDU of each side.
fn ended(mut talk: Talk) -> Vec<(u64, bool)> {
    let nop = BhsBuilder::new(Opcode::NopOut).initiator_task_tag(RESERVED_TAG).target_transfer_tag(RESERVED_TAG);
    talk.send(true, nop.cmd_sn(SerialNumber(200)).exp_stat_sn(SerialNumber(501)), &[]);
    talk.packet(false, 0x10, &[]);
    let cycles = talk.finish().cycles;
    for (status_ns, frame) in cycles.status_ns.iter().zip(cycles.status_frame.iter()) {
        assert_eq!(*status_ns == NULL_NS, frame == NULL_U64);
    }
    cycles.status_frame.iter().zip(cycles.is_complete).collect()
}

/// The first of two commands ends, and its tag is taken again: its status (frames 12 and 13), the later command (14 and
/// 15), the status of that (16 and 17) and of the other (18 and 19). Is the first status captured, and the later command?
fn taken_again(has_status: bool, has_command: bool) -> Vec<(u64, bool)> {
    let mut talk = two_in_flight([TAG, OTHER]);
    say(&mut talk, has_status, false, response(TAG, 501, 102, 0));
    say(&mut talk, has_command, true, test_unit_ready(TAG, 102));
    talk.send(false, response(TAG, 502, 103, 0), &[]);
    talk.send(false, response(OTHER, 503, 103, 0), &[]);
    ended(talk)
}

#[test]
fn a_status_after_a_missing_status_and_a_missing_command_may_be_of_that() {
    let (none, other) = ((NULL_U64, false), (19, true));
    // it may as well have the tag of the other one, whose status is the missing one then
    assert_eq!(taken_again(false, false), [none, none]);
    assert_eq!(taken_again(false, true), [none, other, (17, true)]);
    assert_eq!(taken_again(true, false), [(13, true), other]);
    assert_eq!(taken_again(true, true), [(13, true), other, (17, true)]);
}

#[test]
fn a_missing_status_alone_is_of_another_command() {
    let mut talk = two_in_flight([TAG, OTHER]);
    talk.lose(false, response(OTHER, 501, 102, 0), &[]);
    talk.send(false, response(TAG, 502, 102, 0), &[]);
    assert_eq!(ended(talk), [(15, true), (NULL_U64, false)]);
}

#[test]
fn a_missing_command_alone_has_another_tag() {
    let mut talk = two_in_flight([TAG, OTHER]);
    talk.lose(true, test_unit_ready(0x32, 102), &[]);
    talk.send(false, response(TAG, 501, 103, 0), &[]);
    talk.send(false, response(OTHER, 502, 103, 0), &[]);
    assert_eq!(ended(talk), [(15, true), (17, true)]);
}

#[test]
fn a_command_that_the_target_did_not_have_yet_took_no_tag() {
    // the missing command comes after the status: ExpCmdSN does not count it
    let mut talk = two_in_flight([TAG, OTHER]);
    talk.lose(false, response(OTHER, 501, 102, 0), &[]);
    talk.lose(true, test_unit_ready(OTHER, 102), &[]);
    talk.send(false, response(TAG, 502, 102, 0), &[]);
    assert_eq!(ended(talk), [(17, true), (NULL_U64, false)]);
}

#[test]
fn a_pool_of_tags_in_turn_takes_none_again_at_once() {
    // with two more in flight, four could take a tag again; the first could not
    for (earlier, is_known) in [(2, true), (1, false)] {
        let mut talk = Talk::login();
        for number in 0..=earlier {
            talk.send(true, test_unit_ready(0x1000 + number, 100 + number), &[]);
            talk.send(false, response(0x1000 + number, 501 + number, 101 + number, 0), &[]);
        }
        let (cmd_sn, stat_sn) = (101 + earlier, 502 + earlier);
        let exp_stat_sn = SerialNumber(stat_sn);
        talk.send(true, test_unit_ready(TAG, cmd_sn).exp_stat_sn(exp_stat_sn), &[]);
        talk.send(true, test_unit_ready(OTHER, cmd_sn + 1).exp_stat_sn(exp_stat_sn), &[]);
        talk.lose(false, response(OTHER, stat_sn, cmd_sn + 2, 0), &[]);
        talk.lose(true, test_unit_ready(0x2000, cmd_sn + 2), &[]);
        talk.send(false, response(TAG, stat_sn + 1, cmd_sn + 3, 0), &[]);
        let rows = ended(talk);
        let row = rows.len() - 2;
        assert_eq!(rows[row].1, is_known, "after {earlier}");
    }
}

#[test]
fn what_the_target_sent_before_it_had_a_command_is_of_an_earlier_one() {
    let mut talk = two_in_flight([OTHER, 0x32]);
    talk.lose(false, response(OTHER, 501, 102, 0), &[]);
    // a command whose status is missing, one that took its tag, and that status, captured late after all
    talk.lose(true, test_unit_ready(TAG, 102), &[]);
    talk.send(true, test_unit_ready(TAG, 103), &[]);
    talk.send(false, response(TAG, 502, 103, 0), &[]);
    talk.send(false, response(TAG, 503, 104, 0), &[]);
    assert_eq!(ended(talk)[2], (21, true));
}
