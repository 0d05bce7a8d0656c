-- Statistics of the commands: latency, phases, idle time and throughput by session and operation, as text.
--
-- Never reads a packet: it takes the cycles from `state`. Leaves out commands whose status may be missing from the
-- capture.
--
-- Provides `open_statistics()` for Wireshark and `print_statistics(filter)` for tshark.

local cdb = require("cdb")
local state = require("state")
local waits = require("waits")

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
