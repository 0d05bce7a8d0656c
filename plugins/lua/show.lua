-- What the plugin adds to the packet details, and the post-dissector that Wireshark calls for every packet.
--
-- Never computes a value: `packets` reads each frame once, in order, and this part looks the results up. So one pass
-- and two passes show the same, except for a status that a single pass has not reached yet.
--
-- Provides `selected()`, the packet for the menu entries.

local command_line = require("command_line")
local commands = require("commands")
local fields = require("fields")
local packets = require("packets")
local serial = require("serial")
local sidecar = require("sidecar")
local state = require("state")

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
