//! Login text and SendTargets: keys stay, names and addresses are replaced, everything that no table reads is overwritten.
//! Every pair keeps its length.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use iscsitrace_wire::key::{Key as LoginKey, RESERVED_VALUES};
use iscsitrace_wire::text::{KEY_LENGTH_MAX_BYTES, numeric};

use crate::address::Addresses;
use crate::key::Key;
use crate::name::name;

/// Words that are values of known keys, and name nothing.
const WORDS: &[&str] = &[
    "Yes",
    "No",
    "None",
    "CRC32C",
    "CHAP",
    "SRP",
    "KRB5",
    "SPKM1",
    "SPKM2",
    "Normal",
    "Discovery",
    "All",
    "RFC3720",
    "FastAbort",
];
/// How keys begin that a vendor may define (RFC 7143 section 13.22).
const VENDOR: [&[u8]; 4] = [b"X-", b"X#", b"Y-", b"Z-"];
/// What stands for a secret.
const SECRET: u8 = b'0';
/// What stands for text that is no pair.
const NO_PAIR: u8 = b'x';
/// What stands for a key that is none.
const NO_KEY: u8 = 0x01;

/// The text in the place of another, which may lack its end.
pub fn text(key: &Key, addresses: &Addresses, original: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(original.len());
    for (place, line) in original.split(|&byte| byte == 0).enumerate() {
        if place > 0 {
            replaced.push(0);
        }
        let Some(equals) = line.iter().position(|&byte| byte == b'=') else {
            replaced.resize(replaced.len() + line.len(), NO_PAIR);
            continue;
        };
        let (own, given) = (&line[..equals], &line[equals + 1..]);
        replaced.extend(key_name(key, own));
        replaced.push(b'=');
        let known = str::from_utf8(own).ok().and_then(LoginKey::from_name);
        replaced.extend(value(key, addresses, known, given));
    }
    replaced
}

/// The key in the place of another: known keys stay, and what is no key stays none.
fn key_name(key: &Key, own: &[u8]) -> Vec<u8> {
    if str::from_utf8(own).is_ok_and(|own| LoginKey::from_name(own).is_some()) {
        return own.to_vec();
    }
    if own.len() > KEY_LENGTH_MAX_BYTES {
        return vec![NO_PAIR; own.len()];
    }
    if !own.iter().all(u8::is_ascii_graphic) {
        return vec![NO_KEY; own.len()];
    }
    let start: &[u8] = VENDOR.into_iter().find(|start| own.starts_with(start)).unwrap_or_default();
    [start, &name(key, &own[start.len()..])].concat()
}

fn value(key: &Key, addresses: &Addresses, known: Option<&LoginKey>, given: &[u8]) -> Vec<u8> {
    let Ok(text) = str::from_utf8(given) else { return name(key, given) };
    let is_reserved = RESERVED_VALUES.contains(&text);
    match known {
        Some(known) if known.is_secret => vec![SECRET; given.len()],
        Some(known) if known.name == "TargetAddress" => target_address(key, addresses, text),
        Some(known) if is_reserved || is_plain(known, text) => given.to_vec(),
        None if is_reserved => given.to_vec(),
        _ => name(key, given),
    }
}

/// Whether a value is a list of numbers, ranges and known words; names are none, except for the words that stand for all.
fn is_plain(known: &LoginKey, text: &str) -> bool {
    let is_name = ["InitiatorName", "TargetName", "InitiatorAlias", "TargetAlias", "CHAP_N"].contains(&known.name);
    let is_number = |text: &str| numeric(text).is_some();
    !is_name
        && text
            .split(',')
            .all(|item| WORDS.contains(&item) || RESERVED_VALUES.contains(&item) || item.split('~').all(is_number))
}

/// `10.0.0.2:3260,1`, `[fd00::2]` or `array.example`: the address as packets have it, the port and the group stay.
fn target_address(key: &Key, addresses: &Addresses, text: &str) -> Vec<u8> {
    let (place, group) = text.split_at(text.find(',').unwrap_or(text.len()));
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port),
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    let is_number = |text: &str, mark: char| {
        text.is_empty()
            || text.strip_prefix(mark).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let replaced = host_name(key, addresses, host);
    let mut whole = Vec::with_capacity(text.len());
    let is_bracketed = place.starts_with('[') && place.contains(']');
    if is_bracketed {
        whole.push(b'[');
    }
    whole.extend(replaced);
    if is_bracketed {
        whole.push(b']');
    }
    for (part, mark) in [(port, ':'), (group, ',')] {
        if is_number(part, mark) {
            whole.extend_from_slice(part.as_bytes());
        } else {
            whole.extend(name(key, part.as_bytes()));
        }
    }
    whole
}

fn host_name(key: &Key, addresses: &Addresses, host: &str) -> Vec<u8> {
    let replaced = match host.parse() {
        Ok(IpAddr::V4(address)) => addresses.ip(Ipv4Addr::into(address)).to_string(),
        Ok(IpAddr::V6(address)) => match addresses.ip(Ipv6Addr::into(address)) {
            IpAddr::V6(mapped) => in_same_form(host, mapped),
            IpAddr::V4(_) => String::new(),
        },
        Err(_) => String::new(),
    };
    if replaced.len() == host.len() && !host.is_empty() { replaced.into_bytes() } else { name(key, host.as_bytes()) }
}

