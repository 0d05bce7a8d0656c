//! Reads: Data-In by the negotiated parameters, delivery of status, residuals.

use iscsitrace_lab::protocol::target::{Limits, PortalSettings, ServiceDelay, ServiceOrder, StatusDelivery};
use iscsitrace_wire::opcode::Opcode;

use crate::conversation::{Conversation, MILLISECOND, opcodes, pattern, sense, settings};

const KEYS: &[(&str, &str)] = &[("MaxRecvDataSegmentLength", "4096"), ("MaxBurstLength", "8192")];

#[test]
fn data_comes_in_segments_and_bursts() {
    let mut talk = Conversation::logged_in(settings(), KEYS);
    let data = pattern(20_480, 1);
    talk.store(8, &data);
    let read = talk.read(7, 8, 40);
    talk.send(0, read, &[]);
    let pdus = talk.receive(0);
    let seen: Vec<_> = pdus
        .iter()
        .map(|pdu| {
            let bhs = pdu.bhs();
            (bhs.data_sn().unwrap().0, bhs.buffer_offset().unwrap(), pdu.data.len(), bhs.is_final().unwrap())
        })
        .collect();
    assert_eq!(
        seen,
        [
            (0, 0, 4096, false),
            (1, 4096, 4096, true),
            (2, 8192, 4096, false),
            (3, 12288, 4096, true),
            (4, 16384, 4096, true)
        ]
    );
    let status: Vec<_> = pdus.iter().map(|pdu| pdu.bhs().has_status().unwrap()).collect();
    assert_eq!(status, [false, false, false, false, true]);
    assert_eq!(pdus.concat_data(), data);
    let last = pdus[4].bhs();
    assert_eq!((last.status(), last.residual_count(), last.is_underflow()), (Some(0), Some(0), Some(false)));
}

trait ConcatData {
    fn concat_data(&self) -> Vec<u8>;
}

impl ConcatData for Vec<crate::conversation::Pdu> {
    fn concat_data(&self) -> Vec<u8> {
        self.iter().flat_map(|pdu| pdu.data.clone()).collect()
    }
}

#[test]
fn the_status_is_sent_as_set() {
    let cases = [
        (StatusDelivery::InData, vec![(Opcode::DataIn, 0), (Opcode::DataIn, 0)]),
        (StatusDelivery::Apart, vec![(Opcode::DataIn, 0), (Opcode::DataIn, 0), (Opcode::ScsiResponse, 0)]),
        (StatusDelivery::ApartHeld, vec![(Opcode::DataIn, 0), (Opcode::DataIn, 0), (Opcode::ScsiResponse, 1)]),
    ];
    for (status, expected) in cases {
        let mut talk = Conversation::logged_in(PortalSettings { status, ..settings() }, KEYS);
        let read = talk.read(7, 8, 16);
        talk.send(0, read, &[]);
        let pdus = talk.receive(0);
        let seen: Vec<_> = pdus.iter().map(|pdu| (pdu.bhs().opcode().unwrap(), pdu.call)).collect();
        assert_eq!(seen, expected, "{status:?}");
        let last = pdus.last().unwrap().bhs();
        assert_eq!(last.status(), Some(0));
        if status != StatusDelivery::InData {
            assert_eq!(last.exp_data_sn().unwrap().0, 2);
        }
    }
}

#[test]
fn a_held_status_has_a_separate_system_call() {
    let held = PortalSettings { status: StatusDelivery::ApartHeld, ..settings() };
    let mut talk = Conversation::logged_in(held, KEYS);
    for tag in 0..2 {
        let read = talk.read(tag, 0, 8);
        talk.send(0, read, &[]);
    }
    let seen: Vec<_> = talk.receive(0).iter().map(|pdu| (pdu.bhs().opcode().unwrap(), pdu.call)).collect();
    let (data, response) = (Opcode::DataIn, Opcode::ScsiResponse);
    assert_eq!(seen, [(data, 0), (response, 1), (data, 2), (response, 3)]);
}

#[test]
fn residuals_count_untransferred_bytes() {
    // READ(10) of two blocks, with another Expected Data Transfer Length
    for (expected, transferred, overflow, underflow) in
        [(1024, 1024, 0, 0), (2000, 1024, 0, 976), (600, 600, 424, 0), (0, 0, 1024, 0)]
    {
        let mut talk = Conversation::logged_in(settings(), &[]);
        let read = talk.read(7, 0, 2).expected_data_transfer_length(expected);
        talk.send(0, read, &[]);
        let pdu = talk.receive_one(0);
        let bhs = pdu.bhs();
        assert_eq!(pdu.data.len(), transferred);
        assert_eq!((bhs.is_overflow(), bhs.is_underflow()), (Some(overflow > 0), Some(underflow > 0)));
        assert_eq!((bhs.status(), bhs.residual_count()), (Some(0), Some(overflow + underflow)), "{expected}");
    }
}

