//! A scripted target, and a session connected to it.

use std::collections::BTreeMap;

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::*;
use crate::application::Closed;
use crate::protocol::breach::Breaches;
use crate::protocol::keys::{Digest, Offers, Parameters};
use crate::protocol::login::InitiatorLoginSettings;
use crate::protocol::pdu::{Decoder, Piece, encode};

mod any_target;
mod breaches;
mod connections;
mod conversations;

const LUN: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

/// Data of all tasks: received data by tag; sent data is the low byte of its offset.
#[derive(Default)]
struct Memory(BTreeMap<u32, Vec<u8>>);

impl TaskData for Memory {
    fn take(&mut self, tag: u32, offset: u32, bytes: &[u8]) {
        let place = self.0.entry(tag).or_default();
        let end = offset as usize + bytes.len();
        place.resize(place.len().max(end), 0);
        place[offset as usize..end].copy_from_slice(bytes);
    }

    fn fill(&mut self, _tag: u32, offset: u32, out: &mut [u8]) {
        out.iter_mut().zip(offset..).for_each(|(byte, offset)| *byte = offset as u8);
    }
}

/// A PDU that the initiator sent.
struct Sent {
    header: [u8; 48],
    data: Vec<u8>,
}

impl Sent {
    fn bhs(&self) -> Bhs<'_> {
        Bhs::new(&self.header)
    }

    fn tag(&self) -> u32 {
        self.bhs().initiator_task_tag().unwrap()
    }

    fn opcode(&self) -> Opcode {
        self.bhs().opcode().unwrap()
    }
}

/// A session, and the target's numbers.
struct Play {
    session: Session,
    memory: Memory,
    decoders: Vec<Decoder>,
    stat_sn: Vec<u32>,
    exp_cmd_sn: u32,
    max_cmd_sn: u32,
}

impl Play {
    /// A session whose connections are in the full feature phase with these parameters.
    fn with(connections: u16, parameters: Parameters) -> Play {
        let login = InitiatorLoginSettings {
            target_name: Some("iqn.2026-01.test:disk".to_owned()),
            offers: Offers { max_connections: Some(u32::from(connections)), ..Offers::default() },
            is_security_skipped: true,
            ..InitiatorLoginSettings::default()
        };
        let session = Session::new(SessionSettings {
            login,
            isid: [0x80, 0, 0, 1, 0, 0],
            connections,
            timeouts: Timeouts::default(),
            initial_cmd_sn: u32::MAX - 1,
            challenge_seed: 1,
            is_pdu_log_wanted: true,
            breaches: Breaches::default(),
        });
        let mut play = Play {
            session,
            memory: Memory::default(),
            decoders: (0..connections).map(|_| Decoder::new(1 << 24)).collect(),
            stat_sn: vec![100; usize::from(connections)],
            exp_cmd_sn: u32::MAX - 1,
            max_cmd_sn: u32::MAX - 1,
        };
        while let Some(connection) = play.session.poll_connect(0) {
            play.session.opened(0, connection);
            let request = play.sent(connection).remove(0);
            assert_eq!((request.opcode(), request.bhs().cid()), (Opcode::LoginRequest, Some(connection as u16)));
            assert_eq!(request.bhs().tsih(), Some(if connection == 0 { 0 } else { 7 }));
            let text = if connection == 0 {
                format!("TargetPortalGroupTag=1\0MaxConnections={connections}\0")
            } else {
                String::new()
            };
            let response = BhsBuilder::new(Opcode::LoginResponse)
                .is_transit(true)
                .current_stage(1)
                .next_stage(3)
                .isid([0x80, 0, 0, 1, 0, 0])
                .tsih(7)
                .initiator_task_tag(request.tag());
            play.answer(connection, response, text.as_bytes());
            assert!(!play.session.is_over(), "{:?}", play.events());
        }
        assert_eq!(play.events(), [Event::Ready]);
        for index in 0..usize::from(connections) {
            play.session.connections[index].agree(parameters.clone());
            let digests = play.session.connections[index].digests;
            play.decoders[index].agree(digests, 1 << 24);
        }
        play.max_cmd_sn = play.max_cmd_sn.wrapping_add(32);
        play
    }

    fn new() -> Play {
        Play::with(1, Parameters::default())
    }

