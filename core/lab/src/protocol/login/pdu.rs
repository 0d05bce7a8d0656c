//! Login Request and Login Response (RFC 7143 sections 11.12 and 11.13), without tags and sequence numbers.
//!
//! Fields hold the values on the wire, legal or not: the state machines check them.

use iscsitrace_wire::bhs::{Bhs, BhsBuilder};
use iscsitrace_wire::login_status::LoginStatus;
use iscsitrace_wire::opcode::Opcode;

/// Most requests or responses of one login.
pub(super) const ROUNDS_MAX: usize = 128;

/// The only version of the protocol (RFC 7143 section 11.12.4).
pub const VERSION: u8 = 0;

/// A stage of the connection (RFC 7143 section 11.12.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// SecurityNegotiation.
    SecurityNegotiation = 0,
    /// LoginOperationalNegotiation.
    LoginOperationalNegotiation = 1,
    /// FullFeaturePhase.
    FullFeaturePhase = 3,
}

impl Stage {
    /// The stage of a CSG or NSG field; 2 is reserved.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Stage> {
        match bits {
            0 => Some(Stage::SecurityNegotiation),
            1 => Some(Stage::LoginOperationalNegotiation),
            3 => Some(Stage::FullFeaturePhase),
            _ => None,
        }
    }

    /// Its code in CSG and NSG.
    #[must_use]
    pub fn bits(self) -> u8 {
        self as u8
    }

    /// Name in the RFC.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::SecurityNegotiation => "SecurityNegotiation",
            Stage::LoginOperationalNegotiation => "LoginOperationalNegotiation",
            Stage::FullFeaturePhase => "FullFeaturePhase",
        }
    }
}

/// A Login Request.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct LoginRequest {
    /// T bit.
    pub is_transit: bool,
    /// C bit: the text continues in the next PDU.
    pub is_continue: bool,
    /// CSG.
    pub current_stage: u8,
    /// NSG.
    pub next_stage: u8,
    /// Version-max.
    pub version_max: u8,
    /// Version-min.
    pub version_min: u8,
    /// ISID.
    pub isid: [u8; 6],
    /// TSIH: 0 for a new session.
    pub tsih: u16,
    /// CID.
    pub cid: u16,
    /// The data segment, without padding.
    pub data: Vec<u8>,
}

/// A Login Response.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct LoginResponse {
    /// T bit.
    pub is_transit: bool,
    /// C bit: the text continues in the next PDU.
    pub is_continue: bool,
    /// CSG.
    pub current_stage: u8,
    /// NSG.
    pub next_stage: u8,
    /// Version-max.
    pub version_max: u8,
    /// Version-active.
    pub version_active: u8,
    /// ISID.
    pub isid: [u8; 6],
    /// TSIH.
    pub tsih: u16,
    /// Status-Class and Status-Detail.
    pub status: LoginStatus,
    /// The data segment, without padding.
    pub data: Vec<u8>,
}

impl LoginRequest {
    /// Parses a header and its data segment; none when it is no complete Login Request.
    #[must_use]
    pub fn read(header: Bhs<'_>, data: Vec<u8>) -> Option<LoginRequest> {
        Some(LoginRequest {
            is_transit: header.is_transit()?,
            is_continue: header.is_continue()?,
            current_stage: header.current_stage()?,
            next_stage: header.next_stage().unwrap_or(0),
            version_max: header.version_max()?,
            version_min: header.version_min()?,
            isid: header.isid()?,
            tsih: header.tsih()?,
            cid: header.cid()?,
            data,
        })
    }

    /// The header, without Initiator Task Tag, CmdSN and ExpStatSN, which the caller adds.
    #[must_use]
    pub fn header(&self) -> BhsBuilder {
        BhsBuilder::new(Opcode::LoginRequest)
            .is_transit(self.is_transit)
            .is_continue(self.is_continue)
            .current_stage(self.current_stage)
            .next_stage(self.next_stage)
            .version_max(self.version_max)
            .version_min(self.version_min)
            .isid(self.isid)
            .tsih(self.tsih)
            .cid(self.cid)
            .data_segment_length(u32::try_from(self.data.len()).unwrap_or(u32::MAX))
    }
}

