//! One pass over the input: captures as one stream, an optional filter and time window, then the pipeline.

use crate::counters::Counter;
use crate::pipeline::Pipeline;
use crate::reader::filter::Filter;
use crate::reader::sequence::{Input, Progress, Sequence};
use crate::reader::{CaptureError, CaptureInfo};
use crate::tables::{Tables, Wanted};
use crate::tcp_info;

/// Which packets to read.
#[derive(Debug, Default)]
pub struct Selection {
    /// A capture filter in libpcap's syntax.
    pub capture_filter: Option<String>,
    /// The maximum number of packets that pass the filter and the time window.
    pub packet_limit: Option<u64>,
    /// The earliest capture time.
    pub time_from_ns: Option<i64>,
    /// The latest capture time.
    pub time_to_ns: Option<i64>,
    /// Whether the times are relative to the first packet instead of 1970.
    pub time_is_relative: bool,
    /// Names and texts of files of samples of TCP_INFO, for the table `tcp_info`.
    pub tcp_info_files: Vec<(String, String)>,
}

/// The result of a pass.
#[derive(Debug)]
pub struct Outcome {
    /// The tables.
    pub tables: Tables,
    /// Metadata of the captures.
    pub inputs: Vec<CaptureInfo>,
    /// Packets that passed the filter and the time window.
    pub packet_count: u64,
    /// TCP packets among them.
    pub tcp_packet_count: u64,
    /// The first packet that passed.
    pub first_packet: Option<FirstPacket>,
}

/// Identifies a capture: time and length of its first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstPacket {
    /// Capture time in nanoseconds since 1970.
    pub time_ns: i64,
    /// Bytes on the wire.
    pub original_length: u32,
}

/// Why a pass ended early.
#[derive(Debug)]
pub enum Interrupted<E> {
    /// The input failed.
    Capture(CaptureError),
    /// The caller ended it.
    Caller(E),
}

impl<E> From<CaptureError> for Interrupted<E> {
    fn from(error: CaptureError) -> Self {
        Self::Capture(error)
    }
}

/// The error for captures without any packet of a supported link type.
fn undecodable(sequence: &Sequence) -> CaptureError {
    let names: Vec<_> = sequence.infos().map(|info| info.name.clone()).collect();
    let mut link_types: Vec<_> = sequence.infos().flat_map(|info| info.link_types.clone()).collect();
    link_types.sort_unstable();
    link_types.dedup();
    let link_types: Vec<_> = link_types.iter().map(u16::to_string).collect();
    CaptureError::LinkTypeUnsupported { name: names.join(", "), link_types: link_types.join(", ") }
}

/// Packets between two calls of `report`.
pub(crate) const REPORT_EVERY_PACKETS: u64 = 1 << 11;

