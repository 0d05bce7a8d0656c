//! Known conversations, damaged, compared with the reader's results; and inputs made to exhaust it.
//!
//! Everything found must be true, everything that survived must be found, and everything missing must be counted.

mod conversation;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::io::Cursor;

use conversation::{
    Captured, Conversation, Damage, Script, SentCycle, Settings, TARGET_PORT, check, damage, everything,
    everything_within_itself, frame, pcapng, time_ns,
};
use iscsitrace_trace::pass::{Selection, run};
use iscsitrace_trace::pipeline::Pipeline;
use iscsitrace_trace::reader::{Input, Packet};
use iscsitrace_trace::tables::{NULL_NS, NULL_U32, Tables, Wanted};
use iscsitrace_wire::bhs::BhsBuilder;
use iscsitrace_wire::frame::LinkType;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, RngSeed, TestRunner};

/// The same cases every time.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(7143),
        rng_algorithm: RngAlgorithm::ChaCha,
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    }
}

/// Reads the bytes of a file.
fn read(packets: &[Captured]) -> Tables {
    let input = Input::Reader { name: "test".to_owned(), reader: Box::new(Cursor::new(pcapng(packets))) };
    let wanted = Wanted::ALL;
    let outcome = run(vec![input], &Selection::default(), wanted, |_| Ok::<(), Infallible>(()));
    outcome.expect("a capture").tables
}

/// The best that a reader could know: when each packet came first, and where each stream begins.
struct Truth<'a> {
    conversation: &'a Conversation,
    /// Position in the capture of the first copy of each packet.
    came: HashMap<usize, usize>,
    /// Stream offset of the first byte that the capture shows, by connection and direction.
    bases: HashMap<(usize, bool), i64>,
}

impl<'a> Truth<'a> {
    fn new(conversation: &'a Conversation, packets: &[Captured]) -> Self {
        let (mut came, mut bases) = (HashMap::new(), HashMap::new());
        for (place, packet) in packets.iter().enumerate() {
            came.entry(packet.sent).or_insert(place);
            let sent = &conversation.packets[packet.sent];
            bases.entry((sent.connection, sent.to_target)).or_insert(sent.stream_offset);
            if let Some(acknowledged) = sent.acknowledged {
                bases.entry((sent.connection, !sent.to_target)).or_insert(acknowledged);
            }
        }
        Self { conversation, came, bases }
    }

    /// Time of the first byte of a PDU, if captured.
    fn first_ns(&self, pdu: usize) -> Option<i64> {
        self.conversation.pdus[pdu]
            .packets
            .first()
            .and_then(|packet| self.came.get(packet))
            .map(|&place| time_ns(place))
    }

    /// Times of the captured packets of a PDU.
    fn came_ns(&self, pdu: usize) -> impl Iterator<Item = i64> {
        self.conversation.pdus[pdu]
            .packets
            .iter()
            .filter_map(|packet| self.came.get(packet))
            .map(|&place| time_ns(place))
    }

    /// Time when all bytes of a PDU had come, if they all did.
    fn last_ns(&self, pdu: usize) -> Option<i64> {
        let places: Option<Vec<_>> =
            self.conversation.pdus[pdu].packets.iter().map(|packet| self.came.get(packet)).collect();
        places?.into_iter().max().map(|&place| time_ns(place))
    }

    /// Whether every packet of a cycle was captured.
    fn is_whole(&self, cycle: &SentCycle) -> bool {
        pdus_of(cycle).all(|pdu| self.last_ns(pdu).is_some())
    }

    fn has_lost_bytes(&self) -> bool {
        self.conversation
            .packets
            .iter()
            .enumerate()
            .any(|(at, packet)| packet.payload_bytes > 0 && !self.came.contains_key(&at))
    }
}

fn pdus_of(cycle: &SentCycle) -> impl Iterator<Item = usize> {
    let own = [cycle.command, cycle.status];
    own.into_iter().chain(cycle.ready_to_transfers.iter().copied()).chain(cycle.data.iter().copied())
}

