//! The rate of the line that connections share, from stretches in which it had a queue.
//!
//! ```text
//! deliveries   |   | | | | | | | |     |   bytes that came out of the line, of all connections between two hosts
//! queue            [-------------]         one RTT less that of the path before each: the bytes were waiting
//! windows          [----][----][--         16 packets and more each: bytes / time
//! ```
//!
//! A line with a queue sends at its rate, however the senders behave. Windows shorter than an RTT show that: what a
//! window of TCP, a host or a device limits comes in bursts, and is even only over longer times. A rate that windows of
//! no size agree on is no rate of a line.

use iscsitrace_wire::frame::Address;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::deliveries::{Deliveries, Delivery};
use super::load::quartiles;
use super::packed::Packed;
use super::sender_state::is_beside;
use super::timeline::{Hosts, Queued, Timeline, join};
use crate::tables::Senders;

/// Headers of a packet on Ethernet: 14 bytes, IPv4 20, TCP 20.
const HEADER_BYTES: f64 = 54.0;
/// TCP timestamps in the header.
const TIMESTAMPS_BYTES: f64 = 12.0;
/// The header of IPv6 is longer by these bytes.
const IPV6_BYTES: f64 = 20.0;
/// Packets in the smallest window: more than hosts and network cards hand over at once, as a rule.
const WINDOW_PACKETS: f64 = 16.0;
/// Deliveries with different times in a window: stamps can be shared by many packets.
const WINDOW_DELIVERIES: u32 = 8;
/// A window is mostly one gap if that takes more than one of so many parts.
const GAP_PARTS_MIN: i64 = 2;
/// At most one of so many windows is.
const PAUSED_PARTS_MIN: usize = 4;
/// Windows are doubled up to this many times.
const DOUBLINGS_MAX: u32 = 16;
/// Minimum number of windows.
const WINDOWS_MIN: usize = 8;
/// The quartiles of the windows differ by at most this part of the median: nothing comes out of a line faster than its rate,
/// and little much slower, where other packets use it, too.
const ABOVE_MAX: f64 = 0.05;
/// See `ABOVE_MAX`.
const BELOW_MAX: f64 = 0.2;
/// A stretch with a queue runs at the line's rate if it has at least this part of it: otherwise a host paused.
const RATE_PART_MIN: f64 = 0.8;
/// Pairs of hosts share a queue if three quarters of at least this many changes between them
const QUEUE_CHANGES_MIN: usize = 32;
/// keep the time in the queue within this part.
const QUEUES_DIFFER_PARTS: u64 = 4;
/// Shorter breaks of a line are ignored.
const JOIN_NS: i64 = 5_000;
/// The mean packet has at least this part of a full segment: packets that answer others come at their pace.
const SEGMENT_PART_MIN: f64 = 0.5;

/// The initiator and the target whose connections are one group; none is any.
type Group = (Option<Address>, Option<Address>);

/// A line with a queue.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    /// Bytes per second with headers: lower quartile, median and upper quartile of the windows.
    rates: [f64; 3],
    window_count: usize,
    /// Bytes in the windows.
    bytes: f64,
    /// Median time in the queue.
    queue_ns: i64,
    /// When the line had a queue and ran at its rate: ordered and disjoint, as its deliveries passed.
    spans: Arc<[(i64, i64)]>,
    is_from_acks: bool,
}

impl Line {
    /// The line of the other direction, which shows no rate itself: its ACKs wait with other data of their sender. Each byte
    /// that waited takes as long as one the other way.
    fn turned(&self, flow: Flow<'_>) -> Self {
        let spans = spans(&outputs(&[flow], true), 0.0, 0.0, ns_per_byte(self.rates));
        Self { spans: spans.into(), is_from_acks: true, ..self.clone() }
    }

    /// That of a standing queue which data left at one rate: ACKs that waited with data of their sender do not show more.
    fn of_standing_queue(flow: Flow<'_>) -> Option<Self> {
        let queue = flow.timeline.standing[flow.direction].as_ref()?;
        Some(Self {
            rates: queue.rates?.map(|rate| rate * flow.wire_part()),
            window_count: queue.window_count,
            bytes: 0.0,
            queue_ns: queue.delay_ns,
            spans: Arc::default(),
            is_from_acks: false,
        })
    }
}

