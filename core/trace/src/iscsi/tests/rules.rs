//! Each rule about StatSN, DataSN, tags, data and residuals: a conversation that breaks it, its legal neighbour, and silence
//! behind a hole.

use iscsitrace_wire::bhs::{BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::{Talk, command, data_in, login_request, login_response, numbered, read, response};
use crate::conformance::rules::{Rule, Side};
use crate::tables::Tables;

/// Write of 4096 bytes.
pub(super) fn write(tag: u32, cmd_sn: u32) -> BhsBuilder {
    command(tag, cmd_sn, 4096, &[0x2a, 0, 0, 0, 0, 9, 0, 0, 8, 0]).is_write(true)
}

pub(super) fn r2t(tag: u32, ttt: u32, r2t_sn: u32, offset: u32, length: u32) -> BhsBuilder {
    let header = BhsBuilder::new(Opcode::ReadyToTransfer)
        .lun([0, 3, 0, 0, 0, 0, 0, 0])
        .initiator_task_tag(tag)
        .target_transfer_tag(ttt)
        .r2t_sn(SerialNumber(r2t_sn))
        .buffer_offset(offset)
        .desired_data_transfer_length(length);
    numbered(header, Some(501), 101)
}

pub(super) fn data_out(tag: u32, ttt: u32, data_sn: u32, offset: u32, is_final: bool) -> BhsBuilder {
    let header = BhsBuilder::new(Opcode::DataOut)
        .is_final(is_final)
        .initiator_task_tag(tag)
        .target_transfer_tag(ttt)
        .data_sn(SerialNumber(data_sn))
        .buffer_offset(offset)
        .exp_stat_sn(SerialNumber(501));
    if ttt == RESERVED_TAG { header } else { header.lun([0, 3, 0, 0, 0, 0, 0, 0]) }
}

/// A ping that the initiator sends, and its answer.
pub(super) fn ping(talk: &mut Talk, cmd_sn: u32, stat_sn: u32, exp_cmd_sn: u32) {
    let header = BhsBuilder::new(Opcode::NopOut)
        .is_immediate(true)
        .initiator_task_tag(0x77)
        .target_transfer_tag(RESERVED_TAG)
        .cmd_sn(SerialNumber(cmd_sn))
        .exp_stat_sn(SerialNumber(stat_sn));
    talk.send(true, header, &[]);
    let header = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(0x77).target_transfer_tag(RESERVED_TAG);
    talk.send(false, numbered(header, Some(stat_sn), exp_cmd_sn), &[]);
}

/// So many seconds pass.
pub(super) fn pass(talk: &mut Talk, seconds: u64) {
    talk.frame += seconds * 1_000_000;
}

/// A login that the target answers with these keys.
fn agreed(answered: &str) -> Talk {
    let mut talk = Talk::connect();
    let offered = answered.replace("MaxRecvDataSegmentLength", "X-none");
    let names = "InitiatorName=iqn.i\0TargetName=iqn.t\0SessionType=Normal\0";
    talk.send(true, login_request(1, 3), [names, &offered].concat().as_bytes());
    talk.send(false, login_response(1, 3), answered.as_bytes());
    talk
}

/// The rules that were broken, in order, each once.
pub(super) fn broken(tables: &Tables) -> Vec<&'static str> {
    let mut ids: Vec<&str> =
        tables.violations.rule.iter().map(|&rule| Rule::ALL[usize::from(rule)].declaration().id).collect();
    ids.dedup();
    ids
}

fn of(talk: Talk) -> Vec<&'static str> {
    broken(&talk.finish())
}

/// What a conversation breaks behind a login; and that a hole in front of it does not add anything.
fn after(login: impl Fn() -> Talk, say: impl Fn(&mut Talk)) -> Vec<&'static str> {
    let mut talk = login();
    say(&mut talk);
    let whole = of(talk);
    let mut talk = login();
    // a PDU of each side is missing from the capture, and both go on
    talk.lose(true, BhsBuilder::new(Opcode::NopOut), &[]);
    talk.lose(false, BhsBuilder::new(Opcode::NopIn), &[]);
    talk.packet(true, 0x10, &[]);
    talk.packet(false, 0x10, &[]);
    say(&mut talk);
    let behind = of(talk);
    assert!(behind.iter().all(|id| whole.contains(id)), "{behind:?} are not among {whole:?}");
    whole
}

