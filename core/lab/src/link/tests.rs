//! The link against naive models: exact fractions, a scan of all packets for the queue, nanosecond by nanosecond for
//! busy times; random events within the bounds of their distribution.

use proptest::prelude::*;

use super::log::{DirectionLog, PacketRecord};
use super::loss::BurstLossSettings;
use super::*;

/// A packet with only a length and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbered {
    number: usize,
    bytes: usize,
}

impl Packet for Numbered {
    fn frame_bytes(&self) -> usize {
        self.bytes
    }
}

type Delivery = (i64, usize);

fn link(to_target: &DirectionSettings, seed: u64) -> Link<Numbered> {
    let settings =
        LinkSettings { to_target: to_target.clone(), seed, is_logging_packets: true, ..LinkSettings::default() };
    Link::new(&settings).unwrap()
}

/// Sends packets at their times, polls for delivered ones after every `poll_every`-th packet, and at the end.
fn carry(
    to_target: &DirectionSettings,
    seed: u64,
    packets: &[(i64, usize)],
    poll_every: usize,
) -> (Vec<Delivery>, DirectionLog) {
    let mut link = link(to_target, seed);
    let mut delivered = Vec::new();
    for (number, &(now_ns, bytes)) in packets.iter().enumerate() {
        link.to_target.enqueue(now_ns, Numbered { number, bytes });
        if number % poll_every == 0 {
            while let Some((time_ns, packet)) = link.to_target.dequeue_ready(now_ns) {
                assert!(time_ns <= now_ns);
                delivered.push((time_ns, packet.number));
            }
        }
    }
    while let Some(next_ns) = link.next_ready() {
        while let Some((time_ns, packet)) = link.to_target.dequeue_ready(next_ns) {
            delivered.push((time_ns, packet.number));
        }
    }
    (delivered, link.into_log().to_target)
}

fn records(log: &DirectionLog) -> &[PacketRecord] {
    log.packets.as_ref().unwrap().records()
}

/// Departure times from a line, in exact fractions, none where the queue is full; and busy times of the line.
struct NaiveLine {
    departures: Vec<Option<i64>>,
    busy: Vec<(i64, i64)>,
}

fn naive_line(settings: &DirectionSettings, packets: &[(i64, usize)]) -> NaiveLine {
    let rate = i128::from(settings.rate_bps.unwrap());
    // times as multiples of 1 / rate nanoseconds
    let mut taken: Vec<(i128, i128, usize)> = Vec::new();
    let mut departures = Vec::new();
    for &(now_ns, bytes) in packets {
        let now = i128::from(now_ns) * rate;
        let begin = taken.last().map_or(now, |&(_, end, _)| end.max(now));
        let waiting: Vec<usize> =
            taken.iter().filter(|(begin, _, _)| begin.div_euclid(rate) > now_ns.into()).map(|taken| taken.2).collect();
        let is_waiting = begin.div_euclid(rate) > now_ns.into();
        let has_packet_room = settings.queue_packets.is_none_or(|limit| (waiting.len() as u64) < limit);
        let waiting_bytes = waiting.iter().sum::<usize>() + bytes;
        let has_byte_room = settings.queue_bytes.is_none_or(|limit| waiting_bytes as u64 <= limit);
        if is_waiting && !(has_packet_room && has_byte_room) {
            departures.push(None);
            continue;
        }
        let end = begin + (bytes as i128 + i128::from(settings.overhead_bytes)) * 8_000_000_000;
        taken.push((begin, end, bytes));
        departures.push(Some(end.div_euclid(rate) as i64));
    }
    let whole = |time: i128| time.div_euclid(rate) as i64;
    NaiveLine { departures, busy: taken.iter().map(|&(begin, end, _)| (whole(begin), whole(end))).collect() }
}

prop_compose! {
    fn arrivals()(steps in prop::collection::vec((0i64..3_000, 1usize..2_000), 1..120)) -> Vec<(i64, usize)> {
        steps.iter().scan(0, |now_ns, &(gap_ns, bytes)| { *now_ns += gap_ns; Some((*now_ns, bytes)) }).collect()
    }
}

