-- The protocol `iscsitrace` in Wireshark: its fields, expert notes and preferences; and the fields of Wireshark that it
-- reads.
--
-- Never computes a value. The abbreviations (iscsitrace.cycle ...) are used in filters and columns: they never change.
--
-- Provides `protocol`, `own` (fields by name), `notes` (expert notes) and one extractor for each of Wireshark's fields.

local command_line = require("command_line")

set_plugin_info({
    version = "1",
    description = "iSCSI commands: phases, queue depth, idle time, bytes in flight",
    author = "iscsitrace",
    repository = "plugins/iscsitrace.lua",
})

local protocol = Proto("iscsitrace", "iscsitrace: iSCSI commands and their phases")

-- An extractor for a field of Wireshark. It finds nothing if this version lacks the field or no field of the plugin is
-- requested.
local function wireshark_field(name)
    local is_known, extractor = false, nil
    if not command_line.is_unused then
        is_known, extractor = pcall(Field.new, name)
    end
    return is_known and extractor or function() end
end

local own = {
    cycle = ProtoField.uint32("iscsitrace.cycle", "Cycle", base.DEC, nil, nil,
        "Number of the SCSI command in the capture, counted from 0 (cycles.cycle)"),
    phase = ProtoField.string("iscsitrace.phase", "Phase", base.ASCII,
        "Phase of the command that this PDU belongs to or ends; of the SCSI Command PDU: command"),
    operation = ProtoField.string("iscsitrace.operation", "Operation", base.ASCII,
        "SCSI operation without the length of the CDB: read, write, inquiry ... (cycles.operation)"),
    latency = ProtoField.relative_time("iscsitrace.latency", "Latency",
        "Command to status (cycles.latency_ns)"),
    first_data_time = ProtoField.relative_time("iscsitrace.first_data_time", "Time to first data",
        "Read: command to first data (cycles.request_ns). Write: command to first R2T (cycles.grant_ns)"),
    transfer_time = ProtoField.relative_time("iscsitrace.transfer_time", "Transfer",
        "Read: first to last data. Write: first R2T (without one: command) to last data (cycles.transfer_ns)"),
    status_time = ProtoField.relative_time("iscsitrace.status_time", "Status wait",
        "Last data to status; 0 if it came with the data (read: cycles.status_wait_ns, write: cycles.service_ns)"),
    idle_time = ProtoField.relative_time("iscsitrace.idle_time", "Idle before",
        "No commands of the session in flight: previous status to this command (previous cycle's turnaround_ns)"),
    block_size = ProtoField.uint32("iscsitrace.block_size", "I/O size", base.DEC, nil, nil,
        "Expected Data Transfer Length of the command in bytes (cycles.bytes)"),
    queue_depth = ProtoField.uint32("iscsitrace.queue_depth", "Queue depth", base.DEC, nil, nil,
        "Commands of the session in flight when this one was issued, including this one (cycles.queue_depth)"),
    owin = ProtoField.uint32("iscsitrace.owin", "owin at command", base.DEC, nil, nil,
        "Bytes in flight (sent, not acknowledged) from the sender of the command's data when the command was sent"),
    command_frame = ProtoField.framenum("iscsitrace.command_frame", "Command in", base.NONE, frametype.REQUEST, 0,
        "Frame with the first byte of the SCSI Command PDU"),
    first_data_frame = ProtoField.framenum("iscsitrace.first_data_frame", "First data in", base.NONE, frametype.NONE, 0,
        "Frame with the first byte of the first data PDU"),
    status_frame = ProtoField.framenum("iscsitrace.status_frame", "Status in", base.NONE, frametype.RESPONSE, 0,
        "Frame that completes the status. Earlier frames show it only after the whole capture was read"),
    budget_owner = ProtoField.string("iscsitrace.budget_owner", "Time attributed to", base.ASCII,
        "Part of the time breakdown with most of the time since the connection's previous packet (from the sidecar)"),
    cwnd_estimate = ProtoField.uint32("iscsitrace.cwnd_estimate", "cwnd, estimated", base.DEC, nil, nil,
        "Estimated congestion window of the sender in bytes, where its sending shows it (from the sidecar)"),
    loss_class = ProtoField.string("iscsitrace.loss_class", "Loss class", base.ASCII,
        "Cause of this retransmission: fast, timeout, tail_probe or unknown (from the sidecar)"),
    violation = ProtoField.string("iscsitrace.violation", "Violation of RFC 7143", base.ASCII,
        "The rules that this frame shows to be broken, each with its name (from the sidecar)"),
}
protocol.fields = own

local notes = {
    sidecar = ProtoExpert.new("iscsitrace.sidecar_refused", "The sidecar is not used",
        expert.group.COMMENTS_GROUP, expert.severity.WARN),
    numbers = ProtoExpert.new("iscsitrace.numbers_unknown", "Cycle numbers are left out: commands are missing",
        expert.group.SEQUENCE, expert.severity.NOTE),
}
protocol.experts = notes

protocol.prefs.program = Pref.string("iscsitrace program", "iscsitrace",
    "Program that the menu entries run: a name on the PATH, or a path")
protocol.prefs.sidecar = Pref.string("Sidecar file", "",
    "Facts per frame from `iscsitrace export --sidecar`. Empty: CAPTURE.iscsitrace beside the capture, if it exists")
protocol.prefs.capture = Pref.string("Capture file", "",
    "Path of the open capture, for the menu entries and the sidecar. Empty: detected automatically (Linux only)")

return {
    protocol = protocol,
    own = own,
    notes = notes,
    -- every extractor costs time on every packet: add one only if no other field shows the same
    tcp_stream = wireshark_field("tcp.stream"),
    tcp_length = wireshark_field("tcp.len"),
    tcp_sequence = wireshark_field("tcp.seq"),
    tcp_acknowledgment = wireshark_field("tcp.ack"),
    tcp_segment = wireshark_field("tcp.segment"),
    tcp_fin = wireshark_field("tcp.connection.fin"),
    tcp_rst = wireshark_field("tcp.connection.rst"),
    iscsi_pdu = wireshark_field("iscsi"),
    iscsi_header_digest = wireshark_field("iscsi.headerdigest32"),
    iscsi_data_digest = wireshark_field("iscsi.datadigest32"),
}
