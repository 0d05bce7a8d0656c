//! The two passes: the streams of the input are planned, then its packets are written by the plan.
//!
//! Each packet stays, with its time and length, so that frame and connection numbers stay. Entries between packets that count
//! as frames (samples of the kernel, times that cannot be) become entries of a journal.

use std::io::{self, Write};

use iscsitrace_trace::counters::Counters;
use iscsitrace_trace::pipeline::Pipeline;
use iscsitrace_trace::reader::sequence::{Input, Progress, Sequence};
use iscsitrace_trace::reader::{CaptureError, CaptureInfo, Packet, TimeResolution};
use iscsitrace_trace::tables::Wanted;
use iscsitrace_trace::tcp_info::JOURNAL_SOURCE;
use iscsitrace_wire::capture_writer::{Interface, PcapngWriter};
use iscsitrace_wire::frame::{LinkType, NotTcp, layers};
use iscsitrace_wire::tcp_info::TcpSample;
use rustc_hash::FxHashMap;

use crate::address::Addresses;
use crate::emptied::emptied;
use crate::frame::Rewritten;
use crate::key::{KEY_BYTES, Key};
use crate::plan::Plan;
use crate::planner::Planner;

/// Packets between two calls of `report`.
const REPORT_EVERY_PACKETS: u64 = 1 << 14;
/// What stands for an entry between packets that is left out.
const LEFT_OUT: (&str, &str) = ("iscsitrace", "left out");

/// How to replace names.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The secret: the same one gives the same names.
    pub key: [u8; KEY_BYTES],
    /// Whether vendor, product and revision of logical units stay.
    pub keeps_models: bool,
    /// Whether packets of no iSCSI connection are left out.
    pub drops_others: bool,
    /// The program that writes.
    pub application: String,
}

/// What was written.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Packets that were read.
    pub packet_count: u64,
    /// iSCSI connections.
    pub connection_count: u64,
    /// Packets of other TCP connections: written with zeros as payload, or left out.
    pub other_tcp_count: u64,
    /// Packets without a TCP segment: written as zeros, or left out.
    pub not_tcp_count: u64,
}

/// Why nothing was written.
#[derive(Debug)]
pub enum Failure<E> {
    /// An input is not a capture, or cannot be read.
    Capture(CaptureError),
    /// The output cannot be written.
    Output(io::Error),
    /// The caller ended it.
    Caller(E),
}

impl<E> From<CaptureError> for Failure<E> {
    fn from(error: CaptureError) -> Self {
        Self::Capture(error)
    }
}

impl<E> From<io::Error> for Failure<E> {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Reads the inputs twice, and writes them as one pcapng file. `report` is called every 16,384 packets, and can end it.
///
/// # Errors
/// An input is not a capture or cannot be read, the output cannot be written, or `report` returned an error.
pub fn anonymise<E>(
    mut inputs: impl FnMut() -> Vec<Input>,
    out: impl Write,
    settings: &Settings,
    mut report: impl FnMut(&Progress) -> Result<(), E>,
) -> Result<Outcome, Failure<E>> {
    let key = Key::new(&settings.key);
    let addresses = Addresses::new(&key);
    let mut planner = Planner::new(&key, &addresses, settings.keeps_models);
    let mut counters = Counters::default();
    let mut sequence = Sequence::open(inputs(), &mut counters)?;
    let mut pipeline = pipeline();
    pipeline.keep_notes();
    let progress = sequence.progress();
    let mut packet_count = 0;
    while let Some(packet) = sequence.next_packet(&mut counters)? {
        pipeline.packet(&packet);
        pipeline.take_notes().into_iter().for_each(|note| planner.take(note));
        packet_count += 1;
        if packet_count % REPORT_EVERY_PACKETS == 0 {
            report(&progress).map_err(Failure::Caller)?;
        }
    }
    pipeline.finish_notes().into_iter().for_each(|note| planner.take(note));
    let mut writer = Writer {
        out: PcapngWriter::new(out, &settings.application)?,
        interfaces: FxHashMap::default(),
        addresses: &addresses,
        plan: planner.finish(),
        drops_others: settings.drops_others,
        outcome: Outcome { packet_count, ..Outcome::default() },
    };
    writer.outcome.connection_count = writer.plan.connection_count() as u64;
    writer.write(inputs(), &mut report)?;
    writer.out.finish()?;
    Ok(writer.outcome)
}

/// The pass that both passes are: connections get the same numbers.
fn pipeline() -> Pipeline {
    let mut wanted = Wanted::default();
    wanted.add("write_starts");
    let mut pipeline = Pipeline::new(wanted);
    pipeline.settle_early();
    pipeline
}

/// The second pass.
struct Writer<'a, W: Write> {
    out: PcapngWriter<W>,
    /// Numbers of interfaces in the output, by input and number there.
    interfaces: FxHashMap<(usize, u32), u32>,
    addresses: &'a Addresses,
    plan: Plan,
    drops_others: bool,
    outcome: Outcome,
}

