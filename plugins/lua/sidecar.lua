-- The sidecar: facts per frame that need the whole capture, from `iscsitrace export --sidecar`.
--
-- Never uses part of a sidecar: one with an error, or of another capture, is refused with one line on standard error
-- and an expert note on the first frame.
--
-- Provides `load(pinfo)`, which fills in `state.sidecar`.

local capture_file = require("capture_file")
local fields = require("fields")
local state = require("state")

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
