//! The logical units of a session, and what their target says of them.
//!
//! Bounded: a session has a limited number of rows.

use iscsitrace_wire::cdb;
use iscsitrace_wire::parameter_data::{self, Capacity, DesignatorKind, ParameterData, PortGroup};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::iscsi::cycle_row::set_some;
use crate::stream::stamp::Stamp;
use crate::tables::{AluaState, LogicalUnit, NULL_U8, NULL_U32};

/// Maximum logical units of one session.
const UNITS_MAX: usize = 4096;
/// Maximum rows of ALUA states of one session.
const STATES_MAX: usize = 4096;
/// The peripheral qualifier of a LUN that can have no logical unit.
const NO_UNIT: u8 = 3;

/// What is known of a logical unit beside its row.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Known {
    row: usize,
    /// Peripheral device type, for the decoding of CDBs.
    device_type: Option<u8>,
    designator: Option<DesignatorKind>,
    /// The last state of each target port group, by its number.
    groups: FxHashMap<u16, PortGroup>,
}

/// The logical units of a session.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Units {
    known: FxHashMap<u64, Known>,
    /// The unit of the last command, its device type and the size of its blocks: the next command often goes there, too.
    last: Option<(u64, Option<u8>, Option<u32>)>,
    /// Rows of `logical_units`, without the session.
    pub rows: Vec<LogicalUnit>,
    /// Rows of `alua_states`, without the session.
    pub states: Vec<AluaState>,
}

impl Units {
    /// Notes a command to a logical unit. Returns its device type, if the target said it; an error beyond the limit.
    #[inline]
    pub fn command(&mut self, lun: u64, place: Stamp) -> Result<Option<u8>, BeyondLimit> {
        match self.last {
            Some((last, device_type, _)) if last == lun => Ok(device_type),
            _ => {
                let device_type = self.find(lun, place)?;
                self.last = Some((lun, device_type, self.block_bytes(lun)));
                Ok(device_type)
            }
        }
    }

    /// The size of a disk's blocks, if the target said it.
    pub fn block_bytes(&self, lun: u64) -> Option<u32> {
        if let Some((_, _, bytes)) = self.last.filter(|&(last, ..)| last == lun) {
            return bytes;
        }
        let row = self.rows.get(self.known.get(&lun)?.row)?;
        Some(row.block_bytes).filter(|&bytes| bytes != NULL_U32 && row.device_type == cdb::DISK)
    }

    fn find(&mut self, lun: u64, place: Stamp) -> Result<Option<u8>, BeyondLimit> {
        if let Some(known) = self.known.get(&lun) {
            return Ok(known.device_type);
        }
        if self.rows.len() >= UNITS_MAX {
            return Err(BeyondLimit);
        }
        let known = Known { row: self.rows.len(), device_type: None, designator: None, groups: FxHashMap::default() };
        self.known.insert(lun, known);
        if self.rows.is_empty() {
            // most sessions have one
            self.rows.reserve_exact(1);
        }
        self.rows.push(LogicalUnit {
            lun,
            frame_first: place.frame,
            time_first_ns: place.time_ns,
            ..LogicalUnit::default()
        });
        Ok(None)
    }