/// The data of one connection in one direction: 0 to the target.
#[derive(Debug, Clone, Copy)]
struct Flow<'a> {
    timeline: &'a Timeline,
    direction: usize,
}

impl<'a> Flow<'a> {
    fn deliveries(self) -> &'a Deliveries {
        &self.timeline.deliveries[self.direction]
    }

    /// Bytes of a packet before its payload.
    fn header_bytes(self) -> f64 {
        let is_ipv6 = self.timeline.hosts.is_some_and(|hosts| hosts.target.to_ip().is_ipv6());
        let has_timestamps = self.deliveries().has_timestamps;
        HEADER_BYTES + if is_ipv6 { IPV6_BYTES } else { 0.0 } + if has_timestamps { TIMESTAMPS_BYTES } else { 0.0 }
    }

    /// Bytes on the line for each byte of payload.
    fn wire_part(self) -> f64 {
        let Deliveries { payload_bytes, packet_count, .. } = *self.deliveries();
        1.0 + self.header_bytes() * packet_count as f64 / (payload_bytes as f64).max(1.0)
    }

    /// The deliveries at one place, and the RTT of the path from the tap to where the queue is: beyond the tap, or
    /// before it. None if a host is there and no path.
    fn at(self, is_from_acks: bool) -> Option<(&'a Packed<Delivery>, i64)> {
        let (to_target_ns, to_initiator_ns) = (self.timeline.rtt_to_target_ns?, self.timeline.rtt_to_initiator_ns?);
        let is_to_target = is_from_acks == (self.direction == 0);
        let path_ns = if is_to_target { to_target_ns } else { to_initiator_ns };
        let is_beside = is_beside(path_ns, to_target_ns.saturating_add(to_initiator_ns));
        let deliveries = self.deliveries();
        let deliveries = if is_from_acks { &deliveries.acknowledged } else { &deliveries.arrived };
        (!is_beside).then_some((deliveries, path_ns))
    }
}

/// Fills the line columns of `senders`, and adds the time in the queue of a line to the time when it was busy.
/// The timelines have no deliveries afterwards.
pub fn fill(senders: &mut Senders, timelines: &mut [Timeline]) {
    let mut found: Vec<[Option<usize>; 2]> = vec![[None; 2]; timelines.len()];
    let mut lines = Vec::new();
    for direction in [0, 1] {
        // what a host exchanges with several others, if all of it waits in one queue; then what two hosts exchange
        let keys: [fn(Hosts) -> Group; 3] = [
            |hosts| (Some(hosts.initiator), None),
            |hosts| (None, Some(hosts.target)),
            |hosts| (Some(hosts.initiator), Some(hosts.target)),
        ];
        for (key, is_of_pair) in keys.into_iter().zip([false, false, true]) {
            let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
            for (place, timeline) in timelines.iter().enumerate() {
                if let (Some(hosts), None) = (timeline.hosts, found[place][direction]) {
                    groups.entry(key(hosts)).or_default().push(place);
                }
            }
            for places in groups.into_values() {
                let flows: Vec<Flow<'_>> =
                    places.iter().map(|&place| Flow { timeline: &timelines[place], direction }).collect();
                let hosts = |flow: &Flow<'_>| flow.timeline.hosts;
                let has_one_pair = flows.windows(2).all(|flows| hosts(&flows[0]) == hosts(&flows[1]));
                if is_of_pair != has_one_pair {
                    continue;
                }
                if let Some(line) = of_flows(&flows) {
                    places.iter().for_each(|&place| found[place][direction] = Some(lines.len()));
                    lines.push(line);
                }
            }
        }
    }
    for (timeline, found) in timelines.iter_mut().zip(&mut found) {
        for direction in [0, 1] {
            let flow = Flow { timeline, direction };
            let line_of = |direction: usize| found[direction].and_then(|number| lines.get(number));
            if let Some(line) = line_of(direction) {
                timeline.queued[direction] = queued(flow, line);
            } else if let Some(line) = Line::of_standing_queue(flow) {
                found[direction] = Some(lines.len());
                lines.push(line);
                let spans = timeline.standing[direction].iter().flat_map(|queue| &queue.spans);
                timeline.line_busy[direction].extend(spans);
                join(&mut timeline.line_busy[direction]);
            } else if let Some(other) = line_of(1 - direction) {
                timeline.queued[direction] = queued(flow, &other.turned(flow));
            } else {
                continue;
            }
            // what waits in the queue of a line counts as time of the line
            timeline.excess.clear();
        }
    }
    describe(senders, timelines, &found, &lines);
    // nothing after this reads them
    timelines.iter_mut().for_each(|timeline| timeline.deliveries = Default::default());
}

