//! Text Requests in the full feature phase (RFC 7143 sections 11.10 and 11.11): SendTargets, and a new
//! MaxRecvDataSegmentLength. Long answers are split over several Text Responses.

use std::net::SocketAddr;

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, LENGTH_BYTES, RESERVED_TAG};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::reject::RejectReason;
use iscsitrace_wire::text::{numeric, pairs};

use super::output::{Outgoing, Then};
use super::portal::Portal;
use crate::application::ConnectionNumber;
use crate::protocol::text::{Splitter, TextWriter};

impl Portal {
    /// Takes a Text Request in its turn.
    pub(super) fn take_text(
        &mut self,
        now_ns: i64,
        number: ConnectionNumber,
        header: &[u8; LENGTH_BYTES],
        data: &[u8],
    ) {
        let bhs = Bhs::new(header);
        let credit = Self::credit_of(header);
        let is_continue = bhs.is_continue() == Some(true);
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let text = &mut connection.text;
        let tag = bhs.target_transfer_tag().unwrap_or(RESERVED_TAG);
        // RFC 7143 section 11.10.4: the reserved tag starts a sequence; a tag of the target continues one
        let is_known = match &text.answer {
            Some((_, open)) => tag == *open || tag == RESERVED_TAG,
            None => tag == RESERVED_TAG,
        };
        // RFC 7143 section 11.10.2: F and C exclude each other
        if !is_known || is_continue && bhs.is_final() == Some(true) {
            return self.send_reject(now_ns, number, header, RejectReason::InvalidPduField.as_u8(), credit);
        }
        if tag == RESERVED_TAG {
            text.answer = None;
            text.joiner = Default::default();
        }
        let is_going_on = text.answer.as_ref().is_some_and(|(splitter, _)| splitter.is_open());
        if !is_going_on {
            match text.joiner.take(data, is_continue) {
                Err(_) => {
                    return self.send_reject(now_ns, number, header, RejectReason::OutOfResources.as_u8(), credit);
                }
                Ok(whole) => {
                    let answer = whole.map(|whole| self.answer_text(number, &whole));
                    let Some(connection) = self.connections.get_mut(&number) else { return };
                    let segment = connection.parameters.initiator_max_recv_data_segment_length;
                    let mut splitter = Splitter::new(segment as usize);
                    if let Some(answer) = answer {
                        splitter.put(answer);
                    }
                    connection.text.tag = connection.text.tag.wrapping_add(1) & 0x7fff_ffff;
                    connection.text.answer = Some((splitter, connection.text.tag));
                }
            }
        }
        self.send_text(now_ns, number, header, is_continue);
    }

    /// The next part of an answer.
    fn send_text(&mut self, now_ns: i64, number: ConnectionNumber, header: &[u8; LENGTH_BYTES], is_continue: bool) {
        let bhs = Bhs::new(header);
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Some((splitter, tag)) = &mut connection.text.answer else { return };
        let (part, has_more) = splitter.next_part();
        // RFC 7143 section 11.11.1: F only if the request had it and the answer is complete
        let is_final = !has_more && !is_continue && bhs.is_final() == Some(true);
        let response = BhsBuilder::new(Opcode::TextResponse)
            .is_final(is_final)
            .is_continue(has_more)
            .initiator_task_tag(bhs.initiator_task_tag().unwrap_or_default())
            .target_transfer_tag(if is_final { RESERVED_TAG } else { *tag });
        if is_final {
            connection.text.answer = None;
        }
        self.send(now_ns, number, Outgoing::status(response, part, Self::credit_of(header), Then::Nothing));
    }

    /// Answers the keys of a text.
    fn answer_text(&mut self, number: ConnectionNumber, text: &[u8]) -> Vec<u8> {
        let mut out = TextWriter::default();
        for (key, value) in pairs(text).flatten() {
            match key {
                "SendTargets" => self.answer_send_targets(number, &value, &mut out),
                "MaxRecvDataSegmentLength" => {
                    // RFC 7143 section 13.12: declared, not negotiated
                    let length = numeric(&value).and_then(|length| u32::try_from(length).ok());
                    let connection = self.connections.get_mut(&number);
                    match (length.filter(|length| (512..1 << 24).contains(length)), connection) {
                        (Some(length), Some(connection)) => {
                            connection.parameters.initiator_max_recv_data_segment_length = length;
                        }
                        _ => out.pair(key, "Reject"),
                    }
                }
                // login keys cannot be renegotiated (RFC 7143 section 13)
                key if iscsitrace_wire::key::OperationalKey::from_name(key).is_some() => out.pair(key, "Reject"),
                key => out.pair(key, "NotUnderstood"),
            }
        }
        out.into_bytes()
    }

    /// SendTargets (RFC 7143 appendix C).
    fn answer_send_targets(&self, number: ConnectionNumber, value: &str, out: &mut TextWriter) {
        let Some(connection) = self.connections.get(&number) else { return };
        let Some(session) = connection.tsih().and_then(|tsih| self.sessions.get(&tsih)) else { return };
        // an address for initiators: IPv4 not mapped, and without the scope of this host
        let local = SocketAddr::new(connection.local.ip().to_canonical(), connection.local.port());
        let addresses = if self.settings.addresses.is_empty() { &[local] } else { &self.settings.addresses[..] };
        let own = session.target.and_then(|target| self.targets.get(target)).map(|node| node.name.as_str());
        // "All" is for discovery sessions, an empty value for normal ones
        let is_refused = match value {
            "All" => own.is_some(),
            "" => own.is_none(),
            _ => false,
        };
        if is_refused {
            return out.pair("SendTargets", "Reject");
        }
        for node in &self.targets {
            let is_named = match (value, own) {
                ("All", _) => true,
                ("", own) => own == Some(node.name.as_str()),
                (name, own) => name == node.name && own.is_none_or(|own| own == name),
            };
            if !is_named {
                continue;
            }
            out.pair("TargetName", &node.name);
            for address in addresses {
                out.pair("TargetAddress", &format!("{address},{}", node.portal_group_tag));
            }
        }
    }
}
