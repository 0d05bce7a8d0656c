-- The packets of the capture, one after another: the PDUs that Wireshark shows in each, and the ones that begin in it.
--
-- Never looks for PDUs in the bytes, with one exception: a SCSI Command PDU that begins at the end of a frame, which
-- Wireshark shows only when it is complete (`peek`). Never reads a frame twice.
--
-- Provides `note`.

local commands = require("commands")
local connections = require("connections")
local fields = require("fields")
local pdu = require("pdu")
local pdus = require("pdus")
local place = require("place")
local serial = require("serial")
local state = require("state")

local floor = math.floor
local ahead, MODULUS = serial.ahead, serial.MODULUS
local read_header, take, SCSI_COMMAND = pdu.read_header, pdus.take, pdus.SCSI_COMMAND
local recall, remember = state.recall, state.remember
local bytes_in_flight, data_in_flight = connections.bytes_in_flight, connections.data_in_flight
local note_acknowledgment = connections.note_acknowledgment
local is_in_frame, is_repeated = place.is_in_frame, place.is_repeated
local payload_of, place_in_buffer = place.payload_of, place.place_in_buffer
local tcp_stream, tcp_length, tcp_sequence = fields.tcp_stream, fields.tcp_length, fields.tcp_sequence
local tcp_fin, tcp_rst, iscsi_pdu = fields.tcp_fin, fields.tcp_rst, fields.iscsi_pdu
local iscsi_header_digest, iscsi_data_digest = fields.iscsi_header_digest, fields.iscsi_data_digest

-- a connection without a PDU in so many frames is not iSCSI
local FRAMES_WITHOUT_PDU = 64

-- The time of a frame in ns after the first. Exact unless a time reference was set: then to the precision of a double.
local function time_of(pinfo)
    local clock = state.clock
    local relative, absolute = pinfo.rel_ts, pinfo.abs_ts
    local start = absolute - relative
    if not clock.start then
        clock.start = start
    end
    if math.abs(start - clock.start) > 0.000001 then
        relative = absolute - clock.start
    end
    return floor(relative * 1000000000 + 0.5)
end

-- Bytes of the digests in the PDU at hand, as far as Wireshark dissects them.
local function digest_length(connection)
    return connection.header_digest + (pdu.length > 0 and connection.data_digest or 0)
end

-- Ignores a connection with data digests that Wireshark does not expect: it dissects them only if a preference says so,
-- and otherwise finds PDUs in the wrong places.
local function distrust(connection, frame)
    connection.is_distrusted = true
    state.missing_commands = state.missing_commands + 1
    state.remarks[frame] = "data digests are negotiated, but not enabled in Wireshark's iSCSI preferences: "
        .. "commands of this connection are left out"
end

-- Takes the PDUs that Wireshark shows in the frame. Returns where the last one ends in the buffer with its payload.
local function note_pdus(connection, half, direction, frame, time_ns, frame_source, payload, sequence, length, ...)
    local pdus_end = payload
    if not connection.is_without_digests then
        if iscsi_header_digest() then
            connection.header_digest = 4
        end
        if iscsi_data_digest() then
            connection.data_digest = 4
        end
    end
    for index = 1, select("#", ...) do
        local info = select(index, ...)
        local offset = info.offset
        local is_own = is_in_frame(half, info, frame_source, payload)
        local source = is_own and frame_source or info.source
        local captured = source and source:len() or 0
        if captured - offset >= 48 then
            read_header(source:raw(offset, 48))
            local opcode = pdu.opcode
            local is_from_initiator = opcode < 32
            if not connection.initiator then
                connection.initiator = is_from_initiator and direction or 3 - direction
                state.iscsi_connection_count = state.iscsi_connection_count + 1
            end
            if connection.has_data_digest and connection.data_digest == 0 and pdu.length > 0
                and not connection.is_distrusted then
                distrust(connection, frame)
            end
            local total = pdu.total + digest_length(connection)
            local stop = offset + total
            local begin
            if is_own then
                begin = sequence + offset - payload
                pdu.first_frame, pdu.first_ns = frame, time_ns
                pdu.last_ns = stop <= payload + length and time_ns or nil
                pdu.last_frame = frame
                pdus_end = stop
            else
                local first, last, own, own_length =
                    place_in_buffer(half, frame, offset, stop, captured, sequence, length)
                pdu.first_frame = first
                pdu.first_ns = first and (first == frame and time_ns or recall("time_ns", first))
                pdu.last_ns = last and stop <= captured and (last == frame and time_ns or recall("time_ns", last))
                    or nil
                pdu.last_frame = last
                pdus_end = payload + (own_length or length)
                -- if the buffer begins in this frame, its place in the frame is not known
                begin = own and own > 0 and sequence + offset - own or nil
                if first == frame then
                    half.bytes_in_flight = data_in_flight(connection, half)
                elseif first and is_from_initiator then
                    half.bytes_in_flight =
                        recall(floor(pdu.flags / 64) % 2 == 1 and "in_flight_opposite" or "in_flight", first)
                end
            end
            if not begin then
                half.next_begin = nil
            end
            if is_from_initiator == (direction == connection.initiator) and not connection.is_distrusted
                and not (begin and is_repeated(half, begin % MODULUS, (begin + total) % MODULUS)) then
                pdu.source, pdu.offset, pdu.frame, pdu.now_ns = source, offset, frame, time_ns
                if is_own and opcode == SCSI_COMMAND then
                    half.bytes_in_flight = data_in_flight(connection, half)
                end
                half.has_pdus = true
                take(connection, half, frame)
            end
        end
    end
    pdu.source = nil
    return pdus_end
