//! The keys of Login and Text PDUs, declared once: how a value comes about and which values are admissible (RFC 7143
//! sections 6.2, 12 and 13).
//!
//! Never holds a value, and never decides who may send a key when.

/// How two sides agree on a value (RFC 7143 section 6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultFunction {
    /// Each side declares a value.
    Declare,
    /// The first of the originator's list that the responder supports.
    Choose,
    /// The smaller of the two.
    Minimum,
    /// The larger of the two.
    Maximum,
    /// Yes when both say Yes.
    And,
    /// Yes when either says Yes.
    Or,
}

/// Words that are answers and never offers: with them no value is agreed on (RFC 7143 section 6.2).
pub const RESERVED_VALUES: &[&str] = &["Reject", "Irrelevant", "NotUnderstood"];

/// What a key is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Parameters of a session or a connection.
    Operational,
    /// Names, aliases and addresses of both sides, and the type of the session.
    Naming,
    /// The choice of an authentication method.
    Authentication,
    /// Authentication by CHAP (RFC 7143 section 12.1.3).
    Chap,
    /// Authentication by SRP or Kerberos, or by SPKM of RFC 3720.
    OtherMethod,
    /// Discovery in the full feature phase.
    Discovery,
    /// Obsolete since RFC 7143; initiators still send them.
    Obsolete,
}

/// When a key may be sent: "Use" in RFC 7143 section 13.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// ALL: in a login and in the full feature phase.
    All,
    /// IO: in a login.
    InitializeOnly,
    /// LO: in the login of the leading connection.
    LeadingOnly,
    /// FFPO: in the full feature phase.
    FullFeatureOnly,
}

/// Where a value holds: "Scope" in RFC 7143 section 13.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// SW: for all connections of the session.
    Session,
    /// CO: for the connection that negotiated it.
    Connection,
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// A number from the first to the second.
    Number(u32, u32),
    /// Yes or No.
    Boolean,
    /// A list, the preferred value first.
    List,
    /// Any other text.
    Text,
}

/// A key: one row of [`KEYS`].
#[derive(Debug)]
pub struct Key {
    /// The RFC's spelling.
    pub name: &'static str,
    /// The section of RFC 7143 that defines it, or makes its method or itself obsolete.
    pub section: &'static str,
    /// What it is about.
    pub group: Group,
    /// How its value comes about; none for the messages of an authentication method.
    pub result: Option<ResultFunction>,
    /// What a value is.
    pub value: Value,
    /// The value when neither side names the key; none where the RFC has none.
    pub default: Option<&'static str>,
    /// When it may be sent.
    pub usage: Use,
    /// Where its value holds.
    pub scope: Scope,
    /// Whether it is irrelevant in a discovery session.
    pub is_irrelevant_in_discovery: bool,
    /// Whether the default is shown for a normal session in which neither side named the key.
    pub is_shown_by_default: bool,
    /// Whether its value is a secret, or helps to find one: never kept, never shown.
    pub is_secret: bool,
}

impl Key {
    /// The key of a name as it is spelled on the wire.
    #[must_use]
    pub fn from_name(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }
}

/// Makes `OperationalKey` and `KEYS`.
macro_rules! keys {
    (
        operational { $($variant:ident $name:literal $setting:ident $section:literal
            $result:ident $value:expr, $default:literal $usage:ident $scope:ident $discovery:ident $shown:ident;)* }
        others { $($other:literal $other_section:literal $group:ident $other_result:expr, $other_value:expr,
            $other_default:expr, $other_usage:ident $other_scope:ident $secrecy:ident;)* }
    ) => {
        /// An operational key of RFC 7143 section 13.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum OperationalKey { $(#[doc = concat!($name, " (RFC 7143 section ", $section, ").")] $variant,)* }

        impl OperationalKey {
            /// All of them in the RFC's order; FirstBurstLength follows the keys that bound it.
            pub const ALL: &[OperationalKey] = &[$(OperationalKey::$variant,)*];

            /// Its name in settings and results, in snake case.
            #[must_use]
            pub const fn setting(self) -> &'static str {
                match self { $(OperationalKey::$variant => stringify!($setting),)* }
            }

            /// How its value comes about.
            #[must_use]
            pub const fn result_function(self) -> ResultFunction {
                match self { $(OperationalKey::$variant => ResultFunction::$result,)* }
            }
        }

        /// Every key of RFC 7143 sections 12 and 13 that is known here: the operational ones first, in the order of
        /// [`OperationalKey::ALL`].
        pub const KEYS: &[Key] = &[
            $(Key {
                name: $name,
                section: $section,
                group: Group::Operational,
                result: Some(ResultFunction::$result),
                value: $value,
                default: Some($default),
                usage: Use::$usage,
                scope: Scope::$scope,
                is_irrelevant_in_discovery: keys!(@ $discovery),
                is_shown_by_default: keys!(@ $shown),
                is_secret: false,
            },)*
            $(Key {
                name: $other,
                section: $other_section,
                group: Group::$group,
                result: $other_result,
                value: $other_value,
                default: $other_default,
                usage: Use::$other_usage,
                scope: Scope::$other_scope,
                is_irrelevant_in_discovery: false,
                is_shown_by_default: false,
                is_secret: keys!(@ $secrecy),
            },)*
        ];
    };
    (@ irrelevant) => { true };
    (@ relevant) => { false };
    (@ shown) => { true };
    (@ unshown) => { false };
    (@ secret) => { true };
    (@ public) => { false };
}

