-- The place of a PDU: in the frame or in a reassembled buffer, which frames brought its bytes, and whether it was shown
-- before.
--
-- Never looks for a PDU: Wireshark found it. Never reads its header. A frame that cannot be known is nil.
--
-- Provides `payload_of`, `is_in_frame`, `place_in_buffer` and `is_repeated`. `half` is the state of one direction of a
-- connection; `packets` keeps it.

local fields = require("fields")
local serial = require("serial")
local state = require("state")

local byte, floor = string.byte, math.floor
local ahead, recall = serial.ahead, state.recall
local tcp_segment = fields.tcp_segment

local ISLANDS_MAX = 256

-- Whether the TCP header at `start` is in the frame itself, not in a reassembled IP datagram.
local function is_header_at(tvb, pinfo, start)
    if start < 0 or start + 20 > tvb:len() then
        return false
    end
    local first, second, third, fourth = byte(tvb:raw(start, 4), 1, 4)
    return first * 256 + second == pinfo.src_port and third * 256 + fourth == pinfo.dst_port
end

-- The buffer with the frame's TCP header, and the offset of its payload in it.
local function payload_of(half, tvb, pinfo, sequence_info)
    local start = sequence_info.offset - 4
    local source = tvb
    if start ~= half.header_start then
        if is_header_at(tvb, pinfo, start) then
            half.header_start = start
        else
            source = sequence_info.source
        end
    end
    if source:len() < start + 20 then
        return source, start + 20
    end
    return source, start + floor(byte(source:raw(start + 12, 1)) / 16) * 4
end

-- Whether two buffers of the same length are the same, judged by the bytes where a frame has its headers.
local function is_same_start(one, other)
    local length = math.min(one:len(), 54)
    return one:raw(0, length) == other:raw(0, length)
end

-- Whether a PDU is in the frame's own payload, not in a buffer of reassembled segments.
local function is_in_frame(half, info, frame_source, payload)
    if info.offset < payload then
        return false
    elseif not half.pending_frame or half.is_in_order then
        return true
    end
    local source = info.source
    return source:len() == frame_source:len() and is_same_start(source, frame_source)
end

-- The frame that brought the first of the bytes `start` to `stop` of a reassembled buffer, and the frame that completed
-- them. If several segments have the same byte, the first segment counts.
local function frames_of(segments, start, stop)
    local first, last = nil, nil
    local missing = { { start, stop } }
    for _, segment in ipairs(segments) do
        local still = {}
        for _, span in ipairs(missing) do
            local from, to = math.max(span[1], segment[1]), math.min(span[2], segment[2])
            if from < to then
                last = segment[3]
                if from == start then
                    first = segment[3]
                end
                if span[1] < from then
                    still[#still + 1] = { span[1], from }
                end
                if to < span[2] then
                    still[#still + 1] = { to, span[2] }
                end
            else
                still[#still + 1] = span
            end
        end
        missing = still
        if #missing == 0 then
            return first, last
        end
    end
    return first, nil
end

-- The segments of a reassembled buffer in the order of their frames: start, end and frame of each.
local function segments_of(infos)
    local segments = {}
    for index = 1, #infos do
        local info = infos[index]
        segments[index] = { info.offset, info.offset + info.len, info.value }
    end
    table.sort(segments, function(one, other)
        return one[3] < other[3]
    end)
    return segments
end

-- For a PDU in a reassembled buffer: the frame with its first byte, the frame that completed it, the offset of the
-- current frame's bytes in the buffer, and how many they are.
local function place_in_buffer(half, frame, offset, stop, length, sequence, payload_length)
    local is_alone = offset == 0 and stop >= length
    local within = half.pending_sequence and ahead(half.pending_sequence + length, sequence)
    local is_pending = is_alone and within and within > 0 and within <= payload_length
    if is_pending and half.is_in_order then
        -- the PDU began in an earlier frame, continued in order and ends in this frame
        return half.pending_frame, frame, length - within, within
    end
    local infos = { tcp_segment() }
    if #infos == 0 then
        -- Wireshark could not dissect the PDU's content and then does not list the segments
        if is_pending then
            return half.pending_frame, frame, length - within, within
        end
        return nil, nil, nil, nil
    end
    local own, own_length = nil, nil
    for index = 1, #infos do
        if infos[index].value == frame then
            own, own_length = infos[index].offset, infos[index].len
        end
    end
    local first_frame, last_frame = frames_of(segments_of(infos), offset, math.min(stop, length))
    first_frame = first_frame and not recall("is_repeated", first_frame) and first_frame or nil
    last_frame = last_frame and not recall("is_repeated", last_frame) and last_frame or nil
    return first_frame, last_frame, own, own_length
end

-- Whether a PDU was shown before, by its sequence numbers: Wireshark may show a PDU again with a retransmission. PDUs
-- after missing bytes are remembered as islands until the missing bytes arrive.
local function is_repeated(half, begin, stop)
    local expected = half.next_begin
    if begin == expected then
        local island = half.islands[stop]
        while island do
            half.islands[stop], half.island_count = nil, half.island_count - 1
            stop, island = island, half.islands[island]
        end
        half.next_begin = stop
        return false
    elseif not expected then
        half.next_begin = stop
        return false
    elseif half.islands[begin] or ahead(begin, expected) < 0 then
        return true
    end
    if half.island_count >= ISLANDS_MAX then
        half.islands, half.island_count, half.next_begin = {}, 0, stop
    else
        half.islands[begin], half.island_count = stop, half.island_count + 1
    end
    return false
end

return {
    payload_of = payload_of, is_in_frame = is_in_frame, place_in_buffer = place_in_buffer, is_repeated = is_repeated,
}
