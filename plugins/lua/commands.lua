-- SCSI commands: their life from the SCSI Command PDU to the status, and their phases.
--
-- Never reads a buffer: it takes the headers from `pdu`. A phase is left out if a PDU that bounds it is missing; no
-- phase is guessed. Definitions: docs/method.md, section 3.
--
-- Provides `open_command`, `advance`, `note_data`, `note_status` and `difference`.

local cdb = require("cdb")
local pdu = require("pdu")
local serial = require("serial")
local sessions = require("sessions")
local state = require("state")

local floor = math.floor
local ahead, MODULUS = serial.ahead, serial.MODULUS
local COMMANDS_MAX = 65536

-- Opens a command when the header of its SCSI Command PDU is there. `frame` brought its first byte, when
-- `bytes_in_flight` were in flight from the sender of its data. Nil if its connection has too many commands.
local function open_command(connection, frame, first_ns, bytes_in_flight)
    local session = sessions.session_of(connection)
    local tag = pdu.tag
    local earlier = connection.commands[tag]
    if earlier then
        sessions.leave(earlier, first_ns)
    elseif connection.command_count >= COMMANDS_MAX then
        state.cycle_count = state.cycle_count + 1
        return nil
    end
    local is_read = floor(pdu.flags / 64) % 2 == 1
    local lun = pdu.lun
    local cycle, column = state.cycle_count, state.column
    local command = {
        connection = connection, session = session, tag = tag, cycle = cycle, lun = lun,
        is_read = is_read, is_write = floor(pdu.flags / 32) % 2 == 1,
        expected = pdu.word20, immediate = pdu.length, data_bytes = pdu.length,
        operation = cdb.operation_of(pdu.bytes, session.device_types[lun]),
        is_inquiry = cdb.is_standard_inquiry(pdu.bytes),
        first_ns = first_ns, bytes_in_flight = bytes_in_flight, depth = 0, index = 0,
        data_pdus = 0, data_bytes_max = 0, r2ts = 0, next_data = 0, missing_data = 0, is_missing_some = false,
    }
    state.cycle_count = cycle + 1
    column.session[cycle + 1], column.stream[cycle + 1] = session.number, connection.stream
    column.operation[cycle + 1], column.block_size[cycle + 1] = command.operation, command.expected
    column.command_frame[cycle + 1], column.first_ns[cycle + 1] = frame, first_ns
    connection.commands[tag] = command
    connection.command_count = connection.command_count + 1
    sessions.enter(session, command)
    return command
end

-- Takes a DataSN or R2TSN, which counts up from 0. Returns the next one, and how many are missing before this one.
local function advance(command, number, expected)
    local distance = ahead(number, expected)
    if distance < 0 then
        return expected, 0
    end
    if distance > 0 then
        command.is_missing_some = true
    end
    return (number + 1) % MODULUS, math.min(distance, state.JUMP_MAX)
end

-- Takes the data PDU at hand. The first one is known as such by its Buffer Offset, `first_offset`.
local function note_data(command, first_offset)
    local length = pdu.length
    if length == 0 then
        return
    end
    if command.data_pdus == 0 then
        local is_first_by_number = command.session.is_data_in_any_order and pdu.word36 == 0
        if is_first_by_number or pdu.word40 == first_offset then
            command.data_first_ns, command.data_first_frame = pdu.first_ns, pdu.first_frame
        else
            command.is_missing_some = true
        end
    end
    command.data_pdus = command.data_pdus + 1
    command.data_bytes = command.data_bytes + length
    command.data_bytes_max = math.max(command.data_bytes_max, length)
    if not pdu.last_ns then
        command.data_last_ns, command.is_last_unknown = nil, true
    else
        command.is_last_unknown = false
        if not command.data_last_ns or pdu.last_ns >= command.data_last_ns then
            command.data_last_ns = pdu.last_ns
        end
    end
end

