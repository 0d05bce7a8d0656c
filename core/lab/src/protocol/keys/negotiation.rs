//! One side of the negotiation of operational keys: it offers, answers, and checks the peer's answers (RFC 7143
//! section 6.2).
//!
//! ```text
//! originator   offer, offer_missing     MaxBurstLength=16776192   ->
//! responder    take, answers into out                             <-   MaxBurstLength=262144
//! originator   take, no answer          is it a legal choice?
//! both         finish                   the negotiated parameters
//! ```
//!
//! The caller refuses repeated keys (section 6.3). It keeps no text of the peer.

use iscsitrace_wire::key::{OperationalKey, RESERVED_VALUES, ResultFunction, Use};
use iscsitrace_wire::text;

use super::offers::{KeyValue, Offers};
use super::parameters::Parameters;
use super::violation::{Violation, shown};
use crate::protocol::text::TextWriter;

/// The connection that negotiates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The leading connection of a normal session.
    Leading,
    /// The connection of a discovery session.
    Discovery,
    /// A further connection of a session, whose parameters these are.
    Further(Box<Parameters>),
}

/// One side of the negotiation.
#[derive(Debug, Clone)]
pub struct Negotiation {
    offers: Offers,
    scope: Scope,
    is_initiator: bool,
    parameters: Parameters,
    has_declared: bool,
    /// Keys offered by this side and not answered yet.
    open: Vec<OperationalKey>,
    /// Keys that either side has named, so not to be offered (again).
    named: Vec<OperationalKey>,
}

impl Negotiation {
    /// Starts with the defaults, or with the session's parameters.
    #[must_use]
    pub fn new(offers: Offers, scope: Scope, is_initiator: bool) -> Negotiation {
        let parameters = match &scope {
            Scope::Further(session) => session.for_further_connection(),
            Scope::Leading | Scope::Discovery => Parameters::default(),
        };
        Negotiation {
            offers,
            scope,
            is_initiator,
            parameters,
            has_declared: false,
            open: Vec::new(),
            named: Vec::new(),
        }
    }

    /// Offers and declares all keys that this side wants to name, and has not.
    pub fn offer(&mut self, out: &mut TextWriter) {
        let is_first_burst_irrelevant =
            self.offers.initial_r2t == Some(true) && self.offers.immediate_data == Some(false);
        for key in OperationalKey::ALL.iter().copied() {
            if key == OperationalKey::FirstBurstLength && is_first_burst_irrelevant {
                continue;
            }
            self.offer_key(key, out);
        }
    }

    /// Makes the declarations of this side, and offers the keys that neither side named and whose default it does not
    /// accept.
    pub fn offer_missing(&mut self, out: &mut TextWriter) {
        for key in OperationalKey::ALL.iter().copied() {
            if key.result_function() == ResultFunction::Declare || !self.accepts_current_value(key) {
                self.offer_key(key, out);
            }
        }
    }

    /// Declares MaxRecvDataSegmentLength, when it has not been (RFC 7143 section 13.12).
    pub fn declare(&mut self, out: &mut TextWriter) {
        self.offer_key(OperationalKey::MaxRecvDataSegmentLength, out);
    }

    fn offer_key(&mut self, key: OperationalKey, out: &mut TextWriter) {
        let Some(offered_value) = self.offers.offered_value(key) else { return };
        if !self.is_negotiable(key) {
            return;
        }
        if let (ResultFunction::Declare, KeyValue::Number(length)) = (key.result_function(), &offered_value) {
            // the peer's declaration does not replace this side's
            if std::mem::replace(&mut self.has_declared, true) {
                return;
            }
            *self.own_max_recv_data_segment_length() = *length;
        } else if self.named.contains(&key) {
            return;
        } else {
            self.open.push(key);
            self.named.push(key);
        }
        out.pair(key.name(), &offered_value.text());
    }

    fn own_max_recv_data_segment_length(&mut self) -> &mut u32 {
        if self.is_initiator {
            &mut self.parameters.initiator_max_recv_data_segment_length
        } else {
            &mut self.parameters.target_max_recv_data_segment_length
        }
    }

    fn peers_max_recv_data_segment_length(&mut self) -> &mut u32 {
        if self.is_initiator {
            &mut self.parameters.target_max_recv_data_segment_length
        } else {
            &mut self.parameters.initiator_max_recv_data_segment_length
        }
    }

    /// Whether a key may be negotiated here.
    fn is_negotiable(&self, key: OperationalKey) -> bool {
        match self.scope {
            Scope::Leading => true,
            Scope::Discovery => !key.row().is_irrelevant_in_discovery,
            Scope::Further(_) => key.row().usage != Use::LeadingOnly,
        }
    }

