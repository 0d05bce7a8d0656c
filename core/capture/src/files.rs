//! The files of a capture: one, or a ring. Each is a complete pcapng file with its interfaces and their statistics.
//!
//! A file is created when its first packet arrives (the first one at once), so none is empty because the capture ended.
//! Everything written is readable shortly afterwards, whatever happens to this process.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use iscsitrace_trace::tcp_info::JOURNAL_SOURCE;
use iscsitrace_wire::capture_writer::{Interface, PcapngWriter, Section, Statistics};
use iscsitrace_wire::frame::LinkType;

use crate::device::{ArrivedPacket, Counts};
use crate::error::{RecordingError, os_message};
use crate::output::Output;
use crate::report::{Caller, End, Event, Progress};
use crate::ring::Ring;
use crate::settings::{Limits, OutputSettings, SectionSettings};

/// Packets are readable after this time.
const FLUSHED_AFTER: Duration = Duration::from_millis(100);

/// The caller of the capture, and the progress it sees.
pub struct Watch<'a> {
    caller: &'a mut dyn Caller,
    /// The progress for the caller.
    pub progress: Progress,
    started: Instant,
    reported_at: Instant,
    /// Whether the caller stopped the capture.
    pub is_stopped: bool,
}

impl<'a> Watch<'a> {
    /// A capture that begins now.
    pub fn new(caller: &'a mut dyn Caller) -> Self {
        let now = Instant::now();
        Self { caller, progress: Progress::default(), started: now, reported_at: now, is_stopped: false }
    }

    /// Reports the progress, and returns whether to continue.
    pub fn report_progress(&mut self) -> bool {
        self.reported_at = Instant::now();
        self.progress.elapsed_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.is_stopped |= self.caller.watch(&self.progress);
        self.progress.events.clear();
        !self.is_stopped
    }

    /// Time since the last report.
    pub fn since_report(&self) -> Duration {
        self.reported_at.elapsed()
    }

    /// Adds an event to the next report.
    pub fn report(&mut self, event: Event) {
        self.progress.events.push(event);
    }
}

/// The description of an interface in a file.
#[derive(Debug, Clone, Default)]
pub struct InterfaceDescription {
    /// Its name.
    pub name: String,
    /// The operating system's description.
    pub description: String,
    /// The link type of its frames; none before its first packet if dumpcap captures.
    pub link_type: Option<LinkType>,
    /// Maximum captured bytes of a packet.
    pub snaplen: u32,
    /// The current capture filter.
    pub filter: String,
    /// Whether its time stamps are in microseconds.
    pub is_in_microseconds: bool,
    /// Its packet counts.
    pub counts: Counts,
    /// Packets written.
    pub written_count: u64,
}

/// The current file.
struct Current {
    writer: PcapngWriter<Output>,
    path: PathBuf,
    begun: Instant,
    begun_ns: i64,
    flushed: Instant,
    packet_count: u64,
    /// Packets and bytes that the operating system has received.
    safe: (u64, u64),
    /// For each interface: its number in the file, its filter and counts at the start of the file, packets in the file.
    interfaces: Vec<InFile>,
}

#[derive(Default)]
struct InFile {
    number: Option<u32>,
    filter: String,
    counts: Counts,
    packet_count: u64,
}

/// The files of a capture.
pub struct Files {
    output: OutputSettings,
    section: SectionSettings,
    stop: Limits,
    /// The interfaces.
    pub interfaces: Vec<InterfaceDescription>,
    current: Option<Current>,
    ring: Ring,
    begun_count: u64,
    ended_count: u64,
    /// Bytes of complete files.
    ended_bytes: u64,
}

