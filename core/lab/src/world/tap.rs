//! The link in real time, between two TAP devices: frames from one kernel are passed to the other at the times that the
//! link computes. Creates no namespaces and sets no addresses: its caller does.
//!
//! ```text
//! initiator's namespace                                      target's namespace
//!   kernel TCP -- TAP device =[frames]= link =[frames]= TAP device -- kernel TCP
//! ```
//!
//! A frame arrives when it is read, and leaves at a time that the link computes; a late wake-up delays one frame, not
//! those after it. Waking up takes tens of microseconds, so the thread wakes up by an adaptive margin before a frame is
//! due, and polls the clock for the rest. It polls no longer than it slept before, because the traffic may need this
//! CPU; at high frame rates, frames may be late by one wake-up.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{LinkNameSpaceType, current_timer_slack, move_into_link_name_space, set_current_timer_slack};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::clock::Clock;
use crate::latency::{Latencies, LatencySummary};
use crate::link::log::Tally;
use crate::link::{Direction, Link, LinkLog, LinkSettings, SettingsError};

/// Largest frame that a TAP device passes on: 64 KiB of MTU and the Ethernet header with two VLAN tags.
const FRAME_BYTES: usize = 65_535 + 22;
/// Frames read from, or written to, one device before the other one's turn.
const BATCH: usize = 8;
/// Buffers kept for reuse.
const BUFFERS_KEPT: usize = 4096;
/// Interval of checks of `stop`.
const LONGEST_WAIT_NS: i64 = 20_000_000;
/// Margin between the wake-up and the time of a frame: least, initial, most.
const MARGIN_NS: (i64, i64, i64) = (2_000, 50_000, 150_000);
/// Step by which a timely wake-up reduces the margin; a late one increases it by 19 steps, so that one wake-up in
/// twenty is late.
const MARGIN_STEP_NS: i64 = 200;
/// Shortest sleep: going to sleep and waking up take half as long.
const SHORTEST_SLEEP_NS: i64 = 20_000;
/// Most sleep time that is credited for later polling.
const SLEEP_CREDIT_NS: i64 = 1_000_000;

/// A TAP device by name; if it does not exist, it is created and removed with the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapSettings {
    /// Name of the interface.
    pub name: String,
    /// Its network namespace, as a file such as `/run/netns/initiator`; none for that of this thread.
    #[serde(default)]
    pub namespace: Option<PathBuf>,
}

/// Why a link failed.
#[derive(Debug, Error)]
pub enum TapError {
    /// A device could not be opened.
    #[error("cannot open TAP device {name}: {source}")]
    Open {
        /// Its name.
        name: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The settings are not valid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Waiting for frames failed.
    #[error("cannot wait for frames: {0}")]
    Wait(io::Error),
}

/// The log of a link in real time. Times are nanoseconds of Unix time, advanced by the monotonic clock from the start.
#[derive(Debug, Clone, Serialize)]
pub struct TapLog {
    /// When it began.
    pub started_ns: i64,
    /// When it ended.
    pub ended_ns: i64,
    /// Frames carried and dropped.
    pub link: LinkLog,
    /// Lateness of frames: when they were passed to the kernel, after their times.
    pub lateness: Lateness,
    /// Frames that the kernel did not accept, because the device was down.
    pub refused: Tally,
    /// Why it ended without `stop`: a device was removed.
    pub failure: Option<String>,
}

/// How late events were, within 0.1 %; zeros when there were none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lateness {
    /// Number of events.
    pub count: u64,
    /// Median.
    pub median_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// Largest, exact.
    pub max_ns: u64,
}

impl From<LatencySummary> for Lateness {
    fn from(late: LatencySummary) -> Self {
        Self { count: late.count, median_ns: late.p50, p99_ns: late.p99, max_ns: late.max }
    }
}

/// Two open TAP devices. They exist as long as this does, unless they are persistent.
pub struct TapLink {
    initiator: SyncDevice,
    target: SyncDevice,
}

impl TapLink {
    /// Opens the devices without offloads: every frame could be sent on a wire.
    ///
    /// # Errors
    /// A device that cannot be opened.
    pub fn open(initiator: &TapSettings, target: &TapSettings) -> Result<Self, TapError> {
        Ok(Self { initiator: open(initiator)?, target: open(target)? })
    }

