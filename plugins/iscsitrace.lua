-- Cycles of iSCSI in Wireshark: `iscsitrace.*` fields on Wireshark's own dissection, their statistics, and menu entries
-- that hand the selected packet to iscsitrace.
--
-- A cycle is one SCSI task from its command to its status. Its numbers are those of `iscsitrace cycles`, defined in
-- docs/method.md, section 3; plugins/README.md says what each field is. Wireshark finds the PDUs and puts segments
-- together; this file reads their headers where Wireshark found them and never looks for any itself. What Wireshark did
-- not show is left out, not guessed. All is computed once for a frame, in the order of frames, and kept by its number,
-- so that one pass and two show the same; and not at all when nobody asks. For Wireshark 3.6 to 4.4, Lua 5.2 to 5.4.

local byte, floor, format = string.byte, math.floor, string.format
local unpack_header, unpack_list = Struct.unpack, table.unpack

set_plugin_info({
    version = "1",
    description = "Cycles of iSCSI: phases, queue depth, idle time, outstanding data",
    author = "iscsitrace",
    repository = "plugins/iscsitrace.lua",
})

-------------------------------------------------------------------------------------------- whether anybody will ask

-- The words of Wireshark's own command line, where the system tells (Linux); else none.
local function command_line()
    local words = {}
    local file = io.open("/proc/self/cmdline", "rb")
    if file then
        for word in (file:read("*a") or ""):gmatch("([^\0]*)\0") do
            words[#words + 1] = word
        end
        file:close()
    end
    return words
end

-- Whether the columns of the default profile have one of these fields.
local function has_own_column()
    local file = io.open(persconffile_path("preferences"), "r")
    local text = file and file:read("*a") or ""
    if file then
        file:close()
    end
    local columns = ("\n" .. text):match("\ngui%.column%.format:([^\n]*\n[%s\"][^#]*)") or ""
    return columns:find("iscsitrace.", 1, true) ~= nil
end

-- What tshark's command line asks for of these fields: nil when it does not say for certain (Wireshark's user may ask
-- later); else the text of all words that name some, empty when none does. For what nobody asks costs time on every
-- packet: even to be called is half of what tshark takes for a plain list.
local function asked_words()
    local words = command_line()
    if gui_enabled() or not (words[1] or ""):match("tshark$") or has_own_column() then
        return nil
    end
    local naming, is_single, is_whole = {}, false, false
    local place = 2
    while place <= #words do
        local word = words[place]
        if word == "-X" or word == "-T" then
            place = place + 1
            word = word .. (words[place] or "")
        end
        local script = word:match("^%-Xlua_script:(.*)$")
        if script then
            if not script:match("iscsitrace%.lua$") then
                return nil -- which may ask
            end
        elseif word:match("^%-%-color") or word:match("^%-X") then
            return nil
        elseif word == "-Tfields" then
            is_single = true
        elseif word:match("^%-[^-]*[VOCT]") and word ~= "-Ttext" then
            is_whole = true
        elseif word:find("iscsitrace", 1, true) then
            naming[#naming + 1] = word
        end
        place = place + 1
    end
    if is_whole or (#naming > 0 and not is_single) then
        return nil
    end
    return table.concat(naming, " ")
end

local ASKED_WORDS = asked_words()
local is_idle = ASKED_WORDS == ""

---------------------------------------------------------------------------------------------------------------- fields

local iscsitrace = Proto("iscsitrace", "iscsitrace: cycles of iSCSI")

-- A field of Wireshark's; without a value where this version does not have it, or nobody asks.
local function wireshark_field(name)
    local is_known, extractor = false, nil
    if not is_idle then
        is_known, extractor = pcall(Field.new, name)
    end
    return is_known and extractor or function() end
end

-- the smallest set that does: each one costs time on every packet
local tcp_stream = wireshark_field("tcp.stream")
local tcp_length = wireshark_field("tcp.len")
local tcp_sequence = wireshark_field("tcp.seq")
local tcp_acknowledgment = wireshark_field("tcp.ack")
local tcp_segment = wireshark_field("tcp.segment")
local tcp_fin = wireshark_field("tcp.connection.fin")
local tcp_rst = wireshark_field("tcp.connection.rst")
local iscsi_pdu = wireshark_field("iscsi")
local iscsi_header_digest = wireshark_field("iscsi.headerdigest32")
local iscsi_data_digest = wireshark_field("iscsi.datadigest32")

local field = {
    cycle = ProtoField.uint32("iscsitrace.cycle", "Cycle", base.DEC, nil, nil,
        "Number of the SCSI task in the capture, counted from 0 (cycles.cycle)"),
    phase = ProtoField.string("iscsitrace.phase", "Phase", base.ASCII,
        "What this PDU is in its cycle: command, or the phase that it belongs to or ends"),
    operation = ProtoField.string("iscsitrace.operation", "Operation", base.ASCII,
        "SCSI operation without the CDB's length: read, write, inquiry ... (cycles.operation)"),
    latency = ProtoField.relative_time("iscsitrace.latency", "Latency",
        "Command to status (cycles.latency_ns)"),
    first_data_time = ProtoField.relative_time("iscsitrace.first_data_time", "Time to first data",
        "Until data can flow. Read: command to first data (cycles.request_ns); write: command to first R2T (grant_ns)"),
    transfer_time = ProtoField.relative_time("iscsitrace.transfer_time", "Transfer",
        "Read: first to last data; write: first R2T, or command, to last data (cycles.transfer_ns)"),
    status_time = ProtoField.relative_time("iscsitrace.status_time", "Status wait",
        "Last data to status. Read: cycles.status_wait_ns, 0 when it came with the data; write: service_ns"),
    idle_time = ProtoField.relative_time("iscsitrace.idle_time", "Idle before",
        "No task of the session outstanding: previous status to this command (turnaround_ns of the previous cycle)"),
    block_size = ProtoField.uint32("iscsitrace.block_size", "PDU block size", base.DEC, nil, nil,
        "Expected Data Transfer Length of the command in bytes (cycles.bytes)"),
    queue_depth = ProtoField.uint32("iscsitrace.queue_depth", "Queue depth", base.DEC, nil, nil,
        "Tasks of the session outstanding when it was issued, itself included (cycles.queue_depth)"),
    owin = ProtoField.uint32("iscsitrace.owin", "Owin at command", base.DEC, nil, nil,
        "Bytes that the sender of the cycle's data had sent and that were not acknowledged, when the command passed"),
    command_frame = ProtoField.framenum("iscsitrace.command_frame", "Command in", base.NONE, frametype.REQUEST, 0,
        "Frame that brought the command's first byte"),
    first_data_frame = ProtoField.framenum("iscsitrace.first_data_frame", "First data in", base.NONE, frametype.NONE, 0,
        "Frame that brought the first byte of the first data PDU"),
    status_frame = ProtoField.framenum("iscsitrace.status_frame", "Status in", base.NONE, frametype.RESPONSE, 0,
        "Frame that completes the status; on earlier frames known once the whole capture was read"),
    budget_owner = ProtoField.string("iscsitrace.budget_owner", "Budget owner", base.ASCII,
        "Who owned the time that ends with this frame (from the sidecar)"),
    cwnd_estimate = ProtoField.uint32("iscsitrace.cwnd_estimate", "Congestion window, estimated", base.DEC, nil, nil,
        "Congestion window of the sender in bytes, where its sending shows it (from the sidecar)"),
    loss_class = ProtoField.string("iscsitrace.loss_class", "Loss class", base.ASCII,
        "Why this packet was sent again (from the sidecar)"),
}
iscsitrace.fields = field

local warnings = {
    sidecar = ProtoExpert.new("iscsitrace.sidecar_refused", "The sidecar does not belong to this capture",
        expert.group.COMMENTS_GROUP, expert.severity.WARN),
    numbers = ProtoExpert.new("iscsitrace.numbers_unknown", "Not all commands were shown: cycle numbers are left out",
        expert.group.SEQUENCE, expert.severity.NOTE),
}
iscsitrace.experts = warnings

iscsitrace.prefs.program = Pref.string("iscsitrace program", "iscsitrace",
    "What the menu entries run: a name on the PATH, or a path")
iscsitrace.prefs.sidecar = Pref.string("Sidecar file", "",
    "Facts per frame from `iscsitrace export --sidecar`; empty: CAPTURE.iscsitrace beside the capture, if it is there")
iscsitrace.prefs.capture = Pref.string("Capture file", "",
    "The open capture, for the menu entries and the sidecar; empty: found by itself, where the system tells")

local PHASES = { "command", "grant", "transfer", "status_wait", "service", "request" }
local COMMAND, GRANT, TRANSFER, STATUS_WAIT, SERVICE, REQUEST = 1, 2, 3, 4, 5, 6

------------------------------------------------------------------------------------------------------- SCSI operations

-- By operation code of the CDB: that of the commonest device type. The names are those of `cycles.operation`.
local OPERATIONS = {
    [0x00] = "test_unit_ready", [0x01] = "rewind", [0x03] = "request_sense", [0x04] = "format_unit",
    [0x05] = "read_block_limits", [0x07] = "reassign_blocks", [0x08] = "read", [0x0a] = "write", [0x0b] = "seek",
    [0x0f] = "read_reverse", [0x10] = "write_filemarks", [0x11] = "space", [0x12] = "inquiry", [0x13] = "verify",
    [0x14] = "recover_buffered_data", [0x15] = "mode_select", [0x16] = "reserve", [0x17] = "release",
    [0x19] = "erase", [0x1a] = "mode_sense", [0x1b] = "start_stop_unit", [0x1c] = "receive_diagnostic_results",
    [0x1d] = "send_diagnostic", [0x1e] = "prevent_allow_medium_removal", [0x23] = "read_format_capacities",
    [0x25] = "read_capacity", [0x28] = "read", [0x2a] = "write", [0x2b] = "seek", [0x2e] = "write_verify",
    [0x2f] = "verify", [0x34] = "pre_fetch", [0x35] = "synchronize_cache", [0x37] = "read_defect_data",
    [0x3b] = "write_buffer", [0x3c] = "read_buffer", [0x3e] = "read_long", [0x3f] = "write_long",
    [0x41] = "write_same", [0x42] = "unmap", [0x43] = "read_toc", [0x44] = "report_density_support",
    [0x45] = "play_audio", [0x46] = "get_configuration", [0x47] = "play_audio", [0x48] = "sanitize",
    [0x4a] = "get_event_status", [0x4b] = "pause_resume", [0x4c] = "log_select", [0x4d] = "log_sense",
    [0x4e] = "stop_play_scan", [0x51] = "read_disc_information", [0x52] = "read_track_information",
    [0x53] = "xdwriteread", [0x55] = "mode_select", [0x56] = "reserve", [0x57] = "release", [0x5a] = "mode_sense",
    [0x5b] = "close_track_session", [0x5c] = "read_buffer_capacity", [0x5e] = "persistent_reserve_in",
    [0x5f] = "persistent_reserve_out", [0x7f] = "other", [0x80] = "write_filemarks", [0x81] = "read_reverse",
    [0x83] = "extended_copy", [0x84] = "receive_copy_results", [0x85] = "ata_pass_through", [0x88] = "read",
    [0x89] = "compare_and_write", [0x8a] = "write", [0x8b] = "orwrite", [0x8c] = "read_attribute",
    [0x8d] = "write_attribute", [0x8e] = "write_verify", [0x8f] = "verify", [0x90] = "pre_fetch",
    [0x91] = "synchronize_cache", [0x92] = "locate", [0x93] = "write_same", [0x94] = "zbc_out", [0x95] = "zbc_in",
    [0x9c] = "write_atomic", [0x9e] = "service_action_in", [0x9f] = "service_action_out", [0xa0] = "report_luns",
    [0xa1] = "ata_pass_through", [0xa2] = "security_protocol_in", [0xa3] = "maintenance_in",
    [0xa4] = "maintenance_out", [0xa5] = "move_medium", [0xa6] = "exchange_medium", [0xa7] = "set_read_ahead",
    [0xa8] = "read", [0xaa] = "write", [0xac] = "get_performance", [0xad] = "read_disc_structure",
    [0xae] = "write_verify", [0xaf] = "verify", [0xb5] = "security_protocol_out", [0xb6] = "send_volume_tag",
    [0xb7] = "read_defect_data", [0xb8] = "read_element_status", [0xb9] = "read_cd", [0xbb] = "set_cd_speed",
    [0xbd] = "mechanism_status", [0xbe] = "read_cd", [0xbf] = "send_disc_structure",
}

-- What an operation code means to tapes (1), CD drives (5) and changers (8), where that is something else.
local DEVICE_OPERATIONS = {
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

-- Operation codes whose service action says what is meant.
local SERVICE_ACTIONS = {
    [0x7f] = { [0x09] = "read", [0x0a] = "verify", [0x0b] = "write", [0x0c] = "write_verify", [0x0d] = "write_same" },
    [0x83] = { [0x10] = "populate_token", [0x11] = "write_using_token" },
    [0x84] = { [0x07] = "receive_rod_token_information" },
    [0x9e] = {
        [0x10] = "read_capacity",
        [0x11] = "read_long",
        [0x12] = "get_lba_status",
        [0x13] = "report_referrals",
    },
    [0x9f] = { [0x11] = "write_long" },
    [0xa3] = {
        [0x0a] = "report_target_port_groups",
        [0x0c] = "report_supported_opcodes",
        [0x0d] = "report_supported_task_management_functions",
        [0x0f] = "report_timestamp",
    },
    [0xa4] = { [0x0a] = "set_target_port_groups", [0x0f] = "set_timestamp" },
}

local DATA_BLOCKS = { read = true, write = true }
local INQUIRY, VARIABLE_LENGTH_CDB = 0x12, 0x7f

-- The operation of the CDB in a SCSI Command PDU's header, for a device type that an INQUIRY told, or nil.
local function operation_of(header, device_type)
    local code, second = byte(header, 33, 34)
    local of_device = DEVICE_OPERATIONS[code]
    local name = of_device and of_device[device_type]
    if name then
        return name
    end
    local of_action = SERVICE_ACTIONS[code]
    if of_action then
        local action = second % 32
        if code == VARIABLE_LENGTH_CDB then
            local high, low = byte(header, 41, 42)
            action = high * 256 + low
        end
        name = of_action[action]
    end
    return name or OPERATIONS[code] or "other"
end

------------------------------------------------------------------------------------------------------------- arithmetic

local SERIAL = 4294967296
local RESERVED_TAG = 4294967295

-- How far one 32-bit serial number is ahead of another (RFC 1982); negative when it is behind.
local function ahead(number, of)
    local distance = (number - of) % SERIAL
    return distance < SERIAL / 2 and distance or distance - SERIAL
end

-- Nanoseconds as Wireshark's relative time.
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

----------------------------------------------------------------------------------------------------------------- state

-- Bounds: what is beyond is not remembered, and what depends on it is left out.
local FRAMES_REMEMBERED = 65536
local TASKS_MAX = 65536
local REQUESTS_MAX = 4096
local ENDED_REMEMBERED = 256
local HOLES_MAX = 1024
local JUMP_MAX = 65536
local FRAMES_WITHOUT_PDU = 64
local LOGIN_TEXT_MAX = 65536

local connections, sessions, identities
-- by frame: one fact as a number, or several as a list; what else is to be said of a frame
local facts, remarks
-- by cycle; operation, block size and frame from its command on, all else from its status on
local cycle_count, column
local iscsi_connection_count
-- commands that sequence numbers say were not shown, over all sessions
local missing_commands
local clock
local last_noted
local moments, moments_before, moment_count
local sidecar

local COLUMNS = {
    "session", "stream", "operation", "block_size", "queue_depth", "owin", "command_frame", "first_data_frame",
    "status_frame", "first_ns", "status_ns", "first_data_time", "transfer_time", "status_time", "idle_time",
    "data_bytes", "is_write",
}

local function new_moments()
    return { time = {}, out = {}, back = {}, again = {} }
end

local function reset()
    connections, sessions, identities = {}, {}, {}
    facts, remarks = {}, {}
    cycle_count, column = 0, {}
    for _, name in ipairs(COLUMNS) do
        column[name] = {}
    end
    missing_commands, iscsi_connection_count = 0, 0
    clock, last_noted = {}, 0
    moments, moments_before, moment_count = new_moments(), new_moments(), 0
    sidecar = { rows = {} }
end
reset()
iscsitrace.init = reset

-- What was when a frame passed that brought a part of a PDU: its time, and the outstanding data of either side.
local function remember(frame, time_ns, out, back)
    if moment_count >= FRAMES_REMEMBERED then
        moments_before, moments, moment_count = moments, new_moments(), 0
    end
    moments.time[frame], moments.out[frame], moments.back[frame] = time_ns, out, back
    moment_count = moment_count + 1
end

local function recall(what, frame)
    return moments[what][frame] or moments_before[what][frame]
end

-- A cycle, a phase and whether this PDU completes the status, as one number: a table a fact would be too large.
local function pack_fact(cycle, phase, is_status, is_number_known)
    return ((cycle * 8 + phase) * 2 + (is_status and 1 or 0)) * 2 + (is_number_known and 1 or 0)
end

local function unpack_fact(fact)
    local is_number_known = fact % 2 == 1
    fact = floor(fact / 2)
    local is_status = fact % 2 == 1
    fact = floor(fact / 2)
    return floor(fact / 8), fact % 8, is_status, is_number_known
end

local function note_fact(frame, task, phase, is_status)
    local fact = pack_fact(task.cycle, phase, is_status, missing_commands == 0)
    local known = facts[frame]
    if not known then
        facts[frame] = fact
    elseif type(known) == "table" then
        known[#known + 1] = fact
    else
        facts[frame] = { known, fact }
    end
end

-------------------------------------------------------------------------------------------------------------- sessions

local function new_session(name)
    local session = {
        number = #sessions, name = name, connection_count = 1, device_types = {},
        -- tasks without status, in any order; the last that ended; the last in time
        open = {}, open_count = 0, ended = {}, ended_count = 0, latest = nil, latest_ns = -math.huge,
        -- CmdSN: the next one, and the ranges before it that were not seen
        next_command = nil, holes = {},
        -- open tasks that may have ended unseen
        suspect_count = 0,
    }
    sessions[#sessions + 1] = session
    return session
end

local function session_of(connection)
    if not connection.session then
        connection.session = new_session("login not captured")
    end
    return connection.session
end

-- Takes a CmdSN (RFC 7143, section 4.2.2.1); commands of several connections may come out of order.
local function take_command_number(session, number, frame)
    local expected = session.next_command
    if not expected then
        session.next_command = (number + 1) % SERIAL
        return
    end
    local distance = ahead(number, expected)
    if distance == 0 then
        session.next_command = (number + 1) % SERIAL
    elseif distance > 0 then
        if distance <= JUMP_MAX and #session.holes < HOLES_MAX then
            session.holes[#session.holes + 1] = { expected, distance }
            remarks[frame] = format("CmdSN %d to %d were not shown: cycle numbers are left out until they are",
                expected, (number - 1) % SERIAL)
        end
        -- a number further ahead than any command window: what came between is not known either
        missing_commands = missing_commands + distance
        session.next_command = (number + 1) % SERIAL
    else
        for place = #session.holes, 1, -1 do
            local first, count = session.holes[place][1], session.holes[place][2]
            local within = ahead(number, first)
            if within >= 0 and within < count then
                missing_commands = missing_commands - 1
                table.remove(session.holes, place)
                if within > 0 then
                    table.insert(session.holes, { first, within })
                end
                if within + 1 < count then
                    table.insert(session.holes, { (number + 1) % SERIAL, count - within - 1 })
                end
                return
            end
        end
    end
end

-- Takes the StatSN of a PDU that uses one up. A jump tells of tasks that ended unseen: which, and so the number of
-- those outstanding, is not known until all that were open then have ended, or their tags were used again.
local function take_status_number(connection, number)
    local distance = connection.next_status and ahead(number, connection.next_status) or 0
    if distance < 0 then
        return
    end
    connection.next_status = (number + 1) % SERIAL
    if distance > 0 and connection.session then
        local session = connection.session
        for place = 1, session.open_count do
            local task = session.open[place]
            task.is_depth_unknown = true
            if not task.is_suspect and task.connection == connection then
                task.is_suspect = true
                session.suspect_count = session.suspect_count + 1
            end
        end
    end
end

-- Whether one task was issued before another: in order of time, then of number.
local function is_before(task, other)
    return task.first_ns < other.first_ns or (task.first_ns == other.first_ns and task.cycle < other.cycle)
end

-- A command of which a later one was seen before: its place is looked for among the tasks that are remembered.
local function enter_late(session, task)
    local depth, previous, following = 1, nil, nil
    local function meet(other, end_ns)
        if is_before(other, task) then
            if not end_ns or end_ns > task.first_ns then
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
    for place = 1, session.open_count do
        meet(session.open[place], nil)
    end
    for _, other in pairs(session.ended) do
        meet(other, other.end_ns)
    end
    task.depth, task.previous = depth, previous
    if session.connection_count > 1 then
        -- some that are over may have been counted without it
        session.is_depth_unknown = true
    end
    if following and not following.end_ns then
        following.previous = task
    end
end

-- Removes a task from those that are outstanding.
local function leave(task, end_ns)
    local session = task.session
    task.connection.tasks[task.tag] = nil
    task.connection.task_count = task.connection.task_count - 1
    local last = session.open[session.open_count]
    session.open[task.place], last.place = last, task.place
    session.open[session.open_count] = nil
    session.open_count = session.open_count - 1
    task.end_ns, task.previous = end_ns, nil
    if task.is_suspect then
        session.suspect_count = session.suspect_count - 1
    end
    session.ended[session.ended_count % ENDED_REMEMBERED] = task
    session.ended_count = session.ended_count + 1
    if end_ns <= session.latest_ns then
        -- it was over when these began, though it was shown later
        for place = 1, session.open_count do
            local other = session.open[place]
            if other.first_ns >= end_ns then
                other.depth = math.max(other.depth - 1, 1)
            end
        end
    end
end

-- Adds a task to those that are outstanding, and counts them.
local function enter(session, task)
    if session.has_closed_connection then
        for place = session.open_count, 1, -1 do
            local other = session.open[place]
            local closed_ns = other.connection.closed_ns
            if closed_ns and closed_ns <= task.first_ns then
                leave(other, closed_ns)
            end
        end
    end
    if task.first_ns >= session.latest_ns then
        task.depth, task.previous = session.open_count + 1, session.latest
        session.latest, session.latest_ns = task, task.first_ns
    else
        enter_late(session, task)
    end
    task.is_depth_unknown = session.suspect_count > 0
    session.open_count = session.open_count + 1
    session.open[session.open_count], task.place = task, session.open_count
end

------------------------------------------------------------------------------------------------------ the PDU at hand

-- The PDU at hand: its header, where it lies, which packets brought it, and the frame that shows it. One table for all,
-- for speed; words of the header are named by their offset.
local pdu = {}

-- Opcode, flags, bytes 2 and 3, TotalAHSLength, DataSegmentLength, bytes 8 to 15, task tag, the words from 20 on.
local HEADER = ">BBBBBI3c8I4I4I4I4I4I4I4I4"

-- Reads the header of a PDU from its 48 bytes.
local function read_header(bytes)
    local ahs_words, _
    pdu.bytes = bytes
    pdu.first, pdu.flags, pdu.second, pdu.third, ahs_words, pdu.length, pdu.lun, pdu.tag, pdu.word20, pdu.word24, _, _,
        pdu.word36, pdu.word40, pdu.word44 = unpack_header(HEADER, bytes)
    pdu.opcode = pdu.first % 64
    pdu.data_start = 48 + ahs_words * 4
    -- without digests
    pdu.total = pdu.data_start + floor((pdu.length + 3) / 4) * 4
end

-- Up to `count` bytes of its data, as far as they were captured; of a PDU without header digest.
local function data_of(count)
    local start = pdu.offset + pdu.data_start
    count = math.min(count, pdu.length, pdu.source:len() - start)
    return count > 0 and pdu.source:raw(start, count) or nil
end

---------------------------------------------------------------------------------------------------------------- tasks

-- The header of a SCSI Command was seen: `frame` brought its first byte.
local function open_task(connection, frame, first_ns, outstanding)
    local session = session_of(connection)
    local tag = pdu.tag
    local earlier = connection.tasks[tag]
    if earlier then
        leave(earlier, first_ns)
    elseif connection.task_count >= TASKS_MAX then
        cycle_count = cycle_count + 1
        return nil
    end
    local is_read = floor(pdu.flags / 64) % 2 == 1
    local lun = pdu.lun
    -- of the device itself: EVPD clear (SPC-4, section 6.6)
    local is_inquiry = byte(pdu.bytes, 33) == INQUIRY and byte(pdu.bytes, 34) % 2 == 0
    local task = {
        connection = connection, session = session, tag = tag, cycle = cycle_count, lun = lun,
        is_read = is_read, is_write = floor(pdu.flags / 32) % 2 == 1,
        expected = pdu.word20, immediate = pdu.length, data_bytes = pdu.length,
        operation = operation_of(pdu.bytes, session.device_types[lun]), is_inquiry = is_inquiry,
        first_ns = first_ns, outstanding = outstanding, depth = 0, place = 0,
        data_pdus = 0, data_bytes_max = 0, r2ts = 0, next_data = 0, missing_data = 0, is_missing_some = false,
    }
    cycle_count = cycle_count + 1
    column.operation[cycle_count], column.block_size[cycle_count] = task.operation, task.expected
    column.command_frame[cycle_count] = frame
    connection.tasks[tag] = task
    connection.task_count = connection.task_count + 1
    enter(session, task)
    return task
end

-- Takes a number that counts up from 0; gives the next, and how many were passed over.
local function advance(task, number, expected)
    local distance = ahead(number, expected)
    if distance < 0 then
        return expected, 0
    end
    if distance > 0 then
        task.is_missing_some = true
    end
    return (number + 1) % SERIAL, math.min(distance, JUMP_MAX)
end

-- What the header of every data PDU says; the first must begin at `first_offset` of the buffer.
local function note_data(task, first_offset)
    local length = pdu.length
    if length == 0 then
        return
    end
    if task.data_pdus == 0 then
        local is_first_by_number = task.session.is_data_in_any_order and pdu.word36 == 0
        if is_first_by_number or pdu.word40 == first_offset then
            task.data_first_ns, task.data_first_frame = pdu.first_ns, pdu.first_frame
        else
            task.is_missing_some = true
        end
    end
    task.data_pdus = task.data_pdus + 1
    task.data_bytes = task.data_bytes + length
    task.data_bytes_max = math.max(task.data_bytes_max, length)
    if not pdu.last_ns then
        task.data_last_ns, task.is_last_unknown = nil, true
    else
        task.is_last_unknown = false
        if not task.data_last_ns or pdu.last_ns >= task.data_last_ns then
            task.data_last_ns = pdu.last_ns
        end
    end
end

-- Whether the status speaks of data after the last that was shown.
local function lacks_last_data(task)
    if pdu.second ~= 0 or pdu.third ~= 0 then
        return false
    end
    local underflow = floor(pdu.flags / 2) % 2 == 1 and pdu.word44 or 0
    local lacking = task.expected - underflow - task.data_bytes
    if lacking <= 0 then
        return false
    end
    local size = task.data_bytes_max > 0 and task.data_bytes_max or lacking
    local is_lacking = DATA_BLOCKS[task.operation] and math.ceil(lacking / size) > task.missing_data
    if task.is_read and not task.is_write then
        -- ExpDataSN counts the Data-In PDUs (RFC 7143, section 11.4.8); targets that leave it 0 are told by the bytes
        local counted = pdu.word36
        return counted ~= 0 and ahead(counted, task.next_data) > 0 or is_lacking
    end
    return task.is_write and not task.is_read and is_lacking
end

local function difference(later, earlier)
    return later and earlier and later - earlier or false
end

-- The phases of a cycle that is over (docs/method.md, section 3), into its columns; gives the one that its status ends.
local function note_phases(task, status_ns, is_status_in_data)
    local place = task.cycle + 1
    local is_without_data = task.data_pdus == 0 and task.immediate == 0 and task.r2ts == 0 and not task.is_missing_some
    if is_without_data then
        return REQUEST
    end
    if task.is_read then
        column.first_data_time[place] = difference(task.data_first_ns, task.first_ns)
        column.transfer_time[place] = difference(task.data_last_ns, task.data_first_ns)
        column.status_time[place] = difference(status_ns, task.data_last_ns)
        return is_status_in_data and TRANSFER or STATUS_WAIT
    end
    if not task.is_write then
        return REQUEST
    end
    local begin_ns = task.first_ns
    if task.r2ts > 0 then
        begin_ns = task.r2t_first_ns
        column.first_data_time[place] = difference(begin_ns, task.first_ns)
    end
    local end_ns = nil
    if task.data_pdus > 0 and task.immediate > 0 then
        end_ns = task.data_last_ns and task.last_ns and math.max(task.data_last_ns, task.last_ns)
    elseif task.data_pdus > 0 then
        end_ns = task.data_last_ns
    elseif task.immediate > 0 then
        end_ns = task.last_ns
    end
    if end_ns and begin_ns and end_ns < begin_ns then
        end_ns = nil
    end
    column.transfer_time[place] = difference(end_ns, begin_ns)
    column.status_time[place] = difference(status_ns, end_ns)
    return SERVICE
end

-- The status, in a SCSI Response or in the last Data-In: closes the task.
local function note_status(task, is_in_data)
    if not is_in_data and lacks_last_data(task) then
        task.data_last_ns, task.is_missing_some = nil, true
    end
    if task.is_last_unknown then
        task.data_last_ns = nil
    end
    local place = task.cycle + 1
    local status_ns = pdu.last_ns
    local phase = note_phases(task, status_ns, is_in_data)
    local previous = task.previous
    local is_depth_known = not (task.is_depth_unknown or task.session.is_depth_unknown)
    local was_alone = previous and previous.depth == 1 and not previous.is_depth_unknown and is_depth_known
    if was_alone and previous.status_ns and task.first_ns >= previous.status_ns then
        column.idle_time[place] = task.first_ns - previous.status_ns
    end
    task.status_ns = status_ns
    column.session[place], column.stream[place] = task.session.number, task.connection.stream
    column.first_ns[place], column.status_ns[place] = task.first_ns, status_ns
    column.first_data_frame[place], column.status_frame[place] = task.data_first_frame, pdu.last_frame or pdu.frame
    column.is_write[place] = task.is_write and not task.is_read
    column.owin[place] = task.outstanding
    column.data_bytes[place] = task.data_bytes
    column.queue_depth[place] = is_depth_known and task.depth
    note_fact(pdu.frame, task, phase, true)
    leave(task, status_ns or pdu.now_ns)
end

----------------------------------------------------------------------------------------------------------------- PDUs

local take = {}

-- SCSI Command
take[0x01] = function(connection, half)
    local begun = half.begun
    half.begun = nil
    local task
    if begun and begun.tag == pdu.tag then
        task = begun
    elseif pdu.first_ns then
        task = open_task(connection, pdu.first_frame, pdu.first_ns, half.outstanding)
    else
        cycle_count = cycle_count + 1
    end
    if task then
        task.last_ns = pdu.last_ns
        note_fact(pdu.frame, task, COMMAND, false)
    end
end

-- SCSI Data-Out
take[0x05] = function(connection)
    local task = connection.tasks[pdu.tag]
    if task then
        if pdu.word20 == RESERVED_TAG then
            local passed
            task.next_unsolicited, passed = advance(task, pdu.word36, task.next_unsolicited or 0)
            task.missing_data = task.missing_data + passed
        end
        note_data(task, task.immediate)
        note_fact(pdu.frame, task, TRANSFER, false)
    end
end

-- SCSI Data-In
take[0x25] = function(connection)
    local task = connection.tasks[pdu.tag]
    if not task then
        return
    end
    local passed
    task.next_data, passed = advance(task, pdu.word36, task.next_data)
    task.missing_data = task.missing_data + passed
    note_data(task, 0)
    if task.is_inquiry and pdu.word40 == 0 and connection.header_digest == 0 then
        local data = data_of(1)
        task.session.device_types[task.lun] = data and byte(data) % 32
    end
    if pdu.flags % 2 == 1 then
        note_status(task, true)
    else
        note_fact(pdu.frame, task, TRANSFER, false)
    end
end

-- Ready To Transfer
take[0x31] = function(connection)
    local task = connection.tasks[pdu.tag]
    if task then
        local number = pdu.word36
        task.next_r2t = advance(task, number, task.next_r2t or 0)
        local is_first = task.r2ts == 0 and number == 0
        if is_first then
            task.r2t_first_ns = pdu.last_ns
        end
        task.r2ts = task.r2ts + 1
        note_fact(pdu.frame, task, is_first and GRANT or TRANSFER, false)
    end
end

-- SCSI Response
take[0x21] = function(connection)
    local task = connection.tasks[pdu.tag]
    if task then
        note_status(task, false)
    end
end

-- Task Management Function Request
take[0x02] = function(connection)
    if connection.request_count < REQUESTS_MAX then
        local tag = pdu.tag
        connection.request_count = connection.request_count + (connection.requests[tag] and 0 or 1)
        connection.requests[tag] =
            { what = pdu.flags % 128, tag = pdu.word20, lun = pdu.lun }
    end
end

-- Task Management Function Response: the tasks that it ends (RFC 7143, section 11.5.1)
take[0x22] = function(connection)
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
    local what, ended = request.what, {}
    for other, task in pairs(connection.tasks) do
        if (what == 1 and other == request.tag)
            or ((what == 2 or what == 4 or what == 5) and task.lun == request.lun)
            or what == 6 or what == 7 then
            ended[#ended + 1] = task
        end
    end
    for _, task in ipairs(ended) do
        leave(task, pdu.last_ns or pdu.now_ns)
    end
end

-- The value of a login key, or "".
local function key_value(text, key)
    return ("\0" .. text):match("\0" .. key .. "=([^\0]*)") or ""
end

-- Login Request: the first whole text opens or joins a session
take[0x03] = function(connection)
    local text = (connection.requested or "") .. (data_of(LOGIN_TEXT_MAX) or "")
    connection.requested = #text <= LOGIN_TEXT_MAX and text or ""
    if connection.session or floor(pdu.flags / 64) % 2 == 1 then
        return
    end
    local names = { key_value(text, "InitiatorName"), key_value(text, "TargetName") }
    local identity = table.concat({ names[1], pdu.lun:sub(1, 6), names[2] }, "\0")
    local known = identities[identity]
    local high, low = byte(pdu.lun, 7, 8)
    local handle = high * 256 + low
    if handle ~= 0 and known and known.handle == handle then
        known.connection_count = known.connection_count + 1
        connection.session = known
    else
        connection.session = new_session(names[1] .. " -> " .. (names[2] ~= "" and names[2] or "discovery"))
        identities[identity] = connection.session
    end
end

-- Login Response
take[0x23] = function(connection)
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

-- PDUs that carry a CmdSN
local HAS_COMMAND_NUMBER = { [0x00] = true, [0x01] = true, [0x02] = true, [0x04] = true, [0x06] = true }
local LOGIN_REQUEST = 0x03

-- PDUs of the target whose StatSN counts; that of a Data-In only with the S bit, of a NOP-In only as an answer
local HAS_STATUS_NUMBER = {
    [0x21] = true, [0x22] = true, [0x23] = true, [0x24] = true, [0x26] = true, [0x32] = true, [0x3f] = true,
}
local SCSI_COMMAND, NOP_IN, DATA_IN = 0x01, 0x20, 0x25

local function note_numbers(connection, opcode, frame)
    if HAS_STATUS_NUMBER[opcode] or (opcode == DATA_IN and pdu.flags % 2 == 1)
        or (opcode == NOP_IN and pdu.tag ~= RESERVED_TAG) then
        take_status_number(connection, pdu.word24)
        return
    end
    if HAS_COMMAND_NUMBER[opcode] then
        if pdu.first < 64 then
            take_command_number(session_of(connection), pdu.word24, frame)
        end
    elseif opcode == LOGIN_REQUEST and connection.session and not connection.session.next_command then
        connection.session.next_command = pdu.word24
    end
end

---------------------------------------------------------------------------------------------------- PDUs of one frame

-- What brought the bytes from `start` to `stop` of a buffer of segments: the frame with the first byte, and the one
-- that completed them. Of several copies of a byte the first counts.
local function frames_of(segments, start, stop)
    local first, last = nil, nil
    local lacking = { { start, stop } }
    for _, segment in ipairs(segments) do
        local still = {}
        for _, span in ipairs(lacking) do
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
        lacking = still
        if #lacking == 0 then
            return first, last
        end
    end
    return first, nil
end

-- The segments of the frame's reassembled buffer, in the order of their frames.
local function segments_of(infos)
    local segments = {}
    for place = 1, #infos do
        local info = infos[place]
        segments[place] = { info.offset, info.offset + info.len, info.value }
    end
    table.sort(segments, function(one, other)
        return one[3] < other[3]
    end)
    return segments
end

-- Where a PDU of a reassembled buffer came from: the frame with its first byte, the one that completed it; and where
-- the bytes of this frame begin in the buffer, and how many they are.
local function place_in_buffer(half, frame, offset, stop, length, sequence, payload_length)
    local is_alone = offset == 0 and stop >= length
    local within = half.pending_sequence and ahead(half.pending_sequence + length, sequence)
    local is_pending = is_alone and within and within > 0 and within <= payload_length
    if is_pending and half.is_in_order then
        -- what began before, went on without a break, and ends in this frame
        return half.pending_frame, frame, length - within, within
    end
    local infos = { tcp_segment() }
    if #infos == 0 then
        -- Wireshark gave up within the PDU's content, and does not say of what it is made
        if is_pending then
            return half.pending_frame, frame, length - within, within
        end
        return nil, nil, nil, nil
    end
    local own, own_length = nil, nil
    for place = 1, #infos do
        if infos[place].value == frame then
            own, own_length = infos[place].offset, infos[place].len
        end
    end
    local first_frame, last_frame = frames_of(segments_of(infos), offset, math.min(stop, length))
    first_frame = first_frame and not recall("again", first_frame) and first_frame or nil
    last_frame = last_frame and not recall("again", last_frame) and last_frame or nil
    return first_frame, last_frame, own, own_length
end

-- Whether two buffers of the same length are the same, by what stands where a frame has its headers.
local function is_same_start(one, other)
    local length = math.min(one:len(), 54)
    return one:raw(0, length) == other:raw(0, length)
end

local ISLANDS_MAX = 256

-- Whether a PDU was shown before, by its place in the sequence of bytes: Wireshark may show one again with a copy. What
-- is behind a hole is remembered until the hole is filled.
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

-- Bytes of digests in a PDU, as far as Wireshark knows of them.
local function digest_length(connection)
    return connection.header_digest + (pdu.length > 0 and connection.data_digest or 0)
end

-- Wireshark finds data digests by a preference only. Where the login agreed on them and it does not, nothing that it
-- shows can be relied on.
local function distrust(connection, frame)
    connection.is_distrusted = true
    missing_commands = missing_commands + 1
    remarks[frame] = "data digests are in use, and Wireshark does not reckon with them (preference of iSCSI)"
end

-- Bytes sent and not acknowledged: the highest sent less the last acknowledged.
local function outstanding(sender, receiver)
    if sender.highest and receiver.acknowledged then
        return math.max(ahead(sender.highest, receiver.acknowledged), 0)
    end
    return nil
end

-- The same for the command in `pdu`: of the side that sends its data; of the initiator without.
local function outstanding_of(connection, half)
    local other = connection[half == connection[1] and 2 or 1]
    if floor(pdu.flags / 64) % 2 == 1 then
        return outstanding(other, half)
    end
    return outstanding(half, other)
end

-- Whether the TCP header that begins at `start` is in the frame itself, and not in IP fragments put together.
local function is_header_at(tvb, pinfo, start)
    if start < 0 or start + 20 > tvb:len() then
        return false
    end
    local first, second, third, fourth = byte(tvb:raw(start, 4), 1, 4)
    return first * 256 + second == pinfo.src_port and third * 256 + fourth == pinfo.dst_port
end

-- The buffer with a frame's TCP header, and where its payload begins in it.
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

-- Whether a PDU lies in the frame's own payload, and not in a buffer of segments put together.
local function is_in_frame(half, info, frame_source, payload)
    if info.offset < payload then
        return false
    elseif not half.pending_frame or half.is_in_order then
        return true
    end
    local source = info.source
    return source:len() == frame_source:len() and is_same_start(source, frame_source)
end

-- Takes the PDUs that the frame shows; gives where they end in the buffer with its payload.
local function note_pdus(connection, half, direction, frame, time_ns, frame_source, payload, sequence, length, ...)
    local explained = payload
    if not connection.is_without_digests then
        if iscsi_header_digest() then
            connection.header_digest = 4
        end
        if iscsi_data_digest() then
            connection.data_digest = 4
        end
    end
    for place = 1, select("#", ...) do
        local info = select(place, ...)
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
                iscsi_connection_count = iscsi_connection_count + 1
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
                explained = stop
            else
                local first, last, own, own_length =
                    place_in_buffer(half, frame, offset, stop, captured, sequence, length)
                pdu.first_frame = first
                pdu.first_ns = first and (first == frame and time_ns or recall("time", first))
                pdu.last_ns = last and stop <= captured and (last == frame and time_ns or recall("time", last)) or nil
                pdu.last_frame = last
                explained = payload + (own_length or length)
                -- a buffer that begins in this frame may begin anywhere in it
                begin = own and own > 0 and sequence + offset - own or nil
                if first == frame then
                    half.outstanding = outstanding_of(connection, half)
                elseif first and is_from_initiator then
                    half.outstanding = recall(floor(pdu.flags / 64) % 2 == 1 and "back" or "out", first)
                end
            end
            if not begin then
                half.next_begin = nil
            end
            if is_from_initiator == (direction == connection.initiator) and not connection.is_distrusted
                and not (begin and is_repeated(half, begin % SERIAL, (begin + total) % SERIAL)) then
                pdu.source, pdu.offset, pdu.frame, pdu.now_ns = source, offset, frame, time_ns
                if is_own and opcode == SCSI_COMMAND then
                    half.outstanding = outstanding_of(connection, half)
                end
                half.has_pdus = true
                note_numbers(connection, opcode, frame)
                local handler = take[opcode]
                if handler then
                    handler(connection, half)
                end
                if opcode == LOGIN_REQUEST then
                    note_numbers(connection, opcode, frame)
                end
            end
        end
    end
    pdu.source = nil
    return explained
end

-- Whether the header in `pdu` is that of a SCSI Command that goes on after the bytes that are there.
local function is_command(connection, half, available)
    local expected = connection.session and connection.session.next_command
    return pdu.opcode == SCSI_COMMAND and pdu.flags % 32 < 8 and pdu.second == 0 and pdu.third == 0
        and pdu.total > available and pdu.length <= pdu.word20 and half.has_pdus
        and expected and math.abs(ahead(pdu.word24, expected)) < JUMP_MAX
end

-- A PDU of the initiator begins in this frame and ends in a later one, which alone will show it. A command counts from
-- here on, as others may begin before it is complete.
local function peek(connection, half, source, offset, stop, frame, time_ns)
    local other = connection[half == connection[1] and 2 or 1]
    local available = math.min(source:len(), stop) - offset
    if available < 1 then
        return
    elseif available < 48 then
        half.part = {
            bytes = source:raw(offset, available), available = available, frame = frame, first_ns = time_ns,
            out = outstanding(half, other), back = outstanding(other, half),
        }
        return
    end
    read_header(source:raw(offset, 48))
    if is_command(connection, half, available) then
        half.begun = open_task(connection, frame, time_ns, outstanding_of(connection, half))
    end
end

local function new_half()
    return { islands = {}, island_count = 0, holes = {} }
end

local function new_connection(stream, pinfo)
    local connection = {
        stream = stream, port = pinfo.src_port, [1] = new_half(), [2] = new_half(), frames_without_pdu = 0,
        tasks = {}, task_count = 0, requests = {}, request_count = 0, header_digest = 0, data_digest = 0,
    }
    if pinfo.dst_port == connection.port then
        connection.address = tostring(pinfo.src)
    end
    connections[stream] = connection
    return connection
end

-- The time of a frame in ns after the first. Exact, but where a time reference was set: then as exact as a double is.
local function time_of(pinfo)
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

local function connection_of(stream, pinfo)
    local connection = connections[stream]
    if connection then
        return connection
    elseif connection == false and not iscsi_pdu() then
        return nil -- nothing of iSCSI so far
    end
    return new_connection(stream, pinfo)
end

-- What a frame acknowledges.
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

-- Packets are missing here, come later, or are sent again: what is behind them is shown late. On other connections
-- commands may begin meanwhile that are shown sooner: neither numbers nor what is outstanding are certain any more.
local function note_hole(connection, is_from_initiator, frame)
    local session = connection.session
    if session and session.connection_count > 1 then
        session.is_depth_unknown = true
    end
    if is_from_initiator and iscsi_connection_count > 1 and not connection.is_doubtful then
        connection.is_doubtful = true
        missing_commands = missing_commands + 1
        remarks[frame] = "packets are missing, late or sent again: commands of other connections are shown sooner"
    end
end

-- Keeps the holes of a half, and which frames bring bytes again that were there before. Wireshark may put segments
-- together from such a frame, though another brought the bytes first.
local function note_late(half, frame, sequence, stop, highest)
    if ahead(sequence, highest) > 0 then
        if #half.holes < HOLES_MAX then
            half.holes[#half.holes + 1] = { highest, sequence }
        end
        return
    end
    for place, hole in ipairs(half.holes) do
        if ahead(sequence, hole[1]) >= 0 and ahead(stop, hole[2]) <= 0 then
            table.remove(half.holes, place)
            if sequence ~= hole[1] then
                table.insert(half.holes, { hole[1], sequence })
            end
            if stop ~= hole[2] then
                table.insert(half.holes, { stop, hole[2] })
            end
            return
        end
    end
    moments.again[frame] = true
end

-- The rest of a header of which a frame brought less than 48 bytes: then a command can be told from other PDUs.
local function peek_on(connection, half, source, payload, length)
    local begun = half.part
    begun.bytes = begun.bytes .. source:raw(payload, math.min(48 - #begun.bytes, length, source:len() - payload))
    if #begun.bytes < 48 then
        return
    end
    half.part = nil
    read_header(begun.bytes)
    if is_command(connection, half, begun.available) then
        local is_read = floor(pdu.flags / 64) % 2 == 1
        half.begun = open_task(connection, begun.frame, begun.first_ns, is_read and begun.back or begun.out)
    end
end

-- A frame with payload that was not seen before; the last arguments are its PDUs.
local function note_payload(connection, direction, tvb, pinfo, frame, length, ...)
    local half, other = connection[direction], connection[3 - direction]
    local is_from_initiator = direction == connection.initiator
    local sequence_info = tcp_sequence()
    local sequence = sequence_info.value
    local stop = (sequence + length) % SERIAL
    local highest = half.highest
    local is_next = sequence == highest or highest == nil
    if sequence == highest then
        half.highest = stop
    else
        half.is_in_order = false
        if highest and length > 1 then
            note_hole(connection, is_from_initiator, frame)
            note_late(half, frame, sequence, stop, highest)
        end
        if not highest or ahead(stop, highest) > 0 then
            half.highest = stop
        end
    end
    if half.acknowledged == nil or half.acknowledged ~= other.highest then
        note_acknowledgment(half)
    end
    local time_ns = time_of(pinfo)
    local begin, source, payload = nil, nil, nil
    if ... then
        source, payload = payload_of(half, tvb, pinfo, sequence_info)
        local explained =
            note_pdus(connection, half, direction, frame, time_ns, source, payload, sequence, length, ...)
        half.pending_frame = nil
        begin = explained < payload + length and explained or nil
    elseif not half.pending_frame then
        if is_from_initiator then
            source, payload = payload_of(half, tvb, pinfo, sequence_info)
        end
        begin = payload or 0
    elseif not connection.initiator then
        connection.frames_without_pdu = connection.frames_without_pdu + 1
        if connection.frames_without_pdu > FRAMES_WITHOUT_PDU then
            connections[connection.stream] = false
        end
    elseif half.part and half.is_in_order and is_from_initiator then
        source, payload = payload_of(half, tvb, pinfo, sequence_info)
        peek_on(connection, half, source, payload, length)
    end
    if begin then
        -- here begins a PDU that a later frame will show
        half.pending_frame, half.pending_sequence = frame, (sequence + begin - (payload or 0)) % SERIAL
        half.is_in_order, half.begun, half.part = half.highest == stop and is_next, nil, nil
        if source and direction == connection.initiator and half.is_in_order then
            peek(connection, half, source, begin, payload + length, frame, time_ns)
        end
    end
    if half.pending_frame then
        if is_from_initiator or not connection.initiator then
            remember(frame, time_ns, outstanding(half, other), outstanding(other, half))
        else
            remember(frame, time_ns)
        end
    end
end

-- A frame that was not seen before.
local function note(tvb, pinfo, frame)
    local info = tcp_stream()
    local connection = info and connection_of(info.value, pinfo)
    if not connection then
        return
    end
    local direction = pinfo.src_port == connection.port and 1 or 2
    if connection.address then
        direction = tostring(pinfo.src) == connection.address and 1 or 2
    end
    local session = connection.session
    if session and session.connection_count > 1 then
        if tcp_fin() or tcp_rst() then
            connection.is_closing, session.has_closed_connection = true, true
        end
        if connection.is_closing then
            connection.closed_ns = time_of(pinfo)
        end
    end
    info = tcp_length()
    local length = info and info.value or 0
    if length > 0 then
        note_payload(connection, direction, tvb, pinfo, frame, length, iscsi_pdu())
    elseif direction ~= connection.initiator then
        -- the initiator's own count with its next command
        note_acknowledgment(connection[direction])
    end
end

---------------------------------------------------------------------------------------------------------------- sidecar

-- What the system tells of the open capture, for Wireshark's Lua does not.

local MAGIC = {
    ["\161\178\195\212"] = true, ["\212\195\178\161"] = true, ["\161\178\060\077"] = true, ["\077\060\178\161"] = true,
    ["\010\013\013\010"] = true, ["\040\181\047\253"] = true, ["\004\034\077\024"] = true,
}

local function is_capture(path)
    local file = io.open(path, "rb")
    local magic = file and file:read(4)
    if file then
        file:close()
    end
    return magic and (MAGIC[magic] or magic:sub(1, 2) == "\031\139") and true or false
end

-- The capture that -r names on Wireshark's or tshark's own command line (Linux).
local function capture_of_command_line()
    local words = command_line()
    for place = 2, #words do
        local word = words[place]
        local attached = word:match("^%-[2lnpqQVxP]*r(.*)$") or word:match("^%-%-read%-file=?(.*)$")
        local path = attached and (attached ~= "" and attached or words[place + 1])
        if path and is_capture(path) then
            return path
        end
    end
    local last = words[#words]
    return gui_enabled() and last and is_capture(last) and last or nil
end

-- The capture among the files that Wireshark holds open (Linux).
local function capture_of_open_files()
    local found = nil
    local pipe = io.popen('for file in /proc/$PPID/fd/*; do readlink "$file"; done 2>/dev/null', "r")
    if pipe then
        for path in pipe:lines() do
            if path:sub(1, 1) == "/" and path:sub(1, 5) ~= "/dev/" and is_capture(path) then
                found = path
            end
        end
        pipe:close()
    end
    return found
end

local function capture_path()
    if iscsitrace.prefs.capture ~= "" then
        return iscsitrace.prefs.capture
    end
    return gui_enabled() and capture_of_open_files() or capture_of_command_line()
end

local SIDECAR_COLUMNS = "frame\tbudget_owner\tcwnd_estimate_bytes\tloss_class"

-- Reads the sidecar's rows; an error text when it does not belong to the capture or is no sidecar.
local function read_sidecar(file, capture, first_time, first_length)
    local name, version, frames, time, length, size = (file:read("*l") or ""):match(
        "^(iscsitrace%-sidecar)\t(%d+)\tframes=(%d+)\tfirst_frame_time=(%d+)\tfirst_frame_length=(%d+)\tsize=(%d+)\r?$")
    if not name then
        return nil, "it is no sidecar"
    end
    if version ~= "1" then
        return nil, "its format is " .. version .. ", which this plugin does not read"
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
        local frame, owner, window, loss = line:match("^(%d+)\t([^\t]*)\t(%d*)\t([^\t\r]*)\r?$")
        frame = tonumber(frame)
        if not frame or frame <= before or frame > tonumber(frames) then
            return nil, format("line %d is no row of it", line_number)
        end
        before = frame
        rows[frame] = owner .. "\t" .. window .. "\t" .. loss
    end
    return rows, nil
end

-- Looks for the sidecar when the first frame is seen, whose time and length it has to tell.
local function load_sidecar(pinfo)
    local given = iscsitrace.prefs.sidecar
    local capture = capture_path()
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
        sidecar.rows = rows or {}
    end
    if reason then
        sidecar.refusal = format("sidecar %s is not used: %s", path, reason)
        io.stderr:write("iscsitrace: ", sidecar.refusal, "\n")
    end
end

------------------------------------------------------------------------------------------------------- post-dissector

-- Which fields are wanted, by name: all, but where the command line names those that tshark prints.
local wanted = {}
for name in pairs(field) do
    wanted[name] = not ASKED_WORDS or ASKED_WORDS:find("iscsitrace." .. name, 1, true) ~= nil
end

local function add(tree, name, value)
    if wanted[name] then
        tree:add(field[name], value):set_generated()
    end
end

local NUMBERS = { "queue_depth", "owin" }
local TIMES = { "idle_time", "first_data_time", "transfer_time", "status_time" }

-- The item of one PDU of a cycle, below which is what is known of it.
local function add_cycle(root, cycle, is_number_known)
    local item
    if is_number_known then
        item = root:add(field.cycle, cycle)
    else
        item = root:add("Cycle, its number not known")
    end
    item:set_generated()
    return item
end

-- What is known of a cycle once its status was shown.
local function show_cycle(item, place)
    local operation, block_size = column.operation[place], column.block_size[place]
    add(item, "operation", operation)
    add(item, "block_size", block_size)
    for _, name in ipairs(NUMBERS) do
        local value = column[name][place]
        if value then
            add(item, name, value)
        end
    end
    for _, name in ipairs(TIMES) do
        local time_ns = wanted[name] and column[name][place]
        if time_ns then
            add(item, name, relative_time(time_ns))
        end
    end
    local latency_ns = wanted.latency and difference(column.status_ns[place], column.first_ns[place])
    if latency_ns then
        add(item, "latency", relative_time(latency_ns))
        if not ASKED_WORDS then
            item:append_text(format(": %s of %d bytes, %.3f ms", operation, block_size, latency_ns / 1000000))
        end
    end
    local data_frame = column.first_data_frame[place]
    if data_frame then
        add(item, "first_data_frame", data_frame)
    end
end

-- The item of one PDU of a cycle; that of its status has everything.
local function show_fact(root, fact)
    local cycle, phase, is_status, is_number_known = unpack_fact(fact)
    local place = cycle + 1
    local item = root
    if wanted.cycle then
        item = add_cycle(root, cycle, is_number_known)
    end
    add(item, "phase", PHASES[phase])
    if phase ~= COMMAND then
        add(item, "command_frame", column.command_frame[place])
    end
    if is_status then
        show_cycle(item, place)
    end
    local status_frame = column.status_frame[place]
    if status_frame then
        add(item, "status_frame", status_frame)
    end
end

local function show_row(root, row)
    local owner, window, loss = row:match("^([^\t]*)\t([^\t]*)\t(.*)$")
    if owner ~= "" then
        add(root, "budget_owner", owner)
    end
    if window ~= "" and tonumber(window) < SERIAL then
        add(root, "cwnd_estimate", tonumber(window))
    end
    if loss ~= "" then
        add(root, "loss_class", loss)
    end
end

-- What the menu entries work on: the packet whose details were shown last.
local selected = nil

local function note_selected(pinfo, frame, known)
    local info = tcp_stream()
    selected = {
        frame = frame, stream = info and info.value, source = tostring(pinfo.src), destination = tostring(pinfo.dst),
        source_port = pinfo.src_port, destination_port = pinfo.dst_port,
    }
    local fact = type(known) == "table" and known[1] or known
    if fact then
        local cycle, _, _, is_number_known = unpack_fact(fact)
        selected.cycle = is_number_known and cycle or nil
    end
end

local is_gui = gui_enabled()
-- By which Wireshark tells whether anybody asks for any of these fields. Under tshark that does not change on the way,
-- but may be so in the second pass only; Wireshark's user may ask for them later.
local own_dissector
local has_listener = false

function iscsitrace.dissector(tvb, pinfo, tree)
    local is_asked = tree:referenced(own_dissector)
    if not (is_asked or is_gui or has_listener) then
        return
    end
    local frame = pinfo.number
    if frame > last_noted then
        last_noted = frame
        if frame == 1 then
            load_sidecar(pinfo)
        end
        note(tvb, pinfo, frame)
    elseif is_gui and tree.visible then
        note_selected(pinfo, frame, facts[frame])
    end
    local known, row, remark = facts[frame], sidecar.rows[frame], remarks[frame]
    local refusal = frame == 1 and sidecar.refusal
    if not (is_asked and (known or row or remark or refusal)) then
        return
    end
    local root = tree:add(iscsitrace)
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
        root:add_proto_expert_info(warnings.numbers, remark)
    end
    if refusal then
        root:add_proto_expert_info(warnings.sidecar, refusal)
    end
end

if not is_idle then
    register_postdissector(iscsitrace)
    own_dissector = Dissector.get("iscsitrace")
end

------------------------------------------------------------------------------------------------------------- statistics

local STATUS_BIT = 2

-- Cycles whose status a frame completes, into a list.
local function collect(cycles, frame)
    local known = facts[frame]
    if type(known) == "number" then
        if floor(known / STATUS_BIT) % 2 == 1 then
            cycles[#cycles + 1] = floor(known / 32)
        end
    elseif known then
        for _, fact in ipairs(known) do
            if floor(fact / STATUS_BIT) % 2 == 1 then
                cycles[#cycles + 1] = floor(fact / 32)
            end
        end
    end
end

-- The value that a share of the sorted values does not exceed (nearest rank), or nil.
local function percentile(values, share)
    return values[math.max(math.ceil(#values * share), 1)]
end

local function milliseconds(time_ns)
    return time_ns and format("%.3f", time_ns / 1000000) or "-"
end

local function size_text(bytes)
    for _, unit in ipairs({ { "G", 1073741824 }, { "M", 1048576 }, { "K", 1024 } }) do
        if bytes >= unit[2] and bytes % unit[2] == 0 then
            return format("%d%s", bytes / unit[2], unit[1])
        end
    end
    return format("%d", bytes)
end

-- The time in which at least one of the cycles was outstanding, in ns.
local function active_time(cycles)
    local sorted = {}
    for _, cycle in ipairs(cycles) do
        if column.status_ns[cycle + 1] then
            sorted[#sorted + 1] = cycle + 1
        end
    end
    table.sort(sorted, function(one, other)
        return column.first_ns[one] < column.first_ns[other]
    end)
    local active_ns, until_ns = 0, -math.huge
    for _, place in ipairs(sorted) do
        local begin_ns, end_ns = math.max(column.first_ns[place], until_ns), column.status_ns[place]
        if end_ns > begin_ns then
            active_ns = active_ns + end_ns - begin_ns
            until_ns = end_ns
        end
    end
    return active_ns
end

local function sorted_values(name, cycles)
    local values = {}
    for _, cycle in ipairs(cycles) do
        local value = column[name][cycle + 1]
        if value then
            values[#values + 1] = value
        end
    end
    table.sort(values)
    return values
end

local function latencies(cycles)
    local values = {}
    for _, cycle in ipairs(cycles) do
        local status_ns = column.status_ns[cycle + 1]
        if status_ns then
            values[#values + 1] = status_ns - column.first_ns[cycle + 1]
        end
    end
    table.sort(values)
    return values
end

-- The commonest block sizes of the cycles.
local function block_sizes(cycles)
    local counts, sizes = {}, {}
    for _, cycle in ipairs(cycles) do
        local bytes = column.block_size[cycle + 1]
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
    for place = 1, math.min(#sizes, 4) do
        local bytes = sizes[place]
        shown[place] = #sizes == 1 and size_text(bytes) or format("%s x%d", size_text(bytes), counts[bytes])
    end
    return table.concat(shown, ", ") .. (#sizes > 4 and " ..." or "")
end

-- Of the time of cycles that were alone, what was spent with none outstanding: idle before / (idle before + latency).
local function idle_share(cycles)
    local idle_ns, busy_ns = 0, 0
    for _, cycle in ipairs(cycles) do
        local place = cycle + 1
        if column.queue_depth[place] == 1 and column.idle_time[place] and column.status_ns[place] then
            idle_ns = idle_ns + column.idle_time[place]
            busy_ns = busy_ns + column.status_ns[place] - column.first_ns[place]
        end
    end
    return idle_ns + busy_ns > 0 and format("%.1f", 100 * idle_ns / (idle_ns + busy_ns)) or "-"
end

local function rate_text(bytes, active_ns)
    return active_ns > 0 and format("%.3f", bytes * 1000 / active_ns) or "-"
end

-- The tables of a session: narrow, for Wireshark's text windows break long lines.
local TABLES = {
    {
        heading = { "latency ms", "cycles", "p50", "p95", "p99", "max", "QD" },
        row = "  %6s %8s %8s %8s %8s %4s",
        cells = function(cycles)
            local latency, depth = latencies(cycles), sorted_values("queue_depth", cycles)
            return #cycles, milliseconds(percentile(latency, 0.5)), milliseconds(percentile(latency, 0.95)),
                milliseconds(percentile(latency, 0.99)), milliseconds(latency[#latency]), depth[#depth] or "-"
        end,
    },
    {
        heading = { "medians ms", "to data", "transfer", "status", "idle", "idle %", "MB/s" },
        row = "  %8s %8s %7s %8s %6s %8s",
        cells = function(cycles)
            local bytes = 0
            for _, cycle in ipairs(cycles) do
                bytes = bytes + (column.data_bytes[cycle + 1] or 0)
            end
            local function median(name)
                return milliseconds(percentile(sorted_values(name, cycles), 0.5))
            end
            return median("first_data_time"), median("transfer_time"), median("status_time"), median("idle_time"),
                idle_share(cycles), rate_text(bytes, active_time(cycles))
        end,
    },
    {
        heading = { "block sizes", "" },
        row = "  %s",
        cells = block_sizes,
    },
}

local NAME_WIDTH = 18

-- Adds the tables of a session's cycles, a line an operation, to the lines; a long name has a line of its own.
local function add_tables(lines, by_operation, operations)
    for _, shape in ipairs(TABLES) do
        local row = format("%%-%ds", NAME_WIDTH) .. shape.row
        lines[#lines + 1] = ""
        lines[#lines + 1] = (format(row, unpack_list(shape.heading)):gsub(" +$", ""))
        for _, operation in ipairs(operations) do
            local name = operation
            if #name > NAME_WIDTH then
                lines[#lines + 1], name = name, ""
            end
            lines[#lines + 1] = format(row, name, shape.cells(by_operation[operation]))
        end
    end
end

-- Groups a list by a key of its members; the groups with most members first.
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

local function statistics_text(cycles, filter)
    local lines = {
        "iSCSI cycles by session and operation, " .. (filter and "of packets with " .. filter or "of all packets"),
        "QD: largest queue depth. idle: before the command, none outstanding;",
        "idle %: of the time of tasks that were alone. MB/s: payload over the",
        "time in which a task was outstanding.",
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
        lines[#lines + 1] = format("\nsession %d: %s", number, sessions[number + 1].name)
        local shares = {}
        for _, stream in ipairs(streams) do
            shares[#shares + 1] = format("tcp.stream %d with %d cycles", stream, #by_stream[stream])
        end
        lines[#lines + 1] = table.concat(shares, ", ")
        local by_operation, operations = grouped(members, function(cycle)
            return column.operation[cycle + 1]
        end)
        table.sort(operations, function(one, other)
            local more, less = #by_operation[one], #by_operation[other]
            return more > less or (more == less and one < other)
        end)
        add_tables(lines, by_operation, operations)
        local read_bytes, written_bytes = 0, 0
        for _, cycle in ipairs(members) do
            local bytes = column.data_bytes[cycle + 1] or 0
            if column.is_write[cycle + 1] then
                written_bytes = written_bytes + bytes
            else
                read_bytes = read_bytes + bytes
            end
        end
        local active_ns = active_time(members)
        lines[#lines + 1] = format("\nall: %d cycles, active %.6f s, read %s MB/s, written %s MB/s",
            #members, active_ns / 1000000000, rate_text(read_bytes, active_ns), rate_text(written_bytes, active_ns))
    end
    if #numbers == 0 then
        lines[#lines + 1] = "\nno cycle whose status was shown"
    end
    return table.concat(lines, "\n") .. "\n"
end

-- Listens to the frames that a filter lets pass, and hands the text over whenever it is to be drawn.
local function listen(filter, draw)
    has_listener = true
    local cycles = {}
    local tap = Listener.new("frame", filter)
    function tap.packet(pinfo)
        collect(cycles, pinfo.number)
    end
    function tap.reset()
        cycles = {}
    end
    function tap.draw()
        draw(statistics_text(cycles, filter))
    end
    return tap
end

local function print_statistics(filter)
    listen(filter, function(text)
        io.stdout:write("\n", text)
    end)
end

local function open_statistics()
    local window = TextWindow.new("iSCSI cycles")
    local tap
    local function show(filter)
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
            show(filter ~= "" and filter or nil)
        end)
        window:add_button("All packets", function()
            show(nil)
        end)
    end
    show(nil)
end

-------------------------------------------------------------------------------------------------------------- the menu

local IS_WINDOWS = package.config:sub(1, 1) == "\\"

local function quoted(text)
    if IS_WINDOWS then
        return '"' .. text:gsub('["%%]', "") .. '"'
    end
    return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- Hands the open capture to `action`; asks for it where the system does not tell.
local function with_capture(action)
    local path = capture_path()
    if path then
        action(path)
    else
        new_dialog("Which file is the open capture?", function(answer)
            if answer and answer ~= "" then
                action(answer)
            end
        end, "Capture file")
    end
end

-- Runs iscsitrace; gives the command line, what it said, and whether it succeeded. Wireshark waits meanwhile.
local function run(path, arguments)
    local words = { quoted(iscsitrace.prefs.program) }
    for _, argument in ipairs(arguments) do
        words[#words + 1] = quoted(argument)
    end
    words[#words + 1] = quoted(path)
    local command = table.concat(words, " ")
    local pipe = io.popen(IS_WINDOWS and '"' .. command .. ' 2>&1"' or command .. " 2>&1", "r")
    if not pipe then
        return command, "it could not be started\n", false
    end
    local output = pipe:read("*a") or ""
    return command, output, pipe:close() and true or false
end

local function show_text(title, command, output)
    local window = TextWindow.new(title)
    window:set("$ " .. command .. "\n\n" .. output)
end

-- An entry that shows what a command prints.
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

-- An entry that opens the file that a command writes.
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

local function require_selected()
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

local function with_words(words, more)
    local all = {}
    for _, list in ipairs({ words, more }) do
        for _, word in ipairs(list) do
            all[#all + 1] = word
        end
    end
    return all
end

local function on_whole(...)
    local words = { ... }
    return function()
        return with_words(words, {})
    end
end

local function on_conversation(...)
    local words = { ... }
    return function()
        local packet = require_selected()
        return packet and with_words(words, { "-f", conversation_filter(packet) })
    end
end

local function inspected()
    local packet = require_selected()
    if not packet then
        return nil
    elseif packet.cycle then
        return { "inspect", "--cycle", format("%d", packet.cycle) }
    end
    return { "inspect", "--frame", format("%d", packet.frame) }
end

local function plotted()
    local packet = require_selected()
    if not packet then
        return nil
    elseif packet.cycle then
        return { "plot", "sequence", "--cycle", format("%d", packet.cycle) }
    end
    return { "plot", "sequence", "--connection", format("%d", packet.stream) }
end

local function filter_cycle()
    local packet = require_selected()
    if packet and packet.cycle then
        set_filter(format("iscsitrace.cycle == %d", packet.cycle))
        apply_filter()
    elseif packet then
        report_failure("iscsitrace: the selected packet completes no PDU of a numbered cycle.")
    end
end

local ENTRIES = {
    { "Diagnose the capture", text_entry("iscsitrace diagnose", on_whole("diagnose")) },
    { "Slowest cycles of the capture", text_entry("iscsitrace cycles", on_whole("cycles", "--top", "50", "--filter")) },
    { "Report of the capture", file_entry("iscsitrace report", ".html", on_whole("report")) },
    { "Diagnose the selected conversation", text_entry("iscsitrace diagnose", on_conversation("diagnose")) },
    { "Report of the selected conversation", file_entry("iscsitrace report", ".html", on_conversation("report")) },
    { "Inspect the selected cycle", text_entry("iscsitrace inspect", inspected) },
    { "Plot the selected cycle", file_entry("iscsitrace plot", ".png", plotted) },
    { "Filter the selected cycle", filter_cycle },
}

if is_gui then
    register_menu("iSCSI cycles", open_statistics, MENU_STAT_UNSORTED)
    for _, entry in ipairs(ENTRIES) do
        register_menu("iscsitrace/" .. entry[1], entry[2], MENU_TOOLS_UNSORTED)
        if register_packet_menu then
            register_packet_menu("iscsitrace/" .. entry[1], entry[2], "tcp.stream")
        end
    end
else
    -- tshark -q -z iscsitrace,cycles[,FILTER], or -X lua_script1:cycles where the file was given as -X lua_script:
    if register_stat_cmd_arg then
        register_stat_cmd_arg("iscsitrace,cycles", function(option)
            print_statistics(option and option:match("^iscsitrace,cycles,(.+)$"))
        end)
    end
    if ({ ... })[1] == "cycles" then
        print_statistics(nil)
    end
end