    /// The PDUs that the initiator sends now.
    fn sent(&mut self, connection: usize) -> Vec<Sent> {
        let (mut sent, mut data) = (Vec::new(), Vec::new());
        loop {
            let mut out = Vec::new();
            self.session.poll_transmit(0, connection, &mut out, &mut self.memory);
            if out.is_empty() {
                return sent;
            }
            let mut input = &out[..];
            let decoder = &mut self.decoders[connection];
            while let Some(piece) = decoder.next(&mut input).unwrap() {
                match piece {
                    Piece::Header => data.clear(),
                    Piece::Data(bytes) => data.extend_from_slice(bytes),
                    Piece::End { is_data_digest_good } => {
                        assert!(is_data_digest_good);
                        let header = decoder.bhs().as_bytes().try_into().unwrap();
                        sent.push(Sent { header, data: data.clone() });
                    }
                }
            }
        }
    }

    fn receive(&mut self, connection: usize, header: &[u8; 48], data: &[u8]) {
        let mut stream = Vec::new();
        let digests = self.session.connections[connection].digests;
        encode(&mut stream, header, &[], digests, |out| out.extend_from_slice(data));
        self.session.receive(1, connection, &stream, &mut self.memory);
    }

    fn build(&self, connection: usize, builder: BhsBuilder, data: &[u8]) -> [u8; 48] {
        let builder = builder.stat_sn(SerialNumber(self.stat_sn[connection]));
        let builder = builder.exp_cmd_sn(SerialNumber(self.exp_cmd_sn)).max_cmd_sn(SerialNumber(self.max_cmd_sn));
        builder.data_segment_length(data.len() as u32).build()
    }

    /// The target sends a PDU that has no status.
    fn send(&mut self, connection: usize, builder: BhsBuilder, data: &[u8]) {
        let header = self.build(connection, builder, data);
        self.receive(connection, &header, data);
    }

    /// The target sends a PDU with the next StatSN.
    fn answer(&mut self, connection: usize, builder: BhsBuilder, data: &[u8]) {
        self.send(connection, builder, data);
        self.stat_sn[connection] = self.stat_sn[connection].wrapping_add(1);
    }

    fn open_window(&mut self) {
        self.send(
            0,
            BhsBuilder::new(Opcode::NopIn).initiator_task_tag(RESERVED_TAG).target_transfer_tag(RESERVED_TAG),
            &[],
        );
    }

    fn command(&mut self, connection: usize, direction: Direction, length_bytes: u32) -> u32 {
        let command = Command { lun: LUN, cdb: [0; 16], direction, length_bytes };
        self.session.submit(0, connection, command).unwrap()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.poll_event()).collect()
    }

    fn ends(&mut self) -> Vec<(u32, Outcome)> {
        let done = |event| match event {
            Event::Done(completion) => (completion.initiator_task_tag, completion.outcome),
            other => panic!("{other:?}"),
        };
        self.events().into_iter().map(done).collect()
    }

    /// The error of the session.
    fn error(&mut self) -> String {
        let ended = self.events().into_iter().find_map(|event| match event {
            Event::Ended(result) => Some(result),
            _ => None,
        });
        ended.expect("the session goes on").expect_err("it ended well").to_string()
    }
}

fn data_in(tag: u32, data_sn: u32, offset: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::DataIn)
        .initiator_task_tag(tag)
        .target_transfer_tag(RESERVED_TAG)
        .data_sn(SerialNumber(data_sn))
        .buffer_offset(offset)
}

fn with_status(builder: BhsBuilder) -> BhsBuilder {
    builder.is_final(true).has_status(true)
}

fn response(tag: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::ScsiResponse).initiator_task_tag(tag)
}

fn r2t(tag: u32, r2t_sn: u32, offset: u32, length: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::ReadyToTransfer)
        .initiator_task_tag(tag)
        .lun(LUN)
        .target_transfer_tag(1000 + r2t_sn)
        .r2t_sn(SerialNumber(r2t_sn))
        .buffer_offset(offset)
        .desired_data_transfer_length(length)
}

fn task_management(tag: u32) -> BhsBuilder {
    BhsBuilder::new(Opcode::TaskManagementResponse).initiator_task_tag(tag)
}
