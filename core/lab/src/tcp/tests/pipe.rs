//! Two endpoints over a naive pipe in virtual time: delay, rate, queue, and a fate for each segment.

use std::collections::BTreeMap;

use crate::tcp::{Endpoint, Role, Segment, Settings};

/// The fate of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    Lost,
    /// Arrives later by this time.
    Late(i64),
    /// Arrives twice.
    Twice,
}

/// A segment as it was sent.
#[derive(Debug, Clone)]
pub struct Record {
    pub time_ns: i64,
    /// 0 is the active end.
    pub from: usize,
    pub segment: Segment,
    pub fate: Fate,
}

pub type Judge = Box<dyn FnMut(usize, &Segment) -> Fate>;

/// Both ends and the pipe between them.
pub struct Pipe {
    pub ends: [Endpoint; 2],
    pub now_ns: i64,
    pub delay_ns: i64,
    /// Transmission time per byte of a frame, in nanoseconds; 0 for no limit.
    pub byte_ns: i64,
    /// Queue limit, in nanoseconds of transmission.
    pub queue_ns: i64,
    pub judge: Judge,
    pub records: Option<Vec<Record>>,
    pub segment_count: u64,
    flying: BTreeMap<(i64, u64), (usize, Segment)>,
    free_ns: [i64; 2],
}

pub const MS: i64 = 1_000_000;

impl Pipe {
    pub fn new(settings: [Settings; 2], delay_ns: i64) -> Self {
        let (active, passive) = ("10.0.0.1:50000".parse().expect("address"), "10.0.0.2:3260".parse().expect("address"));
        let [first, second] = settings;
        Self {
            ends: [
                Endpoint::new(first, Role::Active, active, passive, 1),
                Endpoint::new(second, Role::Passive, passive, active, 2),
            ],
            now_ns: 0,
            delay_ns,
            byte_ns: 0,
            queue_ns: i64::MAX,
            judge: Box::new(|_, _| Fate::Arrives),
            records: Some(Vec::new()),
            segment_count: 0,
            flying: BTreeMap::new(),
            free_ns: [0; 2],
        }
    }

    pub fn alike(settings: &Settings, delay_ns: i64) -> Self {
        Self::new([settings.clone(), settings.clone()], delay_ns)
    }

    /// A pipe with the handshake done.
    pub fn connected(settings: &Settings, delay_ns: i64) -> Self {
        let mut pipe = Self::alike(settings, delay_ns);
        pipe.connect();
        pipe
    }

    pub fn connect(&mut self) {
        self.ends[0].connect(self.now_ns);
        self.run_until(self.now_ns + 3 * self.delay_ns + self.delay_ns / 2);
        assert!(self.ends.iter().all(Endpoint::is_synchronized));
    }

    pub fn write(&mut self, end: usize, bytes: &[u8]) -> usize {
        let taken = self.ends[end].write(self.now_ns, bytes);
        self.collect();
        taken
    }

    /// Everything that an end can read now.
    pub fn read(&mut self, end: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !self.ends[end].readable().is_empty() {
            bytes.extend_from_slice(self.ends[end].readable());
            let count = self.ends[end].readable().len();
            self.ends[end].consume(self.now_ns, count);
        }
        self.collect();
        bytes
    }

    /// Puts the segments of both ends into the pipe.
    pub fn collect(&mut self) {
        for from in 0..2 {
            while let Some(segment) = self.ends[from].poll_transmit(self.now_ns) {
                self.segment_count += 1;
                let start = self.free_ns[from].max(self.now_ns);
                let mut fate = (self.judge)(from, &segment);
                if start - self.now_ns > self.queue_ns {
                    fate = Fate::Lost;
                } else {
                    self.free_ns[from] = start + segment.frame_length() as i64 * self.byte_ns;
                }
                if let Some(records) = &mut self.records {
                    records.push(Record { time_ns: self.now_ns, from, segment: segment.clone(), fate });
                }
                let at_ns = self.free_ns[from].max(self.now_ns) + self.delay_ns;
                let number = 2 * self.segment_count;
                match fate {
                    Fate::Lost => {}
                    Fate::Arrives => drop(self.flying.insert((at_ns, number), (1 - from, segment))),
                    Fate::Late(more_ns) => drop(self.flying.insert((at_ns + more_ns, number), (1 - from, segment))),
                    Fate::Twice => {
                        self.flying.insert((at_ns, number), (1 - from, segment.clone()));
                        self.flying.insert((at_ns + MS / 10, number + 1), (1 - from, segment));
                    }
                }
            }
        }
    }

    /// Handles the next event, if it is due by `deadline_ns`.
    pub fn step(&mut self, deadline_ns: i64) -> bool {
        self.collect();
        let arrival = self.flying.first_key_value().map(|(&(at_ns, _), _)| at_ns);
        let timeout = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
        let Some(next_ns) = arrival.into_iter().chain(timeout).min().filter(|&next_ns| next_ns <= deadline_ns) else {
            self.now_ns = self.now_ns.max(deadline_ns);
            return false;
        };
        assert!(next_ns >= self.now_ns, "time goes on");
        self.now_ns = next_ns;
        if arrival == Some(next_ns) {
            let (_, (to, segment)) = self.flying.pop_first().expect("just seen");
            self.ends[to].receive(next_ns, segment);
        } else {
            for end in &mut self.ends {
                if end.poll_timeout().is_some_and(|at_ns| at_ns <= next_ns) {
                    end.handle_timeout(next_ns);
                }
            }
        }
        self.collect();
        true
    }

    pub fn run_until(&mut self, deadline_ns: i64) {
        while self.step(deadline_ns) {}
    }

    /// The active end writes as fast as it can, the other one reads; returns the bytes read.
    pub fn bulk(&mut self, duration_ns: i64) -> u64 {
        let block = vec![0x55; 65536];
        let (end_ns, mut read) = (self.now_ns + duration_ns, 0);
        let mut is_blocked = false;
        loop {
            while !is_blocked || self.ends[0].is_writable() {
                is_blocked = self.write(0, &block) < block.len();
                if is_blocked {
                    break;
                }
            }
            if !self.step(end_ns) {
                return read;
            }
            loop {
                let count = self.ends[1].readable().len();
                if count == 0 {
                    break;
                }
                read += count as u64;
                self.ends[1].consume(self.now_ns, count);
            }
        }
    }

    /// Segments of an end that carry data, since the handshake: time, first byte counted from 0, length.
    pub fn data(&self, from: usize) -> Vec<(i64, u32, usize)> {
        let records = self.records.as_deref().unwrap_or_default();
        let syn = records.iter().find(|record| record.from == from && record.segment.flags.is_syn());
        let first = syn.map_or(0, |syn| syn.segment.sequence_number.wrapping_add(1));
        records
            .iter()
            .filter(|record| record.from == from && !record.segment.payload.is_empty())
            .map(|record| {
                (record.time_ns, record.segment.sequence_number.wrapping_sub(first), record.segment.payload.len())
            })
            .collect()
    }

    /// Times of segments of an end without data.
    pub fn pure_acks(&self, from: usize) -> Vec<i64> {
        let records = self.records.as_deref().unwrap_or_default();
        records
            .iter()
            .filter(|record| record.from == from && record.segment.payload.is_empty() && !record.segment.flags.is_syn())
            .map(|record| record.time_ns)
            .collect()
    }
}
