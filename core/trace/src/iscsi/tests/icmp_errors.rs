//! ICMP errors about packets of a connection.

use super::*;
use crate::tables::{IcmpError, IcmpErrors, NULL_U32};

impl Talk {
    /// An error of 10.0.0.9 about a packet of the talk.
    fn error(&mut self, about_to_target: bool, kind: u8, code: u8, mtu: u16) {
        let [source, destination] = if about_to_target { [0, 1] } else { [1, 0] };
        let (addresses, ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [self.port, 3260]);
        let ip = |length: u8, protocol: u8, source: [u8; 4], destination: [u8; 4]| {
            [&[0x45, 0, 0, length, 0, 1, 0x40, 0, 64, protocol, 0, 0][..], &source, &destination].concat()
        };
        let mut bytes = ip(56, 1, [10, 0, 0, 9], addresses[source]);
        bytes.extend_from_slice(&[kind, code, 0, 0, 0, 0]);
        bytes.extend_from_slice(&mtu.to_be_bytes());
        bytes.extend_from_slice(&ip(255, 6, addresses[source], addresses[destination]));
        bytes.extend_from_slice(&ports[source].to_be_bytes());
        bytes.extend_from_slice(&ports[destination].to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 1]);
        self.frame += 1;
        self.pipeline.packet(&Packet {
            frame: self.frame,
            time_ns: at(self.frame),
            link_type: LinkType::RAW,
            interface: 0,
            original_length: bytes.len() as u32,
            data: &bytes,
        });
    }
}

/// Frame 8 and 9: too big to the initiator, with an MTU; host unreachable to the target.
fn errors(talk: &mut Talk) {
    talk.error(false, 3, 4, 1400);
    talk.error(true, 3, 1, 0);
}

fn row(frame: u64, to_target: bool) -> IcmpError {
    let (kind, code, mtu_bytes) = if to_target { (0, 1, NULL_U32) } else { (1, 4, 1400) };
    IcmpError {
        connection: CONNECTION,
        to_target,
        frame,
        time_ns: at(frame),
        kind,
        code,
        mtu_bytes,
        reporter_address: "10.0.0.9".into(),
    }
}

#[test]
fn an_error_about_a_connection_is_a_row() {
    let mut talk = Talk::login();
    errors(&mut talk);
    // about a connection that is not in the capture
    talk.port = 40_000;
    talk.error(true, 3, 1, 0);
    let tables = talk.finish();
    assert_eq!(tables.icmp_errors, IcmpErrors::of([row(8, false), row(9, true)]));
    assert_eq!(counted(&tables, "not_tcp"), 1);
    // it is no packet of the connection
    assert_eq!(tables.connections.frame_last, [1, 7]);
}

#[test]
fn errors_turn_with_a_connection_whose_client_is_the_target() {
    let mut talk = Talk::connect();
    // the capture begins with a packet of the target
    talk.port = 50_001;
    talk.sent = [0; 2];
    talk.packet(false, 0x10, &[]);
    let frame = talk.frame;
    errors(&mut talk);
    // without a start it is recognised by headers at the start of packets
    talk.packet(true, 0x18, &read(100, 100).build());
    talk.packet(false, 0x18, &response(100, 501, 101, 0).build());
    let later = talk.frame;
    errors(&mut talk);
    let tables = talk.finish();
    assert_eq!(tables.connections.initiator_port[2], 50_001);
    let expected = [(frame + 1, false), (frame + 2, true), (later + 1, false), (later + 2, true)];
    let rows = expected.map(|(frame, to_target)| IcmpError { connection: 2, ..row(frame, to_target) });
    assert_eq!(tables.icmp_errors, IcmpErrors::of(rows));
}

#[test]
fn a_flood_of_errors_is_counted() {
    let mut talk = Talk::login();
    talk.pipeline.limits.icmp_error_rows = 3;
    (0..5).for_each(|_| talk.error(true, 3, 1, 0));
    let tables = talk.finish();
    assert_eq!(tables.icmp_errors.frame, [8, 9, 10]);
    assert_eq!((counted(&tables, "icmp_errors_not_listed"), counted(&tables, "not_tcp")), (2, 0));
}
