//! The least and the greatest transit of a direction over time, in intervals that grow with the capture.

use crate::tables::taps::{Envelope as Row, Envelopes};

/// Intervals; when there are more, two become one.
const BUCKETS_MAX: usize = 4096;
/// Length of an interval, at first.
const WIDTH_NS: i64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    count: u64,
    /// Transit and time.
    least: (i64, i64),
    greatest: (i64, i64),
}

impl Bucket {
    fn merged(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
        Some(Self {
            count: one.count + other.count,
            least: if other.least.0 < one.least.0 { other.least } else { one.least },
            greatest: if other.greatest.0 > one.greatest.0 { other.greatest } else { one.greatest },
        })
    }
}

/// The envelope of one direction.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    origin_ns: Option<i64>,
    doublings: u32,
    buckets: Vec<Option<Bucket>>,
}

impl Envelope {
    fn width_ns(&self) -> i64 {
        WIDTH_NS << self.doublings
    }

    /// Notes a transit; one before the first belongs to the first interval.
    #[inline]
    pub(super) fn note(&mut self, time_ns: i64, transit_ns: i64) {
        let since_ns = time_ns.saturating_sub(*self.origin_ns.get_or_insert(time_ns)).max(0);
        let mut index = (since_ns / self.width_ns()) as usize;
        while index >= BUCKETS_MAX {
            self.double();
            index /= 2;
        }
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, None);
        }
        let one = Bucket { count: 1, least: (transit_ns, time_ns), greatest: (transit_ns, time_ns) };
        self.buckets[index] = Bucket::merged(self.buckets[index], Some(one));
    }

    #[cold]
    fn double(&mut self) {
        self.doublings += 1;
        let pairs = self.buckets.chunks(2);
        self.buckets = pairs.map(|pair| Bucket::merged(pair[0], pair.get(1).copied().flatten())).collect();
    }

    pub(super) fn write(&self, to_target: bool, rows: &mut Envelopes) {
        let origin_ns = self.origin_ns.unwrap_or(0);
        for (index, bucket) in (0..).zip(&self.buckets) {
            let Some(Bucket { count, least, greatest }) = *bucket else { continue };
            let from_ns = origin_ns.saturating_add(self.width_ns().saturating_mul(index));
            rows.push(Row {
                to_target,
                from_ns,
                to_ns: from_ns.saturating_add(self.width_ns()),
                least_ns: least.0,
                least_time_a_ns: least.1,
                greatest_ns: greatest.0,
                greatest_time_a_ns: greatest.1,
                transits: count,
            });
        }
    }
}
