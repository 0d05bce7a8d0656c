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
        peripheral_qualifier: u8 = null, "SPC-4, standard INQUIRY data";
        /// peripheral device type: 0 disk, 1 tape, 5 CD, 8 medium changer ...
        device_type: u8 = null, "SPC-4, standard INQUIRY data";
        /// target port groups: 0 none; asymmetric access 1 implicit, 2 explicit, 3 both
        tpgs: u8 = null, "SPC-4, standard INQUIRY data";
        /// vendor
        vendor: String = null, "SPC-4, standard INQUIRY data";
        /// product
        product: String = null, "SPC-4, standard INQUIRY data";
        /// product revision
        revision: String = null, "SPC-4, standard INQUIRY data";
        /// unit serial number
        unit_serial_number: String = null, "SPC-4, VPD page 80h";
        /// name of the logical unit, the same on every path: naa., eui., a SCSI name string, t10. or vendor., the first
        /// of these that the target has, NAA 6 before other NAA
        designator: String = null, "SPC-4, VPD page 83h";
        /// relative identifier of the target port of this path
        relative_target_port: u16 = null, "SPC-4, VPD page 83h";
        /// target port group of the target port of this path
        target_port_group: u16 = null, "SPC-4, VPD page 83h";
        /// length of a logical block
        block_bytes: u32 [bytes] = null, "SBC-3, READ CAPACITY";
        /// number of logical blocks
        block_count: u64 [blocks] = null, "SBC-3, READ CAPACITY";
        /// length of a physical block
        physical_block_bytes: u32 [bytes] = null, "SBC-3, READ CAPACITY(16)";
        /// lowest logical block at the start of a physical block
        lowest_aligned_lba: u16 [blocks] = null, "SBC-3, READ CAPACITY(16)";
        /// optimal transfer length granularity
        optimal_granularity_blocks: u16 [blocks] = null, "SBC-3, VPD page B0h";
        /// optimal unmap granularity
        unmap_granularity_blocks: u32 [blocks] = null, "SBC-3, VPD page B0h";
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
        /// the target port group; logical_units has that of the session's path
        target_port_group: u16, "SPC-4, REPORT TARGET PORT GROUPS";
        /// its state; null: a reserved code
        state: u8(alua_state) = null, "SPC-4, REPORT TARGET PORT GROUPS";
        /// whether it is the preferred group
        is_preferred: bool, "SPC-4, REPORT TARGET PORT GROUPS";
    }
}
