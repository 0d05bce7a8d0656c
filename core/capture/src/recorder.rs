//! The capture loop: packets from interfaces, through the trigger if there is one, into files.
//!
//! While a disk or pipe is slow, packets wait in the kernel's buffer; when it is full, the kernel drops and counts.

use std::time::{Duration, Instant};

use iscsitrace_trace::counters::Counters;
use iscsitrace_trace::reader::sequence::{Input, Sequence};
use iscsitrace_trace::reader::{CaptureError, Packet};
use iscsitrace_wire::frame::LinkType;

use crate::clock::Clock;
use crate::confinement;
use crate::device::{self, ArrivedPacket, Counts, Device};
use crate::drops::DropReporter;
use crate::dumpcap::{self, Dumpcap};
use crate::error::{RecordingError, os_message};
use crate::files::{Files, InterfaceDescription, Watch};
use crate::portal_search::PortalSearch;
use crate::report::{Caller, End, Event, InterfaceCounts, Outcome};
use crate::settings::{CaptureSettings, InterfaceSettings};
use crate::tcp_info::Sampler;
use crate::trigger::{KeptPacket, TCP_INFO, Trigger};

/// Packets per read of an interface.
const BATCH: usize = 1024;
/// Time between two rounds of periodic work.
const PERIOD: Duration = Duration::from_millis(50);
/// Time between two readings of the drop counters.
const COUNTED_EVERY: Duration = Duration::from_millis(500);
/// A packet is read within this time; twice what libpcap waits, and a look of this loop.
const HANDED_OVER_AFTER: Duration = Duration::from_millis(130);
/// The same where dumpcap reads it first and waits up to 250 ms.
const HANDED_OVER_BY_DUMPCAP_AFTER: Duration = Duration::from_millis(400);
/// A sample of a hundred sockets takes half a millisecond.
const SAMPLED_AT_MOST_EVERY: Duration = Duration::from_millis(1);
/// How long to wait at the end for packets already captured.
const DRAINED_WITHIN: Duration = Duration::from_millis(150);

/// Captures until the caller stops it, or a limit is reached.
///
/// # Errors
/// The capture cannot begin. What ends it later is in the outcome.
pub fn run(settings: &CaptureSettings, caller: &mut dyn Caller) -> Result<Outcome, RecordingError> {
    if settings.interfaces.is_empty() {
        return Err(RecordingError::Settings("name an interface".to_owned()));
    }
    match &settings.helper {
        Some(program) => run_dumpcap(&program.clone(), settings, caller),
        None => run_devices(settings, caller),
    }
}

/// Writes a packet with its comment.
type Release<'a> = &'a mut dyn FnMut(&KeptPacket, Option<&str>) -> Result<(), End>;
/// Reports a text.
type Found<'a> = &'a mut dyn FnMut(&str);

/// Receives packets: passes them through the trigger, or directly into files.
struct Sink<'a> {
    files: Files,
    trigger: Option<Trigger>,
    sampler: Option<Sampler>,
    clock: Clock,
    watch: Watch<'a>,
    frame: u64,
    taken: Vec<u64>,
    end: Option<End>,
    has_told_of_memory: bool,
}

impl<'a> Sink<'a> {
    fn begin(
        settings: &CaptureSettings,
        interfaces: Vec<InterfaceDescription>,
        caller: &'a mut dyn Caller,
        handed_over_after: Duration,
    ) -> Result<Self, RecordingError> {
        let trigger = settings.trigger.as_ref().map(Trigger::new).transpose()?;
        let mut watch = Watch::new(caller);
        let taken = vec![0; interfaces.len()];
        let files =
            Files::begin(settings.output.clone(), settings.section.clone(), settings.stop, interfaces, &mut watch)?;
        let clock = Clock::new(handed_over_after);
        let interval =
            settings.tcp_info_every_ns.map(|every_ns| Duration::from_nanos(every_ns).max(SAMPLED_AT_MOST_EVERY));
        let sampler = interval.map(Sampler::new).transpose().map_err(|error| {
            let message = os_message(&error);
            RecordingError::Settings(format!("the kernel does not list its TCP sockets (modprobe tcp_diag): {message}"))
        })?;
        Ok(Self { files, trigger, sampler, clock, watch, frame: 0, taken, end: None, has_told_of_memory: false })
    }