pub(super) fn simply(say: impl Fn(&mut Talk)) -> Vec<&'static str> {
    after(Talk::login, say)
}

#[test]
fn status_numbers() {
    let status = |with_r2t: bool, first: u32, second: u32| {
        move |talk: &mut Talk| {
            talk.send(true, write(1, 100), &[1; 512]);
            talk.send(true, read(2, 101), &[]);
            if with_r2t {
                talk.send(false, r2t(1, 9, 0, 512, 512), &[]);
            }
            talk.send(false, response(2, first, 102, 0).is_underflow(true).residual_count(4096), &[]);
            let other = BhsBuilder::new(Opcode::NopIn).initiator_task_tag(0x77).target_transfer_tag(RESERVED_TAG);
            talk.send(false, numbered(other, Some(second), 102), &[]);
        }
    };
    assert_eq!(simply(status(false, 501, 503)), ["S9"]);
    assert_eq!(simply(status(false, 501, 501)), ["S10"]);
    assert_eq!(simply(status(true, 502, 503)), ["S11"]);
    assert_eq!(simply(status(true, 501, 502)), [""; 0]);
    let acknowledge = |first: u32, second: u32| {
        move |talk: &mut Talk| {
            talk.send(true, read(1, 100), &[]);
            talk.send(false, response(1, 501, 101, 0).is_underflow(true).residual_count(4096), &[]);
            talk.send(true, read(2, 101).exp_stat_sn(SerialNumber(first)), &[]);
            talk.send(true, read(3, 102).exp_stat_sn(SerialNumber(second)), &[]);
        }
    };
    assert_eq!(simply(acknowledge(502, 501)), ["S12"]);
    assert_eq!(simply(acknowledge(503, 503)), ["S12"]);
    assert_eq!(simply(acknowledge(501, 502)), [""; 0]);
}

#[test]
fn an_exp_stat_sn_that_never_moves() {
    let follow = |is_following: bool| {
        move |talk: &mut Talk| {
            for number in 0..4200 {
                let exp_stat_sn = SerialNumber(if is_following { 501 + number } else { 501 });
                talk.send(true, read(number, 100 + number).exp_stat_sn(exp_stat_sn), &[]);
                let answer = response(number, 501 + number, 101 + number, 0);
                talk.send(false, answer.is_underflow(true).residual_count(4096), &[]);
            }
        }
    };
    assert_eq!(simply(follow(false)), ["S13"]);
    assert_eq!(simply(follow(true)), [""; 0]);
}

#[test]
fn data_numbers() {
    let incoming = |data_sn: u32, exp_data_sn: u32| {
        move |talk: &mut Talk| {
            talk.send(true, read(1, 100), &[]);
            talk.send(false, numbered(data_in(1, data_sn, 0).is_final(true), None, 101), &[1; 4096]);
            talk.send(false, response(1, 501, 101, exp_data_sn), &[]);
        }
    };
    assert_eq!(simply(incoming(1, 1)), ["S14"]);
    assert_eq!(simply(incoming(0, 7)), ["S17"]);
    assert_eq!(simply(incoming(0, 0)), [""; 0]);
    let outgoing = |r2t_sn: u32, data_sn: u32| {
        move |talk: &mut Talk| {
            talk.send(true, write(1, 100), &[]);
            talk.send(false, r2t(1, 9, r2t_sn, 0, 4096), &[]);
            talk.send(true, data_out(1, 9, data_sn, 0, true), &[1; 4096]);
            talk.send(false, response(1, 501, 101, 0), &[]);
        }
    };
    assert_eq!(simply(outgoing(1, 0)), ["S16"]);
    assert_eq!(simply(outgoing(0, 1)), ["S15"]);
    assert_eq!(simply(outgoing(0, 0)), [""; 0]);
}

