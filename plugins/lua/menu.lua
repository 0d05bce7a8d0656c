-- The menu entries, which run iscsitrace on the open capture or on the selected packet's conversation or command.
--
-- Never analyses anything: the program iscsitrace does. Never registers the entries: `register` does.
--
-- Provides `entries`, a list of titles and actions.

local capture_file = require("capture_file")
local fields = require("fields")
local show = require("show")

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
