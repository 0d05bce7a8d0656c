//! Every oddity of the input is a named counter with a severity and advice: never a log line, never a crash.
//!
//! The table below declares each counter once. Every layer adds to it by name. A counter decides nothing: the code that
//! counts an oddity also handles it.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::Entry;

/// What a counter above zero means for the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; no result is affected.
    Info,
    /// A fault on the wire or in a peer; the results are valid.
    Warning,
    /// Something is missing from the capture; some results are unknown (null).
    DataLoss,
    /// The input could not be read beyond this point.
    Error,
}

/// Name, severity, meaning and advice of a counter.
#[derive(Debug)]
pub struct Definition {
    /// snake_case name, stable across versions.
    pub name: &'static str,
    /// The severity.
    pub severity: Severity,
    /// What is counted.
    pub meaning: &'static str,
    /// What the user can do about it.
    pub advice: &'static str,
}

macro_rules! counters {
    ($($variant:ident, $name:literal, $severity:ident, $meaning:literal, $advice:literal;)*) => {
        /// The name of an oddity.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
        "files whose last record is incomplete",
        "The file was still being written, or its copy was interrupted. Everything before the record is analysed.";
    RecordInvalid, "record_invalid", Error,
        "records or blocks with impossible lengths; the rest of the file was not read",
        "The file is damaged from here on. Copy it again, or repair it with editcap.";
    BlockUnknown, "block_unknown", Info,
        "pcapng blocks of an unknown type, without packets",
        "Nothing to do. Vendors add their own block types.";
    InterfaceUnknown, "interface_unknown", Error,
        "pcapng packets of an interface that the file does not describe",
        "The file is damaged or was joined by hand. Join captures with mergecap.";
    InterfaceTextNotKept, "interface_text_not_kept", Warning,
        "names, descriptions and filters of pcapng interfaces beyond 1 MiB of a file; they are not shown",
        "A faulty or hostile file: no host has so many interfaces.";
    TcpSamplesNotKept, "tcp_samples_not_kept", DataLoss,
        "samples of TCP_INFO beyond the first 500,000 of a file",
        "Split the file with editcap -c.";
    LinkTypeUnsupported, "link_type_unsupported", DataLoss,
        "packets of a link type that is not decoded",
        "Supported link types: Ethernet, LINUX_SLL, LINUX_SLL2, NULL, LOOP, PPP, RAW, IPV4, IPV6.";
    DroppedByCapture, "dropped_by_capture", DataLoss,
        "packets that the capture tool reports as dropped (pcapng interface statistics)",
        "Capture with a larger buffer (-B), a snaplen (-s 256) or a filter (-f 'port 3260').";
    TimeRunsBackwards, "time_runs_backwards", Warning,
        "packets with a time stamp more than a second earlier than the packet before them",
        "The clock was set back, or files were read in the wrong order: name them in time order.";
    PacketsDisordered, "packets_disordered", Info,
        "packets with a time stamp up to a second earlier than the packet before them",
        "Usual with several interfaces or capture queues. reordercap puts them in order.";
    TimeImplausible, "time_implausible", DataLoss,
        "packets with an impossible time stamp, before 1970 or after 2106; left out of every result",
        "The file is damaged, or its time resolution (if_tsresol) or offset (if_tsoffset) is wrong. See editcap -t.";
    CompressionCutShort, "compression_cut_short", DataLoss,
        "compressed files that are incomplete or fail their checksum",
        "Copy the file again. Everything that could be decompressed is analysed.";
    InputEmpty, "input_empty", Info,
        "inputs without packets, beside other inputs: empty, or cut within the file header",
        "Usual for the newest file of a ring buffer. Otherwise copy the file again.";
    InputUnreadable, "input_unreadable", Error,
        "inputs that could not be opened, or not be read to their end",
        "The other inputs, and everything before the failure, are analysed. Copy that file again.";
    PacketsLeftOut, "packets_left_out", DataLoss,
        "packets that the live view skipped because it could not keep up",
        "Figures of that time are incomplete. Watch less traffic (-f), or capture to a file and read the file.";
    // link, IP
    NotTcp, "not_tcp", Info,
        "frames that are not TCP over IP",
        "Nothing to do.";
    FragmentOfIp, "ip_fragment", DataLoss,
        "IP fragments, which are not reassembled",
        "iSCSI should never be fragmented. Look for a wrong MTU on the path.";
    Tunnel, "tunnel", DataLoss,
        "packets in a tunnel that is not decoded (MPLS, encrypted, or more than four deep)",
        "Capture inside the tunnel, at one of its ends.";
    FrameCutInHeaders, "frame_cut_in_headers", DataLoss,
        "frames that the snaplen cut before the end of the TCP header",
        "Capture with -s 128 or more.";
    FrameMalformed, "frame_malformed", Warning,
        "frames with a contradictory link, IP or TCP header",
        "Look at them in Wireshark. A tap or driver may be faulty.";
    IpLengthZero, "ip_length_zero", Info,
        "packets captured before segmentation, with an IP length of 0",
        "Nothing to do. Their length is taken from the frame.";
    // TCP
    CapturedCopy, "captured_copy", Info,
        "packets captured twice (any device, mirrored port); counted once",
        "Capture on one interface only.";
    RoutedCopy, "routed_copy", Info,
        "packets captured before and behind a router; the first copy counts",
        "Capture on one side of the router. Hosts of one subnet need no router: check their masks and routes.";
    CaptureGap, "capture_gap", DataLoss,
        "times that the capture missed packets; the receiver had them",
        "Capture with a larger buffer (-B) or a snaplen (-s 256), or nearer to the hosts.";
    CaptureGapBytes, "capture_gap_bytes", DataLoss,
        "bytes of the packets that capture_gap counts",
        "See capture_gap.";
    HoleAbandoned, "hole_abandoned", DataLoss,
        "times that packets were missing and nothing shows whether the network lost them or the capture missed them",
        "If only one direction was captured, capture both.";
    PayloadShed, "payload_shed", DataLoss,
        "out-of-order segments whose payload was dropped for lack of memory",
        "Too many connections lacked packets at once. Digests of the affected PDUs are not verified.";
    SegmentOutsideWindow, "segment_outside_window", Warning,
        "segments with a sequence number too far from their stream; ignored",
        "A stray or forged packet, or a port that was reused without a SYN in the capture.";
    SnaplenCutBytes, "snaplen_cut_bytes", Info,
        "payload bytes that the snaplen cut off",
        "Only digests need the payload. Use -s 256 to keep every header.";
    ConnectionsNotTracked, "connections_not_tracked", DataLoss,
        "TCP connections beyond the tracking limit; the quietest were closed",
        "Filter the capture (-f 'port 3260').";
    ConnectionsNotListed, "connections_not_listed", Info,
        "TCP connections other than iSCSI that are not listed, beyond the limit of rows",
        "Filter the capture (-f 'port 3260').";
    IcmpErrorsNotListed, "icmp_errors_not_listed", Warning,
        "ICMP errors about tracked connections that are not listed, beyond the limit of rows",
        "A router reports the same error for every packet. See icmp_errors for the first ones.";
    HostQuestionsNotListed, "host_questions_not_listed", Info,
        "ARP requests and pings that are not listed, beyond the limit of pairs of hosts",
        "A scan of addresses, or a large network. Filter the capture (-f 'port 3260').";
    // joining two taps
    JoinWaitingDropped, "join_waiting_dropped", Warning,
        "packets of one tap that waited too long for the other tap, beyond the limit of packets that wait",
        "The captures hardly overlap, or their clocks differ by more than the given offset.";
    JoinLossesNotListed, "join_losses_not_listed", Info,
        "packets of one tap alone that are counted in paths but not listed in path_losses, beyond the limit of rows",
        "See paths for the counts.";
    // iSCSI framing
    SyncLost, "sync_lost", DataLoss,
        "times that the position of the next PDU header became unknown",
        "Caused by missing packets or a short snaplen. See capture_gap and snaplen_cut_bytes.";
    UnexplainedBytes, "unexplained_bytes", DataLoss,
        "stream bytes of iSCSI connections outside every PDU with a decoded header",
        "Caused by missing packets, a short snaplen, or a capture that starts within a PDU.";
    PduHeaderCut, "pdu_header_cut", DataLoss,
        "PDUs with an incomplete basic header segment; some columns are null",
        "Capture with -s 256.";
    HeaderAssumed, "header_assumed", DataLoss,
        "PDUs whose header the snaplen cut off, with type and length inferred from their command",
        "Their times are known, their status is not. Capture with -s 256 and PDUs at the start of packets, or in full.";
    PduInvalid, "pdu_invalid", Warning,
        "headers that violate RFC 7143 where a PDU must begin; the stream is searched for the next PDU",
        "A faulty peer, or other data than iSCSI on this connection.";
    HeaderDigestError, "header_digest_error", Warning,
        "PDUs whose header digest does not match",
        "Corruption that TCP's checksum missed. Check NIC offloads, cables and memory.";
    DataDigestError, "data_digest_error", Warning,
        "PDUs whose data digest does not match",
        "Corruption that TCP's checksum missed. Check NIC offloads, cables and memory.";
    DigestInferred, "digest_inferred", Info,
        "connections with inferred digests: their login is not in the capture",
        "Start the capture before the login to be certain.";
    DataSegmentTooLong, "data_segment_too_long", Warning,
        "PDUs with more data than the receiver's MaxRecvDataSegmentLength",
        "A faulty peer (RFC 7143 section 13.12).";
    // iSCSI login and sessions
    LoginNotCaptured, "login_not_captured", Info,
        "iSCSI connections without their login in the capture; session and parameters are unknown",
        "Start the capture before the login.";
    LoginRefused, "login_refused", Warning,
        "logins that the target refused",
        "See the logins table for status class and detail.";
    LoginTextInvalid, "login_text_invalid", Warning,
        "login or text data that is not a list of key=value pairs",
        "A faulty peer, or a wrong digest or PDU length.";
    LoginTextTooLong, "login_text_too_long", Warning,
        "login or text data of more than 64 KiB over several PDUs; the rest is not read",
        "A faulty or hostile peer.";
    LoginKeysNotKept, "login_keys_not_kept", Warning,
        "keys of logins and text exchanges beyond 256 keys or 16 KiB of a connection; they are not shown",
        "A faulty or hostile peer: no login has so many.";
    SessionReinstated, "session_reinstated", Warning,
        "sessions ended by a new login with the same ISID and names",
        "The initiator lost its session. Look at what happened before.";
    LogicalUnitsNotListed, "logical_units_not_listed", Warning,
        "commands to logical units, and reports of ALUA states, beyond the limit of rows of a session",
        "A faulty or hostile peer: no session has so many logical units.";
    ViolationsNotListed, "violations_not_listed", Warning,
        "violations of RFC 7143 beyond the limit of rows of the capture",
        "A faulty or hostile peer. The rules that are listed are broken by it.";
    // iSCSI sequence numbers
    CommandMissing, "command_missing", DataLoss,
        "CmdSN values without a captured command",
        "Commands missing from the capture. Their cycles are incomplete or absent.";
    StatusMissing, "status_missing", DataLoss,
        "StatSN values without a captured PDU",
        "Statuses missing from the capture. Their cycles are incomplete or absent.";
    DataMissing, "data_missing", DataLoss,
        "DataSN values without a captured PDU",
        "Data-In or Data-Out PDUs missing from the capture.";
    R2tMissing, "r2t_missing", DataLoss,
        "R2TSN values without a captured R2T",
        "R2Ts missing from the capture.";
    CmdSnOutOfOrder, "cmd_sn_out_of_order", Warning,
        "commands with a CmdSN behind the next expected one",
        "A retried command, or a faulty initiator (RFC 7143 section 4.2.2.1).";
    StatSnOutOfOrder, "stat_sn_out_of_order", Warning,
        "statuses with a StatSN behind the last one of the connection",
        "A resent status, or a faulty target (RFC 7143 section 4.2.2.2).";
    DataSnOutOfOrder, "data_sn_out_of_order", Warning,
        "data PDUs with a DataSN behind the last one of their command or burst",
        "Resent data, or a faulty peer (RFC 7143 section 4.2.2.4).";
    // cycles
    CycleIncomplete, "cycle_incomplete", DataLoss,
        "commands in flight when the capture ended, or whose status it lacks",
        "The capture ended before the status or missed it.";
    PduWithoutTask, "pdu_without_task", DataLoss,
        "data, R2T and response PDUs whose command is not in the capture",
        "The capture started late or missed the command.";
    TaskTagReused, "task_tag_reused", DataLoss,
        "commands with the task tag of a command that has no status yet",
        "The capture missed the earlier status, or the initiator is faulty.";
    TasksNotTracked, "tasks_not_tracked", DataLoss,
        "commands beyond the limit of commands in flight that are tracked",
        "A hostile or faulty peer: no session has so many commands in flight.";
    DataPartsNotTracked, "data_parts_not_tracked", Warning,
        "commands that lacked data in too many places to track: bytes that came late may not count",
        "A hostile or faulty peer: no command lacks data in so many places.";
    TaskAborted, "task_aborted", Warning,
        "commands aborted by task management",
        "A host aborts commands that it waited too long for. See the task_management table.";
    CheckCondition, "check_condition", Info,
        "commands that ended with CHECK CONDITION",
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

/// How often an oddity occurred, and where it occurred first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The number of occurrences, or of bytes for counters in bytes.
    pub count: u64,
    /// Frame number of the first occurrence; 0 if it belongs to no frame.
    pub first_frame: u64,
}

/// The counters of one pass, for the whole capture (`None`) or per connection.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Counters {
    tallies: FxHashMap<(Counter, Option<u32>), Tally>,
}

