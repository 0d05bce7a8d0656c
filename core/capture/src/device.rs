//! An interface, opened by libpcap: packets with their times, and counts of what was dropped.
//!
//! It never waits: [`wait`] does, for several at once, so that a quiet interface keeps nobody from his other work.

use std::fs;
use std::path::Path;
use std::time::Duration;

use iscsitrace_wire::frame::LinkType;
pub use pcap::IfFlags;
use pcap::{Active, Capture, Precision, Stat, TimestampType};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{RecordingError, said};
use crate::portals;
use crate::settings::InterfaceSettings;

/// The kernel hands a part of its buffer over when it is full, or after this time.
pub const HANDED_OVER_AFTER: Duration = Duration::from_millis(40);
/// DLT_RAW of Linux; in files it is LINKTYPE_RAW.
const DLT_RAW: i32 = 12;

/// A packet as it arrives.
#[derive(Debug, Clone, Copy)]
pub struct ArrivedPacket<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: i64,
    /// Bytes on the wire.
    pub original_length: u32,
    /// Bytes kept.
    pub data: &'a [u8],
}

/// What was counted since the interface was opened.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Packets that the filter let pass, dropped ones too.
    pub seen: u64,
    /// Of these, dropped by the kernel for lack of room.
    pub dropped: u64,
    /// Dropped by the interface or its driver.
    pub dropped_by_interface: u64,
}

/// An open interface.
pub struct Device {
    /// Its name.
    pub name: String,
    /// What its frames begin with.
    pub link_type: LinkType,
    /// The capture filter in force.
    pub filter: String,
    /// Whether its clock ticks in microseconds; else in nanoseconds.
    pub is_in_microseconds: bool,
    /// Whether the kernel counts packets twice, out and in, of which libpcap hands over one.
    pub is_loopback: bool,
    capture: Capture<Active>,
    delivered: u64,
    counts: Counts,
    /// As libpcap gave them last: of 32 bits.
    last: Stat,
}

impl Device {
    /// Opens an interface.
    ///
    /// # Errors
    /// There is none of that name, it may not be opened, or the filter is none.
    pub fn open(settings: &InterfaceSettings) -> Result<Self, RecordingError> {
        let name = settings.name.clone();
        // packets of network interfaces come with nanoseconds; libpcap's other devices (USB, D-Bus) have microseconds
        let is_in_microseconds = name != "any" && !is_network_interface(&name);
        let failed = |error: pcap::Error| failure(&name, said(error));
        let snaplen = i32::try_from(settings.snaplen).unwrap_or(i32::MAX);
        let mut inactive = Capture::from_device(name.as_str())
            .map_err(failed)?
            .snaplen(snaplen)
            .buffer_size(i32::try_from(settings.buffer_bytes).unwrap_or(i32::MAX))
            .promisc(settings.is_promiscuous && name != "any")
            .timeout(HANDED_OVER_AFTER.as_millis() as i32)
            .precision(if is_in_microseconds { Precision::Micro } else { Precision::Nano });
        if let Some(clock) = &settings.time_stamp_type {
            inactive = inactive.tstamp_type(time_stamp_type(clock)?);
        }
        let capture = inactive.open().and_then(Capture::setnonblock).map_err(failed)?;
        let link_type = match capture.get_datalink().0 {
            DLT_RAW => LinkType::RAW,
            value => LinkType(u16::try_from(value).unwrap_or(u16::MAX)),
        };
        let mut device = Self {
            filter: String::new(),
            is_loopback: is_loopback(&name),
            name,
            link_type,
            is_in_microseconds,
            capture,
            delivered: 0,
            counts: Counts::default(),
            last: Stat { received: 0, dropped: 0, if_dropped: 0 },
        };
        device.narrow(settings.filter.clone().unwrap_or_else(|| portals::filter(link_type, &[])))?;
        device.last = device.capture.stats().map_err(|error| failure(&device.name, said(error)))?;
        Ok(device)
    }

    /// Sets another capture filter.
    ///
    /// # Errors
    /// It is none.
    pub fn narrow(&mut self, expression: String) -> Result<(), RecordingError> {
        match self.capture.filter(&expression, true) {
            Ok(()) => {
                self.filter = expression;
                Ok(())
            }
            Err(error) => Err(RecordingError::Filter { expression, message: said(error) }),
        }
    }