    #[inline]
    fn take(&mut self, interface: usize, link_type: LinkType, packet: &ArrivedPacket<'_>) {
        if self.end.is_some() {
            return;
        }
        if let Some(taken) = self.taken.get_mut(interface) {
            *taken += 1;
        }
        if self.trigger.is_none() {
            self.end = self.files.write(interface, link_type, packet, None, &mut self.watch).err();
            return;
        }
        self.frame += 1;
        self.clock.stamp(packet.time_ns);
        let packet = Packet {
            frame: self.frame,
            time_ns: packet.time_ns,
            link_type,
            interface: u32::try_from(interface).unwrap_or(u32::MAX),
            original_length: packet.original_length,
            data: packet.data,
        };
        self.release_by(|trigger, release, found| trigger.take(&packet, release, found));
    }

    /// Samples TCP_INFO if it is due.
    fn sample(&mut self) {
        let Some(sampler) = self.sampler.as_mut().filter(|sampler| sampler.due_in().is_zero()) else { return };
        if self.end.is_some() {
            return;
        }
        let mut lines = Vec::new();
        let filters = self.files.interfaces.iter().map(|described| described.filter.as_str());
        let sampled = sampler.sample(filters, |sample| {
            let mut line = String::new();
            sample.line(&mut line);
            lines.push((sample.time_ns, line));
        });
        if let Err(error) = sampled {
            self.sampler = None;
            let text = format!("no more samples of TCP_INFO: {}", os_message(&error));
            self.watch.report(Event::Warning { text });
        }
        for (time_ns, line) in lines {
            if self.trigger.is_some() {
                self.release_by(|trigger, release, _| trigger.keep_tcp_info(time_ns, &line, release));
            } else if self.end.is_none() {
                self.end = self.files.write_tcp_info(time_ns, &line, &mut self.watch).err();
            }
        }
    }

    /// How long to wait for packets: until periodic work or a sample is due.
    fn patience(&self) -> Duration {
        self.sampler.as_ref().map_or(PERIOD, |sampler| sampler.due_in().min(PERIOD))
    }

    /// The source had no packet when it was asked then.
    fn note_silence(&mut self, asked: Instant) {
        if self.end.is_none()
            && let Some(now_ns) = self.clock.silent_until_ns(asked)
        {
            self.release_by(|trigger, release, found| trigger.tick(now_ns, release, found));
        }
    }

    /// If the capture ends in a hang, the packets kept so far are written.
    fn keep_hang(&mut self) {
        let can_write = !matches!(self.end, Some(End::Output(_) | End::Closed)) && self.files.has_room(&self.watch);
        let Some(last_ns) = self.clock.last_ns().filter(|_| can_write) else { return };
        let now_ns = self.clock.silent_until_ns(Instant::now()).unwrap_or(last_ns);
        let end = self.end.take();
        self.release_by(|trigger, release, found| trigger.finish(now_ns, release, found));
        self.end = match self.end.take() {
            failed @ Some(End::Output(_) | End::Closed) => failed,
            _ => end,
        };
    }

    /// Calls the trigger; writes the packets that it releases, and reports what it finds.
    fn release_by(&mut self, call: impl FnOnce(&mut Trigger, Release<'_>, Found<'_>) -> Result<(), End>) {
        let Some(trigger) = &mut self.trigger else { return };
        let mut texts = Vec::new();
        let (files, watch) = (&mut self.files, &mut self.watch);
        let mut release = |kept: &KeptPacket, comment: Option<&str>| {
            if kept.link_type == TCP_INFO {
                return files.write_tcp_info(kept.time_ns, &String::from_utf8_lossy(&kept.data), watch);
            }
            let arrived =
                ArrivedPacket { time_ns: kept.time_ns, original_length: kept.original_length, data: &kept.data };
            files.write(kept.interface as usize, kept.link_type, &arrived, comment, watch)
        };
        let result = call(trigger, &mut release, &mut |text| texts.push(text.to_owned()));
        watch.progress.slow_count = trigger.found_count;
        texts.into_iter().for_each(|text| watch.report(Event::Slow { text }));
        if trigger.has_forgotten && !self.has_told_of_memory {
            self.has_told_of_memory = true;
            let text = "the trigger's memory is too small: packets before a slow command were dropped";
            watch.report(Event::Warning { text: text.to_owned() });
        }
        if let Err(end) = result {
            self.end = Some(end);
        }
    }