/// Fills the line columns.
fn describe(senders: &mut Senders, timelines: &[Timeline], found: &[[Option<usize>; 2]], lines: &[Line]) {
    let by_connection: BTreeMap<u32, usize> =
        timelines.iter().enumerate().map(|(place, timeline)| (timeline.connection, place)).collect();
    for row in 0..senders.connection.len() {
        let Some(&place) = by_connection.get(&senders.connection[row]) else { continue };
        let direction = usize::from(!senders.to_target[row]);
        let Some(number) = found[place][direction] else { continue };
        let line = &lines[number];
        let flow = Flow { timeline: &timelines[place], direction };
        let segment_bytes = flow.deliveries().segment_bytes as f64;
        let payload = |rate: f64| (rate * segment_bytes / (segment_bytes + flow.header_bytes())).round() as i64;
        senders.line[row] = number as u32;
        senders.line_wire_bytes_per_s[row] = line.rates[1].round() as i64;
        [senders.line_low_bytes_per_s[row], senders.line_bytes_per_s[row], senders.line_high_bytes_per_s[row]] =
            line.rates.map(payload);
        senders.line_stretch_count[row] = line.window_count as u32;
        senders.line_queue_ns[row] = line.queue_ns;
        senders.is_line_from_acks[row] = line.is_from_acks;
    }
}

