//! The tables of a pass, one struct of column vectors each. Every column is declared here, and nowhere else:
//! `iscsitrace/tables/schema/` and docs/tables.md are made from these declarations.
//!
//! ```text
//! connections  connections, sessions, negotiated parameters, ICMP errors, questions whether hosts are there
//! logical_units  what targets say of their logical units
//! commands     PDUs, SCSI commands, R2Ts and their bursts
//! exchanges    other requests and responses
//! tcp          packets, and the behaviour of each sender
//! tcp_info     what the kernels of the hosts say of their sockets
//! violations   violations of RFC 7143
//! time         the time breakdown, and the irregularities of the input
//! taps         two captures of the same traffic
//! declaration  the macro `table!`, its syntax and the null rule
//! id           ids of rows, which are never used again
//! narrow       a column of numbers in 32 bits, while they fit
//! rare         a table that most connections have no rows of
//! sparse       a column in which nearly all rows have one value
//! text_column  a column of text: each distinct text once
//! values       what every column can do with its rows
//! ```
//!
//! Nothing is computed here.

mod column;
mod commands;
mod connections;
mod declaration;
mod exchanges;
mod id;
mod logical_units;
mod narrow;
mod rare;
mod sparse;
pub mod taps;
mod tcp;
mod tcp_info;
mod text_column;
mod time;
mod values;
mod violations;

pub use column::{Column, NULL_NS, NULL_U8, NULL_U16, NULL_U32, NULL_U64};
pub use commands::*;
pub use connections::*;
pub use declaration::{ColumnDeclaration, Columns, TableDeclaration};
pub use exchanges::*;
pub use id::{Id, Ids};
pub use logical_units::*;
pub use narrow::Narrow;
pub use rare::{Empty, Rare};
use serde::{Deserialize, Serialize};
pub use sparse::Sparse;
pub use tcp::*;
pub use tcp_info::*;
pub use text_column::TextColumn;
pub use time::*;
pub use values::Values;
pub use violations::*;

