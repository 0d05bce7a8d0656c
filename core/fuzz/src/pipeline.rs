//! Arbitrary bytes as a capture, through the whole pass.

use std::convert::Infallible;
use std::io::Cursor;

use iscsitrace_trace::pass::{self, Selection};
use iscsitrace_trace::reader::Input;
use iscsitrace_trace::tables::Wanted;

pub fn run(data: &[u8]) {
    let input = Input::Reader { name: "fuzz".to_owned(), reader: Box::new(Cursor::new(data.to_vec())) };
    // a few compressed bytes can be very many packets
    let selection = Selection { packet_limit: Some(1 << 12), ..Selection::default() };
    let wanted = Wanted::ALL;
    if let Ok(mut outcome) = pass::run(vec![input], &selection, wanted, |_| Ok::<(), Infallible>(())) {
        crate::conversation::check(&mut outcome.tables).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}
