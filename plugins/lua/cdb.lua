-- The command descriptor block in a SCSI Command PDU.
--
-- Never keeps a table of operations: the generated part `operations` has it. Names an operation as the reader does
-- (core/wire/src/cdb/commands.rs).
--
-- Provides `operation_of(header, device_type)` and `is_standard_inquiry(header)`, and by operation `moves_blocks` and
-- `is_io`.

local operations = require("operations")

local byte = string.byte
local by_code, by_device_type, by_service_action =
    operations.by_code, operations.by_device_type, operations.by_service_action

local INQUIRY, VARIABLE_LENGTH_CDB = 0x12, 0x7f

-- The operation of the CDB in a header of 48 bytes. `device_type` is the volume's, from INQUIRY data, or nil.
local function operation_of(header, device_type)
    local code, second = byte(header, 33, 34)
    local of_device = by_device_type[code]
    local name = of_device and of_device[device_type]
    if name then
        return name
    end
    local of_action = by_service_action[code]
    if of_action then
        local action = second % 32
        if code == VARIABLE_LENGTH_CDB then
            local high, low = byte(header, 41, 42)
            action = high * 256 + low
        end
        name = of_action[action]
    end
    return name or by_code[code] or "other"
end

-- Whether the CDB asks for standard INQUIRY data: EVPD is clear (SPC-4, section 6.6).
local function is_standard_inquiry(header)
    local code, second = byte(header, 33, 34)
    return code == INQUIRY and second % 2 == 0
end

return {
    operation_of = operation_of, is_standard_inquiry = is_standard_inquiry, moves_blocks = operations.moves_blocks,
    is_io = operations.is_io,
}
