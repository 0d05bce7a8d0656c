//! An initiator with random legal behaviour over several connections.

use std::collections::BTreeMap;

use iscsitrace_lab::protocol::target::{PortalSettings, R2tOrder, ServiceDelay, ServiceOrder, StatusDelivery};
use iscsitrace_wire::bhs::RESERVED_TAG;
use iscsitrace_wire::opcode::Opcode;
use proptest::prelude::*;

use crate::conversation::{Conversation, pattern, settings};

const BLOCKS: u32 = 64;

/// A task at the initiator.
struct Task {
    place: usize,
    is_write: bool,
    /// The data of a write, and the data received by a read.
    data: Vec<u8>,
    lba: u32,
    got: usize,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Each command is answered once, on its connection; commands are executed in the order of CmdSN; the data is
    /// correct.
    #[test]
    fn every_command_is_answered_once_with_the_right_data(
        seed: u64, connections in 1usize..5, window in 1u32..12, order in 0..3usize, status in 0..3usize,
        delay in 0..3usize, is_r2t_only: bool, is_in_order: bool, outstanding in 1..4u32
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut settings = PortalSettings {
            command_window_count: window,
            r2t_order: [R2tOrder::InOrder, R2tOrder::Reverse, R2tOrder::Shuffled][order],
            status: [StatusDelivery::InData, StatusDelivery::Apart, StatusDelivery::ApartHeld][status],
            read_delay: [
                ServiceDelay::default(),
                ServiceDelay::Uniform { low_ns: 10, high_ns: 900 },
                ServiceDelay::Exponential { mean_ns: 500 },
            ][delay],
            write_delay: ServiceDelay::Uniform { low_ns: 0, high_ns: 300 * delay as i64 },
            service_order: if seed % 2 == 0 { ServiceOrder::Parallel } else { ServiceOrder::OneAtATime },
            seed,
            ..settings()
        };
        settings.keys.max_outstanding_r2t = Some(outstanding);
        settings.keys.data_sequence_in_order = Some(is_in_order);
        let yes = |is: bool| if is { "Yes" } else { "No" };
        let outstanding = outstanding.to_string();
        let keys = [
            ("MaxConnections", "8"), ("InitialR2T", yes(is_r2t_only)), ("ImmediateData", yes(!is_r2t_only)),
            ("FirstBurstLength", "1024"), ("MaxBurstLength", "4096"), ("MaxOutstandingR2T", &outstanding),
            ("DataSequenceInOrder", yes(is_in_order)),
        ];
        let segment = [("MaxRecvDataSegmentLength", "1536")];
        let mut talk = Conversation::new(settings);
        for place in 0..connections {
            talk.connect();
            let leading = [&keys[..], &segment[..]].concat();
            talk.log_in(place, if place == 0 { &leading } else { &segment });
        }
        let first_cmd_sn = talk.cmd_sn;
        let mut max_cmd_sn = first_cmd_sn + window - 1;
        let mut model = vec![0u8; BLOCKS as usize * 512];
        // a range of blocks is used by one task at a time, so that the data does not depend on their order
        let mut busy = vec![false; BLOCKS as usize];
        let mut tasks: BTreeMap<u32, Task> = BTreeMap::new();
        // PDUs that are to be sent on each connection, in their order
        let mut waiting: Vec<Vec<Vec<u8>>> = vec![Vec::new(); connections];
        let (mut issued, mut answered) = (0u32, 0u32);
        const COMMANDS: u32 = 40;
        for step in 0.. {
            prop_assert!(step < 20_000, "stuck with {issued} issued and {answered} answered");
            if answered == COMMANDS {
                break;
            }
            let may_issue = issued < COMMANDS && talk.cmd_sn.wrapping_sub(max_cmd_sn).cast_signed() <= 0;
            match random.u8(..4) {
                0 if may_issue => {
                    let (lba, count) = (random.u32(..BLOCKS), random.u32(1..24));
                    let end = (lba + count).min(BLOCKS);
                    let range = lba as usize..end as usize;
                    if busy[range.clone()].iter().any(|busy| *busy) {
                        continue;
                    }
                    busy[range].fill(true);
                    let (tag, place, length) = (1000 + issued, random.usize(..connections), (end - lba) as usize * 512);
                    let is_write = random.bool();
                    issued += 1;
                    if is_write {
                        let data = pattern(length, random.u8(..));
                        let immediate = if is_r2t_only { 0 } else { random.usize(..=length.min(1024)) };
                        let unsolicited = if is_r2t_only { immediate } else { length.min(1024) };
                        let is_final = is_r2t_only || immediate == unsolicited || random.bool() && length <= 1024;
                        let write = talk.write(tag, lba, (end - lba) as u16).is_final(is_final);
                        // all allowed unsolicited data is sent, or none after the command: then R2Ts request it
                        waiting[place].push(talk.bytes_of(place, write, &data[..immediate]));
                        let mut offset = immediate;
                        let mut data_sn = 0;
                        while !is_final && offset < unsolicited {
                            let step = random.usize(1..=unsolicited - offset);
                            let is_last = offset + step == unsolicited;
                            let header = talk.data_out(tag, RESERVED_TAG, data_sn, offset as u32, is_last);
                            waiting[place].push(talk.bytes_of(place, header, &data[offset..offset + step]));
                            offset += step;
                            data_sn += 1;
                        }
                        tasks.insert(tag, Task { place, is_write, data, lba, got: 0 });
                    } else {
                        let read = talk.read(tag, lba, (end - lba) as u16);
                        waiting[place].push(talk.bytes_of(place, read, &[]));
                        tasks.insert(tag, Task { place, is_write, data: vec![0; length], lba, got: 0 });
                    }
                }
                1 => {
                    let place = random.usize(..connections);
                    if !waiting[place].is_empty() {
                        let bytes = waiting[place].remove(0);
                        let cut = random.usize(..=bytes.len());
                        talk.send_bytes(place, &bytes[..cut]);
                        talk.send_bytes(place, &bytes[cut..]);
                    }
                }
                2 => {
                    let place = random.usize(..connections);
                    for pdu in talk.receive(place) {
                        let bhs = pdu.bhs();
                        let told = bhs.max_cmd_sn().unwrap().0;
                        if told.wrapping_sub(max_cmd_sn).cast_signed() > 0 {
                            max_cmd_sn = told;
                        }
                        let tag = bhs.initiator_task_tag().unwrap();
                        let task = tasks.get_mut(&tag).expect("a task that is open");
                        prop_assert_eq!(task.place, place, "connection allegiance");
                        match bhs.opcode().unwrap() {
                            Opcode::ReadyToTransfer => {
                                let begin = bhs.buffer_offset().unwrap() as usize;
                                let end = begin + bhs.desired_data_transfer_length().unwrap() as usize;
                                prop_assert!(end <= task.data.len() && end - begin <= 4096);
                                let (mut offset, mut data_sn) = (begin, 0);
                                while offset < end {
                                    let step = random.usize(1..=end - offset);
                                    let transfer = bhs.target_transfer_tag().unwrap();
                                    let header = talk.data_out(tag, transfer, data_sn, offset as u32, offset + step == end);
                                    waiting[place].push(talk.bytes_of(place, header, &task.data[offset..offset + step]));
                                    offset += step;
                                    data_sn += 1;
                                }
                                continue;
                            }
                            Opcode::DataIn => {
                                prop_assert_eq!(bhs.buffer_offset().unwrap() as usize, task.got);
                                prop_assert!(pdu.data.len() <= 1536);
                                task.data[task.got..task.got + pdu.data.len()].copy_from_slice(&pdu.data);
                                task.got += pdu.data.len();
                                if bhs.has_status() != Some(true) {
                                    continue;
                                }
                            }
                            Opcode::ScsiResponse => {}
                            opcode => prop_assert!(false, "{:?}", opcode),
                        }
                        prop_assert_eq!(bhs.status(), Some(0), "{:?}", &pdu.data);
                        prop_assert_eq!(bhs.residual_count(), Some(0));
                        let task = tasks.remove(&tag).expect("it is there");
                        answered += 1;
                        let first = task.lba as usize;
                        busy[first..first + task.data.len() / 512].fill(false);
                        let place = &mut model[first * 512..first * 512 + task.data.len()];
                        if task.is_write {
                            place.copy_from_slice(&task.data);
                        } else {
                            prop_assert_eq!(task.got, task.data.len());
                            prop_assert_eq!(&*place, &task.data[..]);
                        }
                    }
                }
                _ => talk.pass(talk.now_ns + random.i64(0..400)),
            }
        }
        // delivery in the order of CmdSN
        let log = talk.portal.log();
        let mut delivered: Vec<_> =
            log.tasks.iter().map(|task| (task.cmd_sn.wrapping_sub(first_cmd_sn), task.delivered_ns.unwrap())).collect();
        delivered.sort_unstable();
        prop_assert_eq!(delivered.len() as u32, COMMANDS);
        prop_assert!(delivered.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        prop_assert!(log.tasks.iter().all(|task| task.transferred_bytes == u64::from(task.expected_data_transfer_length)));
        prop_assert_eq!(log.counters.rejects + log.counters.ignored_cmd_sns + log.counters.wrong_data_outs, 0);
    }
}
