//! Arbitrary chunks, cuts and gaps of both streams of one connection, to the framers with the connection listening.

use iscsitrace_trace::connection::content::{Content, ContentSink, IscsiContent};
use iscsitrace_trace::context::Context;
use iscsitrace_trace::iscsi::connection::IscsiConnection;
use iscsitrace_trace::iscsi::digest_use::Digests;
use iscsitrace_trace::iscsi::framer::Framer;
use iscsitrace_trace::stream::chunk::{Chunk, StreamSink};
use iscsitrace_trace::stream::closing::Closing;

// | settings | then steps: | what 1 | length 2 | bytes ... |
pub fn run(data: &[u8]) {
    let Some((&settings, mut rest)) = data.split_first() else { return };
    let has_start = settings & 1 != 0;
    let mut framers = [Framer::new(0, has_start), Framer::new(0, has_start)];
    if settings & 2 != 0 {
        let agreed = |used: u8, unknown: u8| (settings & unknown == 0).then_some(settings & used != 0);
        let digests = Digests { header: agreed(4, 16), data: agreed(8, 32) };
        framers.iter_mut().for_each(|framer| framer.agree(digests));
    }
    let connection = IscsiConnection::new(0);
    let mut content =
        Content::Iscsi(Box::new(IscsiContent { connection, framers, is_client_initiator: true, has_start }));
    let mut context = Context::default();
    context.tables.wanted.pdus = true;
    let mut offsets = [0i64; 2];
    let mut frame = 0u64;
    while let Some((&[what, high, low], bytes)) = rest.split_first_chunk::<3>() {
        let direction = usize::from(what & 1);
        let length = usize::from(u16::from_be_bytes([high, low]));
        let offset = offsets[direction];
        frame += 1;
        let mut sink = ContentSink { content: &mut content, context: &mut context, number: 0, frame, direction };
        let advanced = if what & 6 == 6 {
            sink.gap(offset, length.max(1) as u64);
            rest = bytes;
            length.max(1)
        } else {
            let (captured, after) = bytes.split_at(length.min(bytes.len()));
            // a truncated chunk is longer on the wire than its captured bytes
            let wire_length = captured.len() + if what & 6 == 4 { usize::from(low) * 8 } else { 0 };
            sink.chunk(Chunk {
                offset,
                length: wire_length as u32,
                captured,
                frame,
                time_ns: frame as i64,
                is_late: what & 8 != 0,
                is_segment_start: what & 16 == 0,
            });
            rest = after;
            wire_length
        };
        offsets[direction] += advanced as i64;
    }
    let last_ns = frame as i64;
    content.finish(&Closing { closes_ns: [None; 4], last_ns }, [None; 2], &mut context);
    let Content::Iscsi(iscsi) = &content else { unreachable!("it is iSCSI from the start") };
    for (framer, offset) in iscsi.framers.iter().zip(offsets) {
        assert!(framer.explained_bytes <= offset as u64, "{} of {offset}", framer.explained_bytes);
    }
    let pdus = &context.tables.pdus;
    let mut before = [0i64; 2];
    for (&to_target, &offset) in pdus.to_target.iter().zip(&pdus.stream_offset_bytes) {
        let direction = usize::from(!to_target);
        assert!(offset >= before[direction] && offset + 48 <= offsets[direction], "PDU at {offset}");
        before[direction] = offset + 48;
    }
}
