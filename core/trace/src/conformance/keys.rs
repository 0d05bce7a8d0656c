//! The keys of a login as the pass takes them: choices, values and results; rules L2 to L4, and L7.
//!
//! Of the values only the two burst lengths are kept.

use iscsitrace_wire::key::{Group, KEYS, Key, OperationalKey, RESERVED_VALUES, ResultFunction, Use, Value};
use iscsitrace_wire::text;
use serde::{Deserialize, Serialize};

use super::rules::{Rule, Side};
use crate::iscsi::keys::Said;

/// What the text of a PDU of a login says.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct JudgedText {
    /// The rules that it breaks, with the places of their keys.
    pub(super) broken: Vec<(Rule, usize)>,
    /// Keys that were not sent before.
    pub(super) new_keys: usize,
    /// Its FirstBurstLength.
    first_burst: Option<u64>,
    /// Its MaxBurstLength.
    max_burst: Option<u64>,
    /// Whether not all of it was kept.
    pub(crate) is_cut: bool,
}

impl JudgedText {
    /// A pair; `is_further` if the session has an earlier connection.
    pub(crate) fn note(&mut self, said: Said<'_>, side: Side, is_further: bool) {
        self.new_keys += usize::from(said.is_new);
        self.broken.extend(broken_rule(said, side, is_further));
        match said.key {
            Some(place) if place == OperationalKey::FirstBurstLength as usize => {
                self.first_burst = text::numeric(said.value);
            }
            Some(place) if place == OperationalKey::MaxBurstLength as usize => {
                self.max_burst = text::numeric(said.value);
            }
            _ => {}
        }
    }

    /// Its FirstBurstLength and MaxBurstLength, if the first is above the second.
    pub(super) fn bursts_out_of_order(&self) -> Option<(u64, u64)> {
        self.first_burst.zip(self.max_burst).filter(|(first, most)| first > most)
    }
}

/// The rule about keys that a pair breaks, and the place of its key.
fn broken_rule(said: Said<'_>, side: Side, is_further: bool) -> Option<(Rule, usize)> {
    let place = said.key?;
    let key = KEYS.get(place).filter(|key| !key.is_secret)?;
    let result = key.result?;
    let is_operational = key.group == Group::Operational;
    let is_reserved = RESERVED_VALUES.contains(&said.value);
    let is_misplaced = is_further && side == Side::Initiator && key.usage == Use::LeadingOnly;
    if is_operational && (said.is_again || is_misplaced || (is_reserved && said.offer.is_none())) {
        return Some((Rule::L4, place));
    }
    if is_reserved {
        return None;
    }
    if is_operational && !is_value(key, said.value) {
        return Some((Rule::L3, place));
    }
    let offer = said.offer.filter(|offer| !RESERVED_VALUES.contains(offer))?;
    // a list is an offer of its own
    if result == ResultFunction::Choose && side == Side::Target && !said.value.contains(',') {
        return (!offer.split(',').any(|choice| choice == said.value)).then_some((Rule::L2, place));
    }
    (is_operational && !is_result(result, offer, said.value)).then_some((Rule::L3, place))
}

/// Whether a key may have this value.
fn is_value(key: &Key, value: &str) -> bool {
    match key.value {
        Value::Number(least, most) => {
            text::numeric(value).is_some_and(|number| (u64::from(least)..=u64::from(most)).contains(&number))
        }
        Value::Boolean => text::boolean(value).is_some(),
        Value::List | Value::Text => true,
    }
}

/// Whether an answer may follow from an offer (RFC 7143 section 6.2.2).
fn is_result(result: ResultFunction, offer: &str, answer: &str) -> bool {
    let numbers = || text::numeric(offer).zip(text::numeric(answer));
    let truths = || text::boolean(offer).zip(text::boolean(answer));
    match result {
        _ if offer == answer => true,
        ResultFunction::Minimum => numbers().is_none_or(|(offer, answer)| answer <= offer),
        ResultFunction::Maximum => numbers().is_none_or(|(offer, answer)| answer >= offer),
        ResultFunction::And => truths().is_none_or(|(offer, answer)| offer || !answer),
        ResultFunction::Or => truths().is_none_or(|(offer, answer)| !offer || answer),
        ResultFunction::Choose | ResultFunction::Declare => true,
    }
}
