//! Sense data of a CHECK CONDITION: sense key, additional sense code and qualifier, and T10's words for them.
//!
//! What they mean for a command is for others to decide.

macro_rules! sense_keys {
    ($($name:ident = $code:literal $words:literal;)*) => {
        /// Sense keys (SPC-5).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the names are T10's")]
        pub enum SenseKey { $($name = $code,)* }

        impl SenseKey {
            /// Every key, in the order of its code.
            pub const ALL: [SenseKey; 16] = [$(SenseKey::$name,)*];

            /// T10's words.
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(SenseKey::$name => $words,)* }
            }
        }
    };
}

sense_keys! {
    NoSense = 0x0 "NO SENSE";
    RecoveredError = 0x1 "RECOVERED ERROR";
    NotReady = 0x2 "NOT READY";
    MediumError = 0x3 "MEDIUM ERROR";
    HardwareError = 0x4 "HARDWARE ERROR";
    IllegalRequest = 0x5 "ILLEGAL REQUEST";
    UnitAttention = 0x6 "UNIT ATTENTION";
    DataProtect = 0x7 "DATA PROTECT";
    BlankCheck = 0x8 "BLANK CHECK";
    VendorSpecific = 0x9 "VENDOR SPECIFIC";
    CopyAborted = 0xa "COPY ABORTED";
    AbortedCommand = 0xb "ABORTED COMMAND";
    Reserved = 0xc "reserved sense key";
    VolumeOverflow = 0xd "VOLUME OVERFLOW";
    Miscompare = 0xe "MISCOMPARE";
    Completed = 0xf "COMPLETED";
}

impl SenseKey {
    /// The key of a SENSE KEY field: the low four bits.
    #[must_use]
    pub const fn from_u8(byte: u8) -> SenseKey {
        SenseKey::ALL[(byte & 0x0f) as usize]
    }
}

/// Sense key, additional sense code and its qualifier of a CHECK CONDITION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenseCodes {
    /// Sense key.
    pub key: SenseKey,
    /// ADDITIONAL SENSE CODE; none where the data ends before it.
    pub code: Option<u8>,
    /// ADDITIONAL SENSE CODE QUALIFIER; likewise.
    pub qualifier: Option<u8>,
}

impl SenseCodes {
    /// Reads fixed or descriptor format (SPC-4 section 4.5); none for another one, and without a key.
    #[must_use]
    pub fn read(sense: &[u8]) -> Option<SenseCodes> {
        let (key, code, qualifier) = match sense.first()? & 0x7f {
            0x70 | 0x71 => (2, 12, 13),
            0x72 | 0x73 => (1, 2, 3),
            _ => return None,
        };
        let byte = |at: usize| sense.get(at).copied();
        Some(SenseCodes { key: SenseKey::from_u8(byte(key)?), code: byte(code), qualifier: byte(qualifier) })
    }
}

/// Every additional sense code and qualifier of T10's list with its words, without the ranges.
pub fn additional_sense_codes() -> impl Iterator<Item = (u8, u8, &'static str)> {
    include_str!("sense_codes.tsv").lines().filter_map(|line| {
        let (code, rest) = line.split_once('\t')?;
        let (qualifier, words) = rest.split_once('\t')?;
        Some((u8::from_str_radix(code, 16).ok()?, u8::from_str_radix(qualifier, 16).ok()?, words))
    })
}

/// T10's words for an additional sense code and qualifier, all but abbreviations in lower case.
#[must_use]
pub fn additional_sense(code: u8, qualifier: u8) -> Option<&'static str> {
    additional_sense_codes().find_map(|row| ((row.0, row.1) == (code, qualifier)).then_some(row.2))
}

#[cfg(test)]
mod tests {
    use super::{SenseCodes, SenseKey, additional_sense, additional_sense_codes};

    #[test]
    fn keys_have_the_numbers_of_spc() {
        assert!((0..16).all(|key| SenseKey::from_u8(key) as u8 == key));
        assert_eq!(SenseKey::from_u8(0xfb), SenseKey::AbortedCommand, "what lies above is not the key's");
    }

    #[test]
    fn sense_data_have_two_formats() {
        // SPC-4 section 4.5: fixed 0x70 and 0x71, descriptor 0x72 and 0x73
        let fixed = |code| [code, 0, 0xf5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x24, 1, 0, 0, 0, 0];
        let descriptor = |code| [code, 0xf6, 0x29, 2, 0, 0, 0, 0];
        let codes = |key, code, qualifier| Some(SenseCodes { key, code, qualifier });
        for code in [0x70, 0x71, 0xf0] {
            assert_eq!(SenseCodes::read(&fixed(code)), codes(SenseKey::IllegalRequest, Some(0x24), Some(1)));
        }
        // the other bits beside a sense key are FILEMARK, EOM and ILI
        for code in [0x72, 0x73, 0xf2] {
            assert_eq!(SenseCodes::read(&descriptor(code)), codes(SenseKey::UnitAttention, Some(0x29), Some(2)));
        }
        for code in [0x6f, 0x74] {
            assert_eq!(SenseCodes::read(&fixed(code)), None);
        }
        // additional sense bytes may be missing
        assert_eq!(SenseCodes::read(&fixed(0x70)[..13]), codes(SenseKey::IllegalRequest, Some(0x24), None));
        assert_eq!(SenseCodes::read(&[0x72, 11]), codes(SenseKey::AbortedCommand, None, None));
        assert_eq!(SenseCodes::read(&[0x70, 0]), None);
        assert_eq!(SenseCodes::read(&[]), None);
    }

    #[test]
    fn every_line_of_the_list_is_a_code() {
        let lines = include_str!("sense_codes.tsv").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!((lines, additional_sense_codes().count()), (761, 761));
        assert_eq!(additional_sense(0x11, 0), Some("unrecovered read error"));
        assert_eq!(
            additional_sense(0x04, 0x0a),
            Some("logical unit not accessible, asymmetric access state transition")
        );
        assert_eq!(additional_sense(0x7f, 0), None);
    }
}
