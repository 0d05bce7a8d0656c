//! Two captures of the same traffic: their connections, and what a join of their packets says of the network between.

use super::declaration::table;
use super::{Column, Columns, CounterRows, TableDeclaration};

table! {
    /// one TCP connection of a capture, iSCSI or not, as the headers of its packets show it
    ConnectionsSeen ConnectionSeen "connections_seen" {
        /// the connection, numbered as in connections
        connection: u32;
        /// sender of the SYN; without one, sender of the first packet
        client_address: String;
        /// its TCP port
        client_port: u16;
        /// the other end
        server_address: String;
        /// its TCP port
        server_port: u16;
        /// capture time of its first packet
        time_first_ns: i64 [ns];
        /// capture time of its last packet
        time_last_ns: i64 [ns];
        /// capture time of the first SYN of the client
        syn_ns: i64 [ns] = null;
        /// capture time of the first SYN-ACK
        syn_ack_ns: i64 [ns] = null;
        /// capture time of the client's first packet after the SYN-ACK
        handshake_ack_ns: i64 [ns] = null;
        /// initial sequence number of the client, from its SYN
        client_initial_sequence_number: i64 = null, "RFC 9293 section 3.4.1";
        /// initial sequence number of the server, from its SYN
        server_initial_sequence_number: i64 = null, "RFC 9293 section 3.4.1";
        /// sequence number of the client's first packet
        client_first_sequence_number: i64 = null;
        /// sequence number of the server's first packet
        server_first_sequence_number: i64 = null;
        /// sequence number after the highest byte of the client
        client_last_sequence_number: i64 = null;
        /// sequence number after the highest byte of the server
        server_last_sequence_number: i64 = null;
        /// packets of the client, copies included
        client_packets: u64 [packets];
        /// packets of the server, copies included
        server_packets: u64 [packets];
        /// TCP payload of the client, retransmissions and copies included
        client_bytes: u64 [bytes];
        /// TCP payload of the server, retransmissions and copies included
        server_bytes: u64 [bytes];
    }
}

table! {
    /// one place of a stream that two captures can compare: multiples of a power of two among its sequence numbers, at
    /// most 64 of a direction, and the first byte of payload
    Landmarks Landmark "landmarks" {
        /// the connection
        connection: u32;
        /// whether the client sent the byte
        is_from_client: bool;
        /// sequence number of the byte
        sequence_number: u32;
        /// capture time of the first packet with the byte
        time_ns: i64 [ns];
        /// frame of that packet
        frame: u64;
        /// hash of the 16 bytes from there on; null: they are not all captured in that packet
        payload_hash: u64 = null;
    }
}

table! {
    /// one range of bytes, or one packet without payload, that both taps saw, by direction, in order of matching; evenly
    /// decimated where there are many
    Transits Transit "transits" {
        /// number of the pair of connections, from 0
        pair: u32;
        /// direction
        to_target: bool;
        /// capture time at tap a, of the packet with the bytes
        time_a_ns: i64 [ns];
        /// capture time at tap b less capture time at tap a, each by its own clock: delay plus clock offset to the
        /// target, clock offset less delay to the initiator
        transit_ns: i64 [ns], "method 14";
        /// payload that one packet of each tap has in common
        payload_bytes: u32 [bytes];
    }
}

table! {
    /// the least and the greatest transit of a direction in an interval of time at tap a, over all pairs
    Envelopes Envelope "envelope" {
        /// direction
        to_target: bool;
        /// start of the interval, by the clock of tap a
        from_ns: i64 [ns];
        /// its end
        to_ns: i64 [ns];
        /// the least transit
        least_ns: i64 [ns], "method 14";
        /// capture time at tap a of the least transit
        least_time_a_ns: i64 [ns];
        /// the greatest transit
        greatest_ns: i64 [ns], "method 14";
        /// capture time at tap a of the greatest transit
        greatest_time_a_ns: i64 [ns];
        /// number of transits
        transits: u64;
    }
}

table! {
    /// one packet, or a part of a packet, that only one of the two taps has seen
    PathLosses PathLoss "path_losses" {
        /// number of the pair of connections, from 0
        pair: u32;
        /// direction
        to_target: bool;
        /// whether tap a saw it; false: tap b
        is_seen_at_a: bool;
        /// capture time there
        time_ns: i64 [ns];
        /// its frame there
        frame: u64;
        /// sequence number of its first byte there
        sequence_number: u32;
        /// offset of its first byte in the stream; of a packet without payload: offset of the next byte
        first_offset_bytes: i64 [bytes];
        /// offset after its last byte
        last_offset_bytes: i64 [bytes];
        /// TCP flags of the packet: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128
        flags: u8, "RFC 9293 section 3.1";
        /// what happened to it
        verdict: u8(path_verdict), "method 14";
        /// the receiver reported later bytes (SACK) while it lacked these: they arrived late, if they did
        is_overtaken: bool, "RFC 2018";
    }
}

