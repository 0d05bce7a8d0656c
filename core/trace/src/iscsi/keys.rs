//! Login and text keys: offers of both sides, and the negotiated values by RFC 7143's result functions (sections 6.2
//! and 13).
//!
//! It knows keys and values, not PDUs. Values of secret keys are never kept.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

use iscsitrace_wire::key::ResultFunction::{And, Choose, Declare, Maximum, Minimum, Or};
use iscsitrace_wire::key::{KEYS, Key, RESERVED_VALUES, ResultFunction, Scope, Value};
use iscsitrace_wire::text;

use crate::counters::{Counter, Counters};

/// Which defaults apply for keys that neither side named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defaults {
    /// None: a discovery session, or a login that was not captured completely.
    None,
    /// Those of a further connection of a session.
    OfConnection,
    /// All.
    All,
}

/// Replacement of a secret.
const HIDDEN: &str = "(hidden)";

/// Most keys of one login that are kept: no login has so many.
const KEYS_MAX: usize = 256;
/// Most characters of a value that are kept.
const VALUE_KEPT_MAX: usize = 1024;
/// Most bytes of all keys and values of one login that are kept: each Text PDU reads them all.
const TEXT_KEPT_MAX: usize = 16 << 10;

/// A negotiated value and its source, a code as in `CATEGORIES["parameter_source"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effective<'a> {
    /// The value that applies to data of the target, or to both sides.
    pub initiator: Cow<'a, str>,
    /// The value that applies to data of the initiator, or to both sides.
    pub target: Cow<'a, str>,
    /// negotiated 0, declared 1, default 2, offered 3.
    pub source: u8,
}

/// A key of a connection, as offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer<'a> {
    /// Its name.
    pub key: &'a str,
    /// The initiator's last value.
    pub initiator: Option<&'a str>,
    /// The target's last value.
    pub target: Option<&'a str>,
}

/// What a pair says of a key.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// The place of the key in [`KEYS`], if it is there.
    pub key: Option<usize>,
    /// The value.
    pub value: &'a str,
    /// Whether neither side had sent one.
    pub is_new: bool,
    /// Whether the same side had sent a value.
    pub is_again: bool,
    /// The last value of the other side.
    pub offer: Option<&'a str>,
}

/// What is wrong with the text of a request or response.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Oddities {
    /// Pairs that are none.
    pub malformed: u64,
    /// Pairs beyond what is kept of a login.
    pub not_kept: u64,
}

impl Oddities {
    /// Counts them.
    pub fn count(self, connection: u32, frame: u64, counters: &mut Counters) {
        counters.add_many(Counter::LoginTextInvalid, Some(connection), frame, self.malformed);
        counters.add_many(Counter::LoginKeysNotKept, Some(connection), frame, self.not_kept);
    }
}

/// The lengths of a name, and of what each side sent, as characters: that of the name, and twice two of 7 bits each for one
/// more than that of a value, which are 0 without one.
struct Lengths;

impl Lengths {
    /// Their own length.
    const LENGTH: usize = 5;

    fn push(text: &mut String, name: &str, values: [Option<&str>; 2]) {
        let seven_bits = |length: usize| char::from((length & 0x7f) as u8);
        text.push(seven_bits(name.len()));
        for value in values {
            let length = value.map_or(0, |value| value.len() + 1);
            text.extend([seven_bits(length >> 7), seven_bits(length)]);
        }
    }

    fn of(text: &str) -> Option<(usize, [Option<usize>; 2])> {
        let length = |high: u8, low: u8| (usize::from(high) << 7 | usize::from(low)).checked_sub(1);
        match *text.as_bytes() {
            [name, a, b, c, d, ..] => Some((name.into(), [length(a, b), length(c, d)])),
            _ => None,
        }
    }
}

/// All keys in the Login and Text PDUs of a connection, in order.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Negotiation {
    /// Of each key the [`Lengths`] of its name and values, and then these. One text, because every connection has one until
    /// its end: it saves 8 % of the peak with 60,000 open connections of one command (89 MB).
    text: Box<str>,
}

