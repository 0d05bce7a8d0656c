//! The rules of RFC 7143 that are judged, each declared once: who can break it, how grave that is, and its words.
//!
//! Nothing is judged here.

/// Who breaks a rule; codes as in `CATEGORIES["side"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Side {
    /// The initiator.
    Initiator = 0,
    /// The target.
    Target = 1,
}

impl Side {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initiator => "initiator",
            Self::Target => "target",
        }
    }
}

/// What a violation leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It does no harm that the packets show.
    Info,
    /// A peer that follows the RFC may fail.
    Warning,
    /// It ends a command or a connection, stops a session, or data may be wrong.
    Error,
}

impl Severity {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What is declared of a rule.
#[derive(Debug)]
pub struct Declaration {
    /// Its name.
    pub id: &'static str,
    /// The sections of RFC 7143, the one with the rule first.
    pub sections: &'static str,
    /// Who can break it.
    pub sides: &'static [Side],
    /// What a violation leads to.
    pub severity: Severity,
    /// The rule, in one sentence.
    pub sentence: &'static str,
    /// What a violation did, behind "The target ": with `{seen}` and `{expected}`; `{seen:x}` is in hexadecimal, `{seen:key}` the
    /// name of the key in that place of [`KEYS`](iscsitrace_wire::key::KEYS), `{seen:pdu}` that of the opcode,
    /// and `{seen:time}` a time in ns.
    pub broken: &'static str,
}

macro_rules! rules {
    (@sides I) => { &[Side::Initiator] };
    (@sides T) => { &[Side::Target] };
    (@sides IT) => { &[Side::Initiator, Side::Target] };

    ($($id:ident $sections:literal $side:ident $severity:ident $sentence:literal $broken:literal;)*) => {
        /// A rule; codes as in `CATEGORIES["rule"]`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each is declared below")]
        pub enum Rule { $($id,)* }

        impl Rule {
            /// All rules, in the order of their codes.
            pub const ALL: &'static [Rule] = &[$(Rule::$id,)*];

            /// What is declared of it.
            pub const fn declaration(self) -> &'static Declaration {
                match self {
                    $(Rule::$id => &Declaration {
                        id: stringify!($id),
                        sections: $sections,
                        sides: rules!(@sides $side),
                        severity: Severity::$severity,
                        sentence: $sentence,
                        broken: $broken,
                    },)*
                }
            }
        }
    };
}