/// All tables of a pass, each with what else is known of it:
///
/// ```text
/// by COLUMN      requests or messages: rows leave a pass under way in the order of this time
/// on request     filled only if it is wanted: it grows with packets or PDUs, or costs time
/// of connection  a connection adds its rows when it is over, in the order in which connections were closed
/// from senders   the connection's senders hold them until then
/// ```
macro_rules! tables {
    // code of a table that has a mark
    (@if $mark:ident $($code:tt)*) => { $($code)* };

    ($(
        $field:ident: $table:ident
        $(by $time:ident)? $(on $request:ident)? $(of $connection:ident)? $(from $senders:ident)?,
    )*) => {
        /// All tables of a pass.
        #[derive(Debug, Default, Clone, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub struct Tables {
            $(pub $field: $table,)*
            /// Which of the tables on request are wanted.
            pub wanted: Wanted,
        }

        impl Tables {
            /// What is declared of each table, in the order of the docs.
            pub const DECLARATIONS: &[TableDeclaration] = &[$($table::DECLARATION),*];

            /// Number of rows of a table; none if there is no such table.
            pub fn row_count(&self, name: &str) -> Option<usize> {
                match name {
                    $(stringify!($field) => Some(self.$field.row_count()),)*
                    _ => None,
                }
            }

            /// The columns of a table, which is empty afterwards; none if there is no such table.
            pub fn take_columns(&mut self, name: &str) -> Option<Vec<(&'static str, Column)>> {
                match name {
                    $(stringify!($field) => Some(self.$field.take_columns()),)*
                    _ => None,
                }
            }

            /// A column of a table, which has it no more afterwards; none if there is no such column.
            pub fn take_column(&mut self, table: &str, name: &str) -> Option<Column> {
                match table {
                    $(stringify!($field) => self.$field.take_column(name),)*
                    _ => None,
                }
            }

            /// Replaces the numbers of commands by their rows in `cycles`; null where there is none.
            pub fn number_cycles_anew(&mut self) {
                self.cycles.forget_ids();
                if (0..).zip(&self.cycles.cycle).all(|(row, &number)| row == number) {
                    return;
                }
                // in order
                let numbers = self.cycles.cycle.clone();
                let row = |number: u32| numbers.binary_search(&number).map_or(NULL_U32, |row| row as u32);
                $(for column in self.$field.cycles() {
                    column.iter_mut().for_each(|cycle| *cycle = row(*cycle));
                })*
            }

            /// Number of requests and messages.
            pub(crate) fn exchange_count(&self) -> usize {
                [$($(self.$field.$time.len(),)?)*].iter().sum()
            }

            /// Copies the requests and messages.
            pub(crate) fn copy_exchanges(&self, to: &mut Self) {
                $($(tables!(@if $time to.$field = self.$field.clone());)?)*
            }

            /// Moves the first requests and messages to `left`: those from before that time, and before `stay`.
            pub(crate) fn take_exchanges(&mut self, before_ns: i64, stay: Option<&Starts>, left: &mut Self) {
                $($({
                    let count = old_rows(&self.$field.$time, before_ns);
                    let count = stay.map_or(count, |stay| count.min(self.$field.row(stay.$field)));
                    left.$field.copy_rows(&self.$field, &(0..count).collect::<Vec<_>>());
                    self.$field.drop_first(count);
                })?)*
            }

            /// The requests and messages from before these rows leave.
            pub(crate) fn drop_exchanges(&mut self, before: &Starts) {
                $($(tables!(@if $time self.$field.drop_first(self.$field.row(before.$field)));)?)*
            }

            /// Appends what connections added to other tables.
            pub(crate) fn append_of_connections(&mut self, other: &mut Self) {
                $($(tables!(@if $connection self.$field.append(&mut other.$field));)?)*
            }

            /// Removes what the senders of connections added.
            pub(crate) fn clear_senders(&mut self) {
                self.senders = Senders::default();
                $($(tables!(@if $senders self.$field = $table::default());)?)*
            }

            /// Brings what connections added into their order; `place` is that of a connection.
            pub(crate) fn order_connections(&mut self, place: impl Fn(u32) -> usize) {
                $($({
                    let $connection = &self.$field.connection;
                    if !$connection.is_sorted_by_key(|&number| place(number)) {
                        let mut order: Vec<usize> = (0..$connection.len()).collect();
                        order.sort_by_key(|&row| place($connection[row]));
                        self.$field.reorder(&order);
                    }
                })?)*
            }

            /// A default row in every table.
            #[cfg(test)]
            fn of_default_rows() -> Self {
                Self { $($field: $table::of_default_row(),)* wanted: Wanted::ALL }
            }
        }

        /// A place in every table: the row that is added next.
        #[derive(Debug, Default, Clone, Serialize, Deserialize)]
        pub struct Starts { $(pub(crate) $field: Id<$table>,)* }

        impl Starts {
            pub(crate) fn of(tables: &Tables) -> Self {
                Self { $($field: tables.$field.next_id(),)* }
            }
        }

        /// The tables that a pass fills only on request: they grow with packets or PDUs, or cost time.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub struct Wanted { $($(#[doc = concat!("Filled on ", stringify!($request))] pub $field: bool,)?)* }

        impl Wanted {
            /// All of them.
            pub const ALL: Self = Self { $($($field: tables!(@if $request true),)?)* };
            /// None of them.
            pub const NONE: Self = Self { $($($field: tables!(@if $request false),)?)* };
            /// Their names.
            pub const NAMES: &[&str] = &[$($(tables!(@if $request stringify!($field)),)?)*];

            /// Adds the table of this name, if it is one of these.
            pub fn add(&mut self, name: &str) {
                $($(tables!(@if $request self.$field |= name == stringify!($field));)?)*
            }

            /// Whether any table about the senders' behaviour is wanted.
            pub fn has_dynamics(self) -> bool {
                self.senders || self.budget $($(|| tables!(@if $senders self.$field))?)*
            }
        }

        /// Rows about the senders of one connection, in time order, until it is over. `to_target` means "from the client".
        #[derive(Debug, Default, Clone, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub struct SenderRows {
            $($(#[doc = concat!("From ", stringify!($senders))] pub $field: Rare<$table>,)?)*
            pub wanted: Wanted,
        }

        impl SenderRows {
            /// Moves the rows of the wanted tables, with iSCSI directions.
            pub fn hand_over(&mut self, wanted: Wanted, is_client_initiator: bool, tables: &mut Tables) {
                $($(if let Some($senders) = self.$field.made().filter(|_| wanted.$field) {
                    if !is_client_initiator {
                        $senders.to_target.iter_mut().for_each(|to_target| *to_target = !*to_target);
                    }
                    tables.$field.append($senders);
                })?)*
            }
        }
    };
}
tables! {
    connections: Connections,
    sessions: Sessions,
    parameters: Parameters of connection,
    icmp_errors: IcmpErrors,
    host_questions: HostQuestions,
    logical_units: LogicalUnits,
    alua_states: AluaStates,
    pdus: Pdus on request,
    cycles: Cycles,
    rounds: Rounds,
    write_starts: WriteStarts on request,
    logins: Logins by request_ns,
    task_management: TaskManagements by request_ns,
    nops: Nops by request_ns,
    texts: Texts by request_ns,
    logouts: Logouts by request_ns,
    rejects: Rejects by time_ns,
    asyncs: Asyncs by time_ns,
    snacks: Snacks by time_ns,
    violations: Violations by time_ns on request,
    segments: Segments on request,
    sacks: Sacks on request of connection from senders,
    window: Windows on request of connection from senders,
    rtt: RttWindows on request of connection from senders,
    round_trips: RoundTrips on request of connection from senders,
    retransmissions: Retransmissions on request of connection from senders,
    recoveries: Recoveries on request of connection from senders,
    flights: Flights on request of connection from senders,
    senders: Senders on request of connection,
    tcp_info: TcpInfos on request,
    budget: Budget on request,
    counters: CounterRows,
}