table! {
    /// one packet whose bytes may have been sent before: in a packet that neither tap saw
    PathDoubts PathDoubt "path_doubts" {
        /// number of the pair of connections, from 0
        pair: u32;
        /// direction
        to_target: bool;
        /// capture time at the sender's tap
        time_ns: i64 [ns];
        /// its frame there
        frame: u64;
    }
}

table! {
    /// one direction of a pair of connections: what happened to its packets between the two taps
    Paths Path "paths" {
        /// number of the pair of connections, from 0
        pair: u32;
        /// the connection at tap a
        connection_a: u32;
        /// the connection at tap b
        connection_b: u32;
        /// direction
        to_target: bool;
        /// packets at tap a, without copies that it captured twice
        packets_a: u64 [packets];
        /// packets at tap b, likewise
        packets_b: u64 [packets];
        /// packets that tap a captured twice
        copies_a: u64 [packets];
        /// packets that tap b captured twice
        copies_b: u64 [packets];
        /// ranges of bytes, and packets without payload, that both taps saw
        matched: u64;
        /// packets that the network between the taps lost; a super-segment counts by the MSS of the SYN
        lost: u64 [packets], "method 14";
        /// packets that capture a missed
        missing_at_a: u64 [packets], "method 14";
        /// packets that capture b missed
        missing_at_b: u64 [packets], "method 14";
        /// packets that one tap saw, and nothing says where they went
        cannot_tell: u64 [packets], "method 14";
        /// of these, packets without payload
        cannot_tell_empty: u64 [packets], "method 14";
        /// packets that one tap saw outside the time of the other capture
        outside: u64 [packets];
        /// second copies that the network delivered
        duplicated: u64 [packets];
        /// packets that later ones overtook between the taps
        reordered: u64 [packets], "RFC 4737 section 3.3";
        /// packets whose DSCP differs
        dscp_changed: u64 [packets], "RFC 2474";
        /// packets that were marked Congestion Experienced between the taps
        ce_marked: u64 [packets], "RFC 3168 section 5";
        /// maximum segment size in the SYN at tap a
        mss_a_bytes: u16 [bytes] = null;
        /// maximum segment size in the SYN at tap b
        mss_b_bytes: u16 [bytes] = null;
        /// window scale in the SYN at tap a
        window_scale_a: u8 = null;
        /// window scale in the SYN at tap b
        window_scale_b: u8 = null;
        /// routers between the taps: TTL at the sender's tap less TTL at the other, the most frequent
        hops: u8 = null;
        /// whether an address or a port differs
        is_translated: bool;
        /// whether TCP timestamps and IP identifications differ in most packets: then the packets of the two taps are not the
        /// same, as on both sides of a proxy that terminates TCP, and the other columns mean nothing
        is_terminated: bool, "method 14";
        /// the least transit
        least_ns: i64 [ns] = null, "method 14";
        /// the greatest transit
        greatest_ns: i64 [ns] = null, "method 14";
    }
}

/// The columns of a table, and its name.
pub type NamedColumns = (&'static str, Vec<(&'static str, Column)>);

/// What is declared of each table about two taps, in the order of the docs.
pub const TAP_DECLARATIONS: &[TableDeclaration] = &[
    ConnectionsSeen::DECLARATION,
    Landmarks::DECLARATION,
    Transits::DECLARATION,
    Envelopes::DECLARATION,
    PathLosses::DECLARATION,
    PathDoubts::DECLARATION,
    Paths::DECLARATION,
];

/// The columns of a table with its name.
pub fn named<T: Columns>(mut table: T) -> NamedColumns {
    (T::DECLARATION.name, table.take_columns())
}

/// The tables of a join.
#[derive(Debug, Default)]
pub struct Joined {
    /// Ranges that both taps saw.
    pub transits: Transits,
    /// The extremes of the transits over time.
    pub envelope: Envelopes,
    /// What one tap alone saw.
    pub path_losses: PathLosses,
    /// What may have been sent before.
    pub path_doubts: PathDoubts,
    /// Counts per pair and direction.
    pub paths: Paths,
    /// Irregularities of the capture of tap a, tap b, and of the join.
    pub counters: [CounterRows; 3],
}
