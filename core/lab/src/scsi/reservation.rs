//! RESERVE and RELEASE (SPC-2): one nexus reserves the logical unit. Persistent reservations are in
//! `persistent_reservation`.

use super::logical_unit::LogicalUnit;
use super::nexus::Nexus;
use super::sense::Sense;
use super::task::Work;

impl LogicalUnit {
    /// RESERVE of the whole logical unit. The caller has checked that no other nexus holds it.
    pub(super) fn reserve(&mut self, nexus: Nexus, cdb: &[u8; 16]) -> Result<Work, Sense> {
        // No third-party reservations and no extents, which are obsolete or optional in SPC-2.
        if cdb[1] & 0x1f != 0 {
            return Err(Sense::cdb_bit(1, 4));
        }
        self.reserved_by = Some(nexus);
        Ok(Work::GOOD)
    }

    /// RELEASE: GOOD without effect when another nexus holds the reservation (SPC-2).
    pub(super) fn release(&mut self, nexus: Nexus) -> Work {
        if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
        Work::GOOD
    }
}
