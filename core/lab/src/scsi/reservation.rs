//! RESERVE and RELEASE of SPC-2: one nexus keeps the logical unit for itself. Persistent reservations are elsewhere.

use super::logical_unit::LogicalUnit;
use super::nexus::Nexus;
use super::sense::Sense;
use super::task::Work;

impl LogicalUnit {
    /// RESERVE, of the whole logical unit. That nobody else holds it was checked.
    pub(super) fn reserve(&mut self, nexus: Nexus, cdb: &[u8; 16]) -> Result<Work, Sense> {
        // Neither third parties nor extents, which SPC-2 made obsolete or optional.
        if cdb[1] & 0x1f != 0 {
            return Err(Sense::cdb_bit(1, 4));
        }
        self.reserved_by = Some(nexus);
        Ok(Work::GOOD)
    }

    /// RELEASE: GOOD and without effect when the reservation is another's (SPC-2).
    pub(super) fn release(&mut self, nexus: Nexus) -> Work {
        if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
        Work::GOOD
    }
}