    /// Hands over packets that are there, so many at most; gives how many there were.
    ///
    /// # Errors
    /// What libpcap says, as when the interface is gone.
    pub fn dispatch(&mut self, limit: usize, mut each: impl FnMut(ArrivedPacket<'_>)) -> Result<usize, String> {
        let nanoseconds = if self.is_in_microseconds { 1000 } else { 1 };
        let handed_over = self.capture.dispatch(Some(limit), |packet| {
            let time = packet.header.ts;
            each(ArrivedPacket {
                time_ns: time.tv_sec * 1_000_000_000 + time.tv_usec * nanoseconds,
                original_length: packet.header.len,
                data: packet.data,
            });
        });
        let count = handed_over.map_err(said)?;
        self.delivered += count as u64;
        Ok(count)
    }

    /// What was counted until now.
    pub fn count(&mut self) -> Counts {
        // an interface that is gone counts nothing more
        if let Ok(now) = self.capture.stats() {
            let since = |now: u32, before: u32| u64::from(now.wrapping_sub(before));
            self.counts.seen += since(now.received, self.last.received);
            self.counts.dropped += since(now.dropped, self.last.dropped);
            self.counts.dropped_by_interface += since(now.if_dropped, self.last.if_dropped);
            self.last = now;
        }
        if self.is_loopback {
            self.counts.seen = self.delivered + self.counts.dropped;
        }
        self.counts
    }
}

/// Waits until one of them has packets, or the time is over.
pub fn wait<'a>(devices: impl Iterator<Item = &'a Device>, limit: Duration) {
    let mut waiting: Vec<PollFd<'_>> = devices.map(|device| PollFd::new(&device.capture, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    // interrupted is as good as over: the caller looks at everything again
    let _ = poll(&mut waiting, Some(&limit));
}

/// What libpcap can capture on.
///
/// # Errors
/// What libpcap says.
pub fn list() -> Result<Vec<pcap::Device>, String> {
    pcap::Device::list().map_err(said)
}

/// LINKTYPE_ values that an interface offers: it is opened for a moment, and nothing is captured.
///
/// # Errors
/// It may not be opened, or is not there.
pub fn link_types(name: &str) -> Result<Vec<u16>, RecordingError> {
    let failed = |error: pcap::Error| failure(name, said(error));
    let capture = Capture::from_device(name).and_then(Capture::open).map_err(failed)?;
    let offered = capture.list_datalinks().map_err(failed)?;
    let in_files =
        |value: i32| if value == DLT_RAW { LinkType::RAW.0 } else { u16::try_from(value).unwrap_or(u16::MAX) };
    Ok(offered.into_iter().map(|offered| in_files(offered.0)).collect())
}

/// Whether the kernel has a network interface of that name.
fn is_network_interface(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && Path::new("/sys/class/net").join(name).exists()
}

/// Whether it is the loopback device, or all devices and that one with them.
fn is_loopback(name: &str) -> bool {
    const IFF_LOOPBACK: u32 = 0x8;
    let flags = fs::read_to_string(Path::new("/sys/class/net").join(name).join("flags")).unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
    name == "any" || flags & IFF_LOOPBACK != 0
}

fn failure(name: &str, message: String) -> RecordingError {
    let interface = name.to_owned();
    let is_there = name == "any"
        || is_network_interface(name)
        || pcap::Device::list().is_ok_and(|devices| devices.iter().any(|device| device.name == name));
    if !is_there {
        RecordingError::NoSuchInterface(interface)
    } else if !may_capture() {
        RecordingError::Permission { interface, message }
    } else {
        RecordingError::Interface { interface, message }
    }
}

/// Whether this process has the capability CAP_NET_RAW.
pub fn may_capture() -> bool {
    const CAP_NET_RAW: u32 = 13;
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> CAP_NET_RAW & 1 == 1)
}

fn time_stamp_type(name: &str) -> Result<TimestampType, RecordingError> {
    match name {
        "host" => Ok(TimestampType::Host),
        "host_lowprec" => Ok(TimestampType::HostLowPrec),
        "host_hiprec" => Ok(TimestampType::HostHighPrec),
        "adapter" => Ok(TimestampType::Adapter),
        "adapter_unsynced" => Ok(TimestampType::AdapterUnsynced),
        _ => Err(RecordingError::Settings(format!("there is no time stamp type {name}"))),
    }
}