impl Files {
    /// Creates the first file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn begin(
        output: OutputSettings,
        section: SectionSettings,
        stop: Limits,
        interfaces: Vec<InterfaceDescription>,
        watch: &mut Watch<'_>,
    ) -> Result<Self, RecordingError> {
        let ring = Ring::new(&output);
        let mut files = Self {
            output,
            section,
            stop,
            interfaces,
            current: None,
            ring,
            begun_count: 0,
            ended_count: 0,
            ended_bytes: 0,
        };
        files.next(watch)?;
        Ok(files)
    }

    /// Adds an interface to the capture.
    pub fn add(&mut self, described: InterfaceDescription) {
        if let Some(current) = &mut self.current {
            current.interfaces.push(InFile { filter: described.filter.clone(), ..InFile::default() });
        }
        self.interfaces.push(described);
    }

    /// Writes a packet. An error if it was the last, or cannot be written.
    #[inline]
    pub fn write(
        &mut self,
        interface: usize,
        link_type: LinkType,
        packet: &ArrivedPacket<'_>,
        comment: Option<&str>,
        watch: &mut Watch<'_>,
    ) -> Result<(), End> {
        if self.current.is_none() {
            self.next(watch).map_err(|error| End::Output(error.to_string()))?;
        }
        let (Some(current), Some(described)) = (&mut self.current, self.interfaces.get_mut(interface)) else {
            return Ok(());
        };
        let number = match current.interfaces.get(interface).and_then(|interface| interface.number) {
            Some(number) => number,
            None => {
                described.link_type = Some(link_type);
                describe(current, interface, described).map_err(|error| failed(&error, current))?
            }
        };
        let written = current
            .writer
            .packet(number, packet.time_ns, packet.original_length, packet.data, comment)
            .and_then(|()| current.writer.out().end_block(&mut || watch.report_progress()));
        if let Err(error) = written {
            return Err(self.give_up(&error, watch));
        }
        current.packet_count += 1;
        if current.writer.out().is_drained() {
            current.safe = (current.packet_count, current.writer.out().byte_count);
        }
        described.written_count += 1;
        if let Some(in_file) = current.interfaces.get_mut(interface) {
            in_file.packet_count += 1;
        }
        let file_bytes = current.writer.out().byte_count;
        let file_packets = current.packet_count;
        watch.progress.written_count += 1;
        watch.progress.written_bytes = self.ended_bytes + file_bytes;
        let is_last = reached(self.stop.packets, watch.progress.written_count)
            || reached(self.stop.bytes, watch.progress.written_bytes);
        let is_full = self
            .output
            .next_file
            .is_some_and(|next| reached(next.packets, file_packets) || reached(next.bytes, file_bytes));
        if is_full {
            self.end_file(watch)?;
        }
        if is_last { Err(End::Limit) } else { Ok(()) }
    }

    /// Writes a sample of TCP_INFO as an entry of a journal. An error if it was the last, or cannot be written.
    pub fn write_tcp_info(&mut self, time_ns: i64, line: &str, watch: &mut Watch<'_>) -> Result<(), End> {
        if self.current.is_none() {
            self.next(watch).map_err(|error| End::Output(error.to_string()))?;
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        let written = current
            .writer
            .journal(time_ns, JOURNAL_SOURCE, line)
            .and_then(|()| current.writer.out().end_block(&mut || watch.report_progress()));
        if let Err(error) = written {
            return Err(self.give_up(&error, watch));
        }
        let file_bytes = current.writer.out().byte_count;
        watch.progress.tcp_info_count += 1;
        watch.progress.written_bytes = self.ended_bytes + file_bytes;
        if self.output.next_file.is_some_and(|next| reached(next.bytes, file_bytes)) {
            self.end_file(watch)?;
        }
        if reached(self.stop.bytes, watch.progress.written_bytes) { Err(End::Limit) } else { Ok(()) }
    }

    /// Periodic work.
    pub fn tick(&mut self, watch: &mut Watch<'_>) -> Result<(), End> {
        let elapsed_ns = |since: Instant| u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if reached(self.stop.duration_ns, elapsed_ns(watch.started)) {
            return Err(End::Limit);
        }
        if self.ring.is_due() {
            self.tidy(watch);
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.flushed.elapsed() >= FLUSHED_AFTER {
            current.flushed = Instant::now();
            if let Err(error) = current.writer.out().drain(&mut || watch.report_progress()) {
                return Err(self.give_up(&error, watch));
            }
            current.safe = (current.packet_count, current.writer.out().byte_count);
        }
        let is_due = self.output.next_file.is_some_and(|next| reached(next.duration_ns, elapsed_ns(current.begun)));
        // an empty file stays until a packet comes
        if is_due && current.packet_count > 0 { self.end_file(watch) } else { Ok(()) }
    }

    /// Whether the limits leave room for another packet.
    pub fn has_room(&self, watch: &Watch<'_>) -> bool {
        !reached(self.stop.packets, watch.progress.written_count)
            && !reached(self.stop.bytes, watch.progress.written_bytes)
            && !reached(self.stop.files, self.ended_count)
    }

    /// Completes the last file.
    pub fn finish(&mut self, watch: &mut Watch<'_>) -> Result<(), End> {
        let ended = self.end_file(watch);
        self.ring.finish(|text| watch.report(Event::Warning { text }));
        self.tidy(watch);
        match ended {
            Err(End::Limit) => Ok(()),
            result => result,
        }
    }

    /// Creates the next file.
    fn next(&mut self, watch: &mut Watch<'_>) -> Result<(), RecordingError> {
        let number = self.begun_count + 1;
        let path = if self.output.next_file.is_some() {
            watch.caller.next_path(number).ok_or(RecordingError::Stopped)?
        } else {
            self.output.path.clone()
        };
        let out = Output::open(&path, self.output.is_forced, &mut || watch.report_progress())?;
        let section = Section {
            hardware: &self.section.hardware,
            operating_system: &self.section.operating_system,
            application: &self.section.application,
            comment: &self.section.comment,
        };
        let begun = PcapngWriter::with_section(out, &section).and_then(|writer| {
            let now = Instant::now();
            let mut current = Current {
                writer,
                path: path.clone(),
                begun: now,
                begun_ns: now_ns(),
                flushed: now,
                packet_count: 0,
                safe: (0, 0),
                interfaces: Vec::new(),
            };
            for (place, described) in self.interfaces.iter().enumerate() {
                let filter = described.filter.clone();
                current.interfaces.push(InFile { filter, counts: described.counts, ..InFile::default() });
                if described.link_type.is_some() {
                    describe(&mut current, place, described)?;
                }
            }
            current.writer.out().drain(&mut || watch.report_progress())?;
            current.safe = (0, current.writer.out().byte_count);
            Ok(current)
        });
        self.current = Some(begun.map_err(|error| RecordingError::output(&path, &error))?);
        self.begun_count = number;
        watch.report(Event::File { path: path.display().to_string() });
        self.ring.begin(path);
        self.tidy(watch);
        Ok(())
    }

    /// Removes what the ring has no room for.
    fn tidy(&mut self, watch: &mut Watch<'_>) {
        let bytes = self.current.as_mut().map_or(0, |current| current.writer.out().byte_count);
        self.ring.tidy(bytes, |text| watch.report(Event::Warning { text }));
    }

    /// The existing files, the last one last.
    pub fn paths(&self) -> Vec<String> {
        self.ring.paths().map(|path| path.display().to_string()).collect()
    }

    /// Completes a file: adds the statistics of its time.
    fn end_file(&mut self, watch: &mut Watch<'_>) -> Result<(), End> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let written = (|| {
            self.count(&mut current)?;
            current.writer.out().drain(&mut || watch.report_progress())
        })();
        self.ended_count += 1;
        self.ended_bytes += current.writer.out().byte_count;
        if let Err(error) = written {
            self.current = Some(current);
            return Err(self.give_up(&error, watch));
        }
        watch.progress.written_bytes = self.ended_bytes;
        drop(current);
        self.ring.end();
        if reached(self.stop.files, self.ended_count) { Err(End::Limit) } else { Ok(()) }
    }

    /// Adds statistics in the middle of a pipe, whose reader would learn of drops at the end only. A file has them once.
    ///
    /// # Errors
    /// The pipe cannot be written.
    pub fn tell_drops(&mut self, watch: &mut Watch<'_>) -> Result<(), End> {
        let Some(mut current) = self.current.take_if(|current| current.writer.out().is_pipe()) else { return Ok(()) };
        let written = self.count(&mut current);
        self.current = Some(current);
        written.map_err(|error| self.give_up(&error, watch))
    }

    /// Writes the statistics of the file so far.
    fn count(&self, current: &mut Current) -> io::Result<()> {
        let end_ns = now_ns().max(current.begun_ns);
        for (described, in_file) in self.interfaces.iter().zip(&current.interfaces) {
            let Some(number) = in_file.number else { continue };
            // the exact count at the end may be below the last one of a loopback device
            let dropped_by_system = described.counts.dropped.saturating_sub(in_file.counts.dropped);
            let dropped =
                dropped_by_system + described.counts.dropped_by_interface - in_file.counts.dropped_by_interface;
            let is_narrowed = described.filter != in_file.filter;
            let comment =
                if is_narrowed { format!("capture filter at the end: {}", described.filter) } else { String::new() };
            current.writer.counted(
                number,
                &Statistics {
                    time_ns: end_ns,
                    start_ns: current.begun_ns,
                    end_ns,
                    received_count: in_file.packet_count + dropped,
                    dropped_count: dropped,
                    dropped_by_system_count: dropped_by_system,
                    delivered_count: in_file.packet_count,
                    comment: comment.get(..comment.len().min(COMMENT_MAX)).unwrap_or_default(),
                },
            )?;
        }
        Ok(())
    }

    /// Handles a write error: the packets already in the file stay readable.
    #[cold]
    fn give_up(&mut self, error: &io::Error, watch: &mut Watch<'_>) -> End {
        let Some(mut current) = self.current.take() else { return End::Closed };
        let (packets, bytes) = current.safe;
        watch.progress.written_count -= current.packet_count.saturating_sub(packets).min(watch.progress.written_count);
        watch.progress.written_bytes = self.ended_bytes + bytes;
        let end = failed(error, &current);
        if matches!(end, End::Output(_)) {
            current.writer.out().keep(bytes);
        }
        end
    }
}

/// Maximum comment on statistics: the rest of a filter of many portals adds nothing.
const COMMENT_MAX: usize = 4000;

/// Adds an interface to a file, and returns its number there.
fn describe(current: &mut Current, place: usize, described: &InterfaceDescription) -> io::Result<u32> {
    let interface = Interface {
        name: &described.name,
        description: &described.description,
        filter: &described.filter,
        is_in_microseconds: described.is_in_microseconds,
    };
    let link_type = described.link_type.unwrap_or(LinkType::ETHERNET);
    let number = current.writer.describe_interface(link_type, described.snaplen, &interface)?;
    if let Some(in_file) = current.interfaces.get_mut(place) {
        in_file.number = Some(number);
    }
    Ok(number)
}

fn failed(error: &io::Error, current: &Current) -> End {
    match error.kind() {
        io::ErrorKind::BrokenPipe => End::Closed,
        io::ErrorKind::TimedOut => End::Stopped,
        _ => End::Output(format!("cannot write {}: {}", current.path.display(), os_message(error))),
    }
}

fn reached(limit: Option<u64>, value: u64) -> bool {
    limit.is_some_and(|limit| value >= limit)
}

pub(crate) fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
