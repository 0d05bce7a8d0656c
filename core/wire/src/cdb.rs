//! SCSI command descriptor blocks: operation, service action, LBA, number of blocks.
//!
//! Covers the commands of SPC, SBC, MMC, SSC and SMC that operating systems send. Never decides the data direction (the
//! R and W bits of the SCSI Command PDU do), and never converts blocks to bytes (the block length is the volume's).

use serde::{Deserialize, Serialize};
/// A decoded CDB, as far as it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb {
    /// The operation, without the length of the CDB.
    pub operation: Operation,
    /// First logical block; `None` for commands without an LBA, such as those of tapes, and when it was not captured.
    pub lba: Option<u64>,
    /// Number of blocks in the field. The meaning of 0 depends on the command (no blocks for READ(10), to the end for
    /// SYNCHRONIZE CACHE and WRITE SAME); in READ(6) and WRITE(6) of a block device 0 means 256 (SBC).
    pub block_count: Option<u32>,
    /// Service action, of operation codes that have one.
    pub service_action: Option<u16>,
    /// Type of the reservation that PERSISTENT RESERVE OUT makes, releases or preempts (SPC-4, PERSISTENT RESERVE OUT).
    pub reservation_type: Option<u8>,
    /// T10's name with the length of the CDB, such as `READ(10)`.
    pub name: &'static str,
}

/// Peripheral device types (SPC, INQUIRY data byte 0), where the meaning of an operation code depends on them.
const DISK: u8 = 0x00;
const TAPE: u8 = 0x01;
const CD: u8 = 0x05;
const CHANGER: u8 = 0x08;
/// Operation code of PERSISTENT RESERVE OUT.
const PERSISTENT_RESERVE_OUT: u8 = 0x5f;

/// Where the LBA and the number of blocks lie in a CDB.
#[derive(Clone, Copy, Debug)]
enum Layout {
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

const TEN: Layout = Layout::Range(2, 4, 7, 2);
const TWELVE: Layout = Layout::Range(2, 4, 6, 4);
const SIXTEEN: Layout = Layout::Range(2, 8, 10, 4);
/// Needs the extended CDB of the AHS behind the first 16 bytes.
const THIRTY_TWO: Layout = Layout::Range(12, 8, 28, 4);

/// A SCSI command: one row of [`COMMANDS`].
#[derive(Debug)]
pub struct Command {
    /// Operation code, the first byte of the CDB.
    pub code: u8,
    /// Service action, for operation codes that have one; a row without stands for all others.
    pub service_action: Option<u16>,
    /// Peripheral device type that the command belongs to.
    pub device_type: u8,
    /// The operation, without the length of the CDB.
    pub operation: Operation,
    /// T10's name with the length of the CDB, such as `READ(10)`.
    pub name: &'static str,
    layout: Layout,
}

impl Command {
    /// First byte and length in bytes of the LBA. The upper 3 bits of a 6-byte CDB's are not part of it.
    #[must_use]
    pub const fn lba_field(&self) -> Option<(usize, usize)> {
        match self.layout {
            Layout::None | Layout::TapeSix | Layout::TapeSixteen => None,
            Layout::Six | Layout::SixLba => Some((1, 3)),
            Layout::Lba(first, length) | Layout::Range(first, length, ..) => Some((first, length)),
        }
    }

    /// First byte and length in bytes of the number of blocks. In READ(6) and WRITE(6) of a disk 0 means 256; a tape's
    /// counts blocks only when the FIXED bit is set.
    #[must_use]
    pub const fn block_count_field(&self) -> Option<(usize, usize)> {
        match self.layout {
            Layout::None | Layout::SixLba | Layout::Lba(..) => None,
            Layout::Six => Some((4, 1)),
            Layout::TapeSix => Some((2, 3)),
            Layout::TapeSixteen => Some((12, 3)),
            Layout::Range(_, _, first, length) => Some((first, length)),
        }
    }

    fn lba(&self, cdb: &[u8]) -> Option<u64> {
        let (first, length) = self.lba_field()?;
        let is_six = matches!(self.layout, Layout::Six | Layout::SixLba);
        number(cdb, first, length).map(|lba| if is_six { lba & 0x1f_ffff } else { lba })
    }

    fn block_count(&self, cdb: &[u8]) -> Option<u32> {
        let (first, length) = self.block_count_field()?;
        let count = number(cdb, first, length).and_then(|count| u32::try_from(count).ok())?;
        match self.layout {
            Layout::Six if count == 0 => Some(256),
            Layout::TapeSix | Layout::TapeSixteen => is_fixed(cdb).then_some(count),
            _ => Some(count),
        }
    }
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

/// Makes `Operation` and `COMMANDS`.
macro_rules! commands {
    (
        operations { $($variant:ident $text:literal)* }
        rows { $($code:literal $(/ $action:literal)? $device:ident $operation:ident $name:literal $layout:expr;)* }
    ) => {
        /// An operation without the length of its CDB.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "the names are T10's")]
        pub enum Operation { $($variant,)* }

        impl Operation {
            /// Every operation.
            pub const ALL: &'static [Operation] = &[$(Operation::$variant,)*];

            /// T10's name in snake case, such as `read` for READ(6) to READ(32).
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Operation::$variant => $text,)* }
            }

