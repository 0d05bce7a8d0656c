//! A small conversation with times from the input, through the live pass: it ends, after a bounded number of intervals.

use std::io::Cursor;
use std::sync::OnceLock;
use std::time::Duration;

use crate::conversation::{Conversation, Settings as ScriptSettings, everything};
use iscsitrace_trace::live::view::View;
use iscsitrace_trace::live::{Live, Origin, Settings, Step};
use iscsitrace_wire::capture_writer::PcapngWriter;
use iscsitrace_wire::frame::LinkType;

const START_NS: i64 = 1_700_000_000_000_000_000;
/// A pause of more intervals than this is one interval (`live`).
const INTERVALS_AT_ONCE_MAX: usize = 60;
const PACKETS: usize = 40;
/// Times at which arithmetic on them could fail.
const EXTREMES: [i64; 8] =
    [0, 1, i64::MAX, i64::MAX - 1, i64::MIN, -1, (1 << 32) * 1_000_000_000, START_NS + 100 * 365 * 86_400_000_000_000];

fn conversation() -> &'static Conversation {
    static CONVERSATION: OnceLock<Conversation> = OnceLock::new();
    CONVERSATION.get_or_init(|| {
        everything(ScriptSettings { has_header_digest: false, has_data_digest: false, connection_count: 2 })
    })
}

/// The time of the next packet, from 1970 on: one byte chooses how, the next seven are an amount.
fn time_ns(step: &[u8; 8], last_ns: i64) -> i64 {
    let amount = i64::from_be_bytes(*step) & 0x00FF_FFFF_FFFF_FFFF;
    let time_ns = match step[0] % 8 {
        0 => amount << 7,
        1 => EXTREMES[amount as usize % EXTREMES.len()],
        2 => last_ns.saturating_sub(amount),
        3 => last_ns.saturating_add(amount),
        // hours, seconds, milliseconds
        4 => last_ns.saturating_add(amount % 10_000_000_000_000),
        5 => last_ns.saturating_add(amount % 5_000_000_000),
        _ => last_ns.saturating_add(amount % 2_000_000),
    };
    time_ns.max(0)
}

// | interval 1 | keep 1 | then for each packet: 8 |
pub fn run(data: &[u8]) {
    let Some((&[interval, keep], steps)) = data.split_first_chunk::<2>() else { return };
    let mut writer = PcapngWriter::new(Vec::new(), "fuzz").expect("a vector can be written");
    let interface = writer.add_interface(LinkType::ETHERNET, 0, "eth0").expect("a vector can be written");
    let mut last_ns = START_NS;
    let (times, _) = steps.as_chunks::<8>();
    // few enough for the most intervals in a second
    let packets = &conversation().packets[..PACKETS];
    for (place, packet) in packets.iter().enumerate() {
        last_ns =
            times.get(place % times.len().max(1)).map_or(last_ns.saturating_add(1000), |step| time_ns(step, last_ns));
        writer.packet(interface, last_ns, packet.frame.len() as u32, &packet.frame, None).expect("a packet");
    }
    let file = writer.finish().expect("a vector can be written");
    let interval_ns = 10_000_000 << (interval % 12);
    let settings =
        Settings { interval_ns, keep_ns: interval_ns << (keep % 5), clock_after: None, ..Settings::default() };
    let mut live =
        Live::start(Origin::Reader("fuzz".to_owned(), Box::new(Cursor::new(file))), settings).expect("a capture");
    let mut views: Vec<View> = Vec::new();
    loop {
        match live.advance(Duration::from_secs(10)).expect("a capture") {
            Step::Look => views.push(live.look()),
            Step::Nothing => {}
            Step::End => break,
        }
        assert!(views.len() <= (packets.len() + 1) * (INTERVALS_AT_ONCE_MAX + 1), "{} intervals", views.len());
    }
    views.push(live.finish());
    assert!(views.iter().all(|view| view.from_ns <= view.to_ns));
    let commands: usize = views.iter().map(|view| view.outcome.tables.cycles.cycle.len()).sum();
    assert!(commands <= packets.len(), "{commands} commands of {} packets", packets.len());
}
