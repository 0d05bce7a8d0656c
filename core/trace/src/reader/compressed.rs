//! Compressed bytes -> decompressed bytes: gzip, zstd, lz4, detected by their first bytes.
//!
//! A truncated or damaged stream is an error after everything that could be decompressed, never a silent end.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;

/// A capture can be compressed by the tool that wrote it, and the file once more.
const NESTED_AT_MOST: usize = 2;

/// Any byte source.
pub(crate) type Reader = Box<dyn Read + Send>;

/// The decompressed bytes of `reader`, and the methods (outermost first; none if plain).
///
/// # Errors
/// The first bytes cannot be read or decompressed.
pub(crate) fn decompress(mut reader: Reader) -> io::Result<(Reader, Vec<&'static str>)> {
    let mut methods = Vec::new();
    loop {
        let mut first = [0; 4];
        let mut first_count = 0;
        while let Some(room @ [_, ..]) = first.get_mut(first_count..) {
            match reader.read(room) {
                Ok(0) => break,
                Ok(count) => first_count += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let method = if methods.len() < NESTED_AT_MOST { method(first) } else { None };
        let start = io::Cursor::new(first).take(first_count as u64);
        reader = Box::new(start.chain(reader));
        reader = match method {
            None => return Ok((reader, methods)),
            Some("gzip") => Box::new(InParts(MultiGzDecoder::new(reader))),
            Some("zstd") => Box::new(InParts(zstd::stream::read::Decoder::new(reader)?)),
            Some(_) => Box::new(InParts(Lz4::new(reader))),
        };
        methods.extend(method);
    }
}

/// Whether bytes with this start are compressed.
pub(super) fn is_compressed(first: [u8; 4]) -> bool {
    method(first).is_some()
}

fn method(first: [u8; 4]) -> Option<&'static str> {
    match first {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Some("zstd"),
        [0x04, 0x22, 0x4d, 0x18] => Some("lz4"),
        _ => None,
    }
}

/// Bytes per read of a decompressor.
const PART_BYTES: usize = 16 << 10;

/// A decompressor with small reads: at damage, it returns nothing of the current read.
struct InParts<R>(R);

impl<R: Read> Read for InParts<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(PART_BYTES);
        self.0.read(buffer.get_mut(..length).unwrap_or_default())
    }
}

/// LZ4 frames one after another. The decoder of one frame does not distinguish its end from a truncation. This does: by
/// whether the decoder stopped before the end of the bytes.
struct Lz4 {
    decoder: Option<FrameDecoder<Tail>>,
}

/// A reader that knows whether it reached its end, and its position.
struct Tail {
    reader: Reader,
    byte_count: u64,
    is_at_end: bool,
}

impl Read for Tail {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.byte_count += count as u64;
        self.is_at_end |= count == 0 && !buffer.is_empty();
        Ok(count)
    }
}

impl Lz4 {
    fn new(reader: Reader) -> Self {
        Self { decoder: Some(FrameDecoder::new(Tail { reader, byte_count: 0, is_at_end: false })) }
    }
}

impl Read for Lz4 {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while let Some(decoder) = &mut self.decoder {
            let count = match decoder.read(buffer) {
                Ok(count) => count,
                Err(error) => {
                    self.decoder = None;
                    return Err(error);
                }
            };
            if count > 0 {
                return Ok(count);
            }
            let Some(mut tail) = self.decoder.take().map(FrameDecoder::into_inner) else { break };
            if tail.is_at_end {
                // Between frames, nothing of the next one was read.
                return if tail.byte_count == 0 { Ok(0) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            tail.byte_count = 0;
            self.decoder = Some(FrameDecoder::new(tail));
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn plain() -> Vec<u8> {
        (0..200_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 1).unwrap()
    }

    fn read(bytes: &[u8]) -> (Vec<u8>, Vec<&'static str>, Option<io::Error>) {
        let (mut reader, methods) = match decompress(Box::new(io::Cursor::new(bytes.to_vec()))) {
            Ok(opened) => opened,
            Err(error) => return (Vec::new(), Vec::new(), Some(error)),
        };
        let mut out = Vec::new();
        let error = reader.read_to_end(&mut out).err();
        (out, methods, error)
    }

    #[test]
    fn reads_each_method_once_twice_and_in_several_parts() {
        let plain = plain();
        let (first, second) = plain.split_at(123_457);
        for (bytes, methods) in [
            (plain.clone(), vec![]),
            (gzip(&plain), vec!["gzip"]),
            (zstd(&plain), vec!["zstd"]),
            (lz4(&plain), vec!["lz4"]),
            ([gzip(first), gzip(second)].concat(), vec!["gzip"]),
            ([zstd(first), zstd(second)].concat(), vec!["zstd"]),
            ([lz4(first), lz4(&[]), lz4(second)].concat(), vec!["lz4"]),
            (gzip(&zstd(&plain)), vec!["gzip", "zstd"]),
            (lz4(&gzip(&plain)), vec!["lz4", "gzip"]),
        ] {
            let (out, found, error) = read(&bytes);
            assert!(error.is_none(), "{methods:?}: {error:?}");
            assert_eq!(found, methods);
            assert!(out == plain, "{methods:?}");
        }
    }

    #[test]
    fn a_truncated_stream_is_an_error_after_its_bytes() {
        let plain = plain();
        for compress in [gzip, zstd, lz4] {
            let bytes = compress(&plain);
            for cut in [5, 11, bytes.len() / 2, bytes.len() - 5, bytes.len() - 1] {
                let (out, _, error) = read(&bytes[..cut]);
                assert!(error.is_some(), "cut at {cut} of {}", bytes.len());
                assert!(plain.starts_with(&out));
            }
        }
    }

    #[test]
    fn short_inputs_pass_through() {
        for bytes in [&b""[..], b"\x0a", b"\x0a\x0d\x0d"] {
            let (out, methods, error) = read(bytes);
            assert_eq!((out.as_slice(), methods.len(), error.is_none()), (bytes, 0, true));
        }
    }
}
