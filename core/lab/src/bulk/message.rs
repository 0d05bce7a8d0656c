//! The request of the initiator's end, and the report of the target's; numbers are big-endian.

/// First bytes of a request: no iSCSI PDU begins like this.
const MAGIC: &[u8; 16] = b"iscsitrace bulk1";
/// Length of a request.
pub const REQUEST_BYTES: usize = 40;
/// Length of a report.
pub const REPORT_BYTES: usize = 40;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Whether the initiator's end sends.
    pub is_write: bool,
    /// Bytes of a system call.
    pub block_bytes: u32,
    /// Total bytes; the largest number for no limit.
    pub limit_bytes: u64,
    /// Duration, in nanoseconds: no block starts later; the largest number for no limit.
    pub limit_ns: i64,
}

/// What was received, and when; both ends use the clock of their world.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes received.
    pub bytes: u64,
    /// When the first of them arrived.
    pub first_ns: i64,
    /// When half of the request had arrived, in bytes or time.
    pub half_ns: i64,
    /// When the last of them arrived.
    pub last_ns: i64,
    /// Bytes that arrived after the half.
    pub steady_bytes: u64,
}

impl Request {
    /// Encodes it.
    pub fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16] = u8::from(self.is_write);
        bytes[20..24].copy_from_slice(&self.block_bytes.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.limit_bytes.to_be_bytes());
        bytes[32..].copy_from_slice(&self.limit_ns.to_be_bytes());
        bytes
    }

    /// Decodes it; none when the bytes are no request.
    pub fn from_bytes(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let block_bytes = u32::from_be_bytes(bytes[20..24].try_into().ok()?);
        let request = Self {
            is_write: bytes[16] == 1,
            block_bytes,
            limit_bytes: number(&bytes[24..32])?,
            limit_ns: i64::try_from(number(&bytes[32..])?).ok()?,
        };
        (bytes.starts_with(MAGIC) && bytes[16] < 2 && block_bytes > 0).then_some(request)
    }
}

impl Report {
    /// Encodes it.
    pub fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0; REPORT_BYTES];
        bytes[..8].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.first_ns.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.half_ns.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.last_ns.to_be_bytes());
        bytes[32..].copy_from_slice(&self.steady_bytes.to_be_bytes());
        bytes
    }

    /// Decodes it; none when a time is before 1970.
    pub fn from_bytes(bytes: &[u8; REPORT_BYTES]) -> Option<Self> {
        let time_ns = |bytes| number(bytes).and_then(|time_ns| i64::try_from(time_ns).ok());
        Some(Self {
            bytes: number(&bytes[..8])?,
            first_ns: time_ns(&bytes[8..16])?,
            half_ns: time_ns(&bytes[16..24])?,
            last_ns: time_ns(&bytes[24..32])?,
            steady_bytes: number(&bytes[32..])?,
        })
    }
}

/// Throughput of the steady part of parallel transfers, from the first half reached to the last end: a lower bound.
/// None when it took no time.
pub fn steady_bytes_per_s<'a>(reports: impl Iterator<Item = &'a Report> + Clone) -> Option<f64> {
    let half_ns = reports.clone().map(|report| report.half_ns).min()?;
    let last_ns = reports.clone().map(|report| report.last_ns).max()?;
    let bytes: u64 = reports.map(|report| report.steady_bytes).fold(0, u64::saturating_add);
    let steady_ns = last_ns.saturating_sub(half_ns);
    (steady_ns > 0).then(|| bytes as f64 * 1e9 / steady_ns as f64)
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use iscsitrace_wire::bhs::Bhs;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_are_decoded_as_encoded(
            (is_write, block_bytes) in (any::<bool>(), 1u32..),
            (limit_bytes, limit_ns, steady_bytes) in (any::<u64>(), 0i64.., any::<u64>()),
            (first_ns, half_ns, last_ns) in (0i64.., 0i64.., 0i64..),
        ) {
            let request = Request { is_write, block_bytes, limit_bytes, limit_ns };
            prop_assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
            let report = Report { bytes: limit_bytes, first_ns, half_ns, last_ns, steady_bytes };
            prop_assert_eq!(Report::from_bytes(&report.to_bytes()), Some(report));
        }

        #[test]
        fn any_bytes_are_survived(request in any::<[u8; REQUEST_BYTES]>(), report in any::<[u8; REPORT_BYTES]>()) {
            prop_assert_eq!(Request::from_bytes(&request), None);
            let _ = Report::from_bytes(&report);
        }
    }

    #[test]
    fn parallel_transfers_are_summed() {
        let report = |half_ns, last_ns| Report { half_ns, last_ns, steady_bytes: 1_000, ..Report::default() };
        let steady = |reports: &[Report]| steady_bytes_per_s(reports.iter());
        assert_eq!(steady(&[report(1_000, 2_000)]), Some(1e9));
        assert_eq!(steady(&[report(1_000, 2_000), report(1_000, 2_000)]), Some(2e9));
        // one after the other
        assert_eq!(steady(&[report(1_000, 2_000), report(2_000, 3_000)]), Some(1e9));
        assert_eq!(steady(&[report(1_000, 1_000)]), None);
        assert_eq!(steady(&[]), None);
    }

    #[test]
    fn invalid_messages_are_refused() {
        let request = Request { is_write: false, block_bytes: 1, limit_bytes: 1, limit_ns: 1 };
        let good = request.to_bytes();
        for (place, value) in [(0, b'I'), (16, 2), (23, 0), (32, 0x80)] {
            let mut bytes = good;
            bytes[place] = value;
            assert_eq!(Request::from_bytes(&bytes), None, "{place}");
        }
        assert!(Bhs::new(&good).opcode().is_none(), "taken for an iSCSI PDU");
    }
}
