-- iSCSI commands in Wireshark: `iscsitrace.*` fields on Wireshark's own dissection, statistics, and menu entries that
-- run iscsitrace on the selected packet. For Wireshark 3.6 to 4.6 (Lua 5.2 to 5.4).
--
-- Assembled from plugins/lua by `python -m tools.plugin`: edit the parts, not this file.
--
-- The numbers are those of `iscsitrace cycles`, defined in docs/method.md, section 3. plugins/README.md describes each
-- field. Wireshark finds the PDUs and reassembles segments. This plugin reads the headers of those PDUs and never looks
-- for PDUs itself. It leaves out what Wireshark did not show, and does not guess. It reads each frame once, in order,
-- and keeps the results by frame, so that one pass and two passes show the same. If no field is requested, it does
-- nothing.

----------------------------------------------------------------------------------------------------------- command_line

local command_line = (function()
-- The command line of Wireshark or tshark: its words, and which of the plugin's fields it requests.
--
-- Never decides what is computed: `fields` and `show` do, from `requested` and `is_unused`. It knows the command line
-- on Linux only, from /proc; elsewhere every field counts as requested.
--
-- Provides `words()`, `requested` and `is_unused`.

-- The words of the command line; none where the operating system does not show them.
local function words()
    local found = {}
    local file = io.open("/proc/self/cmdline", "rb")
    if file then
        for word in (file:read("*a") or ""):gmatch("([^\0]*)\0") do
            found[#found + 1] = word
        end
        file:close()
    end
    return found
end

-- Whether the default profile has a column with one of the plugin's fields.
local function has_own_column()
    local file = io.open(persconffile_path("preferences"), "r")
    local text = file and file:read("*a") or ""
    if file then
        file:close()
    end
    local columns = ("\n" .. text):match("\ngui%.column%.format:([^\n]*\n[%s\"][^#]*)") or ""
    return columns:find("iscsitrace.", 1, true) ~= nil
end

-- The words of tshark's command line that name fields of the plugin, as one text; empty if there are none. Nil if this
-- cannot be known: Wireshark's user may add a column at any time. It matters because a Lua post-dissector costs time on
-- every packet: merely calling it adds half of the time that tshark needs for a plain list.
local function requested_fields()
    local all = words()
    if gui_enabled() or not (all[1] or ""):match("tshark$") or has_own_column() then
        return nil
    end
    local naming, is_fields_only, is_whole_packet = {}, false, false
    local index = 2
    while index <= #all do
        local word = all[index]
        if word == "-X" or word == "-T" then
            index = index + 1
            word = word .. (all[index] or "")
        end
        local script = word:match("^%-Xlua_script:(.*)$")
        if script then
            if not script:match("iscsitrace%.lua$") then
                return nil -- another script may read the fields
            end
        elseif word:match("^%-%-color") or word:match("^%-X") then
            return nil
        elseif word == "-Tfields" then
            is_fields_only = true
        elseif word:match("^%-[^-]*[VOCT]") and word ~= "-Ttext" then
            is_whole_packet = true
        elseif word:find("iscsitrace", 1, true) then
            naming[#naming + 1] = word
        end
        index = index + 1
    end
    if is_whole_packet or (#naming > 0 and not is_fields_only) then
        return nil
    end
    return table.concat(naming, " ")
end

local requested = requested_fields()

return { words = words, requested = requested, is_unused = requested == "" }
end)()

----------------------------------------------------------------------------------------------------------------- fields

local fields = (function()
-- The protocol `iscsitrace` in Wireshark: its fields, expert notes and preferences; and the fields of Wireshark that it
-- reads.
--
-- Never computes a value. The abbreviations (iscsitrace.cycle ...) are used in filters and columns: they never change.
--
-- Provides `protocol`, `own` (fields by name), `notes` (expert notes) and one extractor for each of Wireshark's fields.

set_plugin_info({
    version = "1",
    description = "iSCSI commands: phases, queue depth, idle time, bytes in flight",
    author = "iscsitrace",
    repository = "plugins/iscsitrace.lua",
})

local protocol = Proto("iscsitrace", "iscsitrace: iSCSI commands and their phases")

-- An extractor for a field of Wireshark. It finds nothing if this version lacks the field or no field of the plugin is
-- requested.
local function wireshark_field(name)
    local is_known, extractor = false, nil
    if not command_line.is_unused then
        is_known, extractor = pcall(Field.new, name)
    end
    return is_known and extractor or function() end
end

local own = {
    cycle = ProtoField.uint32("iscsitrace.cycle", "Cycle", base.DEC, nil, nil,
        "Number of the SCSI command in the capture, counted from 0 (cycles.cycle)"),
    phase = ProtoField.string("iscsitrace.phase", "Phase", base.ASCII,
        "Phase of the command that this PDU belongs to or ends; of the SCSI Command PDU: command"),
    operation = ProtoField.string("iscsitrace.operation", "Operation", base.ASCII,
        "SCSI operation without the length of the CDB: read, write, inquiry ... (cycles.operation)"),
    latency = ProtoField.relative_time("iscsitrace.latency", "Latency",
        "Command to status (cycles.latency_ns)"),
    first_data_time = ProtoField.relative_time("iscsitrace.first_data_time", "Time to first data",
        "Read: command to first data (cycles.request_ns). Write: command to first R2T (cycles.grant_ns)"),
    transfer_time = ProtoField.relative_time("iscsitrace.transfer_time", "Transfer",
        "Read: first to last data. Write: first R2T (without one: command) to last data (cycles.transfer_ns)"),
    status_time = ProtoField.relative_time("iscsitrace.status_time", "Status wait",
        "Last data to status; 0 if it came with the data (read: cycles.status_wait_ns, write: cycles.service_ns)"),
    idle_time = ProtoField.relative_time("iscsitrace.idle_time", "Idle before",
        "No commands of the session in flight: previous status to this command (previous cycle's turnaround_ns)"),
    block_size = ProtoField.uint32("iscsitrace.block_size", "I/O size", base.DEC, nil, nil,
        "Expected Data Transfer Length of the command in bytes (cycles.bytes)"),
    queue_depth = ProtoField.uint32("iscsitrace.queue_depth", "Queue depth", base.DEC, nil, nil,
        "Commands of the session in flight when this one was issued, including this one (cycles.queue_depth)"),
    owin = ProtoField.uint32("iscsitrace.owin", "owin at command", base.DEC, nil, nil,
        "Bytes in flight (sent, not acknowledged) from the sender of the command's data when the command was sent"),
    command_frame = ProtoField.framenum("iscsitrace.command_frame", "Command in", base.NONE, frametype.REQUEST, 0,
        "Frame with the first byte of the SCSI Command PDU"),
    first_data_frame = ProtoField.framenum("iscsitrace.first_data_frame", "First data in", base.NONE, frametype.NONE, 0,
        "Frame with the first byte of the first data PDU"),
    status_frame = ProtoField.framenum("iscsitrace.status_frame", "Status in", base.NONE, frametype.RESPONSE, 0,
        "Frame that completes the status. Earlier frames show it only after the whole capture was read"),
    budget_owner = ProtoField.string("iscsitrace.budget_owner", "Time attributed to", base.ASCII,
        "Part of the time breakdown with most of the time since the connection's previous packet (from the sidecar)"),
    cwnd_estimate = ProtoField.uint32("iscsitrace.cwnd_estimate", "cwnd, estimated", base.DEC, nil, nil,
        "Estimated congestion window of the sender in bytes, where its sending shows it (from the sidecar)"),
    loss_class = ProtoField.string("iscsitrace.loss_class", "Loss class", base.ASCII,
        "Cause of this retransmission: fast, timeout, tail_probe or unknown (from the sidecar)"),
    violation = ProtoField.string("iscsitrace.violation", "Violation of RFC 7143", base.ASCII,
        "The rules that this frame shows to be broken, each with its name (from the sidecar)"),
}
protocol.fields = own

local notes = {
    sidecar = ProtoExpert.new("iscsitrace.sidecar_refused", "The sidecar is not used",
        expert.group.COMMENTS_GROUP, expert.severity.WARN),
    numbers = ProtoExpert.new("iscsitrace.numbers_unknown", "Cycle numbers are left out: commands are missing",
        expert.group.SEQUENCE, expert.severity.NOTE),
}
protocol.experts = notes

protocol.prefs.program = Pref.string("iscsitrace program", "iscsitrace",
    "Program that the menu entries run: a name on the PATH, or a path")
protocol.prefs.sidecar = Pref.string("Sidecar file", "",
    "Facts per frame from `iscsitrace export --sidecar`. Empty: CAPTURE.iscsitrace beside the capture, if it exists")
protocol.prefs.capture = Pref.string("Capture file", "",
    "Path of the open capture, for the menu entries and the sidecar. Empty: detected automatically (Linux only)")

return {
    protocol = protocol,
    own = own,
    notes = notes,
    -- every extractor costs time on every packet: add one only if no other field shows the same
    tcp_stream = wireshark_field("tcp.stream"),
    tcp_length = wireshark_field("tcp.len"),
    tcp_sequence = wireshark_field("tcp.seq"),
    tcp_acknowledgment = wireshark_field("tcp.ack"),
    tcp_segment = wireshark_field("tcp.segment"),
    tcp_fin = wireshark_field("tcp.connection.fin"),
    tcp_rst = wireshark_field("tcp.connection.rst"),
    iscsi_pdu = wireshark_field("iscsi"),
    iscsi_header_digest = wireshark_field("iscsi.headerdigest32"),
    iscsi_data_digest = wireshark_field("iscsi.datadigest32"),
}
end)()

------------------------------------------------------------------------------------------------------------- operations

local operations = (function()
-- The SCSI operations by operation code, device type and service action.
--
-- Generated from core/wire/src/cdb/commands.rs by `python -m tools.plugin`: do not edit. Never decides which of them a
-- CDB is: `cdb` does.
--
-- Provides `by_code` (the most common device type), `by_device_type` (where another device type, 1 tape, 5 CD drive or
-- 8 changer, gives the code another meaning), `by_service_action`, `moves_blocks` (the operations that transfer
-- blocks) and `is_io` (those that read, write or erase data).

local by_code = {
    [0x00] = "test_unit_ready",
    [0x01] = "rewind",
    [0x03] = "request_sense",
    [0x04] = "format_unit",
    [0x05] = "read_block_limits",
    [0x07] = "reassign_blocks",
    [0x08] = "read",
    [0x0a] = "write",
    [0x0b] = "seek",
    [0x0f] = "read_reverse",
    [0x10] = "write_filemarks",
    [0x11] = "space",
    [0x12] = "inquiry",
    [0x13] = "verify",
    [0x14] = "recover_buffered_data",
    [0x15] = "mode_select",
    [0x16] = "reserve",
    [0x17] = "release",
    [0x19] = "erase",
    [0x1a] = "mode_sense",
    [0x1b] = "start_stop_unit",
    [0x1c] = "receive_diagnostic_results",
    [0x1d] = "send_diagnostic",
    [0x1e] = "prevent_allow_medium_removal",
    [0x23] = "read_format_capacities",
    [0x25] = "read_capacity",
    [0x28] = "read",
    [0x2a] = "write",
    [0x2b] = "seek",
    [0x2e] = "write_verify",
    [0x2f] = "verify",
    [0x34] = "pre_fetch",
    [0x35] = "synchronize_cache",
    [0x37] = "read_defect_data",
    [0x3b] = "write_buffer",
    [0x3c] = "read_buffer",
    [0x3e] = "read_long",
    [0x3f] = "write_long",
    [0x41] = "write_same",
    [0x42] = "unmap",
    [0x43] = "read_toc",
    [0x44] = "report_density_support",
    [0x45] = "play_audio",
    [0x46] = "get_configuration",
    [0x47] = "play_audio",
    [0x48] = "sanitize",
    [0x4a] = "get_event_status",
    [0x4b] = "pause_resume",
    [0x4c] = "log_select",
    [0x4d] = "log_sense",
    [0x4e] = "stop_play_scan",
    [0x51] = "read_disc_information",
    [0x52] = "read_track_information",
    [0x53] = "xdwriteread",
    [0x55] = "mode_select",
    [0x56] = "reserve",
    [0x57] = "release",
    [0x5a] = "mode_sense",
    [0x5b] = "close_track_session",
    [0x5c] = "read_buffer_capacity",
    [0x5e] = "persistent_reserve_in",
    [0x5f] = "persistent_reserve_out",
    [0x7f] = "other",
    [0x80] = "write_filemarks",
    [0x81] = "read_reverse",
    [0x83] = "extended_copy",
    [0x84] = "receive_copy_results",
    [0x85] = "ata_pass_through",
    [0x88] = "read",
    [0x89] = "compare_and_write",
    [0x8a] = "write",
    [0x8b] = "orwrite",
    [0x8c] = "read_attribute",
    [0x8d] = "write_attribute",
    [0x8e] = "write_verify",
    [0x8f] = "verify",
    [0x90] = "pre_fetch",
    [0x91] = "synchronize_cache",
    [0x92] = "locate",
    [0x93] = "write_same",
    [0x94] = "zbc_out",
    [0x95] = "zbc_in",
    [0x9c] = "write_atomic",
    [0x9d] = "other",
    [0x9e] = "service_action_in",
    [0x9f] = "service_action_out",
    [0xa0] = "report_luns",
    [0xa1] = "ata_pass_through",
    [0xa2] = "security_protocol_in",
    [0xa3] = "maintenance_in",
    [0xa4] = "maintenance_out",
    [0xa5] = "move_medium",
    [0xa6] = "exchange_medium",
    [0xa7] = "set_read_ahead",
    [0xa8] = "read",
    [0xa9] = "other",
    [0xaa] = "write",
    [0xab] = "other",
    [0xac] = "get_performance",
    [0xad] = "read_disc_structure",
    [0xae] = "write_verify",
    [0xaf] = "verify",
    [0xb5] = "security_protocol_out",
    [0xb6] = "send_volume_tag",
    [0xb7] = "read_defect_data",
    [0xb8] = "read_element_status",
    [0xb9] = "read_cd",
    [0xbb] = "set_cd_speed",
    [0xbd] = "mechanism_status",
    [0xbe] = "read_cd",
    [0xbf] = "send_disc_structure",
}

local by_device_type = {
    [0x07] = { [8] = "initialize_element_status" },
    [0x1b] = { [1] = "load_unload", [8] = "open_close_import_export_element" },
    [0x2b] = { [1] = "locate", [8] = "position_to_element" },
    [0x34] = { [1] = "read_position" },
    [0x37] = { [8] = "initialize_element_status" },
    [0x42] = { [5] = "read_sub_channel" },
    [0x53] = { [5] = "reserve_track" },
    [0x91] = { [1] = "space" },
    [0x93] = { [1] = "erase" },
    [0xa1] = { [5] = "blank" },
    [0xa3] = { [5] = "send_key" },
    [0xa4] = { [5] = "report_key" },
    [0xa5] = { [5] = "play_audio" },
    [0xa6] = { [5] = "load_unload" },
    [0xb5] = { [8] = "request_volume_element_address" },
    [0xb6] = { [5] = "set_streaming" },
}

local by_service_action = {
    [0x7f] = { [0x09] = "read", [0x0a] = "verify", [0x0b] = "write", [0x0c] = "write_verify", [0x0d] = "write_same" },
    [0x83] = { [0x10] = "populate_token", [0x11] = "write_using_token" },
    [0x84] = { [0x07] = "receive_rod_token_information" },
    [0x9e] = { [0x10] = "read_capacity", [0x11] = "read_long", [0x12] = "get_lba_status", [0x13] = "report_referrals" },
    [0x9f] = { [0x11] = "write_long" },
    [0xa3] = {
        [0x0a] = "report_target_port_groups",
        [0x0c] = "report_supported_opcodes",
        [0x0d] = "report_supported_task_management_functions",
        [0x0f] = "report_timestamp",
    },
    [0xa4] = { [0x0a] = "set_target_port_groups", [0x0f] = "set_timestamp" },
}

local moves_blocks = { read = true, write = true }

local is_io = {
    blank = true,
    compare_and_write = true,
    erase = true,
    extended_copy = true,
    format_unit = true,
    orwrite = true,
    populate_token = true,
    pre_fetch = true,
    read = true,
    read_cd = true,
    read_long = true,
    read_reverse = true,
    recover_buffered_data = true,
    sanitize = true,
    unmap = true,
    verify = true,
    write = true,
    write_atomic = true,
    write_long = true,
    write_same = true,
    write_using_token = true,
    write_verify = true,
    xdwriteread = true,
}

return {
    by_code = by_code, by_device_type = by_device_type, by_service_action = by_service_action,
    moves_blocks = moves_blocks, is_io = is_io,
}
end)()

-------------------------------------------------------------------------------------------------------------------- cdb

local cdb = (function()
-- The command descriptor block in a SCSI Command PDU.
--
-- Never keeps a table of operations: the generated part `operations` has it. Names an operation as the reader does
-- (core/wire/src/cdb/commands.rs).
--
-- Provides `operation_of(header, device_type)` and `is_standard_inquiry(header)`, and by operation `moves_blocks` and
-- `is_io`.

local byte = string.byte
local by_code, by_device_type, by_service_action =
    operations.by_code, operations.by_device_type, operations.by_service_action

local INQUIRY, VARIABLE_LENGTH_CDB = 0x12, 0x7f

-- The operation of the CDB in a header of 48 bytes. `device_type` is the volume's, from INQUIRY data, or nil.
local function operation_of(header, device_type)
    local code, second = byte(header, 33, 34)
    local of_device = by_device_type[code]
    local name = of_device and of_device[device_type]
    if name then
        return name
    end
    local of_action = by_service_action[code]
    if of_action then
        local action = second % 32
        if code == VARIABLE_LENGTH_CDB then
            local high, low = byte(header, 41, 42)
            action = high * 256 + low
        end
        name = of_action[action]
    end
    return name or by_code[code] or "other"
end

-- Whether the CDB asks for standard INQUIRY data: EVPD is clear (SPC-4, section 6.6).
local function is_standard_inquiry(header)
    local code, second = byte(header, 33, 34)
    return code == INQUIRY and second % 2 == 0
end

return {
    operation_of = operation_of, is_standard_inquiry = is_standard_inquiry, moves_blocks = operations.moves_blocks,
    is_io = operations.is_io,
}
end)()

----------------------------------------------------------------------------------------------------------------- serial

local serial = (function()
-- Arithmetic of 32-bit sequence numbers (RFC 1982): TCP's, CmdSN, StatSN, DataSN.
--
-- Never knows which numbers they are. Provides `MODULUS` and `ahead(number, of)`.

local MODULUS = 4294967296

-- The distance from one sequence number to another: positive if `number` is after `of`, negative if before.
local function ahead(number, of)
    local distance = (number - of) % MODULUS
    return distance < MODULUS / 2 and distance or distance - MODULUS
end

return { MODULUS = MODULUS, ahead = ahead }
end)()

------------------------------------------------------------------------------------------------------------------ state

local state = (function()
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
end)()

--------------------------------------------------------------------------------------------------------------- sessions

local sessions = (function()
-- iSCSI sessions: their sequence numbers, and which of their commands are in flight.
--
-- Never reads a header: later parts pass the numbers in. The queue depth of a command is the number of commands in
-- flight when it was issued, including itself. Wireshark may show commands out of order (retransmissions, several
-- connections): a late command is then counted in, and a depth that cannot be known is marked as unknown.
--
-- Provides `new_session`, `session_of`, `take_command_number`, `take_status_number`, `enter` and `leave`.

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
end)()

-------------------------------------------------------------------------------------------------------------------- pdu

local pdu = (function()
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
end)()

--------------------------------------------------------------------------------------------------------------- commands

local commands = (function()
-- SCSI commands: their life from the SCSI Command PDU to the status, and their phases.
--
-- Never reads a buffer: it takes the headers from `pdu`. A phase is left out if a PDU that bounds it is missing; no
-- phase is guessed. Definitions: docs/method.md, section 3.
--
-- Provides `open_command`, `advance`, `note_data`, `note_status` and `difference`.

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
end)()

------------------------------------------------------------------------------------------------------------------- pdus

local pdus = (function()
-- What each type of PDU means: it opens, continues or closes a command, or opens a session.
--
-- Never looks for PDUs or for frames: `packets` hands over one PDU after another, in `pdu`.
--
-- Provides `take` and `SCSI_COMMAND` (an opcode).

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
end)()

------------------------------------------------------------------------------------------------------------------ place

local place = (function()
-- The place of a PDU: in the frame or in a reassembled buffer, which frames brought its bytes, and whether it was shown
-- before.
--
-- Never looks for a PDU: Wireshark found it. Never reads its header. A frame that cannot be known is nil.
--
-- Provides `payload_of`, `is_in_frame`, `place_in_buffer` and `is_repeated`. `half` is the state of one direction of a
-- connection; `packets` keeps it.

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
end)()

------------------------------------------------------------------------------------------------------------ connections

local connections = (function()
-- TCP connections: which frames belong to one, its bytes in flight, and its missing or repeated bytes.
--
-- Never reads a PDU. Uses Wireshark's relative sequence numbers; a hole is a range of bytes that a later frame skipped.
--
-- Provides `connection_of`, `note_acknowledgment`, `bytes_in_flight`, `data_in_flight`, `note_disorder`,
-- `note_out_of_order` and `may_lack_status`.

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
end)()

---------------------------------------------------------------------------------------------------------------- packets

local packets = (function()
-- The packets of the capture, one after another: the PDUs that Wireshark shows in each, and the ones that begin in it.
--
-- Never looks for PDUs in the bytes, with one exception: a SCSI Command PDU that begins at the end of a frame, which
-- Wireshark shows only when it is complete (`peek`). Never reads a frame twice.
--
-- Provides `note`.

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
end)()

----------------------------------------------------------------------------------------------------------- capture_file

local capture_file = (function()
-- The path of the open capture, which Wireshark's Lua does not provide.
--
-- Never reads the capture beyond its first four bytes. Without the preference it works on Linux only.
--
-- Provides `path()`.

-- first bytes of pcap (in either byte order, with microseconds or nanoseconds), pcapng, Zstandard and LZ4 files
local MAGIC = {
    ["\161\178\195\212"] = true, ["\212\195\178\161"] = true, ["\161\178\060\077"] = true, ["\077\060\178\161"] = true,
    ["\010\013\013\010"] = true, ["\040\181\047\253"] = true, ["\004\034\077\024"] = true,
}

-- Whether a file begins like a capture, or like a compressed one (gzip included).
local function is_capture(path)
    local file = io.open(path, "rb")
    local magic = file and file:read(4)
    if file then
        file:close()
    end
    return magic and (MAGIC[magic] or magic:sub(1, 2) == "\031\139") and true or false
end

-- The capture that the command line names (Linux).
local function capture_of_command_line()
    local words = command_line.words()
    for index = 2, #words do
        local word = words[index]
        local attached = word:match("^%-[2lnpqQVxP]*r(.*)$") or word:match("^%-%-read%-file=?(.*)$")
        local named = attached and (attached ~= "" and attached or words[index + 1])
        if named and is_capture(named) then
            return named
        end
    end
    local last = words[#words]
    return gui_enabled() and last and is_capture(last) and last or nil
end

-- The capture among the files that Wireshark has open (Linux).
local function capture_of_open_files()
    local found = nil
    local pipe = io.popen('for file in /proc/$PPID/fd/*; do readlink "$file"; done 2>/dev/null', "r")
    if pipe then
        for file in pipe:lines() do
            if file:sub(1, 1) == "/" and file:sub(1, 5) ~= "/dev/" and is_capture(file) then
                found = file
            end
        end
        pipe:close()
    end
    return found
end

-- The path of the open capture; nil if it is not known.
local function path()
    if fields.protocol.prefs.capture ~= "" then
        return fields.protocol.prefs.capture
    end
    return gui_enabled() and capture_of_open_files() or capture_of_command_line()
end

return { path = path }
end)()

---------------------------------------------------------------------------------------------------------------- sidecar

local sidecar = (function()
-- The sidecar: facts per frame that need the whole capture, from `iscsitrace export --sidecar`.
--
-- Never uses part of a sidecar: one with an error, or of another capture, is refused with one line on standard error
-- and an expert note on the first frame.
--
-- Provides `load(pinfo)`, which fills in `state.sidecar`.

local format = string.format

local SIDECAR_COLUMNS = "frame\tbudget_owner\tcwnd_estimate_bytes\tloss_class\tviolation"

-- The sidecar's rows by frame; or nil and the reason why the file is refused.
local function read_sidecar(file, capture, first_time, first_length)
    local name, version, frames, time, length, size = (file:read("*l") or ""):match(
        "^(iscsitrace%-sidecar)\t(%d+)\tframes=(%d+)\tfirst_frame_time=(%d+)\tfirst_frame_length=(%d+)\tsize=(%d+)\r?$")
    if not name then
        return nil, "it is not a sidecar"
    end
    if version ~= "1" then
        return nil, "its format is " .. version .. ", this plugin reads format 1"
    end
    if math.abs(tonumber(time) / 1000000000 - first_time) > 0.000001 or tonumber(length) ~= first_length then
        return nil, "it was made from another capture: the first frame differs"
    end
    local opened = capture and io.open(capture, "rb")
    if opened then
        local bytes = opened:seek("end")
        opened:close()
        if bytes and bytes ~= tonumber(size) then
            return nil, format("it was made from a capture of %s bytes, this one has %d", size, bytes)
        end
    end
    if (file:read("*l") or ""):gsub("\r$", "") ~= SIDECAR_COLUMNS then
        return nil, "its columns are not those of format 1"
    end
    local rows, before, line_number = {}, 0, 2
    for line in file:lines() do
        line_number = line_number + 1
        local frame, owner, window, loss, violation =
            line:match("^(%d+)\t([^\t]*)\t(%d*)\t([^\t]*)\t([^\t\r]*)\r?$")
        frame = tonumber(frame)
        if not frame or frame <= before or frame > tonumber(frames) then
            return nil, format("line %d is not a valid row", line_number)
        end
        before = frame
        -- a text with a comma is in quotes
        violation = violation:gsub('^"(.*)"$', "%1"):gsub('""', '"')
        rows[frame] = owner .. "\t" .. window .. "\t" .. loss .. "\t" .. violation
    end
    return rows, nil
end

-- Loads the sidecar at the first frame, whose time and length it must match.
local function load(pinfo)
    local given = fields.protocol.prefs.sidecar
    local capture = capture_file.path()
    local path = given ~= "" and given or capture and capture .. ".iscsitrace"
    local file, reason = nil, nil
    if path then
        file, reason = io.open(path, "r")
    end
    if not file then
        reason = given ~= "" and reason or nil
    else
        local rows
        rows, reason = read_sidecar(file, capture, pinfo.abs_ts, pinfo.len)
        file:close()
        state.sidecar.rows = rows or {}
    end
    if reason then
        state.sidecar.refusal = format("sidecar %s is not used: %s", path, reason)
        io.stderr:write("iscsitrace: ", state.sidecar.refusal, "\n")
    end
end

return { load = load }
end)()

------------------------------------------------------------------------------------------------------------------- show

local show = (function()
-- What the plugin adds to the packet details, and the post-dissector that Wireshark calls for every packet.
--
-- Never computes a value: `packets` reads each frame once, in order, and this part looks the results up. So one pass
-- and two passes show the same, except for a status that a single pass has not reached yet.
--
-- Provides `selected()`, the packet for the menu entries.

local floor, format = math.floor, string.format
local own, requested = fields.own, command_line.requested

-- A time in ns as a value for Wireshark's relative times.
local function relative_time(time_ns)
    local is_negative = time_ns < 0
    local amount = is_negative and -time_ns or time_ns
    local seconds = floor(amount / 1000000000)
    local rest = amount - seconds * 1000000000
    if is_negative then
        return NSTime(-seconds, -rest)
    end
    return NSTime(seconds, rest)
end

-- Fields to add, by name: all, or only those that tshark's command line requests.
local wanted = {}
for name in pairs(own) do
    wanted[name] = not requested or requested:find("iscsitrace." .. name, 1, true) ~= nil
end

local function add(tree, name, value)
    if wanted[name] then
        tree:add(own[name], value):set_generated()
    end
end

local NUMBERS = { "queue_depth", "owin" }
local TIMES = { "idle_time", "first_data_time", "transfer_time", "status_time" }

-- Adds the item of one PDU; all that is known of its command goes below it.
local function add_cycle(root, cycle, is_number_known)
    local item
    if is_number_known then
        item = root:add(own.cycle, cycle)
    else
        item = root:add("Cycle (number unknown)")
    end
    item:set_generated()
    return item
end

-- Adds what is known of a completed command.
local function show_command(item, index)
    local column = state.column
    local operation, block_size = column.operation[index], column.block_size[index]
    add(item, "operation", operation)
    add(item, "block_size", block_size)
    for _, name in ipairs(NUMBERS) do
        local value = column[name][index]
        if value then
            add(item, name, value)
        end
    end
    for _, name in ipairs(TIMES) do
        local time_ns = wanted[name] and column[name][index]
        if time_ns then
            add(item, name, relative_time(time_ns))
        end
    end
    local latency_ns = wanted.latency and commands.difference(column.status_ns[index], column.first_ns[index])
    if latency_ns then
        add(item, "latency", relative_time(latency_ns))
        if not requested then
            item:append_text(format(": %s of %d bytes, %.3f ms", operation, block_size, latency_ns / 1000000))
        end
    end
    local data_frame = column.first_data_frame[index]
    if data_frame then
        add(item, "first_data_frame", data_frame)
    end
end

-- Shows one PDU of a command. The one that completes the status shows the whole command.
local function show_fact(root, fact)
    local cycle, phase, is_status, is_number_known = state.unpack_fact(fact)
    local index, column = cycle + 1, state.column
    local item = root
    if wanted.cycle then
        item = add_cycle(root, cycle, is_number_known)
    end
    add(item, "phase", state.PHASES[phase])
    if phase ~= state.COMMAND then
        add(item, "command_frame", column.command_frame[index])
    end
    if is_status then
        show_command(item, index)
    end
    local status_frame = column.status_frame[index]
    if status_frame then
        add(item, "status_frame", status_frame)
    end
end

-- Shows a row of the sidecar.
local function show_row(root, row)
    local owner, window, loss, violation = row:match("^([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$")
    if owner ~= "" then
        add(root, "budget_owner", owner)
    end
    if window ~= "" and tonumber(window) < serial.MODULUS then
        add(root, "cwnd_estimate", tonumber(window))
    end
    if loss ~= "" then
        add(root, "loss_class", loss)
    end
    if violation ~= "" then
        add(root, "violation", violation)
    end
end

-- The packet whose details were shown last: the menu entries use it.
local selected = nil

local function note_selected(pinfo, frame, known)
    local info = fields.tcp_stream()
    selected = {
        frame = frame, stream = info and info.value, source = tostring(pinfo.src), destination = tostring(pinfo.dst),
        source_port = pinfo.src_port, destination_port = pinfo.dst_port,
    }
    local fact = type(known) == "table" and known[1] or known
    if fact then
        local cycle, _, _, is_number_known = state.unpack_fact(fact)
        selected.cycle = is_number_known and cycle or nil
    end
end

local is_gui = gui_enabled()
local own_dissector

function fields.protocol.dissector(tvb, pinfo, tree)
    -- In tshark this is the same for all frames of a pass, but may be true in the second pass only. Wireshark's user
    -- may request fields at any time.
    local is_requested = tree:referenced(own_dissector)
    if not (is_requested or is_gui or state.has_listener) then
        return
    end
    local frame = pinfo.number
    if frame > state.last_noted then
        state.last_noted = frame
        if frame == 1 then
            sidecar.load(pinfo)
        end
        packets.note(tvb, pinfo, frame)
    elseif is_gui and tree.visible then
        note_selected(pinfo, frame, state.facts[frame])
    end
    local known, row, remark = state.facts[frame], state.sidecar.rows[frame], state.remarks[frame]
    local refusal = frame == 1 and state.sidecar.refusal
    if not (is_requested and (known or row or remark or refusal)) then
        return
    end
    local root = tree:add(fields.protocol)
    root:set_generated()
    if type(known) == "table" then
        for _, fact in ipairs(known) do
            show_fact(root, fact)
        end
    elseif known then
        show_fact(root, known)
    end
    if row then
        show_row(root, row)
    end
    if remark then
        root:add_proto_expert_info(fields.notes.numbers, remark)
    end
    if refusal then
        root:add_proto_expert_info(fields.notes.sidecar, refusal)
    end
end

if not command_line.is_unused then
    register_postdissector(fields.protocol)
    own_dissector = Dissector.get("iscsitrace")
end

return {
    selected = function()
        return selected
    end,
}
end)()

------------------------------------------------------------------------------------------------------------------ waits

local waits = (function()
-- How long each command waited: its latency, or, without a status, the least time for which it was in flight; and the
-- percentiles of these times. The rule is that of iscsitrace/measure/waits.py.
--
-- Never reads a packet. Provides `wait_of`, `latencies` and `percentile`.

-- How long a command without a status was in flight at least, and whether it never got one: it was aborted, or its
-- connection was closed, by the first FIN or RST. Nil if it has a status, or if that may be missing from the capture.
local function wait_of(cycle)
    local index, column = cycle + 1, state.column
    local connection, end_ns = state.connections[column.stream[index]], column.end_ns[index]
    if column.status_frame[index] or end_ns == false
        or connections.may_lack_status(connection, column.command_frame[index]) then
        return nil
    end
    local until_ns = math.min(end_ns or math.huge, connection.closed_ns or connection.last_ns)
    return math.max(until_ns - column.first_ns[index], 0), end_ns ~= nil or connection.closed_ns ~= nil
end

-- The latencies in order; above them the waits of the commands without a status, and how many these are. A command in
-- flight at the end counts only if it waited longer than any with a status took: others have just begun.
local function latencies(cycles)
    local values, lost, cut_off = {}, {}, {}
    for _, cycle in ipairs(cycles) do
        local status_ns = state.column.status_ns[cycle + 1]
        local wait_ns, is_lost = wait_of(cycle)
        if status_ns then
            values[#values + 1] = status_ns - state.column.first_ns[cycle + 1]
        elseif wait_ns then
            local kind = is_lost and lost or cut_off
            kind[#kind + 1] = wait_ns
        end
    end
    table.sort(values)
    local longest_ns = math.max(values[#values] or 0, 0)
    for _, wait_ns in ipairs(cut_off) do
        if wait_ns > longest_ns then
            lost[#lost + 1] = wait_ns
        end
    end
    table.sort(lost)
    for _, wait_ns in ipairs(lost) do
        -- what ranks higher took longer than all below it
        values[#values + 1] = math.max(wait_ns, values[#values] or 0)
    end
    return values, #lost
end

-- The percentile of sorted values by nearest rank; `share` is 0 to 1. Nil if there are fewer than `least` values: it
-- would be their maximum. Also whether it is among the last `open_count`.
local function percentile(values, share, least, open_count)
    if #values >= (least or 1) then
        local rank = math.max(math.ceil(#values * share), 1)
        return values[rank], rank > #values - (open_count or 0)
    end
end

return { wait_of = wait_of, latencies = latencies, percentile = percentile }
end)()

------------------------------------------------------------------------------------------------------------- statistics

local statistics = (function()
-- Statistics of the commands: latency, phases, idle time and throughput by session and operation, as text.
--
-- Never reads a packet: it takes the cycles from `state`. Leaves out commands whose status may be missing from the
-- capture.
--
-- Provides `open_statistics()` for Wireshark and `print_statistics(filter)` for tshark.

local format, unpack = string.format, table.unpack
local latencies, percentile, wait_of = waits.latencies, waits.percentile, waits.wait_of

-- Adds the cycles whose status a frame completes, and those whose command it has.
local function collect(cycles, begun, frame)
    local known = state.facts[frame]
    if not known then
        return
    end
    for _, fact in ipairs(type(known) == "table" and known or { known }) do
        local cycle, phase, is_status = state.unpack_fact(fact)
        if is_status then
            cycles[#cycles + 1] = cycle
        elseif phase == state.COMMAND then
            begun[#begun + 1] = cycle
        end
    end
end

-- The cycles of both lists: those with a status, and those of the commands without one.
local function with_unanswered(cycles, begun)
    local all = {}
    for index, cycle in ipairs(cycles) do
        all[index] = cycle
    end
    for _, cycle in ipairs(begun) do
        if wait_of(cycle) then
            all[#all + 1] = cycle
        end
    end
    return all
end

local function milliseconds(time_ns, is_bound)
    return time_ns and format("%s%.3f", is_bound and ">" or "", time_ns / 1000000) or "-"
end

-- A size in the largest unit that divides it.
local function size_text(bytes)
    for _, unit in ipairs({ { "G", 1073741824 }, { "M", 1048576 }, { "K", 1024 } }) do
        if bytes >= unit[2] and bytes % unit[2] == 0 then
            return format("%d%s", bytes / unit[2], unit[1])
        end
    end
    return format("%d", bytes)
end

-- The commands that read, write or erase data. An unknown operation that transfers data is one of them.
local function data_commands(cycles)
    local own = {}
    for _, cycle in ipairs(cycles) do
        local operation = state.column.operation[cycle + 1]
        if not operation or cdb.is_io[operation] or operation == "other" and state.column.block_size[cycle + 1] > 0 then
            own[#own + 1] = cycle
        end
    end
    return own
end

-- The time with at least one of the commands in flight, in ns.
local function active_time(cycles)
    local first_ns, status_ns = state.column.first_ns, state.column.status_ns
    local sorted = {}
    for index, cycle in ipairs(cycles) do
        sorted[index] = cycle
    end
    table.sort(sorted, function(one, other)
        return first_ns[one + 1] < first_ns[other + 1]
    end)
    local active_ns, until_ns = 0, -math.huge
    for _, cycle in ipairs(sorted) do
        local index = cycle + 1
        local begin_ns = math.max(first_ns[index], until_ns)
        local end_ns = status_ns[index] or first_ns[index] + (wait_of(cycle) or 0)
        if end_ns > begin_ns then
            active_ns = active_ns + end_ns - begin_ns
            until_ns = end_ns
        end
    end
    return active_ns
end

-- The known values of a column.
local function sorted_values(name, cycles)
    local values = {}
    for _, cycle in ipairs(cycles) do
        local value = state.column[name][cycle + 1]
        if value then
            values[#values + 1] = value
        end
    end
    table.sort(values)
    return values
end

-- The most frequent I/O sizes.
local function block_sizes(cycles)
    local counts, sizes = {}, {}
    for _, cycle in ipairs(cycles) do
        local bytes = state.column.block_size[cycle + 1]
        if not counts[bytes] then
            counts[bytes] = 0
            sizes[#sizes + 1] = bytes
        end
        counts[bytes] = counts[bytes] + 1
    end
    table.sort(sizes, function(one, other)
        return counts[one] > counts[other] or (counts[one] == counts[other] and one > other)
    end)
    local shown = {}
    for index = 1, math.min(#sizes, 4) do
        local bytes = sizes[index]
        shown[index] = #sizes == 1 and size_text(bytes) or format("%s x%d", size_text(bytes), counts[bytes])
    end
    return table.concat(shown, ", ") .. (#sizes > 4 and " ..." or "")
end

-- The idle share of commands at queue depth 1 in percent: idle before / (idle before + latency).
local function idle_share(cycles)
    local column = state.column
    local idle_ns, busy_ns = 0, 0
    for _, cycle in ipairs(cycles) do
        local index = cycle + 1
        if column.queue_depth[index] == 1 and column.idle_time[index] and column.status_ns[index] then
            idle_ns = idle_ns + column.idle_time[index]
            busy_ns = busy_ns + column.status_ns[index] - column.first_ns[index]
        end
    end
    return idle_ns + busy_ns > 0 and format("%.1f", 100 * idle_ns / (idle_ns + busy_ns)) or "-"
end

-- Bytes in a time in ns, in MB/s.
local function rate_text(bytes, active_ns)
    return active_ns > 0 and format("%.3f", bytes * 1000 / active_ns) or "-"
end

-- The tables of a session. They are narrow because Wireshark's text windows break long lines.
local TABLES = {
    {
        heading = { "latency ms", "count", "p50", "p95", "p99", "max", "QD" },
        row = "  %6s %10s %10s %10s %10s %4s",
        cells = function(cycles)
            local depth, latency, open_count = sorted_values("queue_depth", cycles), latencies(cycles)
            local function cell(share, least)
                return (milliseconds(percentile(latency, share, least, open_count)))
            end
            return #cycles, cell(0.5), cell(0.95, 20), cell(0.99, 100), cell(1), depth[#depth] or "-"
        end,
    },
    {
        heading = { "medians ms", "to data", "transfer", "status", "idle", "idle %", "MB/s" },
        row = "  %8s %8s %7s %8s %6s %8s",
        cells = function(cycles)
            local bytes = 0
            for _, cycle in ipairs(cycles) do
                bytes = bytes + (state.column.data_bytes[cycle + 1] or 0)
            end
            local function median(name)
                return milliseconds(percentile(sorted_values(name, cycles), 0.5))
            end
            return median("first_data_time"), median("transfer_time"), median("status_time"), median("idle_time"),
                idle_share(cycles), rate_text(bytes, active_time(cycles))
        end,
    },
    {
        heading = { "I/O sizes", "" },
        row = "  %s",
        cells = block_sizes,
    },
}

local NAME_WIDTH = 18

-- Adds the tables of a session, one line for each operation. A long name takes a separate line.
local function add_tables(lines, by_operation, names)
    for _, shape in ipairs(TABLES) do
        local row = format("%%-%ds", NAME_WIDTH) .. shape.row
        lines[#lines + 1] = ""
        lines[#lines + 1] = (format(row, unpack(shape.heading)):gsub(" +$", ""))
        for _, operation in ipairs(names) do
            local name = operation
            if #name > NAME_WIDTH then
                lines[#lines + 1], name = name, ""
            end
            lines[#lines + 1] = format(row, name, shape.cells(by_operation[operation]))
        end
    end
end

-- The members of a list grouped by a key, and the keys in the order in which they first occur.
local function grouped(members, key_of)
    local groups, keys = {}, {}
    for _, member in ipairs(members) do
        local key = key_of(member)
        if not groups[key] then
            groups[key] = {}
            keys[#keys + 1] = key
        end
        table.insert(groups[key], member)
    end
    return groups, keys
end

-- The whole text, for the cycles of the frames that pass the filter.
local function statistics_text(cycles, filter)
    local column = state.column
    local lines = {
        "iSCSI commands by session and operation, " .. (filter and "packets with " .. filter or "all packets"),
        "QD: largest queue depth. idle: time without commands in flight, before",
        "the command. idle %: its share, for commands at queue depth 1. MB/s:",
        "payload over the time with commands in flight. > is how long a command",
        "without a status waited: it ranks above all with one.",
    }
    local by_session, numbers = grouped(cycles, function(cycle)
        return column.session[cycle + 1]
    end)
    table.sort(numbers)
    for _, number in ipairs(numbers) do
        local members = by_session[number]
        local by_stream, streams = grouped(members, function(cycle)
            return column.stream[cycle + 1]
        end)
        table.sort(streams)
        lines[#lines + 1] = format("\nsession %d: %s", number, state.sessions[number + 1].name)
        local shares = {}
        for _, stream in ipairs(streams) do
            shares[#shares + 1] = format("tcp.stream %d: %d commands", stream, #by_stream[stream])
        end
        lines[#lines + 1] = table.concat(shares, ", ")
        local by_operation, names = grouped(members, function(cycle)
            return column.operation[cycle + 1]
        end)
        table.sort(names, function(one, other)
            local more, less = #by_operation[one], #by_operation[other]
            return more > less or (more == less and one < other)
        end)
        add_tables(lines, by_operation, names)
        local read_bytes, written_bytes = 0, 0
        local own = data_commands(members)
        for _, cycle in ipairs(own) do
            local bytes = column.data_bytes[cycle + 1] or 0
            if column.is_write[cycle + 1] then
                written_bytes = written_bytes + bytes
            else
                read_bytes = read_bytes + bytes
            end
        end
        local active_ns = active_time(own)
        lines[#lines + 1] = format("\nall: %d commands, active %.6f s, read %s MB/s, written %s MB/s",
            #members, active_ns / 1000000000, rate_text(read_bytes, active_ns), rate_text(written_bytes, active_ns))
    end
    if #numbers == 0 then
        lines[#lines + 1] = "\nno commands"
    end
    return table.concat(lines, "\n") .. "\n"
end

-- Taps the frames that pass the filter. Calls `draw` with the text whenever Wireshark asks for it.
local function listen(filter, draw)
    state.has_listener = true
    local cycles, begun = {}, {}
    local tap = Listener.new("frame", filter)
    function tap.packet(pinfo)
        collect(cycles, begun, pinfo.number)
    end
    function tap.reset()
        cycles, begun = {}, {}
    end
    function tap.draw()
        draw(statistics_text(with_unanswered(cycles, begun), filter))
    end
    return tap
end

-- Prints the statistics when tshark ends.
local function print_statistics(filter)
    listen(filter, function(text)
        io.stdout:write("\n", text)
    end)
end

-- Opens the statistics window.
local function open_statistics()
    local window = TextWindow.new("iSCSI commands")
    local tap
    local function apply(filter)
        if tap then
            tap:remove()
        end
        tap = listen(filter, function(text)
            window:set(text)
        end)
        retap_packets()
    end
    window:set_atclose(function()
        tap:remove()
    end)
    if get_filter then
        window:add_button("Displayed packets only", function()
            local filter = get_filter()
            apply(filter ~= "" and filter or nil)
        end)
        window:add_button("All packets", function()
            apply(nil)
        end)
    end
    apply(nil)
end

return { open_statistics = open_statistics, print_statistics = print_statistics }
end)()

------------------------------------------------------------------------------------------------------------------- menu

local menu = (function()
-- The menu entries, which run iscsitrace on the open capture or on the selected packet's conversation or command.
--
-- Never analyses anything: the program iscsitrace does. Never registers the entries: `register` does.
--
-- Provides `entries`, a list of titles and actions.

local format, unpack = string.format, table.unpack

local IS_WINDOWS = package.config:sub(1, 1) == "\\"

-- A word for the shell.
local function quoted(text)
    if IS_WINDOWS then
        return '"' .. text:gsub('["%%]', "") .. '"'
    end
    return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- Calls `action` with the path of the open capture. Opens a dialog if the path is not known.
local function with_capture(action)
    local path = capture_file.path()
    if path then
        action(path)
    else
        new_dialog("Path of the open capture", function(answer)
            if answer and answer ~= "" then
                action(answer)
            end
        end, "Capture file")
    end
end

-- Runs iscsitrace. Returns the command line, its output and whether it succeeded. Wireshark waits until it ends.
local function run(path, arguments)
    local words = { quoted(fields.protocol.prefs.program) }
    for _, argument in ipairs(arguments) do
        words[#words + 1] = quoted(argument)
    end
    words[#words + 1] = quoted(path)
    local command = table.concat(words, " ")
    local pipe = io.popen(IS_WINDOWS and '"' .. command .. ' 2>&1"' or command .. " 2>&1", "r")
    if not pipe then
        return command, "could not be started\n", false
    end
    local output = pipe:read("*a") or ""
    return command, output, pipe:close() and true or false
end

-- Shows a command line and its output in a window.
local function show_text(title, command, output)
    local window = TextWindow.new(title)
    window:set("$ " .. command .. "\n\n" .. output)
end

-- An entry that shows the output of a command in a window.
local function text_entry(title, arguments_of)
    return function()
        local arguments = arguments_of()
        if arguments then
            with_capture(function(path)
                local command, output = run(path, arguments)
                show_text(title, command, output)
            end)
        end
    end
end

-- An entry that opens the file that a command writes, in the browser.
local function file_entry(title, suffix, arguments_of)
    return function()
        local arguments = arguments_of()
        if arguments then
            with_capture(function(path)
                local name = os.tmpname()
                os.remove(name)
                local file = name .. suffix
                arguments[#arguments + 1] = "-o"
                arguments[#arguments + 1] = file
                local command, output, is_done = run(path, arguments)
                if is_done then
                    browser_open_url("file://" .. file)
                else
                    show_text(title, command, output)
                end
            end)
        end
    end
end

-- The selected packet; nil, with a message, if none with TCP is selected.
local function require_selected()
    local selected = show.selected()
    if not (selected and selected.stream) then
        report_failure("iscsitrace: select a TCP packet first.")
        return nil
    end
    return selected
end

-- The conversation of the selected packet as a capture filter, with and without a VLAN tag.
local function conversation_filter(packet)
    local conversation = format("tcp and host %s and host %s and port %d and port %d",
        packet.source, packet.destination, packet.source_port, packet.destination_port)
    return format("(%s) or (vlan and %s)", conversation, conversation)
end

-- Arguments for the whole capture.
local function on_whole(...)
    local words = { ... }
    return function()
        return { unpack(words) }
    end
end

-- Arguments for the conversation of the selected packet.
local function on_conversation(...)
    local words = { ... }
    return function()
        local packet = require_selected()
        if not packet then
            return nil
        end
        local arguments = { unpack(words) }
        arguments[#arguments + 1] = "-f"
        arguments[#arguments + 1] = conversation_filter(packet)
        return arguments
    end
end

-- Arguments to inspect the selected command, or the selected frame if it has none.
local function inspected()
    local packet = require_selected()
    if not packet then
        return nil
    elseif packet.cycle then
        return { "inspect", "--cycle", format("%d", packet.cycle) }
    end
    return { "inspect", "--frame", format("%d", packet.frame) }
end

-- Arguments to plot the selected command, or the whole connection if the frame has none.
local function plotted()
    local packet = require_selected()
    if not packet then
        return nil
    elseif packet.cycle then
        return { "plot", "sequence", "--cycle", format("%d", packet.cycle) }
    end
    return { "plot", "sequence", "--connection", format("%d", packet.stream) }
end

-- Applies a display filter for the selected command.
local function filter_command()
    local packet = require_selected()
    if packet and packet.cycle then
        set_filter(format("iscsitrace.cycle == %d", packet.cycle))
        apply_filter()
    elseif packet then
        report_failure("iscsitrace: the selected packet completes no PDU of a command with a cycle number.")
    end
end

-- titles and actions
local entries = {
    { "Diagnose the capture", text_entry("iscsitrace diagnose", on_whole("diagnose")) },
    {
        "Slowest commands of the capture",
        text_entry("iscsitrace cycles", on_whole("cycles", "--top", "50", "--filter")),
    },
    { "Report of the capture", file_entry("iscsitrace report", ".html", on_whole("report")) },
    { "Diagnose the selected conversation", text_entry("iscsitrace diagnose", on_conversation("diagnose")) },
    { "Report of the selected conversation", file_entry("iscsitrace report", ".html", on_conversation("report")) },
    { "Inspect the selected command", text_entry("iscsitrace inspect", inspected) },
    { "Plot the selected command", file_entry("iscsitrace plot", ".png", plotted) },
    { "Filter the selected command", filter_command },
}

return { entries = entries }
end)()

--------------------------------------------------------------------------------------------------------------- register

-- What Wireshark or tshark calls: the menu entries, the statistics, and the arguments of the script. The last part.
--
-- Never does anything else. The post-dissector registers itself, in `show`.

if gui_enabled() then
    register_menu("iSCSI commands", statistics.open_statistics, MENU_STAT_UNSORTED)
    for _, entry in ipairs(menu.entries) do
        register_menu("iscsitrace/" .. entry[1], entry[2], MENU_TOOLS_UNSORTED)
        if register_packet_menu then
            register_packet_menu("iscsitrace/" .. entry[1], entry[2], "tcp.stream")
        end
    end
else
    -- tshark -q -z iscsitrace,cycles[,FILTER], or -X lua_script1:cycles if -X lua_script: named the file
    if register_stat_cmd_arg then
        register_stat_cmd_arg("iscsitrace,cycles", function(option)
            statistics.print_statistics(option and option:match("^iscsitrace,cycles,(.+)$"))
        end)
    end
    if ({ ... })[1] == "cycles" then
        statistics.print_statistics(nil)
    end
end