    /// Periodic work; false at the end.
    fn tick(&mut self) -> bool {
        if self.end.is_none() {
            self.end = self.files.tick(&mut self.watch).err();
        }
        if !self.watch.report_progress() && self.end.is_none() {
            self.end = Some(End::Stopped);
        }
        self.end.is_none()
    }

    fn set_counts(&mut self, interface: usize, counts: Counts) {
        if let Some(described) = self.files.interfaces.get_mut(interface) {
            described.counts = counts;
        }
        let all = || self.files.interfaces.iter().map(|described| described.counts);
        self.watch.progress.seen_count = all().map(|counts| counts.seen).sum();
        self.watch.progress.dropped_count = all().map(|counts| counts.dropped + counts.dropped_by_interface).sum();
    }

    fn finish(mut self) -> Outcome {
        self.keep_hang();
        let completed = self.files.finish(&mut self.watch);
        let end = match (self.end.take(), completed) {
            (Some(end @ (End::Interface(_) | End::Output(_) | End::Closed)), _) => end,
            (_, Err(end)) => end,
            (end, Ok(())) => end.unwrap_or(End::Stopped),
        };
        // so that the last events are reported
        self.watch.report_progress();
        let interfaces = self.files.interfaces.iter().map(|described| InterfaceCounts {
            name: described.name.clone(),
            link_type: described.link_type.map_or(0, |link_type| link_type.0),
            filter: described.filter.clone(),
            seen_count: described.counts.seen,
            dropped_count: described.counts.dropped,
            dropped_by_interface_count: described.counts.dropped_by_interface,
            written_count: described.written_count,
        });
        Outcome { end, interfaces: interfaces.collect(), files: self.files.paths(), progress: self.watch.progress }
    }
}

fn describe(device: &Device, settings: &InterfaceSettings) -> InterfaceDescription {
    InterfaceDescription {
        name: device.name.clone(),
        description: settings.description.clone(),
        link_type: Some(device.link_type),
        snaplen: settings.snaplen,
        filter: device.filter.clone(),
        is_in_microseconds: device.is_in_microseconds,
        ..InterfaceDescription::default()
    }
}

fn run_devices(settings: &CaptureSettings, caller: &mut dyn Caller) -> Result<Outcome, RecordingError> {
    let mut devices = settings.interfaces.iter().map(Device::open).collect::<Result<Vec<_>, _>>()?;
    let mut looks = Vec::new();
    if let Some(learn) = settings.learn {
        for (device, interface) in devices.iter().zip(&settings.interfaces) {
            looks.push(PortalSearch::begin(learn, device, interface)?);
        }
    }
    let described = devices.iter().zip(&settings.interfaces).map(|(device, settings)| describe(device, settings));
    let described = described.collect();
    let problem = confinement::of_capture(settings, None);
    let mut sink = Sink::begin(settings, described, caller, HANDED_OVER_AFTER)?;
    sink.watch.progress.events.extend(problem);
    let mut drops = DropReporter::new(devices.len());
    let mut counted = Instant::now();
    while sink.end.is_none() {
        let mut is_busy = false;
        let asked = Instant::now();
        let mut has_heard = false;
        for (place, device) in devices.iter_mut().enumerate() {
            let link_type = device.link_type;
            match device.dispatch(BATCH, |arrived| sink.take(place, link_type, &arrived)) {
                Ok(count) => {
                    is_busy |= count >= BATCH;
                    has_heard |= count > 0;
                }
                Err(message) => {
                    let message = format!("{}: {message}", device.name);
                    sink.end.get_or_insert(End::Interface(message));
                }
            }
        }
        if has_heard {
            sink.clock.hear(Instant::now());
        } else {
            sink.note_silence(asked);
        }
        for (place, look) in looks.iter_mut().enumerate() {
            continue_portal_search(look, place, &mut devices, &mut sink);
        }
        if sink.watch.since_report() >= PERIOD {
            if counted.elapsed() >= COUNTED_EVERY {
                counted = Instant::now();
                for (place, device) in devices.iter_mut().enumerate() {
                    sink.set_counts(place, device.count());
                }
                if drops.report(&sink.files.interfaces, &mut sink.watch.progress, false)
                    && let Err(end) = sink.files.tell_drops(&mut sink.watch)
                {
                    sink.end.get_or_insert(end);
                }
            }
            sink.tick();
        }
        sink.sample();
        if !is_busy && sink.end.is_none() {
            device::wait(devices.iter().chain(looks.iter().filter_map(PortalSearch::device)), sink.patience());
        }
    }
    let mut counts: Vec<Counts> = devices.iter_mut().map(Device::count).collect();
    for (place, counts) in counts.iter().enumerate() {
        sink.set_counts(place, *counts);
    }
    if sink.end == Some(End::Stopped) {
        drain(&mut devices, &mut counts, &mut sink);
        for (place, device) in devices.iter_mut().enumerate().filter(|(_, device)| device.is_loopback) {
            sink.set_counts(place, device.count_at_end());
        }
    }
    drops.report(&sink.files.interfaces, &mut sink.watch.progress, true);
    Ok(sink.finish())
}

