//! A scripted initiator: it sends the PDUs of a test, and keeps the portal's answers.

use iscsitrace_lab::application::{Application, ConnectionNumber};
use iscsitrace_lab::protocol::pdu::{Decoder, Digests, Piece, encode};
use iscsitrace_lab::protocol::target::{Portal, PortalSettings};
use iscsitrace_lab::scsi::{DeviceSettings, LogicalUnitSettings};
use iscsitrace_wire::bhs::{Bhs, BhsBuilder, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

pub const TARGET: &str = "iqn.2025-01.org.iscsitrace:memory";
pub const INITIATOR: &str = "iqn.2025-01.org.iscsitrace:tester";
/// Addresses of the initiator and the portal.
pub const PEER: &str = "192.0.2.1:50000";
pub const LOCAL: &str = "192.0.2.2:3260";
pub const MILLISECOND: i64 = 1_000_000;
pub const SECOND: i64 = 1_000_000_000;

/// A PDU of the portal.
#[derive(Clone, PartialEq, Eq)]
pub struct Pdu {
    pub header: [u8; 48],
    pub data: Vec<u8>,
    pub is_data_digest_good: bool,
    /// Number of its system call among those polled together.
    pub call: usize,
}

impl Pdu {
    pub fn bhs(&self) -> Bhs<'_> {
        Bhs::new(&self.header)
    }
}

impl std::fmt::Debug for Pdu {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.bhs())
    }
}

struct End {
    number: ConnectionNumber,
    decoder: Decoder,
    digests: Digests,
    exp_stat_sn: SerialNumber,
}

/// The initiator and the portal.
pub struct Conversation {
    pub portal: Portal,
    pub now_ns: i64,
    ends: Vec<End>,
    pub cmd_sn: u32,
    pub tsih: u16,
    pub isid: [u8; 6],
    /// Whether StatSN must increase without gaps.
    pub is_strict: bool,
}

/// Settings with one logical unit of 64 MiB, and no unit attentions.
pub fn settings() -> PortalSettings {
    let unit = LogicalUnitSettings { size_bytes: 64 << 20, ..LogicalUnitSettings::default() };
    let target = DeviceSettings {
        target_name: TARGET.into(),
        has_power_on_unit_attention: false,
        logical_units: vec![unit],
        ..DeviceSettings::default()
    };
    PortalSettings { targets: vec![target], ..PortalSettings::default() }
}

pub fn text(pairs: &[(&str, &str)]) -> Vec<u8> {
    pairs.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
}

fn pairs_of(data: &[u8]) -> Vec<(String, String)> {
    iscsitrace_wire::text::pairs(data).flatten().map(|(key, value)| (key.to_owned(), value.into_owned())).collect()
}

impl Conversation {
    pub fn new(settings: PortalSettings) -> Self {
        let portal = Portal::new(settings).expect("the settings make a portal");
        Self { portal, now_ns: 0, ends: Vec::new(), cmd_sn: 100, tsih: 0, isid: [0x80, 0, 0, 0, 0, 1], is_strict: true }
    }

    /// A conversation in the full feature phase, with these keys in the login.
    pub fn logged_in(settings: PortalSettings, keys: &[(&str, &str)]) -> Self {
        let mut conversation = Self::new(settings);
        conversation.connect();
        conversation.log_in(0, keys);
        conversation
    }

    /// Opens a connection; returns its index.
    pub fn connect(&mut self) -> usize {
        self.try_connect(LOCAL).expect("accepted")
    }

    /// Opens a connection to an address of the portal.
    pub fn try_connect(&mut self, local: &str) -> Option<usize> {
        let number = self.portal.accept(self.now_ns, PEER.parse().unwrap(), local.parse().unwrap())?;
        let decoder = Decoder::new(1 << 24);
        self.ends.push(End { number, decoder, digests: Digests::default(), exp_stat_sn: SerialNumber(0) });
        Some(self.ends.len() - 1)
    }

    pub fn number(&self, place: usize) -> ConnectionNumber {
        self.ends[place].number
    }

    pub fn is_open(&self, place: usize) -> bool {
        self.portal.connection_numbers().any(|number| number == self.ends[place].number)
    }

    /// Why a connection ended.
    pub fn ending(&self, place: usize) -> Option<String> {
        let number = self.ends[place].number;
        let record = self.portal.log().connections.iter().find(|record| record.connection == number);
        record.map(|record| record.ending.to_string())
    }

    /// Sends arbitrary bytes.
    pub fn send_bytes(&mut self, place: usize, bytes: &[u8]) {
        self.portal.receive(self.now_ns, self.ends[place].number, bytes);
    }

