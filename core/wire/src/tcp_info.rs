//! One sample of the kernel's TCP_INFO of a socket <-> the line that `ss -tinOH` prints for it, stateless.
//!
//! The kernel's `struct tcp_info` (linux/tcp.h) is read as far as the kernel fills it. A line has the units and names of
//! `ss`; all other words of a line are skipped. An address may have a scope (`%eth0`).

use std::fmt::{self, Display, Formatter, Write as _};
use std::net::{IpAddr, SocketAddr};

/// One sample of one socket. A value that the kernel or the line does not have is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSample {
    /// When it was taken, in nanoseconds since 1970.
    pub time_ns: i64,
    /// Address and port of the socket's host.
    pub local: SocketAddr,
    /// Address and port of the other end.
    pub remote: SocketAddr,
    /// The state of the connection, by the number of Linux (1: ESTABLISHED).
    pub state: u8,
    /// The congestion control, such as `cubic`.
    pub congestion_control: String,
    /// The rest.
    pub info: TcpInfo,
}

/// States by the number of Linux (include/net/tcp_states.h), in the words of `ss`.
const STATES: [&str; 12] = [
    "UNKNOWN",
    "ESTAB",
    "SYN-SENT",
    "SYN-RECV",
    "FIN-WAIT-1",
    "FIN-WAIT-2",
    "TIME-WAIT",
    "UNCONN",
    "CLOSE-WAIT",
    "LAST-ACK",
    "LISTEN",
    "CLOSING",
];

/// Values from which ssthresh means: none yet.
const SSTHRESH_NONE: u64 = 0x7fff_ffff;
/// Round trips that were not measured.
const RTT_NONE_US: u64 = 0xffff_ffff;

macro_rules! tcp_info {
    ($($(#[doc = $meaning:literal])+ $field:ident: $bytes:literal at $at:literal;)*) => {
        /// The values of `struct tcp_info` that are kept.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct TcpInfo { $($(#[doc = $meaning])+ pub $field: Option<u64>,)* }

        impl TcpInfo {
            /// From the kernel's struct, in this host's byte order; fields behind its end are none.
            pub fn from_kernel(bytes: &[u8]) -> Self {
                let mut info = Self { $($field: number(bytes, $at, $bytes),)* };
                info.normalize();
                info
            }
        }
    };
}
tcp_info! {
    /// largest payload of a segment that is sent
    segment_bytes: 4 at 16;
    /// segments sent and not acknowledged
    unacked_segments: 4 at 24;
    /// of these, segments that were selectively acknowledged
    sacked_segments: 4 at 28;
    /// of these, segments that the sender deems lost
    lost_segments: 4 at 32;
    /// smoothed round-trip time, in microseconds
    rtt_us: 4 at 68;
    /// its variation, in microseconds
    rttvar_us: 4 at 72;
    /// slow start threshold
    ssthresh_segments: 4 at 76;
    /// congestion window
    cwnd_segments: 4 at 80;
    /// retransmitted segments so far
    retransmitted_segments: 4 at 100;
    /// payload acknowledged by the other end so far
    bytes_acked: 8 at 120;
    /// payload received so far
    bytes_received: 8 at 128;
    /// bytes in the send buffer that were not sent yet
    unsent_bytes: 4 at 144;
    /// smallest round-trip time, in microseconds
    rtt_min_us: 4 at 148;
    /// most recent rate of delivery, in bytes per second
    delivery_rate_bytes_per_s: 8 at 160;
    /// time with data in flight or to send so far, in microseconds
    busy_us: 8 at 168;
    /// of this, time limited by the receive window, in microseconds
    rwnd_limited_us: 8 at 176;
    /// of this, time limited by the send buffer, in microseconds
    sndbuf_limited_us: 8 at 184;
    /// payload sent so far, retransmissions included
    bytes_sent: 8 at 200;
    /// retransmitted payload so far
    bytes_retransmitted: 8 at 208;
    /// receive window of the other end, scaled
    rwnd_bytes: 4 at 228;
}

/// A number of 4 or 8 bytes in this host's order.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let field = bytes.get(at..at + length)?;
    match length {
        4 => field.try_into().ok().map(|field| u32::from_ne_bytes(field).into()),
        _ => field.try_into().ok().map(u64::from_ne_bytes),
    }
}

impl TcpInfo {
    /// Removes the numbers by which the kernel means: no value yet.
    fn normalize(&mut self) {
        self.ssthresh_segments = self.ssthresh_segments.filter(|&segments| segments < SSTHRESH_NONE);
        self.rtt_us = self.rtt_us.filter(|&rtt_us| rtt_us > 0);
        self.rttvar_us = self.rttvar_us.filter(|_| self.rtt_us.is_some());
        self.rtt_min_us = self.rtt_min_us.filter(|&rtt_us| rtt_us < RTT_NONE_US);
    }

    /// Sets the value of one word of `ss`; words that are not kept are skipped.
    fn set(&mut self, name: &str, value: &str) {
        let whole = || value.parse::<u64>().ok();
        match name {
            "mss" => self.segment_bytes = whole(),
            "unacked" => self.unacked_segments = whole(),
            "sacked" => self.sacked_segments = whole(),
            "lost" => self.lost_segments = whole(),
            "cwnd" => self.cwnd_segments = whole(),
            "ssthresh" => self.ssthresh_segments = whole(),
            "bytes_acked" => self.bytes_acked = whole(),
            "bytes_received" => self.bytes_received = whole(),
            "bytes_sent" => self.bytes_sent = whole(),
            "bytes_retrans" => self.bytes_retransmitted = whole(),
            "notsent" => self.unsent_bytes = whole(),
            "snd_wnd" => self.rwnd_bytes = whole(),
            "minrtt" => self.rtt_min_us = microseconds(value),
            "busy" => self.busy_us = value.strip_suffix("ms").and_then(microseconds),
            "rwnd_limited" => self.rwnd_limited_us = limited(value),
            "sndbuf_limited" => self.sndbuf_limited_us = limited(value),
            // in flight again / in total
            "retrans" => self.retransmitted_segments = value.split_once('/').and_then(|(_, all)| all.parse().ok()),
            "rtt" => {
                if let Some((rtt, variation)) = value.split_once('/') {
                    (self.rtt_us, self.rttvar_us) = (microseconds(rtt), microseconds(variation));
                }
            }
            _ => {}
        }
    }

    /// `ss` leaves out what is zero: a line with a congestion window has zeros there.
    fn fill_zeros(&mut self) {
        if self.cwnd_segments.is_none() {
            return;
        }
        for value in [
            &mut self.unacked_segments,
            &mut self.sacked_segments,
            &mut self.lost_segments,
            &mut self.retransmitted_segments,
            &mut self.unsent_bytes,
        ] {
            value.get_or_insert(0);
        }
        // a kernel that counts retransmitted bytes counts sent ones, too
        if self.bytes_sent.is_some() {
            self.bytes_retransmitted.get_or_insert(0);
        }
        // and one that counts busy time its parts
        if self.busy_us.is_some() {
            self.rwnd_limited_us.get_or_insert(0);
            self.sndbuf_limited_us.get_or_insert(0);
        }
    }
}

/// Adds a word with a whole number.
fn add(text: &mut String, name: &str, value: Option<u64>) {
    if let Some(value) = value {
        let _ = write!(text, " {name}:{value}");
    }
}

/// Microseconds, printed as milliseconds.
struct Milliseconds(u64);

impl Display for Milliseconds {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match (self.0 / 1000, self.0 % 1000) {
            (whole, 0) => write!(formatter, "{whole}"),
            (whole, decimals) => write!(formatter, "{whole}.{decimals:03}"),
        }
    }
}