/// The number of first rows that are old or have no time.
pub(crate) fn old_rows(times_ns: &[i64], before_ns: i64) -> usize {
    times_ns.iter().take_while(|&&time_ns| time_ns < before_ns || time_ns == NULL_NS).count()
}

#[cfg(test)]
mod tests {
    use super::{Column, NULL_NS, NULL_U8, NULL_U16, NULL_U32, NULL_U64, Sack, Sacks, Tables, Wanted, old_rows};

    /// Whether the one value of a column is the null of its type, as docs/tables.md has it.
    fn is_null(column: &Column) -> bool {
        match column {
            Column::Bool(_) => false,
            Column::U8(values) => values == &[NULL_U8],
            Column::U16(values) => values == &[NULL_U16],
            Column::U32(values) => values == &[NULL_U32],
            Column::U64(values) => values == &[NULL_U64],
            Column::I64(values) => values == &[NULL_NS],
            Column::Text(values) => *values == [""],
        }
    }

    #[test]
    fn a_column_that_starts_as_null_is_nullable() {
        let mut tables = Tables::of_default_rows();
        let (mut null_only_at_first, mut masked) = (Vec::new(), Vec::new());
        for table in Tables::DECLARATIONS {
            assert_eq!(tables.row_count(table.name), Some(1));
            let columns = tables.take_columns(table.name).unwrap();
            assert_eq!(columns.len(), table.columns.len());
            for ((name, column), declared) in columns.iter().zip(table.columns) {
                assert_eq!(*name, declared.name);
                let is_text_or_code = declared.dtype == "str" || declared.dtype.starts_with("category:");
                match (is_null(column), declared.is_nullable) {
                    (true, false) if !is_text_or_code => null_only_at_first.push((table.name, *name)),
                    (false, true) => masked.push((table.name, *name)),
                    _ => {}
                }
            }
        }
        // every session has packets, which set both times
        assert_eq!(null_only_at_first, [("sessions", "time_first_ns"), ("sessions", "time_last_ns")]);
        assert!(masked.iter().all(|(table, _)| *table == "pdus"), "only these have masks: {masked:?}");
        assert_eq!(masked.len(), 10);
    }

    #[test]
    fn every_column_has_a_name_of_its_own_and_a_meaning() {
        for table in Tables::DECLARATIONS {
            assert!(!table.row.is_empty());
            for (number, column) in table.columns.iter().enumerate() {
                let before = &table.columns[..number];
                assert!(before.iter().all(|other| other.name != column.name), "{}.{}", table.name, column.name);
                assert_eq!(column.meaning, column.meaning.split_whitespace().collect::<Vec<_>>().join(" "));
                assert!(column.meaning.len() > 3, "{}.{}", table.name, column.name);
            }
        }
    }

    #[test]
    fn both_directions_of_a_connection_are_declared_alike() {
        let connections = &Tables::DECLARATIONS[0];
        assert_eq!(connections.name, "connections");
        let of = |direction: &str, words: &str| {
            let columns = connections.columns.iter().filter_map(|column| {
                let meaning = column.meaning.strip_prefix(words)?;
                assert!(column.name.contains(direction), "{}", column.name);
                Some((
                    column.name.replace(direction, ""),
                    column.dtype,
                    meaning,
                    column.unit,
                    column.is_nullable,
                    column.source,
                ))
            });
            columns.collect::<Vec<_>>()
        };
        let to_target = of("_to_target", "to target: ");
        assert_eq!(to_target.len(), 31);
        assert_eq!(to_target, of("_to_initiator", "to initiator: "));
    }

    fn sacks(frames: std::ops::Range<u64>) -> Sacks {
        let mut table = Sacks::default();
        frames.for_each(|frame| {
            table.push(Sack { frame, time_ns: 10 * frame as i64, ..Sack::default() });
        });
        table
    }

    #[test]
    fn rows_of_another_table_come_behind_whichever_is_longer() {
        for middle in 0..=9 {
            let (mut table, mut other) = (sacks(0..middle), sacks(middle..9));
            table.append(&mut other);
            assert_eq!(table.frame, (0..9).collect::<Vec<_>>());
            assert_eq!(table.time_ns, (0..9).map(|frame| 10 * frame).collect::<Vec<_>>());
            assert!(other.frame.is_empty() && other.is_duplicate.is_empty());
        }
    }

    #[test]
    fn tables_that_need_no_analysis_of_the_senders_do_not_start_it() {
        let wanted = |name: &str| {
            let mut wanted = Wanted::default();
            wanted.add(name);
            wanted.has_dynamics()
        };
        assert_eq!(["pdus", "segments", "write_starts", "tcp_info", "cycles"].map(wanted), [false; 5]);
        assert_eq!(["window", "senders", "budget", "flights"].map(wanted), [true; 4]);
    }

    #[test]
    fn the_first_rows_that_are_old_or_have_no_time_leave() {
        assert_eq!(old_rows(&[5, NULL_NS, 9, 10, 3], 10), 3);
        assert_eq!(old_rows(&[10, 3], 10), 0);
    }
}
