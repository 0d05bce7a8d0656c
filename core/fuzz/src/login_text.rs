//! Arbitrary bytes as login text of both sides, over several PDUs.

use iscsitrace_trace::iscsi::keys::{Defaults, Negotiation};
use iscsitrace_wire::key::KEYS;
use iscsitrace_wire::text;

// | split 2 | text of the initiator, up to the split | text of the target |
pub fn run(data: &[u8]) {
    let Some((split, texts)) = data.split_first_chunk::<2>() else { return };
    let (initiator, target) = texts.split_at(usize::from(u16::from_be_bytes(*split)).min(texts.len()));
    let mut negotiation = Negotiation::default();
    for (side, is_from_initiator) in [(initiator, true), (target, false), (initiator, true)] {
        let oddities = negotiation.take(side, is_from_initiator, |_| ());
        assert_eq!(oddities.malformed as usize, text::pairs(side).filter(Result::is_err).count());
        for (key, value) in text::pairs(side).flatten() {
            assert!(!key.is_empty() && !key.contains('='));
            let _ = (text::numeric(&value), text::boolean(&value));
        }
    }
    let rows: Vec<_> = negotiation.effective(Defaults::All).collect();
    assert!(rows.len() <= 256 + KEYS.len());
    for (offer, effective) in rows {
        assert!(effective.source <= 3);
        let secret = ["CHAP_R", "CHAP_C", "CHAP_I", "SRP_M"].contains(&offer.key);
        for value in [&offer.initiator, &offer.target].into_iter().flatten() {
            assert!(!secret || **value == *"(hidden)");
        }
        let _ = (negotiation.initiator(offer.key), negotiation.digest(offer.key));
    }
}
