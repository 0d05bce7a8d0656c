//! Names of a logical unit: derived from the target's name and the LUN only, so that they are the same in every run.

/// Vendor, product and the unique names of a logical unit.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    /// T10 vendor identification, padded.
    pub(super) vendor: [u8; 8],
    /// Product identification, padded.
    pub(super) product: [u8; 16],
    /// Product serial number: 16 hexadecimal digits.
    pub(super) serial: String,
    /// NAA identifier, locally assigned (SPC-4).
    pub(super) naa: [u8; 8],
    /// iSCSI name of the target.
    pub(super) target_name: String,
    /// Target portal group tag.
    pub(super) target_portal_group_tag: u16,
}

impl Identity {
    pub(super) fn new(
        vendor: &str,
        product: &str,
        target_name: &str,
        target_portal_group_tag: u16,
        lun: u16,
    ) -> Identity {
        // FNV-1a: short, and the same on every machine.
        let hash = target_name
            .bytes()
            .chain(lun.to_be_bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let mut naa = hash.to_be_bytes();
        naa[0] = 0x30 | (naa[0] & 0x0f);
        Identity {
            vendor: pad(vendor),
            product: pad(product),
            serial: format!("{hash:016x}"),
            naa,
            target_name: target_name.to_owned(),
            target_portal_group_tag,
        }
    }
}

/// Left-aligned, padded with spaces.
fn pad<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
    let mut field = [b' '; LENGTH];
    field.iter_mut().zip(text.bytes()).for_each(|(field, byte)| *field = byte);
    field
}

/// Whether a text fits a field of INQUIRY data of this many bytes (SPC-4: 20h to 7Eh).
pub(super) fn is_fit(text: &str, most: usize) -> bool {
    text.len() <= most && text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::Identity;

    #[test]
    fn names_depend_on_target_and_lun_alone() {
        let make = |name: &str, lun| Identity::new("V", "P", name, 1, lun);
        assert_eq!(make("iqn.a", 0).naa, make("iqn.a", 0).naa);
        assert_ne!(make("iqn.a", 0).naa, make("iqn.a", 1).naa);
        assert_ne!(make("iqn.a", 0).serial, make("iqn.b", 0).serial);
        assert_eq!(make("iqn.a", 0).naa[0] >> 4, 3);
        assert_eq!(&make("iqn.a", 0).vendor, b"V       ");
    }
}
