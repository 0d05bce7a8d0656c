//! Every oddity of the input is a named counter with a severity and an advice: never a log line, never a crash.
//!
//! A counter is declared once, in the table below; a reader of any layer adds to it by name. It never decides
//! anything: what the analysis does about an oddity is written where it happens.

use rustc_hash::FxHashMap;

/// What a counter above zero means for the numbers that the analysis gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; no number is affected.
    Info,
    /// Something on the wire or in a peer was out of order; the numbers stand.
    Warning,
    /// Something is missing from the capture; some numbers are unknown (null).
    DataLoss,
    /// The input could not be read beyond this point.
    Error,
}

/// What a counter is called, how bad it is, what it counts and what a person can do about it.
#[derive(Debug)]
pub struct Definition {
    /// snake_case name, stable across versions.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What one count stands for.
    pub meaning: &'static str,
    /// What a person can do about it.
    pub advice: &'static str,
}

macro_rules! counters {
    ($($variant:ident, $name:literal, $severity:ident, $meaning:literal, $advice:literal;)*) => {
        /// The name of an oddity.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Counter { $(#[doc = $meaning] $variant,)* }

        /// All counters, in the order of [`Counter`].
        pub const DEFINITIONS: &[Definition] = &[
            $(Definition { name: $name, severity: Severity::$severity, meaning: $meaning, advice: $advice },)*
        ];
    };
}

