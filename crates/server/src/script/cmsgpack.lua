-- MessagePack, with the functions of the library cmsgpack of Redis.
local type, next, error, select, floor, huge = type, next, error, select, math.floor, math.huge
local char, byte, sub, concat =
    string.char, string.byte, string.sub, table.concat
local pack_bytes, unpack_bytes = struct.pack, struct.unpack

-- Tables that are nested deeper are packed as nil.
local DEPTH_MAX = 16

-- A whole number of 2, 4 or 8 bytes, the highest first.
local function whole(value, count)
    if count == 2 then return char(floor(value / 256), value % 256) end
    if count == 8 then return whole(floor(value / 2 ^ 32), 4) .. whole(value % 2 ^ 32, 4) end
    return char(floor(value / 2 ^ 24), floor(value / 2 ^ 16) % 256, floor(value / 256) % 256,
        value % 256)
end

local function pack_number(value)
    if floor(value) ~= value or value >= 2 ^ 63 or value < -2 ^ 63 then
        local short = pack_bytes(">f", value)
        if unpack_bytes(">f", short) == value then return "\202" .. short end
        return "\203" .. pack_bytes(">d", value)
    elseif value >= 0 then
        if value < 128 then return char(value) end
        if value < 256 then return "\204" .. char(value) end
        if value < 65536 then return "\205" .. whole(value, 2) end
        if value < 2 ^ 32 then return "\206" .. whole(value, 4) end
        return "\207" .. whole(value, 8)
    elseif value >= -32 then
        return char(256 + value)
    elseif value >= -128 then
        return "\208" .. char(256 + value)
    elseif value >= -32768 then
        return "\209" .. whole(65536 + value, 2)
    elseif value >= -2 ^ 31 then
        return "\210" .. whole(2 ^ 32 + value, 4)
    end
    -- Split, since 2^64 is no exact sum with it.
    local low = value % 2 ^ 32
    return "\211" .. whole((value - low) / 2 ^ 32 % 2 ^ 32, 4) .. whole(low, 4)
end

local function pack_length(len, small, small_max, short, middle, long)
    if len <= small_max then return char(small + len) end
    if short and len < 256 then return char(short) .. char(len) end
    if len < 65536 then return char(middle) .. whole(len, 2) end
    return char(long) .. whole(len, 4)
end

-- The length of an array; nil if the table is none.
local function length(value)
    local count, most = 0, 0
    for key in next, value do
        if type(key) ~= "number" or key <= 0 or floor(key) ~= key then return nil end
        count = count + 1
        if key > most then most = key end
    end
    return count == most and most or nil
end

