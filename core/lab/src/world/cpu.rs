//! CPU time of threads.

use std::ops::Add;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// CPU time, as the kernel accounts for it. Interrupt work for a thread, such as TCP's receive path, is charged to the
/// interrupted thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CpuTime {
    /// User time.
    pub user_ns: i64,
    /// System time.
    pub system_ns: i64,
}

impl CpuTime {
    /// Sum of both.
    #[must_use]
    pub fn total_ns(self) -> i64 {
        self.user_ns + self.system_ns
    }

    /// CPU time of the calling thread since its start, by getrusage(2): as of its last tick.
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

/// CPU time of the calling thread from now on, without excluded parts: the sum is exact, its division is that of
/// getrusage(2).
#[derive(Debug)]
pub(super) struct CpuMeter {
    start: CpuTime,
    not_counted_ns: i64,
}

impl CpuMeter {
    pub(super) fn new() -> Self {
        Self { start: CpuTime::at_last_tick(), not_counted_ns: thread_ns() }
    }

    /// Runs a function whose CPU time is excluded.
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

/// CPU time of the calling thread since its start.
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
    fn excluded_parts_and_waits_do_not_count() {
        let mut meter = CpuMeter::new();
        work(3_000_000);
        meter.leave_out(|| work(40_000_000));
        std::thread::sleep(std::time::Duration::from_millis(30));
        let taken = meter.taken();
        assert!((3_000_000..6_000_000).contains(&taken.total_ns()), "{taken:?}");
        assert!(taken.user_ns >= 0 && taken.system_ns >= 0, "{taken:?}");
    }
}
