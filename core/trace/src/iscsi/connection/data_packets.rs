//! How many packets brought the data of each command. One that brought data of several commands counts for each of them,
//! and once for each, however many PDUs of it the packet has.

use serde::{Deserialize, Serialize};

use crate::iscsi::pdu::DataPackets;
use crate::tables::{CycleId, Cycles};

/// The last packet with data of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct LastDataPacket {
    frame: u64,
    /// The command that it was counted for.
    cycle: CycleId,
    /// The others, if it has data of several.
    others: Vec<CycleId>,
}

impl LastDataPacket {
    /// Counts the packets of the next data PDU for its command.
    #[inline]
    pub(super) fn count(&mut self, packets: DataPackets, cycle: CycleId, cycles: &mut Cycles) {
        if packets.count == 0 {
            return;
        }
        let is_counted = self.frame == packets.first_frame && (self.cycle == cycle || self.others.contains(&cycle));
        if self.frame != packets.last_frame {
            (self.frame, self.cycle) = (packets.last_frame, cycle);
            self.others.clear();
        } else if !is_counted {
            self.others.push(cycle);
        }
        let row = cycles.row(cycle);
        if let Some(count) = cycles.data_packet_count.get_mut(row) {
            *count = count.saturating_add(packets.count - u32::from(is_counted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::CycleRow;

    /// The packets of each command, by the frames of its PDUs in order of the stream.
    fn counted(pdus: &[(u32, &[u64])]) -> Vec<u32> {
        let (mut last, mut cycles) = (LastDataPacket::default(), Cycles::default());
        for _ in 0..3 {
            cycles.push(CycleRow::default());
        }
        for &(cycle, frames) in pdus {
            let mut packets = DataPackets::default();
            frames.iter().for_each(|&frame| packets.note(frame));
            last.count(packets, CycleId::new(cycle), &mut cycles);
        }
        cycles.data_packet_count
    }

    #[test]
    fn a_packet_counts_once_for_each_command_that_it_brought_data_of() {
        assert_eq!(counted(&[(0, &[1, 2, 3])]), [3, 0, 0]);
        // two PDUs of a command share a packet
        assert_eq!(counted(&[(0, &[1, 2]), (0, &[2, 3]), (0, &[3])]), [3, 0, 0]);
        // so do two commands, in turn
        assert_eq!(counted(&[(0, &[1, 2]), (1, &[2, 3]), (0, &[3, 4])]), [4, 2, 0]);
        assert_eq!(counted(&[(0, &[1]), (1, &[1]), (2, &[1]), (1, &[1]), (0, &[1, 2])]), [2, 1, 1]);
        // a PDU without data has none
        assert_eq!(counted(&[(0, &[1]), (0, &[]), (0, &[1])]), [1, 0, 0]);
    }
}