impl Negotiation {
    /// Takes the text of a complete request or response; `note` gets each pair that is kept, before it is.
    pub fn take(&mut self, data: &[u8], is_from_initiator: bool, mut note: impl FnMut(Said<'_>)) -> Oddities {
        let mut oddities = Oddities::default();
        let mut offers: Vec<(&str, [Option<Cow<'_, str>>; 2])> = self
            .offers()
            .map(|offer| (offer.key, [offer.initiator, offer.target].map(|value| value.map(Cow::Borrowed))))
            .collect();
        let mut bytes = self.text.len();
        for pair in text::pairs(data) {
            let Ok((name, value)) = pair else {
                oddities.malformed += 1;
                continue;
            };
            let known = KEYS.iter().position(|key| key.name == name);
            let is_secret = known.and_then(|known| KEYS.get(known)).is_some_and(|key| key.is_secret);
            let value = if is_secret { HIDDEN.into() } else { kept(value) };
            let place = offers.iter().position(|(key, _)| *key == name);
            let earlier = place.and_then(|place| offers[place].1[usize::from(!is_from_initiator)].as_ref());
            let new_name_bytes = if place.is_none() { name.len() } else { 0 };
            let with_it = bytes + new_name_bytes + value.len() - earlier.map_or(0, |earlier| earlier.len());
            let has_room = with_it <= TEXT_KEPT_MAX && (place.is_some() || offers.len() < KEYS_MAX);
            if !has_room {
                oddities.not_kept += 1;
                continue;
            }
            bytes = with_it;
            let offer = place.and_then(|place| offers[place].1[usize::from(is_from_initiator)].as_deref());
            let (is_new, is_again) = (place.is_none(), earlier.is_some());
            note(Said { key: known, value: &value, is_new, is_again, offer });
            let place = place.unwrap_or_else(|| {
                offers.push((name, [None, None]));
                offers.len() - 1
            });
            if let Some((_, values)) = offers.get_mut(place) {
                values[usize::from(!is_from_initiator)] = Some(value);
            }
        }
        let mut text = String::new();
        for (key, [initiator, target]) in &offers {
            let values = [initiator, target].map(|value| value.as_deref());
            Lengths::push(&mut text, key, values);
            text.push_str(key);
            text.extend(values.into_iter().flatten());
        }
        self.text = text.into();
        oddities
    }

    /// The keys, in the order in which they were first sent.
    pub fn offers(&self) -> impl Iterator<Item = Offer<'_>> {
        let mut rest = &*self.text;
        std::iter::from_fn(move || {
            let (name, values) = Lengths::of(rest)?;
            let mut part = |length| {
                let (part, behind) = rest.split_at_checked(length)?;
                rest = behind;
                Some(part)
            };
            part(Lengths::LENGTH)?;
            Some(Offer { key: part(name)?, initiator: values[0].and_then(&mut part), target: values[1].and_then(part) })
        })
    }

    /// The initiator's value of a key.
    pub fn initiator(&self, key: &str) -> Option<&str> {
        self.offers().find(|offer| offer.key == key)?.initiator
    }

    /// The target's value of a key.
    pub fn target(&self, key: &str) -> Option<&str> {
        self.offers().find(|offer| offer.key == key)?.target
    }

    /// Every key with its negotiated value: named keys, then the requested defaults of the others.
    pub fn effective(&self, defaults: Defaults) -> impl Iterator<Item = (Offer<'_>, Effective<'_>)> {
        let offers: Vec<Offer<'_>> = self.offers().collect();
        let has_default = move |key: &&Key| match defaults {
            Defaults::None => false,
            Defaults::OfConnection => key.is_shown_by_default && key.scope == Scope::Connection,
            Defaults::All => key.is_shown_by_default,
        };
        let is_unnamed = |key: &&Key| offers.iter().all(|offer| offer.key != key.name);
        let unnamed = KEYS.iter().filter(has_default).filter(is_unnamed);
        let unnamed = unnamed.map(|key| Offer { key: key.name, initiator: None, target: None });
        let all: Vec<Offer<'_>> = offers.iter().copied().chain(unnamed).collect();
        all.into_iter().map(|offer| (offer, effective(Key::from_name(offer.key), offer.initiator, offer.target)))
    }

    /// The longest data segment that a side declared, if it did (RFC 7143 section 13.12).
    pub fn max_recv_data_segment_length(&self, of_target: bool) -> Option<u32> {
        const KEY: &str = "MaxRecvDataSegmentLength";
        let value = if of_target { self.target(KEY) } else { self.initiator(KEY) }?;
        text::numeric(value).and_then(|length| u32::try_from(length).ok())
    }

    /// Whether both sides sent No for a key of result function OR.
    pub fn is_negotiated_no(&self, key: &str) -> bool {
        [self.initiator(key), self.target(key)] == [Some("No"); 2]
    }

    /// Whether CRC32C was negotiated for a digest key; none when the target's answer was not seen.
    pub fn digest(&self, key: &str) -> Option<bool> {
        Some(self.target(key)? == "CRC32C")
    }
}

/// Whether a key's value must not be kept.
pub fn is_secret(key: &str) -> bool {
    Key::from_name(key).is_some_and(|key| key.is_secret)
}

/// What is kept of a value.
fn kept(value: Cow<'_, str>) -> Cow<'_, str> {
    match value.char_indices().nth(VALUE_KEPT_MAX) {
        Some((end, _)) => value[..end].to_owned().into(),
        None => value,
    }
}

/// What follows from the values that each side sent of a key, if it did.
pub fn effective<'a>(known: Option<&Key>, initiator: Option<&'a str>, target: Option<&'a str>) -> Effective<'a> {
    let mut found = agreed(known, initiator, target);
    if let Some(key) = known {
        // what is no value of the key is no result; larger numbers than the RFC admits are in use
        let is_value = |text: &str| match key.value {
            Value::Number(least, _) => text::numeric(text).is_some_and(|number| number >= u64::from(least)),
            Value::Boolean => text::boolean(text).is_some(),
            Value::List | Value::Text => true,
        };
        let is_one = found.initiator == found.target;
        if !is_value(&found.initiator) {
            found.initiator = Cow::default();
            if is_one {
                found.target = Cow::default();
            }
        }
        if !is_one && !is_value(&found.target) {
            found.target = Cow::default();
        }
    }
    found
}

fn agreed<'a>(known: Option<&Key>, initiator: Option<&'a str>, target: Option<&'a str>) -> Effective<'a> {
    let default = known.and_then(|key| key.default);
    let is_named = initiator.is_some() || target.is_some();
    let [initiator, target] =
        [initiator, target].map(|value| value.filter(|value| !RESERVED_VALUES.contains(value)).map(Cow::Borrowed));
    let both = |value: Cow<'a, str>, source| Effective { initiator: value.clone(), target: value, source };
    match known.and_then(|key| key.result) {
        Some(Declare) => {
            let or_default = |value: Option<Cow<'a, str>>| value.or(default.map(Cow::Borrowed)).unwrap_or_default();
            let source = if is_named { 1 } else { 2 };
            Effective { initiator: or_default(initiator), target: or_default(target), source }
        }
        Some(result) => match (initiator, target) {
            (Some(initiator), Some(target)) => both(combine(result, initiator, target), 0),
            (None, None) => both(default.unwrap_or_default().into(), 2),
            // No of an AND and Yes of an OR need no answer: only one result is possible (RFC 7143 section 6.2.2)
            (Some(only), None) | (None, Some(only)) if matches!((result, &*only), (And, "No") | (Or, "Yes")) => {
                both(only, 0)
            }
            // for a list the target's answer is the choice, whatever was offered
            (None, Some(choice)) if result == Choose && !choice.contains(',') => both(choice, 0),
            // any other unanswered offer leaves the default
            (Some(only), None) | (None, Some(only)) => match default {
                Some(default) => both(default.into(), 2),
                None => both(only, 3),
            },
        },
        // an unknown key, or a message of an authentication method: what each side sent is all that is known
        None => Effective { initiator: initiator.unwrap_or_default(), target: target.unwrap_or_default(), source: 3 },
    }
}

fn combine<'a>(result: ResultFunction, initiator: Cow<'a, str>, target: Cow<'a, str>) -> Cow<'a, str> {
    let is_of_initiator = match result {
        Minimum | Maximum if initiator == target && !target.contains(['x', 'X']) => false,
        Minimum | Maximum => {
            let Some((a, b)) = text::numeric(&initiator).zip(text::numeric(&target)) else { return target };
            let is_of_initiator = if result == Minimum { a < b } else { a > b };
            let (number, value) = if is_of_initiator { (a, initiator) } else { (b, target) };
            let is_hexadecimal = value.contains(['x', 'X']);
            return if is_hexadecimal { number.to_string().into() } else { value };
        }
        And => initiator == "No" && text::boolean(&target).is_some(),
        Or => initiator == "Yes" && text::boolean(&target).is_some(),
        // the side without a list chose
        Choose => target.contains(',') && !initiator.contains(','),
        Declare => false,
    };
    if is_of_initiator { initiator } else { target }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiation(initiator: &str, target: &str) -> Negotiation {
        let mut negotiation = Negotiation::default();
        for (text, is_from_initiator) in [(initiator, true), (target, false)] {
            assert_eq!(
                negotiation.take(text.replace('|', "\0").as_bytes(), is_from_initiator, |_| ()),
                Oddities::default()
            );
        }
        negotiation
    }

    fn negotiated(negotiation: &Negotiation, key: &str) -> (String, String, u8) {
        let (_, effective) = negotiation.effective(Defaults::All).find(|(offer, _)| offer.key == key).expect(key);
        (effective.initiator.into_owned(), effective.target.into_owned(), effective.source)
    }

    #[test]
    fn each_result_function_follows_the_rfc() {
        let both = |value: &str, source| (value.to_owned(), value.to_owned(), source);
        let keys = negotiation(
            "MaxBurstLength=16776192|InitialR2T=No|ImmediateData=Yes|DefaultTime2Wait=2|HeaderDigest=CRC32C,None|\
             MaxRecvDataSegmentLength=262144|FirstBurstLength=0x10000|OFMarker=Reject",
            "MaxBurstLength=262144|InitialR2T=Yes|ImmediateData=No|DefaultTime2Wait=5|HeaderDigest=CRC32C|\
             MaxRecvDataSegmentLength=8192|FirstBurstLength=131072|TargetPortalGroupTag=1",
        );
        assert_eq!(negotiated(&keys, "MaxBurstLength"), both("262144", 0));
        assert_eq!(negotiated(&keys, "InitialR2T"), both("Yes", 0));
        assert_eq!(negotiated(&keys, "ImmediateData"), both("No", 0));
        assert_eq!(negotiated(&keys, "DefaultTime2Wait"), both("5", 0));
        assert_eq!(negotiated(&keys, "HeaderDigest"), both("CRC32C", 0));
        assert_eq!(negotiated(&keys, "FirstBurstLength"), both("65536", 0));
        assert_eq!(negotiated(&keys, "MaxRecvDataSegmentLength"), ("262144".into(), "8192".into(), 1));
        assert_eq!(negotiated(&keys, "MaxOutstandingR2T"), both("1", 2));
        let rows = keys.effective(Defaults::OfConnection);
        let unnamed = rows.filter(|(offer, _)| (offer.initiator, offer.target) == (None, None));
        assert_eq!(unnamed.map(|(offer, _)| offer.key).collect::<Vec<_>>(), ["DataDigest"]);
        assert_eq!(keys.max_recv_data_segment_length(true), Some(8192));
        assert_eq!(keys.max_recv_data_segment_length(false), Some(262_144));
        assert_eq!(keys.digest("HeaderDigest"), Some(true));
        assert_eq!(keys.digest("DataDigest"), None);
    }

    #[test]
    fn an_unanswered_offer_leaves_the_default() {
        let keys = negotiation("MaxConnections=8|ImmediateData=No|InitialR2T=No", "");
        assert_eq!(negotiated(&keys, "MaxConnections"), ("1".into(), "1".into(), 2));
        assert_eq!(negotiated(&keys, "ImmediateData"), ("No".into(), "No".into(), 0));
        assert_eq!(negotiated(&keys, "InitialR2T"), ("Yes".into(), "Yes".into(), 2));
    }

    #[test]
    fn an_answer_without_its_offer_is_a_choice_only_from_a_list() {
        let keys = negotiation(
            "",
            "HeaderDigest=CRC32C|DataDigest=CRC32C,None|MaxConnections=8|InitialR2T=Yes|ImmediateData=Yes|X-own=1",
        );
        let both = |value: &str, source| (value.to_owned(), value.to_owned(), source);
        assert_eq!(negotiated(&keys, "HeaderDigest"), both("CRC32C", 0));
        // a list is an offer, and the default stays
        assert_eq!(negotiated(&keys, "DataDigest"), both("None", 2));
        assert_eq!(negotiated(&keys, "MaxConnections"), both("1", 2));
        // InitialR2T is an OR: Yes needs no answer; ImmediateData is an AND
        assert_eq!(negotiated(&keys, "InitialR2T"), both("Yes", 0));
        assert_eq!(negotiated(&keys, "ImmediateData"), both("Yes", 2));
        assert_eq!(negotiated(&keys, "X-own"), (String::new(), "1".to_owned(), 3));
    }

    #[test]
    fn the_side_without_a_list_chose() {
        let both = |value: &str| (value.to_owned(), value.to_owned(), 0);
        let keys = negotiation("HeaderDigest=None|DataDigest=CRC32C,None", "HeaderDigest=CRC32C,None|DataDigest=None");
        assert_eq!((negotiated(&keys, "HeaderDigest"), negotiated(&keys, "DataDigest")), (both("None"), both("None")));
        // two lists, or two values: the target's
        let keys = negotiation("HeaderDigest=A,B|DataDigest=None", "HeaderDigest=B,A|DataDigest=CRC32C");
        assert_eq!((negotiated(&keys, "HeaderDigest"), negotiated(&keys, "DataDigest")), (both("B,A"), both("CRC32C")));
    }

    #[test]
    fn what_is_no_value_of_the_key_is_no_result() {
        let keys = negotiation(
            "MaxBurstLength=262144|FirstBurstLength=65536|MaxOutstandingR2T=1|InitialR2T=No|MaxRecvDataSegmentLength=x",
            "MaxBurstLength=0|FirstBurstLength=many|MaxOutstandingR2T=1|InitialR2T=maybe|\
             MaxRecvDataSegmentLength=16777216",
        );
        for key in ["MaxBurstLength", "FirstBurstLength", "InitialR2T"] {
            assert_eq!(negotiated(&keys, key), (String::new(), String::new(), 0), "{key}");
        }
        assert_eq!(negotiated(&keys, "MaxOutstandingR2T"), ("1".into(), "1".into(), 0));
        // one more than RFC 7143 admits, as some targets send it
        assert_eq!(negotiated(&keys, "MaxRecvDataSegmentLength"), (String::new(), "16777216".into(), 1));
    }

    #[test]
    fn secrets_are_never_kept() {
        let keys = negotiation("CHAP_N=joe|CHAP_R=0x1234", "CHAP_A=5|CHAP_I=7|CHAP_C=0xabcdef");
        let shown = format!("{keys:?}");
        assert!(shown.contains("joe"));
        for secret in ["1234", "abcdef", "=7"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }

    #[test]
    fn malformed_pairs_and_floods_are_bounded() {
        let mut keys = Negotiation::default();
        let found = keys.take(b"no equals sign\0a=b\0", true, |_| ());
        assert_eq!((found.malformed, found.not_kept), (1, 0));
        let flood: String = (0..10_000).map(|number| format!("X-key{number}=v\0")).collect();
        let found = keys.take(flood.as_bytes(), true, |_| ());
        assert_eq!((found.malformed, found.not_kept), (0, 10_001 - KEYS_MAX as u64));
        assert_eq!(keys.effective(Defaults::None).count(), KEYS_MAX);
    }

    #[test]
    fn what_each_text_reads_again_is_bounded() {
        let mut keys = Negotiation::default();
        let long = "v".repeat(VALUE_KEPT_MAX);
        for number in 0..KEYS_MAX {
            keys.take(format!("X-key{number}={long}\0").as_bytes(), number % 2 == 0, |_| ());
        }
        assert!(
            (TEXT_KEPT_MAX - VALUE_KEPT_MAX..=TEXT_KEPT_MAX + Lengths::LENGTH * KEYS_MAX).contains(&keys.text.len())
        );
        // the value of a key that is kept still changes
        assert_eq!(keys.take(b"X-key0=short\0", true, |_| ()), Oddities::default());
        assert_eq!(keys.initiator("X-key0"), Some("short"));
    }
}
