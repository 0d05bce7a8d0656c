//! The login phase of one connection (RFC 7143 section 6.3): its exchanges, keys and result.
//!
//! It opens or joins the session with the first request, and returns the digests in use when the target enters the full
//! feature phase. Values of secrets never leave `keys`.

use iscsitrace_wire::login_status::LoginStatus;
use iscsitrace_wire::opcode::Opcode;
use serde::{Deserialize, Serialize};

use super::continued_text::ContinuedText;
use super::digest_use::Digests;
use super::keys::{Defaults, Negotiation, Said};
use super::pdu::{KEPT_DATA_MAX, Pdu};
use super::session::SessionEnd;
use super::session::endings::Ending;
use crate::conformance::keys::JudgedText;
use crate::conformance::rules::Side;
use crate::context::Context;
use crate::counters::Counter;
use crate::tables::{Id, Logins, NULL_U8, Parameters, Session};

/// The login of one connection.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Login {
    /// All keys, including text negotiation in the full feature phase.
    pub negotiation: Negotiation,
    /// Whether any of it was captured.
    pub is_captured: bool,
    /// CID of the requests.
    pub cid: Option<u16>,
    /// Whether bytes of the login are missing from the capture.
    pub has_gap: bool,
    /// Whether it joins an existing session: its first request has a TSIH.
    pub is_further: bool,
    /// Whether the connection reached the full feature phase.
    pub is_complete: bool,
    requested: ContinuedText,
    answered: ContinuedText,
    /// For the judge, what the text of the last PDU says.
    pub(crate) judged: JudgedText,
    open_row: Option<Id<Logins>>,
    /// Whether its keys became rows.
    is_listed: bool,
}

impl Login {
    /// Processes a Login Request or Login Response.
    pub fn take(
        &mut self,
        pdu: &Pdu<'_>,
        connection: u32,
        session: &mut Option<u32>,
        context: &mut Context,
    ) -> Option<Digests> {
        self.is_captured = true;
        self.judged = JudgedText::default();
        if pdu.bhs().opcode() == Some(Opcode::LoginRequest) {
            self.request(pdu, connection, session, context);
            None
        } else {
            self.response(pdu, connection, session, context)
        }
    }

    /// Rows left the table.
    pub fn forget(&mut self, logins: &Logins) {
        self.open_row = self.open_row.filter(|&id| logins.has(id));
    }

    fn request(&mut self, pdu: &Pdu<'_>, connection: u32, session: &mut Option<u32>, context: &mut Context) {
        let bhs = pdu.bhs();
        self.note_cut(pdu);
        self.cid = bhs.cid().or(self.cid);
        let is_first = session.is_none() && bhs.is_continue() != Some(true);
        if is_first {
            self.is_further = bhs.tsih().is_some_and(|tsih| tsih != 0);
        }
        if let Some(text) = self.requested.take(pdu, connection, context) {
            self.take_text(&text, Side::Initiator, pdu.first.frame, connection, context);
        }
        if is_first {
            *session = Some(self.open_session(pdu, connection, context));
        }
        if let Some(session) = *session
            && let (Some(state), Some(cmd_sn)) = (context.sessions.state_mut(session), bhs.cmd_sn())
        {
            state.expect_cmd_sn(cmd_sn);
        }
        let completion = pdu.completion();
        self.open_row = Some(context.tables.logins.next_id());
        context.tables.logins.push(crate::tables::Login {
            connection,
            request_ns: completion.time_ns,
            request_frame: completion.frame,
            current_stage: bhs.current_stage().unwrap_or(NULL_U8),
            next_stage: bhs.next_stage().unwrap_or(NULL_U8),
            ..Default::default()
        });
    }

    /// Notes incomplete text: it may have had any key.
    fn note_cut(&mut self, pdu: &Pdu<'_>) {
        let length = pdu.bhs().data_segment_length().unwrap_or(0) as usize;
        self.has_gap |= pdu.data.len() < length.min(KEPT_DATA_MAX);
    }

    fn open_session(&self, pdu: &Pdu<'_>, connection: u32, context: &mut Context) -> u32 {
        let bhs = pdu.bhs();
        let named = |key| self.negotiation.initiator(key).unwrap_or_default().to_owned();
        let row = Session {
            session_type: u8::from(self.negotiation.initiator("SessionType") == Some("Discovery")),
            initiator_name: named("InitiatorName"),
            initiator_alias: named("InitiatorAlias"),
            target_name: named("TargetName"),
            isid: bhs.isid().map(hexadecimal).unwrap_or_default(),
            ..Session::default()
        };
        let (session, replaced) = context.sessions.login(row, bhs.tsih().unwrap_or(0), connection);
        let time_ns = pdu.completion().time_ns;
        if let Some(replaced) = replaced {
            context.counters.add(Counter::SessionReinstated, Some(connection), pdu.first.frame);
            if let Some(state) = context.sessions.state_mut(replaced) {
                state.endings.note(time_ns, Ending::Session);
            }
            if context.tables.wanted.violations {
                context.sessions.rivals.add(replaced, connection, pdu.first);
            }
        }
        if let Some(cid) = self.cid.filter(|_| self.is_further)
            && let Some(state) = context.sessions.state_mut(session)
        {
            // an earlier connection of this CID is reinstated (RFC 7143 section 6.3.4)
            state.endings.note(time_ns, Ending::Connection { cid, before: connection });
        }
        session
    }