#[test]
fn tags() {
    let again = |is_answered: bool| {
        move |talk: &mut Talk| {
            talk.send(true, read(1, 100), &[]);
            if is_answered {
                talk.send(false, response(1, 501, 101, 0).is_underflow(true).residual_count(4096), &[]);
            }
            talk.send(true, read(1, 101), &[]);
        }
    };
    assert_eq!(simply(again(false)), ["T1"]);
    assert_eq!(simply(again(true)), [""; 0]);
    let answer = |tags: &'static [u32]| {
        move |talk: &mut Talk| {
            talk.send(true, read(1, 100), &[]);
            for (&tag, stat_sn) in tags.iter().zip(501..) {
                talk.send(false, response(tag, stat_sn, 101, 0).is_underflow(true).residual_count(4096), &[]);
            }
        }
    };
    assert_eq!(simply(answer(&[2])), ["T2"]);
    assert_eq!(simply(answer(&[1, 1])), ["T3"]);
    assert_eq!(simply(answer(&[1])), [""; 0]);
}

#[test]
fn tags_and_units_of_r2ts() {
    let other_lun = [0, 4, 0, 0, 0, 0, 0, 0];
    let solicited = |asked: BhsBuilder, sent: BhsBuilder| {
        move |talk: &mut Talk| {
            talk.send(true, write(1, 100), &[]);
            talk.send(false, asked, &[]);
            talk.send(true, sent, &[1; 4096]);
        }
    };
    let (asked, sent) = (r2t(1, 9, 0, 0, 4096), data_out(1, 9, 0, 0, true));
    let reserved = asked.target_transfer_tag(RESERVED_TAG);
    assert_eq!(
        simply(|talk| {
            talk.send(true, write(1, 100), &[]);
            talk.send(false, reserved, &[]);
        }),
        ["T4"]
    );
    assert_eq!(simply(solicited(asked, data_out(1, 10, 0, 0, true))), ["T5"]);
    assert_eq!(simply(solicited(asked, sent.lun(other_lun))), ["T6"]);
    assert_eq!(simply(solicited(asked.lun(other_lun), sent)), ["T7"]);
    assert_eq!(simply(solicited(asked, sent)), [""; 0]);
    // 0 is a tag like others
    assert_eq!(simply(solicited(asked.target_transfer_tag(0), sent.target_transfer_tag(0))), [""; 0]);
}

#[test]
fn unsolicited_data() {
    let immediate = |talk: &mut Talk| talk.send(true, write(1, 100), &[1; 4096]);
    assert_eq!(after(|| agreed("ImmediateData=No\0"), immediate), ["D1"]);
    assert_eq!(after(|| agreed("ImmediateData=Yes\0FirstBurstLength=512\0"), immediate), ["D3"]);
    assert_eq!(after(|| agreed("ImmediateData=Yes\0FirstBurstLength=4096\0"), immediate), [""; 0]);
    let unsolicited = |is_final: bool| {
        move |talk: &mut Talk| {
            talk.send(true, write(1, 100).is_final(is_final), &[]);
            talk.send(true, data_out(1, RESERVED_TAG, 0, 0, true), &[1; 4096]);
        }
    };
    assert_eq!(after(|| agreed("InitialR2T=Yes\0"), unsolicited(false)), ["D2"]);
    assert_eq!(after(|| agreed("InitialR2T=No\0"), unsolicited(true)), ["D2"]);
    assert_eq!(after(|| agreed("InitialR2T=No\0"), unsolicited(false)), [""; 0]);
}