fn continue_portal_search(look: &mut PortalSearch, place: usize, devices: &mut [Device], sink: &mut Sink<'_>) {
    let Some(device) = devices.get_mut(place) else { return };
    let Some((filter, found)) = look.advance(device) else { return };
    let portals = found.iter().map(ToString::to_string).collect();
    match device.narrow(filter.clone()) {
        Ok(()) => {
            if let Some(described) = sink.files.interfaces.get_mut(place) {
                described.filter.clone_from(&filter);
            }
            sink.watch.report(Event::Portals { portals, filter });
        }
        Err(error) => sink.watch.report(Event::Warning { text: error.to_string() }),
    }
}

/// Reads packets that were captured before the end and not delivered yet: as many as the kernel counted.
fn drain(devices: &mut [Device], counts: &mut [Counts], sink: &mut Sink<'_>) {
    let begun = Instant::now();
    sink.end = None;
    loop {
        let mut is_complete = true;
        for (place, (device, counts)) in devices.iter_mut().zip(&mut *counts).enumerate() {
            let taken = sink.taken.get(place).copied().unwrap_or(0);
            // on a loopback device, the kernel's count does not show how many are still to come
            let left = if device.is_loopback {
                if begun.elapsed() < device::HANDED_OVER_AFTER { BATCH as u64 } else { 0 }
            } else {
                (counts.seen - counts.dropped).saturating_sub(taken)
            };
            if left == 0 {
                continue;
            }
            is_complete = false;
            let link_type = device.link_type;
            let limit = BATCH.min(usize::try_from(left).unwrap_or(BATCH));
            if device.dispatch(limit, |arrived| sink.take(place, link_type, &arrived)).is_err() {
                return;
            }
            if device.is_loopback {
                *counts = device.count();
                sink.set_counts(place, *counts);
            }
        }
        if is_complete || sink.end.is_some() || begun.elapsed() >= DRAINED_WITHIN {
            return;
        }
        device::wait(devices.iter(), Duration::from_millis(5));
    }
}

