-- TCP connections: which frames belong to one, its bytes in flight, and its missing or repeated bytes.
--
-- Never reads a PDU. Uses Wireshark's relative sequence numbers; a hole is a range of bytes that a later frame skipped.
--
-- Provides `connection_of`, `note_acknowledgment`, `bytes_in_flight`, `data_in_flight`, `note_disorder`,
-- `note_out_of_order` and `may_lack_status`.

local fields = require("fields")
local pdu = require("pdu")
local serial = require("serial")
local state = require("state")

local floor = math.floor
local ahead = serial.ahead
local iscsi_pdu, tcp_acknowledgment = fields.iscsi_pdu, fields.tcp_acknowledgment

-- The state of one direction. `first` is the sequence number of its first byte in the capture, `highest` the one after
-- its last byte; `holes` are missing ranges, each with the frame that skipped it; `is_cut` where more than those is
-- missing from the capture.
local function new_half()
    return { islands = {}, island_count = 0, holes = {} }
end

-- A connection has two halves: [1] is what the sender of the first frame sends, [2] what it receives. `initiator` is
-- the number of the half that the initiator sends, once a PDU shows it.
local function new_connection(stream, pinfo)
    local connection = {
        stream = stream, port = pinfo.src_port, [1] = new_half(), [2] = new_half(), frames_without_pdu = 0,
        commands = {}, command_count = 0, requests = {}, request_count = 0, header_digest = 0, data_digest = 0,
    }
    if pinfo.dst_port == connection.port then
        connection.address = tostring(pinfo.src)
    end
    state.connections[stream] = connection
    return connection
end

-- The connection of a frame; nil as long as nothing on it is iSCSI.
local function connection_of(stream, pinfo)
    local connection = state.connections[stream]
    if connection then
        return connection
    elseif connection == false and not iscsi_pdu() then
        return nil
    end
    return new_connection(stream, pinfo)
end

-- Takes the acknowledgment number of the current frame.
local function note_acknowledgment(half)
    local info = tcp_acknowledgment()
    if info then
        local acknowledged = info.value
        local before = half.acknowledged
        if acknowledged ~= before and (not before or ahead(acknowledged, before) > 0) then
            half.acknowledged = acknowledged
        end
    end
end

-- Bytes in flight: sent but not acknowledged. Nil if one of the two numbers is not known.
local function bytes_in_flight(sender, receiver)
    if sender.highest and receiver.acknowledged then
        return math.max(ahead(sender.highest, receiver.acknowledged), 0)
    end
    return nil
end

-- Bytes in flight from the sender of the data of the command in `pdu`: the target for a read, else the initiator.
local function data_in_flight(connection, half)
    local other = connection[half == connection[1] and 2 or 1]
    if floor(pdu.flags / 64) % 2 == 1 then
        return bytes_in_flight(other, half)
    end
    return bytes_in_flight(half, other)
end

-- Notes that packets are missing or late. Wireshark then shows what follows them late, and meanwhile commands of other
-- connections: their numbers and queue depths are uncertain from here on.
local function note_disorder(connection, is_from_initiator, frame)
    local session = connection.session
    if session and session.connection_count > 1 then
        session.is_depth_unknown = true
    end
    if is_from_initiator and state.iscsi_connection_count > 1 and not connection.is_doubtful then
        connection.is_doubtful = true
        state.missing_commands = state.missing_commands + 1
        state.remarks[frame] = "packets are missing or late, on one of several connections: "
            .. "cycle numbers are left out from here on"
    end
end

-- Whether every byte of a frame was in earlier frames. It is not if it may fill a hole that is not remembered.
local function is_copy(half, sequence, stop, highest)
    if ahead(stop, highest) > 0 or ahead(sequence, half.first) < 0 or #half.holes >= state.HOLES_MAX then
        return false
    end
    for _, hole in ipairs(half.holes) do
        if ahead(stop, hole[1]) > 0 and ahead(sequence, hole[2]) < 0 then
            return false
        end
    end
    return true
end

-- Keeps the holes of a half up to date for a frame that is out of order. A frame that fills no hole repeats bytes:
-- Wireshark may reassemble a PDU from it, although an earlier frame brought the bytes. Returns whether the frame makes
-- Wireshark show PDUs late: a frame whose bytes were all captured before does not.
local function note_out_of_order(half, frame, sequence, stop, highest)
    if ahead(sequence, highest) > 0 then
        if #half.holes < state.HOLES_MAX then
            half.holes[#half.holes + 1] = { highest, sequence, frame }
        else
            half.is_cut = true
        end
        return true
    elseif is_copy(half, sequence, stop, highest) then
        state.remember_repeated(frame)
        return false
    end
    for index, hole in ipairs(half.holes) do
        if ahead(sequence, hole[1]) >= 0 and ahead(stop, hole[2]) <= 0 then
            table.remove(half.holes, index)
            if sequence ~= hole[1] then
                table.insert(half.holes, { hole[1], sequence, hole[3] })
            end
            if stop ~= hole[2] then
                table.insert(half.holes, { stop, hole[2], hole[3] })
            end
            return true
        end
    end
    state.remember_repeated(frame)
    return true
end

-- Whether Wireshark may not have shown the status of a command that was issued in `frame`, because bytes of the target
-- are missing since then: it does not show what follows them.
local function may_lack_status(connection, frame)
    local half = connection[3 - connection.initiator]
    if half.is_cut or connection.is_distrusted then
        return true
    end
    for _, hole in ipairs(half.holes) do
        if hole[3] > frame then
            return true
        end
    end
    return false
end

return {
    connection_of = connection_of, note_acknowledgment = note_acknowledgment, bytes_in_flight = bytes_in_flight,
    data_in_flight = data_in_flight, note_disorder = note_disorder, note_out_of_order = note_out_of_order,
    may_lack_status = may_lack_status,
}