prop_compose! {
    fn line_settings()(
        rate_bps in prop_oneof![1u64..1_000_000, 1_000_000_000u64..100_000_000_000, Just(7_777_777_777), Just(8_000_000_000)],
        overhead_bytes in 0u32..40,
        queue_packets in prop::option::of(0u64..8),
        queue_bytes in prop::option::of(0u64..8_000),
    ) -> DirectionSettings {
        DirectionSettings { rate_bps: Some(rate_bps), overhead_bytes, queue_packets, queue_bytes, ..Default::default() }
    }
}

prop_compose! {
    fn any_settings()(
        line in line_settings(),
        has_line: bool,
        loss_probability in prop_oneof![Just(0.0), Just(0.2)],
        has_bursts: bool,
        delay_ns in 0u64..5_000,
        jitter_ns in prop_oneof![Just(0), 0u64..3_000],
        is_jitter_reordering: bool,
        reorder_probability in prop_oneof![Just(0.0), Just(0.2)],
        reorder_by_ns in 1u64..5_000,
    ) -> DirectionSettings {
        let bursts = BurstLossSettings { enter_probability: 0.1, leave_probability: 0.5, ..Default::default() };
        DirectionSettings {
            rate_bps: line.rate_bps.filter(|_| has_line),
            loss_probability,
            burst_loss: has_bursts.then_some(bursts),
            delay_ns,
            jitter_ns,
            is_jitter_reordering,
            reorder_probability,
            reorder_by_ns,
            ..line
        }
    }
}