counters! {
    // capture
    RecordCutShort, "record_cut_short", DataLoss,
        "the last record of a file ends before its length says",
        "The file was still being written or its copy was interrupted; what came before is analysed.";
    RecordInvalid, "record_invalid", Error,
        "a record or block whose lengths cannot be true; the rest of that file was not read",
        "The file is damaged from here on: copy it again, or repair it with editcap.";
    BlockUnknown, "block_unknown", Info,
        "a pcapng block of a type that carries no packets and is not known",
        "Nothing to do; vendors add blocks of their own.";
    InterfaceUnknown, "interface_unknown", Error,
        "a pcapng packet names an interface that no block described",
        "The file is damaged or was joined by hand; join captures with mergecap.";
    LinkTypeUnsupported, "link_type_unsupported", DataLoss,
        "a packet of a link type that is not decoded",
        "Supported: Ethernet, LINUX_SLL, LINUX_SLL2, NULL, LOOP, RAW, IPV4, IPV6.";
    DroppedByCapture, "dropped_by_capture", DataLoss,
        "packets that the capture tool itself says it dropped (pcapng interface statistics)",
        "Capture with a larger buffer (-B), a snaplen (-s 256) or a filter (-f 'port 3260').";
    TimeRunsBackwards, "time_runs_backwards", Warning,
        "a packet stamped earlier than the one before it",
        "Usual with several capture queues; with files out of order, give them in the order of time.";
    CompressionCutShort, "compression_cut_short", DataLoss,
        "a compressed stream ends in the middle or fails its checksum",
        "Copy the file again; what could be decompressed is analysed.";
    InputEmpty, "input_empty", Info,
        "an input, beside others, that is empty or ends within its file header",
        "Usual for the newest file of a ring buffer; otherwise copy it again.";
    InputUnreadable, "input_unreadable", Error,
        "an input that could not be read, or not to its end, after packets had been read",
        "What came before and the other inputs are analysed; copy that file again.";
    PacketsLeftOut, "packets_left_out", DataLoss,
        "packets that a live view left out, for it could not keep up with their number",
        "Its figures have holes there. Watch less (-f), or capture to a file and read that.";
    // link, IP
    NotTcp, "not_tcp", Info,
        "frames that are not TCP over IP",
        "Nothing to do.";
    FragmentOfIp, "ip_fragment", DataLoss,
        "IP fragments; they are not put together",
        "iSCSI should never be fragmented: look for a wrong MTU on the path.";
    Tunnel, "tunnel", DataLoss,
        "TCP inside a tunnel (GRE, IP in IP, VXLAN ...), which is not opened",
        "Capture inside the tunnel's end point.";
    FrameCutInHeaders, "frame_cut_in_headers", DataLoss,
        "frames cut by the snaplen before the end of their TCP header",
        "Capture with -s 128 or more.";
    FrameMalformed, "frame_malformed", Warning,
        "frames whose link, IP or TCP header contradicts itself",
        "Look at them in Wireshark; a tap or driver may be faulty.";
    IpLengthZero, "ip_length_zero", Info,
        "super-segments captured before segmentation, with an IP length of 0",
        "Nothing to do; their length is taken from the frame.";
    // TCP
    CapturedCopy, "captured_copy", Info,
        "packets that the capture holds twice (the any device, a mirrored port); counted once",
        "Capture on one interface only.";
    CaptureGap, "capture_gap", DataLoss,
        "holes in a stream that the receiver acknowledged: lost by the capture, not by the network",
        "Capture with a larger buffer (-B) or a snaplen (-s 256), or nearer to the hosts.";
    CaptureGapBytes, "capture_gap_bytes", DataLoss,
        "bytes in those holes",
        "As for capture_gap.";
    HoleAbandoned, "hole_abandoned", DataLoss,
        "holes never filled nor acknowledged within what is kept for reordering, or open at the end of the capture",
        "If only one direction was captured, capture both.";
    PayloadShed, "payload_shed", DataLoss,
        "out-of-order segments kept without their payload, for lack of room",
        "Many streams with holes at once; digests of these PDUs stay unverified.";
    SegmentOutsideWindow, "segment_outside_window", Warning,
        "segments with a sequence number too far from the stream to belong to it; ignored",
        "A stray or forged packet, or a port used again without a SYN in the capture.";
    SnaplenCutBytes, "snaplen_cut_bytes", Info,
        "payload bytes on the wire that the snaplen left out",
        "Headers suffice for all but digests; use -s 256 to keep every header.";
    ConnectionsNotTracked, "connections_not_tracked", DataLoss,
        "TCP connections beyond the number that are tracked at once; the quietest ones were closed",
        "Filter the capture (-f 'port 3260').";
    ConnectionsNotListed, "connections_not_listed", Info,
        "TCP connections that are not iSCSI, beyond the number that get a row",
        "Filter the capture (-f 'port 3260').";
    // iSCSI framing
    SyncLost, "sync_lost", DataLoss,
        "times that the place of the next PDU header became unknown",
        "Caused by holes or a short snaplen; see capture_gap and snaplen_cut_bytes.";
    UnexplainedBytes, "unexplained_bytes", DataLoss,
        "stream bytes of iSCSI connections that belong to no PDU whose header was read",
        "Caused by holes, a short snaplen or a start in the middle of a PDU.";
    PduHeaderCut, "pdu_header_cut", DataLoss,
        "PDUs whose basic header segment was captured only in part; some columns are null",
        "Capture with -s 256.";
    HeaderAssumed, "header_assumed", DataLoss,
        "PDUs whose header the snaplen cut away, but whose kind and length follow from their task",
        "Their instants are known, their status is not. Capture with -s 256 and PDUs at the start of packets, or in full.";
    PduInvalid, "pdu_invalid", Warning,
        "headers that break RFC 7143 where a PDU had to begin; the stream is searched for the next PDU",
        "A broken peer, or data that is not iSCSI on this connection.";
    HeaderDigestError, "header_digest_error", Warning,
        "PDUs whose header digest does not match",
        "Corruption beyond TCP's checksum: look at NIC offloads, cables, memory.";
    DataDigestError, "data_digest_error", Warning,
        "PDUs whose data digest does not match",
        "Corruption beyond TCP's checksum: look at NIC offloads, cables, memory.";
    DigestInferred, "digest_inferred", Info,
        "connections whose digests were inferred, the login not being in the capture",
        "Start the capture before the login to be certain.";
    DataSegmentTooLong, "data_segment_too_long", Warning,
        "PDUs with more data than the receiver's MaxRecvDataSegmentLength allows",
        "A broken peer (RFC 7143 section 13.12).";
    // iSCSI login and sessions
    LoginNotCaptured, "login_not_captured", Info,
        "iSCSI connections whose login is not in the capture; their session and keys are unknown",
        "Start the capture before the login.";
    LoginRefused, "login_refused", Warning,
        "logins that the target refused",
        "See the logins table for class and detail.";
    LoginTextInvalid, "login_text_invalid", Warning,
        "login or text data that is no key=value list",
        "A broken peer, or a digest or PDU length gone wrong.";
    LoginTextTooLong, "login_text_too_long", Warning,
        "login or text data longer than 64 KiB over its PDUs; the rest is not read",
        "A broken or hostile peer.";
    SessionReinstated, "session_reinstated", Warning,
        "sessions ended by a new login with the same ISID and names",
        "The initiator lost its session: look for what came before.";
    // iSCSI sequence numbers
    CommandMissing, "command_missing", DataLoss,
        "CmdSN values that no captured command carries",
        "Commands lost with holes in the capture; their cycles are incomplete or absent.";
    StatusMissing, "status_missing", DataLoss,
        "StatSN values that no captured PDU carries",
        "Statuses lost with holes in the capture; their cycles are incomplete or absent.";
    DataMissing, "data_missing", DataLoss,
        "DataSN values of a task that no captured PDU carries",
        "Data-In or Data-Out PDUs lost with holes in the capture.";
    R2tMissing, "r2t_missing", DataLoss,
        "R2TSN values of a task that no captured R2T carries",
        "R2Ts lost with holes in the capture.";
    CmdSnOutOfOrder, "cmd_sn_out_of_order", Warning,
        "commands with a CmdSN that is neither the next nor ahead of it on this session",
        "A retried command or a broken initiator (RFC 7143 section 4.2.2.1).";
    StatSnOutOfOrder, "stat_sn_out_of_order", Warning,
        "statuses with a StatSN behind the last one of this connection",
        "A resent status or a broken target (RFC 7143 section 4.2.2.2).";
    DataSnOutOfOrder, "data_sn_out_of_order", Warning,
        "data PDUs with a DataSN behind the last one of their task or burst",
        "Resent data or a broken peer (RFC 7143 section 4.2.2.4).";
    // cycles
    CycleIncomplete, "cycle_incomplete", DataLoss,
        "commands without a status in the capture, and not aborted",
        "The capture ended or lost the status, or the connection was lost.";
    PduWithoutTask, "pdu_without_task", DataLoss,
        "data, R2T and response PDUs of tasks whose command is not in the capture",
        "The capture started late or lost the command.";
    TaskTagReused, "task_tag_reused", DataLoss,
        "commands with the tag of a task still without status",
        "The earlier status was lost by the capture, or the initiator is broken.";
    TasksNotTracked, "tasks_not_tracked", DataLoss,
        "commands beyond the number of open tasks that are tracked at once",
        "A hostile or broken peer: no session has so many commands open.";
    TaskAborted, "task_aborted", Warning,
        "tasks ended by task management",
        "Commands timed out: see the task_management table.";
    CheckCondition, "check_condition", Info,
        "cycles that ended with CHECK CONDITION",
        "See sense_key, asc and ascq in the cycles table.";
    RejectReceived, "reject", Warning,
        "Reject PDUs",
        "See the rejects table for the reasons.";
}