fn run_dumpcap(
    program: &std::path::Path,
    settings: &CaptureSettings,
    caller: &mut dyn Caller,
) -> Result<Outcome, RecordingError> {
    if settings.learn.is_some() {
        return Err(RecordingError::Settings(
            "dumpcap cannot search for portals: that needs permission to capture".to_owned(),
        ));
    }
    let described = settings.interfaces.iter().map(|interface| InterfaceDescription {
        name: interface.name.clone(),
        description: interface.description.clone(),
        snaplen: interface.snaplen,
        filter: dumpcap::filter(interface),
        ..InterfaceDescription::default()
    });
    let described: Vec<InterfaceDescription> = described.collect();
    let mut problem = None;
    let mut dumpcap = Dumpcap::start(program, &settings.interfaces, |child| {
        problem = confinement::of_capture(settings, Some(child));
    })?;
    let mut sink = match Sink::begin(settings, described, caller, HANDED_OVER_BY_DUMPCAP_AFTER) {
        Ok(sink) => sink,
        Err(error) => {
            dumpcap.stop();
            dumpcap.finish();
            return Err(error);
        }
    };
    sink.watch.progress.events.extend(problem);
    let mut has_gone = false;
    while sink.end.is_none() {
        let asked = Instant::now();
        sink.sample();
        match dumpcap.next(sink.patience()) {
            Ok(Some(passed)) => {
                take_captured(&mut sink, &passed);
                sink.clock.hear(Instant::now());
            }
            Ok(None) => sink.note_silence(asked),
            Err(()) => {
                has_gone = true;
                break;
            }
        }
        if sink.watch.since_report() >= PERIOD {
            sink.tick();
        }
    }
    dumpcap.stop();
    if sink.end == Some(End::Stopped) {
        sink.end = None;
        while let Ok(passed) = dumpcap.next(Duration::from_millis(20)) {
            if let Some(passed) = passed {
                take_captured(&mut sink, &passed);
            }
        }
    }
    let (info, messages) = dumpcap.finish();
    if has_gone {
        sink.end = Some(End::Interface(format!("dumpcap: {}", dumpcap::error_message(&messages))));
    }
    let counted = info.map(|info| info.interfaces).unwrap_or_default();
    for place in 0..sink.taken.len() {
        let dropped = counted.get(place).and_then(|interface| interface.dropped_count).unwrap_or(0);
        let seen = sink.taken.get(place).copied().unwrap_or(0) + dropped;
        sink.set_counts(place, Counts { seen, dropped, dropped_by_interface: 0 });
    }
    DropReporter::new(sink.taken.len()).report(&sink.files.interfaces, &mut sink.watch.progress, true);
    Ok(sink.finish())
}

fn take_captured(sink: &mut Sink<'_>, passed: &dumpcap::CapturedPacket) {
    let arrived =
        ArrivedPacket { time_ns: passed.time_ns, original_length: passed.original_length, data: &passed.data };
    sink.take(passed.interface, passed.link_type, &arrived);
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The files cannot be read.
    #[error(transparent)]
    Input(#[from] CaptureError),
    /// The capture cannot begin.
    #[error(transparent)]
    Live(#[from] RecordingError),
}

/// The same with packets of capture files instead of interfaces: what a trigger would have kept.
///
/// # Errors
/// The files cannot be read, or the capture cannot begin.
pub fn replay(inputs: Vec<Input>, settings: &CaptureSettings, caller: &mut dyn Caller) -> Result<Outcome, ReplayError> {
    let mut counters = Counters::default();
    let mut sequence = Sequence::open(inputs, &mut counters)?;
    let mut sink = Sink::begin(settings, Vec::new(), caller, Duration::ZERO)?;
    while sink.end.is_none() {
        let Some(packet) = sequence.next_packet(&mut counters)? else { break };
        let interface = packet.interface as usize;
        while sink.files.interfaces.len() <= interface {
            sink.files.add(InterfaceDescription::default());
            sink.taken.push(0);
        }
        let arrived =
            ArrivedPacket { time_ns: packet.time_ns, original_length: packet.original_length, data: packet.data };
        sink.take(interface, packet.link_type, &arrived);
        if sink.watch.since_report() >= PERIOD {
            sink.tick();
        }
    }
    let infos: Vec<_> = sequence.infos().flat_map(|info| info.interfaces.iter()).cloned().collect();
    for place in 0..sink.taken.len() {
        let dropped = infos.get(place).and_then(|interface| interface.dropped_count).unwrap_or(0);
        let seen = sink.taken.get(place).copied().unwrap_or(0) + dropped;
        sink.set_counts(place, Counts { seen, dropped, dropped_by_interface: 0 });
    }
    if sink.end.is_none() {
        sink.end = Some(End::Limit);
    }
    Ok(sink.finish())
}