impl Counters {
    /// Counts one occurrence at `frame`.
    pub fn add(&mut self, counter: Counter, connection: Option<u32>, frame: u64) {
        self.add_many(counter, connection, frame, 1);
    }

    /// Counts `count` occurrences at once (bytes, missing numbers).
    pub fn add_many(&mut self, counter: Counter, connection: Option<u32>, frame: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.tallies
            .entry((counter, connection))
            .and_modify(|tally| tally.count = tally.count.saturating_add(count))
            .or_insert(Tally { count, first_frame: frame });
    }

    /// The same with a count below 0 for what turns out not to be one: it was counted before.
    pub fn change(&mut self, counter: Counter, connection: Option<u32>, frame: u64, by: i64) {
        if by > 0 {
            self.add_many(counter, connection, frame, by.unsigned_abs());
        } else if by < 0
            && let Entry::Occupied(mut tally) = self.tallies.entry((counter, connection))
        {
            tally.get_mut().count = tally.get().count.saturating_sub(by.unsigned_abs());
            if tally.get().count == 0 {
                tally.remove();
            }
        }
    }

    /// Adds what was counted later.
    pub fn append(&mut self, later: Self) {
        for ((counter, connection), tally) in later.tallies {
            self.add_many(counter, connection, tally.first_frame, tally.count);
        }
    }

    /// Moves the counts of connections that are no longer kept to the whole capture.
    pub fn forget_connections(&mut self, is_kept: impl Fn(u32) -> bool) {
        let is_gone = |connection: &Option<u32>| connection.is_some_and(|connection| !is_kept(connection));
        let own: Vec<_> = self.tallies.keys().filter(|(_, connection)| is_gone(connection)).copied().collect();
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

    /// All counters above zero, by counter and then connection; the whole capture comes first.
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

    #[test]
    fn the_counts_of_forgotten_connections_are_the_captures() {
        let mut counters = Counters::default();
        counters.add_many(Counter::SyncLost, Some(1), 9, 2);
        counters.add_many(Counter::SyncLost, Some(2), 7, 3);
        counters.add_many(Counter::SyncLost, Some(3), 5, 4);
        // no frame is earlier than any
        counters.add_many(Counter::SyncLost, Some(4), 0, 5);
        counters.forget_connections(|connection| connection == 3);
        let tallies: Vec<_> = counters.sorted().into_iter().map(|(_, connection, tally)| (connection, tally)).collect();
        assert_eq!(
            tallies,
            [(None, Tally { count: 10, first_frame: 7 }), (Some(3), Tally { count: 4, first_frame: 5 })]
        );
    }
}
