-- What each type of PDU means: it opens, continues or closes a command, or opens a session.
--
-- Never looks for PDUs or for frames: `packets` hands over one PDU after another, in `pdu`.
--
-- Provides `take` and `SCSI_COMMAND` (an opcode).

local commands = require("commands")
local pdu = require("pdu")
local serial = require("serial")
local sessions = require("sessions")
local state = require("state")

local byte, floor = string.byte, math.floor
local advance, note_data, note_status = commands.advance, commands.note_data, commands.note_status
local data_of, note_fact = pdu.data_of, state.note_fact
local COMMAND, GRANT, TRANSFER = state.COMMAND, state.GRANT, state.TRANSFER

local RESERVED_TAG = serial.MODULUS - 1
local REQUESTS_MAX = 4096
local LOGIN_TEXT_MAX = 65536

local SCSI_COMMAND, LOGIN_REQUEST, NOP_IN, DATA_IN = 0x01, 0x03, 0x20, 0x25

-- By opcode. `half` is the state of the direction in which the PDU was sent.
local handlers = {}

-- SCSI Command
handlers[0x01] = function(connection, half)
    local begun = half.begun
    half.begun = nil
    local command
    if begun and begun.tag == pdu.tag then
        command = begun
    elseif pdu.first_ns then
        command = commands.open_command(connection, pdu.first_frame, pdu.first_ns, half.bytes_in_flight)
    else
        state.cycle_count = state.cycle_count + 1
    end
    if command then
        command.last_ns = pdu.last_ns
        note_fact(pdu.frame, command, COMMAND, false)
    end
end

-- SCSI Data-Out
handlers[0x05] = function(connection)
    local command = connection.commands[pdu.tag]
    if command then
        if pdu.word20 == RESERVED_TAG then
            local missing
            command.next_unsolicited, missing = advance(command, pdu.word36, command.next_unsolicited or 0)
            command.missing_data = command.missing_data + missing
        end
        note_data(command, command.immediate)
        note_fact(pdu.frame, command, TRANSFER, false)
    end
end

-- SCSI Data-In
handlers[0x25] = function(connection)
    local command = connection.commands[pdu.tag]
    if not command then
        return
    end
    local missing
    command.next_data, missing = advance(command, pdu.word36, command.next_data)
    command.missing_data = command.missing_data + missing
    note_data(command, 0)
    if command.is_inquiry and pdu.word40 == 0 and connection.header_digest == 0 then
        local data = data_of(1)
        command.session.device_types[command.lun] = data and byte(data) % 32
    end
    if pdu.flags % 2 == 1 then
        note_status(command, true)
    else
        note_fact(pdu.frame, command, TRANSFER, false)
    end
end

-- Ready To Transfer
handlers[0x31] = function(connection)
    local command = connection.commands[pdu.tag]
    if command then
        local number = pdu.word36
        command.next_r2t = advance(command, number, command.next_r2t or 0)
        local is_first = command.r2ts == 0 and number == 0
        if is_first then
            command.r2t_first_ns = pdu.last_ns
        end
        command.r2ts = command.r2ts + 1
        note_fact(pdu.frame, command, is_first and GRANT or TRANSFER, false)
    end
end

-- SCSI Response
handlers[0x21] = function(connection)
    local command = connection.commands[pdu.tag]
    if command then
        note_status(command, false)
    end
end

-- Functions of task management: ABORT TASK; ABORT TASK SET, CLEAR TASK SET and LOGICAL UNIT RESET; TARGET WARM RESET
-- and TARGET COLD RESET, I_T NEXUS RESET
local ABORT_TASK, ENDS_VOLUME = 1, { [2] = true, [4] = true, [5] = true }
local ENDS_ALL = { [6] = true, [7] = true, [11] = true }

-- Task Management Function Request
handlers[0x02] = function(connection)
    if connection.request_count < REQUESTS_MAX then
        local tag = pdu.tag
        connection.request_count = connection.request_count + (connection.requests[tag] and 0 or 1)
        connection.requests[tag] =
            { action = pdu.flags % 128, tag = pdu.word20, lun = pdu.lun, cycle_count = state.cycle_count }
    end
end