            /// Whether it only moves blocks: READ or WRITE, of any length of the CDB.
            #[must_use]
            pub const fn moves_blocks(self) -> bool {
                matches!(self, Operation::Read | Operation::Write)
            }

            /// What it does for the user's data.
            #[must_use]
            pub const fn purpose(self) -> Purpose {
                match self {
                    Operation::Read
                    | Operation::Write
                    | Operation::ReadReverse
                    | Operation::WriteVerify
                    | Operation::WriteAtomic
                    | Operation::Verify
                    | Operation::PreFetch
                    | Operation::ReadLong
                    | Operation::WriteLong
                    | Operation::WriteSame
                    | Operation::Unmap
                    | Operation::CompareAndWrite
                    | Operation::OrWrite
                    | Operation::XdWriteRead
                    | Operation::ExtendedCopy
                    | Operation::PopulateToken
                    | Operation::WriteUsingToken
                    | Operation::ReadCd
                    | Operation::RecoverBufferedData
                    | Operation::FormatUnit
                    | Operation::Erase
                    | Operation::Blank
                    | Operation::Sanitize => Purpose::Data,
                    Operation::SynchronizeCache | Operation::WriteFilemarks => Purpose::Flush,
                    Operation::Other => Purpose::Unknown,
                    _ => Purpose::Control,
                }
            }
        }

        /// Every command, in order of operation code. Of rows with the same code, the first one's device type is assumed
        /// when that of the volume is unknown; rows with a service action precede the one without.
        pub const COMMANDS: &[Command] = &[$(Command {
            code: $code,
            service_action: commands!(@action $($action)?),
            device_type: $device,
            operation: Operation::$operation,
            name: $name,
            layout: $layout,
        },)*];
    };
    (@action) => { None };
    (@action $action:literal) => { Some($action) };
}