proptest! {
    #[test]
    fn a_line_is_exact_and_its_queue_drops_the_tail(settings in line_settings(), packets in arrivals()) {
        let naive = naive_line(&settings, &packets);
        let (delivered, log) = carry(&settings, 0, &packets, 3);
        let expected: Vec<Delivery> =
            naive.departures.iter().enumerate().filter_map(|(number, time_ns)| time_ns.map(|time_ns| (time_ns, number))).collect();
        prop_assert_eq!(&delivered, &expected);
        for (record, (departure, packet)) in records(&log).iter().zip(naive.departures.iter().zip(&packets)) {
            let fate = if departure.is_some() { Fate::Delivered } else { Fate::QueueFull };
            let time_out_ns = departure.unwrap_or(packet.0);
            prop_assert_eq!((record.fate, record.time_in_ns, record.time_out_ns), (fate, packet.0, Some(time_out_ns)));
        }
        prop_assert_eq!(log.counters.queue_full.count as usize, packets.len() - expected.len());
        let line = log.line.unwrap();
        prop_assert!(settings.queue_packets.is_none_or(|limit| line.queue_peak_packets <= limit));
        prop_assert!(settings.queue_bytes.is_none_or(|limit| line.queue_peak_bytes <= limit));
    }

    #[test]
    fn busy_times_by_brute_force(
        packets in prop::collection::vec((0i64..40, 1usize..12), 1..30), windows in prop::collection::vec((-50i64..700, -50i64..700), 20)
    ) {
        let mut now_ns = 0;
        let packets: Vec<_> = packets.iter().map(|&(gap_ns, bytes)| { now_ns += gap_ns; (now_ns, bytes) }).collect();
        let settings = DirectionSettings { rate_bps: Some(5_000_000_000), ..Default::default() };
        let naive = naive_line(&settings, &packets);
        // each nanosecond
        let mut is_busy = [false; 100_000];
        naive.busy.iter().for_each(|&(from_ns, to_ns)| is_busy[from_ns as usize..to_ns as usize].fill(true));
        let line = carry(&settings, 0, &packets, 1).1.line.unwrap();
        for (from_ns, to_ns) in windows {
            let expected = (from_ns.max(0)..to_ns).filter(|&time_ns| is_busy[time_ns as usize]).count() as i64;
            prop_assert_eq!(line.busy_ns_within(from_ns, to_ns), Some(expected));
        }
        prop_assert_eq!(line.busy_ns, is_busy.iter().filter(|&&busy| busy).count() as i64);
        for pair in line.busy_times().windows(2) {
            prop_assert!(pair[0].to_ns < pair[1].from_ns, "merged: {:?}", pair);
        }
    }

    /// Each part adds its time: line, delay, jitter within its bounds, held back or not.
    #[test]
    fn parts_compose(settings in any_settings(), packets in arrivals(), seed: u64) {
        let (delivered, log) = carry(&settings, seed, &packets, 2);
        let departures = match settings.rate_bps {
            Some(_) => naive_line(&settings, &packets).departures,
            None => packets.iter().map(|&(now_ns, _)| Some(now_ns)).collect(),
        };
        let mut latest_ns = i64::MIN;
        for (record, line_ns) in records(&log).iter().zip(departures) {
            let time_out_ns = record.time_out_ns.unwrap();
            match (record.fate, line_ns) {
                (Fate::QueueFull, None) => {}
                (Fate::Lost, Some(line_ns)) => {
                    prop_assert!(settings.loss_probability > 0.0);
                    prop_assert_eq!(time_out_ns, line_ns);
                }
                (Fate::LostInBurst, Some(line_ns)) => {
                    prop_assert!(settings.burst_loss.is_some());
                    prop_assert_eq!(time_out_ns, line_ns);
                }
                (Fate::Delivered, Some(line_ns)) => {
                    let earliest_ns = line_ns + settings.delay_ns as i64;
                    let floor_ns = if settings.is_jitter_reordering { earliest_ns } else { earliest_ns.max(latest_ns) };
                    let ceiling_ns = floor_ns.max(earliest_ns + settings.jitter_ns as i64);
                    let held_back_ns = settings.reorder_by_ns as i64;
                    let is_in_time = |time_ns: i64| (floor_ns..=ceiling_ns).contains(&time_ns);
                    let is_held_back = settings.reorder_probability > 0.0 && is_in_time(time_out_ns - held_back_ns);
                    prop_assert!(is_in_time(time_out_ns) || is_held_back);
                    if settings.reorder_probability == 0.0 {
                        latest_ns = latest_ns.max(time_out_ns);
                    }
                }
                (fate, line_ns) => prop_assert!(false, "{:?} with {:?}", fate, line_ns),
            }
        }
        let mut sorted = delivered.clone();
        sorted.sort_by_key(|&(time_ns, _)| time_ns);
        prop_assert_eq!(&sorted, &delivered, "packets come out in the order of their times");
        let overtaken = (0..delivered.len())
            .filter(|&at| delivered[..at].iter().any(|earlier| earlier.1 > delivered[at].1))
            .count();
        prop_assert_eq!(log.counters.overtaken.count as usize, overtaken);
        if settings.reorder_probability == 0.0 && !settings.is_jitter_reordering {
            prop_assert_eq!(overtaken, 0);
        }
        let dropped = [log.counters.queue_full, log.counters.lost, log.counters.lost_in_burst];
        let dropped_bytes: u64 = dropped.iter().map(|tally| tally.bytes).sum();
        let arrived_bytes: usize = packets.iter().map(|&(_, bytes)| bytes).sum();
        prop_assert_eq!(log.counters.delivered.bytes + dropped_bytes, arrived_bytes as u64);
    }

    /// Polled after every packet, rarely, or only at the end: the same packets leave at the same times.
    #[test]
    fn departures_do_not_depend_on_polls(settings in any_settings(), packets in arrivals(), seed: u64, poll_every in 2usize..50) {
        let often = carry(&settings, seed, &packets, 1);
        for poll_every in [poll_every, usize::MAX] {
            let seldom = carry(&settings, seed, &packets, poll_every);
            prop_assert_eq!(&seldom.0, &often.0);
            prop_assert_eq!(records(&seldom.1), records(&often.1));
            prop_assert_eq!(&seldom.1.line, &often.1.line);
            prop_assert_eq!(&seldom.1.counters, &often.1.counters);
        }
    }

    /// Parts in an order that no setting produces: after a part that reorders, a line and a loss still get packets in
    /// the order of time.
    #[test]
    fn a_chain_in_any_order_does_not_depend_on_polls(packets in arrivals(), seed: u64, poll_every in 2usize..50) {
        let run = |poll_every: usize| {
            let mut chain = chain::Chain::new(vec![
                Box::new(reorder::Reorder::new(0.3, 2_500, seed)),
                Box::new(rate::Rate::new(6_000_000_000, 0, queue::DropTail::new(Some(2), None))) as Box<dyn Impairment>,
                Box::new(jitter::Jitter::new(2_000, true, seed)),
                Box::new(loss::Loss::new(0.1, seed)),
                Box::new(delay::Delay::new(500)),
            ]);
            let (mut delivered, mut dropped) = (Vec::new(), Vec::new());
            for (number, &(now_ns, bytes)) in packets.iter().enumerate() {
                chain.enqueue(now_ns, Numbered { number, bytes });
                if number % poll_every == 0 {
                    delivered.extend(std::iter::from_fn(|| chain.dequeue_ready(now_ns)));
                }
            }
            while let Some(next_ns) = chain.next_ready() {
                delivered.extend(std::iter::from_fn(|| chain.dequeue_ready(next_ns)));
            }
            while let Some((time_ns, packet, fate)) = chain.next_dropped() {
                dropped.push((time_ns, packet.number, fate as u8));
            }
            dropped.sort_unstable();
            (delivered, dropped)
        };
        let often = run(1);
        prop_assert_eq!(often.0.len() + often.1.len(), packets.len());
        prop_assert_eq!(&run(poll_every), &often);
        prop_assert_eq!(&run(usize::MAX), &often);
    }
}