/// Connection of the conversation, by number in the tables.
fn connection_numbers(tables: &Tables) -> HashMap<u32, usize> {
    let connections = &tables.connections;
    (0..connections.connection.len())
        .map(|row| {
            let (initiator, target) = (connections.initiator_port[row], connections.target_port[row]);
            let client = if initiator == TARGET_PORT { target } else { initiator };
            (connections.connection[row], usize::from(client) - 50_000)
        })
        .collect()
}

/// Every PDU, cycle and instant in the tables was in the conversation.
fn everything_found_is_true(truth: &Truth<'_>, tables: &Tables) -> Result<(), TestCaseError> {
    let conversation = truth.conversation;
    let numbers = connection_numbers(tables);
    let sent: HashMap<_, _> = (0..)
        .zip(&conversation.pdus)
        .map(|(place, pdu)| ((pdu.connection, pdu.to_target, pdu.stream_offset), place))
        .collect();
    let pdus = &tables.pdus;
    let mut seen = HashSet::new();
    for row in 0..pdus.opcode.len() {
        let connection = numbers[&pdus.connection[row]];
        let to_target = pdus.to_target[row];
        let offset = pdus.stream_offset_bytes[row] + truth.bases[&(connection, to_target)];
        let place = sent.get(&(connection, to_target, offset));
        prop_assert!(place.is_some(), "PDU row {row}: opcode {:#x} at {offset} is invented", pdus.opcode[row]);
        let place = place.copied().unwrap_or_default();
        prop_assert!(seen.insert(place), "PDU row {row} was there once");
        let pdu = &conversation.pdus[place];
        prop_assert_eq!(pdus.opcode[row], pdu.opcode.as_u8());
        if pdus.header_bytes[row] >= 20 {
            prop_assert_eq!(pdus.initiator_task_tag[row], pdu.initiator_task_tag);
        }
        prop_assert_eq!(Some(pdus.time_first_ns[row]), truth.first_ns(place));
        let last_ns = pdus.time_last_ns[row];
        let connections = &tables.connections;
        let at = connections.connection.iter().position(|&number| number == pdus.connection[row]).unwrap_or_default();
        let has_cut = connections.cut_bytes_to_target[at] + connections.cut_bytes_to_initiator[at] > 0;
        // if the login's text was cut away, it is inferred whether a digest ends the PDU
        let is_end_inferred = has_cut && connections.digest_source[at] != 0;
        if pdus.has_capture_gap[row] || is_end_inferred {
            // bytes within it are missing, or came after the hole was abandoned: its end can be known nevertheless
            prop_assert!(
                last_ns == NULL_NS || truth.came_ns(place).any(|came_ns| came_ns == last_ns),
                "PDU row {row}: opcode {:#x} at {offset} ends at {last_ns}, its packets came at {:?}",
                pdus.opcode[row],
                truth.came_ns(place).collect::<Vec<_>>()
            );
        } else {
            // one that the capture did not see end, and nobody acknowledged, has no end
            prop_assert_eq!(last_ns, truth.last_ns(place).unwrap_or(NULL_NS), "PDU row {}", row);
        }
        prop_assert!(pdus.header_digest_ok[row] != 0 && pdus.data_digest_ok[row] != 0, "PDU row {row}: digest");
    }
    let cycles = &tables.cycles;
    let by_tag: HashMap<_, _> = conversation.cycles.iter().map(|cycle| (cycle.initiator_task_tag, cycle)).collect();
    let mut seen = HashSet::new();
    for row in 0..cycles.cycle.len() {
        let tag = cycles.initiator_task_tag[row];
        prop_assert!(by_tag.contains_key(&tag) && seen.insert(tag), "cycle row {row}: tag {tag:#x}");
        let cycle = by_tag[&tag];
        prop_assert_eq!(numbers[&cycles.connection[row]], cycle.connection);
        prop_assert_eq!(Some(cycles.command_first_ns[row]), truth.first_ns(cycle.command));
        if cycles.status_ns[row] != NULL_NS {
            prop_assert!(truth.came_ns(cycle.status).any(|came_ns| came_ns == cycles.status_ns[row]));
        }
        if cycles.data_first_ns[row] != NULL_NS {
            prop_assert_eq!(Some(cycles.data_first_ns[row]), truth.first_ns(cycle.data[0]));
        }
        if cycles.r2t_first_ns[row] != NULL_NS {
            prop_assert_eq!(Some(cycles.r2t_first_ns[row]), truth.last_ns(cycle.ready_to_transfers[0]));
        }
        if cycles.is_complete[row] && cycles.data_last_ns[row] != NULL_NS {
            let came_ns = || cycle.data.iter().flat_map(|&pdu| truth.came_ns(pdu));
            let found_ns = cycles.data_last_ns[row];
            if cycles.has_capture_gap[row] {
                prop_assert!(came_ns().any(|came_ns| came_ns == found_ns), "cycle {tag:#x}");
            } else {
                prop_assert_eq!(Some(found_ns), came_ns().max(), "cycle {:#x}", tag);
            }
        }
        if cycles.is_complete[row] {
            // a PDU without any captured packet cannot have been seen
            for pdu in pdus_of(cycle) {
                let is_seen = conversation.pdus[pdu].packets.iter().any(|packet| truth.came.contains_key(packet));
                prop_assert!(is_seen, "cycle {tag:#x} is complete without its {:?}", conversation.pdus[pdu].opcode);
            }
        }
    }
    Ok(())
}

