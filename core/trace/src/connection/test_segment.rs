//! A segment for the tests of packets.

use iscsitrace_wire::frame::{Address, Segment, TcpFlags};

/// Four bytes with this IP identification and these TCP options.
pub(crate) fn segment(identification: Option<u16>, options: &[u8]) -> Segment<'_> {
    Segment {
        source: Address::v4([10, 0, 0, 1]),
        destination: Address::v4([10, 0, 0, 2]),
        source_port: 50_000,
        destination_port: 3260,
        sequence_number: 1,
        acknowledgment_number: 1,
        flags: TcpFlags(0x10),
        window: 100,
        options,
        payload: b"data",
        payload_length: 4,
        identification,
        is_dont_fragment: true,
        is_ip_length_zero: false,
        hop_limit: 64,
        traffic_class: 0,
    }
}