/// Milliseconds with decimals, in microseconds.
fn microseconds(milliseconds: &str) -> Option<u64> {
    let value: f64 = milliseconds.parse().ok()?;
    (0.0..1e15).contains(&value).then(|| (value * 1e3).round() as u64)
}

/// `4ms(50.0%)`, in microseconds.
fn limited(value: &str) -> Option<u64> {
    microseconds(value.split_once("ms").map_or(value, |(time, _)| time))
}

/// `559181bps` or `5.6Mbps` as `ss` prints it without `-n`, in bytes per second.
fn rate(value: &str) -> Option<u64> {
    let value = value.strip_suffix("bps")?;
    let (number, factor) = match value.as_bytes().last()? {
        b'K' => (value.get(..value.len() - 1)?, 1e3),
        b'M' => (value.get(..value.len() - 1)?, 1e6),
        b'G' => (value.get(..value.len() - 1)?, 1e9),
        _ => (value, 1.0),
    };
    let bits: f64 = number.parse().ok()?;
    (0.0..1e18).contains(&bits).then(|| (bits * factor / 8.0).round() as u64)
}

/// `10.0.0.1:3260`, `[fe80::1]:3260`, either with a scope; an IPv4 address within IPv6 is that IPv4 address.
/// Names of congestion control in Linux.
const CONGESTION_CONTROLS: [&str; 19] = [
    "bbr",
    "bbr2",
    "bbr3",
    "bic",
    "cdg",
    "cubic",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "prague",
    "reno",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

fn endpoint(word: &str) -> Option<SocketAddr> {
    let (address, port) = word.rsplit_once(':')?;
    let address = address.split('%').next()?.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = address.parse().ok()?;
    Some(SocketAddr::new(address.to_canonical(), port.parse().ok()?))
}

impl TcpSample {
    /// Whether its congestion control is one that many hosts have: any word can stand there.
    #[must_use]
    pub fn has_known_congestion_control(&self) -> bool {
        CONGESTION_CONTROLS.contains(&self.congestion_control.as_str())
    }

    /// The line of `ss -tinOH`, without the words that are not kept.
    pub fn line(&self, text: &mut String) {
        let state = STATES.get(usize::from(self.state)).unwrap_or(&"UNKNOWN");
        // queues are not part of TCP_INFO
        let _ = write!(text, "{state} 0 0 {} {}", self.local, self.remote);
        if !self.congestion_control.is_empty() {
            let _ = write!(text, " {}", self.congestion_control);
        }
        let info = &self.info;
        if let (Some(rtt_us), Some(rttvar_us)) = (info.rtt_us, info.rttvar_us) {
            let _ = write!(text, " rtt:{}/{}", Milliseconds(rtt_us), Milliseconds(rttvar_us));
        }
        add(text, "mss", info.segment_bytes);
        add(text, "cwnd", info.cwnd_segments);
        add(text, "ssthresh", info.ssthresh_segments);
        add(text, "bytes_sent", info.bytes_sent);
        add(text, "bytes_retrans", info.bytes_retransmitted);
        add(text, "bytes_acked", info.bytes_acked);
        add(text, "bytes_received", info.bytes_received);
        if let Some(rate) = info.delivery_rate_bytes_per_s {
            let _ = write!(text, " delivery_rate {}bps", rate.saturating_mul(8));
        }
        let times = [
            ("busy", info.busy_us),
            ("rwnd_limited", info.rwnd_limited_us),
            ("sndbuf_limited", info.sndbuf_limited_us),
        ];
        for (name, time_us) in times {
            if let Some(time_us) = time_us {
                let _ = write!(text, " {name}:{}ms", Milliseconds(time_us));
            }
        }
        add(text, "unacked", info.unacked_segments);
        if let Some(segments) = info.retransmitted_segments {
            let _ = write!(text, " retrans:0/{segments}");
        }
        add(text, "lost", info.lost_segments);
        add(text, "sacked", info.sacked_segments);
        add(text, "notsent", info.unsent_bytes);
        if let Some(rtt_us) = info.rtt_min_us {
            let _ = write!(text, " minrtt:{}", Milliseconds(rtt_us));
        }
        if let Some(bytes) = info.rwnd_bytes {
            let _ = write!(text, " snd_wnd:{bytes}");
        }
    }

    /// From a line of `ss -tin`; none for any other line. With a filter by state, `ss` leaves the state out.
    pub fn parse(time_ns: i64, line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        let number = STATES.iter().position(|&state| state == first);
        let mut word = if number.is_some() { words.next()? } else { first };
        // two queues come before the addresses
        word.parse::<u64>().ok()?;
        word = words.next()?;
        word.parse::<u64>().ok()?;
        let (local, remote) = (endpoint(words.next()?)?, endpoint(words.next()?)?);
        let mut info = TcpInfo::default();
        let (mut congestion_control, mut before) = (String::new(), "");
        for word in words {
            match word.split_once(':') {
                Some((name, value)) => info.set(name, value),
                None if before == "delivery_rate" => info.delivery_rate_bytes_per_s = rate(word),
                // the last bare word before the numbers begin; before it are options: ts sack ecn fastopen
                None if info.cwnd_segments.is_none() && !word.ends_with("bps") => {
                    congestion_control = word.to_owned();
                }
                None => {}
            }
            before = word;
        }
        info.fill_zeros();
        info.normalize();
        let state = number.and_then(|number| u8::try_from(number).ok()).unwrap_or(1);
        Some(Self { time_ns, local, remote, state, congestion_control, info })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every word that `ss -tinOH` of iproute2 6.1 can print for a sender in recovery.
    const LINE: &str = "ESTAB 0      0      10.7.0.2:3260 10.7.0.1:43476 ts sack cubic wscale:7,2 rto:212 rtt:9.472/0.5 \
        ato:40 mss:1448 pmtu:1500 rcvmss:536 advmss:1448 cwnd:159 ssthresh:28 bytes_sent:6300712 bytes_retrans:1448 \
        bytes_acked:6299264 bytes_received:4320 segs_out:4400 segs_in:2200 data_segs_out:4380 data_segs_in:90 send \
        194451014bps lastsnd:8 lastrcv:4 lastack:4 pacing_rate 233338920bps delivery_rate 66816000bps delivered:4380 \
        busy:744ms rwnd_limited:228ms(30.6%) unacked:12 retrans:1/3 lost:2 sacked:4 reordering:5 rcv_space:14480 \
        rcv_ssthresh:64088 notsent:260640 minrtt:8.995 rcv_wnd:64256 snd_wnd:211544";

    #[test]
    fn a_line_of_ss_is_read_with_its_units() {
        let sample = TcpSample::parse(7, LINE).expect("a sample");
        assert_eq!((sample.time_ns, sample.state, sample.congestion_control.as_str()), (7, 1, "cubic"));
        assert!(sample.has_known_congestion_control());
        let private = TcpSample { congestion_control: "acme-project".to_owned(), ..sample.clone() };
        assert!(!private.has_known_congestion_control());
        assert_eq!(sample.local, "10.7.0.2:3260".parse().expect("an address"));
        assert_eq!(sample.remote, "10.7.0.1:43476".parse().expect("an address"));
        let expected = TcpInfo {
            segment_bytes: Some(1448),
            unacked_segments: Some(12),
            sacked_segments: Some(4),
            lost_segments: Some(2),
            rtt_us: Some(9472),
            rttvar_us: Some(500),
            ssthresh_segments: Some(28),
            cwnd_segments: Some(159),
            retransmitted_segments: Some(3),
            bytes_acked: Some(6_299_264),
            bytes_received: Some(4320),
            unsent_bytes: Some(260_640),
            rtt_min_us: Some(8995),
            delivery_rate_bytes_per_s: Some(8_352_000),
            busy_us: Some(744_000),
            rwnd_limited_us: Some(228_000),
            // left out by ss: zero, because it prints the busy time
            sndbuf_limited_us: Some(0),
            bytes_sent: Some(6_300_712),
            bytes_retransmitted: Some(1448),
            rwnd_bytes: Some(211_544),
        };
        assert_eq!(sample.info, expected);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let sample = TcpSample::parse(7, LINE).expect("a sample");
        let mut text = String::new();
        sample.line(&mut text);
        assert_eq!(TcpSample::parse(7, &text), Some(sample.clone()));
        let sparse = TcpSample { info: TcpInfo::default(), congestion_control: String::new(), ..sample };
        text.clear();
        sparse.line(&mut text);
        assert_eq!(TcpSample::parse(7, &text), Some(sparse));
    }

    #[test]
    fn without_a_busy_time_nothing_is_known_of_its_parts() {
        let sample = TcpSample::parse(0, "ESTAB 0 0 [::1]:3260 [::1]:9 cubic cwnd:10").expect("a sample");
        assert_eq!((sample.info.rwnd_limited_us, sample.info.sndbuf_limited_us), (None, None));
        assert_eq!((sample.info.unacked_segments, sample.info.rtt_us), (Some(0), None));
    }

    #[test]
    fn addresses_with_scope_and_ipv4_within_ipv6_are_those_of_the_packets() {
        let read =
            |line: &str| TcpSample::parse(0, line).map(|sample| (sample.local.to_string(), sample.remote.port()));
        assert_eq!(read("0 0 10.0.0.1%eth0:3260 10.0.0.2:5 cwnd:1"), Some(("10.0.0.1:3260".into(), 5)));
        assert_eq!(read("ESTAB 0 0 [::ffff:10.0.0.1]:3260 [::ffff:10.0.0.2]:5"), Some(("10.0.0.1:3260".into(), 5)));
        assert_eq!(read("ESTAB 0 0 [fe80::1]%eth0:3260 [fe80::2]%eth0:5"), Some(("[fe80::1]:3260".into(), 5)));
        assert_eq!(read("ESTAB 0 0 [fe80::1%eth0]:3260 [fe80::2]:5"), Some(("[fe80::1]:3260".into(), 5)));
        for other in ["", "Netid State", "ESTAB 0 0 *:3260 *:*", "LISTEN 0 x 1.1.1.1:1 2.2.2.2:2", "\u{fe}\t\t"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn the_kernels_struct_is_read_as_far_as_it_goes() {
        let mut bytes = vec![0; 256];
        bytes[80..84].copy_from_slice(&33_u32.to_ne_bytes());
        bytes[76..80].copy_from_slice(&0x7fff_ffff_u32.to_ne_bytes());
        bytes[148..152].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[176..184].copy_from_slice(&5_000_000_000_u64.to_ne_bytes());
        let whole = TcpInfo::from_kernel(&bytes);
        assert_eq!((whole.cwnd_segments, whole.ssthresh_segments, whole.rtt_min_us), (Some(33), None, None));
        assert_eq!((whole.rwnd_limited_us, whole.rwnd_bytes), (Some(5_000_000_000), Some(0)));
        for length in 0..256 {
            let part = TcpInfo::from_kernel(&bytes[..length]);
            assert_eq!(part.cwnd_segments.is_some(), length >= 84, "{length}");
            assert_eq!(part.rwnd_limited_us.is_some(), length >= 184, "{length}");
        }
        assert_eq!(TcpInfo::from_kernel(&[]), TcpInfo::default());
    }
}
