//! What processor time threads took.

use std::ops::Add;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Processor time, as the kernel accounts for it. What interrupts do for a thread, such as TCP's part of receiving, is
/// told of whoever was interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CpuTime {
    /// In its own code.
    pub user_ns: i64,
    /// In the kernel's, for it.
    pub system_ns: i64,
}

impl CpuTime {
    /// Both.
    #[must_use]
    pub fn total_ns(self) -> i64 {
        self.user_ns + self.system_ns
    }

    /// Of the calling thread, since it began, as getrusage(2) has it: known at its last tick.
    fn at_last_tick() -> Self {
        getrusage(UsageWho::RUSAGE_THREAD).map_or_else(
            |_| Self::default(),
            |usage| Self {
                user_ns: usage.user_time().num_microseconds().saturating_mul(1_000),
                system_ns: usage.system_time().num_microseconds().saturating_mul(1_000),
            },
        )
    }
}

impl Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { user_ns: self.user_ns + other.user_ns, system_ns: self.system_ns + other.system_ns }
    }
}

/// What the calling thread takes from here on, but for what it does for others: exact in all, and divided as getrusage(2)
/// divides it.
#[derive(Debug)]
pub(super) struct CpuMeter {
    start: CpuTime,
    not_counted_ns: i64,
}

impl CpuMeter {
    pub(super) fn new() -> Self {
        Self { start: CpuTime::at_last_tick(), not_counted_ns: thread_ns() }
    }

    /// Does something that does not count.
    pub(super) fn leave_out<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before_ns = thread_ns();
        let result = work();
        self.not_counted_ns += thread_ns() - before_ns;
        result
    }

    pub(super) fn taken(&self) -> CpuTime {
        let total_ns = thread_ns() - self.not_counted_ns;
        let now = CpuTime::at_last_tick();
        let (user_ns, all_ns) = (now.user_ns - self.start.user_ns, now.total_ns() - self.start.total_ns());
        let share = if all_ns > 0 { user_ns as f64 / all_ns as f64 } else { 0.0 };
        let user_ns = (total_ns as f64 * share.clamp(0.0, 1.0)) as i64;
        CpuTime { user_ns, system_ns: total_ns - user_ns }
    }
}

/// Of the calling thread, since it began.
fn thread_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(least_ns: i64) {
        let before_ns = thread_ns();
        while thread_ns() - before_ns < least_ns {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn what_is_left_out_does_not_count_and_a_wait_takes_nothing() {
        let mut meter = CpuMeter::new();
        work(3_000_000);
        meter.leave_out(|| work(40_000_000));
        std::thread::sleep(std::time::Duration::from_millis(30));
        let taken = meter.taken();
        assert!((3_000_000..6_000_000).contains(&taken.total_ns()), "{taken:?}");
        assert!(taken.user_ns >= 0 && taken.system_ns >= 0, "{taken:?}");
    }
}
