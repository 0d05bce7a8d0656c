//! Where possible headers lead: by its lengths a PDU ends where the next header begins.
//!
//! A header that is possible alone is one if an earlier possible one leads exactly to it and both have two sequence numbers
//! in common. No data has that by chance, however many segments lie between them.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use iscsitrace_wire::serial::SerialNumber;

use crate::iscsi::digest_use::{DigestUse, lengths};
use crate::iscsi::ranges::NEAR;

/// Sequence numbers that two headers need to have in common.
pub const NUMBERS_MIN: u32 = 2;
/// The latest places that are kept.
const PLACES_MAX: usize = 64;

/// The latest possible headers of one stream.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Leads {
    places: VecDeque<Lead>,
}

/// A possible header.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Lead {
    /// Where it leads, with or without either digest.
    place: i64,
    #[serde(with = "serde_bytes")]
    header: [u8; LENGTH_BYTES],
}

impl Leads {
    /// Notes a possible header at `offset`, if all of it was captured.
    pub fn note(&mut self, offset: i64, header: &[u8]) {
        let Some(&header) = header.first_chunk() else { return };
        for length in lengths(Bhs::new(&header), [DigestUse::Unknown; 2]) {
            if self.places.len() == PLACES_MAX {
                self.places.pop_front();
            }
            self.places.push_back(Lead { place: offset + length as i64, header });
        }
    }

    /// Where they lead in this range.
    pub fn within(&self, range: Range<i64>) -> impl Iterator<Item = i64> + '_ {
        self.places.iter().map(|lead| lead.place).filter(move |place| range.contains(place))
    }

    /// Whether one leads to `offset` and shows this header.
    pub fn show(&self, offset: i64, header: Bhs<'_>) -> bool {
        self.places
            .iter()
            .filter(|lead| lead.place == offset)
            .any(|lead| near_numbers(Bhs::new(&lead.header), header) >= NUMBERS_MIN)
    }
}

/// How many sequence numbers two headers of one direction have in common; 0 if some of them are far apart.
pub fn near_numbers(one: Bhs<'_>, other: Bhs<'_>) -> u32 {
    let numbers = |bhs: Bhs<'_>| -> [Option<SerialNumber>; 5] {
        [bhs.cmd_sn(), bhs.exp_stat_sn(), bhs.stat_sn(), bhs.exp_cmd_sn(), bhs.max_cmd_sn()]
    };
    let mut near = 0;
    for (value, other) in numbers(one).into_iter().zip(numbers(other)) {
        if let (Some(value), Some(other)) = (value, other) {
            if value.distance(other).unsigned_abs() >= NEAR.unsigned_abs() {
                return 0;
            }
            near += 1;
        }
    }
    near
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::BhsBuilder;
    use iscsitrace_wire::opcode::Opcode;

    use super::*;

    fn data_in(exp_cmd_sn: u32, bytes: u32) -> [u8; LENGTH_BYTES] {
        let numbers = SerialNumber(exp_cmd_sn);
        BhsBuilder::new(Opcode::DataIn).exp_cmd_sn(numbers).max_cmd_sn(numbers).data_segment_length(bytes).build()
    }

    #[test]
    fn a_header_leads_to_the_end_of_its_pdu_with_and_without_digests() {
        let mut leads = Leads::default();
        leads.note(100, &data_in(7, 1000));
        let next = data_in(8, 0);
        let found: Vec<i64> = (1100..1200).filter(|&offset| leads.show(offset, Bhs::new(&next))).collect();
        assert_eq!(found, [1148, 1152, 1156]);
        assert_eq!(leads.within(1152..1156).collect::<Vec<_>>(), [1152, 1152]);
    }

    #[test]
    fn both_have_two_numbers_in_common() {
        let mut leads = Leads::default();
        leads.note(100, &data_in(7, 1000));
        for (exp_cmd_sn, is_shown) in [(7 + (1 << 14) - 1, true), (7 + (1 << 14), false)] {
            assert_eq!(leads.show(1148, Bhs::new(&data_in(exp_cmd_sn, 0))), is_shown);
        }
        // a Data-Out has one
        let out = BhsBuilder::new(Opcode::DataOut).data_segment_length(1000).build();
        leads.note(2000, &out);
        assert!(!leads.show(3048, Bhs::new(&out)));
    }

    #[test]
    fn the_latest_are_kept() {
        let mut leads = Leads::default();
        (0..=16).for_each(|number| leads.note(number * 10_000, &data_in(7, 1000)));
        let next = data_in(7, 0);
        assert!(!leads.show(1048, Bhs::new(&next)));
        assert!(leads.show(11_048, Bhs::new(&next)));
    }
}