    /// Passes frames until `stop` is set, which is checked every 20 ms, or a device is removed. From the moment on that
    /// `begun` is set, the times of faults count. If other programs
    /// compete for the CPUs, the calling thread should have a higher priority (SCHED_FIFO).
    ///
    /// # Errors
    /// Settings that are not valid; a failed system call.
    pub fn run(&self, settings: &LinkSettings, stop: &AtomicBool, begun: &AtomicBool) -> Result<TapLog, TapError> {
        let link = Link::new(settings)?;
        // the kernel may wake a thread up to 50 us late, to save energy, unless this is set
        let slack = current_timer_slack().ok().and_then(NonZeroU64::new);
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let result = Mover::new(self, link).run(stop, begun);
        let _ = set_current_timer_slack(slack);
        result
    }
}

fn open(settings: &TapSettings) -> Result<SyncDevice, TapError> {
    let open_here = || {
        let device = DeviceBuilder::new().name(&settings.name).layer(Layer::L2).inherit_enable_state().build_sync()?;
        device.set_nonblocking(true)?;
        Ok(device)
    };
    let opened = match &settings.namespace {
        None => open_here(),
        // a separate thread enters the namespace: the device stays usable through its file from any namespace
        Some(namespace) => std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                let namespace = File::open(namespace)?;
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                open_here()
            });
            opening.join().unwrap_or_else(|_| Err(io::Error::other("the thread that opens it ended")))
        }),
    };
    opened.map_err(|source| TapError::Open { name: settings.name.clone(), source })
}

/// A run of a link.
struct Mover<'taps> {
    taps: &'taps TapLink,
    link: Link<Vec<u8>>,
    clock: Clock,
    frame: Box<[u8]>,
    buffers: Vec<Vec<u8>>,
    margin_ns: i64,
    /// Time slept less time spent polling.
    sleep_credit_ns: i64,
    /// Since when it has been polling the clock, with nothing else to do.
    awake_since_ns: Option<i64>,
    lateness: Latencies,
    refused: Tally,
}

impl<'taps> Mover<'taps> {
    fn new(taps: &'taps TapLink, link: Link<Vec<u8>>) -> Self {
        Self {
            taps,
            link,
            clock: Clock::new(),
            frame: vec![0; FRAME_BYTES].into_boxed_slice(),
            buffers: Vec::new(),
            margin_ns: MARGIN_NS.1,
            sleep_credit_ns: 0,
            awake_since_ns: None,
            lateness: Latencies::in_histogram(),
            refused: Tally::default(),
        }
    }

    fn run(mut self, stop: &AtomicBool, begun: &AtomicBool) -> Result<TapLog, TapError> {
        let (mut failure, mut has_begun) = (None, false);
        while failure.is_none() && !stop.load(Ordering::Relaxed) {
            if !has_begun && begun.load(Ordering::Relaxed) {
                has_begun = true;
                self.link.workload_begins(self.clock.now_ns());
            }
            let is_idle = !self.write_ready();
            match self.read_arrived() {
                Ok(0) if is_idle => self.wait().map_err(TapError::Wait)?,
                Ok(_) => self.awake_since_ns = None,
                Err(error) => failure = Some(format!("a TAP device is gone: {error}")),
            }
        }
        Ok(TapLog {
            started_ns: self.clock.start_ns,
            ended_ns: self.clock.now_ns(),
            link: self.link.into_log(),
            lateness: self.lateness.summary().into(),
            refused: self.refused,
            failure,
        })
    }

    /// Writes due frames of both directions in turn. Returns whether there were any.
    fn write_ready(&mut self) -> bool {
        let Self { taps, link, clock, buffers, lateness, refused, .. } = self;
        let mut write = |direction: &mut Direction<Vec<u8>>, device: &SyncDevice| -> bool {
            if direction.next_ready().is_none() {
                return false;
            }
            let Some((ready_ns, frame)) = direction.dequeue_ready(clock.now_ns()) else { return false };
            // reads the clock again: writing the last frame may have taken long
            lateness.record(clock.now_ns() - ready_ns);
            if device.send(&frame).is_err() {
                refused.count += 1;
                refused.bytes += frame.len() as u64;
            }
            if buffers.len() < BUFFERS_KEPT {
                buffers.push(frame);
            }
            true
        };
        for batch in 0..BATCH {
            let to_target = write(&mut link.to_target, &taps.target);
            let to_initiator = write(&mut link.to_initiator, &taps.initiator);
            if !to_target && !to_initiator {
                return batch > 0;
            }
        }
        true
    }

