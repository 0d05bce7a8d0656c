-- The path of the open capture, which Wireshark's Lua does not provide.
--
-- Never reads the capture beyond its first four bytes. Without the preference it works on Linux only.
--
-- Provides `path()`.

local command_line = require("command_line")
local fields = require("fields")

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