commands! {
    operations {
        TestUnitReady "test_unit_ready"
        Rewind "rewind"
        RequestSense "request_sense"
        FormatUnit "format_unit"
        ReadBlockLimits "read_block_limits"
        ReassignBlocks "reassign_blocks"
        InitializeElementStatus "initialize_element_status"
        Read "read"
        Write "write"
        Seek "seek"
        ReadReverse "read_reverse"
        WriteFilemarks "write_filemarks"
        Space "space"
        Inquiry "inquiry"
        RecoverBufferedData "recover_buffered_data"
        ModeSelect "mode_select"
        Reserve "reserve"
        Release "release"
        Erase "erase"
        ModeSense "mode_sense"
        StartStopUnit "start_stop_unit"
        LoadUnload "load_unload"
        OpenCloseImportExportElement "open_close_import_export_element"
        ReceiveDiagnosticResults "receive_diagnostic_results"
        SendDiagnostic "send_diagnostic"
        PreventAllowMediumRemoval "prevent_allow_medium_removal"
        ReadFormatCapacities "read_format_capacities"
        ReadCapacity "read_capacity"
        Locate "locate"
        PositionToElement "position_to_element"
        WriteVerify "write_verify"
        Verify "verify"
        PreFetch "pre_fetch"
        ReadPosition "read_position"
        SynchronizeCache "synchronize_cache"
        ReadDefectData "read_defect_data"
        WriteBuffer "write_buffer"
        ReadBuffer "read_buffer"
        ReadLong "read_long"
        WriteLong "write_long"
        WriteSame "write_same"
        Unmap "unmap"
        ReadSubChannel "read_sub_channel"
        ReadToc "read_toc"
        ReportDensitySupport "report_density_support"
        PlayAudio "play_audio"
        GetConfiguration "get_configuration"
        Sanitize "sanitize"
        GetEventStatus "get_event_status"
        PauseResume "pause_resume"
        LogSelect "log_select"
        LogSense "log_sense"
        StopPlayScan "stop_play_scan"
        ReadDiscInformation "read_disc_information"
        ReadTrackInformation "read_track_information"
        ReserveTrack "reserve_track"
        XdWriteRead "xdwriteread"
        CloseTrackSession "close_track_session"
        ReadBufferCapacity "read_buffer_capacity"
        PersistentReserveIn "persistent_reserve_in"
        PersistentReserveOut "persistent_reserve_out"
        ExtendedCopy "extended_copy"
        PopulateToken "populate_token"
        WriteUsingToken "write_using_token"
        ReceiveCopyResults "receive_copy_results"
        ReceiveRodTokenInformation "receive_rod_token_information"
        AtaPassThrough "ata_pass_through"
        CompareAndWrite "compare_and_write"
        OrWrite "orwrite"
        ReadAttribute "read_attribute"
        WriteAttribute "write_attribute"
        ZbcOut "zbc_out"
        ZbcIn "zbc_in"
        WriteAtomic "write_atomic"
        GetLbaStatus "get_lba_status"
        ReportReferrals "report_referrals"
        ServiceActionIn "service_action_in"
        ServiceActionOut "service_action_out"
        ReportLuns "report_luns"
        Blank "blank"
        SecurityProtocolIn "security_protocol_in"
        SecurityProtocolOut "security_protocol_out"
        MaintenanceIn "maintenance_in"
        MaintenanceOut "maintenance_out"
        ReportTargetPortGroups "report_target_port_groups"
        SetTargetPortGroups "set_target_port_groups"
        ReportSupportedOpcodes "report_supported_opcodes"
        ReportSupportedTaskManagementFunctions "report_supported_task_management_functions"
        ReportTimestamp "report_timestamp"
        SetTimestamp "set_timestamp"
        SendKey "send_key"
        ReportKey "report_key"
        MoveMedium "move_medium"
        ExchangeMedium "exchange_medium"
        SetReadAhead "set_read_ahead"
        GetPerformance "get_performance"
        ReadDiscStructure "read_disc_structure"
        RequestVolumeElementAddress "request_volume_element_address"
        SendVolumeTag "send_volume_tag"
        SetStreaming "set_streaming"
        ReadElementStatus "read_element_status"
        SetCdSpeed "set_cd_speed"
        MechanismStatus "mechanism_status"
        ReadCd "read_cd"
        SendDiscStructure "send_disc_structure"
        Other "other"
    }
    rows {
        0x00 DISK TestUnitReady "TEST UNIT READY" Layout::None;
        0x01 TAPE Rewind "REWIND" Layout::None;
        0x03 DISK RequestSense "REQUEST SENSE" Layout::None;
        0x04 DISK FormatUnit "FORMAT UNIT" Layout::None;
        0x04 TAPE FormatUnit "FORMAT MEDIUM" Layout::None;
        0x05 TAPE ReadBlockLimits "READ BLOCK LIMITS" Layout::None;
        0x07 DISK ReassignBlocks "REASSIGN BLOCKS" Layout::None;
        0x07 CHANGER InitializeElementStatus "INITIALIZE ELEMENT STATUS" Layout::None;
        0x08 DISK Read "READ(6)" Layout::Six;
        0x08 TAPE Read "READ(6)" Layout::TapeSix;
        0x0a DISK Write "WRITE(6)" Layout::Six;
        0x0a TAPE Write "WRITE(6)" Layout::TapeSix;
        0x0b DISK Seek "SEEK(6)" Layout::SixLba;
        0x0f TAPE ReadReverse "READ REVERSE(6)" Layout::TapeSix;
        0x10 TAPE WriteFilemarks "WRITE FILEMARKS(6)" Layout::None;
        0x11 TAPE Space "SPACE(6)" Layout::None;
        0x12 DISK Inquiry "INQUIRY" Layout::None;
        0x13 TAPE Verify "VERIFY(6)" Layout::TapeSix;
        0x14 TAPE RecoverBufferedData "RECOVER BUFFERED DATA" Layout::TapeSix;
        0x15 DISK ModeSelect "MODE SELECT(6)" Layout::None;
        0x16 DISK Reserve "RESERVE(6)" Layout::None;
        0x17 DISK Release "RELEASE(6)" Layout::None;
        0x19 TAPE Erase "ERASE(6)" Layout::None;
        0x1a DISK ModeSense "MODE SENSE(6)" Layout::None;
        0x1b DISK StartStopUnit "START STOP UNIT" Layout::None;
        0x1b TAPE LoadUnload "LOAD UNLOAD" Layout::None;
        0x1b CHANGER OpenCloseImportExportElement "OPEN/CLOSE IMPORT/EXPORT ELEMENT" Layout::None;
        0x1c DISK ReceiveDiagnosticResults "RECEIVE DIAGNOSTIC RESULTS" Layout::None;
        0x1d DISK SendDiagnostic "SEND DIAGNOSTIC" Layout::None;
        0x1e DISK PreventAllowMediumRemoval "PREVENT ALLOW MEDIUM REMOVAL" Layout::None;
        0x23 CD ReadFormatCapacities "READ FORMAT CAPACITIES" Layout::None;
        0x25 DISK ReadCapacity "READ CAPACITY(10)" Layout::None;
        0x28 DISK Read "READ(10)" TEN;
        0x2a DISK Write "WRITE(10)" TEN;
        0x2b DISK Seek "SEEK(10)" Layout::Lba(2, 4);
        0x2b TAPE Locate "LOCATE(10)" Layout::None;
        0x2b CHANGER PositionToElement "POSITION TO ELEMENT" Layout::None;
        0x2e DISK WriteVerify "WRITE AND VERIFY(10)" TEN;
        0x2f DISK Verify "VERIFY(10)" TEN;
        0x34 DISK PreFetch "PRE-FETCH(10)" TEN;
        0x34 TAPE ReadPosition "READ POSITION" Layout::None;
        0x35 DISK SynchronizeCache "SYNCHRONIZE CACHE(10)" TEN;
        0x37 DISK ReadDefectData "READ DEFECT DATA(10)" Layout::None;
        0x37 CHANGER InitializeElementStatus "INITIALIZE ELEMENT STATUS WITH RANGE" Layout::None;
        0x3b DISK WriteBuffer "WRITE BUFFER" Layout::None;
        0x3c DISK ReadBuffer "READ BUFFER(10)" Layout::None;
        0x3e DISK ReadLong "READ LONG(10)" Layout::Lba(2, 4);
        0x3f DISK WriteLong "WRITE LONG(10)" Layout::Lba(2, 4);
        0x41 DISK WriteSame "WRITE SAME(10)" TEN;
        0x42 DISK Unmap "UNMAP" Layout::None;
        0x42 CD ReadSubChannel "READ SUB-CHANNEL" Layout::None;
        0x43 CD ReadToc "READ TOC/PMA/ATIP" Layout::None;
        0x44 TAPE ReportDensitySupport "REPORT DENSITY SUPPORT" Layout::None;
        0x45 CD PlayAudio "PLAY AUDIO(10)" TEN;
        0x46 CD GetConfiguration "GET CONFIGURATION" Layout::None;
        0x47 CD PlayAudio "PLAY AUDIO MSF" Layout::None;
        0x48 DISK Sanitize "SANITIZE" Layout::None;
        0x4a CD GetEventStatus "GET EVENT STATUS NOTIFICATION" Layout::None;
        0x4b CD PauseResume "PAUSE/RESUME" Layout::None;
        0x4c DISK LogSelect "LOG SELECT" Layout::None;
        0x4d DISK LogSense "LOG SENSE" Layout::None;
        0x4e CD StopPlayScan "STOP PLAY/SCAN" Layout::None;
        0x51 CD ReadDiscInformation "READ DISC INFORMATION" Layout::None;
        0x52 CD ReadTrackInformation "READ TRACK INFORMATION" Layout::None;
        0x53 DISK XdWriteRead "XDWRITEREAD(10)" TEN;
        0x53 CD ReserveTrack "RESERVE TRACK" Layout::None;
        0x55 DISK ModeSelect "MODE SELECT(10)" Layout::None;
        0x56 DISK Reserve "RESERVE(10)" Layout::None;
        0x57 DISK Release "RELEASE(10)" Layout::None;
        0x5a DISK ModeSense "MODE SENSE(10)" Layout::None;
        0x5b CD CloseTrackSession "CLOSE TRACK/SESSION" Layout::None;
        0x5c CD ReadBufferCapacity "READ BUFFER CAPACITY" Layout::None;
        0x5e DISK PersistentReserveIn "PERSISTENT RESERVE IN" Layout::None;
        0x5f DISK PersistentReserveOut "PERSISTENT RESERVE OUT" Layout::None;
        0x7f/0x09 DISK Read "READ(32)" THIRTY_TWO;
        0x7f/0x0a DISK Verify "VERIFY(32)" THIRTY_TWO;
        0x7f/0x0b DISK Write "WRITE(32)" THIRTY_TWO;
        0x7f/0x0c DISK WriteVerify "WRITE AND VERIFY(32)" THIRTY_TWO;
        0x7f/0x0d DISK WriteSame "WRITE SAME(32)" THIRTY_TWO;
        0x7f DISK Other "VARIABLE LENGTH CDB" Layout::None;
        0x80 TAPE WriteFilemarks "WRITE FILEMARKS(16)" Layout::None;
        0x81 TAPE ReadReverse "READ REVERSE(16)" Layout::TapeSixteen;
        0x83/0x10 DISK PopulateToken "POPULATE TOKEN" Layout::None;
        0x83/0x11 DISK WriteUsingToken "WRITE USING TOKEN" Layout::None;
        0x83 DISK ExtendedCopy "EXTENDED COPY" Layout::None;
        0x84/0x07 DISK ReceiveRodTokenInformation "RECEIVE ROD TOKEN INFORMATION" Layout::None;
        0x84 DISK ReceiveCopyResults "RECEIVE COPY RESULTS" Layout::None;
        0x85 DISK AtaPassThrough "ATA PASS-THROUGH(16)" Layout::None;
        0x88 DISK Read "READ(16)" SIXTEEN;
        0x88 TAPE Read "READ(16)" Layout::TapeSixteen;
        0x89 DISK CompareAndWrite "COMPARE AND WRITE" Layout::Range(2, 8, 13, 1);
        0x8a DISK Write "WRITE(16)" SIXTEEN;
        0x8a TAPE Write "WRITE(16)" Layout::TapeSixteen;
        0x8b DISK OrWrite "ORWRITE(16)" SIXTEEN;
        0x8c DISK ReadAttribute "READ ATTRIBUTE" Layout::None;
        0x8d DISK WriteAttribute "WRITE ATTRIBUTE" Layout::None;
        0x8e DISK WriteVerify "WRITE AND VERIFY(16)" SIXTEEN;
        0x8f DISK Verify "VERIFY(16)" SIXTEEN;
        0x8f TAPE Verify "VERIFY(16)" Layout::TapeSixteen;
        0x90 DISK PreFetch "PRE-FETCH(16)" SIXTEEN;
        0x91 DISK SynchronizeCache "SYNCHRONIZE CACHE(16)" SIXTEEN;
        0x91 TAPE Space "SPACE(16)" Layout::None;
        0x92 TAPE Locate "LOCATE(16)" Layout::None;
        0x93 DISK WriteSame "WRITE SAME(16)" SIXTEEN;
        0x93 TAPE Erase "ERASE(16)" Layout::None;
        0x94 DISK ZbcOut "ZBC OUT" Layout::None;
        0x95 DISK ZbcIn "ZBC IN" Layout::None;
        0x9c DISK WriteAtomic "WRITE ATOMIC(16)" Layout::Range(2, 8, 12, 2);
        0x9e/0x10 DISK ReadCapacity "READ CAPACITY(16)" Layout::None;
        0x9e/0x11 DISK ReadLong "READ LONG(16)" Layout::Lba(2, 8);
        0x9e/0x12 DISK GetLbaStatus "GET LBA STATUS(16)" Layout::Lba(2, 8);
        0x9e/0x13 DISK ReportReferrals "REPORT REFERRALS" Layout::Lba(2, 8);
        0x9e DISK ServiceActionIn "SERVICE ACTION IN(16)" Layout::None;
        0x9f/0x11 DISK WriteLong "WRITE LONG(16)" Layout::Lba(2, 8);
        0x9f DISK ServiceActionOut "SERVICE ACTION OUT(16)" Layout::None;
        0xa0 DISK ReportLuns "REPORT LUNS" Layout::None;
        0xa1 DISK AtaPassThrough "ATA PASS-THROUGH(12)" Layout::None;
        0xa1 CD Blank "BLANK" Layout::None;
        0xa2 DISK SecurityProtocolIn "SECURITY PROTOCOL IN" Layout::None;
        0xa3/0x0a DISK ReportTargetPortGroups "REPORT TARGET PORT GROUPS" Layout::None;
        0xa3/0x0c DISK ReportSupportedOpcodes "REPORT SUPPORTED OPERATION CODES" Layout::None;
        0xa3/0x0d DISK ReportSupportedTaskManagementFunctions "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS" Layout::None;
        0xa3/0x0f DISK ReportTimestamp "REPORT TIMESTAMP" Layout::None;
        0xa3 DISK MaintenanceIn "MAINTENANCE IN" Layout::None;
        0xa3 CD SendKey "SEND KEY" Layout::None;
        0xa4/0x0a DISK SetTargetPortGroups "SET TARGET PORT GROUPS" Layout::None;
        0xa4/0x0f DISK SetTimestamp "SET TIMESTAMP" Layout::None;
        0xa4 DISK MaintenanceOut "MAINTENANCE OUT" Layout::None;
        0xa4 CD ReportKey "REPORT KEY" Layout::None;
        0xa5 CHANGER MoveMedium "MOVE MEDIUM" Layout::None;
        0xa5 CD PlayAudio "PLAY AUDIO(12)" TWELVE;
        0xa6 CHANGER ExchangeMedium "EXCHANGE MEDIUM" Layout::None;
        0xa6 CD LoadUnload "LOAD/UNLOAD MEDIUM" Layout::None;
        0xa7 CD SetReadAhead "SET READ AHEAD" Layout::None;
        0xa8 DISK Read "READ(12)" TWELVE;
        0xaa DISK Write "WRITE(12)" TWELVE;
        0xac CD GetPerformance "GET PERFORMANCE" Layout::None;
        0xad CD ReadDiscStructure "READ DISC STRUCTURE" Layout::None;
        0xae DISK WriteVerify "WRITE AND VERIFY(12)" TWELVE;
        0xaf DISK Verify "VERIFY(12)" TWELVE;
        0xb5 DISK SecurityProtocolOut "SECURITY PROTOCOL OUT" Layout::None;
        0xb5 CHANGER RequestVolumeElementAddress "REQUEST VOLUME ELEMENT ADDRESS" Layout::None;
        0xb6 CHANGER SendVolumeTag "SEND VOLUME TAG" Layout::None;
        0xb6 CD SetStreaming "SET STREAMING" Layout::None;
        0xb7 DISK ReadDefectData "READ DEFECT DATA(12)" Layout::None;
        0xb8 CHANGER ReadElementStatus "READ ELEMENT STATUS" Layout::None;
        0xb9 CD ReadCd "READ CD MSF" Layout::None;
        0xbb CD SetCdSpeed "SET CD SPEED" Layout::None;
        0xbd CD MechanismStatus "MECHANISM STATUS" Layout::None;
        0xbe CD ReadCd "READ CD" Layout::Range(2, 4, 6, 3);
        0xbf CD SendDiscStructure "SEND DISC STRUCTURE" Layout::None;
    }
}