    /// Takes the peer's keys: answers offers into `out`, checks answers.
    ///
    /// # Errors
    /// The first violation.
    pub fn take(&mut self, pairs: &[(OperationalKey, &str)], out: &mut TextWriter) -> Result<(), Violation> {
        // FirstBurstLength is bounded by other keys (section 13.14), whatever the order
        let (first_burst, others): (Vec<_>, Vec<_>) =
            pairs.iter().partition(|(key, _)| *key == OperationalKey::FirstBurstLength);
        for (key, value) in others.into_iter().chain(first_burst) {
            if key.result_function() == ResultFunction::Declare {
                self.take_declaration(key, value)?;
            } else if let Some(place) = self.open.iter().position(|open| *open == key) {
                self.open.swap_remove(place);
                self.take_answer(key, value)?;
            } else {
                let answer = self.answer(key, value)?;
                self.named.push(key);
                out.pair(key.name(), &answer);
            }
        }
        Ok(())
    }

    fn take_declaration(&mut self, key: OperationalKey, value: &str) -> Result<(), Violation> {
        let length = text::numeric(value).and_then(|number| key.admits(number));
        let length = length.ok_or_else(|| {
            Violation::new(format!("{}={} is not admissible", key.name(), shown(value)), key.section())
        })?;
        *self.peers_max_recv_data_segment_length() = length;
        Ok(())
    }

    /// The answer to an offer of the peer.
    fn answer(&mut self, key: OperationalKey, value: &str) -> Result<String, Violation> {
        // "the use of Reject, Irrelevant, and NotUnderstood as proposed values" is a protocol error (section 6.2)
        if RESERVED_VALUES.contains(&value) {
            return Err(Violation::new(format!("{}={value} is no offer", key.name()), "6.2"));
        }
        match self.scope {
            Scope::Discovery if !self.is_negotiable(key) => return Ok("Irrelevant".to_owned()),
            Scope::Further(_) if !self.is_negotiable(key) => return Ok("Reject".to_owned()),
            _ if key == OperationalKey::FirstBurstLength && self.parameters.is_first_burst_irrelevant() => {
                return Ok("Irrelevant".to_owned());
            }
            _ => {}
        }
        let agreed = match key.result_function() {
            ResultFunction::Choose => self.choose(key, value).map(|name| KeyValue::List(vec![name])),
            ResultFunction::And | ResultFunction::Or => {
                text::boolean(value).and_then(|offered| self.combine(key, &KeyValue::Boolean(offered)))
            }
            _ => text::numeric(value)
                .and_then(|number| key.admits(number))
                .and_then(|offered| self.combine(key, &KeyValue::Number(offered))),
        };
        // an offer that is not admissible, or a list without a supported value (sections 6.2.1 and 6.2.2)
        let Some(agreed) = agreed else { return Ok("Reject".to_owned()) };
        self.parameters.set(key, &agreed);
        Ok(agreed.text())
    }