use ResultFunction::{And, Choose, Declare};
use Value::{Boolean, List, Number, Text};

/// The largest number of 24 bits.
const LENGTH_MAX: u32 = 16_777_215;

#[rustfmt::skip]
keys! {
    operational {
        // name, name in settings, section, result function, kind of value, default, use, scope, in a discovery session, default
        HeaderDigest "HeaderDigest" header_digest "13.1" Choose List, "None" InitializeOnly Connection relevant shown;
        DataDigest "DataDigest" data_digest "13.1" Choose List, "None" InitializeOnly Connection relevant shown;
        MaxConnections "MaxConnections" max_connections "13.2"
            Minimum Number(1, 65_535), "1" LeadingOnly Session irrelevant shown;
        InitialR2T "InitialR2T" initial_r2t "13.10" Or Boolean, "Yes" LeadingOnly Session irrelevant shown;
        ImmediateData "ImmediateData" immediate_data "13.11" And Boolean, "Yes" LeadingOnly Session irrelevant shown;
        MaxRecvDataSegmentLength "MaxRecvDataSegmentLength" max_recv_data_segment_length "13.12"
            Declare Number(512, LENGTH_MAX), "8192" All Connection relevant shown;
        MaxBurstLength "MaxBurstLength" max_burst_length "13.13"
            Minimum Number(512, LENGTH_MAX), "262144" LeadingOnly Session irrelevant shown;
        FirstBurstLength "FirstBurstLength" first_burst_length "13.14"
            Minimum Number(512, LENGTH_MAX), "65536" LeadingOnly Session irrelevant shown;
        DefaultTime2Wait "DefaultTime2Wait" default_time2wait "13.15"
            Maximum Number(0, 3_600), "2" LeadingOnly Session relevant shown;
        DefaultTime2Retain "DefaultTime2Retain" default_time2retain "13.16"
            Minimum Number(0, 3_600), "20" LeadingOnly Session relevant shown;
        MaxOutstandingR2T "MaxOutstandingR2T" max_outstanding_r2t "13.17"
            Minimum Number(1, 65_535), "1" LeadingOnly Session irrelevant shown;
        DataPduInOrder "DataPDUInOrder" data_pdu_in_order "13.18" Or Boolean, "Yes" LeadingOnly Session irrelevant shown;
        DataSequenceInOrder "DataSequenceInOrder" data_sequence_in_order "13.19"
            Or Boolean, "Yes" LeadingOnly Session irrelevant shown;
        ErrorRecoveryLevel "ErrorRecoveryLevel" error_recovery_level "13.20"
            Minimum Number(0, 2), "0" LeadingOnly Session relevant shown;
        TaskReporting "TaskReporting" task_reporting "13.23"
            Choose List, "RFC3720" LeadingOnly Session irrelevant unshown;
        IscsiProtocolLevel "iSCSIProtocolLevel" iscsi_protocol_level "13.24"
            Minimum Number(0, 31), "1" LeadingOnly Session irrelevant unshown;
    }
    others {
        // name, section, group, result function, kind of value, default, use, scope, secrecy
        "SendTargets" "13.3" Discovery Some(Declare), Text, None, FullFeatureOnly Session public;
        "TargetName" "13.4" Naming Some(Declare), Text, None, All Session public;
        "InitiatorName" "13.5" Naming Some(Declare), Text, None, InitializeOnly Session public;
        "TargetAlias" "13.6" Naming Some(Declare), Text, None, All Session public;
        "InitiatorAlias" "13.7" Naming Some(Declare), Text, None, All Session public;
        "TargetAddress" "13.8" Naming Some(Declare), Text, None, All Session public;
        "TargetPortalGroupTag" "13.9" Naming Some(Declare), Number(0, 65_535), None, InitializeOnly Session public;
        "SessionType" "13.21" Naming Some(Declare), Text, Some("Normal"), LeadingOnly Session public;
        "IFMarker" "13.25" Obsolete Some(And), Boolean, Some("No"), InitializeOnly Connection public;
        "OFMarker" "13.25" Obsolete Some(And), Boolean, Some("No"), InitializeOnly Connection public;
        "IFMarkInt" "13.25" Obsolete Some(Declare), Text, None, InitializeOnly Connection public;
        "OFMarkInt" "13.25" Obsolete Some(Declare), Text, None, InitializeOnly Connection public;
        "AuthMethod" "12.1" Authentication Some(Choose), List, None, InitializeOnly Connection public;
        "CHAP_A" "12.1.3" Chap Some(Choose), List, None, InitializeOnly Connection public;
        "CHAP_N" "12.1.3" Chap Some(Declare), Text, None, InitializeOnly Connection public;
        "CHAP_C" "12.1.3" Chap None, Text, None, InitializeOnly Connection secret;
        "CHAP_I" "12.1.3" Chap None, Number(0, 255), None, InitializeOnly Connection secret;
        "CHAP_R" "12.1.3" Chap None, Text, None, InitializeOnly Connection secret;
        "SRP_U" "12.1.2" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SRP_N" "12.1.2" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SRP_g" "12.1.2" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SRP_s" "12.1.2" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SRP_A" "12.1.2" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SRP_B" "12.1.2" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SRP_M" "12.1.2" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SRP_HM" "12.1.2" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SPKM_REQ" "12.1" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SPKM_ERROR" "12.1" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SPKM_REP_TI" "12.1" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "SPKM_REP_IT" "12.1" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "KRB_AP_REQ" "12.1.1" OtherMethod None, Text, None, InitializeOnly Connection secret;
        "KRB_AP_REP" "12.1.1" OtherMethod None, Text, None, InitializeOnly Connection secret;
    }
}

