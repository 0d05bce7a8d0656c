//! Arbitrary bytes as a capture, through the whole pass.
#![no_main]

#[path = "../../trace/tests/conversation/mod.rs"]
mod conversation;

use std::convert::Infallible;
use std::io::Cursor;

use iscsitrace_trace::pass::{Selection, run};
use iscsitrace_trace::reader::Input;
use iscsitrace_trace::tables::Wanted;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let input = Input::Reader { name: "fuzz".to_owned(), reader: Box::new(Cursor::new(data.to_vec())) };
    // a few compressed bytes can be very many packets
    let selection = Selection { packet_limit: Some(1 << 12), ..Selection::default() };
    let wanted = Wanted::ALL;
    if let Ok(mut outcome) = run(vec![input], &selection, wanted, |_| Ok::<(), Infallible>(())) {
        conversation::check(&mut outcome.tables).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
});
