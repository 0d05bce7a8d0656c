//! Connections, sessions and their negotiated parameters; what the network reports about connections.

use super::column::NULL_NS;
use super::declaration::table;

table! {
    /// one TCP connection, iSCSI or not, with the number of Wireshark's tcp.stream
    Connections Connection "connections" of (connection) {
        /// number among all TCP connections of the input, from 0
        connection: u32 => kept;
        /// its iSCSI session
        session: u32 = null => kept;
        /// connection ID of the login
        cid: u16 = null, "RFC 7143 section 11.12.7" => kept;
        /// whether its content is iSCSI
        is_iscsi: bool => kept;
        /// IP address of the initiator (of the client, if not iSCSI)
        initiator_address: String => kept;
        /// its TCP port
        initiator_port: u16 => kept;
        /// IP address of the target (of the server, if not iSCSI)
        target_address: String => kept;
        /// its TCP port
        target_port: u16 => kept;
        /// how initiator and target were identified
        roles_from: u8(roles_from) = null => kept;
        /// its first frame
        frame_first: u64 => kept;
        /// its last frame
        frame_last: u64 => kept;
        /// capture time of its first packet
        time_first_ns: i64 [ns] => kept;
        /// capture time of its last packet
        time_last_ns: i64 [ns] => kept;
        /// whether a SYN of the connection was captured
        has_syn: bool => kept;
        /// whether a FIN was captured
        has_fin: bool => kept;
        /// whether a RST was captured
        has_rst: bool => kept;
        /// capture time of the first SYN of the client
        syn_ns: i64 [ns] = null, "RFC 9293 section 3.5" => kept;
        /// frame of the first SYN of the client
        syn_frame: u64 = null => kept;
        /// capture time of the first SYN-ACK of the server
        syn_ack_ns: i64 [ns] = null, "RFC 9293 section 3.5" => kept;
        /// whether a RST answered the SYN: nothing listens there, or a firewall refuses it
        is_refused: bool, "RFC 9293 section 3.5.2" => kept;
        /// whether both ends announced SACK-permitted
        is_sack_permitted: bool, "RFC 2018" => kept;
        /// whether TCP timestamps were seen
        has_timestamps: bool, "RFC 7323" => kept;
        /// SYN to SYN-ACK
        handshake_rtt_to_target_ns: i64 [ns] = null, "method 1" => kept;
        /// SYN-ACK to ACK
        handshake_rtt_to_initiator_ns: i64 [ns] = null, "method 1" => kept;
        /// minimum RTT from the tap to the target: from the initiator's bytes to the ACK that covers them (Karn's
        /// rule), handshake included
        rtt_to_target_min_ns: i64 [ns] = null, "method 1" => kept;
        /// minimum RTT from the tap to the initiator: from the target's bytes to the ACK that covers them (Karn's
        /// rule), handshake included
        rtt_to_initiator_min_ns: i64 [ns] = null, "method 1" => kept;
        /// negotiated HeaderDigest
        header_digest: u8(digest) = null, "RFC 7143 section 13.1" => kept;
        /// negotiated DataDigest
        data_digest: u8(digest) = null, "RFC 7143 section 13.1" => kept;
        /// source of the two digests
        digest_source: u8(digest_source) = null => kept;
        /// to target: capture time of the first FIN
        fin_to_target_ns: i64 [ns] = null => kept;
        /// to target: frame of the first FIN
        fin_to_target_frame: u64 = null => kept;
        /// to target: capture time of the first RST
        rst_to_target_ns: i64 [ns] = null => kept;
        /// to target: frame of the first RST
        rst_to_target_frame: u64 = null => kept;
        /// to target: TTL, or hop limit, of the first RST
        rst_hop_limit_to_target: u16 = null => kept;
        /// to target: TTL, or hop limit, of the packets without RST; null where it changes
        hop_limit_to_target: u16 = null => kept;
        /// to target: capture time of the last packet
        time_last_to_target_ns: i64 [ns] = null => kept;
        /// to target: capture time of the last packet with payload that no packet had carried before
        data_last_to_target_ns: i64 [ns] = null => kept;
        /// to target: whether no router may fragment the packets with payload: DF is set in all, or they are IPv6
        is_dont_fragment_to_target: bool, "RFC 1191 section 2" => kept;
        /// to target: TCP packets captured, copies not counted
        packets_to_target: u64 [packets] => counter;
        /// to target: bytes between the first and the highest sequence number, holes included
        stream_bytes_to_target: u64 [bytes] => counter;
        /// to target: of these, bytes that some captured packet carried (cut by a snaplen or not)
        captured_bytes_to_target: u64 [bytes] => counter;
        /// to target: of these, bytes that no captured packet carried
        gap_bytes_to_target: u64 [bytes] => counter;
        /// to target: of these, bytes carried by captured packets but cut off by the snaplen
        cut_bytes_to_target: u64 [bytes] => counter;
        /// to target: of these, decoded bytes: bytes of PDUs whose length was read, or follows from their command
        explained_bytes_to_target: u64 [bytes] => counter;
        /// to target: iSCSI PDUs whose header was read, at least up to the Initiator Task Tag
        pdu_count_to_target: u64 [PDUs] => counter;
        /// to target: opcode of the last of these
        last_pdu_opcode_to_target: u8 = null, "RFC 7143 section 11.2.1.2" => kept;
        /// to target: capture time of its first byte
        last_pdu_to_target_ns: i64 [ns] = null => kept;
        /// to target: frame with its first byte
        last_pdu_to_target_frame: u64 = null => kept;
        /// to target: whether no PDU of its type came before it
        is_last_pdu_new_to_target: bool => kept;
        /// to target: iSCSI PDUs missing from the capture, by sequence numbers and bytes that were not decoded
        missing_pdu_count_to_target: u64 [PDUs] => counter;
        /// to target: header and data digests that do not match
        digest_errors_to_target: u64 [digests], "RFC 7143 section 11.2.3" => counter;
        /// to target: retransmitted packets: they repeat bytes, or deliver them late because the first copy was lost
        retransmitted_packets_to_target: u64 [packets] => counter;
        /// to target: payload bytes of these packets
        retransmitted_bytes_to_target: u64 [bytes] => counter;
        /// to target: retransmitted SYNs, which carry no bytes and are not among these packets
        retransmitted_syns_to_target: u64 [packets] => counter;
        /// to target: retransmitted FINs without bytes, likewise
        retransmitted_fins_to_target: u64 [packets] => counter;
        /// to target: packets that arrived out of order and were not retransmitted
        reordered_packets_to_target: u64 [packets] => counter;
        /// to target: longest time by which one of them came after the first packet that overtook it
        reordered_late_to_target_max_ns: i64 [ns] = null, "method 1" => of reordered_packets_to_target;
        /// to target: packets that the capture holds twice
        copied_packets_to_target: u64 [packets] => counter;
        /// to target: maximum segment size announced by the sender of this direction
        mss_bytes_to_target: u16 [bytes] = null => kept;
        /// to target: window scale announced by the sender of this direction
        window_scale_to_target: u8 = null => kept;
        /// to initiator: capture time of the first FIN
        fin_to_initiator_ns: i64 [ns] = null => kept;
        /// to initiator: frame of the first FIN
        fin_to_initiator_frame: u64 = null => kept;
        /// to initiator: capture time of the first RST
        rst_to_initiator_ns: i64 [ns] = null => kept;
        /// to initiator: frame of the first RST
        rst_to_initiator_frame: u64 = null => kept;
        /// to initiator: TTL, or hop limit, of the first RST
        rst_hop_limit_to_initiator: u16 = null => kept;
        /// to initiator: TTL, or hop limit, of the packets without RST; null where it changes
        hop_limit_to_initiator: u16 = null => kept;
        /// to initiator: capture time of the last packet
        time_last_to_initiator_ns: i64 [ns] = null => kept;
        /// to initiator: capture time of the last packet with payload that no packet had carried before
        data_last_to_initiator_ns: i64 [ns] = null => kept;
        /// to initiator: whether no router may fragment the packets with payload: DF is set in all, or they are IPv6
        is_dont_fragment_to_initiator: bool, "RFC 1191 section 2" => kept;
        /// to initiator: TCP packets captured, copies not counted
        packets_to_initiator: u64 [packets] => counter;
        /// to initiator: bytes between the first and the highest sequence number, holes included
        stream_bytes_to_initiator: u64 [bytes] => counter;
        /// to initiator: of these, bytes that some captured packet carried (cut by a snaplen or not)
        captured_bytes_to_initiator: u64 [bytes] => counter;
        /// to initiator: of these, bytes that no captured packet carried
        gap_bytes_to_initiator: u64 [bytes] => counter;
        /// to initiator: of these, bytes carried by captured packets but cut off by the snaplen
        cut_bytes_to_initiator: u64 [bytes] => counter;
        /// to initiator: of these, decoded bytes: bytes of PDUs whose length was read, or follows from their command
        explained_bytes_to_initiator: u64 [bytes] => counter;
        /// to initiator: iSCSI PDUs whose header was read, at least up to the Initiator Task Tag
        pdu_count_to_initiator: u64 [PDUs] => counter;
        /// to initiator: opcode of the last of these
        last_pdu_opcode_to_initiator: u8 = null, "RFC 7143 section 11.2.1.2" => kept;
        /// to initiator: capture time of its first byte
        last_pdu_to_initiator_ns: i64 [ns] = null => kept;
        /// to initiator: frame with its first byte
        last_pdu_to_initiator_frame: u64 = null => kept;
        /// to initiator: whether no PDU of its type came before it
        is_last_pdu_new_to_initiator: bool => kept;
        /// to initiator: iSCSI PDUs missing from the capture, by sequence numbers and bytes that were not decoded
        missing_pdu_count_to_initiator: u64 [PDUs] => counter;
        /// to initiator: header and data digests that do not match
        digest_errors_to_initiator: u64 [digests], "RFC 7143 section 11.2.3" => counter;
        /// to initiator: retransmitted packets: they repeat bytes, or deliver them late because the first copy was lost
        retransmitted_packets_to_initiator: u64 [packets] => counter;
        /// to initiator: payload bytes of these packets
        retransmitted_bytes_to_initiator: u64 [bytes] => counter;
        /// to initiator: retransmitted SYNs, which carry no bytes and are not among these packets
        retransmitted_syns_to_initiator: u64 [packets] => counter;
        /// to initiator: retransmitted FINs without bytes, likewise
        retransmitted_fins_to_initiator: u64 [packets] => counter;
        /// to initiator: packets that arrived out of order and were not retransmitted
        reordered_packets_to_initiator: u64 [packets] => counter;
        /// to initiator: longest time by which one of them came after the first packet that overtook it
        reordered_late_to_initiator_max_ns: i64 [ns] = null, "method 1" => of reordered_packets_to_initiator;
        /// to initiator: packets that the capture holds twice
        copied_packets_to_initiator: u64 [packets] => counter;
        /// to initiator: maximum segment size announced by the sender of this direction
        mss_bytes_to_initiator: u16 [bytes] = null => kept;
        /// to initiator: window scale announced by the sender of this direction
        window_scale_to_initiator: u8 = null => kept;
    }
}

