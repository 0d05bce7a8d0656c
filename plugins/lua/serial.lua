-- Arithmetic of 32-bit sequence numbers (RFC 1982): TCP's, CmdSN, StatSN, DataSN.
--
-- Never knows which numbers they are. Provides `MODULUS` and `ahead(number, of)`.

local MODULUS = 4294967296

-- The distance from one sequence number to another: positive if `number` is after `of`, negative if before.
local function ahead(number, of)
    local distance = (number - of) % MODULUS
    return distance < MODULUS / 2 and distance or distance - MODULUS
end

return { MODULUS = MODULUS, ahead = ahead }
