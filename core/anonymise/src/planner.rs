//! PDUs of the first pass -> what stands where in each stream: headers, names' replacements, digests.

use iscsitrace_trace::iscsi::noted::{Note, NotedPdu};
use iscsitrace_wire::bhs::{Bhs, Field, LENGTH_BYTES, field_end};
use iscsitrace_wire::cdb;
use iscsitrace_wire::digest;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::parameter_data::ParameterData;
use rustc_hash::FxHashMap;

use crate::address::Addresses;
use crate::data;
use crate::key::Key;
use crate::plan::Plan;
use crate::text::text;

/// Bytes at the start of a write by which the same write on another session is recognised, and by how many they are
/// replaced.
const WRITE_START_BYTES: usize = 64;
const WRITE_MARK_BYTES: usize = 8;
/// Text or parameter data that may continue; more of one direction is none.
const CONTINUED_MAX: usize = 16;
/// Most bytes of them.
const CONTINUED_BYTES_MAX: usize = 64 << 10;
/// Type of an AHS with an extended CDB (RFC 7143 section 11.2.2).
const AHS_EXTENDED_CDB: u8 = 1;

/// What text or data of several PDUs belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    Text,
    Parameters(ParameterData),
}

/// The PDUs of one text, or of the parameter data of one command, until its last.
struct Continued {
    task_tag: Option<u32>,
    whole: Whole,
    bytes: Vec<u8>,
    pdus: Vec<NotedPdu>,
}

/// What stands at the start of a data segment, and its length.
type Data = (Box<[u8]>, usize);

/// Makes the plan.
pub struct Planner<'a> {
    key: &'a Key,
    addresses: &'a Addresses,
    keeps_models: bool,
    continued: FxHashMap<(u32, bool), Vec<Continued>>,
    /// The last data of a direction, whose digest may come late.
    last_data: FxHashMap<(u32, bool), Data>,
    /// What stands where, so far.
    pub plan: Plan,
}

impl<'a> Planner<'a> {
    /// A planner without PDUs.
    pub fn new(key: &'a Key, addresses: &'a Addresses, keeps_models: bool) -> Self {
        Self {
            key,
            addresses,
            keeps_models,
            continued: FxHashMap::default(),
            last_data: FxHashMap::default(),
            plan: Plan::default(),
        }
    }

    /// Takes a note of the first pass.
    pub fn take(&mut self, note: Note) {
        match note {
            Note::Pdu(pdu) => self.pdu(pdu),
            Note::LateDigest { connection, to_target, offset } => {
                if let Some((data, length)) = self.last_data.get(&(connection, to_target)) {
                    let digest = digest::to_wire(crc_of(data, *length));
                    self.plan.stream(connection, to_target).put(offset, &digest);
                }
            }
            Note::Assumed { connection, to_target, offset, header: own } => {
                self.plan.stream(connection, to_target).put(offset, &header(self.key, &own));
            }
            Note::Restart { connection, direction, frame, offset, base } => {
                self.plan.restart(connection, direction, frame, base, offset);
            }
            Note::Closed { connection, is_client_initiator, bases } => {
                for to_target in [true, false] {
                    for continued in self.continued.remove(&(connection, to_target)).unwrap_or_default() {
                        self.end(continued);
                    }
                }
                self.plan.close(connection, is_client_initiator, bases);
            }
        }
    }

    /// The plan, after the last note.
    pub fn finish(mut self) -> Plan {
        self.plan.complete();
        self.plan
    }

    fn pdu(&mut self, pdu: NotedPdu) {
        let bhs = Bhs::new(&pdu.header);
        let (whole, is_last) = match (bhs.opcode(), pdu.describes) {
            (Some(Opcode::LoginRequest | Opcode::LoginResponse | Opcode::TextRequest | Opcode::TextResponse), _) => {
                (Whole::Text, bhs.is_continue() != Some(true))
            }
            (Some(Opcode::DataIn), Some(kind)) => (Whole::Parameters(kind), bhs.is_final() == Some(true)),
            _ => {
                let data = self.own_data(&pdu);
                self.put(&pdu, &data);
                return;
            }
        };
        let task_tag = bhs.initiator_task_tag();
        let begins = whole == Whole::Text || bhs.buffer_offset() == Some(0);
        let place = bhs.buffer_offset().map_or(0, |offset| offset as usize);
        let held = self.continued.entry((pdu.connection, pdu.to_target)).or_default();
        let begun = held.iter().position(|earlier| earlier.task_tag == task_tag && earlier.whole == whole);
        let mut continued = match begun {
            Some(begun) if whole == Whole::Text || held[begun].bytes.len() == place => held.remove(begun),
            // what lacks its beginning has no structure
            _ if !begins => {
                self.put(&pdu, &[]);
                return;
            }
            _ => Continued { task_tag, whole, bytes: Vec::new(), pdus: Vec::new() },
        };
        continued.bytes.extend_from_slice(&pdu.data);
        let is_full = continued.bytes.len() > CONTINUED_BYTES_MAX || held.len() >= CONTINUED_MAX;
        continued.pdus.push(pdu);
        if is_last || is_full {
            self.end(continued);
        } else {
            held.push(continued);
        }
    }

