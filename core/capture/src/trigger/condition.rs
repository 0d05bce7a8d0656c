//! The condition of a trigger: which commands are wanted.
//!
//! ```text
//! condition   = all { "or" all }          all = comparison { "and" comparison }
//! comparison  = "latency" ( ">" | ">=" ) TIME         TIME: a number and ns, us, ms or s
//!             | "no_progress" ( ">" | ">=" ) TIME
//!             | "status" ( "=" | "!=" ) STATUS        STATUS: good, check_condition, busy ... or a number
//!             | "operation" ( "=" | "!=" ) NAME       NAME: read, write ...
//! ```

use iscsitrace_wire::cdb::Operation;
use iscsitrace_wire::status::Status;

use super::observer::EndedCommand;

/// A command without a status.
const NO_STATUS: u8 = u8::MAX;
const TIMES_NS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

/// The names of statuses, as `task_set_full`, and their codes.
fn statuses() -> impl Iterator<Item = (String, u8)> {
    let named = Status::ALL.iter().map(|status| (status.name().to_lowercase().replace([' ', '-'], "_"), *status as u8));
    named.chain([("none".to_owned(), NO_STATUS)])
}

/// The name of a status, or its number.
pub fn status_in_words(status: u8) -> String {
    statuses().find(|(_, code)| *code == status).map_or_else(|| status.to_string(), |(name, _)| name)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    LatencyOver { limit_ns: i64, is_limit_met: bool },
    NoProgressOver { limit_ns: i64, is_limit_met: bool },
    Status { code: u8, is_equal: bool },
    Operation { operation: Operation, is_equal: bool },
}

impl Comparison {
    fn holds(self, command: &EndedCommand) -> bool {
        let is_over = |time_ns: i64, limit_ns: i64, is_limit_met: bool| {
            time_ns > limit_ns || (is_limit_met && time_ns == limit_ns)
        };
        match self {
            Self::LatencyOver { limit_ns, is_limit_met } => {
                is_over(command.end_ns.saturating_sub(command.command_ns), limit_ns, is_limit_met)
            }
            Self::NoProgressOver { limit_ns, is_limit_met } => is_over(command.no_progress_ns, limit_ns, is_limit_met),
            Self::Status { code, is_equal } => (command.status.unwrap_or(NO_STATUS) == code) == is_equal,
            Self::Operation { operation, is_equal } => (command.operation == operation.as_str()) == is_equal,
        }
    }
}

/// A condition for commands.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// At least one of these must hold completely.
    alternatives: Vec<Vec<Comparison>>,
}

/// A word, number or sign, and its position in characters.
#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    at: usize,
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// The position of the error, in characters from 0, and what is expected there.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let tokens = tokens(text);
        let mut rest = tokens.as_slice();
        let end = text.chars().count();
        let mut alternatives = vec![vec![comparison(&mut rest, end)?]];
        while let Some((joint, after)) = rest.split_first() {
            rest = after;
            match joint.text {
                "or" => alternatives.push(vec![comparison(&mut rest, end)?]),
                "and" => {
                    let next = comparison(&mut rest, end)?;
                    if let Some(all) = alternatives.last_mut() {
                        all.push(next);
                    }
                }
                _ => return Err((joint.at, "expected 'and' or 'or'".to_owned())),
            }
        }
        Ok(Self { alternatives })
    }

    /// Whether a command in flight meets the condition now: it has no status, and its times grow.
    pub fn is_met_while_open(&self, command: &EndedCommand) -> bool {
        let is_about_time = |comparison: &Comparison| {
            matches!(comparison, Comparison::LatencyOver { .. } | Comparison::NoProgressOver { .. })
        };
        let mut about_time = self.alternatives.iter().filter(|all| all.iter().any(is_about_time));
        about_time.any(|all| all.iter().all(|comparison| comparison.holds(command)))
    }

    /// The smallest time limit of all alternatives.
    pub fn least_time_ns(&self) -> Option<i64> {
        let limit = |comparison: &Comparison| match comparison {
            Comparison::LatencyOver { limit_ns, .. } | Comparison::NoProgressOver { limit_ns, .. } => Some(*limit_ns),
            _ => None,
        };
        self.alternatives.iter().flatten().filter_map(limit).min()
    }

    /// The smallest limit of a time without progress.
    pub fn least_no_progress_ns(&self) -> Option<i64> {
        let limit = |comparison: &Comparison| match comparison {
            Comparison::NoProgressOver { limit_ns, .. } => Some(*limit_ns),
            _ => None,
        };
        self.alternatives.iter().flatten().filter_map(limit).min()
    }

    /// Whether a command meets the condition.
    pub fn is_met(&self, command: &EndedCommand) -> bool {
        self.alternatives.iter().any(|all| all.iter().all(|comparison| comparison.holds(command)))
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_word = |each: char| each.is_alphanumeric() || each == '_' || each == '.';
    let is_sign = |each: char| matches!(each, '<' | '>' | '=' | '!');
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut characters = text.char_indices().enumerate().peekable();
    while let Some((at, (start, first))) = characters.next() {
        if first.is_whitespace() {
            continue;
        }
        let mut end = start + first.len_utf8();
        while let Some(&(_, (place, each))) = characters.peek() {
            if !(is_word(first) && is_word(each) || is_sign(first) && is_sign(each)) {
                break;
            }
            end = place + each.len_utf8();
            characters.next();
        }
        tokens.push(Token { text: text.get(start..end).unwrap_or_default(), at });
    }
    tokens
}

