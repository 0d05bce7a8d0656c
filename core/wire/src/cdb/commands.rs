//! The table of SCSI commands: what an operation code means, by device type and service action (SPC, SBC, MMC, SSC, SMC).
//!
//! ```text
//! OPERATION "name in tables" PURPOSE {
//!     CODE[/SERVICE ACTION] DEVICE TYPE "T10's name" [LAYOUT] [[BITS] ACCESS NEEDS];
//! }
//! ```
//!
//! An operation is a command without the length of its CDB. `/_` is any service action that has no row. `BITS` are the
//! bits from byte 1 on that our target evaluates, beside the layout and the service action; rows without are commands
//! that it does not execute.

use serde::{Deserialize, Serialize};

use Layout::{Lba, Range, Six, SixLba, TapeSix, TapeSixteen};

// Peripheral device types (SPC, INQUIRY data byte 0), where the meaning of an operation code depends on them.
/// Block devices.
pub const DISK: u8 = 0x00;
pub(super) const TAPE: u8 = 0x01;
pub(super) const CD: u8 = 0x05;
pub(super) const CHANGER: u8 = 0x08;

/// Where the LBA and the number of blocks lie in a CDB.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layout {
    None,
    /// 21-bit LBA in bytes 1 to 3, number of blocks in byte 4 with 0 for 256.
    Six,
    /// 21-bit LBA alone.
    SixLba,
    /// Sequential-access, six bytes: 24-bit count in bytes 2 to 4, of blocks when the FIXED bit is set.
    TapeSix,
    /// Sequential-access, 16 bytes: 24-bit count in bytes 12 to 14, of blocks when the FIXED bit is set.
    TapeSixteen,
    /// LBA alone: first byte, length in bytes.
    Lba(usize, usize),
    /// LBA: first byte, length in bytes; number of blocks: first byte, length in bytes.
    Range(usize, usize, usize, usize),
}

/// A SCSI command: one row of [`COMMANDS`].
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Operation code, the first byte of the CDB.
    pub code: u8,
    /// Service action of this row; a row without stands for all others.
    pub service_action: Option<u16>,
    /// Whether the CDB has a service action.
    pub(super) has_service_action: bool,
    /// Peripheral device type that the command belongs to.
    pub device_type: u8,
    /// The operation, without the length of the CDB.
    pub operation: Operation,
    /// T10's name with the length of the CDB, such as `READ(10)`.
    pub name: &'static str,
    pub(super) layout: Layout,
    /// How our target executes it.
    pub support: Option<Support>,
}

/// What an operation does for the user's data on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reads, writes, verifies or erases it.
    Data,
    /// Makes earlier writes permanent.
    Flush,
    /// Inspects or sets up the device, as a scan does.
    Control,
    /// The operation is not in the table.
    Unknown,
}

/// Whether a command is allowed at a logical unit that another I_T nexus reserved (SPC-4; SBC-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Always allowed.
    Free,
    /// Allowed beside Write Exclusive reservations.
    Read,
    /// Not allowed.
    Write,
}

/// What a command requires of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Needs {
    Nothing,
    Loaded,
    Writable,
}

/// How our target executes a command.
#[derive(Clone, Copy, Debug)]
pub struct Support {
    /// The bits from byte 1 on that are evaluated, beside the LBA, the number of blocks and the service action.
    pub(super) bits: &'static [u8],
    /// What a reservation allows.
    pub access: Access,
    /// What the medium must be.
    pub needs: Needs,
}

const TEN: Layout = Range(2, 4, 7, 2);
const TWELVE: Layout = Range(2, 4, 6, 4);
const SIXTEEN: Layout = Range(2, 8, 10, 4);
/// Needs the extended CDB of the AHS behind the first 16 bytes.
const THIRTY_TWO: Layout = Range(12, 8, 28, 4);
const LBA_TEN: Layout = Lba(2, 4);
const LBA_SIXTEEN: Layout = Lba(2, 8);
/// COMPARE AND WRITE, WRITE ATOMIC, READ CD.
const COMPARED: Layout = Range(2, 8, 13, 1);
const ATOMIC: Layout = Range(2, 8, 12, 2);
const CD_SECTORS: Layout = Range(2, 4, 6, 3);

