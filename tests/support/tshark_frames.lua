-- Prints the number of each display filter, given as arguments, with the number of each frame that it finds.
for number, filter in ipairs({ ... }) do
    local tap = Listener.new("frame", filter)
    function tap.packet(pinfo)
        print(number, pinfo.number)
    end
end