#[test]
fn bursts_of_the_initiator() {
    let burst = |last: bool, length: usize, offset: u32| {
        move |talk: &mut Talk| {
            talk.send(true, write(1, 100), &[]);
            talk.send(false, r2t(1, 9, 0, 0, 2048), &[]);
            talk.send(true, data_out(1, 9, 0, offset, last), &vec![1; length]);
            pass(talk, 2);
            ping(talk, 101, 501, 101);
        }
    };
    assert_eq!(simply(burst(false, 2048, 0)), ["D4"]);
    assert_eq!(simply(burst(true, 4096, 0)), ["D9"]);
    assert_eq!(simply(burst(true, 1024, 0)), ["D9"]);
    assert_eq!(simply(burst(true, 2048, 0)), [""; 0]);
    // it goes on later
    assert_eq!(simply(burst(false, 1024, 0)), [""; 0]);
    let pieces = |first: u32, second: u32| {
        move |talk: &mut Talk| {
            talk.send(true, write(1, 100), &[]);
            talk.send(false, r2t(1, 9, 0, 0, 4096), &[]);
            talk.send(true, data_out(1, 9, 0, first, false), &[1; 2048]);
            talk.send(true, data_out(1, 9, 1, second, first > second), &[1; 2048]);
        }
    };
    assert_eq!(after(|| agreed("DataPDUInOrder=No\0"), pieces(0, 2048)), [""; 0]);
    assert_eq!(simply(pieces(0, 2048)), [""; 0]);
    assert_eq!(after(|| agreed("DataPDUInOrder=No\0"), pieces(2048, 0)), [""; 0]);
    assert_eq!(simply(pieces(2048, 0)), ["D10"]);
}

#[test]
fn what_r2ts_ask_for() {
    let asked = |immediate: usize, offset: u32, length: u32| {
        move |talk: &mut Talk| {
            talk.send(true, write(1, 100), &vec![1; immediate]);
            talk.send(false, r2t(1, 9, 0, offset, length), &[]);
        }
    };
    let short = || agreed("MaxBurstLength=1024\0FirstBurstLength=512\0ImmediateData=Yes\0");
    assert_eq!(after(short, asked(0, 0, 2048)), ["D5"]);
    assert_eq!(after(short, asked(0, 0, 1024)), [""; 0]);
    assert_eq!(simply(asked(0, 2048, 4096)), ["D6"]);
    assert_eq!(simply(asked(512, 0, 4096)), ["D7"]);
    assert_eq!(simply(asked(512, 512, 3584)), [""; 0]);
    // what it passes over can be asked for only out of order
    assert_eq!(simply(asked(0, 1024, 2048)), ["D11"]);
    assert_eq!(after(|| agreed("DataSequenceInOrder=No\0"), asked(0, 1024, 2048)), [""; 0]);
    let two = |second: u32| {
        move |talk: &mut Talk| {
            talk.send(true, write(1, 100), &[]);
            talk.send(false, r2t(1, 9, 0, 2048 - second, 2048), &[]);
            talk.send(false, r2t(1, 10, 1, second, 2048), &[]);
        }
    };
    assert_eq!(simply(two(2048)), ["D8"]);
    assert_eq!(after(|| agreed("MaxOutstandingR2T=2\0"), two(2048)), [""; 0]);
    assert_eq!(after(|| agreed("MaxOutstandingR2T=2\0"), two(0)), ["D11"]);
    assert_eq!(after(|| agreed("MaxOutstandingR2T=2\0DataSequenceInOrder=No\0"), two(0)), [""; 0]);
    // the second one is answered first
    let exchanged = |tags: [u32; 2]| {
        move |talk: &mut Talk| {
            two(2048)(talk);
            for ttt in tags {
                talk.send(true, data_out(1, ttt, 0, if ttt == 9 { 0 } else { 2048 }, true), &[1; 2048]);
            }
        }
    };
    assert_eq!(after(|| agreed("MaxOutstandingR2T=2\0"), exchanged([9, 10])), [""; 0]);
    assert_eq!(after(|| agreed("MaxOutstandingR2T=2\0"), exchanged([10, 9])), ["D11"]);
    let any_order = || agreed("MaxOutstandingR2T=2\0DataSequenceInOrder=No\0");
    assert_eq!(after(any_order, exchanged([10, 9])), [""; 0]);
}