#[test]
fn a_refused_read_has_sense_and_no_data() {
    let mut talk = Conversation::logged_in(settings(), &[]);
    let read = talk.read(7, 131_072, 1);
    talk.send(0, read, &[]);
    let pdu = talk.receive_one(0);
    // ILLEGAL REQUEST, LOGICAL BLOCK ADDRESS OUT OF RANGE
    assert_eq!(sense(&pdu), [5, 0x21, 0]);
    assert_eq!((pdu.bhs().is_underflow(), pdu.bhs().residual_count()), (Some(true), Some(512)));
    let read = talk.read(8, 0, 1).lun([0, 9, 0, 0, 0, 0, 0, 0]);
    talk.send(0, read, &[]);
    assert_eq!(sense(&talk.receive_one(0)), [5, 0x25, 0], "LOGICAL UNIT NOT SUPPORTED");
}

#[test]
fn the_size_of_system_calls_is_limited() {
    let limits = Limits { transmit_bytes: 16 << 10, ..Limits::default() };
    let mut talk = Conversation::logged_in(PortalSettings { limits, ..settings() }, KEYS);
    let read = talk.read(7, 0, 256);
    talk.send(0, read, &[]);
    let pdus = talk.receive(0);
    assert_eq!(pdus.len(), 32);
    let mut calls = [0; 8];
    pdus.iter().for_each(|pdu| calls[pdu.call] += 1);
    // four PDUs of 4144 bytes exceed 16384
    assert_eq!(calls, [4; 8]);
}

#[test]
fn reads_that_nobody_takes_have_limited_memory() {
    use iscsitrace_lab::application::Application;
    const LONG: &[(&str, &str)] = &[("MaxRecvDataSegmentLength", "65536"), ("MaxConnections", "2")];
    let limits = Limits { transmit_bytes: 4096, waiting_bytes: 96 << 10, ..Limits::default() };
    let mut talk = Conversation::logged_in(PortalSettings { limits, ..settings() }, LONG);
    talk.connect();
    talk.log_in(1, &LONG[..1]);
    for (place, tag) in [(0, 7), (1, 8), (1, 9)] {
        let read = talk.read(tag, 0, 128);
        talk.send(place, read, &[]);
    }
    let lengths = |talk: &mut Conversation, place: usize, out: &mut Vec<u8>| -> Vec<u32> {
        out.clear();
        talk.portal.poll_transmit(0, talk.number(place), out);
        talk.decode(place, out, 0).iter().filter_map(|pdu| pdu.bhs().data_segment_length()).collect()
    };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    assert_eq!(lengths(&mut talk, 0, &mut first), [65_536]);
    // 96 KiB less the PDU, with its header, that waits at the first connection
    assert_eq!(lengths(&mut talk, 1, &mut second), [(32 << 10) - 48]);
    assert_eq!(lengths(&mut talk, 1, &mut second), [(32 << 10) - 48]);
    // the first one was taken
    assert!(lengths(&mut talk, 0, &mut first).is_empty());
    assert_eq!(lengths(&mut talk, 1, &mut second), [96, 65_536]);
}

#[test]
fn small_answers_overtake_a_long_read() {
    let limits = Limits { transmit_bytes: 4096, ..Limits::default() };
    let mut talk = Conversation::logged_in(PortalSettings { limits, ..settings() }, KEYS);
    let read = talk.read(7, 0, 32);
    talk.send(0, read, &[]);
    let mut out = Vec::new();
    use iscsitrace_lab::application::Application;
    talk.portal.poll_transmit(0, talk.number(0), &mut out);
    assert_eq!(opcodes(&talk.decode(0, &out, 0)), [Opcode::DataIn]);
    let ready = talk.test_unit_ready(8);
    talk.send(0, ready, &[]);
    let expected = [Opcode::ScsiResponse, Opcode::DataIn, Opcode::DataIn, Opcode::DataIn];
    assert_eq!(opcodes(&talk.receive(0)), expected);
}

#[test]
fn reads_take_their_time() {
    let read_delay = ServiceDelay::Fixed { delay_ns: 5 * MILLISECOND };
    for (service_order, second) in [(ServiceOrder::Parallel, 5), (ServiceOrder::OneAtATime, 10)] {
        let mut talk = Conversation::logged_in(PortalSettings { read_delay, service_order, ..settings() }, &[]);
        for tag in 0..2 {
            let read = talk.read(tag, 0, 1);
            talk.send(0, read, &[]);
        }
        let write = talk.write(2, 0, 1);
        talk.send(0, write, &pattern(512, 1));
        talk.pass(5 * MILLISECOND - 1);
        let early = talk.receive(0);
        if service_order == ServiceOrder::Parallel {
            assert_eq!(opcodes(&early), [Opcode::ScsiResponse], "zero service time");
        } else {
            assert_eq!(opcodes(&early), [], "the write waits for the reads before it");
        }
        talk.pass(5 * MILLISECOND);
        let first = talk.receive(0);
        assert_eq!(first.len(), if second == 5 { 2 } else { 1 });
        talk.pass(second * MILLISECOND);
        let ends: Vec<_> = talk.portal.log().tasks[..2].iter().map(|task| task.service_end_ns).collect();
        assert_eq!(ends, [Some(5 * MILLISECOND), Some(second * MILLISECOND)]);
    }
}