rules! {
    S1 "4.2.2.1" I Error
        "CmdSN rises by one with each command that is not immediate."
        "skipped CmdSN {expected}: it went on with {seen}, and the target waits for {expected}";
    S2 "4.2.2.1" I Error
        "Each command that is not immediate has a CmdSN of its own."
        "used CmdSN {seen} for a second task, which the target ignores";
    S3 "4.2.2.1" I Error
        "A command that is not immediate has a CmdSN of at most MaxCmdSN."
        "sent CmdSN {seen} when MaxCmdSN was {expected}: the target ignores that command";
    S4 "4.2.2.1" I Error
        "An immediate PDU does not use up a CmdSN."
        "went on with CmdSN {seen} behind an immediate PDU, and the target waits for {expected}";
    S5 "4.2.2.1" T Error
        "ExpCmdSN is at most one more than the last CmdSN that was sent, and immediate PDUs do not raise it."
        "said ExpCmdSN {seen} when the next command, which was still to come, had CmdSN {expected}";
    S6 "4.2.2.1" T Warning
        "ExpCmdSN never falls on a connection."
        "said ExpCmdSN {seen} after {expected}";
    S7 "4.2.2.1" T Warning
        "MaxCmdSN is at least ExpCmdSN - 1; an initiator ignores both if it is less."
        "said MaxCmdSN {seen}, less than ExpCmdSN - 1 = {expected}: an initiator ignores both";
    S8 "4.2.2.1" T Error
        "The numbers of the target leave the initiator a command window that opens again."
        "stopped its initiator by the numbers of the command window: the next command has CmdSN {seen}, beyond MaxCmdSN {expected}";
    S9 "4.2.2.2" T Warning
        "StatSN rises by one with each status on a connection."
        "sent StatSN {seen} where {expected} was next";
    S10 "4.2.2.2" T Error
        "A StatSN is not used for two PDUs."
        "used StatSN {seen} again, where {expected} was next";
    S11 "4.2.2.2" T Warning
        "An R2T, a NOP-In of the target's own and a Data-In without status use up no StatSN."
        "sent StatSN {seen} where {expected} was next: it counted PDUs without status";
    S12 "4.2.2.2" I Info
        "ExpStatSN never falls, and is at most one more than the last StatSN that was sent."
        "said ExpStatSN {seen}, where {expected} was due";
    S13 "4.2.2.2" I Info
        "ExpStatSN follows the statuses that arrived."
        "still said ExpStatSN {seen} when the next StatSN was {expected}";
    S14 "4.2.2.4" T Error
        "The Data-In of a command have DataSN 0, 1, 2 and so on."
        "sent DataSN {seen} where {expected} was next";
    S15 "4.2.2.4, 11.7.5" I Error
        "The Data-Out of an R2T, and the unsolicited ones of a command, have DataSN 0, 1, 2 and so on."
        "sent DataSN {seen} where {expected} was next";
    S16 "4.2.2.4, 11.8.1" T Error
        "The R2Ts of a command have R2TSN 0, 1, 2 and so on."
        "sent R2TSN {seen} where {expected} was next";
    S17 "11.4.8" T Info
        "ExpDataSN of a SCSI Response is the number of Data-In and R2Ts of the command."
        "said ExpDataSN {seen} after {expected} Data-In and R2Ts";
    T1 "11.2.1.8" I Error
        "An Initiator Task Tag is not used again while its task is open."
        "used tag {seen:x} for a second task while the first was open";
    T2 "11.2.1.8, 11.4" T Error
        "An answer names an open task."
        "answered tag {seen:x}, which no open command has";
    T3 "11.4" T Error
        "Each task has one final response."
        "sent a second status for tag {seen:x}";
    T4 "11.8.4" T Error
        "An R2T has a Target Transfer Tag that is not ffffffff, and that no other open R2T of the task has."
        "sent an R2T with the Target Transfer Tag {seen:x}, which it may not have";
    T5 "11.7.4" I Error
        "A Data-Out that is not unsolicited names an open R2T of its task."
        "sent a Data-Out for the Target Transfer Tag {seen:x}, which no open R2T of its task has";
    T6 "11.7.4, 11.18" I Warning
        "The LUN of an answer is that of the R2T or NOP-In that it answers."
        "answered with another LUN";
    T7 "11.8" T Info
        "The LUN of an R2T is that of its command."
        "sent an R2T with another LUN than its command has";
    T8 "4.2.5.1" IT Error
        "Data and status of a command pass on the connection of the command."
        "sent a PDU of a command on another connection than the command's";
    D1 "13.11" I Warning
        "Immediate data are sent only if ImmediateData=Yes was agreed."
        "sent {seen} bytes of immediate data although ImmediateData=No was agreed";
    D2 "13.10, 11.3.1" I Warning
        "Unsolicited Data-Out are sent only if InitialR2T=No was agreed, behind a command without the F bit."
        "sent an unsolicited Data-Out that was not allowed";
    D3 "11.7.1, 13.14" I Warning
        "Unsolicited data of a command are at most FirstBurstLength."
        "sent {seen} bytes unsolicited; FirstBurstLength is {expected}";
    D4 "11.7.1" I Error
        "The last Data-Out of a burst has the F bit."
        "sent the last Data-Out of a burst without the F bit: the target waits for more";
    D5 "11.8.3, 13.13" T Warning
        "An R2T asks for at most MaxBurstLength."
        "asked for {seen} bytes in an R2T; MaxBurstLength is {expected}";
    D6 "11.8.3" T Error
        "An R2T asks for bytes within the Expected Data Transfer Length."
        "asked for bytes up to {seen}; the command has {expected}";
    D7 "11.8" T Error
        "An R2T does not ask for bytes that came, or are due, unsolicited or for another R2T."
        "asked again for {seen} bytes that were sent or due";
    D8 "11.8, 13.17" T Warning
        "At most MaxOutstandingR2T R2Ts of a command are open."
        "had {seen} R2Ts open; MaxOutstandingR2T is {expected}";
    D9 "11.7.6, 11.8.3" I Error
        "The Data-Out of an R2T lie within its range and fill it up to the F bit."
        "sent a Data-Out that ends at byte {seen} of its command; its R2T ends at byte {expected}";
    D10 "13.18" IT Warning
        "With DataPDUInOrder=Yes, offsets rise continuously within a sequence."
        "sent data for offset {seen} where {expected} was next";
    D11 "13.19, 11.8" IT Warning
        "With DataSequenceInOrder=Yes, sequences follow each other in the order of their offsets."
        "began a sequence at offset {seen} where {expected} was next";
    D12 "11.7.6" T Error
        "The Data-In of a command do not overlap."
        "sent {seen} bytes of a read twice";
    D13 "11.3.4" T Error
        "Data-In lie within the Expected Data Transfer Length."
        "sent data up to {seen}; the command has {expected}";
    D14 "11.7.1, 13.13" T Warning
        "A sequence of Data-In has the F bit at MaxBurstLength at the latest."
        "sent {seen} bytes of Data-In without the F bit; MaxBurstLength is {expected}";
    D15 "11.7.3" T Error
        "A Data-In carries a status only with the F bit, and only GOOD, CONDITION MET or INTERMEDIATE."
        "sent {seen:status} in a Data-In, which may not carry it";
    D16 "13.12" IT Error
        "A data segment is at most the receiver's MaxRecvDataSegmentLength."
        "sent a data segment of {seen} bytes; the receiver takes {expected}";
    D17 "11.4.5" T Error
        "A read that ends GOOD got all its bytes, but for the residual."
        "ended a read GOOD with {seen} of {expected} bytes";
    D18 "11.4.5" T Error
        "A write that ends GOOD had all its bytes sent, but for the residual."
        "ended a write GOOD with {seen} of {expected} bytes: the others are lost";
    D19 "11.4.5.1" T Info
        "The residual is what the command asked for less than the Expected Data Transfer Length."
        "said a residual of {seen}; it is {expected}";
    D20 "11.4.1" T Warning
        "The U or the O bit comes with a Residual Count above 0, and not both of them."
        "set the U or O bit with a Residual Count of {seen}";
    D21 "13.1" IT Error
        "A digest is the CRC32C of what it covers."
        "computed the digest of every {seen:pdu} wrongly";
    M1 "11.19" I Error
        "A NOP-In with a Target Transfer Tag is answered."
        "did not answer the NOP-In with Target Transfer Tag {seen:x}, and went on with other PDUs";
    M2 "11.18" T Warning
        "A NOP-Out with an Initiator Task Tag is answered."
        "did not answer the NOP-Out with tag {seen:x}, and went on with other PDUs";
    M3 "4.2.3.3, 11.6" T Error
        "The tasks that a task management function ends are not answered after its response."
        "sent data or a status of the task with tag {seen:x} after its response to the function that ended that task";
    M4 "11.5, 11.6.1" T Error
        "A Task Management Function Request for a task that the target has is not answered with \"Task does not exist\"."
        "said that the task of tag {seen:x} does not exist, which it had received and never answered";
    M5 "11.15, 11.14" T Error
        "A Logout Request is answered."
        "did not answer a Logout Request: the initiator waited {seen:time} until the connection was closed";
    M6 "11.9.1" I Warning
        "An initiator that is asked to log out does so within Parameter3 seconds."
        "did not log out within {expected} s of the message that asks for it";
    M7 "11.17" T Error
        "A Reject is for a PDU that breaks a rule."
        "rejected a {seen:pdu} that breaks no rule";
    M8 "11.16" I Warning
        "A SNACK is sent only with ErrorRecoveryLevel above 0, for what was sent."
        "sent a SNACK that is not allowed";
    M9 "11.14" I Warning
        "No request follows a Logout Request on a connection that it closes."
        "sent a request behind the Logout Request";
    M10 "11.5, 4.2.3.3" T Warning
        "A Task Management Function Request is answered, at the latest when another function has ended its tasks."
        "did not answer the Task Management Function Request with tag {seen:x}, and went on with other PDUs";
    L1 "11.12.3, 11.13.6" IT Error
        "A login goes from stage to stage as CSG, NSG and T allow."
        "went to login stage {seen} where {expected} was due";
    L2 "6.2.1" T Error
        "The target chooses one of the values that it was offered."
        "chose a value of {seen:key} that it was not offered";
    L3 "6.2.2" IT Error
        "A value is within the range of its key, and a result follows from both values."
        "sent a value of {seen:key} that is out of range, or does not follow from the offer";
    L4 "6.2" IT Warning
        "Each key is sent once, where it is allowed, and answered."
        "did not answer {seen:key}, or sent it where it may not";
    L5 "6.3.5, 10.1.1" I Warning
        "A session has an ISID that no other live session of the initiator's name has."
        "logged in with the name and ISID of a session that it went on with";
    L6 "6.2, 11.10" IT Warning
        "A text negotiation makes progress under one tag, as C, F and the Target Transfer Tag allow."
        "broke off a text negotiation: a wrong tag, F with C, or text before the other side was done";
    L7 "13.14" IT Info
        "FirstBurstLength is at most MaxBurstLength."
        "sent a FirstBurstLength of {seen}, above its MaxBurstLength of {expected}";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_section_and_words_of_its_own() {
        for (number, &rule) in Rule::ALL.iter().enumerate() {
            let declared = rule.declaration();
            assert_eq!(rule as usize, number);
            assert!(declared.sections.starts_with(|first: char| first.is_ascii_digit()), "{}", declared.id);
            assert!(declared.sentence.ends_with('.') && !declared.broken.ends_with('.'), "{}", declared.id);
            let same = Rule::ALL.iter().filter(|other| other.declaration().sentence == declared.sentence);
            assert_eq!(same.count(), 1, "{}", declared.id);
        }
    }
}
