//! A small conversation with packets damaged by the input, through the whole pass.
#![no_main]

#[path = "../../trace/tests/conversation/mod.rs"]
mod conversation;

use std::sync::OnceLock;

use conversation::{Conversation, Damage, Settings, check, damage, everything, time_ns};
use iscsitrace_trace::pipeline::Pipeline;
use iscsitrace_trace::reader::Packet;
use iscsitrace_trace::tables::Wanted;
use iscsitrace_wire::frame::LinkType;
use libfuzzer_sys::fuzz_target;

/// One with each choice of digests, and one over two connections.
fn conversation(which: u8) -> &'static Conversation {
    static CONVERSATIONS: OnceLock<Vec<Conversation>> = OnceLock::new();
    let conversations = CONVERSATIONS.get_or_init(|| {
        (0..8)
            .map(|choice| {
                everything(Settings {
                    has_header_digest: choice & 1 != 0,
                    has_data_digest: choice & 2 != 0,
                    connection_count: 1 + usize::from(choice & 4 != 0),
                })
            })
            .collect()
    });
    &conversations[usize::from(which & 7)]
}

// | which | then damages: | what 1 | where 2 | how much 2 |
fuzz_target!(|data: &[u8]| {
    let Some((&which, steps)) = data.split_first() else { return };
    let conversation = conversation(which);
    let damages: Vec<Damage> = steps
        .chunks_exact(5)
        .take(64)
        .map(|step| {
            let place = usize::from(u16::from_be_bytes([step[1], step[2]]));
            let amount = usize::from(u16::from_be_bytes([step[3], step[4]]));
            match step[0] % 5 {
                0 => Damage::Drop(place, amount % 256),
                1 => Damage::Duplicate(place, amount),
                2 => Damage::Delay(place, amount % 256),
                3 => Damage::Cut(place, amount % 1024),
                _ => Damage::Flip(place, amount),
            }
        })
        .collect();
    let mut pipeline = Pipeline::new(Wanted::ALL);
    let packets = damage(conversation, &damages);
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
});