    fn response(
        &mut self,
        pdu: &Pdu<'_>,
        connection: u32,
        session: &mut Option<u32>,
        context: &mut Context,
    ) -> Option<Digests> {
        let bhs = pdu.bhs();
        let frame = pdu.first.frame;
        self.note_cut(pdu);
        if let Some(text) = self.answered.take(pdu, connection, context) {
            self.take_text(&text, Side::Target, frame, connection, context);
        }
        let (class, detail) = (bhs.status_class().unwrap_or(NULL_U8), bhs.status_detail().unwrap_or(NULL_U8));
        let is_transit = bhs.is_transit() == Some(true);
        if let Some(id) = self.open_row.take() {
            let logins = &mut context.tables.logins;
            let row = logins.row(id);
            let completion = pdu.completion();
            logins.response_ns[row] = completion.time_ns;
            logins.response_frame[row] = completion.frame;
            logins.is_transit[row] = is_transit;
            logins.status_class[row] = class;
            logins.status_detail[row] = detail;
            logins.status_text.set(row, &status_text(class, detail));
        }
        let number = *session.get_or_insert_with(|| context.sessions.open_unknown(connection));
        let row = context.sessions.row(number);
        if class != NULL_U8 {
            context.sessions.rows.login_status[row] = u16::from_be_bytes([class, detail]);
        }
        if let Some(method) = self.negotiation.target("AuthMethod") {
            context.sessions.rows.auth_method.set(row, method);
        }
        if !matches!(class, 0 | NULL_U8) {
            // class 1 is a redirection: the login ends here, too (RFC 7143 section 11.13.5)
            if class != 1 {
                context.counters.add(Counter::LoginRefused, Some(connection), frame);
            }
            context.sessions.end(number, SessionEnd::Refused);
            return None;
        }
        let is_full_feature = is_transit && bhs.next_stage() == Some(FULL_FEATURE_PHASE);
        if !is_full_feature {
            return None;
        }
        self.is_complete = true;
        let rows = &mut context.sessions.rows;
        let answered = |key| self.negotiation.target(key).unwrap_or_default().to_owned();
        if let Some(tsih) = bhs.tsih() {
            rows.tsih[row] = tsih;
        }
        rows.target_alias.set(row, &answered("TargetAlias"));
        if rows.auth_method[row].is_empty() && !self.has_gap {
            // the security stage was skipped (RFC 7143 section 6.3.1)
            rows.auth_method.set(row, "None");
        }
        if let Some(tag) =
            iscsitrace_wire::text::numeric(&answered("TargetPortalGroupTag")).and_then(|tag| u32::try_from(tag).ok())
        {
            rows.target_portal_group_tag[row] = tag;
        }
        Some(self.digests())
    }

    /// The agreed digests; without an answer the default, None (RFC 7143 section 13.1).
    pub fn digests(&self) -> Digests {
        let unanswered = (!self.has_gap).then_some(false);
        let digest = |key| self.negotiation.digest(key).or(unanswered);
        Digests { header: digest("HeaderDigest"), data: digest("DataDigest") }
    }

    fn take_text(&mut self, text: &[u8], side: Side, frame: u64, connection: u32, context: &mut Context) {
        let (is_judged, is_further) = (context.tables.wanted.violations, self.is_further);
        let mut judged = JudgedText::default();
        let note = |said: Said<'_>| {
            if is_judged {
                judged.note(said, side, is_further);
            }
        };
        let oddities = self.negotiation.take(text, side == Side::Initiator, note);
        oddities.count(connection, frame, &mut context.counters);
        judged.is_cut = oddities.not_kept > 0;
        self.judged = judged;
    }

    /// Adds the rows of `parameters` once, at the end of the connection, and drops the keys.
    pub fn list(&mut self, connection: u32, session: u32, is_discovery: bool, parameters: &mut Parameters) {
        if !self.is_listed {
            self.parameters(connection, session, is_discovery, parameters);
            self.negotiation = Negotiation::default();
            self.is_listed = true;
        }
    }

    /// Adds the rows of `parameters`.
    pub fn parameters(&self, connection: u32, session: u32, is_discovery: bool, parameters: &mut Parameters) {
        let defaults = match (self.is_complete && !self.has_gap && !is_discovery, self.is_further) {
            (false, _) => Defaults::None,
            (true, true) => Defaults::OfConnection,
            (true, false) => Defaults::All,
        };
        for (offer, effective) in self.negotiation.effective(defaults) {
            // by column: a row would have texts of its own
            parameters.connection.push(connection);
            parameters.session.push(session);
            parameters.key.push(offer.key);
            parameters.initiator_value.push(offer.initiator.unwrap_or_default());
            parameters.target_value.push(offer.target.unwrap_or_default());
            parameters.effective_initiator.push(&effective.initiator);
            parameters.effective_target.push(&effective.target);
            parameters.source.push(effective.source);
        }
    }
}

/// CSG and NSG value of the full feature phase (RFC 7143 section 11.12.3).
const FULL_FEATURE_PHASE: u8 = 3;

fn hexadecimal(bytes: [u8; 6]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The meaning of a login status (RFC 7143 section 11.13.5).
fn status_text(class: u8, detail: u8) -> String {
    match class {
        NULL_U8 => String::new(),
        0..=3 => LoginStatus::from_codes(class, detail).words().to_lowercase(),
        _ => "unknown".to_owned(),
    }
}
