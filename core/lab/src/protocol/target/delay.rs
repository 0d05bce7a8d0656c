//! Service times of commands. It draws times, and never waits.

use std::collections::HashMap;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// The service time of commands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "snake_case", deny_unknown_fields)]
pub enum ServiceDelay {
    /// A constant.
    Fixed {
        /// The time.
        delay_ns: i64,
    },
    /// Uniformly distributed.
    Uniform {
        /// The shortest.
        low_ns: i64,
        /// The longest.
        high_ns: i64,
    },
    /// Exponentially distributed.
    Exponential {
        /// Its mean.
        mean_ns: i64,
    },
}

impl Default for ServiceDelay {
    fn default() -> Self {
        Self::Fixed { delay_ns: 0 }
    }
}

impl ServiceDelay {
    /// Draws a time; not below 0.
    pub(super) fn draw(&self, random: &mut Rng) -> i64 {
        let delay_ns = match *self {
            Self::Fixed { delay_ns } => delay_ns,
            Self::Uniform { low_ns, high_ns } => random.i64(low_ns.min(high_ns)..=high_ns.max(low_ns)),
            // the inverse of the distribution function; 1 - f64() is never 0
            Self::Exponential { mean_ns } => (-(1.0 - random.f64()).ln() * mean_ns as f64) as i64,
        };
        delay_ns.max(0)
    }
}

/// The order of service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceOrder {
    /// Commands are served in parallel.
    #[default]
    Parallel,
    /// A logical unit serves one command at a time.
    OneAtATime,
}

/// The service of one target's commands.
#[derive(Debug, Default)]
pub(super) struct Service {
    /// End of the busy time of each logical unit that serves one command at a time.
    busy_until_ns: HashMap<[u8; 8], i64>,
}

impl Service {
    /// End of the service of a command that takes `delay_ns`.
    pub(super) fn end_ns(&mut self, now_ns: i64, lun: [u8; 8], delay_ns: i64, order: ServiceOrder) -> i64 {
        match order {
            ServiceOrder::Parallel => now_ns.saturating_add(delay_ns),
            // a command with a service time of 0 also waits for those before it
            ServiceOrder::OneAtATime => {
                let busy_until_ns = self.busy_until_ns.entry(lun).or_insert(now_ns);
                *busy_until_ns = (*busy_until_ns).max(now_ns).saturating_add(delay_ns);
                *busy_until_ns
            }
        }
    }

    /// The service of its last command takes longer: the logical unit is busy until then if it serves one at a time.
    pub(super) fn prolong(&mut self, lun: [u8; 8], end_ns: i64) {
        if let Some(busy_until_ns) = self.busy_until_ns.get_mut(&lun) {
            *busy_until_ns = (*busy_until_ns).max(end_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(delay: ServiceDelay, count: usize) -> Vec<i64> {
        let mut random = Rng::with_seed(7);
        (0..count).map(|_| delay.draw(&mut random)).collect()
    }

    #[test]
    fn times_are_those_of_the_distribution() {
        assert_eq!(draw(ServiceDelay::Fixed { delay_ns: 5 }, 2), [5, 5]);
        let uniform = draw(ServiceDelay::Uniform { low_ns: 30_000_000, high_ns: 40_000_000 }, 10_000);
        assert!(uniform.iter().all(|time| (30_000_000..=40_000_000).contains(time)));
        let mean = uniform.iter().sum::<i64>() / 10_000;
        // five standard errors of a uniform distribution 10 ms wide
        assert!((mean - 35_000_000).abs() < 5 * 28_868, "{mean}");
        let exponential = draw(ServiceDelay::Exponential { mean_ns: 1_000_000 }, 10_000);
        let mean = exponential.iter().sum::<i64>() / 10_000;
        assert!((mean - 1_000_000).abs() < 5 * 10_000, "{mean}");
        // a share of e^-1 is longer than the mean
        let longer = exponential.iter().filter(|time| **time > 1_000_000).count();
        assert!(longer.abs_diff(3679) < 5 * 49, "{longer}");
    }

    #[test]
    fn no_command_is_served_before_its_arrival() {
        assert_eq!(draw(ServiceDelay::Fixed { delay_ns: -5 }, 1), [0]);
        let turned = draw(ServiceDelay::Uniform { low_ns: 9, high_ns: 3 }, 100);
        assert!(turned.iter().all(|time| (3..=9).contains(time)));
    }

    #[test]
    fn one_at_a_time_applies_per_logical_unit() {
        let mut service = Service::default();
        let (first, second) = ([0; 8], [0, 1, 0, 0, 0, 0, 0, 0]);
        let order = ServiceOrder::OneAtATime;
        assert_eq!(service.end_ns(100, first, 10, order), 110);
        assert_eq!(service.end_ns(100, first, 10, order), 120);
        assert_eq!(service.end_ns(100, second, 10, order), 110);
        assert_eq!(service.end_ns(200, first, 10, order), 210);
        assert_eq!(service.end_ns(205, first, 0, order), 210);
        assert_eq!(service.end_ns(205, first, 10, ServiceOrder::Parallel), 215);
        service.prolong(first, 500);
        service.prolong(second, 90);
        assert_eq!([first, second].map(|lun| service.end_ns(300, lun, 10, order)), [510, 310]);
    }

    #[test]
    fn settings_are_read_from_json() {
        let delay: ServiceDelay =
            serde_json::from_str(r#"{"distribution": "uniform", "low_ns": 1, "high_ns": 2}"#).unwrap();
        assert_eq!(delay, ServiceDelay::Uniform { low_ns: 1, high_ns: 2 });
        assert!(serde_json::from_str::<ServiceDelay>(r#"{"distribution": "fixed", "delay": 1}"#).is_err());
    }
}