/// Every cycle whose packets all survived is found, complete, with its true instants.
fn everything_undamaged_is_found(truth: &Truth<'_>, tables: &Tables) -> Result<(), TestCaseError> {
    let cycles = &tables.cycles;
    let rows: HashMap<_, _> = (0..).zip(&cycles.initiator_task_tag).map(|(row, &tag)| (tag, row)).collect();
    for cycle in truth.conversation.cycles.iter().filter(|cycle| truth.is_whole(cycle)) {
        let row: Option<&usize> = rows.get(&cycle.initiator_task_tag);
        prop_assert!(row.is_some(), "cycle {:#x} is not found", cycle.initiator_task_tag);
        let row = row.copied().unwrap_or_default();
        prop_assert!(cycles.is_complete[row], "cycle {:#x} is not complete", cycle.initiator_task_tag);
        let found = [
            cycles.command_first_ns[row],
            cycles.command_last_ns[row],
            cycles.r2t_first_ns[row],
            cycles.data_first_ns[row],
            cycles.data_last_ns[row],
            cycles.status_ns[row],
        ];
        let first = |pdu: Option<&usize>| pdu.and_then(|&pdu| truth.first_ns(pdu)).unwrap_or(NULL_NS);
        let last = |pdu: Option<&usize>| pdu.and_then(|&pdu| truth.last_ns(pdu)).unwrap_or(NULL_NS);
        let expected = [
            first(Some(&cycle.command)),
            last(Some(&cycle.command)),
            last(cycle.ready_to_transfers.first()),
            first(cycle.data.first()),
            cycle.data.iter().map(|pdu| last(Some(pdu))).max().unwrap_or(NULL_NS),
            last(Some(&cycle.status)),
        ];
        prop_assert_eq!(found, expected, "cycle {:#x}", cycle.initiator_task_tag);
        prop_assert_eq!(cycles.data_pdu_count[row] as usize, cycle.data.len());
        prop_assert_eq!(cycles.r2t_count[row] as usize, cycle.ready_to_transfers.len());
    }
    Ok(())
}

fn is_data_loss_counted(tables: &Tables) -> bool {
    tables.counters.severity.iter().zip(&tables.counters.count).any(|(&severity, &count)| severity == 2 && count > 0)
}