/// `count` packets of 1500 bytes, 1 us apart.
fn stream(count: usize) -> Vec<(i64, usize)> {
    (0..count).map(|number| (number as i64 * 1_000, 1_500)).collect()
}

/// Whether `happened` of `count` is within five standard deviations of its expectation.
fn is_likely(happened: u64, count: u64, probability: f64) -> bool {
    let (count, happened) = (count as f64, happened as f64);
    (happened - count * probability).abs() <= 5.0 * (count * probability * (1.0 - probability)).sqrt()
}

#[test]
fn a_probability_counts_outcomes_exactly() {
    use probability::Probability;
    let debug = |probability: f64| format!("{:?}", Probability::new(probability));
    assert_eq!(debug(1.0 / 65536.0), format!("Probability {{ outcomes: {} }}", 1u64 << 37));
    assert_eq!(debug(3.0 / 65536.0), format!("Probability {{ outcomes: {} }}", 3u64 << 37));
    let mut random = fastrand::Rng::with_seed(1);
    assert!((0..10_000).all(|_| Probability::new(1.0).draw(&mut random)));
    assert!(!(0..10_000).any(|_| Probability::new(0.0).draw(&mut random)));
}

#[test]
fn the_loss_rate_is_the_set_probability() {
    let count = 2_000_000;
    for (seed, loss_probability) in [(1, 1.0 / 65536.0), (2, 0.001), (3, 0.25)] {
        let settings = DirectionSettings { loss_probability, ..Default::default() };
        let (_, log) = carry(&settings, seed, &stream(count), 1);
        let lost = log.counters.lost.count;
        assert!(is_likely(lost, count as u64, loss_probability), "{lost} of {count} with {loss_probability}");
    }
}

#[test]
fn bursts_have_the_set_length_and_frequency() {
    let count = 1_000_000;
    let burst_loss = BurstLossSettings { enter_probability: 0.01, leave_probability: 0.25, ..Default::default() };
    let settings = DirectionSettings { burst_loss: Some(burst_loss), ..Default::default() };
    let (_, log) = carry(&settings, 5, &stream(count), 1);
    let is_lost = |record: &PacketRecord| record.fate == Fate::LostInBurst;
    let records = records(&log);
    let begins = records.windows(2).filter(|pair| !is_lost(&pair[0]) && is_lost(&pair[1])).count() as u64;
    let (lost, good) = (log.counters.lost_in_burst.count, log.counters.delivered.count);
    // a burst begins after one good packet in a hundred, and ends after one lost packet in four
    assert!(is_likely(begins, good, 0.01), "{begins} bursts in {good}");
    assert!(is_likely(begins, lost, 0.25), "{lost} lost in {begins} bursts");
    let share = lost as f64 / count as f64;
    assert!((share / (0.01 / 0.26) - 1.0).abs() < 0.05, "stationary share of the bad state: {share}");
}

