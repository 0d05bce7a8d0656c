//! The log of a link: packets carried, packets dropped with their cause, busy times of the line. Decides nothing.

use serde::Serialize;

use crate::occurrence::Hits;

/// Most busy times that are kept, 24 bytes each. Beyond, only their sum is kept.
const BUSY_TIMES_KEPT: usize = 4 << 20;

/// The log of a link.
#[derive(Debug, Clone, Serialize)]
pub struct LinkLog {
    /// From the initiator to the target.
    pub to_target: DirectionLog,
    /// From the target to the initiator.
    pub to_initiator: DirectionLog,
}

impl LinkLog {
    /// Drops the busy times, and keeps their sum.
    pub fn forget_busy_times(&mut self) {
        for direction in [&mut self.to_target, &mut self.to_initiator] {
            if let Some(line) = &mut direction.line {
                line.not_kept_from_ns = line.busy_times.first().map(|busy| busy.from_ns).or(line.not_kept_from_ns);
                line.busy_times = Vec::new();
            }
        }
    }
}

/// The log of one direction.
#[derive(Debug, Clone, Serialize)]
pub struct DirectionLog {
    /// Counters.
    pub counters: Counters,
    /// The line, if there was one.
    pub line: Option<LineLog>,
    /// Every packet, if packets are logged.
    pub packets: Option<PacketLog>,
    /// What its faults hit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Hits>,
}

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Packets.
    pub count: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

impl Tally {
    pub(super) fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

/// Counters of one direction. A packet that arrived and was neither delivered nor dropped is in transit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets that arrived at the link.
    pub arrived: Tally,
    /// Packets delivered.
    pub delivered: Tally,
    /// Packets dropped because the queue was full.
    pub queue_full: Tally,
    /// Packets lost at random, independently.
    pub lost: Tally,
    /// Packets lost in bursts.
    pub lost_in_burst: Tally,
    /// Packets dropped by an interruption.
    pub interrupted: Tally,
    /// Packets delivered after a packet that had arrived later.
    pub overtaken: Tally,
}

impl Counters {
    pub(super) fn dropped(&mut self, fate: Fate, bytes: usize) {
        match fate {
            Fate::QueueFull => self.queue_full.add(bytes),
            Fate::Lost => self.lost.add(bytes),
            Fate::LostInBurst => self.lost_in_burst.add(bytes),
            Fate::Interrupted => self.interrupted.add(bytes),
            Fate::UnderWay | Fate::Delivered => {}
        }
    }
}

/// The fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// In transit.
    UnderWay,
    /// Delivered.
    Delivered,
    /// Dropped because the queue was full.
    QueueFull,
    /// Lost at random, independently.
    Lost,
    /// Lost in a burst.
    LostInBurst,
    /// Dropped by an interruption.
    Interrupted,
}

/// One packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PacketRecord {
    /// Arrival time.
    pub time_in_ns: i64,
    /// When it was delivered or dropped; none while in transit.
    pub time_out_ns: Option<i64>,
    /// Bytes of its frame.
    pub bytes: u32,
    /// Its fate.
    pub fate: Fate,
}

/// All packets, in the order of arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PacketLog {
    records: Vec<PacketRecord>,
}

impl PacketLog {
    /// The packets, in the order of arrival.
    pub fn records(&self) -> &[PacketRecord] {
        &self.records
    }

    pub(super) fn arrived(&mut self, time_in_ns: i64, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.records.push(PacketRecord { time_in_ns, time_out_ns: None, bytes, fate: Fate::UnderWay });
    }

    pub(super) fn departed(&mut self, number: u64, time_out_ns: i64, fate: Fate) {
        if let Some(record) = self.records.get_mut(number as usize) {
            record.time_out_ns = Some(time_out_ns);
            record.fate = fate;
        }
    }
}

/// An interval in which the line sent without a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BusyTime {
    /// Start.
    pub from_ns: i64,
    /// End: the line is idle from this time on.
    pub to_ns: i64,
    /// Total busy time before the start.
    #[serde(skip)]
    busy_before_ns: i64,
}

/// Busy times of a line: the truth for idle times. Queued packets count at the time at which they are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LineLog {
    /// Total busy time.
    pub busy_ns: i64,
    /// Peak queue length in packets.
    pub queue_peak_packets: u64,
    /// Peak queue length in bytes.
    pub queue_peak_bytes: u64,
    /// Busy times, merged, disjoint and in order; the first `4 Mi` of them.
    busy_times: Vec<BusyTime>,
    /// From this time on busy times are not kept.
    pub not_kept_from_ns: Option<i64>,
}

impl LineLog {
    /// Busy times: merged, disjoint, in order.
    pub fn busy_times(&self) -> &[BusyTime] {
        &self.busy_times
    }

    /// Busy time from `from_ns` to `to_ns`. None where busy times are not kept.
    pub fn busy_ns_within(&self, from_ns: i64, to_ns: i64) -> Option<i64> {
        if self.not_kept_from_ns.is_some_and(|not_kept_from_ns| to_ns > not_kept_from_ns) {
            return None;
        }
        Some((self.busy_ns_until(to_ns) - self.busy_ns_until(from_ns)).max(0))
    }

    fn busy_ns_until(&self, time_ns: i64) -> i64 {
        let begun = self.busy_times.partition_point(|busy| busy.from_ns < time_ns);
        let last = begun.checked_sub(1).and_then(|last| self.busy_times.get(last));
        last.map_or(0, |last| last.busy_before_ns.saturating_add(time_ns.min(last.to_ns).saturating_sub(last.from_ns)))
    }

    pub(super) fn waiting(&mut self, packets: u64, bytes: u64) {
        self.queue_peak_packets = self.queue_peak_packets.max(packets);
        self.queue_peak_bytes = self.queue_peak_bytes.max(bytes);
    }

    /// The line sends from `from_ns` to `to_ns`; calls are in the order of time.
    pub(super) fn busy(&mut self, from_ns: i64, to_ns: i64) {
        let busy_before_ns = self.busy_ns;
        self.busy_ns = self.busy_ns.saturating_add(to_ns.saturating_sub(from_ns));
        if self.not_kept_from_ns.is_some() || to_ns == from_ns {
            return;
        }
        let kept_count = self.busy_times.len();
        match self.busy_times.last_mut() {
            Some(last) if last.to_ns == from_ns => last.to_ns = to_ns,
            _ if kept_count >= BUSY_TIMES_KEPT => self.not_kept_from_ns = Some(from_ns),
            _ => self.busy_times.push(BusyTime { from_ns, to_ns, busy_before_ns }),
        }
    }
}