-- Task Management Function Response: ends the commands that its function aborts, which were sent before the request
-- (RFC 7143, section 11.5.1)
handlers[0x22] = function(connection)
    local tag = pdu.tag
    local request = connection.requests[tag]
    if not request then
        return
    end
    connection.requests[tag] = nil
    connection.request_count = connection.request_count - 1
    if pdu.second ~= 0 then
        return
    end
    local action, ended = request.action, {}
    for other, command in pairs(connection.commands) do
        local is_covered = (action == ABORT_TASK and other == request.tag) or ENDS_ALL[action]
            or (ENDS_VOLUME[action] and command.lun == request.lun)
        if is_covered and command.cycle < request.cycle_count then
            ended[#ended + 1] = command
        end
    end
    for _, command in ipairs(ended) do
        local end_ns = pdu.last_ns or pdu.now_ns
        if state.column.end_ns[command.cycle + 1] == nil then
            state.column.end_ns[command.cycle + 1] = end_ns
        end
        sessions.leave(command, end_ns)
    end
end

-- The value of a key in a login text; empty if the key is not there.
local function key_value(text, key)
    return ("\0" .. text):match("\0" .. key .. "=([^\0]*)") or ""
end

-- Login Request: the first complete text opens a session or joins one
handlers[0x03] = function(connection)
    local text = (connection.requested or "") .. (data_of(LOGIN_TEXT_MAX) or "")
    connection.requested = #text <= LOGIN_TEXT_MAX and text or ""
    if connection.session or floor(pdu.flags / 64) % 2 == 1 then
        return
    end
    local names = { key_value(text, "InitiatorName"), key_value(text, "TargetName") }
    local identity = table.concat({ names[1], pdu.lun:sub(1, 6), names[2] }, "\0")
    local known = state.identities[identity]
    local high, low = byte(pdu.lun, 7, 8)
    local handle = high * 256 + low
    if handle ~= 0 and known and known.handle == handle then
        known.connection_count = known.connection_count + 1
        connection.session = known
    else
        connection.session = sessions.new_session(names[1] .. " -> " .. (names[2] ~= "" and names[2] or "discovery"))
        state.identities[identity] = connection.session
    end
end

-- Login Response
handlers[0x23] = function(connection)
    local text = (connection.answered or "") .. (data_of(LOGIN_TEXT_MAX) or "")
    connection.answered = #text <= LOGIN_TEXT_MAX and text or ""
    -- T, NSG 3 and Status-Class 0 (RFC 7143, section 11.13)
    local is_full_feature = pdu.flags >= 128 and pdu.flags % 4 == 3 and pdu.word36 < 16777216
    if is_full_feature and connection.session then
        local high, low = byte(pdu.lun, 7, 8)
        connection.session.handle = high * 256 + low
        local offered = key_value(connection.requested or "", "DataSequenceInOrder")
        local answered = key_value(connection.answered, "DataSequenceInOrder")
        connection.session.is_data_in_any_order = offered == "No" and answered == "No"
        connection.has_data_digest = key_value(connection.answered, "DataDigest"):match("CRC32C") ~= nil
        connection.is_without_digests = not connection.has_data_digest
            and not key_value(connection.answered, "HeaderDigest"):match("CRC32C")
        connection.requested, connection.answered = nil, nil
    end
end

-- Opcodes of PDUs that carry a CmdSN
local HAS_COMMAND_NUMBER = { [0x00] = true, [0x01] = true, [0x02] = true, [0x04] = true, [0x06] = true }

-- Opcodes of PDUs that advance StatSN. A Data-In does so only with the S bit, a NOP-In only as an answer
local HAS_STATUS_NUMBER = {
    [0x21] = true, [0x22] = true, [0x23] = true, [0x24] = true, [0x26] = true, [0x32] = true, [0x3f] = true,
}

-- Takes the CmdSN or StatSN of the PDU at hand.
local function note_numbers(connection, opcode, frame)
    if HAS_STATUS_NUMBER[opcode] or (opcode == DATA_IN and pdu.flags % 2 == 1)
        or (opcode == NOP_IN and pdu.tag ~= RESERVED_TAG) then
        sessions.take_status_number(connection, pdu.word24)
        return
    end
    if HAS_COMMAND_NUMBER[opcode] then
        if pdu.first < 64 then
            sessions.take_command_number(sessions.session_of(connection), pdu.word24, frame)
        end
    elseif opcode == LOGIN_REQUEST and connection.session and not connection.session.next_command then
        connection.session.next_command = pdu.word24
    end
end

-- Takes the PDU at hand, which `frame` shows.
local function take(connection, half, frame)
    local opcode = pdu.opcode
    note_numbers(connection, opcode, frame)
    local handler = handlers[opcode]
    if handler then
        handler(connection, half)
    end
    if opcode == LOGIN_REQUEST then
        -- it may have opened the session that its CmdSN belongs to
        note_numbers(connection, opcode, frame)
    end
end

return { take = take, SCSI_COMMAND = SCSI_COMMAND }
