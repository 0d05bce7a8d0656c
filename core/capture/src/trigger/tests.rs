//! One connection of TEST UNIT READY commands, built packet by packet with known latencies.

use iscsitrace_trace::reader::Packet;
use iscsitrace_wire::bhs::BhsBuilder;
use iscsitrace_wire::frame::LinkType;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::observer::Observer;
use super::{EndedCommand, KeptPacket, TCP_INFO, Trigger};
use crate::settings::TriggerSettings;

const MS: i64 = 1_000_000;

#[derive(Clone, Copy, PartialEq)]
enum From {
    Initiator,
    Target,
}

/// Both ends of one connection over bare IPv4.
struct Wire {
    packets: Vec<(i64, Vec<u8>)>,
    sequence: [u32; 2],
    command_number: u32,
    status_number: u32,
}

impl Wire {
    /// After a handshake and a login at `time_ns`.
    fn connected(time_ns: i64) -> Self {
        let mut wire = Self { packets: Vec::new(), sequence: [1000, 5000], command_number: 1, status_number: 1 };
        wire.send(time_ns, From::Initiator, 0x02, &[]);
        wire.send(time_ns + 1, From::Target, 0x12, &[]);
        wire.sequence = [1001, 5001];
        let header = BhsBuilder::new(Opcode::LoginRequest).is_transit(true).current_stage(1).next_stage(3);
        let header = header.cmd_sn(SerialNumber(1)).exp_stat_sn(SerialNumber(0)).build();
        wire.send(time_ns + 2, From::Initiator, 0x18, &header);
        let header = BhsBuilder::new(Opcode::LoginResponse).is_transit(true).current_stage(1).next_stage(3);
        let header = header.stat_sn(SerialNumber(0)).exp_cmd_sn(SerialNumber(1)).max_cmd_sn(SerialNumber(65));
        wire.send(time_ns + 3, From::Target, 0x18, &header.build());
        wire
    }

