//! Room for more in steps of a quarter: each of many connections keeps hundreds of small rows, and a third of the room that
//! doubling makes would stay empty.

use std::collections::VecDeque;

/// A step is a quarter of what there is, and so many more rows,
const STEP_MIN: usize = 4;
/// or so many more bytes.
const STEP_MIN_BYTES: usize = 32;

/// Appends to a queue.
#[inline]
pub fn push_back<T>(queue: &mut VecDeque<T>, value: T) {
    if queue.len() == queue.capacity() {
        queue.reserve_exact(queue.len() / 4 + STEP_MIN);
    }
    queue.push_back(value);
}

/// Appends to bytes.
#[inline]
pub fn extend(bytes: &mut Vec<u8>, more: &[u8]) {
    if bytes.capacity() - bytes.len() < more.len() {
        bytes.reserve_exact(bytes.len() / 4 + more.len().max(STEP_MIN_BYTES));
    }
    bytes.extend_from_slice(more);
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
            assert!(queue.capacity() <= queue.len() + queue.len() / 4 + STEP_MIN);
            assert!(bytes.capacity() <= bytes.len() + bytes.len() / 4 + STEP_MIN_BYTES);
        }
        assert!(queue.into_iter().eq(0..1000));
        assert_eq!((bytes.len(), bytes[2999]), (3000, 999_u32 as u8));
        let mut long = vec![1; 8];
        extend(&mut long, &[2; 100]);
        assert_eq!((long.len(), long[107]), (108, 2));
    }
}
