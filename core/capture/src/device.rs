//! An interface, opened by libpcap: packets with their times, and drop counts.
//!
//! Reading never waits. [`wait`] waits for several interfaces at once, so that a quiet one does not block the others.

use std::fs;
use std::path::Path;
use std::time::Duration;

use iscsitrace_wire::frame::LinkType;
pub use pcap::IfFlags;
use pcap::{Active, Capture, Precision, Stat, TimestampType};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{RecordingError, pcap_message};
use crate::portals;
use crate::settings::InterfaceSettings;

/// The kernel delivers a part of its buffer when it is full, or after this time.
pub const HANDED_OVER_AFTER: Duration = Duration::from_millis(40);
/// DLT_RAW of Linux; LINKTYPE_RAW in files.
const DLT_RAW: i32 = 12;

/// A packet as it arrives.
#[derive(Debug, Clone, Copy)]
pub struct ArrivedPacket<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: i64,
    /// Bytes on the wire.
    pub original_length: u32,
    /// Captured bytes.
    pub data: &'a [u8],
}

/// Counts since the interface was opened.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Packets that passed the filter, including dropped ones.
    pub seen: u64,
    /// Packets dropped by the kernel for lack of buffer.
    pub dropped: u64,
    /// Packets dropped by the interface or its driver.
    pub dropped_by_interface: u64,
}

/// An open interface.
pub struct Device {
    /// Its name.
    pub name: String,
    /// The link type of its frames.
    pub link_type: LinkType,
    /// The current capture filter.
    pub filter: String,
    /// Whether its time stamps are in microseconds; otherwise nanoseconds.
    pub is_in_microseconds: bool,
    /// Whether the kernel counts packets twice, sent and received, while libpcap delivers the second one only.
    pub is_loopback: bool,
    /// Whether it counts every packet so.
    is_doubled: bool,
    capture: Capture<Active>,
    delivered: u64,
    counts: Counts,
    /// Packets that the kernel counted, and those of them that it dropped.
    counted: (u64, u64),
    /// libpcap's last counts, of 32 bits.
    last: Stat,
}

impl Device {
    /// Opens an interface.
    ///
    /// # Errors
    /// The interface does not exist, may not be opened, or the filter is invalid.
    pub fn open(settings: &InterfaceSettings) -> Result<Self, RecordingError> {
        let name = settings.name.clone();
        // network interfaces have time stamps in nanoseconds; libpcap's other devices (USB, D-Bus) in microseconds
        let is_in_microseconds = name != "any" && !is_network_interface(&name);
        let failed = |error: pcap::Error| failure(&name, pcap_message(error));
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
            is_doubled: is_loopback(&name) && name != "any",
            name,
            link_type,
            is_in_microseconds,
            capture,
            delivered: 0,
            counts: Counts::default(),
            counted: (0, 0),
            last: Stat { received: 0, dropped: 0, if_dropped: 0 },
        };
        device.narrow(settings.filter.clone().unwrap_or_else(|| portals::filter(link_type, &[])))?;
        device.last = device.capture.stats().map_err(|error| failure(&device.name, pcap_message(error)))?;
        Ok(device)
    }

    /// Sets another capture filter.
    ///
    /// # Errors
    /// The filter is invalid.
    pub fn narrow(&mut self, expression: String) -> Result<(), RecordingError> {
        match self.capture.filter(&expression, true) {
            Ok(()) => {
                self.filter = expression;
                Ok(())
            }
            Err(error) => Err(RecordingError::Filter { expression, message: pcap_message(error) }),
        }
    }

    /// Delivers available packets, at most `limit`; returns their number.
    ///
    /// # Errors
    /// libpcap's message, for instance when the interface is gone.
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
        let count = handed_over.map_err(pcap_message)?;
        self.delivered += count as u64;
        Ok(count)
    }

    /// The counts so far.
    pub fn count(&mut self) -> Counts {
        // an interface that is gone counts nothing more
        if let Ok(now) = self.capture.stats() {
            let since = |now: u32, before: u32| u64::from(now.wrapping_sub(before));
            self.counted.0 += since(now.received, self.last.received);
            self.counted.1 += since(now.dropped, self.last.dropped);
            self.counts.dropped_by_interface += since(now.if_dropped, self.last.if_dropped);
            self.last = now;
        }
        let (seen, dropped) = self.counted;
        // of two copies that were dropped, one would have been delivered
        self.counts.dropped = if self.is_doubled { dropped.div_ceil(2) } else { dropped };
        self.counts.seen = if self.is_loopback { self.delivered + self.counts.dropped } else { seen };
        self.counts
    }

    /// The counts once every packet was delivered: on a loopback device, drops are known exactly only then.
    pub fn count_at_end(&mut self) -> Counts {
        self.count();
        let (counted, dropped) = self.counted;
        if self.is_doubled && dropped > 0 {
            self.counts.seen = counted.div_ceil(2).max(self.delivered);
            self.counts.dropped = (self.counts.seen - self.delivered).min(dropped);
        }
        self.counts
    }
}

/// Waits until one of them has packets, or the time limit.
pub fn wait<'a>(devices: impl Iterator<Item = &'a Device>, limit: Duration) {
    let mut waiting: Vec<PollFd<'_>> = devices.map(|device| PollFd::new(&device.capture, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    // an interruption is treated like the time limit: the caller looks at everything again
    let _ = poll(&mut waiting, Some(&limit));
}

/// The devices that libpcap can capture on.
///
/// # Errors
/// libpcap's message.
pub fn list() -> Result<Vec<pcap::Device>, String> {
    pcap::Device::list().map_err(pcap_message)
}

/// The LINKTYPE_ values of an interface. It is opened for a moment; nothing is captured.
///
/// # Errors
/// The interface may not be opened, or does not exist.
pub fn link_types(name: &str) -> Result<Vec<u16>, RecordingError> {
    let failed = |error: pcap::Error| failure(name, pcap_message(error));
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

/// Whether it is the loopback device, or the `any` device, which includes it.
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
        _ => Err(RecordingError::Settings(format!("unknown time stamp type {name}"))),
    }
}