/// An IPv6 address with as many digits in each group, and groups of zeros left out where another leaves them out.
fn in_same_form(form: &str, address: Ipv6Addr) -> String {
    let groups = address.segments();
    let (before, after) = form.split_once("::").map_or((form, None), |(before, after)| (before, Some(after)));
    let write = |form: &str, groups: &[u16]| {
        let widths = form.split(':').filter(|digits| !digits.is_empty()).map(str::len);
        let digits: Vec<String> = widths.zip(groups).map(|(width, group)| format!("{group:0width$x}")).collect();
        digits.join(":")
    };
    let Some(after) = after else { return write(before, &groups) };
    let count = after.split(':').filter(|digits| !digits.is_empty()).count();
    format!("{}::{}", write(before, &groups), write(after, &groups[groups.len() - count.min(groups.len())..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KEY_BYTES;
    use proptest::prelude::*;

    fn replaced(original: &[u8]) -> Vec<u8> {
        let key = Key::new(&[9; KEY_BYTES]);
        text(&key, &Addresses::new(&key), original)
    }

    #[test]
    fn names_change_and_parameters_stay() {
        let original = b"InitiatorName=iqn.1993-08.org.debian:01:abc\0SessionType=Normal\0AuthMethod=CHAP,None\0\
            HeaderDigest=CRC32C,None\0MaxBurstLength=262144\0IFMarkInt=2048~65535\0CHAP_N=backup\0CHAP_R=0x1f2e\0\
            X-com.example.site=Berlin\0TargetAlias=Irrelevant\0DataDigest=secret\0";
        let found = replaced(original);
        assert_eq!(found.len(), original.len());
        let pairs: Vec<String> =
            found.split(|&byte| byte == 0).map(|pair| String::from_utf8_lossy(pair).into()).collect();
        assert!(pairs[0].starts_with("InitiatorName=iqn.2000-01."));
        assert_eq!(
            pairs[1..6],
            [
                "SessionType=Normal",
                "AuthMethod=CHAP,None",
                "HeaderDigest=CRC32C,None",
                "MaxBurstLength=262144",
                "IFMarkInt=2048~65535"
            ]
        );
        assert!(pairs[6].starts_with("CHAP_N=") && pairs[6] != "CHAP_N=backup");
        assert_eq!(pairs[7], "CHAP_R=000000");
        assert!(pairs[8].starts_with("X-"));
        let text = String::from_utf8_lossy(&found);
        for gone in ["debian", "backup", "1f2e", "com.example", "Berlin", "secret"] {
            assert!(!text.contains(gone), "{gone}");
        }
        assert_eq!(pairs[9], "TargetAlias=Irrelevant");
    }

    #[test]
    fn a_target_address_is_that_of_the_packets() {
        let key = Key::new(&[9; KEY_BYTES]);
        let addresses = Addresses::new(&key);
        for (host, rest) in [("10.0.0.2", ":3260,1"), ("192.168.100.7", ",2"), ("10.20.30.40", "")] {
            let mapped = addresses.ip(host.parse().unwrap());
            let expected = format!("TargetAddress={mapped}{rest}");
            assert_eq!(replaced(format!("TargetAddress={host}{rest}").as_bytes()), expected.as_bytes());
        }
        for host in ["fd00::2", "2001:DB8:0:0:1:0:0:00a1", "::1", "fe80::"] {
            let found = replaced(format!("TargetAddress=[{host}]:3260,1").as_bytes());
            let found = String::from_utf8(found).unwrap();
            let found = found.strip_prefix("TargetAddress=[").unwrap().strip_suffix("]:3260,1").unwrap();
            assert_eq!(found.len(), host.len());
            let mapped: IpAddr = found.parse().unwrap();
            assert_eq!(mapped, addresses.ip(host.parse().unwrap()));
        }
        let found = replaced(b"TargetAddress=array.example:3260,1");
        assert!(found.ends_with(b":3260,1") && !found.windows(5).any(|part| part == b"array"));
        assert!(!replaced(b"TargetAddress=10.0.0.2:secret,1x").windows(6).any(|part| part == b"secret"));
    }

    proptest! {
        #[test]
        fn any_text_keeps_its_length(original in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(replaced(&original).len(), original.len());
        }

        /// What the reader counts as malformed stays so, and what it takes for a pair, too.
        #[test]
        fn pairs_stay_pairs(lines in prop::collection::vec("[ -~]{0,20}=?[ -~]{0,20}", 0..6)) {
            let original = lines.join("\0");
            let kinds = |text: &[u8]| {
                iscsitrace_wire::text::pairs(text).map(|pair| pair.map(|(key, _)| key.len())).collect::<Vec<_>>()
            };
            prop_assert_eq!(kinds(&replaced(original.as_bytes())), kinds(original.as_bytes()));
        }
    }
}