fn settings() -> impl Strategy<Value = Settings> {
    (any::<bool>(), any::<bool>(), 1usize..=2).prop_map(|(has_header_digest, has_data_digest, connection_count)| {
        Settings { has_header_digest, has_data_digest, connection_count }
    })
}

const NO_DAMAGE: &[Damage] = &[];

#[test]
fn an_undamaged_conversation_is_read_whole() {
    for choice in 0..8 {
        let settings = Settings {
            has_header_digest: choice & 1 != 0,
            has_data_digest: choice & 2 != 0,
            connection_count: 1 + usize::from(choice & 4 != 0),
        };
        let conversation = everything(settings);
        let packets = damage(&conversation, NO_DAMAGE);
        let truth = Truth::new(&conversation, &packets);
        let mut tables = read(&packets);
        everything_found_is_true(&truth, &tables).expect("true");
        everything_undamaged_is_found(&truth, &tables).expect("whole");
        assert_eq!(tables.cycles.cycle.len(), conversation.cycles.len());
        assert_eq!(tables.pdus.opcode.len(), conversation.pdus.len());
        assert_eq!(tables.counters.name, [""; 0]);
        assert_eq!(tables.sessions.session.len(), 1);
        assert_eq!(tables.sessions.connection_count[0] as usize, settings.connection_count);
        let digests_verified = tables.pdus.data_digest_ok.iter().filter(|&&ok| ok == 1).count();
        let with_data = tables.pdus.data_segment_length.iter().filter(|&&length| length > 0).count();
        let logins = 2 * settings.connection_count;
        assert_eq!(digests_verified, if settings.has_data_digest { with_data - logins } else { 0 });
        check(&mut tables).expect("tables of one mind");
    }
}

/// Reads one at a time, or eight at once, then others; each status but the last is lost in turn.
#[test]
fn a_lost_status_costs_its_own_command_alone() {
    for queue_depth in [1, 8] {
        let mut script = Script::new(quiet_settings());
        script.connect();
        script.read(0, queue_depth, 2, 1536, false);
        (0..4).for_each(|_| script.read(0, 1, 2, 1536, false));
        let conversation = script.finish();
        let last = conversation.cycles.len() - 1;
        for (lost, cycle) in conversation.cycles[..last].iter().enumerate() {
            let packets: Vec<_> = conversation.pdus[cycle.status].packets.clone();
            let damages: Vec<_> = packets.iter().map(|&packet| Damage::Drop(packet, 1)).collect();
            let captured = damage(&conversation, &damages);
            let truth = Truth::new(&conversation, &captured);
            let tables = read(&captured);
            everything_found_is_true(&truth, &tables).expect("true");
            everything_undamaged_is_found(&truth, &tables).expect("whole");
            let cycles = &tables.cycles;
            let complete: Vec<_> = (0..=last).map(|row| row != lost).collect();
            assert_eq!(cycles.is_complete, complete, "status {lost} of queue depth {queue_depth}");
            assert_eq!((cycles.status_ns[lost], cycles.has_capture_gap[lost]), (NULL_NS, true));
            // it is in flight no longer than until a later PDU shows that it had its status
            let depths: Vec<_> = (1..=queue_depth as u32).chain([1; 4]).collect();
            assert_eq!(
                cycles.queue_depth.iter().collect::<Vec<_>>(),
                depths,
                "status {lost} of queue depth {queue_depth}"
            );
            assert_eq!((counted(&tables, "status_missing"), counted(&tables, "command_missing")), (1, 0));
            assert_eq!(tables.pdus.opcode.len() + 1, conversation.pdus.len());
        }
    }
}