/// The line of these flows, where it is clearest: at the tap, or at the receiver.
fn of_flows(flows: &[Flow<'_>]) -> Option<Line> {
    let sum = |value: fn(&Deliveries) -> u64| flows.iter().map(|flow| value(flow.deliveries())).sum::<u64>() as f64;
    let segment_bytes = flows.iter().map(|flow| flow.deliveries().segment_bytes).max()? as f64;
    let (payload_bytes, packet_count) =
        (sum(|deliveries| deliveries.payload_bytes), sum(|deliveries| deliveries.packet_count));
    if packet_count < WINDOW_PACKETS || payload_bytes < SEGMENT_PART_MIN * segment_bytes * packet_count {
        return None;
    }
    let packet_bytes = segment_bytes + HEADER_BYTES;
    let lines = [false, true].into_iter().filter_map(|is_from_acks| of_place(flows, packet_bytes, is_from_acks));
    lines.max_by(|one, other| one.bytes.total_cmp(&other.bytes))
}

/// Bytes that came out of the line.
#[derive(Debug, Clone, Copy)]
struct Output {
    time_ns: i64,
    /// With headers.
    bytes: f64,
    /// They were in a queue since.
    queued_ns: i64,
    /// Of this flow.
    flow: u32,
    /// Whether the line had a queue since the output before.
    is_queued: bool,
}

impl Output {
    /// Its time in the queue, if it had to wait.
    fn queue_ns(&self) -> Option<i64> {
        (self.queued_ns < self.time_ns).then(|| self.time_ns.saturating_sub(self.queued_ns))
    }
}

/// The outputs of all flows, in order.
fn outputs(flows: &[Flow<'_>], is_from_acks: bool) -> Vec<Output> {
    let mut outputs = Vec::new();
    for (number, flow) in (0..).zip(flows) {
        let Some((deliveries, path_ns)) = flow.at(is_from_acks) else { continue };
        let wire_part = flow.wire_part();
        outputs.extend(deliveries.iter().map(|delivery| Output {
            time_ns: delivery.time_ns,
            bytes: f64::from(delivery.bytes) * wire_part,
            queued_ns: delivery.begun_ns.map_or(i64::MAX, |begun_ns| begun_ns.saturating_add(path_ns)),
            flow: number,
            is_queued: false,
        }));
    }
    // each flow is in order already, so this is a merge that keeps the order of the flows
    outputs.sort_by_key(|output| output.time_ns);
    // later bytes were in the queue, too
    let mut since_ns = i64::MAX;
    for place in (1..outputs.len()).rev() {
        let before_ns = outputs[place - 1].time_ns;
        let output = &mut outputs[place];
        since_ns = since_ns.min(output.queued_ns);
        output.is_queued = since_ns <= before_ns || output.time_ns == before_ns;
    }
    outputs
}

/// The line that these flows show at one place.
fn of_place(flows: &[Flow<'_>], packet_bytes: f64, is_from_acks: bool) -> Option<Line> {
    let outputs = outputs(flows, is_from_acks);
    if !is_one_queue(&outputs, flows) {
        return None;
    }
    let rtt_ns = |output: &Output| {
        let (_, path_ns) = flows.get(output.flow as usize)?.at(is_from_acks)?;
        let is_known = output.queued_ns != i64::MAX;
        is_known.then(|| output.time_ns.saturating_sub(output.queued_ns.saturating_sub(path_ns)) as f64)
    };
    let queued = || outputs.iter().filter(|output| output.is_queued);
    let mut rtts_ns: Vec<f64> = queued().filter_map(rtt_ns).collect();
    let mut queues_ns: Vec<f64> = queued().filter_map(|output| Some(output.queue_ns()? as f64)).collect();
    let [_, rtt_ns, _] = quartiles(&mut rtts_ns)?;
    let [_, queue_ns, _] = quartiles(&mut queues_ns)?;
    let mut line = None;
    let mut window_bytes = WINDOW_PACKETS * packet_bytes;
    for _ in 0..=DOUBLINGS_MAX {
        let mut windows = Windows::of(&outputs, window_bytes);
        let window_count = windows.rates.len();
        if window_count + windows.paused_count < WINDOWS_MIN || windows.lasted_ns > rtt_ns * window_count as f64 {
            break;
        }
        if let Some(quartiles @ [low, rate, high]) = quartiles(&mut windows.rates)
            && window_count >= WINDOWS_MIN
            && windows.are_steady()
            && high - rate <= ABOVE_MAX * rate
            && rate - low <= BELOW_MAX * rate
        {
            line = Some(Line {
                rates: quartiles,
                window_count,
                bytes: window_count as f64 * window_bytes,
                queue_ns: queue_ns as i64,
                spans: Arc::default(),
                is_from_acks,
            });
        }
        window_bytes *= 2.0;
    }
    let mut line = line?;
    let [_, rate, _] = line.rates;
    line.spans = spans(&outputs, WINDOW_PACKETS * packet_bytes, RATE_PART_MIN * rate, ns_per_byte(line.rates)).into();
    Some(line)
}

/// How long a byte takes: at the lower quartile, so that an error of the rate leaves no slivers, but for what other packets took
/// of the line.
fn ns_per_byte([low, rate, _]: [f64; 3]) -> f64 {
    1e9 / low.max(rate - ABOVE_MAX * rate)
}

/// Whether all pairs of hosts wait in one queue: one after another, for the same time.
fn is_one_queue(outputs: &[Output], flows: &[Flow<'_>]) -> bool {
    let (mut change_count, mut equal_count) = (0, 0);
    let mut last: Option<(Option<Hosts>, i64)> = None;
    let mut has_one_pair = true;
    for output in outputs {
        let Some(queue_ns) = output.queue_ns() else { continue };
        let hosts = flows.get(output.flow as usize).and_then(|flow| flow.timeline.hosts);
        if let Some((_, before_ns)) = last.filter(|&(before, _)| before != hosts) {
            has_one_pair = false;
            change_count += 1;
            equal_count += usize::from(
                queue_ns.abs_diff(before_ns) <= queue_ns.max(before_ns).unsigned_abs() / QUEUES_DIFFER_PARTS,
            );
        }
        last = Some((hosts, queue_ns));
    }
    has_one_pair || change_count >= QUEUE_CHANGES_MIN && equal_count * 4 >= change_count * 3
}

/// Windows of a size.
#[derive(Debug, Default)]
struct Windows {
    /// Bytes per second of each.
    rates: Vec<f64>,
    /// How long all of them lasted.
    lasted_ns: f64,
    /// Other windows, which are mostly one gap: a host paused, or held an ACK back. A line goes on.
    paused_count: usize,
}

impl Windows {
    /// The windows of these bytes, one after another, each within a stretch with a queue.
    fn of(outputs: &[Output], window_bytes: f64) -> Self {
        let mut windows = Self::default();
        let (mut start_ns, mut last_ns, mut gap_ns, mut bytes, mut count) = (0, 0, 0, 0.0, 0);
        for output in outputs {
            if output.is_queued {
                bytes += output.bytes;
                count += u32::from(output.time_ns > last_ns);
                gap_ns = gap_ns.max(output.time_ns.saturating_sub(last_ns));
            }
            last_ns = output.time_ns;
            let lasted_ns = last_ns.saturating_sub(start_ns);
            let is_whole = bytes >= window_bytes && count >= WINDOW_DELIVERIES;
            if is_whole && gap_ns > lasted_ns / GAP_PARTS_MIN {
                windows.paused_count += 1;
            } else if is_whole {
                windows.rates.push(bytes * 1e9 / lasted_ns as f64);
                windows.lasted_ns += lasted_ns as f64;
            }
            if is_whole || !output.is_queued {
                (start_ns, gap_ns, bytes, count) = (last_ns, 0, 0.0, 0);
            }
        }
        windows
    }

    /// Whether few of them are mostly one gap.
    fn are_steady(&self) -> bool {
        self.paused_count * PAUSED_PARTS_MIN <= self.rates.len() + self.paused_count
    }
}

/// When the line carried the outputs of stretches with a queue that have at least these bytes and this rate.
///
/// Computed backwards: bytes that arrived faster than the line allows were carried earlier, and waited in a host.
fn spans(outputs: &[Output], bytes_min: f64, rate_min: f64, ns_per_byte: f64) -> Vec<(i64, i64)> {
    let mut spans = Vec::new();
    let mut rest = outputs;
    while let [first, after @ ..] = rest {
        let count = after.iter().take_while(|output| output.is_queued).count();
        let (queued, later) = after.split_at(count);
        let bytes: f64 = queued.iter().map(|output| output.bytes).sum();
        let to_ns = queued.last().map_or(first.time_ns, |last| last.time_ns);
        let lasted_ns = to_ns.saturating_sub(first.time_ns);
        if bytes >= bytes_min && bytes * 1e9 >= rate_min * lasted_ns as f64 {
            let mut begun_ns = i64::MAX;
            for output in queued.iter().rev() {
                let to_ns = output.time_ns.min(begun_ns);
                let took_ns = (output.bytes * ns_per_byte) as i64;
                // what is left of the time before cannot be told from the line's
                let is_joined = begun_ns.saturating_sub(to_ns) <= JOIN_NS;
                begun_ns = to_ns.saturating_sub(took_ns).max(first.time_ns);
                match spans.last_mut() {
                    Some((from_ns, _)) if is_joined => *from_ns = begun_ns,
                    _ => spans.push((begun_ns, to_ns)),
                }
            }
        }
        rest = later;
    }
    join(&mut spans);
    spans
}

/// When data of a flow waited in the queue of a line; the line sent it one RTT before its ACK.
fn queued(flow: Flow<'_>, line: &Line) -> Queued {
    let Some((deliveries, path_ns)) = flow.at(line.is_from_acks) else { return Queued::default() };
    let waited = deliveries
        .iter()
        .filter_map(|delivery| Some((delivery.begun_ns?.saturating_add(path_ns), delivery.time_ns)))
        .filter(|(from_ns, to_ns)| from_ns < to_ns);
    Queued::new(waited.collect(), Arc::clone(&line.spans), if line.is_from_acks { path_ns } else { 0 })
}
