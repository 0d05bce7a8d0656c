-- What the plugin knows of the capture: tables by frame, by cycle and by connection, emptied when a capture is opened.
--
-- Never reads a packet. Everything that bad input could make grow has a bound. What exceeds it is dropped, and values
-- that depend on it are left out.
--
-- Provides its table, with the tables and counts that `reset` makes:
--   connections   by tcp.stream; false where no iSCSI was found
--   sessions      list
--   identities    the session by initiator, ISID and target, for logins that join it
--   facts         by frame: one packed fact (a number) or a list of them, see `note_fact`
--   remarks       by frame: the text of an expert note
--   column        by name, then by cycle + 1. Session, stream, operation, I/O size, command frame and time are set with
--                 the command, all other columns with its status. `end_ns` of a command without one: when it was
--                 aborted; false if its status may be missing from the capture
--   cycle_count, iscsi_connection_count
--   missing_commands   commands that are missing according to CmdSN, over all sessions
--   clock         `start`: the absolute time of the first frame
--   last_noted    the highest frame number read so far
--   sidecar       `rows` by frame, `refusal`

local fields = require("fields")

local floor = math.floor

local FRAMES_REMEMBERED = 65536

local COLUMNS = {
    "session", "stream", "operation", "block_size", "queue_depth", "owin", "command_frame", "first_data_frame",
    "status_frame", "first_ns", "status_ns", "first_data_time", "transfer_time", "status_time", "idle_time",
    "data_bytes", "is_write", "end_ns",
}

local state = {
    -- bounds that several parts share
    HOLES_MAX = 1024,
    JUMP_MAX = 65536,
    -- the names of `iscsitrace.phase`, and their numbers in a packed fact
    PHASES = { "command", "grant", "transfer", "status_wait", "service", "request" },
    COMMAND = 1, GRANT = 2, TRANSFER = 3, STATUS_WAIT = 4, SERVICE = 5, REQUEST = 6,
    -- whether statistics are open; opening another capture does not change that
    has_listener = false,
}

-- The frames that brought parts of PDUs: the newer and the older half of those that are remembered.
local moments, moments_before, moment_count

local function new_moments()
    return { time_ns = {}, in_flight = {}, in_flight_opposite = {}, is_repeated = {} }
end

local function reset()
    state.connections, state.sessions, state.identities = {}, {}, {}
    state.facts, state.remarks = {}, {}
    state.cycle_count, state.column = 0, {}
    for _, name in ipairs(COLUMNS) do
        state.column[name] = {}
    end
    state.missing_commands, state.iscsi_connection_count = 0, 0
    state.clock, state.last_noted = {}, 0
    state.sidecar = { rows = {} }
    moments, moments_before, moment_count = new_moments(), new_moments(), 0
end
reset()
fields.protocol.init = reset

-- Remembers a frame that brought part of a PDU: its time, and the bytes in flight from its sender and from the other
-- side.
function state.remember(frame, time_ns, in_flight, in_flight_opposite)
    if moment_count >= FRAMES_REMEMBERED then
        moments_before, moments, moment_count = moments, new_moments(), 0
    end
    moments.time_ns[frame] = time_ns
    moments.in_flight[frame], moments.in_flight_opposite[frame] = in_flight, in_flight_opposite
    moment_count = moment_count + 1
end

-- Remembers that a frame repeats bytes that an earlier frame brought.
function state.remember_repeated(frame)
    moments.is_repeated[frame] = true
end

-- One of `time_ns`, `in_flight`, `in_flight_opposite` and `is_repeated` of an earlier frame; nil if not remembered.
function state.recall(what, frame)
    return moments[what][frame] or moments_before[what][frame]
end

-- A fact is the cycle, the phase and whether the PDU completes the status, packed into one number: a table for each
-- would take too much memory.
local function pack_fact(cycle, phase, is_status, is_number_known)
    return ((cycle * 8 + phase) * 2 + (is_status and 1 or 0)) * 2 + (is_number_known and 1 or 0)
end

function state.unpack_fact(fact)
    local is_number_known = fact % 2 == 1
    fact = floor(fact / 2)
    local is_status = fact % 2 == 1
    fact = floor(fact / 2)
    return floor(fact / 8), fact % 8, is_status, is_number_known
end

-- Notes for a frame that it completes a PDU of a command.
function state.note_fact(frame, command, phase, is_status)
    local facts = state.facts
    local fact = pack_fact(command.cycle, phase, is_status, state.missing_commands == 0)
    local known = facts[frame]
    if not known then
        facts[frame] = fact
    elseif type(known) == "table" then
        known[#known + 1] = fact
    else
        facts[frame] = { known, fact }
    end
end

return state