local function pack(value, out, depth)
    local kind = type(value)
    if kind == "string" then
        out[#out + 1] = pack_length(#value, 160, 31, 217, 218, 219)
        out[#out + 1] = value
    elseif kind == "number" then
        out[#out + 1] = pack_number(value)
    elseif kind == "boolean" then
        out[#out + 1] = value and "\195" or "\194"
    elseif kind == "table" and depth < DEPTH_MAX then
        local len = length(value)
        if len then
            out[#out + 1] = pack_length(len, 144, 15, nil, 220, 221)
            for at = 1, len do pack(value[at], out, depth + 1) end
            return
        end
        local count = 0
        for _ in next, value do count = count + 1 end
        out[#out + 1] = pack_length(count, 128, 15, nil, 222, 223)
        for key, item in next, value do
            pack(key, out, depth + 1)
            pack(item, out, depth + 1)
        end
    else
        out[#out + 1] = "\192"
    end
end

local text, at

-- Steps over bytes; returns where the first and the last one are.
local function pass(count)
    if at + count - 1 > #text then error("Missing bytes in input.", 0) end
    local from = at
    at = at + count
    return from, at - 1
end

local function take(count)
    return sub(text, pass(count))
end

-- A whole number of 1, 2, 4 or 8 bytes.
local function number_of(count)
    if count == 8 then return number_of(4) * 2 ^ 32 + number_of(4) end
    local a, b, c, d = byte(text, pass(count))
    if count == 1 then return a end
    if count == 2 then return a * 256 + b end
    return ((a * 256 + b) * 256 + c) * 256 + d
end

local function signed(count)
    local value = number_of(count)
    return value >= 2 ^ (8 * count - 1) and value - 2 ^ (8 * count) or value
end

local unpack_one

local function array(len)
    local out = {}
    for i = 1, len do out[i] = unpack_one() end
    return out
end

local function map(len)
    local out = {}
    for _ = 1, len do
        local key = unpack_one()
        out[key] = unpack_one()
    end
    return out
end

local forms = {
    [192] = function() return nil end,
    [194] = function() return false end,
    [195] = function() return true end,
    [196] = function() return take(number_of(1)) end,
    [197] = function() return take(number_of(2)) end,
    [198] = function() return take(number_of(4)) end,
    [202] = function() return (unpack_bytes(">f", take(4))) end,
    [203] = function() return (unpack_bytes(">d", take(8))) end,
    [204] = function() return number_of(1) end,
    [205] = function() return number_of(2) end,
    [206] = function() return number_of(4) end,
    [207] = function() return signed(8) end,
    [208] = function() return signed(1) end,
    [209] = function() return signed(2) end,
    [210] = function() return signed(4) end,
    [211] = function()
        local high = signed(4)
        return high * 2 ^ 32 + number_of(4)
    end,
    [217] = function() return take(number_of(1)) end,
    [218] = function() return take(number_of(2)) end,
    [219] = function() return take(number_of(4)) end,
    [220] = function() return array(number_of(2)) end,
    [221] = function() return array(number_of(4)) end,
    [222] = function() return map(number_of(2)) end,
    [223] = function() return map(number_of(4)) end,
}

unpack_one = function()
    local first = number_of(1)
    if first < 128 then return first end
    if first >= 224 then return first - 256 end
    if first < 144 then return map(first - 128) end
    if first < 160 then return array(first - 144) end
    if first < 192 then return take(first - 160) end
    local form = forms[first]
    if not form then error("Bad data format in input.", 0) end
    return form()
end

-- Unpacks at most `most` values from the byte after `offset`.
local function unpack_some(input, most, offset)
    if type(input) ~= "string" then
        error("bad argument #1 to 'unpack' (string expected, got " .. type(input) .. ")", 3)
    end
    if offset < 0 or most < 0 then
        error("Invalid request to unpack with offset of " .. offset .. " and limit of " .. #input
            .. ".", 0)
    elseif offset > #input then
        error("Start offset " .. offset .. " greater than input length " .. #input .. ".", 0)
    end
    text, at = input, offset + 1
    local values, count = {}, 0
    while at <= #text and count < most do
        count = count + 1
        values[count] = unpack_one()
    end
    local stop = at > #text and -1 or at - 1
    text = nil
    return values, count, stop
end

local spread = unpack

cmsgpack = {
    pack = function(...)
        local count = select("#", ...)
        if count == 0 then
            error("bad argument #0 to 'pack' (MessagePack pack needs input.)", 2)
        end
        local out, values = {}, { ... }
        for i = 1, count do pack(values[i], out, 0) end
        return concat(out)
    end,
    unpack = function(input)
        local values, count = unpack_some(input, huge, 0)
        return spread(values, 1, count)
    end,
    unpack_one = function(input, offset)
        local values, count, stop = unpack_some(input, 1, offset or 0)
        return stop, spread(values, 1, count)
    end,
    unpack_limit = function(input, most, offset)
        local values, count, stop = unpack_some(input, most, offset or 0)
        return stop, spread(values, 1, count)
    end,
    _NAME = "cmsgpack",
    _VERSION = "lua-cmsgpack 0.4.0",
}
