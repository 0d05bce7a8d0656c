//! The fields of each PDU type, for the view and the builder, from one table.

use std::fmt;

use super::builder::BhsBuilder;
use super::layout::{FieldValue, LENGTH_BYTES, Layout, RESERVED_TAG, opcodes};
use super::view::Bhs;
use crate::opcode::Opcode;
use crate::serial::SerialNumber;

/// The one table of the layout: the bytes of each field and the PDU types that have it. It generates `Field`, the
/// view's accessors and the builder's setters.
macro_rules! layout {
    ($($(#[$doc:meta])* $field:ident $name:ident: $type:ty = $first:literal..$end:literal in [$($opcode:ident)*];)*) => {
        /// A field of whole bytes, in the PDU types that have it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Field { $($(#[$doc])* $field,)* }

        const LAYOUT: &[Layout] =
            &[$(Layout { first: $first, end: $end, opcodes: opcodes(&[$(Opcode::$opcode,)*]) },)*];

        impl Bhs<'_> {
            $($(#[$doc])*
            #[inline]
            #[must_use]
            pub fn $name(self) -> Option<$type> {
                self.field(Field::$field).and_then(<$type>::read)
            })*
        }

        impl BhsBuilder {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(self, value: $type) -> Self {
                self.set(LAYOUT[Field::$field as usize], value)
            })*
        }
    };
}

layout! {
    /// Logical Unit Number, where it is meaningful: always in SCSI Command and R2T, else as each section says.
    Lun lun: [u8; 8] = 8..16 in [ScsiCommand TaskManagementRequest DataOut DataIn ReadyToTransfer AsyncMessage
        TextRequest TextResponse SnackRequest NopOut NopIn];
    /// Initiator Task Tag; 0xffffffff in Asynchronous Message and Reject.
    InitiatorTaskTag initiator_task_tag: u32 = 16..20 in [NopOut ScsiCommand TaskManagementRequest LoginRequest
        TextRequest DataOut LogoutRequest SnackRequest NopIn ScsiResponse TaskManagementResponse LoginResponse
        TextResponse DataIn LogoutResponse ReadyToTransfer AsyncMessage Reject];
    /// Target Transfer Tag; 0xffffffff means none.
    TargetTransferTag target_transfer_tag: u32 = 20..24 in [DataOut DataIn ReadyToTransfer TextRequest TextResponse
        SnackRequest NopOut NopIn];
    /// CmdSN.
    CmdSn cmd_sn: SerialNumber = 24..28 in [ScsiCommand TaskManagementRequest TextRequest LoginRequest LogoutRequest
        NopOut];
    /// StatSN; in a Data-In only with the S bit. A R2T carries it without advancing it.
    StatSn stat_sn: SerialNumber = 24..28 in [ScsiResponse TaskManagementResponse DataIn ReadyToTransfer AsyncMessage
        TextResponse LoginResponse LogoutResponse Reject NopIn];
    /// ExpStatSN.
    ExpStatSn exp_stat_sn: SerialNumber = 28..32 in [ScsiCommand TaskManagementRequest DataOut TextRequest LoginRequest
        LogoutRequest SnackRequest NopOut];
    /// ExpCmdSN.
    ExpCmdSn exp_cmd_sn: SerialNumber = 28..32 in [ScsiResponse TaskManagementResponse DataIn ReadyToTransfer
        AsyncMessage TextResponse LoginResponse LogoutResponse Reject NopIn];
    /// MaxCmdSN.
    MaxCmdSn max_cmd_sn: SerialNumber = 32..36 in [ScsiResponse TaskManagementResponse DataIn ReadyToTransfer
        AsyncMessage TextResponse LoginResponse LogoutResponse Reject NopIn];
    /// DataSN of a Data-In or Data-Out; R2TSN of a R2T, which counts in the same place.
    DataSn data_sn: SerialNumber = 36..40 in [DataOut DataIn ReadyToTransfer];
    /// R2TSN of a R2T.
    R2tSn r2t_sn: SerialNumber = 36..40 in [ReadyToTransfer];
    /// ExpDataSN: how many Data-In and R2T PDUs the target sent, or which the initiator expects next.
    ExpDataSn exp_data_sn: SerialNumber = 36..40 in [ScsiResponse TaskManagementRequest];
    /// Buffer Offset, in bytes.
    BufferOffset buffer_offset: u32 = 40..44 in [DataOut DataIn ReadyToTransfer];
    /// Desired Data Transfer Length of a R2T, in bytes.
    DesiredDataTransferLength desired_data_transfer_length: u32 = 44..48 in [ReadyToTransfer];
    /// Expected Data Transfer Length of a SCSI Command, in bytes.
    ExpectedDataTransferLength expected_data_transfer_length: u32 = 20..24 in [ScsiCommand];
    /// The first 16 bytes of the SCSI Command Descriptor Block.
    Cdb cdb: [u8; 16] = 32..48 in [ScsiCommand];
    /// Response of a SCSI Response, Task Management Function Response or Logout Response.
    Response response: u8 = 2..3 in [ScsiResponse TaskManagementResponse LogoutResponse];
    /// SCSI status: of a SCSI Response whose task completed at the target, or of a Data-In with the S bit.
    Status status: u8 = 3..4 in [ScsiResponse DataIn];
    /// SNACK Tag of a SCSI Response.
    SnackTag snack_tag: u32 = 20..24 in [ScsiResponse];
    /// Bidirectional Read Residual Count, in bytes.
    BidirectionalReadResidualCount bidirectional_read_residual_count: u32 = 40..44 in [ScsiResponse];
    /// Residual Count, in bytes; in a Data-In only with the S bit.
    ResidualCount residual_count: u32 = 44..48 in [ScsiResponse DataIn];
    /// Version-max.
    VersionMax version_max: u8 = 2..3 in [LoginRequest LoginResponse];
    /// Version-min.
    VersionMin version_min: u8 = 3..4 in [LoginRequest];
    /// Version-active.
    VersionActive version_active: u8 = 3..4 in [LoginResponse];
    /// ISID, the initiator's part of the session identifier.
    Isid isid: [u8; 6] = 8..14 in [LoginRequest LoginResponse];
    /// TSIH, the target's session identifying handle.
    Tsih tsih: u16 = 14..16 in [LoginRequest LoginResponse];
    /// CID, the connection's number in its session.
    Cid cid: u16 = 20..22 in [LoginRequest LogoutRequest];
    /// Status-Class of a Login Response.
    StatusClass status_class: u8 = 36..37 in [LoginResponse];
    /// Status-Detail of a Login Response.
    StatusDetail status_detail: u8 = 37..38 in [LoginResponse];
    /// Referenced Task Tag of a Task Management Function Request.
    ReferencedTaskTag referenced_task_tag: u32 = 20..24 in [TaskManagementRequest];
    /// RefCmdSN of a Task Management Function Request.
    RefCmdSn ref_cmd_sn: SerialNumber = 32..36 in [TaskManagementRequest];
    /// Time2Wait of a Logout Response, in seconds.
    Time2Wait time2wait: u16 = 40..42 in [LogoutResponse];
    /// Time2Retain of a Logout Response, in seconds.
    Time2Retain time2retain: u16 = 42..44 in [LogoutResponse];
    /// BegRun of a SNACK Request.
    BegRun beg_run: SerialNumber = 40..44 in [SnackRequest];
    /// RunLength of a SNACK Request.
    RunLength run_length: u32 = 44..48 in [SnackRequest];
    /// AsyncEvent.
    AsyncEvent async_event: u8 = 36..37 in [AsyncMessage];
    /// AsyncVCode.
    AsyncVcode async_vcode: u8 = 37..38 in [AsyncMessage];
    /// Parameter1 of an Asynchronous Message.
    Parameter1 parameter1: u16 = 38..40 in [AsyncMessage];
    /// Parameter2 of an Asynchronous Message.
    Parameter2 parameter2: u16 = 40..42 in [AsyncMessage];
    /// Parameter3 of an Asynchronous Message.
    Parameter3 parameter3: u16 = 42..44 in [AsyncMessage];
    /// Reason of a Reject.
    RejectReason reject_reason: u8 = 2..3 in [Reject];
}

/// The bits of byte 1: the table for fields smaller than a byte.
macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident: $type:ident = $mask:literal >> $shift:literal $(if $condition:ident)?
        in [$($opcode:ident)*];)*) => {
        impl Bhs<'_> {
            $($(#[$doc])*
            #[inline]
            #[must_use]
            pub fn $name(self) -> Option<$type> {
                let byte = self.flags_byte(opcodes(&[$(Opcode::$opcode,)*]))?;
                $(self.$condition().filter(|is_met| *is_met)?;)?
                bits!(@read $type, (byte & $mask) >> $shift)
            })*
        }

        impl BhsBuilder {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(self, value: $type) -> Self {
                self.set_flags(opcodes(&[$(Opcode::$opcode,)*]), $mask, u8::from(value) << $shift)
            })*
        }
    };
    (@read bool, $value:expr) => { Some($value != 0) };
    (@read u8, $value:expr) => { Some($value) };
}

