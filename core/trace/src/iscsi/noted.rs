//! What a pass notes of the streams for whoever rewrites them: the bytes of each PDU, and where stream offsets begin.
//!
//! Nothing is noted unless it is asked for. Only bytes that the pass itself reads are copied.

use iscsitrace_wire::bhs::LENGTH_BYTES;
use iscsitrace_wire::parameter_data::ParameterData;

use super::pdu::Pdu;

/// A note.
#[derive(Debug, Clone)]
pub enum Note {
    /// A PDU with a decoded header.
    Pdu(NotedPdu),
    /// The digest of the last data of a direction, found when its PDU had been noted.
    LateDigest {
        /// Number of the connection.
        connection: u32,
        /// Its direction.
        to_target: bool,
        /// Its stream offset.
        offset: i64,
    },
    /// A header that was cut away before its task tag, and assumed rightly.
    Assumed {
        /// Number of the connection.
        connection: u32,
        /// Its direction.
        to_target: bool,
        /// Stream offset of its first byte.
        offset: i64,
        /// What was captured of it.
        header: Box<[u8]>,
    },
    /// From this frame on, the stream of a TCP direction continues elsewhere.
    Restart {
        /// Number of the connection.
        connection: u32,
        /// 0 from the client, 1 from the server.
        direction: usize,
        /// The first frame there.
        frame: u64,
        /// The stream offset of the next byte.
        offset: i64,
        /// The sequence number of offset 0 until then.
        base: Option<u32>,
    },
    /// An iSCSI connection was closed.
    Closed {
        /// Its number.
        connection: u32,
        /// Whether the TCP client is the initiator.
        is_client_initiator: bool,
        /// The sequence numbers of offset 0, from the client and from the server.
        bases: [Option<u32>; 2],
    },
}

/// A PDU, as [`Pdu`] has it, with copies of its bytes.
#[derive(Debug, Clone)]
pub struct NotedPdu {
    /// Number of the connection.
    pub connection: u32,
    /// Its direction.
    pub to_target: bool,
    /// The basic header segment, as far as it was captured.
    pub header: Box<[u8]>,
    /// The data segment from its first byte, as far as it is kept.
    pub data: Box<[u8]>,
    /// Stream offset of its first byte.
    pub offset: i64,
    /// Stream offset after its last byte.
    pub end: i64,
    /// Stream offset after its data segment.
    pub data_end: i64,
    /// Whether its header digest matches, if that is known.
    pub header_digest_ok: Option<bool>,
    /// Whether its data digest matches, if that is known.
    pub data_digest_ok: Option<bool>,
    /// What a Data-In says of a logical unit.
    pub describes: Option<ParameterData>,
}

impl NotedPdu {
    pub(super) fn new(pdu: &Pdu<'_>, connection: u32, to_target: bool, describes: Option<ParameterData>) -> Self {
        Self {
            connection,
            to_target,
            header: pdu.header[..pdu.header.len().min(LENGTH_BYTES)].into(),
            data: pdu.data.into(),
            offset: pdu.offset,
            end: pdu.end,
            data_end: pdu.data_end,
            header_digest_ok: pdu.header_digest_ok,
            data_digest_ok: pdu.data_digest_ok,
            describes,
        }
    }
}
