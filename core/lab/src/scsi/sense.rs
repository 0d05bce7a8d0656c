//! Sense data in fixed and descriptor format (SPC-4).

use iscsitrace_wire::sense::SenseKey;

/// The invalid field of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldPointer {
    /// Whether it is in the CDB; else in the parameter list.
    pub is_in_cdb: bool,
    /// Its first byte.
    pub byte: u16,
    /// Its most significant bit, when the field does not start at the top bit of its byte.
    pub bit: Option<u8>,
}

/// The sense data of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sense {
    /// Sense key.
    pub key: SenseKey,
    /// Additional sense code.
    pub code: u8,
    /// Additional sense code qualifier.
    pub qualifier: u8,
    /// INFORMATION field: the offset of the first byte that differs, for a miscompare.
    pub information: Option<u64>,
    /// The invalid field.
    pub field: Option<FieldPointer>,
}

impl Sense {
    /// Sense data with this key, additional sense code and qualifier only.
    #[must_use]
    pub const fn new(key: SenseKey, code: u8, qualifier: u8) -> Sense {
        Sense { key, code, qualifier, information: None, field: None }
    }

    /// NO ADDITIONAL SENSE INFORMATION.
    pub const NONE: Sense = Sense::new(SenseKey::NoSense, 0x00, 0x00);
    /// MEDIUM NOT PRESENT - TRAY OPEN: the medium is ejected.
    pub const EJECTED: Sense = Sense::new(SenseKey::NotReady, 0x3a, 0x02);
    /// PARAMETER LIST LENGTH ERROR.
    pub const PARAMETER_LIST_LENGTH: Sense = Sense::new(SenseKey::IllegalRequest, 0x1a, 0x00);
    /// INVALID COMMAND OPERATION CODE.
    pub const OPERATION_CODE: Sense = Sense::new(SenseKey::IllegalRequest, 0x20, 0x00);
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub const OUT_OF_RANGE: Sense = Sense::new(SenseKey::IllegalRequest, 0x21, 0x00);
    /// LOGICAL UNIT NOT SUPPORTED.
    pub const NO_LOGICAL_UNIT: Sense = Sense::new(SenseKey::IllegalRequest, 0x25, 0x00);
    /// INVALID RELEASE OF PERSISTENT RESERVATION.
    pub const INVALID_RELEASE: Sense = Sense::new(SenseKey::IllegalRequest, 0x26, 0x04);
    /// SAVING PARAMETERS NOT SUPPORTED.
    pub const SAVING: Sense = Sense::new(SenseKey::IllegalRequest, 0x39, 0x00);
    /// MEDIUM REMOVAL PREVENTED.
    pub const REMOVAL_PREVENTED: Sense = Sense::new(SenseKey::IllegalRequest, 0x53, 0x02);
    /// INSUFFICIENT REGISTRATION RESOURCES.
    pub const REGISTRATION_RESOURCES: Sense = Sense::new(SenseKey::IllegalRequest, 0x55, 0x04);
    /// WRITE PROTECTED: the medium is write protected.
    pub const WRITE_PROTECTED: Sense = Sense::new(SenseKey::DataProtect, 0x27, 0x00);
    /// LOGICAL UNIT SOFTWARE WRITE PROTECTED: the SWP bit is set.
    pub const SOFTWARE_WRITE_PROTECTED: Sense = Sense::new(SenseKey::DataProtect, 0x27, 0x02);
    /// SPACE ALLOCATION FAILED WRITE PROTECT: no memory is left.
    pub const NO_SPACE: Sense = Sense::new(SenseKey::DataProtect, 0x27, 0x07);

    /// UNIT ATTENTION with this additional sense code and qualifier.
    pub(super) const fn unit_attention(code: u8, qualifier: u8) -> Sense {
        Sense::new(SenseKey::UnitAttention, code, qualifier)
    }

    /// INVALID FIELD IN CDB, at this byte of it.
    pub(super) const fn cdb_field(byte: u16) -> Sense {
        let mut sense = Sense::new(SenseKey::IllegalRequest, 0x24, 0x00);
        sense.field = Some(FieldPointer { is_in_cdb: true, byte, bit: None });
        sense
    }

    /// INVALID FIELD IN CDB, at a field whose most significant bit is this one of this byte.
    pub(super) const fn cdb_bit(byte: u16, bit: u8) -> Sense {
        let mut sense = Sense::new(SenseKey::IllegalRequest, 0x24, 0x00);
        sense.field = Some(FieldPointer { is_in_cdb: true, byte, bit: Some(bit) });
        sense
    }