proptest! {
    #![proptest_config(cases(96))]

    /// Packets missing from the capture, in holes of any length, from the first packet on.
    #[test]
    fn lost_packets(
        settings in settings(),
        holes in proptest::collection::vec((any::<usize>(), 1usize..12), 1..6),
    ) {
        let conversation = everything(settings);
        let damages: Vec<_> = holes.into_iter().map(|(at, length)| Damage::Drop(at, length)).collect();
        let packets = damage(&conversation, &damages);
        let truth = Truth::new(&conversation, &packets);
        let mut tables = read(&packets);
        everything_found_is_true(&truth, &tables)?;
        everything_undamaged_is_found(&truth, &tables)?;
        prop_assert!(is_data_loss_counted(&tables) || !truth.has_lost_bytes(), "loss is not counted");
        check(&mut tables).map_err(TestCaseError::fail)?;
    }

    /// A capture that begins late and ends early.
    #[test]
    fn a_part_of_the_conversation(settings in settings(), start in 0usize..400, length in 1usize..400) {
        let conversation = everything(settings);
        let count = conversation.packets.len();
        let (start, end) = (start.min(count - 1), (start + length).min(count));
        let packets = damage(&conversation, &[Damage::Drop(end.min(count - 1), count - end), Damage::Drop(0, start)]);
        let truth = Truth::new(&conversation, &packets);
        let mut tables = read(&packets);
        everything_found_is_true(&truth, &tables)?;
        check(&mut tables).map_err(TestCaseError::fail)?;
    }

    /// Packets that came late, within the limits of a network, and packets that came twice: nothing is lost.
    #[test]
    fn late_and_repeated_packets(
        settings in settings(),
        late in proptest::collection::vec((any::<usize>(), 1usize..3), 0..6),
        twice in proptest::collection::vec((any::<usize>(), 0usize..300), 0..6),
    ) {
        let conversation = everything(settings);
        let damages: Vec<_> = late
            .into_iter()
            .filter(|&(at, later)| is_before_its_ack(&conversation, at, later))
            .map(|(at, later)| Damage::Delay(at, later))
            .chain(twice.into_iter().map(|(at, later)| Damage::Duplicate(at, later)))
            .collect();
        let packets = damage(&conversation, &damages);
        let truth = Truth::new(&conversation, &packets);
        let mut tables = read(&packets);
        everything_found_is_true(&truth, &tables)?;
        everything_undamaged_is_found(&truth, &tables)?;
        prop_assert_eq!(tables.pdus.opcode.len(), conversation.pdus.len());
        check(&mut tables).map_err(TestCaseError::fail)?;
    }

    /// A snaplen for all packets that keeps headers at the start of a segment.
    #[test]
    fn a_snaplen(settings in settings(), kept in 48usize..300) {
        let conversation = everything(settings);
        let damages: Vec<_> = (0..conversation.packets.len()).map(|at| Damage::Cut(at, kept)).collect();
        let packets = damage(&conversation, &damages);
        let truth = Truth::new(&conversation, &packets);
        let mut tables = read(&packets);
        everything_found_is_true(&truth, &tables)?;
        if !settings.has_header_digest && !settings.has_data_digest {
            everything_undamaged_is_found(&truth, &tables)?;
            prop_assert_eq!(tables.cycles.is_complete.iter().filter(|&&is| is).count(), conversation.cycles.len());
        }
        check(&mut tables).map_err(TestCaseError::fail)?;
    }

    /// Everything at once: everything found is still true.
    #[test]
    fn all_kinds_of_damage(
        settings in settings(),
        damages in proptest::collection::vec(
            prop_oneof![
                (any::<usize>(), 1usize..12).prop_map(|(at, length)| Damage::Drop(at, length)),
                (any::<usize>(), 0usize..300).prop_map(|(at, later)| Damage::Duplicate(at, later)),
                (any::<usize>(), 1usize..30).prop_map(|(at, later)| Damage::Delay(at, later)),
                (any::<usize>(), 0usize..1000).prop_map(|(at, bytes)| Damage::Cut(at, bytes)),
            ],
            0..10,
        ),
    ) {
        let conversation = everything(settings);
        let packets = damage(&conversation, &damages);
        let truth = Truth::new(&conversation, &packets);
        let mut tables = read(&packets);
        everything_found_is_true(&truth, &tables)?;
        prop_assert!(is_data_loss_counted(&tables) || !truth.has_lost_bytes(), "loss is not counted");
        check(&mut tables).map_err(TestCaseError::fail)?;
    }
}

