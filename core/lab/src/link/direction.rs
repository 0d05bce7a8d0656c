//! One direction of a link: the chain of its settings, and the log of every packet's fate.

use fastrand::Rng;

use super::chain::Chain;
use super::delay::Delay;
use super::impairment::{Impairment, Packet};
use super::jitter::Jitter;
use super::log::{Counters, DirectionLog, Fate, PacketLog};
use super::loss::{BurstLoss, Loss};
use super::queue::DropTail;
use super::rate::Rate;
use super::reorder::Reorder;
use super::settings::DirectionSettings;

/// A packet in transit.
#[derive(Debug)]
struct Numbered<P> {
    /// Arrival number, from 0.
    number: u64,
    packet: P,
}

impl<P: Packet> Packet for Numbered<P> {
    fn frame_bytes(&self) -> usize {
        self.packet.frame_bytes()
    }
}

/// One direction of a link.
#[derive(Debug)]
pub struct Direction<P> {
    chain: Chain<Numbered<P>>,
    counters: Counters,
    packets: Option<PacketLog>,
    last_arrival_ns: i64,
    highest_delivered: Option<u64>,
}

impl<P: Packet> Direction<P> {
    /// A direction with these settings, which `Link::new` has checked.
    pub(super) fn new(settings: &DirectionSettings, seed: u64, is_logging_packets: bool) -> Self {
        // every part has a seed, used or not: the random numbers of one part do not depend on the others
        let mut seeds = Rng::with_seed(seed);
        let (loss, burst_loss, jitter, reorder) = (seeds.u64(..), seeds.u64(..), seeds.u64(..), seeds.u64(..));
        let mut parts: Vec<Box<dyn Impairment>> = Vec::new();
        for interruption in &settings.interruptions {
            parts.push(Box::new(Loss::for_a_while(*interruption, seeds.u64(..))));
        }
        if let Some(rate_bps) = settings.rate_bps {
            let queue = DropTail::new(settings.queue_packets, settings.queue_bytes);
            parts.push(Box::new(Rate::new(rate_bps, settings.overhead_bytes, queue)));
        }
        if settings.loss_probability > 0.0 {
            parts.push(Box::new(Loss::new(settings.loss_probability, loss)));
        }
        if let Some(settings) = settings.burst_loss {
            parts.push(Box::new(BurstLoss::new(settings, burst_loss)));
        }
        if settings.delay_ns > 0 || parts.is_empty() {
            parts.push(Box::new(Delay::new(settings.delay_ns)));
        }
        if settings.jitter_ns > 0 {
            parts.push(Box::new(Jitter::new(settings.jitter_ns, settings.is_jitter_reordering, jitter)));
        }
        if settings.reorder_probability > 0.0 {
            parts.push(Box::new(Reorder::new(settings.reorder_probability, settings.reorder_by_ns, reorder)));
        }
        for settings in &settings.reorderings {
            parts.push(Box::new(Reorder::for_a_while(*settings, seeds.u64(..))));
        }
        Self {
            chain: Chain::new(parts),
            counters: Counters::default(),
            packets: is_logging_packets.then(PacketLog::default),
            last_arrival_ns: i64::MIN,
            highest_delivered: None,
        }
    }

    /// Takes a packet that arrives at `now_ns`, or at the last arrival when that is later.
    pub fn enqueue(&mut self, now_ns: i64, packet: P) {
        self.last_arrival_ns = self.last_arrival_ns.max(now_ns);
        let number = self.counters.arrived.count;
        self.counters.arrived.add(packet.frame_bytes());
        if let Some(packets) = &mut self.packets {
            packets.arrived(self.last_arrival_ns, packet.frame_bytes());
        }
        self.chain.enqueue(self.last_arrival_ns, Numbered { number, packet });
        self.log_dropped();
    }

    /// The next packet that has left by `now_ns`, with the time at which it left.
    pub fn dequeue_ready(&mut self, now_ns: i64) -> Option<(i64, P)> {
        let departed = self.chain.dequeue_ready(now_ns);
        self.log_dropped();
        let (departed_ns, Numbered { number, packet }) = departed?;
        self.counters.delivered.add(packet.frame_bytes());
        if self.highest_delivered > Some(number) {
            self.counters.overtaken.add(packet.frame_bytes());
        }
        self.highest_delivered = self.highest_delivered.max(Some(number));
        if let Some(packets) = &mut self.packets {
            packets.departed(number, departed_ns, Fate::Delivered);
        }
        Some((departed_ns, packet))
    }

    /// When to poll again. No packet may be ready by then if a reordering part precedes another part.
    pub fn next_ready(&self) -> Option<i64> {
        self.chain.next_ready()
    }

    /// The workload begins, from which the times of faults count.
    pub fn workload_begins(&mut self, now_ns: i64) {
        self.chain.workload_begins(now_ns);
    }

    /// The log, at the end.
    pub fn into_log(self) -> DirectionLog {
        let (line, faults) = (self.chain.line().cloned(), self.chain.hits());
        DirectionLog { line, faults, counters: self.counters, packets: self.packets }
    }

    fn log_dropped(&mut self) {
        while let Some((dropped_ns, Numbered { number, packet }, fate)) = self.chain.next_dropped() {
            self.counters.dropped(fate, packet.frame_bytes());
            if let Some(packets) = &mut self.packets {
                packets.departed(number, dropped_ns, fate);
            }
        }
    }
}