    /// INVALID FIELD IN PARAMETER LIST, at this byte of it.
    pub(super) const fn parameter_field(byte: u16) -> Sense {
        let mut sense = Sense::new(SenseKey::IllegalRequest, 0x26, 0x00);
        sense.field = Some(FieldPointer { is_in_cdb: false, byte, bit: None });
        sense
    }

    /// MISCOMPARE DURING VERIFY OPERATION, first at this byte of the data.
    pub(super) const fn miscompare(offset: u64) -> Sense {
        let mut sense = Sense::new(SenseKey::Miscompare, 0x1d, 0x00);
        sense.information = Some(offset);
        sense
    }

    /// Encodes it: 18 bytes in fixed format, 8 bytes and descriptors in descriptor format.
    #[must_use]
    pub fn encode(&self, has_descriptors: bool) -> Vec<u8> {
        if has_descriptors { self.encode_descriptors() } else { self.encode_fixed().to_vec() }
    }

    fn encode_fixed(&self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[0] = 0x70;
        bytes[2] = self.key as u8;
        bytes[7] = 10;
        bytes[12] = self.code;
        bytes[13] = self.qualifier;
        // The field has 32 bits; an INFORMATION that does not fit is not valid (SPC-4).
        if let Some(information) = self.information.and_then(|information| u32::try_from(information).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        if let Some(field) = self.field {
            bytes[15..18].copy_from_slice(&field.encode());
        }
        bytes
    }

    fn encode_descriptors(&self) -> Vec<u8> {
        let mut bytes = vec![0x72, self.key as u8, self.code, self.qualifier, 0, 0, 0, 0];
        if let Some(information) = self.information {
            bytes.extend_from_slice(&[0x00, 0x0a, 0x80, 0]);
            bytes.extend_from_slice(&information.to_be_bytes());
        }
        if let Some(field) = self.field {
            let [flags, high, low] = field.encode();
            bytes.extend_from_slice(&[0x02, 0x06, 0, 0, flags, high, low, 0]);
        }
        // At most 8 + 12 + 8 bytes, of which 20 are additional.
        bytes[7] = (bytes.len() - 8) as u8;
        bytes
    }
}

impl FieldPointer {
    /// Sense key specific data of ILLEGAL REQUEST: SKSV, C/D, BPV, bit pointer, field pointer (SPC-4).
    fn encode(self) -> [u8; 3] {
        let place = if self.is_in_cdb { 0x40 } else { 0 };
        let bit = self.bit.map_or(0, |bit| 0x08 | (bit & 0x07));
        let [high, low] = self.byte.to_be_bytes();
        [0x80 | place | bit, high, low]
    }
}

#[cfg(test)]
mod tests {
    use super::Sense;

    /// By the figures of SPC-4.
    #[test]
    fn formats_are_those_of_spc() {
        #[rustfmt::skip]
        let cases: [(Sense, &[u8], &[u8]); 4] = [
            (Sense::OUT_OF_RANGE,
             &[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0],
             &[0x72, 5, 0x21, 0, 0, 0, 0, 0]),
            (Sense::cdb_bit(1, 7),
             &[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0xcf, 0, 1],
             &[0x72, 5, 0x24, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0xcf, 0, 1, 0]),
            (Sense::parameter_field(0x0102),
             &[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x26, 0, 0, 0x80, 1, 2],
             &[0x72, 5, 0x26, 0, 0, 0, 0, 8, 2, 6, 0, 0, 0x80, 1, 2, 0]),
            (Sense::miscompare(0x0102_0304),
             &[0xf0, 0, 0xe, 1, 2, 3, 4, 10, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0, 0],
             &[0x72, 0xe, 0x1d, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 1, 2, 3, 4]),
        ];
        for (sense, fixed, descriptors) in cases {
            assert_eq!(sense.encode(false), fixed, "{sense:?}");
            assert_eq!(sense.encode(true), descriptors, "{sense:?}");
        }
    }

    #[test]
    fn information_that_needs_64_bits_is_not_valid_in_fixed_format() {
        assert_eq!(Sense::miscompare(1 << 32).encode(false)[..7], [0x70, 0, 0xe, 0, 0, 0, 0]);
    }
}