impl Connections {
    /// Orders the rows by number.
    pub(crate) fn sort_by_connection(&mut self) {
        if !self.connection.is_sorted() {
            let mut order: Vec<usize> = (0..self.connection.len()).collect();
            order.sort_unstable_by_key(|&row| self.connection[row]);
            self.reorder(&order);
        }
    }
}

table! {
    /// one iSCSI session: connections with the same initiator name, ISID, target name and TSIH
    Sessions Session "sessions" of (session) {
        /// number, from 0
        session: u32 => kept;
        /// Normal or Discovery
        session_type: u8(session_type) = 2, "RFC 7143 section 13.21" => kept;
        /// InitiatorName
        initiator_name: String = null, "RFC 7143 section 13.5" => kept;
        /// InitiatorAlias
        initiator_alias: String = null, "RFC 7143 section 13.7" => kept;
        /// TargetName
        target_name: String = null, "RFC 7143 section 13.4" => kept;
        /// TargetAlias
        target_alias: String = null, "RFC 7143 section 13.6" => kept;
        /// ISID, 12 hexadecimal digits
        isid: String = null, "RFC 7143 section 11.12.5" => kept;
        /// TSIH assigned by the target
        tsih: u16 = null, "RFC 7143 section 11.13.3" => kept;
        /// TargetPortalGroupTag
        target_portal_group_tag: u32 = null, "RFC 7143 section 13.9" => kept;
        /// AuthMethod in use (CHAP, None ...); secrets are never kept
        auth_method: String = null, "RFC 7143 section 12.1" => kept;
        /// connections of the session in the capture
        connection_count: u32 => kept;
        /// the session that it took the place of: same initiator, target and ISID, ended without a logout; where that
        /// one's login was not captured, same addresses
        replaces: u32 = null, "RFC 7143 section 6.3.5" => kept;
        /// whether the leading login is in the capture
        is_login_captured: bool => kept;
        /// status class and detail of the last login response (0 = success)
        login_status: u16 = null, "RFC 7143 section 11.13.5" => kept;
        /// how the session ended in the capture
        end: u8(session_end) = 5 => kept;
        /// its first packet
        time_first_ns: i64 [ns] = NULL_NS => kept;
        /// its last packet
        time_last_ns: i64 [ns] = NULL_NS => kept;
        /// SCSI commands
        cycle_count: u64 [commands] => counter;
        /// Data-In payload bytes
        read_bytes: u64 [bytes] => counter;
        /// Data-Out and immediate payload bytes
        write_bytes: u64 [bytes] => counter;
        /// maximum number of commands in flight
        queue_depth_max: u32 [commands] => kept;
    }
}