impl OperationalKey {
    /// Its row of the table.
    #[must_use]
    pub const fn row(self) -> &'static Key {
        &KEYS[self as usize]
    }

    /// The key of a name as it is spelled on the wire.
    #[must_use]
    pub fn from_name(name: &str) -> Option<OperationalKey> {
        OperationalKey::ALL.iter().copied().find(|key| key.name() == name)
    }

    /// The RFC's spelling.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Its section of RFC 7143.
    #[must_use]
    pub const fn section(self) -> &'static str {
        self.row().section
    }

    /// The smallest and largest admissible number; 0 for keys without numbers.
    #[must_use]
    pub const fn bounds(self) -> (u32, u32) {
        match self.row().value {
            Value::Number(low, high) => (low, high),
            Value::Boolean | Value::List | Value::Text => (0, 0),
        }
    }

    /// The number, when the key may have it.
    #[must_use]
    pub fn admits(self, number: u64) -> Option<u32> {
        let (low, high) = self.bounds();
        u32::try_from(number).ok().filter(|number| (low..=high).contains(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_keys() {
        for key in OperationalKey::ALL {
            assert_eq!(OperationalKey::from_name(key.name()), Some(*key));
            assert_eq!(key.row().group, Group::Operational);
        }
        for (place, key) in KEYS.iter().enumerate() {
            assert!(KEYS.iter().take(place).all(|earlier| earlier.name != key.name), "{} twice", key.name);
            assert_eq!(key.group == Group::Operational, place < OperationalKey::ALL.len(), "{}", key.name);
        }
        assert_eq!(OperationalKey::from_name("maxburstlength"), None);
        assert_eq!(OperationalKey::from_name("SendTargets"), None);
        assert_eq!(Key::from_name("SendTargets").map(|key| key.section), Some("13.3"));
    }

    #[test]
    fn bounds_are_those_of_section_13() {
        assert_eq!(OperationalKey::MaxBurstLength.admits(511), None);
        assert_eq!(OperationalKey::MaxBurstLength.admits(512), Some(512));
        assert_eq!(OperationalKey::MaxBurstLength.admits((1 << 24) - 1), Some((1 << 24) - 1));
        assert_eq!(OperationalKey::MaxBurstLength.admits(1 << 24), None);
        assert_eq!(OperationalKey::MaxConnections.admits(0), None);
        assert_eq!(OperationalKey::DefaultTime2Wait.admits(3601), None);
        assert_eq!(OperationalKey::ErrorRecoveryLevel.admits(3), None);
        assert_eq!(OperationalKey::MaxOutstandingR2T.admits(1 << 32), None);
    }

    /// The scope CO of section 13: HeaderDigest and DataDigest (13.1), MaxRecvDataSegmentLength (13.12). All other
    /// operational keys are LO.
    #[test]
    fn three_operational_keys_belong_to_a_connection() {
        for key in OperationalKey::ALL {
            let is_of_connection = ["HeaderDigest", "DataDigest", "MaxRecvDataSegmentLength"].contains(&key.name());
            assert_eq!(key.row().scope == Scope::Connection, is_of_connection, "{}", key.name());
            assert_eq!(key.row().usage != Use::LeadingOnly, is_of_connection, "{}", key.name());
        }
    }

    #[test]
    fn defaults_are_values_that_the_key_admits() {
        for key in OperationalKey::ALL {
            let default = key.row().default.unwrap_or_default();
            let is_admissible = match key.row().value {
                Value::Number(..) => crate::text::numeric(default).and_then(|number| key.admits(number)).is_some(),
                Value::Boolean => crate::text::boolean(default).is_some(),
                Value::List | Value::Text => !default.is_empty(),
            };
            assert!(is_admissible, "{}={default}", key.name());
        }
    }
}