#[test]
fn what_the_target_sends() {
    let parts = |offsets: &'static [(u32, bool)]| {
        move |talk: &mut Talk| {
            talk.send(true, read(1, 100), &[]);
            for (&(offset, is_final), data_sn) in offsets.iter().zip(0..) {
                talk.send(false, numbered(data_in(1, data_sn, offset).is_final(is_final), None, 101), &[1; 2048]);
            }
        }
    };
    assert_eq!(simply(parts(&[(0, false), (2048, true)])), [""; 0]);
    assert_eq!(simply(parts(&[(2048, false), (0, true)])), ["D10"]);
    assert_eq!(simply(parts(&[(2048, true), (0, true)])), ["D11"]);
    assert_eq!(simply(parts(&[(0, false), (1024, true)])), ["D12"]);
    assert_eq!(simply(parts(&[(0, false), (4096, true)])), ["D13"]);
    let short = || agreed("MaxBurstLength=2048\0FirstBurstLength=512\0");
    assert_eq!(after(short, parts(&[(0, false), (2048, true)])), ["D14"]);
    assert_eq!(after(short, parts(&[(0, true), (2048, true)])), [""; 0]);
    let long = || agreed("MaxRecvDataSegmentLength=512\0");
    assert_eq!(after(long, |talk| talk.send(true, write(1, 100), &[1; 1024])), ["D16"]);
    assert_eq!(after(long, |talk| talk.send(true, write(1, 100), &[1; 512])), [""; 0]);
}

#[test]
fn statuses_and_residuals() {
    let with_status = |status: u8, is_final: bool| {
        move |talk: &mut Talk| {
            talk.send(true, read(1, 100), &[]);
            let header = data_in(1, 0, 0).is_final(is_final).has_status(true).status(status);
            talk.send(false, numbered(header, Some(501), 101), &[1; 4096]);
        }
    };
    assert_eq!(simply(with_status(2, true)), ["D15"]);
    assert_eq!(simply(with_status(0, false)), ["D15"]);
    assert_eq!(simply(with_status(0, true)), [""; 0]);
    assert_eq!(simply(with_status(4, true)), [""; 0]);
    let ended = |command: BhsBuilder, ended: BhsBuilder| {
        move |talk: &mut Talk| {
            talk.send(true, command, &[]);
            talk.send(false, ended, &[]);
        }
    };
    let good = response(1, 501, 101, 0);
    assert_eq!(simply(ended(read(1, 100), good)), ["D17"]);
    assert_eq!(simply(ended(write(1, 100), good)), ["D18"]);
    for command in [read(1, 100), write(1, 100)] {
        assert_eq!(simply(ended(command, good.is_underflow(true).residual_count(4096))), [""; 0]);
        // it failed: nothing is due
        assert_eq!(simply(ended(command, good.status(2))), [""; 0]);
        assert_eq!(simply(ended(command, good.status(2).is_underflow(true))), ["D20"]);
    }
}

#[test]
fn many_violations_are_counted_in_the_last_row() {
    let mut talk = Talk::login();
    for number in 0..40 {
        talk.send(true, write(number, 100 + number), &[]);
        talk.send(false, response(number, 501 + number, 101 + number, 0), &[]);
    }
    let violations = talk.finish().violations;
    assert_eq!((violations.rule.len(), violations.count.iter().sum::<u64>()), (16, 40));
    assert!(violations.side.iter().all(|&side| side == Side::Target as u8));
    assert_eq!(violations.frame.first(), Some(&10));
    assert_eq!(violations.last_frame.last(), Some(&(10 + 4 * 39)));
    assert_eq!(violations.last_time_ns.first(), violations.time_ns.first());
    let step_ns = violations.time_ns[1] - violations.time_ns[0];
    assert_eq!(
        violations.last_time_ns.last().copied(),
        violations.time_ns.first().map(|first_ns| first_ns + 39 * step_ns)
    );
}
