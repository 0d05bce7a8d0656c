//! Each rule about CmdSN, ExpCmdSN and MaxCmdSN: a conversation that breaks it, and its legal neighbours.

use iscsitrace_wire::bhs::{BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::rules::{broken, data_out, pass, ping, r2t, simply, write};
use super::{Talk, login_request, login_response, read, response};
use crate::conformance::rules::Rule;
use crate::tables::Tables;

#[test]
fn command_numbers() {
    let skip = |is_immediate_before: bool, exp: u32, seconds: u64| {
        move |talk: &mut Talk| {
            if is_immediate_before {
                ping(talk, 100, 501, 100);
            } else {
                talk.send(true, read(1, 100), &[]);
            }
            let next = if is_immediate_before { 101 } else { 102 };
            talk.send(true, read(2, next), &[]);
            pass(talk, seconds);
            ping(talk, next + 1, if is_immediate_before { 502 } else { 501 }, exp);
        }
    };
    assert_eq!(simply(skip(false, 101, 2)), ["S1"]);
    assert_eq!(simply(skip(true, 100, 2)), ["S4"]);
    // it may be under way; another connection of the session had it
    assert_eq!(simply(skip(false, 101, 0)), [""; 0]);
    assert_eq!(simply(skip(false, 103, 2)), [""; 0]);
    let twice = |tag| {
        move |talk: &mut Talk| {
            talk.send(true, read(1, 100), &[]);
            talk.send(true, read(tag, 100), &[]);
        }
    };
    assert_eq!(simply(twice(2)), ["S2"]);
    // a retry
    assert_eq!(simply(twice(1)), [""; 0]);
    let at = |cmd_sn| move |talk: &mut Talk| talk.send(true, read(1, cmd_sn), &[]);
    assert_eq!(simply(at(132)), ["S3"]);
    assert_eq!(simply(at(131)), [""; 0]);
}

#[test]
fn command_windows() {
    let counting = |exp: u32| {
        move |talk: &mut Talk| {
            ping(talk, 100, 501, exp);
            talk.send(true, read(1, 100), &[]);
        }
    };
    assert_eq!(simply(counting(101)), ["S5"]);
    assert_eq!(simply(counting(100)), [""; 0]);
    let say = |first: u32, second: u32| {
        move |talk: &mut Talk| {
            talk.send(true, read(1, 100), &[]);
            ping(talk, 101, 501, first);
            ping(talk, 101, 502, second);
        }
    };
    assert_eq!(simply(say(101, 100)), ["S6"]);
    assert_eq!(simply(say(100, 101)), [""; 0]);
    let close = |exp: u32, max: u32| {
        move |talk: &mut Talk| {
            talk.send(true, read(1, 100), &[]);
            talk.send(true, read(2, 131), &[]);
            let header = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(RESERVED_TAG);
            for _ in 0..2 {
                let header = header.target_transfer_tag(RESERVED_TAG).exp_cmd_sn(SerialNumber(exp));
                talk.send(false, header.max_cmd_sn(SerialNumber(max)).stat_sn(SerialNumber(501)), &[]);
                pass(talk, 2);
            }
        }
    };
    assert_eq!(simply(close(132, 100)), ["S7", "S8"]);
    // closed, and so meant
    assert_eq!(simply(close(132, 131)), [""; 0]);
    // the first of the numbers behind the last command, and the MaxCmdSN that counts
    let mut talk = Talk::login();
    close(132, 100)(&mut talk);
    assert_eq!(closed(&talk.finish()), [(12, 132, 131)]);
}

/// Frame, next CmdSN and MaxCmdSN of each stop.
fn closed(tables: &Tables) -> Vec<(u64, u64, u64)> {
    let rows = &tables.violations;
    let is_stop = |&row: &usize| Rule::ALL[usize::from(rows.rule[row])] == Rule::S8;
    (0..rows.rule.len()).filter(is_stop).map(|row| (rows.frame[row], rows.seen[row], rows.expected[row])).collect()
}

/// Two writes from this CmdSN on, each with an R2T that says `r2t_numbers` as ExpCmdSN and MaxCmdSN, and pings after it.
fn write_and_pause(first: u32, r2t_numbers: Option<(u32, u32)>, is_busy: bool, seconds: u64) -> Tables {
    let mut talk = Talk::connect();
    let (request, answer) = (login_request(1, 3), login_response(1, 3));
    talk.send(true, request.cmd_sn(SerialNumber(first)), b"InitiatorName=iqn.i\0SessionType=Normal\0");
    talk.send(false, answer.exp_cmd_sn(SerialNumber(first)).max_cmd_sn(SerialNumber(first.wrapping_add(31))), &[]);
    let numbers = |header: BhsBuilder, next: u32| {
        header.exp_cmd_sn(SerialNumber(next)).max_cmd_sn(SerialNumber(next.wrapping_add(31)))
    };
    for nth in 0..2 {
        let number = first.wrapping_add(nth);
        talk.send(true, write(1 + nth, number).exp_stat_sn(SerialNumber(501 + nth)), &[]);
        let asked = numbers(r2t(1 + nth, 9, 0, 0, 4096).stat_sn(SerialNumber(501 + nth)), number.wrapping_add(1));
        let asked =
            r2t_numbers.map_or(asked, |(exp, max)| asked.exp_cmd_sn(SerialNumber(exp)).max_cmd_sn(SerialNumber(max)));
        talk.send(false, asked, &[]);
        talk.send(true, data_out(1 + nth, 9, 0, 0, true).exp_stat_sn(SerialNumber(501 + nth)), &[1; 4096]);
        talk.send(false, numbers(response(1 + nth, 501 + nth, 0, 0), number.wrapping_add(1)), &[]);
        pass(&mut talk, if is_busy { 0 } else { 2 });
    }
    let next = first.wrapping_add(2);
    for stat_sn in 503..505 {
        let header = BhsBuilder::new(Opcode::NopOut).is_immediate(true).initiator_task_tag(0x77);
        let header = header.target_transfer_tag(RESERVED_TAG).exp_stat_sn(SerialNumber(stat_sn));
        talk.send(true, header.cmd_sn(SerialNumber(next)), &[]);
        let header = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(0x77).target_transfer_tag(RESERVED_TAG);
        talk.send(false, numbers(header.stat_sn(SerialNumber(stat_sn)), next), &[]);
        pass(&mut talk, seconds);
    }
    talk.finish()
}

/// A target that says MaxCmdSN 0 in each R2T stops an initiator that takes it only where no later MaxCmdSN reopens the
/// window: one 2^31 ahead of 0 has no order to it.
#[test]
fn numbers_that_some_initiators_take() {
    let zeros = Some((0, 0));
    let next = 0x7fff_ffe1;
    let tables = write_and_pause(next - 2, zeros, true, 11);
    assert_eq!(broken(&tables), ["S6", "S8"]);
    // the R2T behind the last command
    assert_eq!(closed(&tables), [(18, u64::from(next), 0)]);
    let quiet = [
        // the R2Ts say the numbers of the answers
        (next - 2, None, true, 11),
        // commands followed within ten seconds, or were as far apart before
        (next - 2, zeros, true, 4),
        (next - 2, zeros, false, 11),
        // the next answer reopens the window: below 2^31, and one short of it
        (100, zeros, true, 11),
        (next - 3, zeros, true, 11),
    ];
    for (first, numbers, is_busy, seconds) in quiet {
        let tables = write_and_pause(first, numbers, is_busy, seconds);
        assert_eq!(broken(&tables), if numbers.is_some() { vec!["S6"] } else { vec![] }, "{first:#x} {seconds} s");
    }
    // a MaxCmdSN that closes no window, with an ExpCmdSN that falls
    assert_eq!(broken(&write_and_pause(next - 2, Some((next - 9, next + 9)), true, 11)), ["S6"]);
    // past 2^31 the 0 is later, and counts
    let tables = write_and_pause(next, zeros, true, 11);
    assert_eq!(closed(&tables), [(18, u64::from(next) + 2, 0)]);
}
