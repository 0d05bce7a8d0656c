//! The content of one connection: not known yet, iSCSI, or something else.
//!
//! Connects TCP and iSCSI: takes stream bytes in order and feeds the framers of the iSCSI connection. TCP directions
//! are 0 from the client and 1 from the server; iSCSI directions are 0 to the target and 1 to the initiator.

use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::connection::IscsiConnection;
use crate::iscsi::connection::listener::ConnectionListener;
use crate::iscsi::detect::{Detector, Event, Verdict};
use crate::iscsi::digest_use::{DigestUse, Digests};
use crate::iscsi::framer::Framer;
use crate::iscsi::missing_pdus::UnreadBytes;
use crate::stream::chunk::{Chunk, StreamSink};
use crate::stream::closing::Closing;
use serde::{Deserialize, Serialize};

/// The content of one connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Content {
    /// Not known yet.
    Undecided(Box<Detector>),
    /// iSCSI.
    Iscsi(Box<IscsiContent>),
    /// Certainly something else.
    Other,
}

/// The iSCSI connection and its two framers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IscsiContent {
    /// The connection.
    pub connection: IscsiConnection,
    /// The framers: to the target, to the initiator.
    pub framers: [Framer; 2],
    /// Whether the TCP client is the initiator.
    pub is_client_initiator: bool,
    /// Whether the capture has the start of the streams.
    pub has_start: bool,
}

impl IscsiContent {
    /// The iSCSI direction of a TCP direction.
    #[inline]
    pub fn direction(&self, tcp_direction: usize) -> usize {
        if self.is_client_initiator { tcp_direction } else { 1 - tcp_direction }
    }

    /// Reads the next bytes of a direction, at that frame.
    #[inline]
    fn chunk(&mut self, tcp_direction: usize, chunk: &Chunk<'_>, frame: u64, context: &mut Context) {
        let direction = self.direction(tcp_direction);
        let to_target = direction == 0;
        if self.framers[direction].is_digest_unknown() {
            let [out, back] = &mut self.framers;
            if to_target { out.infer_from(back) } else { back.infer_from(out) }
        }
        let is_other_lost = self.framers[1 - direction].is_lost();
        let framer = &mut self.framers[direction];
        let was_login = !to_target && !self.connection.login.is_complete;
        let connection = &mut self.connection;
        // held behind bytes that are missing: what the other direction lacks, too, lies between them
        let is_stale = chunk.frame < frame && !connection.is_whole();
        framer.chunk(chunk, &mut ConnectionListener::new(connection, context, to_target, is_other_lost || is_stale));
        if is_stale {
            self.connection.note_unread();
        }
        if was_login && self.connection.login.is_complete {
            // from now on the initiator's PDUs carry the agreed digests
            let digests = self.connection.login.digests();
            self.framers[0].agree(digests);
            // the text of a login is longer than what is kept of later PDUs
            self.framers.iter_mut().for_each(Framer::shrink);
        }
    }

    fn gap(&mut self, tcp_direction: usize, offset: i64, length: u64, context: &mut Context) {
        let direction = self.direction(tcp_direction);
        self.connection.note_gap(direction == 0);
        let login = &mut self.connection.login;
        if !login.is_complete && self.has_start {
            // the bytes after the hole must show whether the login ended in it, and with which digests
            login.has_gap = true;
            self.framers.iter_mut().for_each(|framer| framer.agree(Digests { header: None, data: None }));
        }
        self.before_capture(tcp_direction, offset, length, context);
    }

    fn before_capture(&mut self, tcp_direction: usize, offset: i64, length: u64, context: &mut Context) {
        let direction = self.direction(tcp_direction);
        let (to_target, is_other_lost) = (direction == 0, self.framers[1 - direction].is_lost());
        let listener = &mut ConnectionListener::new(&mut self.connection, context, to_target, is_other_lost);
        self.framers[direction].gap(offset, length, listener);
    }

    /// Gives memory back that streams under way need.
    pub(crate) fn shrink(&mut self) {
        let is_decoded = self.framers.iter().all(Framer::is_between_pdus);
        self.framers.iter_mut().for_each(Framer::shrink);
        self.connection.shrink(is_decoded);
    }

