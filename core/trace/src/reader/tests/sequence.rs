//! Several captures as one stream.

use iscsitrace_wire::capture_writer::PcapWriter;
use iscsitrace_wire::frame::LinkType;

use super::*;

/// A temporary file of a test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("iscsitrace-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, times_ns: &[i64]) -> Input {
        let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 0, true).unwrap();
        for &time_ns in times_ns {
            writer.packet(time_ns, 1, b"a").unwrap();
        }
        let path = self.0.join(name);
        std::fs::write(&path, writer.finish().unwrap()).unwrap();
        Input::Path(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn frames(inputs: Vec<Input>) -> (Vec<(u64, i64)>, Vec<String>, Counters) {
    let mut counters = Counters::default();
    let mut sequence = Sequence::open(inputs, &mut counters).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = sequence.next_packet(&mut counters).unwrap() {
        frames.push((packet.frame, packet.time_ns));
    }
    let names = sequence.infos().map(|info| info.name.rsplit('/').next().unwrap().to_owned()).collect();
    let progress = sequence.progress();
    if let Some(bytes_total) = progress.bytes_total {
        assert_eq!(progress.bytes_read(), bytes_total);
    }
    (frames, names, counters)
}

#[test]
fn files_are_one_stream_in_order_of_time() {
    let folder = Folder::new("ring");
    let late = folder.file("a-late", &[50, 60]);
    let early = folder.file("b-early", &[10, 20, 15]);
    let none = folder.file("c-none", &[]);
    let middle = folder.file("d-middle", &[30]);
    let (frames, names, counters) = frames(vec![late, early, none, middle]);
    assert_eq!(frames, [(1, 10), (2, 20), (3, 15), (4, 30), (5, 50), (6, 60)]);
    assert_eq!(names, ["c-none", "b-early", "d-middle", "a-late"]);
    assert_eq!(counters.total(Counter::PacketsDisordered), 1);
}

#[test]
fn inputs_that_can_be_read_once_keep_their_position() {
    let folder = Folder::new("once");
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 0, true).unwrap();
    writer.packet(40, 1, b"a").unwrap();
    let reader = Input::Reader { name: "pipe".into(), reader: Box::new(Cursor::new(writer.finish().unwrap())) };
    let (frames, names, counters) = frames(vec![reader, folder.file("file", &[30])]);
    assert_eq!(frames, [(1, 40), (2, 30)]);
    assert_eq!(names, ["pipe", "file"]);
    assert_eq!(counters.total(Counter::PacketsDisordered), 1);
}

#[test]
fn a_clock_that_is_set_back_is_told_from_queues_that_are_read_in_turn() {
    const SECOND_NS: i64 = 1_000_000_000;
    let folder = Folder::new("clock");
    let file = folder.file("a", &[5 * SECOND_NS, 4 * SECOND_NS, 4 * SECOND_NS, 3 * SECOND_NS - 1, 9 * SECOND_NS]);
    let (_, _, counters) = frames(vec![file]);
    assert_eq!(counters.total(Counter::PacketsDisordered), 1);
    assert_eq!(counters.total(Counter::TimeRunsBackwards), 1);
}

#[test]
fn a_missing_file_and_a_folder_are_unreadable() {
    let folder = Folder::new("missing");
    for path in [folder.0.join("nothing.pcap"), folder.0.clone()] {
        let error = Sequence::open(vec![Input::Path(path.clone())], &mut Counters::default()).err().unwrap();
        assert!(error.to_string().starts_with(&format!("cannot read {}: ", path.display())), "{error}");
    }
}

#[test]
fn empty_files_beside_others_are_counted() {
    let folder = Folder::new("nothing-yet");
    let bytes = |name: &str, bytes: &[u8]| {
        let path = folder.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        Input::Path(path)
    };
    let full = [folder.file("a", &[10, 20]), folder.file("b", &[30])];
    let [first, second] = full;
    let (frames, names, counters) = frames(vec![first, bytes("empty", b""), second, bytes("cut", &written()[..20])]);
    assert_eq!(frames, [(1, 10), (2, 20), (3, 30)]);
    assert_eq!(names, ["empty", "cut", "a", "b"]);
    assert_eq!(counters.total(Counter::InputEmpty), 2);
    let all = vec![bytes("empty", b""), bytes("none", b"")];
    let error = Sequence::open(all, &mut Counters::default()).err().unwrap().to_string();
    assert_eq!(error, format!("{} is empty", folder.0.join("empty").display()));
}

#[test]
fn an_invalid_capture_is_an_error_before_the_first_packet() {
    let folder = Folder::new("wrong");
    let path = folder.0.join("notes.txt");
    std::fs::write(&path, "notes about the captures").unwrap();
    let pipe = || Input::Reader { name: "pipe".into(), reader: Box::new(Cursor::new(written())) };
    for (wrong, message) in [
        (path, "notes.txt is not a capture"),
        (folder.0.join("nothing.pcap"), "nothing.pcap: No such file"),
        (folder.0.clone(), ": is a directory"),
    ] {
        for first in [folder.file("a", &[10]), pipe()] {
            let inputs = vec![first, Input::Path(wrong.clone())];
            let error = Sequence::open(inputs, &mut Counters::default()).err().unwrap().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}

#[test]
fn an_input_that_fails_later_is_counted_and_the_next_one_follows() {
    let folder = Folder::new("fails");
    let failing = || Input::Reader { name: "pipe".into(), reader: Box::new(Failing(Cursor::new(written()))) };
    let (packets, names, counters) = frames(vec![failing(), folder.file("next", &[i64::MAX >> 8])]);
    assert_eq!(packets.len(), 51);
    assert_eq!(packets[50], (51, i64::MAX >> 8));
    assert_eq!(names, ["pipe", "next"]);
    let found = counters.sorted();
    let unreadable: Vec<_> = found.iter().filter(|(counter, ..)| *counter == Counter::InputUnreadable).collect();
    assert_eq!(unreadable.len(), 1);
    assert_eq!((unreadable[0].2.count, unreadable[0].2.first_frame), (1, 50));
    // with nothing read before, it is an error
    let header =
        Input::Reader { name: "pipe".into(), reader: Box::new(Failing(Cursor::new(written()[..24].to_vec()))) };
    let mut counters = Counters::default();
    let mut sequence = Sequence::open(vec![header], &mut counters).unwrap();
    assert!(sequence.next_packet(&mut counters).is_err());
}
