//! Arbitrary bytes as a frame of each link type.

use iscsitrace_wire::frame::{LinkType, layers, segment, tcp_options};

const LINK_TYPES: [u16; 12] = [0, 1, 9, 12, 14, 101, 108, 113, 228, 229, 276, 999];

// | further bytes on the wire, 2 | frame ... |
pub fn run(data: &[u8]) {
    let Some((cut, captured)) = data.split_first_chunk::<2>() else { return };
    let length = captured.len() as u32;
    for original_length in [length, length.saturating_add(u16::from_be_bytes(*cut).into()), 0, u32::MAX] {
        for link_type in LINK_TYPES {
            let mut end = 0;
            let found = layers(LinkType(link_type), captured, original_length, |_, place| {
                assert_eq!(place.start, end);
                end = place.end;
            });
            assert!(end <= captured.len());
            assert_eq!(found, segment(LinkType(link_type), captured, original_length));
            let Ok(segment) = found else { continue };
            assert!(segment.payload.len() as u64 <= u64::from(segment.payload_length));
            assert!(u64::from(segment.payload_length) <= u64::from(original_length.max(length)));
            assert!(segment.payload.is_empty() || segment.payload.as_ptr() == captured[end..].as_ptr());
            let options = tcp_options(segment.options);
            assert!(options.window_scale.is_none_or(|scale| scale <= 14));
        }
    }
}