/// Reads the inputs to their end. `report` is called every 2,048 packets with the progress, and can end the pass.
///
/// # Errors
/// An input is not a capture or cannot be read, and no packet was read before; no input has any packet; the filter is
/// invalid; or `report` returned an error.
pub fn run<E>(
    inputs: Vec<Input>,
    selection: &Selection,
    wanted: Wanted,
    mut report: impl FnMut(&Progress) -> Result<(), E>,
) -> Result<Outcome, Interrupted<E>> {
    let mut filter = selection.capture_filter.as_deref().map(Filter::new).transpose()?;
    let mut pipeline = Pipeline::new(wanted);
    pipeline.settle_early();
    pipeline.analyse_apart();
    let mut sequence = Sequence::open(inputs, pipeline.counters())?;
    if wanted.tcp_info {
        sequence.keep_samples();
    }
    let progress = sequence.progress();
    let mut packet_count = 0;
    let mut first_packet = None;
    let mut until_report = REPORT_EVERY_PACKETS;
    let mut window: Option<(i64, i64)> = None;
    while selection.packet_limit.is_none_or(|limit| packet_count < limit) {
        let Some(packet) = sequence.next_packet(pipeline.counters())? else { break };
        until_report -= 1;
        if until_report == 0 {
            until_report = REPORT_EVERY_PACKETS;
            report(&progress).map_err(Interrupted::Caller)?;
        }
        let (from_ns, to_ns) = *window.get_or_insert_with(|| {
            let origin_ns = if selection.time_is_relative { packet.time_ns } else { 0 };
            (
                selection.time_from_ns.map_or(i64::MIN, |from_ns| from_ns.saturating_add(origin_ns)),
                selection.time_to_ns.map_or(i64::MAX, |to_ns| to_ns.saturating_add(origin_ns)),
            )
        });
        if packet.time_ns < from_ns || packet.time_ns > to_ns {
            continue;
        }
        if let Some(filter) = &mut filter
            && !filter.matches(packet.link_type, packet.data)
        {
            continue;
        }
        if packet_count == 0 {
            first_packet = Some(FirstPacket { time_ns: packet.time_ns, original_length: packet.original_length });
        }
        packet_count += 1;
        let link_type = packet.link_type;
        pipeline.packet(&packet);
        if pipeline.has_many_connections() {
            pipeline.prefetch(link_type, sequence.after_next());
        }
    }
    report(&progress).map_err(Interrupted::Caller)?;
    let tcp_packet_count = pipeline.tcp_packet_count;
    if packet_count > 0 && pipeline.counters().total(Counter::LinkTypeUnsupported) == packet_count {
        return Err(undecodable(&sequence).into());
    }
    let mut tables = pipeline.finish();
    if wanted.tcp_info {
        let sources = tcp_info::sources(sequence.take_samples(), &selection.tcp_info_files)?;
        tcp_info::fill(&mut tables, &sources, window.unwrap_or((i64::MIN, i64::MAX)));
    }
    Ok(Outcome { tables, inputs: sequence.infos().cloned().collect(), packet_count, tcp_packet_count, first_packet })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A classic pcap file with one empty Ethernet-sized packet of that link type, captured in that second.
    fn capture_at(link_type: u32, time_s: u32) -> Input {
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, link_type, time_s, 0, 60, 60] {
            bytes.extend_from_slice(&u32::to_le_bytes(word));
        }
        bytes.extend_from_slice(&[0; 60]);
        Input::Reader { name: "made".into(), reader: Box::new(std::io::Cursor::new(bytes)) }
    }

    fn capture(link_type: u32) -> Input {
        capture_at(link_type, 1)
    }

    fn outcome(inputs: Vec<Input>) -> Result<Outcome, Interrupted<()>> {
        run(inputs, &Selection::default(), Wanted::default(), |_| Ok(()))
    }

    #[test]
    fn an_undecodable_capture_is_an_error() {
        let Err(Interrupted::Capture(error)) = outcome(vec![capture(105)]) else { panic!("no error") };
        assert!(error.to_string().contains("link type 105 is not supported"), "{error}");
    }

    #[test]
    fn one_decodable_packet_is_enough() {
        let outcome = outcome(vec![capture(105), capture(1)]).unwrap_or_else(|_| panic!("an error"));
        assert_eq!(outcome.packet_count, 2);
    }

    #[test]
    fn both_ends_of_the_window_belong_to_it() {
        let inputs = (1..=5).map(|time_s| capture_at(1, time_s)).collect();
        let selection = Selection {
            time_from_ns: Some(1_000_000_000),
            time_to_ns: Some(3_000_000_000),
            time_is_relative: true,
            ..Selection::default()
        };
        let outcome = run::<()>(inputs, &selection, Wanted::default(), |_| Ok(()));
        let outcome = outcome.unwrap_or_else(|_| panic!("an error"));
        // seconds 2, 3 and 4
        assert_eq!(outcome.packet_count, 3);
        assert_eq!(outcome.first_packet, Some(FirstPacket { time_ns: 2_000_000_000, original_length: 60 }));
    }

    #[test]
    fn a_later_invalid_input_does_not_affect_the_first() {
        let junk = || Input::Reader { name: "junk".into(), reader: Box::new(&b"this is no capture at all"[..]) };
        let outcome = outcome(vec![capture(1), junk(), capture(1)]).unwrap_or_else(|_| panic!("an error"));
        assert_eq!(outcome.packet_count, 2);
        assert!(outcome.tables.counters.name.iter().any(|name| name == "input_unreadable"));
        let Err(Interrupted::Capture(error)) = self::outcome(vec![junk(), capture(1)]) else { panic!("no error") };
        assert!(error.to_string().starts_with("junk is not a capture"), "{error}");
    }
}