    /// Notes what the target says of a logical unit; `data` is all of the parameter data so far. An error beyond the
    /// limit.
    pub fn learn(&mut self, lun: u64, kind: ParameterData, data: &[u8], place: Stamp) -> Result<(), BeyondLimit> {
        self.last = None;
        let Some(known) = self.known.get_mut(&lun) else { return Ok(()) };
        let Some(row) = self.rows.get_mut(known.row) else { return Ok(()) };
        match kind {
            ParameterData::StandardInquiry => {
                let Some(found) = parameter_data::standard_inquiry(data) else { return Ok(()) };
                row.peripheral_qualifier = found.peripheral_qualifier;
                if found.peripheral_qualifier == NO_UNIT {
                    return Ok(());
                }
                known.device_type = Some(found.device_type);
                row.device_type = found.device_type;
                set_some(&mut row.tpgs, found.tpgs);
                set_some(&mut row.vendor, found.vendor);
                set_some(&mut row.product, found.product);
                set_some(&mut row.revision, found.revision);
            }
            ParameterData::UnitSerialNumber => {
                set_some(&mut row.unit_serial_number, parameter_data::unit_serial_number(data));
            }
            ParameterData::DeviceIdentification => {
                let Some(found) = parameter_data::identification(data) else { return Ok(()) };
                // a short allocation length or a snaplen cuts pages; it must not replace a better name
                if let Some((kind, name)) = found.designator
                    && (found.is_complete || Some(kind) >= known.designator)
                {
                    known.designator = Some(kind);
                    row.designator = name;
                }
                set_some(&mut row.relative_target_port, found.relative_target_port);
                set_some(&mut row.target_port_group, found.target_port_group);
            }
            ParameterData::BlockLimits => {
                let Some(found) = parameter_data::block_limits(data) else { return Ok(()) };
                set_some(&mut row.optimal_granularity_blocks, found.optimal_granularity_blocks);
                set_some(&mut row.maximum_transfer_blocks, found.maximum_transfer_blocks);
                set_some(&mut row.optimal_transfer_blocks, found.optimal_transfer_blocks);
                set_some(&mut row.unmap_granularity_blocks, found.unmap_granularity_blocks);
            }
            ParameterData::Capacity10 => note_capacity(row, parameter_data::capacity_10(data)),
            ParameterData::Capacity16 => note_capacity(row, parameter_data::capacity_16(data)),
            ParameterData::TargetPortGroups => {
                for group in parameter_data::port_groups(data) {
                    if known.groups.get(&group.target_port_group) == Some(&group) {
                        continue;
                    }
                    if self.states.len() >= STATES_MAX {
                        return Err(BeyondLimit);
                    }
                    self.states.push(state_row(lun, group, place));
                    known.groups.insert(group.target_port_group, group);
                }
            }
        }
        Ok(())
    }
}

/// There are more rows than a session may have.
#[derive(Debug, PartialEq, Eq)]
pub struct BeyondLimit;

fn note_capacity(row: &mut LogicalUnit, capacity: Option<Capacity>) {
    let Some(capacity) = capacity else { return };
    row.block_bytes = capacity.block_bytes;
    set_some(&mut row.block_count, capacity.block_count);
    set_some(&mut row.physical_block_bytes, capacity.physical_block_bytes);
    set_some(&mut row.lowest_aligned_lba, capacity.lowest_aligned_lba);
}