/// A session that is read and written through itself: its data are its own PDUs so far, as in a capture of it. With packets
/// lost, late and twice together, a header can be lost while data behind it is there, and its payload looks like the next
/// headers. None is believed, and the real ones are found.
#[test]
fn a_session_that_carries_itself_deceives_nobody() {
    let mut runner = TestRunner::new(cases(150));
    let damages = || {
        proptest::collection::vec(
            prop_oneof![
                3 => (any::<usize>(), 1usize..4).prop_map(|(at, length)| Damage::Drop(at, length)),
                1 => (any::<usize>(), 0usize..300).prop_map(|(at, later)| Damage::Duplicate(at, later)),
                1 => (any::<usize>(), 1usize..30).prop_map(|(at, later)| Damage::Delay(at, later)),
            ],
            1..10,
        )
    };
    let (mut deceived, mut captured, mut found) = (Vec::new(), 0, 0);
    for number in 0..150 {
        let (settings, damages) = (settings(), damages()).new_tree(&mut runner).expect("a case").current();
        let conversation = everything_within_itself(settings);
        let packets = damage(&conversation, &damages);
        let truth = Truth::new(&conversation, &packets);
        let tables = read(&packets);
        if let Err(error) = everything_found_is_true(&truth, &tables) {
            deceived.push((number, error));
        }
        captured += (0..conversation.pdus.len()).filter(|&pdu| truth.first_ns(pdu).is_some()).count();
        found += tables.pdus.opcode.len();
    }
    assert!(deceived.is_empty(), "{} of 150: {deceived:#?}", deceived.len());
    // of each whose first packet was captured
    assert!(found * 1000 >= captured * 999, "{found} of {captured} PDUs are found");
}

/// Whether a late packet still comes before the ACK of its bytes: otherwise the capture shows a hole that the receiver
/// had filled.
fn is_before_its_ack(conversation: &Conversation, at: usize, later: usize) -> bool {
    let at = at % conversation.packets.len();
    let packet = &conversation.packets[at];
    let end = packet.stream_offset + packet.payload_bytes as i64;
    conversation.packets[at..].iter().take(later + 2).all(|other| {
        other.connection != packet.connection
            || other.to_target == packet.to_target
            || other.acknowledged.is_none_or(|acknowledged| acknowledged < end || packet.payload_bytes == 0)
    })
}

/// The packets of a hostile peer.
struct Flood {
    pipeline: Pipeline,
    frame: u64,
}

impl Flood {
    fn new() -> Self {
        Self { pipeline: Pipeline::new(Wanted::default()), frame: 0 }
    }

    fn packet(&mut self, data: &[u8]) {
        self.frame += 1;
        self.pipeline.packet(&Packet {
            frame: self.frame,
            time_ns: time_ns(self.frame as usize),
            link_type: LinkType::ETHERNET,
            interface: 0,
            original_length: data.len() as u32,
            data,
        });
    }

    fn send(&mut self, client_port: u16, sequence_number: u32, flags: u8, payload: &[u8]) {
        let identification = self.frame as u16;
        let data = frame(&conversation::Frame {
            to_target: true,
            client_port,
            identification,
            sequence_number,
            acknowledgment_number: 1,
            flags,
            payload,
        });
        self.packet(&data);
    }

    fn conversation(&mut self, conversation: &Conversation) {
        for packet in &conversation.packets {
            self.packet(&packet.frame);
        }
    }

    fn finish(self) -> Tables {
        self.pipeline.finish()
    }
}

fn counted(tables: &Tables, name: &str) -> u64 {
    let counters = &tables.counters;
    counters.name.iter().zip(&counters.count).filter(|(each, _)| *each == name).map(|(_, &count)| count).sum()
}