bits! {
    /// F bit: the last, or only, PDU of a sequence; fixed at 1 where there are no sequences. Login PDUs have none.
    is_final: bool = 0x80 >> 7 in [NopOut ScsiCommand TaskManagementRequest TextRequest DataOut LogoutRequest
        SnackRequest NopIn ScsiResponse TaskManagementResponse TextResponse DataIn LogoutResponse ReadyToTransfer
        AsyncMessage Reject];
    /// C bit: the text goes on in the next PDU.
    is_continue: bool = 0x40 >> 6 in [TextRequest TextResponse LoginRequest LoginResponse];
    /// T bit: ready to pass to the next login stage.
    is_transit: bool = 0x80 >> 7 in [LoginRequest LoginResponse];
    /// CSG: 0 security negotiation, 1 operational negotiation, 3 full feature phase.
    current_stage: u8 = 0x0c >> 2 in [LoginRequest LoginResponse];
    /// NSG, as CSG; only with the T bit.
    next_stage: u8 = 0x03 >> 0 if is_transit in [LoginRequest LoginResponse];
    /// R bit: the command expects input data.
    is_read: bool = 0x40 >> 6 in [ScsiCommand];
    /// W bit: the command expects output data.
    is_write: bool = 0x20 >> 5 in [ScsiCommand];
    /// ATTR: 0 untagged, 1 simple, 2 ordered, 3 head of queue, 4 ACA.
    task_attribute: u8 = 0x07 >> 0 in [ScsiCommand];
    /// A bit of a Data-In: the target asks for a DataACK SNACK.
    is_acknowledge_requested: bool = 0x40 >> 6 in [DataIn];
    /// S bit of a Data-In: it carries the command's status.
    has_status: bool = 0x01 >> 0 in [DataIn];
    /// O bit: Residual Count bytes could not be transferred.
    is_overflow: bool = 0x04 >> 2 in [ScsiResponse DataIn];
    /// U bit: Residual Count bytes were not transferred.
    is_underflow: bool = 0x02 >> 1 in [ScsiResponse DataIn];
    /// o bit: overflow of a bidirectional command's read part.
    is_bidirectional_read_overflow: bool = 0x10 >> 4 in [ScsiResponse];
    /// u bit: underflow of a bidirectional command's read part.
    is_bidirectional_read_underflow: bool = 0x08 >> 3 in [ScsiResponse];
    /// Function of a Task Management Function Request.
    function: u8 = 0x7f >> 0 in [TaskManagementRequest];
    /// Reason Code of a Logout Request.
    logout_reason: u8 = 0x7f >> 0 in [LogoutRequest];
    /// Type of a SNACK Request: 0 Data/R2T, 1 Status, 2 DataACK, 3 R-Data.
    snack_type: u8 = 0x0f >> 0 in [SnackRequest];
}

