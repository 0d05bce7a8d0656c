-- How long each command waited: its latency, or, without a status, the least time for which it was in flight; and the
-- percentiles of these times. The rule is that of iscsitrace/measure/waits.py.
--
-- Never reads a packet. Provides `wait_of`, `latencies` and `percentile`.

local connections = require("connections")
local state = require("state")

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