    /// Replaces a text, or parameter data, and puts its PDUs in their places.
    fn end(&mut self, continued: Continued) {
        let replaced = match continued.whole {
            Whole::Text => text(self.key, self.addresses, &continued.bytes),
            Whole::Parameters(kind) => data::parameter_data(self.key, kind, &continued.bytes, self.keeps_models),
        };
        let mut rest = &replaced[..];
        for pdu in &continued.pdus {
            let (own, following) = rest.split_at(pdu.data.len().min(rest.len()));
            rest = following;
            self.put(pdu, own);
        }
    }

    /// What stands at the start of the data of any other PDU.
    fn own_data(&self, pdu: &NotedPdu) -> Vec<u8> {
        let bhs = Bhs::new(&pdu.header);
        match bhs.opcode() {
            Some(Opcode::ScsiResponse) => data::sense(&pdu.data),
            Some(Opcode::Reject) => header(self.key, &pdu.data),
            // equal data stays equal, so that the same writes on several sessions are recognised
            Some(Opcode::ScsiCommand | Opcode::DataOut) if !pdu.data.is_empty() => {
                let start = &pdu.data[..pdu.data.len().min(WRITE_START_BYTES)];
                let mark = self.key.digest("write", &[start]);
                mark[..WRITE_MARK_BYTES.min(start.len())].to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Puts a PDU in its place: its header, the digests that it had, and what stands at the start of its data.
    fn put(&mut self, pdu: &NotedPdu, data: &[u8]) {
        let bhs = Bhs::new(&pdu.header);
        let ahs_length = bhs.total_ahs_length_bytes().unwrap_or(0) as usize;
        let data_length = bhs.data_segment_length().unwrap_or(0) as usize;
        let data_start = pdu.data_end - data_length as i64;
        let digest_start = data_start + data_length.next_multiple_of(4) as i64;
        let mut head = header(self.key, &pdu.header);
        let is_whole = head.len() == LENGTH_BYTES;
        head.extend(extended(ahs_length).take(if is_whole { ahs_length } else { 0 }));
        let has_header_digest = data_start - pdu.offset == (LENGTH_BYTES + ahs_length + 4) as i64;
        if is_whole && has_header_digest {
            head.extend(digest_of(digest::crc32c(&head), pdu.header_digest_ok));
        }
        let stream = self.plan.stream(pdu.connection, pdu.to_target);
        stream.put(pdu.offset, &head);
        let data = &data[..data.len().min(data_length)];
        stream.put(data_start, data);
        if data_length == 0 {
            return;
        }
        if pdu.end - digest_start == 4 {
            stream.put(digest_start, &digest_of(crc_of(data, data_length), pdu.data_digest_ok));
        } else {
            self.last_data.insert((pdu.connection, pdu.to_target), (data.into(), data_length));
        }
    }
}

/// A header: the fields of its type, as far as they are there, with another ISID and the CDB of a known command.
fn header(key: &Key, original: &[u8]) -> Vec<u8> {
    let bhs = Bhs::new(original);
    let mut replaced = bhs.fields_alone();
    let Some(opcode) = bhs.opcode() else { return replaced };
    if let Some(end) = field_end(opcode, Field::Isid).map(usize::from)
        && let Some(isid) = replaced.get_mut(end - 6..end)
    {
        // the upper two bits say who made it (RFC 7143 section 11.12.5)
        let random = key.digest("ISID", &[isid]);
        isid.iter_mut().zip(random).for_each(|(byte, random)| *byte = random);
        isid[0] = isid[0] & 0x3f | original[end - 6] & 0xc0;
    }
    if opcode == Opcode::ScsiCommand
        && let Some(own) = original.get(32..LENGTH_BYTES)
    {
        replaced[32..].copy_from_slice(&command(own));
    }
    replaced
}

/// The CDB of a command that is known, without what follows it; of others the operation code, and the service action,
/// where it has one.
fn command(original: &[u8]) -> [u8; 16] {
    let kept = match cdb::command(original, None).filter(|command| command.operation != cdb::Operation::Other) {
        Some(command) => command.length().unwrap_or(16),
        None if cdb::decode(original, None).service_action.is_some() => 2,
        None => 1,
    };
    let mut replaced = [0; 16];
    replaced[..kept].copy_from_slice(&original[..kept]);
    replaced
}

/// The bytes of an AHS of this length, with nothing in it.
fn extended(length: usize) -> impl Iterator<Item = u8> {
    // AHSLength counts what follows the type
    let [high, low] = u16::try_from(length.saturating_sub(3)).unwrap_or(u16::MAX).to_be_bytes();
    [high, low, AHS_EXTENDED_CDB].into_iter().chain(std::iter::repeat(0))
}

/// The digest of a CRC: a wrong one, where it was wrong.
fn digest_of(crc: u32, is_right: Option<bool>) -> [u8; 4] {
    digest::to_wire(if is_right == Some(false) { !crc } else { crc })
}

/// The CRC of a data segment of this length with padding, which starts with these bytes and goes on with zeros.
fn crc_of(start: &[u8], length: usize) -> u32 {
    digest::append_zeros(digest::crc32c(start), length.next_multiple_of(4) - start.len())
}
