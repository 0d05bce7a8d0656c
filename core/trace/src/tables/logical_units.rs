//! Logical units, as their targets describe them.

use super::declaration::table;

table! {
    /// one logical unit of one session, in order of its first command, with what the target said of it while the
    /// initiator scanned
    LogicalUnits LogicalUnit "logical_units" {
        /// the session
        session: u32;
        /// logical unit, decoded like tshark's scsi.lun
        lun: u64;
        /// frame of the first command to it
        frame_first: u64;
        /// capture time of the first command to it
        time_first_ns: i64 [ns];
        /// peripheral qualifier, the last one: 0 a logical unit is there, 1 none is there now, 3 none can be there
        /// (standard INQUIRY data)
        peripheral_qualifier: u8 = null, "SPC-4";
        /// peripheral device type: 0 disk, 1 tape, 5 CD, 8 medium changer ... (standard INQUIRY data)
        device_type: u8 = null, "SPC-4";
        /// target port groups: 0 none; asymmetric access 1 implicit, 2 explicit, 3 both (standard INQUIRY data)
        tpgs: u8 = null, "SPC-4";
        /// vendor (standard INQUIRY data)
        vendor: String = null, "SPC-4";
        /// product (standard INQUIRY data)
        product: String = null, "SPC-4";
        /// product revision (standard INQUIRY data)
        revision: String = null, "SPC-4";
        /// unit serial number (VPD page 80h)
        unit_serial_number: String = null, "SPC-4";
        /// name of the logical unit, the same on every path: naa., eui., a SCSI name string, t10. or vendor., the first
        /// of these that the target has, NAA 6 before other NAA (VPD page 83h)
        designator: String = null, "SPC-4";
        /// relative identifier of the target port of this path (VPD page 83h)
        relative_target_port: u16 = null, "SPC-4";
        /// target port group of the target port of this path (VPD page 83h)
        target_port_group: u16 = null, "SPC-4";
        /// length of a logical block (READ CAPACITY)
        block_bytes: u32 [bytes] = null, "SBC-3";
        /// number of logical blocks (READ CAPACITY)
        block_count: u64 [blocks] = null, "SBC-3";
        /// length of a physical block (READ CAPACITY(16))
        physical_block_bytes: u32 [bytes] = null, "SBC-3";
        /// lowest logical block at the start of a physical block (READ CAPACITY(16))
        lowest_aligned_lba: u16 [blocks] = null, "SBC-3";
        /// optimal transfer length granularity (VPD page B0h)
        optimal_granularity_blocks: u16 [blocks] = null, "SBC-3";
        /// maximum transfer length (VPD page B0h)
        maximum_transfer_blocks: u32 [blocks] = null, "SBC-3";
        /// optimal transfer length (VPD page B0h)
        optimal_transfer_blocks: u32 [blocks] = null, "SBC-3";
        /// optimal unmap granularity (VPD page B0h)
        unmap_granularity_blocks: u32 [blocks] = null, "SBC-3";
    }
}

table! {
    /// one asymmetric access state of a target port group: the first that a target reports to a session, and each change
    AluaStates AluaState "alua_states" {
        /// the session
        session: u32;
        /// logical unit, decoded like tshark's scsi.lun
        lun: u64;
        /// completion of the report
        time_ns: i64 [ns];
        /// frame of the report
        frame: u64;
        /// the target port group; logical_units has that of the session's path (REPORT TARGET PORT GROUPS)
        target_port_group: u16, "SPC-4";
        /// its state; null: a reserved code (REPORT TARGET PORT GROUPS)
        state: u8(alua_state) = null, "SPC-4";
        /// whether it is the preferred group (REPORT TARGET PORT GROUPS)
        is_preferred: bool, "SPC-4";
    }
}
