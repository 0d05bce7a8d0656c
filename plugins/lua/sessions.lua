-- iSCSI sessions: their sequence numbers, and which of their commands are in flight.
--
-- Never reads a header: later parts pass the numbers in. The queue depth of a command is the number of commands in
-- flight when it was issued, including itself. Wireshark may show commands out of order (retransmissions, several
-- connections): a late command is then counted in, and a depth that cannot be known is marked as unknown.
--
-- Provides `new_session`, `session_of`, `take_command_number`, `take_status_number`, `enter` and `leave`.

local serial = require("serial")
local state = require("state")

local format = string.format
local ahead, MODULUS = serial.ahead, serial.MODULUS

-- completed commands that are remembered for each session
local ENDED_REMEMBERED = 256

local function new_session(name)
    local session = {
        number = #state.sessions, name = name, connection_count = 1, device_types = {},
        -- commands in flight, in any order; the last ones that ended; the last one issued
        open = {}, open_count = 0, ended = {}, ended_count = 0, latest = nil, latest_ns = -math.huge,
        -- CmdSN: the next one expected, and the ranges before it that are missing
        next_command = nil, holes = {},
        -- commands in flight that may have ended: their status may be missing
        suspect_count = 0,
    }
    state.sessions[#state.sessions + 1] = session
    return session
end

-- The session of a connection; a new one if its login was not captured.
local function session_of(connection)
    if not connection.session then
        connection.session = new_session("login not captured")
    end
    return connection.session
end

-- Takes the CmdSN of a PDU (RFC 7143, section 4.2.2.1). Several connections may deliver them out of order.
local function take_command_number(session, number, frame)
    local expected = session.next_command
    if not expected then
        session.next_command = (number + 1) % MODULUS
        return
    end
    local distance = ahead(number, expected)
    if distance == 0 then
        session.next_command = (number + 1) % MODULUS
    elseif distance > 0 then
        if distance <= state.JUMP_MAX and #session.holes < state.HOLES_MAX then
            session.holes[#session.holes + 1] = { expected, distance }
            state.remarks[frame] = format("CmdSN %d to %d are missing: cycle numbers are left out until they arrive",
                expected, (number - 1) % MODULUS)
        end
        -- further ahead than any command window is not remembered as a range: those commands stay missing
        state.missing_commands = state.missing_commands + distance
        session.next_command = (number + 1) % MODULUS
    else
        for index = #session.holes, 1, -1 do
            local first, count = session.holes[index][1], session.holes[index][2]
            local within = ahead(number, first)
            if within >= 0 and within < count then
                state.missing_commands = state.missing_commands - 1
                table.remove(session.holes, index)
                if within > 0 then
                    table.insert(session.holes, { first, within })
                end
                if within + 1 < count then
                    table.insert(session.holes, { (number + 1) % MODULUS, count - within - 1 })
                end
                return
            end
        end
    end
end

-- Takes the StatSN of a PDU that advances it. After a jump some commands have ended whose status is missing. Which ones
-- is not known, so the queue depth is unknown until all commands in flight have ended or their tags are reused.
local function take_status_number(connection, number)
    local distance = connection.next_status and ahead(number, connection.next_status) or 0
    if distance < 0 then
        return
    end
    connection.next_status = (number + 1) % MODULUS
    if distance > 0 and connection.session then
        local session = connection.session
        for index = 1, session.open_count do
            local command = session.open[index]
            command.is_depth_unknown = true
            if not command.is_suspect and command.connection == connection then
                command.is_suspect = true
                state.column.end_ns[command.cycle + 1] = false
                session.suspect_count = session.suspect_count + 1
            end
        end
    end
end

-- Whether a command was issued before another; at the same time, the lower number is first.
local function is_before(command, other)
    return command.first_ns < other.first_ns or (command.first_ns == other.first_ns and command.cycle < other.cycle)
end

-- Enters a command that Wireshark shows after a later one: finds its position among the commands remembered.
local function enter_late(session, command)
    local depth, previous, following = 1, nil, nil
    local function compare(other, end_ns)
        if is_before(other, command) then
            if not end_ns or end_ns > command.first_ns then
                depth = depth + 1
            end
            if not previous or is_before(previous, other) then
                previous = other
            end
        else
            if not end_ns then
                other.depth = other.depth + 1
            end
            if not following or is_before(other, following) then
                following = other
            end
        end
    end
    for index = 1, session.open_count do
        compare(session.open[index], nil)
    end
    for _, other in pairs(session.ended) do
        compare(other, other.end_ns)
    end
    command.depth, command.previous = depth, previous
    if session.connection_count > 1 then
        -- commands that have ended may have been counted without this one
        session.is_depth_unknown = true
    end
    if following and not following.end_ns then
        following.previous = command
    end
end

-- Removes a command from those in flight.
local function leave(command, end_ns)
    local session = command.session
    command.connection.commands[command.tag] = nil
    command.connection.command_count = command.connection.command_count - 1
    local last = session.open[session.open_count]
    session.open[command.index], last.index = last, command.index
    session.open[session.open_count] = nil
    session.open_count = session.open_count - 1
    command.end_ns, command.previous = end_ns, nil
    if command.is_suspect then
        session.suspect_count = session.suspect_count - 1
    end
    session.ended[session.ended_count % ENDED_REMEMBERED] = command
    session.ended_count = session.ended_count + 1
    if end_ns <= session.latest_ns then
        -- it had ended before these were issued, although its status is shown later
        for index = 1, session.open_count do
            local other = session.open[index]
            if other.first_ns >= end_ns then
                other.depth = math.max(other.depth - 1, 1)
            end
        end
    end
end

-- Adds a command to those in flight and sets its queue depth.
local function enter(session, command)
    if session.has_closed_connection then
        for index = session.open_count, 1, -1 do
            local other = session.open[index]
            local closed_ns = other.connection.closed_ns
            if closed_ns and closed_ns <= command.first_ns then
                leave(other, closed_ns)
            end
        end
    end
    if command.first_ns >= session.latest_ns then
        command.depth, command.previous = session.open_count + 1, session.latest
        session.latest, session.latest_ns = command, command.first_ns
    else
        enter_late(session, command)
    end
    command.is_depth_unknown = session.suspect_count > 0
    session.open_count = session.open_count + 1
    session.open[session.open_count], command.index = command, session.open_count
end

return {
    new_session = new_session, session_of = session_of, take_command_number = take_command_number,
    take_status_number = take_status_number, enter = enter, leave = leave,
}
