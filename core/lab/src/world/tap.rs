//! The link in real time, between two TAP devices: what the kernel of one side sends comes out on the other when the link
//! says so. Makes no namespaces and sets no addresses; that is done by whoever starts it.
//!
//! ```text
//! initiator's namespace                                      target's namespace
//!   kernel TCP -- TAP device =[frames]= link =[frames]= TAP device -- kernel TCP
//! ```
//!
//! A frame arrives when it is read, and leaves at a time that the link computes; a late wake-up makes that one frame late,
//! never those after it. Waking up takes tens of microseconds, so the wait ends that much before a frame is due, and the
//! rest is spent asking the clock. How much that is, is learned as it goes. It asks the clock no longer than it slept
//! before: the traffic may need this processor, and at many frames a second being late by one wake-up is what they bear.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{LinkNameSpaceType, current_timer_slack, move_into_link_name_space, set_current_timer_slack};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::lateness::{Lateness, LatenessSummary};
use crate::link::log::Tally;
use crate::link::{Direction, Link, LinkLog, LinkSettings, SettingsError};

/// Largest frame that a TAP device passes on: 64 KiB of MTU and the Ethernet header with two VLAN tags.
const FRAME_BYTES: usize = 65_535 + 22;
/// Frames that are read from one device, or written, before the rest is looked at.
const BATCH: usize = 8;
/// Buffers that are kept for further frames.
const BUFFERS_KEPT: usize = 4096;
/// How long `stop` may stay unnoticed.
const LONGEST_WAIT_NS: i64 = 20_000_000;
/// How long before a frame is due the wait ends: at least, at first, at most.
const MARGIN_NS: (i64, i64, i64) = (2_000, 50_000, 150_000);
/// Step by which a wake-up in time shortens the margin; one that came too late lengthens it by 19 of them, so that one
/// wake-up in twenty is late.
const MARGIN_STEP_NS: i64 = 200;
/// A sleep is not shorter than this when it takes one, for going to sleep and waking up take half as much.
const SHORTEST_SLEEP_NS: i64 = 20_000;
/// Time asleep that counts for later, at most.
const SLEEP_CREDIT_NS: i64 = 1_000_000;

/// A TAP device by name; it is made if it does not exist, and then goes with the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapSettings {
    /// Name of the interface.
    pub name: String,
    /// Network namespace that it is in, as a file such as `/run/netns/initiator`; without it, that of this thread.
    #[serde(default)]
    pub namespace: Option<PathBuf>,
}

/// Why a link could not run.
#[derive(Debug, Error)]
pub enum TapError {
    /// A device could not be opened.
    #[error("cannot open TAP device {name}: {source}")]
    Open {
        /// Its name.
        name: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The settings make no sense.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The operating system refused to let it wait.
    #[error("cannot wait for frames: {0}")]
    Wait(io::Error),
}

/// What a link did in real time. Times are nanoseconds of Unix time, counted on by the monotonic clock from the start.
#[derive(Debug, Clone, Serialize)]
pub struct TapLog {
    /// When it began.
    pub started_ns: i64,
    /// When it ended.
    pub ended_ns: i64,
    /// What it carried and dropped.
    pub link: LinkLog,
    /// How long after their times frames were handed to the kernel.
    pub lateness: LatenessSummary,
    /// Frames whose time had come, but which the kernel did not take: the device was down.
    pub refused: Tally,
    /// Why it ended before it was told to: a device that is gone.
    pub failure: Option<String>,
}

/// Two TAP devices, open. They are there as long as this is, unless someone made them to stay.
pub struct TapLink {
    initiator: SyncDevice,
    target: SyncDevice,
}

impl TapLink {
    /// Opens the devices. Offloads are off: every frame is one that a wire could carry.
    ///
    /// # Errors
    /// The device that cannot be opened, and why.
    pub fn open(initiator: &TapSettings, target: &TapSettings) -> Result<Self, TapError> {
        Ok(Self { initiator: open(initiator)?, target: open(target)? })
    }

    /// Moves frames until `stop` is set, which is noticed within 20 ms, or a device is gone. Where other programs compete
    /// for the processors, the thread that calls this should have a priority above theirs (SCHED_FIFO).
    ///
    /// # Errors
    /// Settings that make no sense; a system that cannot wait.
    pub fn run(&self, settings: &LinkSettings, stop: &AtomicBool) -> Result<TapLog, TapError> {
        let link = Link::new(settings)?;
        // the kernel may wake a thread up to 50 us late, to save energy, unless told otherwise
        let slack = current_timer_slack().ok().and_then(NonZeroU64::new);
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let result = Mover::new(self, link).run(stop);
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
        // a thread of its own enters the namespace: a device stays with its file wherever that is used
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

/// The clock of a run.
struct Clock {
    started: Instant,
    started_ns: i64,
}

impl Clock {
    fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self { started: Instant::now(), started_ns: nanoseconds(since_epoch) }
    }

    fn now_ns(&self) -> i64 {
        self.started_ns + nanoseconds(self.started.elapsed())
    }
}

fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// A run of a link.
struct Mover<'taps> {
    taps: &'taps TapLink,
    link: Link<Vec<u8>>,
    clock: Clock,
    frame: Box<[u8]>,
    buffers: Vec<Vec<u8>>,
    margin_ns: i64,
    /// How long it slept, less how long it asked the clock instead.
    sleep_credit_ns: i64,
    /// Since when it has been asking the clock, with nothing else to do.
    awake_since_ns: Option<i64>,
    lateness: Lateness,
    refused: Tally,
}

impl<'taps> Mover<'taps> {
    fn new(taps: &'taps TapLink, link: Link<Vec<u8>>) -> Self {
        Self {
            taps,
            link,
            clock: Clock::start(),
            frame: vec![0; FRAME_BYTES].into_boxed_slice(),
            buffers: Vec::new(),
            margin_ns: MARGIN_NS.1,
            sleep_credit_ns: 0,
            awake_since_ns: None,
            lateness: Lateness::default(),
            refused: Tally::default(),
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Result<TapLog, TapError> {
        let mut failure = None;
        while failure.is_none() && !stop.load(Ordering::Relaxed) {
            let is_idle = !self.write_ready();
            match self.read_arrived() {
                Ok(0) if is_idle => self.wait().map_err(TapError::Wait)?,
                Ok(_) => self.awake_since_ns = None,
                Err(error) => failure = Some(format!("a TAP device is gone: {error}")),
            }
        }
        Ok(TapLog {
            started_ns: self.clock.started_ns,
            ended_ns: self.clock.now_ns(),
            link: self.link.into_log(),
            lateness: self.lateness.summary(),
            refused: self.refused,
            failure,
        })
    }

    /// Writes frames whose time has come, of both directions in turn. Whether there were any.
    fn write_ready(&mut self) -> bool {
        let Self { taps, link, clock, buffers, lateness, refused, .. } = self;
        let mut write = |direction: &mut Direction<Vec<u8>>, device: &SyncDevice| -> bool {
            if direction.next_ready().is_none() {
                return false;
            }
            let Some((ready_ns, frame)) = direction.dequeue_ready(clock.now_ns()) else { return false };
            // the clock again: a frame before this one may have taken its time
            lateness.add(clock.now_ns() - ready_ns);
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

    /// Reads what came, from both devices in turn: how many frames, or why a device cannot be read.
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

    /// Waits for frames, or until the next one is due; at the end of the wait without sleeping, if that is deserved.
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
    fn a_device_that_cannot_be_opened_is_named() {
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