table! {
    /// one login key on one connection: both sides' offers and the negotiated value (secrets are never kept)
    Parameters Parameter "parameters" {
        /// the connection
        connection: u32;
        /// its session
        session: u32 = null;
        /// key in the RFC's spelling
        key: String;
        /// value sent by the initiator
        initiator_value: String = null;
        /// value sent by the target
        target_value: String = null;
        /// negotiated value; for a declared key, the value that the initiator declared (it limits what the target
        /// sends)
        effective_initiator: String = null;
        /// negotiated value; for a declared key, the value that the target declared (it limits what the initiator
        /// sends)
        effective_target: String = null;
        /// origin of the effective value
        source: u8(parameter_source) = null;
    }
}

table! {
    /// one ICMP or ICMPv6 error about a packet of a TCP connection in the capture
    IcmpErrors IcmpError "icmp_errors" {
        /// the connection
        connection: u32;
        /// direction of the packet that was not delivered
        to_target: bool;
        /// frame of the error
        frame: u64;
        /// its capture time
        time_ns: i64 [ns];
        /// why the packet was not delivered
        kind: u8(icmp_kind) = null;
        /// code of the message: of ICMP (RFC 792), or of ICMPv6 if the connection is IPv6
        code: u8, "RFC 4443 section 3";
        /// too_big: MTU of the next link, if the reporter states it
        mtu_bytes: u32 [bytes] = null, "RFC 1191 section 4";
        /// IP address of the router or host that reports the error
        reporter_address: String;
    }
}

table! {
    /// questions of one host whether another one is there, and their answers: ARP, neighbor discovery of IPv6, pings
    HostQuestions HostQuestion "host_questions" {
        /// how it asks
        kind: u8(question_kind);
        /// IP address of the host that asks
        asker_address: String;
        /// IP address that it asks for
        asked_address: String;
        /// questions
        question_count: u64;
        /// answers
        answer_count: u64;
        /// frame of the first question or answer
        frame_first: u64;
        /// its capture time
        time_first_ns: i64 [ns];
        /// capture time of the last question
        time_last_ns: i64 [ns] = null;
        /// capture time of the last answer
        time_answered_ns: i64 [ns] = null;
    }
}

/// Codes of `sessions.session_type`.
pub mod session_type {
    /// SCSI commands.
    pub const NORMAL: u8 = 0;
    /// SendTargets alone.
    pub const DISCOVERY: u8 = 1;
}
