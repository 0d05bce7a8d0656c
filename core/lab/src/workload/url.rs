//! `iscsi://[user[%password]@]host[:port][/target[/lun]][?key=value&...]`, libiscsi's form, to settings.
//!
//! It never resolves a host name, and never shows a password.

use thiserror::Error;

use crate::protocol::chap::{Credentials, Secret};
use crate::protocol::keys::{Digest, Offers};
use crate::protocol::login::InitiatorLoginSettings;

/// The well-known port of iSCSI.
const PORT: u16 = 3260;

/// A parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// TargetName.
    pub target_name: Option<String>,
    /// Logical unit.
    pub lun: Option<u16>,
    /// Credentials of the initiator.
    pub chap: Option<Credentials>,
    /// Credentials of the target.
    pub chap_of_target: Option<Credentials>,
    /// Keys of the URL.
    pub keys: Vec<(String, String)>,
}

/// A URL that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} in the URL; it has to be iscsi://[user[%password]@]host[:port][/target-iqn[/lun]][?key=value&...]")]
pub struct InvalidUrl {
    /// The reason.
    pub what: String,
}

fn invalid<T>(what: impl Into<String>) -> Result<T, InvalidUrl> {
    Err(InvalidUrl { what: what.into() })
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.to_owned(), secret: Secret::new(secret) }
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// The reason, in one line.
    pub fn parse(text: &str) -> Result<Url, InvalidUrl> {
        let Some(rest) = text.strip_prefix("iscsi://") else { return invalid("no iscsi:// at the beginning") };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // a password may hold an @, a host cannot
        let (user, place) = authority.rsplit_once('@').map_or((None, authority), |(user, place)| (Some(user), place));
        let (host, port) = host_and_port(place)?;
        let (target, lun) = path.split_once('/').map_or((path, None), |(target, lun)| (target, Some(lun)));
        let lun = match lun.filter(|lun| !lun.is_empty()) {
            None => None,
            Some(lun) => match lun.parse::<u16>() {
                Ok(lun) if lun < 16_384 => Some(lun),
                _ => return invalid(format!("LUN '{lun}' is no number from 0 to 16383")),
            },
        };
        let mut url = Url {
            host,
            port,
            target_name: (!target.is_empty()).then(|| decode(target)).transpose()?,
            lun,
            chap: user.map(|user| {
                let (name, secret) = user.split_once('%').unwrap_or((user, ""));
                credentials(name, secret)
            }),
            chap_of_target: None,
            keys: Vec::new(),
        };
        url.read_query(query)?;
        Ok(url)
    }

    fn read_query(&mut self, query: &str) -> Result<(), InvalidUrl> {
        let (mut target_user, mut target_password) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else { return invalid(format!("'{pair}' without '='")) };
            match key {
                "target_user" => target_user = Some(value),
                "target_password" => target_password = Some(value),
                _ => {
                    set_key(&mut Offers::default(), key, value)?;
                    self.keys.push((key.to_owned(), value.to_owned()));
                }
            }
        }
        self.chap_of_target = match (target_user, target_password) {
            (None, None) => None,
            (Some(user), Some(password)) => Some(credentials(user, password)),
            _ => return invalid("target_user without target_password, or the other way round"),
        };
        Ok(())
    }

    /// Applies the URL to `login`.
    pub fn apply(&self, login: &mut InitiatorLoginSettings) {
        login.target_name.clone_from(&self.target_name);
        if self.chap.is_some() {
            login.chap.clone_from(&self.chap);
        }
        if self.chap_of_target.is_some() {
            login.chap_of_target.clone_from(&self.chap_of_target);
        }
        for (key, value) in &self.keys {
            // parse refused keys that cannot be set
            let _ = set_key(&mut login.offers, key, value);
        }
    }
}

fn host_and_port(place: &str) -> Result<(String, u16), InvalidUrl> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) => match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None => return invalid(format!("'{port}' behind the brackets")),
            },
            None => return invalid("'[' without ']'"),
        },
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return invalid("no host");
    }
    let port = match port.map(str::parse::<u16>) {
        None => PORT,
        Some(Ok(port)) if port > 0 => port,
        Some(_) => return invalid(format!("'{place}' without a port from 1 to 65535 behind the ':'")),
    };
    Ok((host.to_owned(), port))
}

/// %3a and the like, as libiscsi allows them in target names.
fn decode(text: &str) -> Result<String, InvalidUrl> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        let Some(Ok(byte)) = digits.map(|digits| u8::from_str_radix(digits, 16)) else {
            return invalid("'%' without two hexadecimal digits in the target");
        };
        bytes.push(byte);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).or_else(|_| invalid("a target that is not UTF-8"))
}

