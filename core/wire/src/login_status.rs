//! Status-Class and Status-Detail of a Login Response (RFC 7143 section 11.13.5).
//!
//! When a status applies is for the target to decide.

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $class:literal $detail:literal $text:literal;)*) => {
        /// The status of a login.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum LoginStatus {
            $($(#[$doc])* $name,)*
            /// A code that RFC 7143 does not define: class and detail.
            Other(u8, u8),
        }

        impl LoginStatus {
            /// The status of two codes.
            #[must_use]
            pub fn from_codes(class: u8, detail: u8) -> LoginStatus {
                match (class, detail) {
                    $(($class, $detail) => LoginStatus::$name,)*
                    _ => LoginStatus::Other(class, detail),
                }
            }

            /// Status-Class and Status-Detail.
            #[must_use]
            pub fn codes(self) -> (u8, u8) {
                match self {
                    $(LoginStatus::$name => ($class, $detail),)*
                    LoginStatus::Other(class, detail) => (class, detail),
                }
            }

            /// Name in the RFC.
            #[must_use]
            pub fn words(self) -> &'static str {
                match self {
                    $(LoginStatus::$name => $text,)*
                    LoginStatus::Other(0, _) => "Success",
                    LoginStatus::Other(1, _) => "Redirection",
                    LoginStatus::Other(2, _) => "Initiator Error",
                    LoginStatus::Other(3, _) => "Target Error",
                    LoginStatus::Other(..) => "unknown status class",
                }
            }

            /// Every status that RFC 7143 defines.
            pub const ALL: &[LoginStatus] = &[$(LoginStatus::$name,)*];
        }
    };
}

statuses! {
    /// Login is proceeding.
    #[default]
    Success = 0 0 "Success";
    /// The requested target has temporarily moved.
    TargetMovedTemporarily = 1 1 "Target moved temporarily";
    /// The requested target has permanently moved.
    TargetMovedPermanently = 1 2 "Target moved permanently";
    /// Miscellaneous iSCSI initiator errors.
    InitiatorError = 2 0 "Initiator Error";
    /// The initiator could not be authenticated, or target authentication is not supported.
    AuthenticationFailure = 2 1 "Authentication Failure";
    /// The initiator is not allowed access to the given target.
    AuthorizationFailure = 2 2 "Authorization Failure";
    /// The requested target does not exist at this address.
    NotFound = 2 3 "Not Found";
    /// The requested target has been removed, and no forwarding address is provided.
    TargetRemoved = 2 4 "Target Removed";
    /// The requested iSCSI version range is not supported by the target.
    UnsupportedVersion = 2 5 "Unsupported Version";
    /// Too many connections on this session.
    TooManyConnections = 2 6 "Too many connections";
    /// Missing parameters, such as the initiator's or the target's name.
    MissingParameter = 2 7 "Missing Parameter";
    /// The target does not support session spanning to this connection.
    CannotIncludeInSession = 2 8 "Can't include in session";
    /// The target does not support this type of session, or not from this initiator.
    SessionTypeNotSupported = 2 9 "Session type not supported";
    /// An attempt was made to add a connection to a session that does not exist.
    SessionDoesNotExist = 2 10 "Session does not exist";
    /// Invalid request type during login.
    InvalidDuringLogin = 2 11 "Invalid during login";
    /// Target hardware or software error.
    TargetError = 3 0 "Target Error";
    /// The iSCSI service or target is not currently operational.
    ServiceUnavailable = 3 1 "Service Unavailable";
    /// The target has insufficient session, connection, or other resources.
    OutOfResources = 3 2 "Out of Resources";
}

impl LoginStatus {
    /// Whether the login continues.
    #[must_use]
    pub fn is_success(self) -> bool {
        self.codes().0 == 0
    }

    /// Whether it is a redirection.
    #[must_use]
    pub fn is_redirection(self) -> bool {
        self.codes().0 == 1
    }
}

impl std::fmt::Display for LoginStatus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (class, detail) = self.codes();
        write!(formatter, "{} (0x{class:02x}{detail:02x})", self.words())
    }
}

#[cfg(test)]
mod tests {
    use super::LoginStatus;

    #[test]
    fn codes_and_words_are_those_of_section_11_13_5() {
        for status in LoginStatus::ALL {
            let (class, detail) = status.codes();
            assert_eq!(LoginStatus::from_codes(class, detail), *status);
        }
        assert_eq!(LoginStatus::from_codes(2, 1), LoginStatus::AuthenticationFailure);
        assert_eq!(LoginStatus::from_codes(2, 11).to_string(), "Invalid during login (0x020b)");
        assert_eq!(LoginStatus::from_codes(2, 0x77).to_string(), "Initiator Error (0x0277)");
        assert!(LoginStatus::from_codes(1, 1).is_redirection());
        assert!(LoginStatus::default().is_success());
    }
}