    fn send(&mut self, time_ns: i64, from: From, flags: u8, payload: &[u8]) {
        let [near, far] = if from == From::Initiator { [0, 1] } else { [1, 0] };
        let ends = [([10, 0, 0, 1], 50_000_u16), ([10, 0, 0, 2], 3260)];
        let mut packet = vec![0x45, 0];
        packet.extend((40 + payload.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        packet.extend(ends[near].0);
        packet.extend(ends[far].0);
        packet.extend(ends[near].1.to_be_bytes());
        packet.extend(ends[far].1.to_be_bytes());
        packet.extend(self.sequence[near].to_be_bytes());
        packet.extend(self.sequence[far].to_be_bytes());
        packet.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(payload);
        self.sequence[near] = self.sequence[near].wrapping_add(payload.len() as u32);
        self.packets.push((time_ns, packet));
    }

    fn command(&mut self, time_ns: i64, tag: u32) {
        let header = BhsBuilder::new(Opcode::ScsiCommand)
            .is_final(true)
            .initiator_task_tag(tag)
            .cmd_sn(SerialNumber(self.command_number))
            .exp_stat_sn(SerialNumber(self.status_number))
            .build();
        self.command_number += 1;
        self.send(time_ns, From::Initiator, 0x18, &header);
    }

    /// A READ(10) of one block.
    fn read(&mut self, time_ns: i64, tag: u32) {
        let mut cdb = [0; 16];
        (cdb[0], cdb[8]) = (0x28, 1);
        let header = BhsBuilder::new(Opcode::ScsiCommand)
            .is_final(true)
            .is_read(true)
            .cdb(cdb)
            .expected_data_transfer_length(512)
            .initiator_task_tag(tag)
            .cmd_sn(SerialNumber(self.command_number))
            .exp_stat_sn(SerialNumber(self.status_number))
            .build();
        self.command_number += 1;
        self.send(time_ns, From::Initiator, 0x18, &header);
    }

    /// A part of its data.
    fn data(&mut self, time_ns: i64, tag: u32, number: u32) {
        let header = BhsBuilder::new(Opcode::DataIn)
            .initiator_task_tag(tag)
            .data_sn(SerialNumber(number))
            .buffer_offset(64 * number)
            .data_segment_length(64)
            .exp_cmd_sn(SerialNumber(self.command_number))
            .max_cmd_sn(SerialNumber(self.command_number + 64));
        self.send(time_ns, From::Target, 0x18, &[&header.build()[..], &[0; 64]].concat());
    }

    /// A NOP-Out of the initiator and its NOP-In.
    fn ping(&mut self, time_ns: i64, tag: u32) {
        let header = BhsBuilder::new(Opcode::NopOut)
            .initiator_task_tag(tag)
            .target_transfer_tag(u32::MAX)
            .cmd_sn(SerialNumber(self.command_number))
            .exp_stat_sn(SerialNumber(self.status_number));
        self.send(time_ns, From::Initiator, 0x18, &header.is_immediate(true).build());
        let header = BhsBuilder::new(Opcode::NopIn)
            .initiator_task_tag(tag)
            .target_transfer_tag(u32::MAX)
            .stat_sn(SerialNumber(self.status_number))
            .exp_cmd_sn(SerialNumber(self.command_number))
            .max_cmd_sn(SerialNumber(self.command_number + 64));
        self.status_number += 1;
        self.send(time_ns + MS, From::Target, 0x18, &header.build());
    }

    fn response(&mut self, time_ns: i64, tag: u32) {
        let header = BhsBuilder::new(Opcode::ScsiResponse)
            .initiator_task_tag(tag)
            .stat_sn(SerialNumber(self.status_number))
            .exp_cmd_sn(SerialNumber(self.command_number))
            .max_cmd_sn(SerialNumber(self.command_number + 64))
            .build();
        self.status_number += 1;
        self.send(time_ns, From::Target, 0x18, &header);
    }

    fn frames(&self) -> impl Iterator<Item = Packet<'_>> {
        (1..).zip(&self.packets).map(|(frame, (time_ns, data))| Packet {
            frame,
            time_ns: *time_ns,
            link_type: LinkType::RAW,
            interface: 0,
            original_length: data.len() as u32,
            data,
        })
    }
}

fn trigger(condition: &str, before_ns: i64, after_ns: i64, memory_bytes: usize) -> Trigger {
    Trigger::new(&TriggerSettings { condition: condition.to_owned(), before_ns, after_ns, memory_bytes })
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The frames that the trigger releases, with their comments.
fn released(wire: &Wire, trigger: &mut Trigger) -> Vec<(u64, Option<String>)> {
    let mut released = Vec::new();
    for packet in wire.frames() {
        let each = |kept: &KeptPacket, comment: Option<&str>| {
            released.push((kept.frame, comment.map(str::to_owned)));
            Ok::<(), ()>(())
        };
        assert_eq!(trigger.take(&packet, each, |_| {}), Ok(()));
    }
    released
}

/// The trigger over these packets and then a silent clock to `until_ns`, every 50 ms: when it reports, what it reports,
/// and the frames that it has released by then.
fn reports(wire: &Wire, trigger: &mut Trigger, until_ns: i64) -> (Vec<(i64, String)>, Vec<u64>) {
    let (mut texts, mut frames) = (Vec::new(), Vec::new());
    let mut release = |kept: &KeptPacket, _: Option<&str>| {
        frames.push(kept.frame);
        Ok::<(), ()>(())
    };
    let mut now_ns = 0;
    for packet in wire.frames() {
        now_ns = packet.time_ns;
        assert_eq!(trigger.take(&packet, &mut release, |text| texts.push((now_ns, text.to_owned()))), Ok(()));
    }
    while now_ns < until_ns {
        now_ns += 50 * MS;
        assert_eq!(trigger.tick(now_ns, &mut release, |text| texts.push((now_ns, text.to_owned()))), Ok(()));
    }
    (texts, frames)
}

/// What it writes and says at the end of the capture.
fn at_end(trigger: &mut Trigger, now_ns: i64) -> (Vec<String>, Vec<u64>) {
    let (mut texts, mut frames) = (Vec::new(), Vec::new());
    let release = |kept: &KeptPacket, _: Option<&str>| {
        frames.push(kept.frame);
        Ok::<(), ()>(())
    };
    assert_eq!(trigger.finish(now_ns, release, |text| texts.push(text.to_owned())), Ok(()));
    (texts, frames)
}

/// A command of 1 ms every 100 ms; the one with that number takes 80 ms.
fn one_slow(count: u32, slow: u32) -> Wire {
    let mut wire = Wire::connected(0);
    for number in 0..count {
        let begun_ns = i64::from(number + 1) * 100 * MS;
        wire.command(begun_ns, number);
        wire.response(begun_ns + if number == slow { 80 * MS } else { MS }, number);
    }
    wire
}

#[test]
fn the_window_spans_from_before_the_command_to_after_its_end() {
    let wire = one_slow(100, 60);
    let mut trigger = trigger("latency>50ms", 250 * MS, 150 * MS, 1 << 20);
    let released = released(&wire, &mut trigger);
    // task 60 begins at 6100 ms and ends at 6180 ms: 5850 ms to 6330 ms, with the tasks of 5900 to 6300 ms
    let in_window = |time_ns: i64| (5850 * MS..=6330 * MS).contains(&time_ns);
    let mut wanted: Vec<u64> =
        wire.frames().filter(|packet| in_window(packet.time_ns)).map(|packet| packet.frame).collect();
    // and before it, how the connection began: 16 packets with payload at most
    let beginning: Vec<u64> = (1..=18).collect();
    wanted.splice(0..0, beginning);
    assert_eq!(released.iter().map(|&(frame, _)| frame).collect::<Vec<_>>(), wanted);
    let comments: Vec<_> = released.iter().filter(|(_, comment)| comment.is_some()).collect();
    let [(frame, Some(comment))] = comments.as_slice() else { panic!("{comments:?}") };
    // two of the handshake, two of the login, two of each task
    assert_eq!(*frame, 4 + 2 * 61);
    assert!(comment.contains("latency>50ms: test_unit_ready took 80.000 ms, tag 0x0000003c"), "{comment}");
    assert_eq!(trigger.found_count, 1);
}

/// Frames, and 0 for a sample of TCP_INFO: one is taken after each packet.
fn released_with_samples(wire: &Wire, trigger: &mut Trigger) -> Vec<(i64, u64, Option<String>)> {
    let mut released = Vec::new();
    let mut each = |kept: &KeptPacket, comment: Option<&str>| {
        let frame = if kept.link_type == TCP_INFO { 0 } else { kept.frame };
        released.push((kept.time_ns, frame, comment.map(str::to_owned)));
        Ok::<(), ()>(())
    };
    for packet in wire.frames() {
        assert_eq!(trigger.take(&packet, &mut each, |_| {}), Ok(()));
        assert_eq!(trigger.keep_tcp_info(packet.time_ns + 1, "a sample", &mut each), Ok(()));
    }
    released
}

#[test]
fn samples_of_tcp_info_are_released_with_the_packets_of_their_window() {
    let wire = one_slow(100, 60);
    let without = released(&wire, &mut trigger("latency>50ms", 250 * MS, 150 * MS, 1 << 20));
    let with = released_with_samples(&wire, &mut trigger("latency>50ms", 250 * MS, 150 * MS, 1 << 20));
    let packets = with.iter().filter(|(_, frame, _)| *frame > 0);
    assert_eq!(packets.map(|(_, frame, comment)| (*frame, comment.clone())).collect::<Vec<_>>(), without);
    let samples: Vec<i64> = with.iter().filter(|(_, frame, _)| *frame == 0).map(|(time_ns, ..)| *time_ns).collect();
    let in_window: Vec<i64> = wire
        .frames()
        .map(|packet| packet.time_ns + 1)
        .filter(|time_ns| (5850 * MS..=6330 * MS).contains(time_ns))
        .collect();
    assert!(in_window.len() > 8);
    assert_eq!(samples, in_window);
    assert!(with.iter().filter(|(_, frame, _)| *frame == 0 || *frame > 18).is_sorted_by_key(|(time_ns, ..)| *time_ns));
}

#[test]
fn overlapping_windows_are_merged_and_no_frame_is_released_twice() {
    let mut wire = Wire::connected(0);
    for number in 0..50 {
        wire.command(i64::from(number) * 100 * MS + MS, number);
        wire.response(i64::from(number) * 100 * MS + 81 * MS, number);
    }
    let released = released(&wire, &mut trigger("latency>50ms", 1000 * MS, 1000 * MS, 1 << 20));
    let frames: Vec<u64> = released.iter().map(|&(frame, _)| frame).collect();
    assert_eq!(frames, (1..=104).collect::<Vec<_>>());
    assert_eq!(released.iter().filter(|(_, comment)| comment.is_some()).count(), 50);
}

#[test]
fn a_slow_command_keeps_the_packets_before_it() {
    let mut wire = Wire::connected(0);
    wire.command(10_000 * MS, 1);
    for number in 2..200 {
        wire.command(10_000 * MS + i64::from(number) * 100 * MS, number);
        wire.response(10_000 * MS + i64::from(number) * 100 * MS + MS, number);
    }
    let end_ns = 31_000 * MS;
    wire.response(end_ns, 1);
    // far longer than the time before: the window begins before the command nevertheless
    let mut trigger = trigger("latency>15s", 100 * MS, 100 * MS, 1 << 20);
    let released = released(&wire, &mut trigger);
    assert_eq!(released.len(), wire.packets.len());
    assert!(!trigger.has_forgotten);
}

#[test]
fn a_command_that_never_ends_is_found_after_its_time_limit() {
    let mut wire = Wire::connected(0);
    wire.command(100 * MS, 7);
    for number in 0..200 {
        wire.command(1000 * MS + i64::from(number) * 100 * MS, 100 + number);
        wire.response(1000 * MS + i64::from(number) * 100 * MS + MS, 100 + number);
    }
    let mut trigger = trigger("latency>5s or status=busy", 10_000 * MS, 500 * MS, 1 << 20);
    let released = released(&wire, &mut trigger);
    let comments: Vec<_> =
        released.iter().filter_map(|(frame, comment)| comment.as_ref().map(|text| (frame, text))).collect();
    let &[(&frame, comment)] = comments.as_slice() else { panic!("{comments:?}") };
    assert!(
        comment.contains("test_unit_ready has not ended after 5") && comment.contains("tag 0x00000007"),
        "{comment}"
    );
    let (time_ns, _) = wire.packets[frame as usize - 1];
    assert!((5100 * MS..5400 * MS).contains(&time_ns), "{time_ns}");
    // all from its beginning to a while after, and as much longer as a window waits for the last task to end
    assert_eq!(released[0].0, 1);
    let (last_ns, _) = wire.packets[released[released.len() - 1].0 as usize - 1];
    assert!((time_ns + 500 * MS..=time_ns + 1500 * MS).contains(&last_ns), "{last_ns}");
}

#[test]
fn memory_is_bounded_and_dropped_packets_are_reported() {
    let wire = one_slow(3000, 2999);
    let mut trigger = trigger("latency>50ms", 200_000 * MS, MS, 40_000);
    let released = released(&wire, &mut trigger);
    let of_the_end = released.iter().filter(|&&(frame, _)| frame > 50).count();
    assert!(trigger.has_forgotten);
    // each packet takes 88 bytes and its bookkeeping
    assert!((100..400).contains(&of_the_end), "{of_the_end}");
}

#[test]
fn every_command_is_reported_once_while_rows_leave() {
    let mut wire = Wire::connected(0);
    let mut tag = 0;
    // some at a time; every 16th takes 3 s
    let mut open: Vec<(i64, u32)> = Vec::new();
    for step in 0..6000 {
        let now_ns = i64::from(step) * 5 * MS;
        open.sort_unstable();
        while open.first().is_some_and(|&(end_ns, _)| end_ns <= now_ns) {
            let (_, ended) = open.remove(0);
            wire.response(now_ns, ended);
        }
        wire.command(now_ns + 1, tag);
        open.push((now_ns + if tag % 16 == 0 { 3000 * MS } else { 12 * MS }, tag));
        tag += 1;
    }
    for (place, (_, ended)) in (0..).zip(open) {
        wire.response(40_000 * MS + place, ended);
    }
    let mut observer = Observer::with_rows(500);
    let mut rows = 0;
    let mut ended: Vec<EndedCommand> = Vec::new();
    for packet in wire.frames() {
        observer.packet(&packet, &mut ended);
        rows = rows.max(observer.row_count());
    }
    let mut tags: Vec<u32> = ended.iter().map(|command| command.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..tag).collect::<Vec<_>>());
    assert!((500..2 * 500).contains(&rows), "{rows} of {tag} commands");
    let waited = ended.iter().filter(|command| command.end_ns - command.command_ns >= 2990 * MS).count();
    assert!(waited >= 300, "{waited}");
}

#[test]
fn a_hang_of_minutes_is_reported_at_its_end_however_many_rows_left() {
    let mut wire = Wire::connected(0);
    wire.command(MS, 7);
    for tag in 100..2100 {
        let now_ns = i64::from(tag) * 100 * MS;
        wire.command(now_ns, tag);
        wire.response(now_ns + MS, tag);
    }
    wire.response(300_000 * MS, 7);
    let mut observer = Observer::with_rows(50);
    let mut ended = Vec::new();
    for packet in wire.frames() {
        observer.packet(&packet, &mut ended);
        assert!(observer.row_count() < 100);
    }
    assert_eq!(ended.len(), 2001);
    let hang = ended.last().expect("its end");
    assert_eq!((hang.tag, hang.end_ns - hang.command_ns), (7, 299_999 * MS));
}

#[test]
fn a_command_that_began_after_the_last_check_is_kept_whole() {
    let mut wire = Wire::connected(0);
    // more than is kept of how a connection began
    for tag in 10..60 {
        wire.command(MS, tag);
        wire.response(2 * MS, tag);
    }
    // the observer looks with the first packet after 100 ms: just when nothing is in flight
    wire.command(99 * MS, 1);
    wire.response(101 * MS, 1);
    let first = wire.packets.len() as u64 + 1;
    wire.command(102 * MS, 2);
    // a bare ACK before the next look
    wire.send(160 * MS, From::Target, 0x10, &[]);
    wire.response(500 * MS, 2);
    let mut trigger = trigger("latency>250ms", 10 * MS, MS, 1 << 20);
    let frames: Vec<u64> = released(&wire, &mut trigger).into_iter().map(|(frame, _)| frame).collect();
    // from 10 ms before the command on
    assert!(frames.ends_with(&[first - 2, first - 1, first, first + 1, first + 2]), "{frames:?}");
}

#[test]
fn a_silent_hang_is_found_by_the_clock_and_written_at_once() {
    for (condition, stall) in [("no_progress>2s", ", no progress for "), ("latency>2s", "")] {
        let mut wire = Wire::connected(0);
        wire.read(1000 * MS, 1);
        let mut trigger = trigger(condition, 5000 * MS, 1000 * MS, 1 << 20);
        let (texts, frames) = reports(&wire, &mut trigger, 60_000 * MS);
        let [(found_ns, text)] = &texts[..] else { panic!("{texts:?}") };
        assert!((3000 * MS + 1..=3150 * MS).contains(found_ns), "{found_ns}");
        assert!(text.contains("read of 512 bytes at LBA 0 has not ended after 2") && text.contains(stall), "{text}");
        assert_eq!(frames, [1, 2, 3, 4, 5]);
    }
}

#[test]
fn without_a_read_or_write_in_flight_there_is_no_hang() {
    let mut idle = Wire::connected(0);
    idle.read(1000 * MS, 1);
    idle.response(1001 * MS, 1);
    idle.ping(5000 * MS, 2);
    let mut looking = Wire::connected(0);
    // a path checker that waits: latency finds it
    looking.command(1000 * MS, 1);
    for wire in [idle, looking] {
        let mut trigger = trigger("no_progress>2s", 1000 * MS, 1000 * MS, 1 << 20);
        assert_eq!(reports(&wire, &mut trigger, 100_000 * MS), (vec![], vec![]));
    }
}

#[test]
fn pings_are_no_progress_and_data_is() {
    let mut pinged = Wire::connected(0);
    pinged.read(1000 * MS, 1);
    (2..20).for_each(|number| pinged.ping(i64::from(number) * 500 * MS + 500 * MS, number));
    let found = reports(&pinged, &mut trigger("no_progress>2s", MS, MS, 1 << 20), 0).0;
    let [(found_ns, _)] = &found[..] else { panic!("{found:?}") };
    // the next packet after the limit, at 3.5 s: the one at 3 s is at the limit
    assert!((3000 * MS..=3501 * MS).contains(found_ns), "{found_ns}");
    let mut slow = Wire::connected(0);
    slow.read(1000 * MS, 1);
    (0..8).for_each(|number| slow.data(i64::from(number) * 1900 * MS + 2000 * MS, 1, number));
    assert_eq!(reports(&slow, &mut trigger("no_progress>2s", MS, MS, 1 << 20), 0).0, []);
    assert_eq!(reports(&slow, &mut trigger("latency>2s", MS, MS, 1 << 20), 0).0.len(), 1);
}

#[test]
fn a_hang_that_a_packet_ends_is_known_by_its_length() {
    let mut wire = Wire::connected(0);
    wire.read(1000 * MS, 1);
    // issued in the hang, less than 2 s before its end
    wire.read(10_000 * MS, 2);
    wire.response(11_000 * MS, 1);
    wire.response(11_001 * MS, 2);
    let mut trigger = trigger("no_progress>2s", MS, MS, 1 << 20);
    let (texts, frames) = reports(&wire, &mut trigger, 0);
    // at the packet of 10 s, which is the first after the limit, and at its end
    let [(open_ns, open), (end_ns, end)] = &texts[..] else { panic!("{texts:?}") };
    assert_eq!((*open_ns, *end_ns), (10_000 * MS, 11_000 * MS));
    assert!(open.contains("has not ended after 9000.000 ms, no progress for 9000.000 ms"), "{open}");
    assert!(end.contains("took 10000.000 ms, no progress for 10000.000 ms"), "{end}");
    // said twice, counted once
    assert_eq!(trigger.found_count, 1);
    assert_eq!(frames, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_capture_that_ends_in_a_hang_keeps_its_packets() {
    let mut wire = Wire::connected(0);
    wire.read(1000 * MS, 1);
    let run = |now_ns: i64, wire: &Wire| {
        let mut trigger = trigger("no_progress>5s", 100 * MS, MS, 1 << 20);
        assert_eq!(reports(wire, &mut trigger, now_ns), (vec![], vec![]));
        at_end(&mut trigger, now_ns)
    };
    let (texts, frames) = run(4000 * MS, &wire);
    assert_eq!(texts, ["1 command has not ended when the capture ended, the oldest after 3000.000 ms"]);
    assert_eq!(frames, [1, 2, 3, 4, 5]);
    // a command in flight for less than a second is no hang
    assert_eq!(run(1950 * MS, &wire), (vec![], vec![]));
    wire.response(1001 * MS, 1);
    assert_eq!(run(4000 * MS, &wire), (vec![], vec![]));
}

#[test]
fn a_command_ends_with_its_connection() {
    for flags in [0x14, 0x11] {
        let mut wire = Wire::connected(0);
        wire.read(1000 * MS, 1);
        wire.send(1500 * MS, From::Initiator, flags, &[]);
        let mut of_none = trigger("status = none", 100 * MS, MS, 1 << 20);
        let (texts, frames) = reports(&wire, &mut of_none, 4000 * MS);
        let [(_, text)] = &texts[..] else { panic!("{texts:?}") };
        assert!(text.contains("read of 512 bytes at LBA 0 ended without a status after 500.000 ms"), "{text}");
        assert_eq!(frames, [1, 2, 3, 4, 5, 6]);
        assert_eq!(at_end(&mut of_none, 4000 * MS), (vec![], vec![]));
        // nor is it in flight later, or when the capture ends at once
        let mut slow = trigger("latency>700ms or no_progress>700ms", MS, MS, 1 << 20);
        assert_eq!(reports(&wire, &mut slow, 4000 * MS), (vec![], vec![]));
        let mut short = Wire::connected(0);
        short.read(1000 * MS, 1);
        short.ping(3990 * MS, 2);
        short.send(4000 * MS, From::Initiator, flags, &[]);
        let mut late = trigger("latency>10s", MS, MS, 1 << 20);
        assert_eq!(reports(&short, &mut late, 0), (vec![], vec![]));
        assert_eq!(at_end(&mut late, 4010 * MS), (vec![], vec![]));
    }
}

#[test]
fn a_hang_after_its_window_is_written_up_to_the_end() {
    let mut wire = Wire::connected(0);
    wire.read(1000 * MS, 1);
    (2..30).for_each(|number| wire.ping(i64::from(number) * 1000 * MS, number));
    let mut trigger = trigger("no_progress>2s", MS, MS, 1 << 20);
    let (_, mut frames) = reports(&wire, &mut trigger, 40_000 * MS);
    assert!(frames.len() < wire.packets.len(), "the window has ended");
    frames.extend(at_end(&mut trigger, 40_000 * MS).1);
    assert_eq!(frames, (1..=wire.packets.len() as u64).collect::<Vec<_>>());
}

#[test]
fn the_clock_may_be_set_back_before_a_hang() {
    let hour_ns = 3600 * 1000 * MS;
    let mut wire = Wire::connected(2 * hour_ns);
    wire.read(2 * hour_ns + 1000 * MS, 1);
    wire.response(2 * hour_ns + 1001 * MS, 1);
    wire.read(hour_ns, 2);
    let mut trigger = trigger("no_progress>2s", MS, 1000 * MS, 1 << 20);
    let (texts, _) = reports(&wire, &mut trigger, hour_ns + 10_000 * MS);
    let [(found_ns, _)] = &texts[..] else { panic!("{texts:?}") };
    assert!((hour_ns + 2000 * MS..=hour_ns + 2150 * MS).contains(found_ns), "{found_ns}");
}

#[test]
fn ten_thousand_sessions_that_hang_are_few_words() {
    let mut wire = Wire::connected(0);
    let one = wire.packets.len();
    wire.read(1000 * MS, 1);
    let mut packets = Vec::new();
    for session in 0..10_000_u16 {
        for (place, (time_ns, packet)) in wire.packets.iter().enumerate() {
            let mut packet = packet.clone();
            // the initiator's port: the source of its packets, the destination of the target's
            let port = if place == 1 || place == 3 { 22 } else { 20 };
            packet[port..port + 2].copy_from_slice(&(1024 + session).to_be_bytes());
            packets.push((*time_ns, packet));
        }
    }
    assert_eq!(one, 4);
    packets.sort_by_key(|(time_ns, _)| *time_ns);
    wire.packets = packets;
    let mut trigger = trigger("no_progress>2s or latency>2s", 5000 * MS, 1000 * MS, 1 << 26);
    let mut comments = Vec::new();
    for packet in wire.frames() {
        assert_eq!(trigger.take(&packet, |_, _| Ok::<(), ()>(()), |text| panic!("{text}")), Ok(()));
    }
    let mut texts = Vec::new();
    let mut released = 0;
    for now_ns in (1..100).map(|step| 1000 * MS + step * 50 * MS) {
        let release = |_: &KeptPacket, comment: Option<&str>| {
            released += 1;
            comments.extend(comment.map(str::to_owned));
            Ok::<(), ()>(())
        };
        assert_eq!(trigger.tick(now_ns, release, |text| texts.push(text.to_owned())), Ok(()));
    }
    assert_eq!((released, trigger.found_count), (50_000, 10_000));
    assert_eq!(texts.len(), 17);
    assert!(texts[16].ends_with("9984 more at the same time"), "{}", texts[16]);
    assert!(comments.len() == 1 && comments[0].len() < 8001, "{}", comments.len());
}