impl<W: Write> Writer<'_, W> {
    fn write<E>(
        &mut self,
        inputs: Vec<Input>,
        report: &mut impl FnMut(&Progress) -> Result<(), E>,
    ) -> Result<(), Failure<E>> {
        let mut counters = Counters::default();
        let mut sequence = Sequence::open(inputs, &mut counters)?;
        sequence.keep_samples();
        let mut pipeline = pipeline();
        let progress = sequence.progress();
        let (mut frame, mut data) = (0, Vec::new());
        while let Some(packet) = sequence.next_packet(&mut counters)? {
            data.clear();
            data.extend_from_slice(packet.data);
            let packet = Packet { data: &data, ..packet };
            let number = self.interface(&sequence, packet.interface)?;
            let samples = sequence.take_samples();
            self.between(packet.frame - frame - 1, &samples, packet.time_ns)?;
            frame = packet.frame;
            pipeline.packet(&packet);
            if let Some(bytes) = self.packet(&packet, &mut pipeline) {
                self.out.packet(number, packet.time_ns, packet.original_length, &bytes, None)?;
            }
            if frame % REPORT_EVERY_PACKETS == 0 {
                report(&progress).map_err(Failure::Caller)?;
            }
        }
        let samples = sequence.take_samples();
        let (_, last_ns) = sequence.reached();
        self.between(0, &samples, last_ns.max(0))?;
        self.statistics(&sequence)
    }

    /// The packet that is written in the place of another.
    fn packet(&mut self, packet: &Packet<'_>, pipeline: &mut Pipeline) -> Option<Vec<u8>> {
        let mut rewritten = Rewritten::zeros(packet.data, self.addresses);
        let found = layers(packet.link_type, packet.data, packet.original_length, |layer, place| {
            rewritten.header(layer, place);
        });
        let reason = match found {
            Ok(segment) => {
                let connection = pipeline.connection_of(&segment);
                let is_other = connection.is_none_or(|(connection, _)| !self.plan.has(connection));
                self.outcome.other_tcp_count += u64::from(is_other);
                if is_other && self.drops_others {
                    return None;
                }
                let sequence_number = segment.sequence_number.wrapping_add(u32::from(segment.flags.is_syn()));
                rewritten.payload(&segment, |payload| {
                    if let Some(connection) = connection {
                        self.plan.fill(connection, packet.frame, sequence_number, segment.payload_length, payload);
                    }
                });
                return Some(rewritten.bytes);
            }
            Err(reason) => reason,
        };
        self.outcome.not_tcp_count += 1;
        let is_error = matches!(reason, NotTcp::IcmpError(_));
        (is_error || !self.drops_others)
            .then(|| emptied(packet.link_type, packet.data, packet.original_length, &reason, self.addresses))
    }

    /// Writes what counts as frames between two packets: samples of TCP_INFO, and entries that are left out.
    fn between(&mut self, frames: u64, samples: &[TcpSample], time_ns: i64) -> io::Result<()> {
        for sample in samples {
            let ends = [sample.local, sample.remote].map(|mut end| {
                end.set_ip(self.addresses.ip(end.ip().to_canonical()));
                end
            });
            let mut moved = TcpSample { local: ends[0], remote: ends[1], ..sample.clone() };
            if !moved.has_known_congestion_control() {
                moved.congestion_control.clear();
            }
            let mut line = String::new();
            moved.line(&mut line);
            self.out.journal(sample.time_ns, JOURNAL_SOURCE, &line)?;
        }
        for _ in samples.len() as u64..if self.drops_others { 0 } else { frames } {
            self.out.journal(time_ns, LEFT_OUT.0, LEFT_OUT.1)?;
        }
        Ok(())
    }

    /// The number in the output of an interface of the current input.
    fn interface(&mut self, sequence: &Sequence, number: u32) -> io::Result<u32> {
        let input = sequence.infos().count();
        if let Some(&known) = self.interfaces.get(&(input, number)) {
            return Ok(known);
        }
        let own = sequence.infos().last().and_then(|info| info.interfaces.get(number as usize));
        let (link_type, snaplen, is_in_microseconds) = own.map_or((0, 0, false), |own| {
            (own.link_type, own.snaplen, own.time_resolution == TimeResolution::Decimal(6))
        });
        let described = Interface { is_in_microseconds, ..Interface::default() };
        let added = self.out.describe_interface(LinkType(link_type), snaplen, &described)?;
        self.interfaces.insert((input, number), added);
        Ok(added)
    }

    /// What the tools that captured say of dropped packets.
    fn statistics<E>(&mut self, sequence: &Sequence) -> Result<(), Failure<E>> {
        let infos: Vec<CaptureInfo> = sequence.infos().cloned().collect();
        for (input, info) in (1..).zip(&infos) {
            for (number, interface) in (0..).zip(&info.interfaces) {
                let (Some(time_ns), true) =
                    (info.time_last_ns, interface.received_count.or(interface.dropped_count).is_some())
                else {
                    continue;
                };
                let Some(&own) = self.interfaces.get(&(input, number)) else { continue };
                let ticks =
                    if interface.time_resolution == TimeResolution::Decimal(6) { time_ns / 1000 } else { time_ns };
                let [received, dropped] =
                    [interface.received_count, interface.dropped_count].map(Option::unwrap_or_default);
                self.out.statistics(own, ticks, received, dropped)?;
            }
        }
        Ok(())
    }
}
