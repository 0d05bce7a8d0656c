-- The globals of Wireshark's Lua that the plugin uses.
std = "lua52"
max_line_length = 120
read_globals = {
    "Dissector", "Field", "Listener", "MENU_STAT_UNSORTED", "MENU_TOOLS_UNSORTED", "NSTime", "Pref", "Proto", "ProtoExpert",
    "ProtoField", "Struct", "TextWindow", "apply_filter", "base", "browser_open_url", "expert", "frametype", "get_filter",
    "gui_enabled", "new_dialog", "persconffile_path", "register_menu", "register_packet_menu", "register_postdissector",
    "register_stat_cmd_arg", "report_failure", "retap_packets", "set_filter", "set_plugin_info",
}
