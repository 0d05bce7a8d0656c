//! Targets with random legal behaviour, and random bytes.

use proptest::prelude::*;

use super::*;

/// PDUs that a legal target still has to send for a task.
struct Owed {
    tag: u32,
    connection: usize,
    is_read: bool,
    length: u32,
    sn: u32,
    offset: u32,
    asked: u32,
    got: u32,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    /// A target with random legal behaviour: interleaved tasks, data split anywhere, R2Ts of any length, windows of any
    /// size, up to four connections.
    #[test]
    fn every_task_ends_with_any_legal_target(seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(1..5);
        let keys = Parameters {
            header_digest: *random.choice([Digest::None, Digest::Crc32c].iter()).unwrap(),
            data_digest: *random.choice([Digest::None, Digest::Crc32c].iter()).unwrap(),
            initial_r2t: random.bool(),
            immediate_data: random.bool(),
            first_burst_length: 512 * random.u32(1..5),
            max_burst_length: 512 * random.u32(5..9),
            target_max_recv_data_segment_length: 512 * random.u32(1..4),
            max_outstanding_r2t: random.u32(1..4),
            ..Parameters::default()
        };
        let mut play = Play::with(count as u16, keys.clone());
        play.max_cmd_sn = play.exp_cmd_sn;
        play.open_window();
        let lengths: Vec<(bool, u32)> = (0..30).map(|_| (random.bool(), random.u32(1..9000))).collect();
        let mut wanted: BTreeMap<u32, (bool, u32)> = BTreeMap::new();
        let (mut next, mut done, mut owed) = (0, 0, Vec::<Owed>::new());
        for _ in 0..100_000 {
            if next < lengths.len() && random.u32(0..3) == 0 {
                let (is_read, length) = lengths[next];
                let direction = if is_read { Direction::Read } else { Direction::Write };
                let tag = play.command(random.usize(0..count), direction, length);
                prop_assert!(wanted.insert(tag, (is_read, length)).is_none(), "tag {tag} is in use");
                next += 1;
            }
            let connection = random.usize(0..count);
            for pdu in play.sent(connection) {
                let bhs = pdu.bhs();
                if pdu.opcode() == Opcode::ScsiCommand {
                    prop_assert_eq!(bhs.cmd_sn(), Some(SerialNumber(play.exp_cmd_sn)));
                    prop_assert!(!SerialNumber(play.exp_cmd_sn).is_after(SerialNumber(play.max_cmd_sn)));
                    play.exp_cmd_sn = play.exp_cmd_sn.wrapping_add(1);
                    let length = bhs.expected_data_transfer_length().unwrap();
                    let is_read = bhs.is_read() == Some(true);
                    let first = if keys.initial_r2t { pdu.data.len() as u32 } else { length.min(keys.first_burst_length) };
                    let asked = if is_read { length } else { first };
                    prop_assert!(keys.immediate_data || pdu.data.is_empty());
                    let got = pdu.data.len() as u32;
                    prop_assert!(got <= keys.first_burst_length);
                    owed.push(Owed { tag: pdu.tag(), connection, is_read, length, sn: 0, offset: 0, asked, got });
                } else {
                    prop_assert_eq!(pdu.opcode(), Opcode::DataOut);
                    let task = owed.iter_mut().find(|task| task.tag == pdu.tag()).unwrap();
                    let offset = bhs.buffer_offset().unwrap();
                    prop_assert_eq!((task.connection, task.got), (connection, offset));
                    task.got += pdu.data.len() as u32;
                    prop_assert!(task.got <= task.asked);
                }
                prop_assert!(pdu.data.len() as u32 <= keys.target_max_recv_data_segment_length);
                let first = bhs.buffer_offset().unwrap_or(0);
                prop_assert!(pdu.data.iter().zip(first..).all(|(byte, at)| *byte == at as u8));
            }
            if random.bool() {
                let wider = SerialNumber(play.exp_cmd_sn) + random.u32(0..6);
                if wider.is_after(SerialNumber(play.max_cmd_sn)) {
                    play.max_cmd_sn = wider.0;
                }
                play.open_window();
            }
            if !owed.is_empty() {
                let at = random.usize(0..owed.len());
                let task = &mut owed[at];
                let (tag, connection) = (task.tag, task.connection);
                let mut is_done = false;
                if task.is_read {
                    let length = random.u32(0..=(task.length - task.offset).min(2000));
                    let data: Vec<u8> = (task.offset..task.offset + length).map(|at| (at ^ tag) as u8).collect();
                    let builder = data_in(tag, task.sn, task.offset);
                    (task.sn, task.offset) = (task.sn + 1, task.offset + length);
                    let is_whole = task.offset == task.length;
                    if is_whole && random.bool() {
                        play.answer(connection, with_status(builder), &data);
                        is_done = true;
                    } else {
                        play.send(connection, builder.is_final(random.bool() || is_whole), &data);
                        if is_whole {
                            play.answer(connection, response(tag), &[]);
                            is_done = true;
                        }
                    }
                } else if task.got == task.length {
                    play.answer(connection, response(tag), &[]);
                    is_done = true;
                } else if task.asked < task.length && task.got == task.asked {
                    for _ in 0..random.u32(1..=keys.max_outstanding_r2t) {
                        let left = task.length - task.asked;
                        if left > 0 {
                            let length = random.u32(1..=left.min(keys.max_burst_length));
                            let builder = r2t(tag, task.sn, task.asked, length);
                            (task.sn, task.asked) = (task.sn + 1, task.asked + length);
                            play.send(connection, builder, &[]);
                        }
                    }
                }
                if is_done {
                    owed.swap_remove(at);
                }
            }
            for (tag, outcome) in play.ends() {
                prop_assert_eq!(outcome, Outcome::Status(0));
                let (is_read, length) = wanted.remove(&tag).unwrap();
                if is_read {
                    let expected: Vec<u8> = (0..length).map(|at| (at ^ tag) as u8).collect();
                    prop_assert_eq!(play.memory.0.remove(&tag), Some(expected));
                }
                done += 1;
            }
            if done == lengths.len() {
                return Ok(());
            }
        }
        prop_assert!(false, "{} of {} tasks ended", done, lengths.len());
    }

    /// Any bytes lead to an error or to nothing, in pieces of any length.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400), opcode in 0x20u8..0x40, step in 1usize..60) {
        let mut play = Play::new();
        play.open_window();
        play.command(0, Direction::Read, 512);
        play.command(0, Direction::Write, 512);
        play.sent(0);
        let mut bytes = bytes;
        if bytes.len() > 8 {
            (bytes[0], bytes[4], bytes[5], bytes[6]) = (opcode, 0, 0, 0);
        }
        for chunk in bytes.chunks(step) {
            play.session.receive(1, 0, chunk, &mut play.memory);
            play.sent(0);
        }
        let ends = play.events().iter().filter(|event| matches!(event, Event::Ended(_))).count();
        prop_assert_eq!(ends, usize::from(play.session.is_over()));
    }
}
