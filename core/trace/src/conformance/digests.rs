//! Digests that are always wrong: rule D21.
//!
//! A side that computes a digest wrongly does so in every PDU of a type; on the way only some are damaged. Few PDUs may show
//! it on one connection, because its peer closes that upon the first: so all connections of a pair of names count together.
//! Only connections count whose login agreed on the digest.

use iscsitrace_wire::opcode::Opcode;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::rules::{Rule, Side};
use super::violations::{Found, Report};
use crate::counters::Counters;
use crate::iscsi::pdu::Pdu;
use crate::stream::stamp::Stamp;
use crate::tables::Violations;

/// The names of an initiator and its target.
pub(crate) type Pair = (String, String);

/// So many digests of a kind that are all wrong are computed wrongly.
const CERTAIN: usize = 3;
/// Pairs of names that are kept.
const PAIRS_MAX: usize = 1 << 12;

/// What a digest covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Covers {
    Header,
    Data,
}

/// The digests of one kind in PDUs of one type.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Kind {
    is_ever_right: bool,
    /// The first wrong ones, by connection.
    wrong: Vec<(u32, Stamp)>,
}

/// The digests of all connections.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Totals {
    pairs: FxHashMap<Pair, FxHashMap<(Covers, u8), Kind>>,
}

/// The digests of one connection.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Digests {
    /// Types of PDU whose header digests, and whose data digests were right: bit n stands for opcode n.
    right: [u64; 2],
}

impl Digests {
    /// The digests of a PDU.
    #[inline]
    pub(super) fn take(
        &mut self,
        pdu: &Pdu<'_>,
        opcode: Opcode,
        connection: u32,
        pair: impl FnOnce() -> Option<Pair>,
        totals: &mut Totals,
    ) {
        let is_news = |right: u64, is_ok: Option<bool>| match is_ok {
            Some(true) => right & (1 << opcode.as_u8()) == 0,
            Some(false) => true,
            None => false,
        };
        if is_news(self.right[0], pdu.header_digest_ok) || is_news(self.right[1], pdu.data_digest_ok) {
            self.note(pdu, opcode, connection, pair(), totals);
        }
    }

    #[cold]
    fn note(&mut self, pdu: &Pdu<'_>, opcode: Opcode, connection: u32, pair: Option<Pair>, totals: &mut Totals) {
        let Some(pair) = pair else { return };
        if totals.pairs.len() >= PAIRS_MAX && !totals.pairs.contains_key(&pair) {
            return;
        }
        let kinds = totals.pairs.entry(pair).or_default();
        // what a wrong header digest covers may be anything
        let of_data = pdu.data_digest_ok.filter(|_| pdu.header_digest_ok != Some(false));
        let both = [(Covers::Header, pdu.header_digest_ok), (Covers::Data, of_data)];
        for (right, (covers, is_ok)) in self.right.iter_mut().zip(both) {
            let Some(is_ok) = is_ok else { continue };
            let kind = kinds.entry((covers, opcode.as_u8())).or_default();
            if is_ok {
                *right |= 1 << opcode.as_u8();
                kind.is_ever_right = true;
                kind.wrong = Vec::new();
            } else if !kind.is_ever_right && kind.wrong.len() < CERTAIN {
                kind.wrong.push((connection, pdu.first));
            }
        }
    }
}

impl Totals {
    /// The digests that a side never computed rightly; at the end of a pass, because a right one may come late.
    pub(crate) fn finish(&mut self, violations: &mut Violations, counters: &mut Counters) {
        let kinds = std::mem::take(&mut self.pairs).into_values().flatten();
        let wrong = kinds.filter(|(_, kind)| !kind.is_ever_right && kind.wrong.len() >= CERTAIN);
        let mut wrong: Vec<(u8, Kind)> = wrong.map(|((_, opcode), kind)| (opcode, kind)).collect();
        wrong.sort_unstable_by_key(|(opcode, kind)| (kind.wrong.first().map(|(_, at)| at.frame), *opcode));
        for (opcode, kind) in wrong {
            let Some(opcode) = Opcode::from_u8(opcode) else { continue };
            let side = if opcode.is_initiator() { Side::Initiator } else { Side::Target };
            for (connection, at) in kind.wrong {
                let found = Found::new(Rule::D21, side, at).only_seen(opcode.as_u8());
                Report::default().add(found, connection, violations, counters);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{found, pdu};
    use super::*;
    use iscsitrace_wire::bhs::BhsBuilder;

    /// Connections with one Data-In each, whose data digests are right or wrong.
    fn of(digests: &[bool], target: &str) -> Vec<(Rule, Side, u64)> {
        let mut totals = Totals::default();
        let header = BhsBuilder::new(Opcode::DataIn).build();
        for (connection, &is_right) in (0..).zip(digests) {
            let at = Stamp { frame: u64::from(connection) + 10, time_ns: 0 };
            let whole = pdu(&header, b"", at);
            let pdu = Pdu { header_digest_ok: Some(true), data_digest_ok: Some(is_right), ..whole };
            let name = if target.is_empty() { connection.to_string() } else { target.to_owned() };
            let pair = || Some(("iqn.i".to_owned(), name));
            Digests::default().take(&pdu, Opcode::DataIn, connection, pair, &mut totals);
        }
        let (mut violations, mut counters) = (Violations::default(), Counters::default());
        totals.finish(&mut violations, &mut counters);
        found(&violations)
    }

    #[test]
    fn digests_that_are_all_wrong_are_computed_wrongly() {
        let three = [10, 11, 12].map(|frame| (Rule::D21, Side::Target, frame));
        assert_eq!(of(&[false; 3], "iqn.t"), three);
        assert_eq!(of(&[false; 2], "iqn.t"), [], "too few");
        assert_eq!(of(&[false, false, false, true], "iqn.t"), [], "damaged on the way");
        assert_eq!(of(&[true, false, false, false], "iqn.t"), []);
        assert_eq!(of(&[false; 3], ""), [], "of three targets");
    }
}