-- Whether the status at hand counts more data than the data PDUs that were shown.
local function lacks_last_data(command)
    if pdu.second ~= 0 or pdu.third ~= 0 then
        return false
    end
    local underflow = floor(pdu.flags / 2) % 2 == 1 and pdu.word44 or 0
    local lacking = command.expected - underflow - command.data_bytes
    if lacking <= 0 then
        return false
    end
    local size = command.data_bytes_max > 0 and command.data_bytes_max or lacking
    local is_lacking = cdb.moves_blocks[command.operation] and math.ceil(lacking / size) > command.missing_data
    if command.is_read and not command.is_write then
        -- ExpDataSN counts the Data-In PDUs (RFC 7143, section 11.4.8); some targets set it to 0, then the bytes count
        local counted = pdu.word36
        return counted ~= 0 and ahead(counted, command.next_data) > 0 or is_lacking
    end
    return command.is_write and not command.is_read and is_lacking
end

-- The time between two instants; false if one is not known.
local function difference(later, earlier)
    return later and earlier and later - earlier or false
end

-- Writes the phases of a completed command into its columns. Returns the phase that its status ends.
local function note_phases(command, status_ns, is_status_in_data)
    local index, column = command.cycle + 1, state.column
    local is_without_data = command.data_pdus == 0 and command.immediate == 0 and command.r2ts == 0
        and not command.is_missing_some
    if is_without_data then
        return state.REQUEST
    end
    if command.is_read then
        column.first_data_time[index] = difference(command.data_first_ns, command.first_ns)
        column.transfer_time[index] = difference(command.data_last_ns, command.data_first_ns)
        column.status_time[index] = difference(status_ns, command.data_last_ns)
        return is_status_in_data and state.TRANSFER or state.STATUS_WAIT
    end
    if not command.is_write then
        return state.REQUEST
    end
    local begin_ns = command.first_ns
    if command.r2ts > 0 then
        begin_ns = command.r2t_first_ns
        column.first_data_time[index] = difference(begin_ns, command.first_ns)
    end
    local end_ns = nil
    if command.data_pdus > 0 and command.immediate > 0 then
        end_ns = command.data_last_ns and command.last_ns and math.max(command.data_last_ns, command.last_ns)
    elseif command.data_pdus > 0 then
        end_ns = command.data_last_ns
    elseif command.immediate > 0 then
        end_ns = command.last_ns
    end
    if end_ns and begin_ns and end_ns < begin_ns then
        end_ns = nil
    end
    column.transfer_time[index] = difference(end_ns, begin_ns)
    column.status_time[index] = difference(status_ns, end_ns)
    return state.SERVICE
end

-- Takes the status, in a SCSI Response or in the last Data-In, and closes the command.
local function note_status(command, is_in_data)
    if not is_in_data and lacks_last_data(command) then
        command.data_last_ns, command.is_missing_some = nil, true
    end
    if command.is_last_unknown then
        command.data_last_ns = nil
    end
    local index, column = command.cycle + 1, state.column
    local status_ns = pdu.last_ns
    local phase = note_phases(command, status_ns, is_in_data)
    local previous = command.previous
    local is_depth_known = not (command.is_depth_unknown or command.session.is_depth_unknown)
    local was_alone = previous and previous.depth == 1 and not previous.is_depth_unknown and is_depth_known
    if was_alone and previous.status_ns and command.first_ns >= previous.status_ns then
        column.idle_time[index] = command.first_ns - previous.status_ns
    end
    command.status_ns = status_ns
    column.status_ns[index] = status_ns
    column.first_data_frame[index] = command.data_first_frame
    column.status_frame[index] = pdu.last_frame or pdu.frame
    column.is_write[index] = command.is_write and not command.is_read
    column.owin[index] = command.bytes_in_flight
    column.data_bytes[index] = command.data_bytes
    column.queue_depth[index] = is_depth_known and command.depth
    state.note_fact(pdu.frame, command, phase, true)
    sessions.leave(command, status_ns or pdu.now_ns)
end

return {
    open_command = open_command, advance = advance, note_data = note_data, note_status = note_status,
    difference = difference,
}