fn next<'a>(rest: &mut &[Token<'a>], end: usize, wanted: &str) -> Result<Token<'a>, (usize, String)> {
    let Some((&token, after)) = rest.split_first() else { return Err((end, format!("expected {wanted}"))) };
    *rest = after;
    Ok(token)
}

fn comparison(rest: &mut &[Token<'_>], end: usize) -> Result<Comparison, (usize, String)> {
    const FIELDS: &str = "latency, no_progress, status or operation";
    let field = next(rest, end, FIELDS)?;
    match field.text {
        "latency" | "no_progress" => {
            let sign = next(rest, end, "> or >=")?;
            let is_limit_met = match sign.text {
                ">" => false,
                ">=" => true,
                _ => return Err((sign.at, format!("{} takes > or >=", field.text))),
            };
            let limit_ns = time(rest, end)?;
            Ok(match field.text {
                "latency" => Comparison::LatencyOver { limit_ns, is_limit_met },
                _ => Comparison::NoProgressOver { limit_ns, is_limit_met },
            })
        }
        "status" => {
            let is_equal = equality(rest, end)?;
            let status = next(rest, end, "a SCSI status")?;
            let named = statuses().find(|(name, _)| name == status.text).map(|(_, code)| code);
            let hexadecimal = status.text.strip_prefix("0x").map(|digits| u8::from_str_radix(digits, 16).ok());
            let code = named.or_else(|| hexadecimal.unwrap_or_else(|| status.text.parse().ok()));
            let names: Vec<String> = statuses().map(|(name, _)| name).collect();
            let code =
                code.ok_or_else(|| (status.at, format!("unknown SCSI status; use {} or a number", names.join(", "))))?;
            Ok(Comparison::Status { code, is_equal })
        }
        "operation" => {
            let is_equal = equality(rest, end)?;
            let name = next(rest, end, "an operation such as read or write")?;
            let operation = Operation::ALL.iter().find(|operation| operation.as_str() == name.text);
            let &operation =
                operation.ok_or_else(|| (name.at, "unknown operation; use read, write, inquiry ...".to_owned()))?;
            Ok(Comparison::Operation { operation, is_equal })
        }
        _ => Err((field.at, format!("expected {FIELDS}"))),
    }
}

fn equality(rest: &mut &[Token<'_>], end: usize) -> Result<bool, (usize, String)> {
    let sign = next(rest, end, "= or !=")?;
    match sign.text {
        "=" | "==" => Ok(true),
        "!=" => Ok(false),
        _ => Err((sign.at, "expected = or !=".to_owned())),
    }
}

/// A number and its unit, with or without a space.
fn time(rest: &mut &[Token<'_>], end: usize) -> Result<i64, (usize, String)> {
    const WANTED: &str = "a time with its unit, such as 50ms (ns, us, ms, s)";
    let token = next(rest, end, WANTED)?;
    let refused = || (token.at, format!("expected {WANTED}"));
    let digits = token.text.find(|each: char| each.is_alphabetic()).unwrap_or(token.text.len());
    let (number, mut unit) = token.text.split_at(digits);
    if unit.is_empty() {
        unit = next(rest, end, "ns, us, ms or s")?.text;
    }
    let &(_, unit_ns) = TIMES_NS.iter().find(|&&(name, _)| name == unit).ok_or_else(refused)?;
    let number: f64 = number.parse().map_err(|_| refused())?;
    Ok((number * unit_ns).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(latency_ns: i64, status: Option<u8>, operation: &'static str) -> EndedCommand {
        EndedCommand { end_ns: 1000 + latency_ns, command_ns: 1000, status, operation, ..EndedCommand::default() }
    }

    fn meets(text: &str, command: &EndedCommand) -> bool {
        Condition::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}")).is_met(command)
    }

    #[test]
    fn a_latency_has_a_unit_and_a_comparison() {
        let at_50_ms = command(50_000_000, Some(0), "read");
        assert!(!meets("latency>50ms", &at_50_ms));
        assert!(meets("latency >= 50 ms", &at_50_ms));
        assert!(meets("latency>0.0499s", &at_50_ms));
        assert!(meets("latency > 49999us", &at_50_ms));
        assert!(!meets("latency>50000000ns", &at_50_ms));
    }

    #[test]
    fn and_binds_closer_than_or() {
        let text = "latency>1s or operation=write and status!=good";
        assert!(meets(text, &command(2_000_000_000, Some(0), "read")));
        assert!(meets(text, &command(1, Some(2), "write")));
        assert!(!meets(text, &command(1, Some(2), "read")));
        assert!(!meets(text, &command(1, Some(0), "write")));
    }

    #[test]
    fn a_status_is_given_by_name_or_number() {
        let busy = command(1, Some(8), "read");
        assert!(meets("status=busy", &busy) && meets("status=8", &busy) && meets("status = 0x08", &busy));
        assert!(meets("status=none", &command(1, None, "read")) && !meets("status=none", &busy));
    }

    #[test]
    fn a_command_in_flight_matches_only_by_latency() {
        let open = command(60_000_000, None, "read");
        let meets = |text: &str| Condition::parse(text).expect(text).is_met_while_open(&open);
        assert!(
            meets("latency>50ms") && meets("latency>50ms and operation=read") && meets("latency>50ms and status=none")
        );
        assert!(!meets("latency>70ms") && !meets("latency>50ms and status=good"));
        // every command has no status at first
        assert!(!meets("status!=good") && !meets("operation=read or status=none"));
    }

    #[test]
    fn a_time_without_progress_grows_with_the_command_in_flight() {
        let stalled = EndedCommand { no_progress_ns: 2_000_000_000, ..command(5_000_000_000, None, "write") };
        for (text, is_met) in [
            ("no_progress>=2s", true),
            ("no_progress > 2 s", false),
            ("no_progress>1s and operation=write", true),
            ("no_progress>1s and operation=read", false),
            ("no_progress>3s or latency>4s", true),
        ] {
            let condition = Condition::parse(text).expect(text);
            assert_eq!((condition.is_met_while_open(&stalled), condition.is_met(&stalled)), (is_met, is_met), "{text}");
        }
        let both =
            Condition::parse("latency>500ms or no_progress>2s and status=none or no_progress>1s").expect("valid");
        assert_eq!((both.least_time_ns(), both.least_no_progress_ns()), (Some(500_000_000), Some(1_000_000_000)));
        assert_eq!(Condition::parse("latency>1s").expect("valid").least_no_progress_ns(), None);
    }

    #[test]
    fn syntax_errors_have_their_position() {
        let refused = |text: &str| Condition::parse(text).expect_err(text).0;
        assert_eq!(refused(""), 0);
        assert_eq!(refused("latncy>50ms"), 0);
        assert_eq!(refused("latency<50ms"), 7);
        assert_eq!(refused("no_progress=2s"), 11);
        assert_eq!(refused("latency>50"), 10);
        assert_eq!(refused("latency>50min"), 8);
        assert_eq!(refused("latency>50ms status!=good"), 13);
        assert_eq!(refused("latency>50ms or "), 16);
        assert_eq!(refused("status=fine"), 7);
        assert_eq!(refused("operation!=reed"), 11);
        // characters, not bytes
        assert_eq!(refused("latency>50\u{b5}s"), 8);
    }
}
