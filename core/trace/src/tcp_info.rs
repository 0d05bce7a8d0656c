//! Samples of the kernel's TCP_INFO, in captures or in files -> rows of the table `tcp_info`.
//!
//! A file has lines of `ss -tinOH`, each behind a time in seconds since 1970, or behind a line with the time alone. Its
//! times stay as they are: they are moved to the clock of the capture in Python. Samples of connections that the capture
//! does not have are left out.

use std::net::{IpAddr, SocketAddr};

use iscsitrace_wire::tcp_info::TcpSample;
use rustc_hash::FxHashMap;

use crate::reader::CaptureError;
use crate::tables::{NULL_NS, NULL_U32, NULL_U64, Tables, TcpInfoRow};

/// The name by which an entry of a journal is a sample.
pub const JOURNAL_SOURCE: &str = "iscsitrace-tcp-info";

/// The sample in an entry of a journal, if it is one.
pub(crate) fn of_journal(entry: &[u8]) -> Option<TcpSample> {
    let entry = std::str::from_utf8(entry).ok()?;
    let (mut time_us, mut is_sample, mut message) = (None, false, "");
    for line in entry.lines() {
        match line.split_once('=') {
            Some(("__REALTIME_TIMESTAMP", time)) => time_us = time.parse::<i64>().ok(),
            Some(("SYSLOG_IDENTIFIER", source)) => is_sample = source == JOURNAL_SOURCE,
            Some(("MESSAGE", text)) => message = text,
            _ => {}
        }
    }
    let time_ns = time_us?.checked_mul(1000)?;
    if is_sample { TcpSample::parse(time_ns, message) } else { None }
}

/// The samples of the capture, and behind them those of each file, by its name and text.
///
/// # Errors
/// A file has no sample.
pub(crate) fn sources(
    of_capture: Vec<TcpSample>,
    files: &[(String, String)],
) -> Result<Vec<Vec<TcpSample>>, CaptureError> {
    let mut sources = vec![of_capture];
    for (name, text) in files {
        let samples = of_text(text);
        if samples.is_empty() {
            return Err(CaptureError::NoTcpSamples { name: name.clone() });
        }
        sources.push(samples);
    }
    Ok(sources)
}

/// The samples in a text.
fn of_text(text: &str) -> Vec<TcpSample> {
    let (mut samples, mut time_ns) = (Vec::new(), None);
    for line in text.lines().map(str::trim) {
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let stamp_ns = seconds(first);
        // the first word of a line of ss may be a number, too: a queue, where a filter left the state out
        if let Some(stamp_ns) = stamp_ns.filter(|&stamp_ns| stamp_ns > LEAST_TIME_NS) {
            time_ns = Some(stamp_ns);
            samples.extend(TcpSample::parse(stamp_ns, rest));
        } else if let Some(time_ns) = time_ns {
            samples.extend(TcpSample::parse(time_ns, line));
        }
    }
    samples
}

/// Times before 2001 are none.
const LEAST_TIME_NS: i64 = 978_307_200_000_000_000;

