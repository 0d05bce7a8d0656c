//! The row of a connection.

use super::TcpConnection;
use crate::connection::content::{Content, ContentSink, IscsiContent};
use crate::context::Context;
use crate::counters::Counter;
use crate::iscsi::digest_use::DigestUse;
use crate::iscsi::framer::Framer;
use crate::iscsi::noted::Note;
use crate::iscsi::session::SessionEnd;
use crate::senders::timeline::Hosts;
use crate::stream::half::Half;
use crate::stream::reassembly::HoldBudget;
use crate::stream::table::Endpoint;
use crate::tables::{Connection, NULL_NS, NULL_U8, NULL_U16, NULL_U32, NULL_U64, session_type};

impl TcpConnection {
    /// Ends the connection and returns its row.
    pub(crate) fn finish(&mut self, context: &mut Context, budget: &mut HoldBudget) -> Connection {
        self.read_waiting(context, budget);
        for direction in [0, 1] {
            let mut sink = ContentSink {
                content: &mut self.content,
                context,
                number: self.number,
                direction,
                frame: self.frame_last,
            };
            let refused = match self.halves[1 - direction].rst {
                Some(_) => self.halves[direction].reassembly.refuse(budget),
                None => 0,
            };
            let abandoned = refused + self.halves[direction].reassembly.finish(budget, &mut sink);
            if matches!(self.content, Content::Iscsi(_)) {
                context.counters.add_many(
                    Counter::HoleAbandoned,
                    Some(self.number),
                    self.frame_last,
                    u64::from(abandoned),
                );
            }
        }
        let fins_ns = self
            .halves
            .each_ref()
            .map(|half| half.fin.filter(|_| half.fin_offset == Some(half.reassembly.next())).map(|fin| fin.time_ns));
        self.content.finish(&self.closing(), fins_ns, context);
        self.hand_over(context);
        self.list_keys(context);
        if let Content::Iscsi(iscsi) = &self.content {
            context.note(|| Note::Closed {
                connection: self.number,
                is_client_initiator: iscsi.is_client_initiator,
                bases: self.halves.each_ref().map(Half::base),
            });
        }
        let row = self.row();
        if let Content::Iscsi(iscsi) = &mut self.content {
            let unexplained = (row.stream_bytes_to_target + row.stream_bytes_to_initiator)
                .saturating_sub(iscsi.framers.iter().map(|framer| framer.explained_bytes).sum());
            context.counters.add_many(Counter::UnexplainedBytes, Some(self.number), 0, unexplained);
            if let Some(session) = iscsi.connection.session {
                context.sessions.note_time(session, self.time_first_ns, self.time_last_ns);
                if self.has_rst() || self.has_fin() {
                    context
                        .sessions
                        .close_connection(session, if self.has_rst() { SessionEnd::Reset } else { SessionEnd::Closed });
                }
            }
        }
        row
    }

    /// Ends the analysis of its senders: hands over its rows and its timeline.
    pub(super) fn hand_over(&mut self, context: &mut Context) {
        if matches!(self.content, Content::Iscsi(_)) {
            let (is_client_initiator, hosts) = (!self.is_flipped(), self.hosts());
            let timeline = self.analysis.end(is_client_initiator, hosts, &mut context.tables, &mut context.apart);
            context.timelines.extend(timeline);
        } else {
            self.analysis.cancel(&mut context.apart);
        }
    }

    /// Makes rows of the keys of its login.
    pub(super) fn list_keys(&mut self, context: &mut Context) {
        let Content::Iscsi(iscsi) = &mut self.content else { return };
        let Some(session) = iscsi.connection.session else { return };
        let is_discovery = context.sessions.rows.session_type[context.sessions.row(session)] == session_type::DISCOVERY;
        iscsi.connection.login.list(self.number, session, is_discovery, &mut context.tables.parameters);
    }

    /// Whether the TCP client is the target.
    pub(crate) fn is_flipped(&self) -> bool {
        matches!(&self.content, Content::Iscsi(iscsi) if !iscsi.is_client_initiator)
    }