/// Start of the rows of each operation code in `COMMANDS`; the last element is the end of the table.
const STARTS: [u16; 257] = {
    let mut starts = [0; 257];
    let mut row = 0;
    let mut code = 0;
    while code < 256 {
        starts[code] = row as u16;
        while row < COMMANDS.len() && COMMANDS[row].code as usize == code {
            row += 1;
        }
        code += 1;
    }
    assert!(row == COMMANDS.len(), "the rows must be in order of operation code");
    starts[256] = row as u16;
    starts
};

/// Decodes a CDB: the 16 bytes of the BHS, fewer if truncated, or more with the extended CDB of the AHS appended.
///
/// `device_type` is the peripheral device type of the volume, if known from an INQUIRY. Without it, an operation code
/// that several device types share has the meaning of the first row.
#[must_use]
pub fn decode(cdb: &[u8], device_type: Option<u8>) -> Cdb {
    let command = command(cdb, device_type);
    let code = cdb.first().copied().unwrap_or_default();
    let (service_action, reservation_type) = if has_service_action(code, device_type) {
        let is_reservation = code == PERSISTENT_RESERVE_OUT;
        (service_action(cdb), if is_reservation { cdb.get(2).map(|byte| byte & 0x0f) } else { None })
    } else {
        (None, None)
    };
    Cdb {
        operation: command.map_or(Operation::Other, |command| command.operation),
        lba: command.and_then(|command| command.lba(cdb)),
        block_count: command.and_then(|command| command.block_count(cdb)),
        service_action,
        reservation_type,
        name: command.map_or("other", |command| command.name),
    }
}