    /// Ends both streams; `fins_ns` are the FIN of each TCP direction that was read to its end.
    fn finish(&mut self, closing: &Closing, fins_ns: [Option<i64>; 2], context: &mut Context) {
        let has_open_tasks = self.connection.has_open_tasks();
        let is_lost = self.framers.each_ref().map(Framer::is_lost);
        for (direction, framer) in self.framers.iter_mut().enumerate() {
            let is_other_lost = is_lost[1 - direction];
            framer.finish(&mut ConnectionListener::new(&mut self.connection, context, direction == 0, is_other_lost));
        }
        self.connection.judge_end([0, 1].map(|side| fins_ns[self.direction(side)]), context);
        let has_gap = self.connection.has_gap;
        let unread = self.framers.each_ref().map(|framer| UnreadBytes {
            bytes: framer.unexplained_bytes(),
            at_start: framer.lost_start_bytes(),
            // missing PDUs of open tasks are counted with the tasks
            at_end: framer.lost_end_bytes().filter(|_| has_gap && !has_open_tasks),
        });
        self.connection.finish(closing, unread, context);
        let number = Some(self.connection.number);
        if !self.connection.login.is_captured {
            context.counters.add(Counter::LoginNotCaptured, number, 0);
        }
        let is_guess = |digest: DigestUse| digest.is_used() && digest.is_inferred();
        if self.framers.iter().any(|framer| is_guess(framer.header_digest) || is_guess(framer.data_digest)) {
            context.counters.add(Counter::DigestInferred, number, 0);
        }
    }
}

impl Content {
    /// The content of a new connection.
    pub fn new(ports: [u16; 2]) -> Self {
        Self::Undecided(Box::new(Detector::new(ports)))
    }

    /// Notes the SYN of a TCP direction.
    pub fn note_start(&mut self, direction: usize) {
        if let Self::Undecided(detector) = self {
            detector.note_start(direction);
        }
    }

    /// The iSCSI content, if it is iSCSI.
    #[inline]
    pub fn iscsi(&mut self) -> Option<&mut IscsiContent> {
        match self {
            Self::Iscsi(iscsi) => Some(iscsi),
            _ => None,
        }
    }

    /// Switches to iSCSI and reads the kept bytes from the start.
    fn decide(&mut self, number: u32, is_client_initiator: bool, context: &mut Context) {
        let Self::Undecided(detector) = self else { return };
        let events = detector.take_events();
        let has_start = detector.has_start();
        let [out, back] = if is_client_initiator { [0, 1] } else { [1, 0] };
        let mut framers = [Framer::new(0, has_start[out]), Framer::new(0, has_start[back])];
        let mut connection = IscsiConnection::new(number);
        if has_start == [true; 2] {
            connection.begin_whole();
        }
        let has_start = has_start != [false; 2];
        if has_start {
            framers.iter_mut().for_each(Framer::begin_login);
        }
        let mut iscsi = Box::new(IscsiContent { connection, framers, is_client_initiator, has_start });
        for event in events {
            match event {
                Event::Chunk { direction, chunk } => {
                    let chunk = chunk.chunk();
                    iscsi.chunk(direction, &chunk, chunk.frame, context);
                }
                Event::Gap { direction, offset, length } => iscsi.gap(direction, offset, length, context),
            }
        }
        *self = Self::Iscsi(iscsi);
    }

    /// Ends both streams; `fins_ns` are the FIN of each direction that was read to its end.
    pub fn finish(&mut self, closing: &Closing, fins_ns: [Option<i64>; 2], context: &mut Context) {
        if let Self::Iscsi(iscsi) = self {
            iscsi.finish(closing, fins_ns, context);
        }
    }
}

/// Receives the stream bytes of one TCP direction.
pub struct ContentSink<'a> {
    /// The content.
    pub content: &'a mut Content,
    /// The state that all connections share.
    pub context: &'a mut Context,
    /// The connection's number.
    pub number: u32,
    /// The TCP direction.
    pub direction: usize,
    /// The current frame.
    pub frame: u64,
}

impl StreamSink for ContentSink<'_> {
    #[inline]
    fn chunk(&mut self, chunk: Chunk<'_>) {
        match self.content {
            Content::Iscsi(iscsi) => iscsi.chunk(self.direction, &chunk, self.frame, self.context),
            Content::Other => {}
            Content::Undecided(detector) => match detector.chunk(self.direction, &chunk) {
                Verdict::Undecided => {}
                Verdict::Other => *self.content = Content::Other,
                Verdict::Iscsi { is_client_initiator } => {
                    self.content.decide(self.number, is_client_initiator, self.context)
                }
            },
        }
    }

    fn gap(&mut self, offset: i64, length: u64) {
        let (connection, frame) = (Some(self.number), self.frame);
        match self.content {
            Content::Iscsi(iscsi) => {
                self.context.counters.add(Counter::CaptureGap, connection, frame);
                self.context.counters.add_many(Counter::CaptureGapBytes, connection, frame, length);
                iscsi.gap(self.direction, offset, length, self.context);
            }
            Content::Undecided(detector) => detector.gap(self.direction, offset, length),
            Content::Other => {}
        }
    }

    fn before_capture(&mut self, offset: i64, length: u64) {
        match self.content {
            Content::Iscsi(iscsi) => iscsi.before_capture(self.direction, offset, length, self.context),
            Content::Undecided(detector) => detector.gap(self.direction, offset, length),
            Content::Other => {}
        }
    }
}