macro_rules! commands {
    ($($operation:ident $text:literal $purpose:ident {
        $($code:literal $(/ $action:tt)? $device:ident $name:literal $($layout:ident)?
            $([$($bits:literal),*] $access:ident $needs:ident)?;)+
    })+) => {
        /// An operation without the length of its CDB.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "the names are T10's")]
        pub enum Operation { $($operation,)+ }

        impl Operation {
            /// Every operation.
            pub const ALL: &'static [Operation] = &[$(Operation::$operation,)+];

            /// T10's name in snake case, such as `read` for READ(6) to READ(32).
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Operation::$operation => $text,)+ }
            }

            /// What it does for the user's data.
            #[must_use]
            pub const fn purpose(self) -> Purpose {
                match self { $(Operation::$operation => Purpose::$purpose,)+ }
            }
        }

        const ROWS: &[Command] = &[$($(Command {
            code: $code,
            service_action: commands!(@action $($action)?),
            has_service_action: commands!(@has_action $($action)?),
            device_type: $device,
            operation: Operation::$operation,
            name: $name,
            layout: commands!(@layout $($layout)?),
            support: commands!(@support $([$($bits),*] $access $needs)?),
        },)+)+];
    };
    (@action) => { None };
    (@action _) => { None };
    (@action $action:literal) => { Some($action) };
    (@has_action) => { false };
    (@has_action $action:tt) => { true };
    (@layout) => { Layout::None };
    (@layout $layout:ident) => { $layout };
    (@support) => { None };
    (@support [$($bits:literal),*] $access:ident $needs:ident) => {
        Some(Support { bits: &[$($bits),*], access: Access::$access, needs: Needs::$needs })
    };
}

/// Every command, in order of operation code. Of rows with the same code, the first one's device type is assumed when
/// that of the volume is unknown; rows with a service action precede the one without.
pub const COMMANDS: &[Command] = &sorted::<{ ROWS.len() }>();

const fn sorted<const N: usize>() -> [Command; N] {
    let mut rows = [ROWS[0]; N];
    let mut count = 0;
    while count < N {
        // insert the next row behind those that belong before it
        let mut at = count;
        while at > 0 && order(&rows[at - 1]) > order(&ROWS[count]) {
            rows[at] = rows[at - 1];
            at -= 1;
        }
        rows[at] = ROWS[count];
        count += 1;
    }
    rows
}

/// Operation code, device type, service action.
const fn order(row: &Command) -> u64 {
    // a code of CDs and changers is taken for that of a changer
    let device = if row.device_type == CD { u8::MAX } else { row.device_type };
    let action = match row.service_action {
        Some(action) => action as u64,
        None => u16::MAX as u64,
    };
    (row.code as u64) << 32 | (device as u64) << 16 | action
}

/// Start of the rows of each operation code in `COMMANDS`; the last element is the end of the table.
pub(super) const STARTS: [u16; 257] = {
    let mut starts = [COMMANDS.len() as u16; 257];
    let mut row = COMMANDS.len();
    let mut code = 256;
    while code > 0 {
        code -= 1;
        while row > 0 && COMMANDS[row - 1].code as usize >= code {
            row -= 1;
        }
        starts[code] = row as u16;
    }
    starts
};