/// Seconds with decimals, exactly, in nanoseconds. Bash prints a comma in some languages.
fn seconds(word: &str) -> Option<i64> {
    let (whole, decimals) = word.split_once(['.', ',']).unwrap_or((word, ""));
    if decimals.len() > 9 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds: i64 = format!("{decimals:0<9}").parse().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// A connection, and the time in which its packets were captured.
struct Captured {
    connection: u32,
    first_ns: i64,
    last_ns: i64,
}

/// Orders connections by their first packets. Each then has the last packet of those up to it, and its connection.
fn order(all: &mut [Captured]) {
    all.sort_by_key(|captured| captured.first_ns);
    for place in 1..all.len() {
        if let [.., before, captured] = &mut all[..=place]
            && before.last_ns >= captured.last_ns
        {
            (captured.connection, captured.last_ns) = (before.connection, before.last_ns);
        }
    }
}

/// The connection whose packets are nearest in time.
fn nearest(ordered: &[Captured], time_ns: i64) -> Option<u32> {
    let (begun, later) = ordered.split_at(ordered.partition_point(|captured| captured.first_ns <= time_ns));
    let begun = begun.last().map(|captured| (time_ns.saturating_sub(captured.last_ns).max(0), captured.connection));
    let later = later.first().map(|captured| (captured.first_ns.saturating_sub(time_ns), captured.connection));
    begun.into_iter().chain(later).min_by_key(|&(distance_ns, _)| distance_ns).map(|(_, connection)| connection)
}

/// Adds the rows of samples, those of the capture only within the time window. Each goes
/// to the connection with its ends: of several that used the same ports, the one whose packets are nearest in time.
pub(crate) fn fill(tables: &mut Tables, sources: &[Vec<TcpSample>], window: (i64, i64)) {
    let mut by_ends: FxHashMap<(SocketAddr, SocketAddr), Vec<Captured>> = FxHashMap::default();
    let connections = &tables.connections;
    for row in (0..connections.connection.len()).filter(|&row| connections.is_iscsi[row]) {
        let end = |address: &str, port| address.parse::<IpAddr>().map(|ip| SocketAddr::new(ip.to_canonical(), port));
        let initiator = end(&connections.initiator_address[row], connections.initiator_port[row]);
        let target = end(&connections.target_address[row], connections.target_port[row]);
        let (Ok(initiator), Ok(target)) = (initiator, target) else { continue };
        by_ends.entry((initiator, target)).or_default().push(Captured {
            connection: connections.connection[row],
            first_ns: connections.time_first_ns[row],
            last_ns: connections.time_last_ns[row],
        });
    }
    by_ends.values_mut().for_each(|all| order(all));
    let mut rows = Vec::new();
    for (source, samples) in (0..).zip(sources) {
        // the clock of a file may be another one than the window's
        let is_in_window = |sample: &&TcpSample| source > 0 || (window.0..=window.1).contains(&sample.time_ns);
        for sample in samples.iter().filter(is_in_window).filter(|sample| sample.info.cwnd_segments.is_some()) {
            let ends = [(true, (sample.local, sample.remote)), (false, (sample.remote, sample.local))];
            for (to_target, ends) in ends {
                if let Some(connection) = by_ends.get(&ends).and_then(|all| nearest(all, sample.time_ns)) {
                    rows.push(row(connection, to_target, source, sample));
                }
            }
        }
    }
    rows.sort_by_key(|row| (row.connection, row.to_target, row.time_ns));
    for row in rows {
        tables.tcp_info.push(row);
    }
}

fn row(connection: u32, to_target: bool, source: u16, sample: &TcpSample) -> TcpInfoRow {
    let info = &sample.info;
    let of_u32 = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok()).unwrap_or(NULL_U32);
    let of_us =
        |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok()?.checked_mul(1000)).unwrap_or(NULL_NS);
    TcpInfoRow {
        connection,
        to_target,
        source,
        time_ns: sample.time_ns,
        congestion_control: sample.congestion_control.clone(),
        cwnd_segments: of_u32(info.cwnd_segments),
        ssthresh_segments: of_u32(info.ssthresh_segments),
        segment_bytes: of_u32(info.segment_bytes),
        rtt_ns: of_us(info.rtt_us),
        rttvar_ns: of_us(info.rttvar_us),
        rtt_min_ns: of_us(info.rtt_min_us),
        unacked_segments: of_u32(info.unacked_segments),
        sacked_segments: of_u32(info.sacked_segments),
        lost_segments: of_u32(info.lost_segments),
        retransmitted_segments: of_u32(info.retransmitted_segments),
        bytes_sent: info.bytes_sent.unwrap_or(NULL_U64),
        bytes_retransmitted: info.bytes_retransmitted.unwrap_or(NULL_U64),
        bytes_acked: info.bytes_acked.unwrap_or(NULL_U64),
        bytes_received: info.bytes_received.unwrap_or(NULL_U64),
        unsent_bytes: of_u32(info.unsent_bytes),
        rwnd_bytes: of_u32(info.rwnd_bytes),
        delivery_rate_bytes_per_s: info.delivery_rate_bytes_per_s.unwrap_or(NULL_U64),
        busy_ns: of_us(info.busy_us),
        rwnd_limited_ns: of_us(info.rwnd_limited_us),
        sndbuf_limited_ns: of_us(info.sndbuf_limited_us),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tables::Connection;

    #[test]
    fn times_stand_before_each_line_or_alone_before_several() {
        let text = "1795173154.972914 ESTAB 0 0 10.0.0.1:5 10.0.0.2:3260 cubic cwnd:7\n\
            ESTAB 0 0 10.0.0.1:6 10.0.0.2:3260 cubic cwnd:8\n\
            1795173155,5\n0 0 10.0.0.1:6 10.0.0.2:3260 cwnd:9\nnoise\n1795173156 ESTAB 0 0 x y\n";
        let samples: Vec<_> = of_text(text).iter().map(|each| (each.time_ns, each.info.cwnd_segments)).collect();
        assert_eq!(
            samples,
            [
                (1_795_173_154_972_914_000, Some(7)),
                (1_795_173_154_972_914_000, Some(8)),
                (1_795_173_155_500_000_000, Some(9)),
            ]
        );
        assert!(of_text("ESTAB 0 0 10.0.0.1:5 10.0.0.2:3260 cwnd:7").is_empty(), "without a time");
    }

    #[test]
    fn only_entries_of_this_journal_are_samples() {
        let entry = |source: &str| {
            format!(
                "__REALTIME_TIMESTAMP=5\nSYSLOG_IDENTIFIER={source}\nMESSAGE=ESTAB 0 0 1.1.1.1:1 2.2.2.2:2 cwnd:3\n\0\0"
            )
        };
        let sample = of_journal(entry(JOURNAL_SOURCE).as_bytes()).expect("a sample");
        assert_eq!((sample.time_ns, sample.info.cwnd_segments), (5000, Some(3)));
        assert_eq!(of_journal(entry("sshd").as_bytes()), None);
        assert_eq!(of_journal(b"\xff"), None);
    }

    proptest! {
        #[test]
        fn the_nearest_connection_is_that_of_a_search_through_all(
            spans in prop::collection::vec((0..60_i64, 0..20_i64), 0..8), time_ns in 0..90_i64
        ) {
            let captured = |(connection, &(first_ns, lasted_ns)): (u32, &(i64, i64))| {
                Captured { connection, first_ns, last_ns: first_ns + lasted_ns }
            };
            let all: Vec<Captured> = (0..).zip(&spans).map(captured).collect();
            let distance_ns = |captured: &Captured| (captured.first_ns - time_ns).max(time_ns - captured.last_ns).max(0);
            let least_ns = all.iter().map(distance_ns).min();
            let mut ordered: Vec<Captured> = (0..).zip(&spans).map(captured).collect();
            order(&mut ordered);
            let found = nearest(&ordered, time_ns);
            prop_assert_eq!(found.map(|connection| distance_ns(&all[connection as usize])), least_ns);
        }
    }

    #[test]
    fn a_sample_belongs_to_the_connection_of_its_time_and_to_the_socket_of_its_host() {
        let mut tables = Tables::default();
        for (connection, first_ns, last_ns) in [(0, 100, 200), (4, 300, 400)] {
            tables.connections.push(Connection {
                connection,
                is_iscsi: true,
                initiator_address: "10.0.0.1".into(),
                initiator_port: 5,
                target_address: "10.0.0.2".into(),
                target_port: 3260,
                time_first_ns: first_ns,
                time_last_ns: last_ns,
                ..Connection::default()
            });
        }
        let sample = |time_ns, line: &str| TcpSample::parse(time_ns, line).expect("a sample");
        let of_initiator = |time_ns| sample(time_ns, "0 0 10.0.0.1:5 10.0.0.2:3260 cubic cwnd:1");
        let of_target = |time_ns| sample(time_ns, "0 0 10.0.0.2:3260 10.0.0.1:5 cubic cwnd:2");
        let other = sample(150, "0 0 10.0.0.2:3260 10.0.0.1:6 cubic cwnd:3");
        let capture = vec![of_initiator(90), of_initiator(220), of_initiator(240), other];
        let file = vec![of_target(290), of_target(160), sample(160, "0 0 10.0.0.2:3260 10.0.0.1:5")];
        fill(&mut tables, &[capture, file], (80, 230));
        let rows = &tables.tcp_info;
        assert_eq!(rows.connection, [0, 0, 0, 4]);
        assert_eq!(rows.to_target, [false, true, true, false]);
        assert_eq!(rows.time_ns, [160, 90, 220, 290]);
        assert_eq!(rows.source, [1, 0, 0, 1]);
        assert_eq!(rows.cwnd_segments, [2, 1, 1, 2]);
    }
}