/// Whether commands with this operation code have a service action (SPC-4, SBC-3, SSC-4, ZBC): sanitize, persistent
/// reservations, variable length, third-party copy, attributes, zones, the codes for service actions, maintenance, the
/// position of a tape. The codes of maintenance exchange keys with a CD.
const fn has_service_action(code: u8, device_type: Option<u8>) -> bool {
    match code {
        0x48 | 0x5e | 0x5f | 0x7f | 0x83 | 0x84 | 0x8c | 0x94 | 0x95 | 0x9d..=0x9f | 0xa9 | 0xab => true,
        0x34 => matches!(device_type, Some(TAPE)),
        0xa3 | 0xa4 => !matches!(device_type, Some(CD)),
        _ => false,
    }
}

fn command(cdb: &[u8], device_type: Option<u8>) -> Option<&'static Command> {
    let code = usize::from(*cdb.first()?);
    let rows = COMMANDS.get(usize::from(STARTS[code])..usize::from(STARTS[code + 1]))?;
    let action = service_action(cdb);
    // The rows of the volume's device type, else those of the first row's.
    let device_type = rows.iter().map(|row| row.device_type).find(|row| Some(*row) == device_type);
    let device_type = device_type.or_else(|| rows.first().map(|row| row.device_type))?;
    rows.iter()
        .filter(|row| row.device_type == device_type)
        .find(|row| row.service_action.is_none() || row.service_action == action)
}