commands! {
    TestUnitReady "test_unit_ready" Control { 0x00 DISK "TEST UNIT READY" [] Free Loaded; }
    Rewind "rewind" Control { 0x01 TAPE "REWIND"; }
    RequestSense "request_sense" Control { 0x03 DISK "REQUEST SENSE" [0x01, 0, 0, 0xff] Free Nothing; }
    FormatUnit "format_unit" Data {
        0x04 DISK "FORMAT UNIT";
        0x04 TAPE "FORMAT MEDIUM";
    }
    ReadBlockLimits "read_block_limits" Control { 0x05 TAPE "READ BLOCK LIMITS"; }
    ReassignBlocks "reassign_blocks" Control { 0x07 DISK "REASSIGN BLOCKS"; }
    InitializeElementStatus "initialize_element_status" Control {
        0x07 CHANGER "INITIALIZE ELEMENT STATUS";
        0x37 CHANGER "INITIALIZE ELEMENT STATUS WITH RANGE";
    }
    Read "read" Data {
        0x08 DISK "READ(6)" Six [] Read Loaded;
        0x08 TAPE "READ(6)" TapeSix;
        0x28 DISK "READ(10)" TEN [0x18] Read Loaded;
        0x7f/0x09 DISK "READ(32)" THIRTY_TWO;
        0x88 DISK "READ(16)" SIXTEEN [0x18] Read Loaded;
        0x88 TAPE "READ(16)" TapeSixteen;
        0xa8 DISK "READ(12)" TWELVE [0x18] Read Loaded;
    }
    Write "write" Data {
        0x0a DISK "WRITE(6)" Six [] Write Writable;
        0x0a TAPE "WRITE(6)" TapeSix;
        0x2a DISK "WRITE(10)" TEN [0x18] Write Writable;
        0x7f/0x0b DISK "WRITE(32)" THIRTY_TWO;
        0x8a DISK "WRITE(16)" SIXTEEN [0x18] Write Writable;
        0x8a TAPE "WRITE(16)" TapeSixteen;
        0xaa DISK "WRITE(12)" TWELVE [0x18] Write Writable;
    }
    Seek "seek" Control {
        0x0b DISK "SEEK(6)" SixLba;
        0x2b DISK "SEEK(10)" LBA_TEN;
    }
    ReadReverse "read_reverse" Data {
        0x0f TAPE "READ REVERSE(6)" TapeSix;
        0x81 TAPE "READ REVERSE(16)" TapeSixteen;
    }
    WriteFilemarks "write_filemarks" Flush {
        0x10 TAPE "WRITE FILEMARKS(6)";
        0x80 TAPE "WRITE FILEMARKS(16)";
    }
    Space "space" Control {
        0x11 TAPE "SPACE(6)";
        0x91 TAPE "SPACE(16)";
    }
    Inquiry "inquiry" Control { 0x12 DISK "INQUIRY" [0x01, 0xff, 0xff, 0xff] Free Nothing; }
    RecoverBufferedData "recover_buffered_data" Data { 0x14 TAPE "RECOVER BUFFERED DATA" TapeSix; }
    ModeSelect "mode_select" Control {
        0x15 DISK "MODE SELECT(6)" [0x10, 0, 0, 0xff] Write Nothing;
        0x55 DISK "MODE SELECT(10)" [0x10, 0, 0, 0, 0, 0, 0xff, 0xff] Write Nothing;
    }
    Reserve "reserve" Control {
        0x16 DISK "RESERVE(6)" [] Free Nothing;
        0x56 DISK "RESERVE(10)" [] Free Nothing;
    }
    Release "release" Control {
        0x17 DISK "RELEASE(6)" [] Free Nothing;
        0x57 DISK "RELEASE(10)" [] Free Nothing;
    }
    Erase "erase" Data {
        0x19 TAPE "ERASE(6)";
        0x93 TAPE "ERASE(16)";
    }
    ModeSense "mode_sense" Control {
        0x1a DISK "MODE SENSE(6)" [0x08, 0xff, 0xff, 0xff] Read Nothing;
        0x5a DISK "MODE SENSE(10)" [0x08, 0xff, 0xff, 0, 0, 0, 0xff, 0xff] Read Nothing;
    }
    StartStopUnit "start_stop_unit" Control { 0x1b DISK "START STOP UNIT" [0x01, 0, 0x0f, 0xf7] Write Nothing; }
    LoadUnload "load_unload" Control {
        0x1b TAPE "LOAD UNLOAD";
        0xa6 CD "LOAD/UNLOAD MEDIUM";
    }
    OpenCloseImportExportElement "open_close_import_export_element" Control {
        0x1b CHANGER "OPEN/CLOSE IMPORT/EXPORT ELEMENT";
    }
    ReceiveDiagnosticResults "receive_diagnostic_results" Control { 0x1c DISK "RECEIVE DIAGNOSTIC RESULTS"; }
    SendDiagnostic "send_diagnostic" Control { 0x1d DISK "SEND DIAGNOSTIC" [0x04] Write Nothing; }
    PreventAllowMediumRemoval "prevent_allow_medium_removal" Control {
        0x1e DISK "PREVENT ALLOW MEDIUM REMOVAL" [0, 0, 0, 0x03] Write Nothing;
    }
    ReadFormatCapacities "read_format_capacities" Control { 0x23 CD "READ FORMAT CAPACITIES"; }
    ReadCapacity "read_capacity" Control {
        0x25 DISK "READ CAPACITY(10)" [0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x01] Free Loaded;
        0x9e/0x10 DISK "READ CAPACITY(16)" [0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] Free Loaded;
    }
    Locate "locate" Control {
        0x2b TAPE "LOCATE(10)";
        0x92 TAPE "LOCATE(16)";
    }
    PositionToElement "position_to_element" Control { 0x2b CHANGER "POSITION TO ELEMENT"; }
    WriteVerify "write_verify" Data {
        0x2e DISK "WRITE AND VERIFY(10)" TEN [0x12] Write Writable;
        0x7f/0x0c DISK "WRITE AND VERIFY(32)" THIRTY_TWO;
        0x8e DISK "WRITE AND VERIFY(16)" SIXTEEN [0x12] Write Writable;
        0xae DISK "WRITE AND VERIFY(12)" TWELVE [0x12] Write Writable;
    }
    Verify "verify" Data {
        0x13 TAPE "VERIFY(6)" TapeSix;
        0x2f DISK "VERIFY(10)" TEN [0x12] Read Loaded;
        0x7f/0x0a DISK "VERIFY(32)" THIRTY_TWO;
        0x8f DISK "VERIFY(16)" SIXTEEN [0x12] Read Loaded;
        0x8f TAPE "VERIFY(16)" TapeSixteen;
        0xaf DISK "VERIFY(12)" TWELVE [0x12] Read Loaded;
    }
    PreFetch "pre_fetch" Data {
        0x34 DISK "PRE-FETCH(10)" TEN [0x02] Read Loaded;
        0x90 DISK "PRE-FETCH(16)" SIXTEEN [0x02] Read Loaded;
    }
    ReadPosition "read_position" Control { 0x34/_ TAPE "READ POSITION"; }
    SynchronizeCache "synchronize_cache" Flush {
        0x35 DISK "SYNCHRONIZE CACHE(10)" TEN [0x02] Write Loaded;
        0x91 DISK "SYNCHRONIZE CACHE(16)" SIXTEEN [0x02] Write Loaded;
    }
    ReadDefectData "read_defect_data" Control {
        0x37 DISK "READ DEFECT DATA(10)" [0, 0x1f, 0, 0, 0, 0, 0xff, 0xff] Read Loaded;
        0xb7 DISK "READ DEFECT DATA(12)" [0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] Read Loaded;
    }
    WriteBuffer "write_buffer" Control { 0x3b DISK "WRITE BUFFER"; }
    ReadBuffer "read_buffer" Control { 0x3c DISK "READ BUFFER(10)"; }
    ReadLong "read_long" Data {
        0x3e DISK "READ LONG(10)" LBA_TEN;
        0x9e/0x11 DISK "READ LONG(16)" LBA_SIXTEEN;
    }
    WriteLong "write_long" Data {
        0x3f DISK "WRITE LONG(10)" LBA_TEN;
        0x9f/0x11 DISK "WRITE LONG(16)" LBA_SIXTEEN;
    }
    WriteSame "write_same" Data {
        0x41 DISK "WRITE SAME(10)" TEN [0x08] Write Writable;
        0x7f/0x0d DISK "WRITE SAME(32)" THIRTY_TWO;
        0x93 DISK "WRITE SAME(16)" SIXTEEN [0x09] Write Writable;
    }
    Unmap "unmap" Data { 0x42 DISK "UNMAP" [0, 0, 0, 0, 0, 0, 0xff, 0xff] Write Writable; }
    ReadSubChannel "read_sub_channel" Control { 0x42 CD "READ SUB-CHANNEL"; }
    ReadToc "read_toc" Control { 0x43 CD "READ TOC/PMA/ATIP"; }
    ReportDensitySupport "report_density_support" Control { 0x44 TAPE "REPORT DENSITY SUPPORT"; }
    PlayAudio "play_audio" Control {
        0x45 CD "PLAY AUDIO(10)" TEN;
        0x47 CD "PLAY AUDIO MSF";
        0xa5 CD "PLAY AUDIO(12)" TWELVE;
    }
    GetConfiguration "get_configuration" Control { 0x46 CD "GET CONFIGURATION"; }
    Sanitize "sanitize" Data { 0x48/_ DISK "SANITIZE"; }
    GetEventStatus "get_event_status" Control { 0x4a CD "GET EVENT STATUS NOTIFICATION"; }
    PauseResume "pause_resume" Control { 0x4b CD "PAUSE/RESUME"; }
    LogSelect "log_select" Control { 0x4c DISK "LOG SELECT"; }
    LogSense "log_sense" Control { 0x4d DISK "LOG SENSE"; }
    StopPlayScan "stop_play_scan" Control { 0x4e CD "STOP PLAY/SCAN"; }
    ReadDiscInformation "read_disc_information" Control { 0x51 CD "READ DISC INFORMATION"; }
    ReadTrackInformation "read_track_information" Control { 0x52 CD "READ TRACK INFORMATION"; }
    ReserveTrack "reserve_track" Control { 0x53 CD "RESERVE TRACK"; }
    XdWriteRead "xdwriteread" Data { 0x53 DISK "XDWRITEREAD(10)" TEN; }
    CloseTrackSession "close_track_session" Control { 0x5b CD "CLOSE TRACK/SESSION"; }
    ReadBufferCapacity "read_buffer_capacity" Control { 0x5c CD "READ BUFFER CAPACITY"; }
    PersistentReserveIn "persistent_reserve_in" Control {
        0x5e/0x00 DISK "PERSISTENT RESERVE IN" [0, 0, 0, 0, 0, 0, 0xff, 0xff] Free Nothing;
        0x5e/0x01 DISK "PERSISTENT RESERVE IN" [0, 0, 0, 0, 0, 0, 0xff, 0xff] Free Nothing;
        0x5e/0x02 DISK "PERSISTENT RESERVE IN" [0, 0, 0, 0, 0, 0, 0xff, 0xff] Free Nothing;
        0x5e/0x03 DISK "PERSISTENT RESERVE IN" [0, 0, 0, 0, 0, 0, 0xff, 0xff] Free Nothing;
        0x5e/_ DISK "PERSISTENT RESERVE IN";
    }
    PersistentReserveOut "persistent_reserve_out" Control {
        0x5f/0x00 DISK "PERSISTENT RESERVE OUT" [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] Free Nothing;
        0x5f/0x01 DISK "PERSISTENT RESERVE OUT" [0, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff] Free Nothing;
        0x5f/0x02 DISK "PERSISTENT RESERVE OUT" [0, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff] Free Nothing;
        0x5f/0x03 DISK "PERSISTENT RESERVE OUT" [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] Free Nothing;
        0x5f/0x04 DISK "PERSISTENT RESERVE OUT" [0, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff] Free Nothing;
        0x5f/0x05 DISK "PERSISTENT RESERVE OUT" [0, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff] Free Nothing;
        0x5f/0x06 DISK "PERSISTENT RESERVE OUT" [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] Free Nothing;
        0x5f/_ DISK "PERSISTENT RESERVE OUT";
    }
    ExtendedCopy "extended_copy" Data { 0x83/_ DISK "EXTENDED COPY"; }
    PopulateToken "populate_token" Data { 0x83/0x10 DISK "POPULATE TOKEN"; }
    WriteUsingToken "write_using_token" Data { 0x83/0x11 DISK "WRITE USING TOKEN"; }
    ReceiveCopyResults "receive_copy_results" Control { 0x84/_ DISK "RECEIVE COPY RESULTS"; }
    ReceiveRodTokenInformation "receive_rod_token_information" Control {
        0x84/0x07 DISK "RECEIVE ROD TOKEN INFORMATION";
    }
    AtaPassThrough "ata_pass_through" Control {
        0x85 DISK "ATA PASS-THROUGH(16)";
        0xa1 DISK "ATA PASS-THROUGH(12)";
    }
    CompareAndWrite "compare_and_write" Data { 0x89 DISK "COMPARE AND WRITE" COMPARED [0x18] Write Writable; }
    OrWrite "orwrite" Data { 0x8b DISK "ORWRITE(16)" SIXTEEN [0x18] Write Writable; }
    ReadAttribute "read_attribute" Control { 0x8c/_ DISK "READ ATTRIBUTE"; }
    WriteAttribute "write_attribute" Control { 0x8d DISK "WRITE ATTRIBUTE"; }
    ZbcOut "zbc_out" Control { 0x94/_ DISK "ZBC OUT"; }
    ZbcIn "zbc_in" Control { 0x95/_ DISK "ZBC IN"; }
    WriteAtomic "write_atomic" Data { 0x9c DISK "WRITE ATOMIC(16)" ATOMIC; }
    GetLbaStatus "get_lba_status" Control {
        0x9e/0x12 DISK "GET LBA STATUS(16)" LBA_SIXTEEN [0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] Read Loaded;
    }
    ReportReferrals "report_referrals" Control { 0x9e/0x13 DISK "REPORT REFERRALS" LBA_SIXTEEN; }
    ServiceActionIn "service_action_in" Control { 0x9e/_ DISK "SERVICE ACTION IN(16)"; }
    ServiceActionOut "service_action_out" Control { 0x9f/_ DISK "SERVICE ACTION OUT(16)"; }
    ReportLuns "report_luns" Control {
        0xa0 DISK "REPORT LUNS" [0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] Free Nothing;
    }
    Blank "blank" Data { 0xa1 CD "BLANK"; }
    SecurityProtocolIn "security_protocol_in" Control { 0xa2 DISK "SECURITY PROTOCOL IN"; }
    SecurityProtocolOut "security_protocol_out" Control { 0xb5 DISK "SECURITY PROTOCOL OUT"; }
    MaintenanceIn "maintenance_in" Control { 0xa3/_ DISK "MAINTENANCE IN"; }
    MaintenanceOut "maintenance_out" Control { 0xa4/_ DISK "MAINTENANCE OUT"; }
    ReportTargetPortGroups "report_target_port_groups" Control {
        0xa3/0x0a DISK "REPORT TARGET PORT GROUPS" [0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff] Free Nothing;
    }
    SetTargetPortGroups "set_target_port_groups" Control { 0xa4/0x0a DISK "SET TARGET PORT GROUPS"; }
    ReportSupportedOpcodes "report_supported_opcodes" Control {
        0xa3/0x0c DISK "REPORT SUPPORTED OPERATION CODES" [0, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff] Read Nothing;
    }
    ReportSupportedTaskManagementFunctions "report_supported_task_management_functions" Control {
        0xa3/0x0d DISK "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS";
    }
    ReportTimestamp "report_timestamp" Control { 0xa3/0x0f DISK "REPORT TIMESTAMP"; }
    SetTimestamp "set_timestamp" Control { 0xa4/0x0f DISK "SET TIMESTAMP"; }
    SendKey "send_key" Control { 0xa3 CD "SEND KEY"; }
    ReportKey "report_key" Control { 0xa4 CD "REPORT KEY"; }
    MoveMedium "move_medium" Control { 0xa5 CHANGER "MOVE MEDIUM"; }
    ExchangeMedium "exchange_medium" Control { 0xa6 CHANGER "EXCHANGE MEDIUM"; }
    SetReadAhead "set_read_ahead" Control { 0xa7 CD "SET READ AHEAD"; }
    GetPerformance "get_performance" Control { 0xac CD "GET PERFORMANCE"; }
    ReadDiscStructure "read_disc_structure" Control { 0xad CD "READ DISC STRUCTURE"; }
    RequestVolumeElementAddress "request_volume_element_address" Control {
        0xb5 CHANGER "REQUEST VOLUME ELEMENT ADDRESS";
    }
    SendVolumeTag "send_volume_tag" Control { 0xb6 CHANGER "SEND VOLUME TAG"; }
    SetStreaming "set_streaming" Control { 0xb6 CD "SET STREAMING"; }
    ReadElementStatus "read_element_status" Control { 0xb8 CHANGER "READ ELEMENT STATUS"; }
    SetCdSpeed "set_cd_speed" Control { 0xbb CD "SET CD SPEED"; }
    MechanismStatus "mechanism_status" Control { 0xbd CD "MECHANISM STATUS"; }
    ReadCd "read_cd" Data {
        0xb9 CD "READ CD MSF";
        0xbe CD "READ CD" CD_SECTORS;
    }
    SendDiscStructure "send_disc_structure" Control { 0xbf CD "SEND DISC STRUCTURE"; }
    Other "other" Unknown {
        0x7f/_ DISK "VARIABLE LENGTH CDB";
        0x9d/_ DISK "SERVICE ACTION BIDIRECTIONAL";
        0xa9/_ DISK "SERVICE ACTION OUT(12)";
        0xab/_ DISK "SERVICE ACTION IN(12)";
    }
}
