//! Packets from dumpcap, Wireshark's small program, which may capture where the user may not.
//!
//! It writes pcapng to a pipe, which is read like any capture. Its drop counts come at the end.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use iscsitrace_trace::counters::Counters;
use iscsitrace_trace::reader::{Capture, CaptureInfo};
use iscsitrace_wire::frame::LinkType;
use rustix::process::{Pid, Signal, kill_process};

use crate::error::{RecordingError, os_message};
use crate::portals;
use crate::settings::InterfaceSettings;

/// Maximum packets between the two threads; further ones wait in the pipe, and then in the kernel's buffer.
const QUEUED_MAX: usize = 4096;
/// Maximum time for dumpcap to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A packet from dumpcap.
pub struct CapturedPacket {
    pub interface: usize,
    pub link_type: LinkType,
    pub time_ns: i64,
    pub original_length: u32,
    pub data: Box<[u8]>,
}

/// A running dumpcap.
pub struct Dumpcap {
    child: Child,
    packets: Receiver<CapturedPacket>,
    reader: Option<JoinHandle<Option<CaptureInfo>>>,
    messages: Option<JoinHandle<String>>,
    ended: Option<Instant>,
}

/// The filter for an interface that another program opens. Its link type is Ethernet's unless its name shows otherwise.
pub fn filter(settings: &InterfaceSettings) -> String {
    let link_type = if settings.name == "any" { LinkType::LINUX_SLL } else { LinkType::ETHERNET };
    settings.filter.clone().unwrap_or_else(|| portals::filter(link_type, &[]))
}

impl Dumpcap {
    /// Starts dumpcap on these interfaces; calls `started` with its process before the threads that read what it writes.
    ///
    /// # Errors
    /// dumpcap cannot be started.
    pub fn start(
        program: &Path,
        interfaces: &[InterfaceSettings],
        started: impl FnOnce(i32),
    ) -> Result<Self, RecordingError> {
        let mut command = Command::new(program);
        command.args(["-q", "-n", "-w", "-"]);
        for settings in interfaces {
            command.args(["-i", &settings.name, "-f", &filter(settings)]);
            command.args(["-s", &settings.snaplen.to_string()]);
            command.args(["-B", &(settings.buffer_bytes >> 20).max(1).to_string()]);
            if !settings.is_promiscuous {
                command.arg("-p");
            }
            if let Some(clock) = &settings.time_stamp_type {
                command.args(["--time-stamp-type", clock]);
            }
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| {
                RecordingError::Settings(format!("cannot start {}: {}", program.display(), os_message(&error)))
            })?;
        let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(RecordingError::Settings(format!("cannot read from {}", program.display())));
        };
        started(child.id().cast_signed());
        let (sender, packets) = sync_channel(QUEUED_MAX);
        let reader = thread::spawn(move || read(stdout, &sender));
        let messages = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self { child, packets, reader: Some(reader), messages: Some(messages), ended: None })
    }

    /// The next packet; none within the time limit.
    ///
    /// # Errors
    /// There are no more packets.
    pub fn next(&mut self, limit: Duration) -> Result<Option<CapturedPacket>, ()> {
        match self.packets.recv_timeout(limit) {
            Ok(packet) => Ok(Some(packet)),
            Err(RecvTimeoutError::Timeout) if self.ended.is_some_and(|ended| ended.elapsed() > PATIENCE) => Err(()),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(()),
        }
    }

    /// Asks dumpcap to end; its last packets are still to come.
    pub fn stop(&mut self) {
        self.ended.get_or_insert_with(Instant::now);
        if let Some(process) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(process, Signal::INT);
        }
    }

    /// Waits for its end; returns the metadata of the capture, and dumpcap's messages.
    pub fn finish(mut self) -> (Option<CaptureInfo>, String) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && matches!(self.child.try_wait(), Ok(None)) {
            // its last packets may fill the queue
            while self.packets.try_recv().is_ok() {}
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // without its receiver the reader does not wait
        drop(self.packets);
        let info = self.reader.take().and_then(|reader| reader.join().ok()).flatten();
        let messages = self.messages.take().and_then(|messages| messages.join().ok()).unwrap_or_default();
        (info, messages)
    }
}

fn read(stdout: ChildStdout, packets: &SyncSender<CapturedPacket>) -> Option<CaptureInfo> {
    let mut counters = Counters::default();
    let mut capture = Capture::open(Box::new(stdout), "dumpcap").ok()?;
    while let Ok(Some(packet)) = capture.next_packet(&mut counters) {
        let passed = CapturedPacket {
            interface: packet.interface as usize,
            link_type: packet.link_type,
            time_ns: packet.time_ns,
            original_length: packet.original_length,
            data: packet.data.into(),
        };
        if packets.send(passed).is_err() {
            break;
        }
    }
    Some(capture.info().clone())
}

/// dumpcap's error message, in one line.
pub fn error_message(messages: &str) -> String {
    let lines = messages.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .clone()
        .find(|line| !line.starts_with("Capturing on") && !line.starts_with("File:"))
        .unwrap_or("it ended")
        .to_owned()
}
