//! Rules of RFC 7143 that a side breaks on purpose: which of the PDUs, commands or logins that could break one do.
//!
//! What a breach does is implemented where that side makes its PDUs. Without breaches nothing is counted.

use std::sync::{Arc, Mutex, PoisonError};

use iscsitrace_wire::bhs::LENGTH_BYTES;
use iscsitrace_wire::text::numeric;
use serde::{Deserialize, Serialize};

use crate::occurrence::{Hits, Occurrence, When};

/// A rule that is broken, such as `{"rule": "D18", "nth": 3, "is_repeated": true}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreachSettings<R> {
    /// The rule.
    pub rule: R,
    /// Number of the PDU, command or login that breaks it, of those that could; counted from 1.
    #[serde(default = "first")]
    pub nth: u64,
    /// Whether every nth breaks it.
    #[serde(default)]
    pub is_repeated: bool,
    /// Number of the fault in the settings of the run.
    #[serde(default)]
    pub fault: usize,
}

fn first() -> u64 {
    1
}

#[derive(Debug)]
struct Breach<R> {
    settings: BreachSettings<R>,
    chances: u64,
    occurrence: Occurrence,
}

#[derive(Debug)]
struct Counted<R> {
    all: Vec<Breach<R>>,
    now_ns: i64,
}

/// The rules that a side breaks. Clones count together: sessions of one initiator, connections of one portal.
#[derive(Debug, Clone)]
pub struct Breaches<R>(Option<Arc<Mutex<Counted<R>>>>);

impl<R> Default for Breaches<R> {
    fn default() -> Self {
        Self(None)
    }
}

impl<R: Copy + PartialEq> Breaches<R> {
    /// The rules of a side; nothing is counted yet.
    #[must_use]
    pub fn new(settings: &[BreachSettings<R>]) -> Self {
        let counted = |settings: &BreachSettings<R>| Breach {
            settings: *settings,
            chances: 0,
            occurrence: Occurrence::new(When { fault: settings.fault, ..When::default() }),
        };
        let all: Vec<Breach<R>> = settings.iter().map(counted).collect();
        Self((!all.is_empty()).then(|| Arc::new(Mutex::new(Counted { all, now_ns: 0 }))))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn with<T: Default>(&self, call: impl FnOnce(&mut Counted<R>) -> T) -> T {
        let Some(counted) = &self.0 else { return T::default() };
        call(&mut counted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The time from now on.
    pub fn at(&self, now_ns: i64) {
        self.with(|counted| counted.now_ns = now_ns);
    }

    /// Counts something that could break a rule; whether it does.
    #[must_use]
    pub fn breaks(&self, rule: R) -> bool {
        self.with(|Counted { all, now_ns }| {
            let mut is_broken = false;
            for breach in all.iter_mut().filter(|breach| breach.settings.rule == rule) {
                let BreachSettings { nth, is_repeated, .. } = breach.settings;
                breach.chances += 1;
                if breach.chances == nth || is_repeated && nth > 0 && breach.chances.is_multiple_of(nth) {
                    breach.occurrence.hit(*now_ns);
                    is_broken = true;
                }
            }
            is_broken
        })
    }

    /// What broke them.
    #[must_use]
    pub fn hits(&self) -> Vec<Hits> {
        self.with(|counted| counted.all.iter().map(|breach| breach.occurrence.hits()).collect())
    }
}

/// Changes the field of four bytes at an offset of a header.
pub(super) fn change(header: &mut [u8; LENGTH_BYTES], at: usize, change: impl FnOnce(u32) -> u32) {
    if let Some(field) = header.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) {
        *field = change(u32::from_be_bytes(*field)).to_be_bytes();
    }
}

/// Changes a key of a text that has it, to another value or (none) to nothing; none for a text without it.
#[must_use]
pub(super) fn with_key(text: &[u8], key: &str, value: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let name = [key.as_bytes(), b"="].concat();
    let mut pairs: Vec<Vec<u8>> = text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let place = pairs.iter().position(|pair| pair.starts_with(&name))?;
    match value(pairs.get(place)?.get(name.len()..)?) {
        Some(value) => *pairs.get_mut(place)? = [name, value].concat(),
        None => {
            pairs.remove(place);
        }
    }
    Some(pairs.join(&0))
}

/// The number that a text has for a key.
pub(super) fn number_of(text: &[u8], key: &str) -> Option<u64> {
    let name = [key.as_bytes(), b"="].concat();
    let value = text.split(|byte| *byte == 0).find_map(|pair| pair.strip_prefix(&*name))?;
    numeric(std::str::from_utf8(value).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(json: &str) -> Breaches<char> {
        Breaches::new(&serde_json::from_str::<Vec<BreachSettings<char>>>(json).unwrap())
    }

    #[test]
    fn a_rule_is_broken_by_its_number() {
        let found = breaches(
            r#"[{"rule": "a"}, {"rule": "b", "nth": 2, "is_repeated": true, "fault": 7}, {"rule": "c", "nth": 2}]"#,
        );
        let broken = |rule| [0; 4].map(|_| found.breaks(rule));
        assert_eq!(broken('a'), [true, false, false, false]);
        found.at(50);
        assert_eq!(broken('b'), [false, true, false, true]);
        assert_eq!([0; 3].map(|_| found.clone().breaks('c')), [false, true, false], "clones count together");
        assert_eq!(broken('d'), [false; 4]);
        let hits: Vec<_> = found.hits().iter().map(|hits| (hits.fault, hits.count, hits.to_ns)).collect();
        assert_eq!(hits, [(0, 1, Some(0)), (7, 2, Some(50)), (0, 1, Some(50))]);
        assert!(!Breaches::<char>::default().breaks('a') && Breaches::<char>::new(&[]).is_empty());
    }

    #[test]
    fn a_key_of_a_text_is_changed() {
        let text = b"A=1\0BA=2\0C=3\0";
        assert_eq!(with_key(text, "BA", |_| Some(b"x".to_vec())), Some(b"A=1\0BA=x\0C=3\0".to_vec()));
        assert_eq!(with_key(text, "A", |_| None), Some(b"BA=2\0C=3\0".to_vec()));
        assert_eq!(with_key(text, "C", |old| Some([old, b"9"].concat())), Some(b"A=1\0BA=2\0C=39\0".to_vec()));
        assert_eq!(with_key(text, "B", |_| None), None);
    }
}
