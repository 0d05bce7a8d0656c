-- What Wireshark or tshark calls: the menu entries, the statistics, and the arguments of the script. The last part.
--
-- Never does anything else. The post-dissector registers itself, in `show`.

local menu = require("menu")
local statistics = require("statistics")

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