    /// A PDU as bytes, with ExpStatSN for all received PDUs.
    pub fn bytes_of(&self, place: usize, header: BhsBuilder, data: &[u8]) -> Vec<u8> {
        let is_set = Bhs::new(&header.build()).exp_stat_sn().is_some_and(|exp_stat_sn| exp_stat_sn.0 > 0);
        let header = if is_set { header } else { header.exp_stat_sn(self.ends[place].exp_stat_sn) };
        let mut out = Vec::new();
        let header = header.data_segment_length(data.len() as u32).build();
        encode(&mut out, &header, &[], self.ends[place].digests, |out| out.extend_from_slice(data));
        out
    }

    /// Sends a PDU.
    pub fn send(&mut self, place: usize, header: BhsBuilder, data: &[u8]) {
        let bytes = self.bytes_of(place, header, data);
        self.send_bytes(place, &bytes);
    }

    /// All PDUs that the portal sends on a connection.
    pub fn receive(&mut self, place: usize) -> Vec<Pdu> {
        let mut pdus = Vec::new();
        for call in 0.. {
            let mut out = Vec::new();
            self.portal.poll_transmit(self.now_ns, self.ends[place].number, &mut out);
            if out.is_empty() {
                break;
            }
            pdus.extend(self.decode(place, &out, call));
        }
        pdus
    }

    pub fn decode(&mut self, place: usize, bytes: &[u8], call: usize) -> Vec<Pdu> {
        let end = &mut self.ends[place];
        let (mut pdus, mut data, mut input) = (Vec::new(), Vec::new(), bytes);
        while let Some(piece) = end.decoder.next(&mut input).expect("a stream that can be read") {
            match piece {
                Piece::Header => data = Vec::new(),
                Piece::Data(bytes) => data.extend_from_slice(bytes),
                Piece::End { is_data_digest_good } => {
                    let header: [u8; 48] = end.decoder.bhs().as_bytes().try_into().unwrap();
                    let data = std::mem::take(&mut data);
                    pdus.push(Pdu { header, data, is_data_digest_good, call });
                }
            }
        }
        for pdu in &pdus {
            let bhs = pdu.bhs();
            assert_eq!(bhs.is_valid(), Ok(()), "{pdu:?} {:02x?}", pdu.header);
            if let Some(stat_sn) = bhs.stat_sn() {
                let is_status = bhs.opcode() != Some(Opcode::ReadyToTransfer)
                    && !(bhs.opcode() == Some(Opcode::NopIn) && bhs.initiator_task_tag() == Some(RESERVED_TAG));
                let is_first = bhs.opcode() == Some(Opcode::LoginResponse) && end.exp_stat_sn == SerialNumber(0);
                if self.is_strict && !is_first {
                    assert_eq!(stat_sn, end.exp_stat_sn, "StatSN of {pdu:?}");
                }
                if is_status {
                    end.exp_stat_sn = stat_sn.next();
                }
            }
        }
        pdus
    }

    /// The only PDU that the portal sends.
    pub fn receive_one(&mut self, place: usize) -> Pdu {
        let mut pdus = self.receive(place);
        assert_eq!(pdus.len(), 1, "{pdus:?}");
        pdus.remove(0)
    }

    pub fn receive_nothing(&mut self, place: usize) {
        let pdus = self.receive(place);
        assert!(pdus.is_empty(), "{pdus:?}");
    }

    /// Advances to the portal's next timeout, at most to this time.
    pub fn pass(&mut self, until_ns: i64) {
        while let Some(at_ns) = self.portal.poll_timeout().filter(|at_ns| *at_ns <= until_ns) {
            self.now_ns = self.now_ns.max(at_ns);
            self.portal.handle_timeout(self.now_ns);
        }
        self.now_ns = until_ns;
    }

    pub fn login_request(&self, cid: u16, csg: u8, nsg: u8) -> BhsBuilder {
        BhsBuilder::new(Opcode::LoginRequest)
            .is_transit(true)
            .current_stage(csg)
            .next_stage(nsg)
            .isid(self.isid)
            .tsih(self.tsih)
            .cid(cid)
            .initiator_task_tag(1)
            .cmd_sn(SerialNumber(self.cmd_sn))
    }

    /// Logs a connection in, directly to the full feature phase; its CID is its index.
    pub fn log_in(&mut self, place: usize, keys: &[(&str, &str)]) -> Pdu {
        let mut pairs = vec![("InitiatorName", INITIATOR), ("TargetName", TARGET)];
        pairs.extend_from_slice(keys);
        let response = self.try_log_in(place, place as u16, &pairs);
        assert_eq!(response.bhs().status_class(), Some(0), "{response:?}");
        assert_eq!(response.bhs().next_stage(), Some(3));
        let is_crc = |key: &str| keys.contains(&(key, "CRC32C"));
        let digests = Digests { header: is_crc("HeaderDigest"), data: is_crc("DataDigest") };
        self.ends[place].digests = digests;
        self.ends[place].decoder.agree(digests, 1 << 24);
        self.tsih = response.bhs().tsih().unwrap();
        response
    }