fn quiet_settings() -> Settings {
    Settings { has_header_digest: false, has_data_digest: false, connection_count: 1 }
}

/// A flood that begins with a login, and the initiator's next sequence number.
fn logged_in() -> (Flood, u32) {
    let mut script = Script::new(quiet_settings());
    script.connect();
    let opening = script.finish();
    let login = &opening.pdus[0];
    let login_bytes: u32 = login.packets.iter().map(|&at| opening.packets[at].payload_bytes as u32).sum();
    let mut flood = Flood::new();
    flood.conversation(&opening);
    (flood, 0xffff_f001u32.wrapping_add(login_bytes))
}

fn read_command() -> BhsBuilder {
    BhsBuilder::new(Opcode::ScsiCommand).is_final(true).is_read(true).expected_data_transfer_length(512)
}

#[test]
fn very_many_connections_leave_rows_up_to_a_limit_and_counts() {
    let mut flood = Flood::new();
    for number in 0..100_000u32 {
        let mut data = frame(&conversation::Frame {
            to_target: true,
            client_port: number as u16,
            identification: 1,
            sequence_number: number,
            acknowledgment_number: 0,
            flags: 0x02,
            payload: &[],
        });
        // another address every 65536 ports
        data[29] = (number >> 16) as u8;
        flood.packet(&data);
    }
    let tables = flood.finish();
    // that of tries to connect to portals
    assert_eq!(tables.connections.connection.len(), 3 << 14);
    assert_eq!(counted(&tables, "connections_not_listed"), 100_000 - (3 << 14));
    // all were closed by the end of the input except those closed for lack of room: 100000 less the last 32768 at most
    let closed = counted(&tables, "connections_not_tracked");
    assert!((100_000 - (1 << 15)..100_000).contains(&closed), "{closed}");
}

#[test]
fn very_many_sessions_leave_a_row_each() {
    let login = BhsBuilder::new(Opcode::LoginRequest).is_transit(true).current_stage(1).next_stage(3);
    let mut flood = Flood::new();
    for number in 0..50_000u32 {
        let header = login.initiator_task_tag(number).isid([0, 0, 0, (number >> 8) as u8, number as u8, 0]).build();
        flood.send(number as u16 + 4000, number, 0x02, &[]);
        flood.send(number as u16 + 4000, number + 1, 0x18, &header);
    }
    let tables = flood.finish();
    assert_eq!(tables.sessions.session.len(), 50_000);
    assert_eq!(tables.logins.connection.len(), 50_000);
}

#[test]
fn very_many_open_tasks_are_capped_and_counted() {
    let (mut flood, base) = logged_in();
    let command = read_command();
    let (per_packet, packets) = (20u32, 5_000u32);
    for packet in 0..packets {
        let payload: Vec<u8> = (0..per_packet)
            .flat_map(|place| {
                let number = packet * per_packet + place;
                command.initiator_task_tag(number).cmd_sn(SerialNumber(100 + number)).build()
            })
            .collect();
        flood.send(50_000, base.wrapping_add(packet * per_packet * 48), 0x18, &payload);
    }
    let tables = flood.finish();
    let commands = usize::try_from(per_packet * packets).expect("fits");
    // commands have rows, tracked or not; 65536 are open at once
    assert_eq!(tables.cycles.cycle.len(), commands);
    assert_eq!(counted(&tables, "tasks_not_tracked"), commands as u64 - (1 << 16));
    assert!(tables.cycles.is_complete.iter().all(|is_complete| !is_complete));
}

#[test]
fn extreme_times_are_read() {
    let opening = everything(quiet_settings());
    for times in [[i64::MIN, i64::MAX], [i64::MAX, i64::MIN], [i64::MAX, i64::MAX], [i64::MIN + 1, i64::MIN + 1]] {
        let mut pipeline = Pipeline::new(Wanted::ALL);
        for (frame, (packet, &time_ns)) in (1..).zip(opening.packets.iter().zip(times.iter().cycle())) {
            pipeline.packet(&Packet {
                frame,
                time_ns,
                link_type: LinkType::ETHERNET,
                interface: 0,
                original_length: packet.frame.len() as u32,
                data: &packet.frame,
            });
        }
        let mut tables = pipeline.finish();
        assert_eq!(tables.pdus.opcode.len(), opening.pdus.len());
        check(&mut tables).expect("tables of one mind");
    }
}

