-- The PDU at hand: its header, its place in a buffer, the frames that brought it and the frame that shows it.
--
-- Never keeps more than one PDU: one table is reused for all, which is faster than a new table for each. `place` and
-- `packets` fill it in, `commands` and `pdus` read it.
--
-- Provides its table: `read_header`, `data_of` and the values of the PDU at hand:
--   bytes                    the header's 48 bytes
--   first, opcode, flags, second, third, length, lun, tag, word20 ... word44
--                            first is byte 0; second and third are bytes 2 and 3; words are named by their offset
--   data_start, total        offset of the data segment in the PDU; length of the PDU without digests
--   source, offset           the buffer and the PDU's offset in it
--   first_frame, first_ns    the frame with the PDU's first byte; nil if it is not known
--   last_frame, last_ns      the frame that completes the PDU; nil if it is not known
--   frame, now_ns            the frame in which Wireshark shows it

local floor, unpack_header = math.floor, Struct.unpack

local pdu = {}

-- Opcode, flags, bytes 2 and 3, TotalAHSLength, DataSegmentLength, bytes 8 to 15, Initiator Task Tag, words from 20 on.
local HEADER = ">BBBBBI3c8I4I4I4I4I4I4I4I4"

-- Reads the 48 bytes of a header.
function pdu.read_header(bytes)
    local ahs_words, _
    pdu.bytes = bytes
    pdu.first, pdu.flags, pdu.second, pdu.third, ahs_words, pdu.length, pdu.lun, pdu.tag, pdu.word20, pdu.word24, _, _,
        pdu.word36, pdu.word40, pdu.word44 = unpack_header(HEADER, bytes)
    pdu.opcode = pdu.first % 64
    pdu.data_start = 48 + ahs_words * 4
    pdu.total = pdu.data_start + floor((pdu.length + 3) / 4) * 4
end

-- At most `count` bytes of the data segment, as far as they were captured. For PDUs without header digest only.
function pdu.data_of(count)
    local start = pdu.offset + pdu.data_start
    count = math.min(count, pdu.length, pdu.source:len() - start)
    return count > 0 and pdu.source:raw(start, count) or nil
end

return pdu