/// The service action: bytes 8 and 9 of a variable-length CDB, the low bits of byte 1 in all others.
fn service_action(cdb: &[u8]) -> Option<u16> {
    if cdb.first() == Some(&0x7f) {
        number(cdb, 8, 2).and_then(|action| u16::try_from(action).ok())
    } else {
        cdb.get(1).map(|byte| u16::from(byte & 0x1f))
    }
}

/// FIXED bit of a sequential-access command: the transfer length is in blocks, not bytes.
fn is_fixed(cdb: &[u8]) -> bool {
    cdb.get(1).is_some_and(|byte| byte & 0x01 != 0)
}

/// The big-endian number in `length` bytes from `first`; `None` when not all of them were captured.
fn number(cdb: &[u8], first: usize, length: usize) -> Option<u64> {
    let bytes = cdb.get(first..)?.get(..length)?;
    Some(bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::{CD, CHANGER, Operation, Purpose, TAPE, decode};
    use proptest::prelude::*;

    fn cdb(bytes: &[u8]) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        cdb
    }

    #[test]
    fn a_scan_reads_and_writes_nothing() {
        for (code, purpose) in [
            (0x28, Purpose::Data),
            (0x8a, Purpose::Data),
            (0x42, Purpose::Data),
            (0x93, Purpose::Data),
            (0x89, Purpose::Data),
            (0x35, Purpose::Flush),
            (0x91, Purpose::Flush),
            // TEST UNIT READY, INQUIRY, MODE SENSE, READ CAPACITY, REPORT LUNS, PERSISTENT RESERVE IN
            (0x00, Purpose::Control),
            (0x12, Purpose::Control),
            (0x1a, Purpose::Control),
            (0x25, Purpose::Control),
            (0xa0, Purpose::Control),
            (0x5e, Purpose::Control),
            (0x7f, Purpose::Unknown),
            (0xc1, Purpose::Unknown),
        ] {
            assert_eq!(decode(&cdb(&[code]), None).operation.purpose(), purpose, "{code:#x}");
        }
    }

    /// CDB, device type, operation, name, LBA, blocks.
    type Case = (&'static [u8], Option<u8>, &'static str, &'static str, Option<u64>, Option<u32>);

    /// By the figures of SPC, SBC, SSC, SMC and MMC.
    #[test]
    fn commands_are_those_of_t10() {
        #[rustfmt::skip]
        let cases: [Case; 30] = [
            (&[0x00], None, "test_unit_ready", "TEST UNIT READY", None, None),
            (&[0x08, 0x1f, 0xff, 0xfe, 0x01], None, "read", "READ(6)", Some(0x1f_fffe), Some(1)),
            (&[0x08, 0xe1, 0x02, 0x03, 0x00], None, "read", "READ(6)", Some(0x01_0203), Some(256)),
            (&[0x0a, 0, 0, 9, 0xff], None, "write", "WRITE(6)", Some(9), Some(255)),
            (&[0x08, 0x01, 0, 1, 0], Some(TAPE), "read", "READ(6)", None, Some(256)),
            (&[0x08, 0x00, 0, 1, 0], Some(TAPE), "read", "READ(6)", None, None),
            (&[0x12, 1, 0x83, 0, 0xff], None, "inquiry", "INQUIRY", None, None),
            (&[0x1b, 0, 0, 0, 1], None, "start_stop_unit", "START STOP UNIT", None, None),
            (&[0x1b, 0, 0, 0, 1], Some(TAPE), "load_unload", "LOAD UNLOAD", None, None),
            (&[0x28, 0, 0x00, 0x01, 0x02, 0x03, 0, 0x01, 0x00], None, "read", "READ(10)", Some(0x0001_0203), Some(256)),
            (&[0x28, 0, 0, 0, 0, 7, 0, 0, 0], Some(CD), "read", "READ(10)", Some(7), Some(0)),
            (&[0x2a, 0, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff], None, "write", "WRITE(10)", Some(0xffff_ffff), Some(65535)),
            (&[0x2b, 0, 0, 0, 0, 5], Some(TAPE), "locate", "LOCATE(10)", None, None),
            (&[0x35], None, "synchronize_cache", "SYNCHRONIZE CACHE(10)", Some(0), Some(0)),
            (&[0x42, 1, 0, 0, 0, 0, 0, 0, 24], None, "unmap", "UNMAP", None, None),
            (&[0x42, 2], Some(CD), "read_sub_channel", "READ SUB-CHANNEL", None, None),
            (&[0x43, 2], None, "read_toc", "READ TOC/PMA/ATIP", None, None),
            (&[0x5e, 3], None, "persistent_reserve_in", "PERSISTENT RESERVE IN", None, None),
            (&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0, 0], None, "read", "READ(16)", Some(0x0102_0304_0506_0708), Some(65536)),
            (&[0x88, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0], Some(TAPE), "read", "READ(16)", None, Some(256)),
            (&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1], None, "compare_and_write", "COMPARE AND WRITE", Some(7), Some(1)),
            (&[0x93, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 2, 0], None, "write_same", "WRITE SAME(16)", Some(7), Some(512)),
            (&[0x9e, 0x10], None, "read_capacity", "READ CAPACITY(16)", None, None),
            (&[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 1, 0], None, "get_lba_status", "GET LBA STATUS(16)", Some(256), None),
            (&[0x9e, 0x1f], None, "service_action_in", "SERVICE ACTION IN(16)", None, None),
            (&[0xa0], None, "report_luns", "REPORT LUNS", None, None),
            (&[0xa3, 0x0c], None, "report_supported_opcodes", "REPORT SUPPORTED OPERATION CODES", None, None),
            (&[0xa5], Some(CHANGER), "move_medium", "MOVE MEDIUM", None, None),
            (&[0xa8, 0, 0, 0, 0, 8, 0, 0, 1, 2], None, "read", "READ(12)", Some(8), Some(258)),
            (&[0xc1], None, "other", "other", None, None),
        ];
        for (bytes, device_type, operation, name, lba, block_count) in cases {
            let found = decode(&cdb(bytes), device_type);
            assert_eq!((found.operation.as_str(), found.name), (operation, name), "{bytes:02x?}");
            assert_eq!((found.lba, found.block_count), (lba, block_count), "{bytes:02x?}");
        }
    }

    #[test]
    fn a_32_byte_command_needs_the_ahs_for_its_blocks() {
        let mut whole = vec![0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0x00, 0x09, 0, 0];
        whole.extend_from_slice(&0x0102_0304_0506_0708_u64.to_be_bytes());
        whole.extend_from_slice(&[0; 8]);
        whole.extend_from_slice(&513_u32.to_be_bytes());
        let found = decode(&whole, None);
        assert_eq!((found.name, found.lba, found.block_count), ("READ(32)", Some(0x0102_0304_0506_0708), Some(513)));
        let cut = decode(&whole[..16], None);
        assert_eq!((cut.name, cut.lba, cut.block_count), ("READ(32)", None, None));
        whole[9] = 0x77;
        assert_eq!(decode(&whole, None).operation, Operation::Other);
    }

    #[test]
    fn a_service_action_belongs_to_operation_codes_that_have_one() {
        for (bytes, device_type, service_action, reservation_type) in [
            // PERSISTENT RESERVE OUT: REGISTER, RESERVE (Write Exclusive), PREEMPT (Exclusive Access - All Registrants)
            (&[0x5f, 0x00, 0x00][..], None, Some(0), Some(0)),
            (&[0x5f, 0x01, 0x01], None, Some(1), Some(1)),
            (&[0x5f, 0x04, 0x08], None, Some(4), Some(8)),
            (&[0x5f, 0xe6, 0xf3], None, Some(6), Some(3)),
            // READ KEYS, READ RESERVATION
            (&[0x5e, 0x00], None, Some(0), None),
            (&[0x5e, 0x01], None, Some(1), None),
            // REPORT TARGET PORT GROUPS with the extended header, an unknown MAINTENANCE OUT
            (&[0xa3, 0x2a], None, Some(0x0a), None),
            (&[0xa4, 0x1f], None, Some(0x1f), None),
            (&[0x9e, 0x10], Some(0), Some(0x10), None),
            (&[0x83, 0x10], None, Some(0x10), None),
            (&[0x9d, 0x05], None, Some(5), None),
            // READ POSITION of a tape, PRE-FETCH(10) of a disk
            (&[0x34, 0x06], Some(TAPE), Some(6), None),
            (&[0x34, 0x02], None, None, None),
            // SEND KEY of a CD
            (&[0xa3, 0x01], Some(CD), None, None),
            // READ(10), RESERVE(6), INQUIRY: the bits of byte 1 are others
            (&[0x28, 0x08], None, None, None),
            (&[0x16, 0x10], None, None, None),
            (&[0x12, 0x01], None, None, None),
            (&[0xc1, 0x01], None, None, None),
            // cut
            (&[0x5f], None, None, None),
            (&[0x5f, 0x01], None, Some(1), None),
            (&[0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0x00, 0x09], None, Some(9), None),
            (&[0x7f, 0, 0, 0, 0, 0, 0, 0x18, 0x00], None, None, None),
            (&[], None, None, None),
        ] {
            let found = decode(bytes, device_type);
            assert_eq!(found.service_action, service_action, "{bytes:02x?}");
            assert_eq!(found.reservation_type, reservation_type, "{bytes:02x?}");
        }
    }

    #[test]
    fn a_field_that_was_cut_is_unknown() {
        let read = [0x28, 0, 0, 1, 2, 3, 0, 0, 8, 0];
        for captured in 0..=read.len() {
            let found = decode(&read[..captured], None);
            assert_eq!(found.operation == Operation::Read, captured >= 1);
            assert_eq!(found.lba, (captured >= 6).then_some(0x0001_0203));
            assert_eq!(found.block_count, (captured >= 9).then_some(8));
        }
    }

    #[test]
    fn no_two_operations_share_a_name() {
        let names: std::collections::HashSet<&str> =
            Operation::ALL.iter().map(|operation| operation.as_str()).collect();
        assert_eq!(names.len(), Operation::ALL.len());
    }

    #[test]
    fn every_row_with_a_service_action_has_one() {
        for row in super::COMMANDS.iter().filter(|row| row.service_action.is_some()) {
            assert!(super::has_service_action(row.code, Some(row.device_type)), "{}", row.name);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_decode(cdb in proptest::collection::vec(any::<u8>(), 0..40), device_type: Option<u8>) {
            let found = decode(&cdb, device_type);
            prop_assert!(found.block_count.is_none() || found.operation != Operation::Other);
        }
    }
}