    pub fn try_log_in(&mut self, place: usize, cid: u16, pairs: &[(&str, &str)]) -> Pdu {
        let mut data = text(pairs);
        loop {
            self.send(place, self.login_request(cid, 1, 3), &data);
            let response = self.receive_one(place);
            assert_eq!(response.bhs().opcode(), Some(Opcode::LoginResponse));
            if response.bhs().is_transit() == Some(true) || response.bhs().status_class() != Some(0) {
                return response;
            }
            // the target's offers are accepted; each of its lists begins or ends with None
            let offered = pairs_of(&response.data);
            let is_answer = |key: &str| pairs.iter().any(|(said, _)| *said == key);
            let is_declared = |key: &str| ["TargetPortalGroupTag", "MaxRecvDataSegmentLength"].contains(&key);
            let answers = offered.iter().filter(|(key, _)| !is_answer(key) && !is_declared(key));
            let accepted = |(key, value): &(String, String)| {
                format!("{key}={}\0", if value.contains("None") { "None" } else { value })
            };
            data = answers.map(accepted).collect::<String>().into_bytes();
        }
    }

    /// CmdSN of the next command.
    pub fn next_cmd_sn(&mut self) -> SerialNumber {
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        SerialNumber(self.cmd_sn.wrapping_sub(1))
    }

    pub fn command(&mut self, tag: u32, cdb: [u8; 16], length: u32) -> BhsBuilder {
        let cmd_sn = self.next_cmd_sn();
        BhsBuilder::new(Opcode::ScsiCommand)
            .is_final(true)
            .task_attribute(1)
            .initiator_task_tag(tag)
            .cmd_sn(cmd_sn)
            .expected_data_transfer_length(length)
            .cdb(cdb)
    }

    /// READ(10) with the matching Expected Data Transfer Length.
    pub fn read(&mut self, tag: u32, lba: u32, blocks: u16) -> BhsBuilder {
        self.command(tag, cdb10(0x28, lba, blocks), u32::from(blocks) * 512).is_read(true)
    }

    /// WRITE(10) with the matching Expected Data Transfer Length.
    pub fn write(&mut self, tag: u32, lba: u32, blocks: u16) -> BhsBuilder {
        self.command(tag, cdb10(0x2a, lba, blocks), u32::from(blocks) * 512).is_write(true)
    }

    pub fn test_unit_ready(&mut self, tag: u32) -> BhsBuilder {
        self.command(tag, [0; 16], 0)
    }

    pub fn data_out(&self, tag: u32, transfer_tag: u32, data_sn: u32, offset: u32, is_final: bool) -> BhsBuilder {
        BhsBuilder::new(Opcode::DataOut)
            .is_final(is_final)
            .initiator_task_tag(tag)
            .target_transfer_tag(transfer_tag)
            .data_sn(SerialNumber(data_sn))
            .buffer_offset(offset)
    }

    pub fn management(&mut self, tag: u32, function: u8) -> BhsBuilder {
        BhsBuilder::new(Opcode::TaskManagementRequest)
            .is_immediate(true)
            .function(function)
            .initiator_task_tag(tag)
            .referenced_task_tag(RESERVED_TAG)
            .cmd_sn(SerialNumber(self.cmd_sn))
    }

    /// Writes blocks as immediate data, and expects GOOD.
    pub fn store(&mut self, lba: u32, data: &[u8]) {
        for (place, chunk) in data.chunks(8192).enumerate() {
            let lba = lba + place as u32 * 16;
            let command = self.write(0x7000_0000, lba, (chunk.len() / 512) as u16);
            self.send(0, command, chunk);
            assert_eq!(self.receive_one(0).bhs().status(), Some(0));
        }
    }

    /// Reads blocks, with any Data-In, and expects GOOD.
    pub fn load(&mut self, lba: u32, blocks: u16) -> Vec<u8> {
        let command = self.read(0x7000_0001, lba, blocks);
        self.send(0, command, &[]);
        let pdus = self.receive(0);
        assert_eq!(pdus.last().unwrap().bhs().status(), Some(0), "{pdus:?}");
        pdus.iter().flat_map(|pdu| pdu.data.clone()).collect()
    }
}

pub fn cdb10(code: u8, lba: u32, blocks: u16) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = code;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// Bytes that differ by offset.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|place| (place as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

pub fn opcodes(pdus: &[Pdu]) -> Vec<Opcode> {
    pdus.iter().filter_map(|pdu| pdu.bhs().opcode()).collect()
}

/// Sense key, additional sense code and qualifier of a SCSI Response.
pub fn sense(pdu: &Pdu) -> [u8; 3] {
    assert_eq!(pdu.bhs().status(), Some(2), "{pdu:?}");
    assert_eq!(pdu.data[..2], (pdu.data.len() as u16 - 2).to_be_bytes(), "SenseLength");
    [pdu.data[4] & 0x0f, pdu.data[14], pdu.data[15]]
}