/// Sets a key by its name: RFC 7143's spelling, or that of the settings.
fn set_key(offers: &mut Offers, key: &str, value: &str) -> Result<(), InvalidUrl> {
    let wrong = |wanted: &str| InvalidUrl { what: format!("{key}={value}, where {wanted} is needed") };
    let lower = value.to_ascii_lowercase();
    let digests = || {
        let digest = |name: &str| match name {
            "crc32c" => Some(Digest::Crc32c),
            "none" => Some(Digest::None),
            _ => None,
        };
        let list: Option<Vec<Digest>> = lower.split(',').map(digest).collect();
        list.ok_or_else(|| wrong("crc32c, none or a list of both"))
    };
    let truth = || match lower.as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(wrong("yes or no")),
    };
    let number = || value.parse().map_err(|_| wrong("a number"));
    match key.replace('_', "").to_ascii_lowercase().as_str() {
        "headerdigest" => offers.header_digest = Some(digests()?),
        "datadigest" => offers.data_digest = Some(digests()?),
        "initialr2t" => offers.initial_r2t = Some(truth()?),
        "immediatedata" => offers.immediate_data = Some(truth()?),
        "datapduinorder" => offers.data_pdu_in_order = Some(truth()?),
        "datasequenceinorder" => offers.data_sequence_in_order = Some(truth()?),
        "maxconnections" => offers.max_connections = Some(number()?),
        "maxrecvdatasegmentlength" => offers.max_recv_data_segment_length = Some(number()?),
        "maxburstlength" => offers.max_burst_length = Some(number()?),
        "firstburstlength" => offers.first_burst_length = Some(number()?),
        "defaulttime2wait" => offers.default_time2wait = Some(number()?),
        "defaulttime2retain" => offers.default_time2retain = Some(number()?),
        "maxoutstandingr2t" => offers.max_outstanding_r2t = Some(number()?),
        "errorrecoverylevel" => offers.error_recovery_level = Some(number()?),
        _ => return invalid(format!("unknown key '{key}'")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const IQN: &str = "iqn.2001-04.com.example:disk";

    #[test]
    fn libiscsi_s_forms() {
        let url = Url::parse(&format!("iscsi://10.0.0.1/{IQN}/3")).unwrap();
        assert_eq!((url.host.as_str(), url.port, url.lun), ("10.0.0.1", 3260, Some(3)));
        assert_eq!(url.target_name.as_deref(), Some(IQN));
        assert_eq!(url.chap, None);
        let url = Url::parse("iscsi://[fe80::1]:860").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.target_name), ("fe80::1", 860, None));
        let url = Url::parse("iscsi://host/iqn.2001-04.com.example%3adisk/0").unwrap();
        assert_eq!(url.target_name.as_deref(), Some(IQN));
    }

    #[test]
    fn chap_both_ways() {
        let url = Url::parse(&format!("iscsi://joe%p@ss@h/{IQN}/0?target_user=disk&target_password=other")).unwrap();
        let mut login = InitiatorLoginSettings::default();
        url.apply(&mut login);
        assert_eq!(login.chap, Some(credentials("joe", "p@ss")));
        assert_eq!(login.chap_of_target, Some(credentials("disk", "other")));
        assert_eq!(login.target_name.as_deref(), Some(IQN));
        assert!(!format!("{url:?}").contains("p@ss"), "secrets are not shown");
    }

    #[test]
    fn keys_by_either_spelling() {
        let url =
            "iscsi://h/iqn.a:b/0?header_digest=crc32c&DataDigest=CRC32C,None&InitialR2T=Yes&max_burst_length=65536";
        let mut login = InitiatorLoginSettings::default();
        Url::parse(url).unwrap().apply(&mut login);
        assert_eq!(login.offers.header_digest, Some(vec![Digest::Crc32c]));
        assert_eq!(login.offers.data_digest, Some(vec![Digest::Crc32c, Digest::None]));
        assert_eq!((login.offers.initial_r2t, login.offers.max_burst_length), (Some(true), Some(65_536)));
    }

    #[test]
    fn errors_report_the_reason() {
        let form = "; it has to be iscsi://[user[%password]@]host[:port][/target-iqn[/lun]][?key=value&...]";
        for (url, what) in [
            ("http://h", "no iscsi:// at the beginning in the URL"),
            ("iscsi://", "no host in the URL"),
            ("iscsi://h:x", "'h:x' without a port from 1 to 65535 behind the ':' in the URL"),
            ("iscsi://[::1", "'[' without ']' in the URL"),
            ("iscsi://h/iqn.a:b/x", "LUN 'x' is no number from 0 to 16383 in the URL"),
            ("iscsi://h/iqn.a:b/0?x", "'x' without '=' in the URL"),
            ("iscsi://h/iqn.a:b/0?x=1", "unknown key 'x' in the URL"),
            (
                "iscsi://h?header_digest=md5",
                "header_digest=md5, where crc32c, none or a list of both is needed in the URL",
            ),
            ("iscsi://h?target_user=x", "target_user without target_password, or the other way round in the URL"),
        ] {
            assert_eq!(Url::parse(url).unwrap_err().to_string(), format!("{what}{form}"), "{url}");
        }
    }
}