/// The byte after the last of `field` in PDUs of type `opcode`; `None` if that type has no such field.
///
/// It distinguishes a field that the snaplen cut away from one that does not exist. Whether the LUN of a Data-Out, NOP
/// or Text PDU is meaningful is only known with the Target Transfer Tag after it.
#[inline]
#[must_use]
pub fn field_end(opcode: Opcode, field: Field) -> Option<u8> {
    let layout = LAYOUT[field as usize];
    (layout.opcodes & opcodes(&[opcode]) != 0).then_some(layout.end)
}

impl<'a> Bhs<'a> {
    /// The header, as far as it was captured, with zeros where its PDU type has no field; of an unknown type all but the
    /// lengths.
    #[must_use]
    pub fn fields_alone(self) -> Vec<u8> {
        let mut alone = vec![0; self.as_bytes().len()];
        let common = Layout { first: 0, end: 2, opcodes: u64::MAX };
        let lengths = Layout { first: 4, end: 8, opcodes: u64::MAX };
        let own = LAYOUT.iter().copied().filter(|layout| self.has_opcode_in(layout.opcodes));
        for layout in own.chain([common, lengths]) {
            let (first, end) = (usize::from(layout.first), usize::from(layout.end).min(alone.len()));
            if first < end {
                alone[first..end].copy_from_slice(&self.as_bytes()[first..end]);
            }
        }
        alone
    }

