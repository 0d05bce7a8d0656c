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
