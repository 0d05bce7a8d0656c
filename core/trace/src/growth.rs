//! Room for more in small steps: each of many connections keeps hundreds of small rows, and a third of the room that
//! doubling makes would stay empty.

use std::collections::VecDeque;

/// The first step, and from where on there is no room for twice as many, but for a quarter more, or so many: rows,
const ROWS: (usize, usize) = (4, 16);
/// and bytes.
const BYTES: (usize, usize) = (64, 128);

fn step(length: usize, (first, most): (usize, usize)) -> usize {
    length.clamp(first, most).max(length / 4)
}

/// Appends to a queue.
#[inline]
pub fn push_back<T>(queue: &mut VecDeque<T>, value: T) {
    if queue.len() == queue.capacity() {
        grow(queue);
    }
    queue.push_back(value);
}

#[cold]
fn grow<T>(queue: &mut VecDeque<T>) {
    queue.reserve_exact(step(queue.len(), ROWS));
}

/// Appends to bytes.
#[inline]
pub fn extend(bytes: &mut Vec<u8>, more: &[u8]) {
    if bytes.capacity() - bytes.len() < more.len() {
        grow_bytes(bytes, more.len());
    }
    bytes.extend_from_slice(more);
}

#[cold]
fn grow_bytes(bytes: &mut Vec<u8>, least: usize) {
    bytes.reserve_exact(step(bytes.len(), BYTES).max(least));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_never_much_larger_than_what_is_in_it() {
        let (mut queue, mut bytes) = (VecDeque::new(), Vec::new());
        for number in 0..1000_usize {
            push_back(&mut queue, number);
            extend(&mut bytes, &[number as u8; 3]);
            assert!(queue.capacity() <= queue.len() + (queue.len() / 4).max(16));
            assert!(bytes.capacity() <= bytes.len() + (bytes.len() / 4).max(128));
        }
        assert!(queue.into_iter().eq(0..1000));
        assert_eq!((bytes.len(), bytes[2999]), (3000, 999_u32 as u8));
        let mut long = vec![1; 8];
        extend(&mut long, &[2; 100]);
        assert_eq!((long.len(), long[107]), (108, 2));
    }
}
