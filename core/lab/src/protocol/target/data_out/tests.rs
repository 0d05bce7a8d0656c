//! Random writes, against a plain buffer.

use proptest::prelude::*;

use super::*;

fn parameters(first_burst_length: u32, max_burst_length: u32, initial_r2t: bool) -> Parameters {
    Parameters { first_burst_length, max_burst_length, initial_r2t, ..Parameters::default() }
}

fn piece(tag: u32, data_sn: u32, buffer_offset: u32, length: u32, is_final: bool) -> Piece {
    Piece { target_transfer_tag: tag, data_sn, buffer_offset, length, is_final }
}

fn write(expected: u32, immediate: u32, is_final: bool, parameters: &Parameters) -> DataOut {
    let mut data = DataOut::default();
    data.begin(expected, immediate, is_final, parameters);
    data.set_length(expected.into(), 0x1234_5678);
    data
}

fn ask(data: &mut DataOut, parameters: &Parameters, tag: u32) -> Option<(u32, u32, u32)> {
    data.next_r2t(parameters, R2tOrder::InOrder, || tag)
        .map(|r2t| (r2t.r2t_sn, r2t.buffer_offset, r2t.desired_data_transfer_length))
}

#[test]
fn missing_data_is_solicited_in_bursts() {
    let parameters = parameters(1024, 2048, false);
    let mut data = write(5000, 512, false, &parameters);
    assert_eq!(ask(&mut data, &parameters, 1), None, "unsolicited data is still on its way");
    assert_eq!(data.take(piece(RESERVED_TAG, 0, 512, 512, true), &parameters), Fit::Good);
    assert_eq!(ask(&mut data, &parameters, 1), Some((0, 1024, 2048)));
    assert_eq!(ask(&mut data, &parameters, 2), None, "MaxOutstandingR2T is 1");
    assert_eq!(data.take(piece(1, 0, 1024, 1000, false), &parameters), Fit::Good);
    assert_eq!(data.take(piece(1, 1, 2024, 1048, true), &parameters), Fit::Good);
    assert_eq!(ask(&mut data, &parameters, 2), Some((1, 3072, 1928)));
    assert!(!data.is_complete(2048));
    assert_eq!(data.take(piece(2, 0, 3072, 1928, true), &parameters), Fit::Good);
    assert!(data.is_complete(2048));
    assert_eq!((data.condition(), data.received()), (None, 5000));
}

#[test]
fn unsolicited_data_has_to_be_allowed() {
    for (immediate_data, initial_r2t, immediate, is_final, condition) in [
        (true, true, 512, true, None),
        (true, true, 1025, true, Some(Condition::UnexpectedUnsolicitedData)),
        (false, true, 512, true, Some(Condition::UnexpectedUnsolicitedData)),
        (false, true, 0, true, None),
        (false, true, 0, false, Some(Condition::UnexpectedUnsolicitedData)),
        (false, false, 0, false, None),
    ] {
        let parameters = Parameters { immediate_data, ..parameters(1024, 2048, initial_r2t) };
        assert_eq!(write(4096, immediate, is_final, &parameters).condition(), condition);
    }
    let refused = Condition::UnexpectedUnsolicitedData;
    let parameters = parameters(1024, 2048, true);
    let mut data = write(4096, 0, false, &parameters);
    assert!(!data.is_complete(2048), "what is on its way is waited for");
    data.take(piece(RESERVED_TAG, 0, 0, 1024, true), &parameters);
    assert!(data.is_complete(2048));
    assert_eq!(data.condition(), Some(refused));
}

#[test]
fn incomplete_unsolicited_data_is_an_error() {
    let parameters = parameters(1024, 2048, false);
    let mut data = write(4096, 0, false, &parameters);
    assert_eq!(data.take(piece(RESERVED_TAG, 0, 0, 512, true), &parameters), Fit::Good);
    assert_eq!(data.condition(), Some(Condition::IncorrectAmountOfData));
    let mut data = write(1024, 0, false, &parameters);
    assert_eq!(data.take(piece(RESERVED_TAG, 0, 0, 512, true), &parameters), Fit::Good);
    assert_eq!(data.condition(), None);
    assert_eq!(ask(&mut data, &parameters, 1), Some((0, 512, 512)));
}