    /// Reads frames from both devices in turn; returns how many, or the error of a device.
    fn read_arrived(&mut self) -> io::Result<usize> {
        let Self { taps, link, clock, frame, buffers, .. } = self;
        let mut read = |direction: &mut Direction<Vec<u8>>, device: &SyncDevice| -> io::Result<bool> {
            let length = match device.recv(frame) {
                Ok(length) => length,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            let mut buffer = buffers.pop().unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(frame.get(..length).unwrap_or_default());
            direction.enqueue(clock.now_ns(), buffer);
            Ok(true)
        };
        let mut count = 0;
        for _ in 0..BATCH {
            let to_target = read(&mut link.to_target, &taps.initiator)?;
            let to_initiator = read(&mut link.to_initiator, &taps.target)?;
            count += usize::from(to_target) + usize::from(to_initiator);
            if !to_target && !to_initiator {
                break;
            }
        }
        Ok(count)
    }

    /// Waits for frames, or until the next one is due; polls at the end of the wait if enough sleep is credited.
    fn wait(&mut self) -> io::Result<()> {
        let now_ns = self.clock.now_ns();
        let due_ns = self.link.next_ready();
        let left_ns = due_ns.map_or(LONGEST_WAIT_NS, |due_ns| due_ns.saturating_sub(now_ns));
        let margin_ns = self.margin_ns.min(self.sleep_credit_ns);
        if left_ns <= margin_ns {
            self.sleep_credit_ns -= self.awake_since_ns.map_or(0, |awake_since_ns| now_ns - awake_since_ns);
            self.awake_since_ns = Some(now_ns);
            std::hint::spin_loop();
            return Ok(());
        }
        self.awake_since_ns = None;
        let timeout = Timespec { tv_sec: 0, tv_nsec: (left_ns - margin_ns).clamp(SHORTEST_SLEEP_NS, LONGEST_WAIT_NS) };
        let mut devices =
            [PollFd::new(&self.taps.initiator, PollFlags::IN), PollFd::new(&self.taps.target, PollFlags::IN)];
        let polled = poll(&mut devices, Some(&timeout));
        let woken_ns = self.clock.now_ns();
        self.sleep_credit_ns = (self.sleep_credit_ns + woken_ns - now_ns).min(SLEEP_CREDIT_NS);
        match polled {
            Ok(0) if margin_ns == self.margin_ns && left_ns <= LONGEST_WAIT_NS => {
                let is_late = due_ns.is_some_and(|due_ns| woken_ns > due_ns);
                self.margin_ns += if is_late { 19 * MARGIN_STEP_NS } else { -MARGIN_STEP_NS };
                self.margin_ns = self.margin_ns.clamp(MARGIN_NS.0, MARGIN_NS.2);
                Ok(())
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_opened_is_reported() {
        let tap = |name: &str, namespace: Option<&str>| TapSettings {
            name: name.into(),
            namespace: namespace.map(PathBuf::from),
        };
        let refused =
            |tap: &TapSettings| TapLink::open(tap, tap).err().map(|error| error.to_string()).unwrap_or_default();
        let no_namespace = refused(&tap("left", Some("/nowhere/namespace")));
        assert!(no_namespace.starts_with("cannot open TAP device left: No such file"), "{no_namespace}");
        let no_name = refused(&tap("a-name-of-more-than-15-bytes", None));
        assert!(no_name.starts_with("cannot open TAP device a-name-of-more-than-15-bytes: "), "{no_name}");
    }

    #[test]
    fn settings_of_devices_are_json() {
        let tap: TapSettings = serde_json::from_str(r#"{"name": "left"}"#).unwrap();
        assert_eq!(tap, TapSettings { name: "left".into(), namespace: None });
        assert!(serde_json::from_str::<TapSettings>(r#"{"name": "left", "netns": "x"}"#).is_err());
    }
}