    /// The target's end; the server's, if it is not iSCSI.
    pub(crate) fn target(&self) -> Endpoint {
        self.ends[usize::from(!self.is_flipped())]
    }

    /// Its two ends.
    pub(crate) fn hosts(&self) -> Hosts {
        let [initiator, target] = if self.is_flipped() { [self.ends[1], self.ends[0]] } else { self.ends };
        Hosts { initiator: initiator.address, target: target.address }
    }

    /// The row so far.
    pub(crate) fn row(&self) -> Connection {
        let is_flipped = self.is_flipped();
        let [initiator, target] = if is_flipped { [self.ends[1], self.ends[0]] } else { self.ends };
        let [out, back] = if is_flipped { [1, 0] } else { [0, 1] };
        let [to_target, to_initiator] = [&self.halves[out], &self.halves[back]];
        let mut row = Connection {
            connection: self.number,
            initiator_address: initiator.address.to_string(),
            initiator_port: initiator.port,
            target_address: target.address.to_string(),
            target_port: target.port,
            roles_from: if self.halves.iter().any(|half| half.has_syn) { 0 } else { 4 },
            frame_first: self.frame_first,
            frame_last: self.frame_last,
            time_first_ns: self.time_first_ns,
            time_last_ns: self.time_last_ns,
            has_syn: self.halves.iter().any(|half| half.has_syn),
            has_fin: self.has_fin(),
            has_rst: self.has_rst(),
            syn_ns: self.syn.map_or(NULL_NS, |syn| syn.time_ns),
            syn_frame: self.syn.map_or(NULL_U64, |syn| syn.frame),
            syn_ack_ns: self.syn_ack_ns.unwrap_or(NULL_NS),
            is_refused: self.is_refused,
            is_sack_permitted: self.halves.iter().all(|half| half.is_sack_permitted),
            has_timestamps: self.has_timestamps,
            handshake_rtt_to_target_ns: self.handshake_rtt_ns[out],
            handshake_rtt_to_initiator_ns: self.handshake_rtt_ns[back],
            rtt_to_target_min_ns: to_target.rtt_min_ns,
            rtt_to_initiator_min_ns: to_initiator.rtt_min_ns,
            ..Connection::default()
        };
        macro_rules! both {
            ($($column_a:ident $column_b:ident = $value:expr;)*) => { $(
                let value: fn(&Half) -> _ = $value;
                row.$column_a = value(to_target);
                row.$column_b = value(to_initiator);
            )* };
        }
        both! {
            fin_to_target_ns fin_to_initiator_ns = |half| half.fin.map_or(NULL_NS, |fin| fin.time_ns);
            fin_to_target_frame fin_to_initiator_frame = |half| half.fin.map_or(NULL_U64, |fin| fin.frame);
            rst_to_target_ns rst_to_initiator_ns = |half| half.rst.map_or(NULL_NS, |rst| rst.time_ns);
            rst_to_target_frame rst_to_initiator_frame = |half| half.rst.map_or(NULL_U64, |rst| rst.frame);
            rst_hop_limit_to_target rst_hop_limit_to_initiator = |half| half.rst_hop_limit.map_or(NULL_U16, u16::from);
            hop_limit_to_target hop_limit_to_initiator = |half| half.hop_limit().map_or(NULL_U16, u16::from);
            time_last_to_target_ns time_last_to_initiator_ns = |half| half.time_last_ns;
            data_last_to_target_ns data_last_to_initiator_ns = |half| half.data_last_ns;
            is_dont_fragment_to_target is_dont_fragment_to_initiator =
                |half| half.captured_bytes > 0 && !half.may_be_fragmented;
            packets_to_target packets_to_initiator = |half| half.packets;
            stream_bytes_to_target stream_bytes_to_initiator = |half| half.reassembly.stream_bytes();
            captured_bytes_to_target captured_bytes_to_initiator = |half| half.captured_bytes;
            gap_bytes_to_target gap_bytes_to_initiator = |half| half.reassembly.gaps().0;
            cut_bytes_to_target cut_bytes_to_initiator = |half| half.cut_bytes;
            retransmitted_packets_to_target retransmitted_packets_to_initiator = |half| half.retransmitted_packets;
            retransmitted_bytes_to_target retransmitted_bytes_to_initiator = |half| half.retransmitted_bytes;
            retransmitted_syns_to_target retransmitted_syns_to_initiator = |half| half.syns.saturating_sub(1);
            retransmitted_fins_to_target retransmitted_fins_to_initiator = |half| half.fins.saturating_sub(1);
            reordered_packets_to_target reordered_packets_to_initiator = |half| half.reordered_packets;
            reordered_late_to_target_max_ns reordered_late_to_initiator_max_ns = |half| half.reordered_late_max_ns;
            copied_packets_to_target copied_packets_to_initiator = |half| half.copied_packets;
            mss_bytes_to_target mss_bytes_to_initiator = |half| half.mss_bytes.unwrap_or(NULL_U16);
            window_scale_to_target window_scale_to_initiator = |half| half.window_scale.unwrap_or(NULL_U8);
        }
        if let Content::Iscsi(iscsi) = &self.content {
            if row.roles_from != 0 {
                row.roles_from = if iscsi.connection.login.is_captured { 1 } else { 2 };
            }
            describe(iscsi, &mut row);
        }
        row
    }
}