impl LoginResponse {
    /// Parses a header and its data segment; none when it is no complete Login Response.
    #[must_use]
    pub fn read(header: Bhs<'_>, data: Vec<u8>) -> Option<LoginResponse> {
        Some(LoginResponse {
            is_transit: header.is_transit()?,
            is_continue: header.is_continue()?,
            current_stage: header.current_stage()?,
            next_stage: header.next_stage().unwrap_or(0),
            version_max: header.version_max()?,
            version_active: header.version_active()?,
            isid: header.isid()?,
            tsih: header.tsih()?,
            status: LoginStatus::from_codes(header.status_class()?, header.status_detail()?),
            data,
        })
    }

    /// The header, without Initiator Task Tag, StatSN, ExpCmdSN and MaxCmdSN, which the caller adds.
    #[must_use]
    pub fn header(&self) -> BhsBuilder {
        let (status_class, status_detail) = self.status.codes();
        BhsBuilder::new(Opcode::LoginResponse)
            .is_transit(self.is_transit)
            .is_continue(self.is_continue)
            .current_stage(self.current_stage)
            .next_stage(self.next_stage)
            .version_max(self.version_max)
            .version_active(self.version_active)
            .isid(self.isid)
            .tsih(self.tsih)
            .status_class(status_class)
            .status_detail(status_detail)
            .data_segment_length(u32::try_from(self.data.len()).unwrap_or(u32::MAX))
    }
}

/// The flags in short form; of the text, which may hold secrets, only the length.
macro_rules! debug_without_text {
    ($($type:ident)*) => {$(
        impl std::fmt::Debug for $type {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter
                    .debug_struct(stringify!($type))
                    .field("is_transit", &self.is_transit)
                    .field("is_continue", &self.is_continue)
                    .field("current_stage", &self.current_stage)
                    .field("next_stage", &self.next_stage)
                    .field("tsih", &self.tsih)
                    .field("data_bytes", &self.data.len())
                    .finish_non_exhaustive()
            }
        }
    )*};
}
debug_without_text!(LoginRequest LoginResponse);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_responses_go_over_the_wire() {
        let request = LoginRequest {
            is_transit: true,
            current_stage: 0,
            next_stage: 1,
            version_max: 2,
            version_min: 1,
            isid: [0x80, 1, 2, 3, 4, 5],
            tsih: 0x1234,
            cid: 7,
            data: b"A=1\0".to_vec(),
            ..LoginRequest::default()
        };
        let header = request.header().build();
        assert_eq!(header[0], 0x43);
        assert_eq!(header[1], 0x81);
        assert_eq!(header[2..4], [2, 1]);
        assert_eq!(header[5..8], [0, 0, 4]);
        assert_eq!(header[8..16], [0x80, 1, 2, 3, 4, 5, 0x12, 0x34]);
        assert_eq!(header[20..22], [0, 7]);
        assert_eq!(LoginRequest::read(Bhs::new(&header), request.data.clone()), Some(request.clone()));
        assert_eq!(LoginResponse::read(Bhs::new(&header), Vec::new()), None);
        let response = LoginResponse {
            is_continue: true,
            current_stage: 1,
            next_stage: 0,
            status: LoginStatus::MissingParameter,
            ..LoginResponse::default()
        };
        let header = response.header().build();
        assert_eq!(header[0..2], [0x23, 0x44]);
        assert_eq!(header[36..38], [2, 7]);
        assert_eq!(LoginResponse::read(Bhs::new(&header), Vec::new()), Some(response));
    }

    #[test]
    fn text_is_not_shown() {
        let request = LoginRequest { data: b"CHAP_R=0x1234\0".to_vec(), ..LoginRequest::default() };
        assert!(!format!("{request:?}").contains("CHAP"));
    }
}