    /// The first value of the list that this side supports (RFC 7143 section 6.2.1).
    fn choose(&self, key: OperationalKey, list: &str) -> Option<&'static str> {
        let supported = self.supported(key);
        list.split(',').find_map(|offered| supported.iter().copied().find(|name| *name == offered))
    }

    fn supported(&self, key: OperationalKey) -> Vec<&'static str> {
        match self.offers.offered_value(key).or_else(|| Parameters::default().value(key)) {
            Some(KeyValue::List(names)) => names,
            _ => Vec::new(),
        }
    }

    /// The result function of the peer's value and this side's (RFC 7143 section 6.2.2).
    fn combine(&self, key: OperationalKey, theirs: &KeyValue) -> Option<KeyValue> {
        let own = self.offers.offered_value(key).or_else(|| Parameters::default().value(key))?;
        Some(match (key.result_function(), own, theirs) {
            (ResultFunction::Minimum, KeyValue::Number(own), KeyValue::Number(theirs)) => {
                let least = own.min(*theirs);
                let is_first_burst = key == OperationalKey::FirstBurstLength;
                KeyValue::Number(if is_first_burst { least.min(self.parameters.max_burst_length) } else { least })
            }
            (ResultFunction::Maximum, KeyValue::Number(own), KeyValue::Number(theirs)) => {
                KeyValue::Number(own.max(*theirs))
            }
            (ResultFunction::And, KeyValue::Boolean(own), KeyValue::Boolean(theirs)) => {
                KeyValue::Boolean(own && *theirs)
            }
            (ResultFunction::Or, KeyValue::Boolean(own), KeyValue::Boolean(theirs)) => {
                KeyValue::Boolean(own || *theirs)
            }
            _ => return None,
        })
    }

    /// Takes the peer's answer to an offer of this side, if it is legal.
    fn take_answer(&mut self, key: OperationalKey, value: &str) -> Result<(), Violation> {
        if RESERVED_VALUES.contains(&value) {
            // "the negotiated key is left at its current value" (section 6.2); finish() checks whether that is
            // acceptable
            return Ok(());
        }
        let Some(offered_value) = self.offers.offered_value(key) else { return Ok(()) };
        let (answer, section) = match &offered_value {
            KeyValue::List(names) => {
                let name = names.iter().copied().find(|name| *name == value);
                (name.map(|name| KeyValue::List(vec![name])), "6.2.1")
            }
            KeyValue::Boolean(_) => (text::boolean(value).map(KeyValue::Boolean), "6.2.2"),
            KeyValue::Number(_) => {
                (text::numeric(value).and_then(|number| key.admits(number)).map(KeyValue::Number), "6.2.2")
            }
        };
        // a legal answer is a possible result of the result function
        let answer = answer.filter(|answer| match (key.result_function(), answer, &offered_value) {
            (ResultFunction::Minimum, KeyValue::Number(answer), KeyValue::Number(offered)) => answer <= offered,
            (ResultFunction::Maximum, KeyValue::Number(answer), KeyValue::Number(offered)) => answer >= offered,
            (ResultFunction::And, KeyValue::Boolean(answer), KeyValue::Boolean(offered)) => *offered || !answer,
            (ResultFunction::Or, KeyValue::Boolean(answer), KeyValue::Boolean(offered)) => !offered || *answer,
            _ => true,
        });
        let Some(answer) = answer else {
            let what = format!("{}={} is no legal answer to {}", key.name(), shown(value), offered_value.text());
            return Err(Violation::new(what, section));
        };
        self.parameters.set(key, &answer);
        Ok(())
    }

    /// Whether this side accepts the current value.
    fn accepts_current_value(&self, key: OperationalKey) -> bool {
        if !self.is_negotiable(key)
            || (key == OperationalKey::FirstBurstLength && self.parameters.is_first_burst_irrelevant())
            || self.offers.offered_value(key).is_none()
        {
            return true;
        }
        match self.parameters.value(key) {
            Some(KeyValue::List(names)) => names.iter().all(|name| self.supported(key).contains(name)),
            Some(value) => self.combine(key, &value).is_none_or(|combined| combined == value),
            None => true,
        }
    }

    /// Ends the negotiation: returns the parameters, and remarks on offers without the required answer.
    ///
    /// # Errors
    /// A value that this side does not accept, because the peer rejected or ignored its offer.
    pub fn finish(mut self) -> Result<(Parameters, Vec<String>), Violation> {
        let mut remarks = Vec::new();
        for key in std::mem::take(&mut self.open) {
            match (key.result_function(), self.offers.offered_value(key)) {
                // an answer is optional if only one result is possible (section 6.2.2)
                (ResultFunction::And, Some(KeyValue::Boolean(false)))
                | (ResultFunction::Or, Some(KeyValue::Boolean(true))) => {
                    self.parameters.set(key, &KeyValue::Boolean(key.result_function() == ResultFunction::Or));
                }
                _ => remarks
                    .push(Violation::new(format!("{} was offered and not answered", key.name()), "6.2.2").to_string()),
            }
        }
        if self.parameters.is_first_burst_irrelevant() {
            // even if it was negotiated before that was known
            self.parameters.first_burst_length = Parameters::default().first_burst_length;
        }
        self.parameters.first_burst_length = self.parameters.first_burst_length.min(self.parameters.max_burst_length);
        for key in OperationalKey::ALL.iter().copied() {
            if !self.accepts_current_value(key) {
                let current = self.parameters.value(key).map(|value| value.text()).unwrap_or_default();
                let offered_value =
                    self.offers.offered_value(key).map(|offered_value| offered_value.text()).unwrap_or_default();
                let what = format!("{} stays {current}, but {offered_value} is required", key.name());
                return Err(Violation::new(what, "7.12"));
            }
        }
        Ok((self.parameters, remarks))
    }

    /// Whether offers of this side wait for an answer.
    #[must_use]
    pub fn has_open_offers(&self) -> bool {
        !self.open.is_empty()
    }
}