    /// Whether a PDU of the target uses up a StatSN: a R2T, a NOP-In of the target's own and a Data-In without status do not
    /// (RFC 7143 section 4.2.2.2).
    #[inline]
    #[must_use]
    pub fn uses_stat_sn(self) -> bool {
        match self.opcode() {
            Some(Opcode::ReadyToTransfer) | None => false,
            Some(Opcode::DataIn) => self.has_status() == Some(true),
            Some(Opcode::NopIn) => self.initiator_task_tag().is_some_and(|tag| tag != RESERVED_TAG),
            Some(opcode) => !opcode.is_initiator(),
        }
    }

    #[inline(always)]
    fn field(self, field: Field) -> Option<&'a [u8]> {
        let layout = LAYOUT[field as usize];
        if !self.has_opcode_in(layout.opcodes) || !self.is_meaningful(field) {
            return None;
        }
        self.bytes_of(layout)
    }

    /// False if the RFC reserves a field because of another field of the same PDU.
    #[inline(always)]
    fn is_meaningful(self, field: Field) -> bool {
        match field {
            Field::Lun => self.is_lun_meaningful(),
            // Section 11.7.3: only with the S bit.
            Field::StatSn | Field::ResidualCount => self.has_status().unwrap_or(true),
            // Section 11.4.2: only of a command completed at the target, which is response 0.
            Field::Status => self.has_status().or(self.response().map(|response| response == 0)).unwrap_or(false),
            _ => true,
        }
    }

    #[inline]
    fn is_lun_meaningful(self) -> bool {
        match self.opcode() {
            Some(Opcode::ScsiCommand | Opcode::ReadyToTransfer) => true,
            Some(Opcode::DataIn) => self.is_acknowledge_requested() == Some(true),
            // Functions that address one logical unit: ABORT TASK to LOGICAL UNIT RESET (section 11.5.3), QUERY TASK,
            // QUERY TASK SET and QUERY ASYNCHRONOUS EVENT (RFC 7144).
            Some(Opcode::TaskManagementRequest) => matches!(self.function(), Some(1..=5 | 9 | 10 | 12)),
            // A DataACK echoes the LUN of the Data-In that asked for it.
            Some(Opcode::SnackRequest) => self.snack_type() == Some(2),
            // A SCSI event, or the termination of a logical unit's tasks.
            Some(Opcode::AsyncMessage) => matches!(self.async_event(), Some(0 | 5)),
            // With a Target Transfer Tag, whose number space is the logical unit's.
            _ => self.target_transfer_tag().is_some_and(|tag| tag != RESERVED_TAG),
        }
    }
}

impl fmt::Display for Bhs<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.opcode(), self.opcode_byte()) {
            (Some(opcode), _) => formatter.write_str(opcode.name())?,
            (None, Some(byte)) => write!(formatter, "unknown opcode 0x{:02x}", byte & 0x3f)?,
            (None, None) => return formatter.write_str("empty header"),
        }
        if let Some(tag) = self.initiator_task_tag() {
            write!(formatter, " ITT 0x{tag:08x}")?;
        }
        if let Some(length) = self.data_segment_length() {
            write!(formatter, " DSL {length}")?;
        }
        let flags = [
            ("I", self.is_immediate()),
            ("F", self.is_final()),
            ("T", self.is_transit()),
            ("C", self.is_continue()),
            ("R", self.is_read()),
            ("W", self.is_write()),
            ("A", self.is_acknowledge_requested()),
            ("O", self.is_overflow()),
            ("U", self.is_underflow()),
            ("S", self.has_status()),
        ];
        for (flag, _) in flags.iter().filter(|(_, is_set)| *is_set == Some(true)) {
            write!(formatter, " {flag}")?;
        }
        if self.as_bytes().len() < LENGTH_BYTES {
            write!(formatter, " (cut after {} of 48 bytes)", self.as_bytes().len())?;
        }
        Ok(())
    }
}