end

-- Whether the header at hand is that of a SCSI Command PDU with more than the `available` bytes.
local function is_command(connection, half, available)
    local expected = connection.session and connection.session.next_command
    return pdu.opcode == SCSI_COMMAND and pdu.flags % 32 < 8 and pdu.second == 0 and pdu.third == 0
        and pdu.total > available and pdu.length <= pdu.word20 and half.has_pdus
        and expected and math.abs(ahead(pdu.word24, expected)) < state.JUMP_MAX
end

-- Opens the command of a PDU that begins in this frame and ends in a later one. Wireshark shows the PDU only there, but
-- other commands may be issued in between.
local function peek(connection, half, source, offset, stop, frame, time_ns)
    local other = connection[half == connection[1] and 2 or 1]
    local available = math.min(source:len(), stop) - offset
    if available < 1 then
        return
    elseif available < 48 then
        half.part = {
            bytes = source:raw(offset, available), available = available, frame = frame, first_ns = time_ns,
            in_flight = bytes_in_flight(half, other), in_flight_opposite = bytes_in_flight(other, half),
        }
        return
    end
    read_header(source:raw(offset, 48))
    if is_command(connection, half, available) then
        half.begun = commands.open_command(connection, frame, time_ns, data_in_flight(connection, half))
    end
end

-- Continues `peek` for a header of which earlier frames brought less than 48 bytes.
local function continue_peek(connection, half, source, payload, length)
    local part = half.part
    part.bytes = part.bytes .. source:raw(payload, math.min(48 - #part.bytes, length, source:len() - payload))
    if #part.bytes < 48 then
        return
    end
    half.part = nil
    read_header(part.bytes)
    if is_command(connection, half, part.available) then
        local is_read = floor(pdu.flags / 64) % 2 == 1
        local in_flight = is_read and part.in_flight_opposite or part.in_flight
        half.begun = commands.open_command(connection, part.frame, part.first_ns, in_flight)
    end
end

-- Takes a new frame with payload. The last arguments are the PDUs that it shows.
local function note_payload(connection, direction, tvb, pinfo, frame, length, ...)
    local half, other = connection[direction], connection[3 - direction]
    local is_from_initiator = direction == connection.initiator
    local sequence_info = tcp_sequence()
    local sequence = sequence_info.value
    local stop = (sequence + length) % MODULUS
    local highest = half.highest
    local is_next = sequence == highest or highest == nil
    if sequence == highest then
        half.highest = stop
    else
        half.is_in_order = false
        if not highest then
            half.first = sequence
        elseif length > 1 and connections.note_out_of_order(half, frame, sequence, stop, highest) then
            connections.note_disorder(connection, is_from_initiator, frame)
        end
        if not highest or ahead(stop, highest) > 0 then
            half.highest = stop
        end
    end
    if half.acknowledged == nil or half.acknowledged ~= other.highest then
        note_acknowledgment(half)
    end
    if pinfo.caplen < pinfo.len then
        half.is_cut = true
    end
    local time_ns = connection.last_ns
    local begin, source, payload = nil, nil, nil
    if ... then
        source, payload = payload_of(half, tvb, pinfo, sequence_info)
        local pdus_end =
            note_pdus(connection, half, direction, frame, time_ns, source, payload, sequence, length, ...)
        half.pending_frame = nil
        begin = pdus_end < payload + length and pdus_end or nil
    elseif not half.pending_frame then
        if is_from_initiator then
            source, payload = payload_of(half, tvb, pinfo, sequence_info)
        end
        begin = payload or 0
    elseif not connection.initiator then
        connection.frames_without_pdu = connection.frames_without_pdu + 1
        if connection.frames_without_pdu > FRAMES_WITHOUT_PDU then
            state.connections[connection.stream] = false
        end
    elseif half.part and half.is_in_order and is_from_initiator then
        source, payload = payload_of(half, tvb, pinfo, sequence_info)
        continue_peek(connection, half, source, payload, length)
    end
    if begin then
        -- a PDU begins here that a later frame will show
        half.pending_frame, half.pending_sequence = frame, (sequence + begin - (payload or 0)) % MODULUS
        half.is_in_order, half.begun, half.part = half.highest == stop and is_next, nil, nil
        if source and direction == connection.initiator and half.is_in_order then
            peek(connection, half, source, begin, payload + length, frame, time_ns)
        end
    end
    if half.pending_frame then
        if is_from_initiator or not connection.initiator then
            remember(frame, time_ns, bytes_in_flight(half, other), bytes_in_flight(other, half))
        else
            remember(frame, time_ns)
        end
    end
end

-- Takes a frame that was not read before. Frames come in order.
local function note(tvb, pinfo, frame)
    local info = tcp_stream()
    local connection = info and connections.connection_of(info.value, pinfo)
    if not connection then
        return
    end
    local direction = pinfo.src_port == connection.port and 1 or 2
    if connection.address then
        direction = tostring(pinfo.src) == connection.address and 1 or 2
    end
    connection.last_ns = time_of(pinfo)
    if not connection.closed_ns and (tcp_fin() or tcp_rst()) then
        connection.closed_ns = connection.last_ns
    end
    local session = connection.closed_ns and connection.session
    if session and session.connection_count > 1 then
        session.has_closed_connection = true
    end
    info = tcp_length()
    local length = info and info.value or 0
    if length > 0 then
        note_payload(connection, direction, tvb, pinfo, frame, length, iscsi_pdu())
    elseif direction ~= connection.initiator then
        -- the initiator's next command carries its acknowledgment number again
        note_acknowledgment(connection[direction])
    end
end

return { note = note }