fn state_row(lun: u64, group: PortGroup, place: Stamp) -> AluaState {
    AluaState {
        lun,
        time_ns: place.time_ns,
        frame: place.frame,
        target_port_group: group.target_port_group,
        // codes as in CATEGORIES["alua_state"]
        state: match group.state {
            state @ 0..=4 => state,
            14 => 5,
            15 => 6,
            _ => NULL_U8,
        },
        is_preferred: group.is_preferred,
        ..AluaState::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(frame: u64) -> Stamp {
        Stamp { time_ns: frame as i64 * 1000, frame }
    }

    /// REPORT TARGET PORT GROUPS of groups without ports: number and state.
    fn groups(states: &[(u8, u8)]) -> Vec<u8> {
        let mut data = (8 * states.len() as u32).to_be_bytes().to_vec();
        states.iter().for_each(|(number, state)| data.extend_from_slice(&[*state, 0, 0, *number, 0, 0, 0, 0]));
        data
    }

    #[test]
    fn the_first_state_of_a_group_and_each_change_are_rows() {
        let mut units = Units::default();
        assert_eq!(units.command(5, at(1)), Ok(None));
        for (frame, states) in
            (2..).zip([&[(1, 0), (2, 1)][..], &[(1, 0), (2, 1)], &[(1, 15), (2, 1)], &[(2, 0x82), (1, 15)], &[(1, 9)]])
        {
            assert_eq!(units.learn(5, ParameterData::TargetPortGroups, &groups(states), at(frame)), Ok(()));
        }
        let found: Vec<_> = units
            .states
            .iter()
            .map(|row| (row.lun, row.frame, row.time_ns, row.target_port_group, row.state, row.is_preferred))
            .collect();
        // transitioning 6; a preferred group on standby 2; a reserved code
        let expected = [
            (5, 2, 2000, 1, 0, false),
            (5, 2, 2000, 2, 1, false),
            (5, 4, 4000, 1, 6, false),
            (5, 5, 5000, 2, 2, true),
            (5, 6, 6000, 1, NULL_U8, false),
        ];
        assert_eq!(found, expected);
        let mut offline = Units::default();
        offline.command(0, at(1)).unwrap();
        offline.learn(0, ParameterData::TargetPortGroups, &groups(&[(1, 14)]), at(2)).unwrap();
        assert_eq!(offline.states[0].state, 5);
    }

    #[test]
    fn rows_have_a_limit() {
        let mut units = Units::default();
        for lun in 0..UNITS_MAX as u64 {
            assert_eq!(units.command(lun, at(lun)), Ok(None));
        }
        assert_eq!(units.command(7, at(9)), Ok(None), "it is known");
        assert_eq!(units.command(1 << 40, at(9)), Err(BeyondLimit));
        assert_eq!(units.learn(1 << 40, ParameterData::Capacity10, &[0; 8], at(9)), Ok(()), "it has no row");
        let mut learn = |state: u8| units.learn(0, ParameterData::TargetPortGroups, &groups(&[(1, state)]), at(1));
        for change in 0..STATES_MAX {
            assert_eq!(learn((change % 2) as u8), Ok(()));
        }
        assert_eq!(learn(1), Ok(()), "no change");
        assert_eq!(learn(0), Err(BeyondLimit));
        assert_eq!((units.rows.len(), units.states.len()), (UNITS_MAX, STATES_MAX));
    }

    #[test]
    fn a_cut_page_replaces_no_better_name() {
        let named = |designators: &[(u8, &[u8])], cut: usize| {
            let mut body = Vec::new();
            for (kind, name) in designators {
                body.extend_from_slice(&[if *kind == 3 { 1 } else { 2 }, *kind, 0, name.len() as u8]);
                body.extend_from_slice(name);
            }
            let mut page = vec![0, 0x83, 0, body.len() as u8];
            page.extend_from_slice(&body);
            page.truncate(page.len() - cut);
            page
        };
        let naa = [0x60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let mut units = Units::default();
        units.command(0, at(1)).unwrap();
        let mut learn = |page: &[u8]| {
            units.learn(0, ParameterData::DeviceIdentification, page, at(2)).unwrap();
            units.rows[0].designator.clone()
        };
        assert_eq!(learn(&named(&[(1, b"A 1"), (3, &naa)], 1)), "t10.A 1");
        assert_eq!(learn(&named(&[(1, b"A 1"), (3, &naa)], 0)), "naa.60000000000000000000000000000001");
        assert_eq!(learn(&named(&[(1, b"A 1"), (3, &naa)], 1)), "naa.60000000000000000000000000000001");
        // another logical unit took the number: its page is complete
        assert_eq!(learn(&named(&[(1, b"B 2")], 0)), "t10.B 2");
    }

    #[test]
    fn a_unit_that_disappears_keeps_its_identity() {
        let mut units = Units::default();
        units.command(0, at(1)).unwrap();
        let mut disk = vec![0x01, 0, 6, 2, 31, 0x10, 0, 0];
        disk.extend_from_slice(b"VENDOR  PRODUCT         1.0 ");
        units.learn(0, ParameterData::StandardInquiry, &disk, at(2)).unwrap();
        assert_eq!(units.command(0, at(3)), Ok(Some(1)));
        units.learn(0, ParameterData::StandardInquiry, &[0x7f, 0, 6, 2, 31], at(4)).unwrap();
        let row = &units.rows[0];
        assert_eq!((row.peripheral_qualifier, row.device_type, row.tpgs), (3, 1, 1));
        assert_eq!((row.vendor.as_str(), row.product.as_str(), row.revision.as_str()), ("VENDOR", "PRODUCT", "1.0"));
        assert_eq!(units.command(0, at(5)), Ok(Some(1)));
        assert_eq!((row_of(&units), units.rows.len()), ((1, 1000), 1));
    }

    fn row_of(units: &Units) -> (u64, i64) {
        (units.rows[0].frame_first, units.rows[0].time_first_ns)
    }
}