#[test]
fn data_that_does_not_match_the_r2t_ends_in_check_condition() {
    let parameters = parameters(512, 2048, true);
    let amount = Some(Condition::IncorrectAmountOfData);
    for (pieces, fits, condition) in [
        (vec![piece(1, 0, 0, 2049, true)], vec![Fit::Wrong], amount),
        (vec![piece(1, 0, 2048, 512, true)], vec![Fit::Wrong], amount),
        (vec![piece(1, 0, u32::MAX, 512, true)], vec![Fit::Wrong], amount),
        (vec![piece(1, 0, 512, 512, true)], vec![Fit::Wrong], amount),
        (vec![piece(1, 0, 0, 512, true)], vec![Fit::Good], amount),
        (vec![piece(1, 0, 0, 2048, false)], vec![Fit::Wrong], amount),
        (
            vec![piece(1, 0, 0, 512, false), piece(1, 2, 512, 1536, true)],
            vec![Fit::Good, Fit::Gap],
            Some(Condition::ProtocolServiceCrcError),
        ),
    ] {
        let mut data = write(8192, 0, true, &parameters);
        assert_eq!(ask(&mut data, &parameters, 1), Some((0, 0, 2048)));
        assert_eq!(data.take(piece(2, 0, 0, 512, false), &parameters), Fit::Unknown);
        let found: Vec<Fit> = pieces.iter().map(|piece| data.take(*piece, &parameters)).collect();
        assert_eq!((found, data.condition()), (fits, condition), "{pieces:?}");
        assert!(data.is_complete(2048), "nothing more is asked for");
        assert_eq!(ask(&mut data, &parameters, 3), None);
    }
}

proptest! {
    /// With any parameters and any order of answers, every byte is taken exactly once.
    #[test]
    fn every_byte_is_taken_once(
        expected in 1u32..40_000, immediate in 0u32..2000, is_final: bool, takes in 0u64..50_000,
        first in 512u32..4096, burst in 512u32..8192, outstanding in 1u32..5,
        flags in 0u8..8, seed: u64
    ) {
        let parameters = Parameters {
            max_outstanding_r2t: outstanding,
            data_pdu_in_order: flags & 1 != 0,
            data_sequence_in_order: flags & 2 != 0,
            ..parameters(first, burst, false)
        };
        let order = if flags & 4 != 0 { R2tOrder::Shuffled } else { R2tOrder::Reverse };
        let mut random = fastrand::Rng::with_seed(seed);
        let immediate = immediate.min(expected).min(first);
        let mut data = DataOut::default();
        data.begin(expected, immediate, is_final, &parameters);
        data.set_length(takes, random.u32(..));
        let length = u64::from(expected).min(takes) as u32;
        let mut times = vec![0u32; expected as usize];
        times[..immediate as usize].fill(1);
        // PDUs to be sent: tag, offset, end, DataSN
        let mut sequences = Vec::new();
        let unsolicited = expected.min(first);
        if !is_final && unsolicited > immediate {
            sequences.push((RESERVED_TAG, immediate, unsolicited, 0));
        }
        let (mut tag, mut last_offset) = (0, None);
        loop {
            while let Some(r2t) = data.next_r2t(&parameters, order, || tag) {
                prop_assert!(r2t.desired_data_transfer_length <= burst && r2t.desired_data_transfer_length > 0);
                prop_assert_eq!(r2t.r2t_sn, tag);
                prop_assert!(!parameters.data_sequence_in_order || last_offset < Some(r2t.buffer_offset));
                last_offset = Some(r2t.buffer_offset);
                tag += 1;
                let end = r2t.buffer_offset + r2t.desired_data_transfer_length;
                sequences.push((r2t.target_transfer_tag, r2t.buffer_offset, end, 0));
            }
            prop_assert!(sequences.len() <= outstanding as usize);
            if sequences.is_empty() {
                break;
            }
            let place = random.usize(..sequences.len());
            let (tag, offset, end, data_sn) = sequences[place];
            let count = random.u32(1..=(end - offset));
            let fit = data.take(piece(tag, data_sn, offset, count, offset + count == end), &parameters);
            prop_assert_eq!(fit, Fit::Good);
            times[offset as usize..(offset + count) as usize].iter_mut().for_each(|times| *times += 1);
            sequences[place] = (tag, offset + count, end, data_sn + 1);
            if offset + count == end {
                sequences.swap_remove(place);
            }
        }
        prop_assert!(data.is_complete(burst));
        prop_assert_eq!(data.condition(), None);
        // unsolicited data beyond the command's length arrives, too
        prop_assert!(times[..length as usize].iter().all(|times| *times == 1));
        prop_assert!(times[length as usize..].iter().all(|times| *times <= 1));
    }
}