#[test]
fn both_states_of_bursts_have_the_set_loss_rates() {
    let burst_loss = BurstLossSettings {
        enter_probability: 1.0,
        leave_probability: 1.0,
        loss_in_good_probability: 0.0,
        loss_in_bad_probability: 0.5,
    };
    let settings = DirectionSettings { burst_loss: Some(burst_loss), ..Default::default() };
    let (_, log) = carry(&settings, 5, &stream(100_000), 1);
    assert!(is_likely(log.counters.lost_in_burst.count, 50_000, 0.5));
    let lost = records(&log).iter().enumerate().filter(|(_, record)| record.fate == Fate::LostInBurst);
    assert!(lost.clone().all(|(number, _)| number % 2 == 1), "every second packet finds the bad state");
}

#[test]
fn a_share_of_the_packets_is_held_back_and_overtaken() {
    let settings =
        DirectionSettings { delay_ns: 10_000, reorder_probability: 0.02, reorder_by_ns: 3_500, ..Default::default() };
    let (delivered, log) = carry(&settings, 9, &stream(200_000), 1);
    let held_back =
        records(&log).iter().filter(|record| record.time_out_ns == Some(record.time_in_ns + 13_500)).count();
    assert!(is_likely(held_back as u64, 200_000, 0.02), "{held_back}");
    assert_eq!(delivered.len(), 200_000);
    // a packet held back is overtaken by three packets, some of which are held back themselves
    assert!(
        log.counters.overtaken.count as usize > held_back * 99 / 100
            && log.counters.overtaken.count as usize <= held_back
    );
}

#[test]
fn jitter_is_uniform() {
    let settings =
        DirectionSettings { jitter_ns: 999, is_jitter_reordering: true, delay_ns: 5_000, ..Default::default() };
    let (_, log) = carry(&settings, 3, &stream(100_000), 1);
    let mut tenths = [0u64; 10];
    for record in records(&log) {
        tenths[((record.time_out_ns.unwrap() - record.time_in_ns - 5_000) / 100) as usize] += 1;
    }
    assert!(tenths.iter().all(|&tenth| is_likely(tenth, 100_000, 0.1)), "{tenths:?}");
}

#[test]
fn the_times_of_a_million_packets_add_up_exactly() {
    // 1500 bytes at 7 Mbit/s take 1714285.714... ns: truncated each time, a million of them would be 0.7 ms early
    let settings = DirectionSettings { rate_bps: Some(7_000_000), queue_packets: None, ..Default::default() };
    let packets: Vec<_> = (0..1_000_000).map(|_| (0, 1_500)).collect();
    let (delivered, log) = carry(&settings, 0, &packets, usize::MAX);
    assert_eq!(delivered.last().unwrap().0, 1_714_285_714_285);
    assert_eq!(log.line.unwrap().busy_times().len(), 1);
}

#[test]
fn the_seed_determines_all_fates_independently_per_part() {
    let settings = DirectionSettings { loss_probability: 0.1, ..Default::default() };
    let lost = |settings: &DirectionSettings, seed| {
        let (_, log) = carry(settings, seed, &stream(2_000), 1);
        let is_lost = |(number, record): (usize, &PacketRecord)| (record.fate == Fate::Lost).then_some(number);
        records(&log).iter().enumerate().filter_map(is_lost).collect::<Vec<_>>()
    };
    assert_eq!(lost(&settings, 1), lost(&settings, 1));
    assert_ne!(lost(&settings, 1), lost(&settings, 2));
    let more = DirectionSettings { jitter_ns: 500, reorder_probability: 0.1, reorder_by_ns: 9, ..settings.clone() };
    assert_eq!(lost(&more, 1), lost(&settings, 1));
}

#[test]
fn directions_have_separate_settings_and_random_numbers() {
    let direction = DirectionSettings { loss_probability: 0.5, delay_ns: 7, ..Default::default() };
    let mut settings = LinkSettings::symmetric(direction, 4);
    settings.to_initiator.delay_ns = 11;
    settings.is_logging_packets = true;
    let mut link = Link::new(&settings).unwrap();
    for now_ns in 0..1_000 {
        link.to_target.enqueue(now_ns, vec![0; 60]);
        link.to_initiator.enqueue(now_ns, vec![0; 60]);
    }
    let times = |direction: &mut Direction<Vec<u8>>| -> Vec<i64> {
        std::iter::from_fn(|| direction.dequeue_ready(i64::MAX)).map(|(time_ns, _)| time_ns).collect()
    };
    let (to_target, to_initiator) = (times(&mut link.to_target), times(&mut link.to_initiator));
    let sent = |times: &[i64], delay_ns| times.iter().map(|time_ns| time_ns - delay_ns).collect::<Vec<_>>();
    assert_ne!(sent(&to_target, 7), sent(&to_initiator, 11));
    let log = link.into_log();
    let arrivals = |log: &DirectionLog, times: Vec<i64>| {
        let delivered = records(log).iter().filter(|record| record.fate == Fate::Delivered);
        delivered.map(|record| record.time_in_ns).collect::<Vec<_>>() == times
    };
    assert!(arrivals(&log.to_target, sent(&to_target, 7)) && arrivals(&log.to_initiator, sent(&to_initiator, 11)));
}

