//! A small conversation with packets damaged by the input, through the whole pass.

use crate::conversation::{check, damage, time_ns};
use crate::steps::{conversation, damages};
use iscsitrace_trace::pipeline::Pipeline;
use iscsitrace_trace::reader::Packet;
use iscsitrace_trace::tables::Wanted;
use iscsitrace_wire::frame::LinkType;

// | which | then damages: | what 1 | where 2 | how much 2 |
pub fn run(data: &[u8]) {
    let Some((&which, steps)) = data.split_first() else { return };
    let mut pipeline = Pipeline::new(Wanted::ALL);
    let packets = damage(conversation(which), &damages(steps));
    for (place, packet) in packets.iter().enumerate() {
        pipeline.packet(&Packet {
            frame: place as u64 + 1,
            time_ns: time_ns(place),
            link_type: LinkType::ETHERNET,
            interface: 0,
            original_length: packet.frame.len() as u32,
            data: &packet.frame[..packet.kept_bytes],
        });
    }
    let mut tables = pipeline.finish();
    assert!(tables.cycles.cycle.len() <= packets.len() && tables.segments.frame.len() <= packets.len());
    check(&mut tables).unwrap_or_else(|wrong| panic!("{wrong}"));
}
