//! Settings of a target device and its logical units.

use serde::{Deserialize, Serialize};

/// A SCSI target device: one target port with its logical units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceSettings {
    /// iSCSI name of the target; identifiers and serial numbers are derived from it.
    pub target_name: String,
    /// Target portal group tag, which is part of the target port's name.
    pub target_portal_group_tag: u16,
    /// T10 vendor identification, at most 8 printable ASCII characters.
    pub vendor: String,
    /// Product identification, at most 16 printable ASCII characters.
    pub product: String,
    /// Whether the first command of each I_T nexus to each logical unit gets the unit attention POWER ON, as with
    /// disks. Some tools report it as an error instead of retrying.
    pub has_power_on_unit_attention: bool,
    /// Whether it reports one target port group, active and optimized (implicit ALUA).
    pub has_target_port_groups: bool,
    /// The logical units, numbered from 0 in this order unless they set their LUN.
    pub logical_units: Vec<LogicalUnitSettings>,
}

impl Default for DeviceSettings {
    fn default() -> DeviceSettings {
        DeviceSettings {
            target_name: "iqn.2025-01.org.iscsitrace:memory".into(),
            target_portal_group_tag: 1,
            vendor: "ISCSITRC".into(),
            product: "MEMORY DISK".into(),
            has_power_on_unit_attention: false,
            has_target_port_groups: false,
            logical_units: vec![LogicalUnitSettings::default()],
        }
    }
}

/// One logical unit: a direct access block device in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogicalUnitSettings {
    /// Its number, below 16384; without one, its place in the list.
    pub lun: Option<u16>,
    /// Where its blocks are kept.
    pub medium: MediumKind,
    /// Its size, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Logical block length: 512 or 4096.
    pub block_bytes: u32,
    /// Whether it is write protected.
    pub is_write_protected: bool,
    /// Whether the medium can be ejected and loaded.
    pub is_removable: bool,
    /// Memory limit of a sparse medium; a write beyond it fails with SPACE ALLOCATION FAILED WRITE PROTECT. By default
    /// its size.
    pub memory_bytes: Option<u64>,
}

impl Default for LogicalUnitSettings {
    fn default() -> LogicalUnitSettings {
        LogicalUnitSettings {
            lun: None,
            medium: MediumKind::Sparse,
            size_bytes: 1 << 30,
            block_bytes: 512,
            is_write_protected: false,
            is_removable: false,
            memory_bytes: None,
        }
    }
}

/// Where blocks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediumKind {
    /// In memory that is allocated at the start.
    Ram,
    /// In memory that is allocated page by page on the first write, and freed when it is unmapped.
    Sparse,
    /// Nowhere: reads return zeros, writes are dropped.
    NullZeros,
    /// Nowhere: each 8 bytes read are their byte address, big-endian; writes are dropped.
    NullAddress,
}

/// Device settings that are not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The block length is not supported.
    #[error("LUN {lun}: a block length of {block_bytes} bytes is neither 512 nor 4096")]
    BlockLength {
        /// Of this logical unit.
        lun: u16,
        /// The setting.
        block_bytes: u32,
    },
    /// The size is not valid.
    #[error("LUN {lun}: a size of {size_bytes} bytes is not a positive multiple of the block length {block_bytes}")]
    Size {
        /// Of this logical unit.
        lun: u16,
        /// The setting.
        size_bytes: u64,
        /// The block length.
        block_bytes: u32,
    },
    /// There is not enough memory.
    #[error(
        "LUN {lun}: cannot allocate {size_bytes} bytes of memory; a sparse medium needs memory only for written blocks"
    )]
    Memory {
        /// Of this logical unit.
        lun: u16,
        /// The setting.
        size_bytes: u64,
    },
    /// The LUN is used twice, or too large.
    #[error("LUN {lun}: each logical unit needs a unique number below 16384")]
    Number {
        /// The number.
        lun: u16,
    },
    /// A name does not fit the field of INQUIRY data.
    #[error("{field} {value:?}: at most {most} printable ASCII characters")]
    Text {
        /// Which.
        field: &'static str,
        /// The setting.
        value: String,
        /// The length of the field.
        most: usize,
    },
}