#[test]
fn a_log_is_json() {
    let settings = DirectionSettings { rate_bps: Some(1_000_000_000), delay_ns: 100, ..Default::default() };
    let (_, log) = carry(&settings, 0, &[(0, 125), (5_000, 250)], 1);
    let json = serde_json::to_value(&log).unwrap();
    assert_eq!(json["counters"]["delivered"], serde_json::json!({"count": 2, "bytes": 375}));
    let busy_times = serde_json::json!([{"from_ns": 0, "to_ns": 1_000}, {"from_ns": 5_000, "to_ns": 7_000}]);
    assert_eq!(json["line"]["busy_times"], busy_times);
    let first = serde_json::json!({"time_in_ns": 0, "time_out_ns": 1_100, "bytes": 125, "fate": "delivered"});
    assert_eq!(json["packets"][0], first);
}

#[test]
fn a_hostile_size_or_rate_does_not_panic() {
    struct Huge;
    impl Packet for Huge {
        fn frame_bytes(&self) -> usize {
            usize::MAX / 2
        }
    }
    let direction = DirectionSettings { rate_bps: Some(1), ..Default::default() };
    let mut link = Link::new(&LinkSettings::symmetric(direction, 0)).unwrap();
    for now_ns in [i64::MIN, 0, i64::MAX] {
        link.to_target.enqueue(now_ns, Huge);
    }
    assert!(link.to_target.next_ready().is_some());
}

#[test]
fn a_queue_has_peaks_in_packets_and_bytes() {
    // 1 byte takes 8 ns. 1000 bytes are sent until 8000 ns; 100, 200 and 300 wait from 0 to 3 ns on, and leave the queue
    // when their transmission starts at 8000, 8800 and 10400 ns. At 9000 ns only 300 bytes wait, then 50 more.
    let settings = DirectionSettings { rate_bps: Some(1_000_000_000), ..Default::default() };
    let packets = [(0, 1000), (1, 100), (2, 200), (3, 300), (9_000, 50)];
    let line = carry(&settings, 0, &packets, 1).1.line.unwrap();
    assert_eq!((line.queue_peak_packets, line.queue_peak_bytes), (3, 600));
    assert_eq!(line.busy_ns, 8 * 1650);
}

#[test]
fn overtaken_packets_are_counted_with_their_bytes() {
    // every packet is held back for 10 ns or not; with these times the first one is delivered after the second
    let settings = DirectionSettings { reorder_probability: 0.5, reorder_by_ns: 10, ..Default::default() };
    let packets = [(0, 700), (1, 40)];
    let log =
        (0..).map(|seed| carry(&settings, seed, &packets, 1)).find(|(delivered, _)| delivered[0].1 == 1).unwrap().1;
    assert_eq!((log.counters.overtaken.count, log.counters.overtaken.bytes), (1, 700));
}

#[test]
fn a_log_without_busy_times_has_their_sum() {
    let direction = DirectionSettings { rate_bps: Some(1_000_000_000), ..Default::default() };
    let mut link = Link::new(&LinkSettings::symmetric(direction, 0)).unwrap();
    for now_ns in [0, 10_000] {
        link.to_target.enqueue(now_ns, Numbered { number: 0, bytes: 125 });
    }
    let mut log = link.into_log();
    log.forget_busy_times();
    let line = log.to_target.line.unwrap();
    assert_eq!((line.busy_ns, line.busy_times().len()), (2_000, 0));
    assert_eq!((line.busy_ns_within(0, 10_500), line.not_kept_from_ns), (None, Some(0)));
}