/// Fills the iSCSI columns.
fn describe(iscsi: &IscsiContent, row: &mut Connection) {
    let connection = &iscsi.connection;
    row.is_iscsi = true;
    row.session = connection.session.unwrap_or(NULL_U32);
    row.cid = connection.login.cid.unwrap_or(NULL_U16);
    row.explained_bytes_to_target = iscsi.framers[0].explained_bytes;
    row.explained_bytes_to_initiator = iscsi.framers[1].explained_bytes;
    row.digest_errors_to_target = iscsi.framers[0].digest_errors;
    row.digest_errors_to_initiator = iscsi.framers[1].digest_errors;
    [row.pdu_count_to_target, row.pdu_count_to_initiator] = connection.pdu_count;
    macro_rules! last {
        ($of:expr => $opcode:ident $time:ident $frame:ident $is_new:ident) => {
            if let Some(last) = $of {
                (row.$opcode, row.$time, row.$frame) = (last.opcode, last.at.time_ns, last.at.frame);
                row.$is_new = last.is_first;
            }
        };
    }
    let [to_target, to_initiator] = connection.last_pdus.of;
    last!(to_target => last_pdu_opcode_to_target last_pdu_to_target_ns last_pdu_to_target_frame is_last_pdu_new_to_target);
    last!(
        to_initiator => last_pdu_opcode_to_initiator last_pdu_to_initiator_ns last_pdu_to_initiator_frame
            is_last_pdu_new_to_initiator
    );
    [row.missing_pdu_count_to_target, row.missing_pdu_count_to_initiator] = connection.missing.count;
    let [header, data]: [fn(&Framer) -> DigestUse; 2] = [|framer| framer.header_digest, |framer| framer.data_digest];
    row.header_digest = digest_code(iscsi.framers.each_ref().map(header));
    row.data_digest = digest_code(iscsi.framers.each_ref().map(data));
    // a cut login may show one of the two
    row.digest_source = match (header(&iscsi.framers[1]), data(&iscsi.framers[1])) {
        (DigestUse::Known(_), DigestUse::Known(_)) => 0,
        (DigestUse::Unknown, _) => 2,
        _ => 1,
    };
}

/// Code of a digest: none 0, crc32c 1, unknown 2. Both directions have the same.
fn digest_code(uses: [DigestUse; 2]) -> u8 {
    if uses.iter().any(|digest| digest.is_used()) {
        1
    } else if uses.contains(&DigestUse::Unknown)
        && !uses.iter().any(|digest| matches!(digest, DigestUse::Inferred(_) | DigestUse::Known(_)))
    {
        2
    } else {
        0
    }
}