impl Counter {
    /// Name, severity, meaning and advice.
    pub fn definition(self) -> &'static Definition {
        &DEFINITIONS[self as usize]
    }
}

/// How often something was seen, and where first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// How often, or how many bytes for counters in bytes.
    pub count: u64,
    /// Frame number of the first one; 0 when it belongs to no frame.
    pub first_frame: u64,
}

/// The counters of one pass, for the capture as a whole (`None`) or per connection.
#[derive(Debug, Default)]
pub struct Counters {
    tallies: FxHashMap<(Counter, Option<u32>), Tally>,
}

impl Counters {
    /// Counts one oddity seen at `frame`.
    pub fn add(&mut self, counter: Counter, connection: Option<u32>, frame: u64) {
        self.add_many(counter, connection, frame, 1);
    }

    /// Counts `count` of them at once (bytes, missing numbers).
    pub fn add_many(&mut self, counter: Counter, connection: Option<u32>, frame: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.tallies
            .entry((counter, connection))
            .and_modify(|tally| tally.count = tally.count.saturating_add(count))
            .or_insert(Tally { count, first_frame: frame });
    }

    /// What was counted for a connection counts for the capture as a whole from now on.
    pub fn forget_connection(&mut self, connection: u32) {
        let own: Vec<_> = self.tallies.keys().filter(|(_, each)| *each == Some(connection)).copied().collect();
        for key in own {
            if let Some(tally) = self.tallies.remove(&key) {
                let whole = self.tallies.entry((key.0, None)).or_insert(Tally { count: 0, ..tally });
                whole.count = whole.count.saturating_add(tally.count);
                whole.first_frame = match (whole.first_frame, tally.first_frame) {
                    (0, frame) | (frame, 0) => frame,
                    (one, other) => one.min(other),
                };
            }
        }
    }

    /// The sum over the capture and all connections.
    pub fn total(&self, counter: Counter) -> u64 {
        self.tallies.iter().filter(|((each, _), _)| *each == counter).map(|(_, tally)| tally.count).sum()
    }

    /// All counters above zero, by counter and then connection, the capture's own first.
    pub fn sorted(&self) -> Vec<(Counter, Option<u32>, Tally)> {
        let mut rows: Vec<_> =
            self.tallies.iter().map(|(&(counter, connection), &tally)| (counter, connection, tally)).collect();
        rows.sort_unstable_by_key(|&(counter, connection, _)| (counter, connection));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_snake_case() {
        let mut names: Vec<_> = DEFINITIONS.iter().map(|definition| definition.name).collect();
        assert!(
            names.iter().all(|name| name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'))
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DEFINITIONS.len());
    }

    #[test]
    fn counts_per_connection_and_in_total() {
        let mut counters = Counters::default();
        counters.add(Counter::SyncLost, Some(1), 7);
        counters.add(Counter::SyncLost, Some(1), 9);
        counters.add_many(Counter::SyncLost, None, 3, 5);
        assert_eq!(counters.total(Counter::SyncLost), 7);
        assert_eq!(
            counters.sorted(),
            vec![
                (Counter::SyncLost, None, Tally { count: 5, first_frame: 3 }),
                (Counter::SyncLost, Some(1), Tally { count: 2, first_frame: 7 }),
            ]
        );
    }
}