#[test]
fn endless_login_text_is_cut_and_counted() {
    let mut flood = Flood::new();
    flood.send(50_000, 0, 0x02, &[]);
    let text: Vec<u8> = (0..200).flat_map(|number| format!("X-{number}=1\0").into_bytes()).collect();
    let text = &text[..text.len() / 4 * 4];
    let header = BhsBuilder::new(Opcode::LoginRequest).is_continue(true).data_segment_length(text.len() as u32).build();
    let pdu = [&header[..], text].concat();
    let count = 10_000u32;
    for number in 0..count {
        flood.send(50_000, 1 + number * pdu.len() as u32, 0x18, &pdu);
    }
    let tables = flood.finish();
    assert_eq!(tables.logins.connection.len(), count as usize);
    // 64 KiB were read, no PDU after them
    let taken = 65_536 / text.len() as u64;
    assert_eq!(counted(&tables, "login_text_too_long"), u64::from(count) - taken);
    assert!(tables.parameters.key.len() <= 300, "{}", tables.parameters.key.len());
}

#[test]
fn acknowledgments_far_ahead_are_ignored() {
    let mut flood = Flood::new();
    let opening = everything(quiet_settings());
    flood.conversation(&opening);
    let sent: i64 =
        opening.packets.iter().filter(|packet| !packet.to_target).map(|packet| packet.payload_bytes as i64).sum();
    let sequence_number = 0xffff_f001u32.wrapping_add(
        opening.packets.iter().filter(|packet| packet.to_target).map(|packet| packet.payload_bytes as u32).sum(),
    );
    for step in 1..200_000u32 {
        let mut data = frame(&conversation::Frame {
            to_target: true,
            client_port: 50_000,
            identification: step as u16,
            sequence_number,
            acknowledgment_number: 78u32.wrapping_add(sent as u32).wrapping_add(step * 5000),
            flags: 0x10,
            payload: &[],
        });
        data[48] = step as u8;
        flood.packet(&data);
    }
    let tables = flood.finish();
    assert_eq!(tables.cycles.is_complete.iter().filter(|&&is| is).count(), opening.cycles.len());
    // the capture shows at most one window beyond its packets
    assert!(tables.connections.stream_bytes_to_initiator[0] <= sent as u64 + (1 << 30));
    assert_eq!(
        tables.connections.gap_bytes_to_initiator[0] + sent as u64,
        tables.connections.stream_bytes_to_initiator[0]
    );
    assert!(counted(&tables, "capture_gap") <= 2);
}

#[test]
fn retransmissions_without_an_acknowledgment_make_no_second_cycle() {
    let (mut flood, base) = logged_in();
    let command = read_command();
    for number in 0..60_000u32 {
        let header = command.initiator_task_tag(number).cmd_sn(SerialNumber(100 + number)).build();
        flood.send(50_000, base.wrapping_add(number * 48), 0x18, &header);
    }
    for _ in 0..1_000 {
        let header = command.initiator_task_tag(0).cmd_sn(SerialNumber(100)).build();
        flood.send(50_000, base, 0x18, &header);
    }
    let tables = flood.finish();
    assert_eq!(tables.cycles.cycle.len(), 60_000);
    assert_eq!(tables.cycles.has_retransmission.iter().filter(|&&is| is).count(), 1);
    assert_eq!(tables.cycles.command_first_ns.iter().filter(|&&ns| ns != NULL_NS).count(), 60_000);
    assert!(tables.cycles.session.iter().all(|&session| session != NULL_U32));
}
