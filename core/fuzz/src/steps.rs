//! Bytes -> a conversation, and damages of its packets: what several targets make of their input.

use std::sync::OnceLock;

use crate::conversation::{Conversation, Damage, Settings, everything};

/// Maximum damages.
const DAMAGES_MAX: usize = 64;

/// One with each choice of digests, and one over two connections.
pub fn conversation(which: u8) -> &'static Conversation {
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

/// The damages that steps of five bytes choose: | what 1 | where 2 | how much 2 |.
pub fn damages(steps: &[u8]) -> Vec<Damage> {
    steps
        .chunks_exact(5)
        .take(DAMAGES_MAX)
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
        .collect()
}
