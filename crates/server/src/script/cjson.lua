-- JSON, with the functions and the settings of the library cjson of Redis.
local type, tostring, tonumber, next, error, setmetatable, select =
    type, tostring, tonumber, next, error, setmetatable, select
local format, char, sub, find, gsub, concat, floor, huge =
    string.format, string.char, string.sub, string.find, string.gsub, table.concat,
    math.floor, math.huge

local null = cjson_null
cjson_null = nil

local escapes = {
    ['"'] = '\\"', ["\\"] = "\\\\", ["/"] = "\\/", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n",
    ["\r"] = "\\r", ["\t"] = "\\t", ["\127"] = "\\u007f",
}
for code = 0, 31 do
    local c = char(code)
    escapes[c] = escapes[c] or format("\\u%04x", code)
end

local function quoted(text)
    return '"' .. gsub(text, '[%c"\\/\127]', escapes) .. '"'
end

local function new()
    local settings = {
        encode_depth = 1000, decode_depth = 1000, precision = 14, sparse_convert = false,
        sparse_ratio = 2, sparse_safe = 10, encode_invalid = false, decode_invalid = true,
        keep_buffer = true,
    }

    -- The length of an array; nil if the table is none.
    local function length(value)
        local count, most = 0, 0
        for key in next, value do
            if type(key) ~= "number" or key < 1 or floor(key) ~= key then return nil end
            count = count + 1
            if key > most then most = key end
        end
        if settings.sparse_ratio > 0 and most > settings.sparse_safe
            and most > count * settings.sparse_ratio then
            if not settings.sparse_convert then
                error("Cannot serialise table: excessively sparse array", 0)
            end
            return nil
        end
        return most
    end

    local function number(value)
        if value ~= value or value == huge or value == -huge then
            if settings.encode_invalid == "null" then return "null" end
            if not settings.encode_invalid then
                error("Cannot serialise number: must not be NaN or Inf", 0)
            end
        end
        return format("%." .. settings.precision .. "g", value)
    end

    local encode
    local function object(value, out, depth)
        local begins = "{"
        for key, item in next, value do
            out[#out + 1] = begins
            begins = ","
            if type(key) == "number" then
                out[#out + 1] = '"' .. number(key) .. '":'
            elseif type(key) == "string" then
                out[#out + 1] = quoted(key) .. ":"
            else
                error("Cannot serialise " .. type(key)
                    .. ": table key must be a number or string", 0)
            end
            encode(item, out, depth)
        end
        out[#out + 1] = begins == "{" and "{}" or "}"
    end

    encode = function(value, out, depth)
        local kind = type(value)
        if value == nil or value == null then
            out[#out + 1] = "null"
        elseif kind == "string" then
            out[#out + 1] = quoted(value)
        elseif kind == "number" then
            out[#out + 1] = number(value)
        elseif kind == "boolean" then
            out[#out + 1] = value and "true" or "false"
        elseif kind == "table" then
            depth = depth + 1
            if depth > settings.encode_depth then
                error("Cannot serialise, excessive depth (" .. depth .. ")", 0)
            end
            local len = length(value)
            if not len or len == 0 then return object(value, out, depth) end
            for at = 1, len do
                out[#out + 1] = at == 1 and "[" or ","
                encode(value[at], out, depth)
            end
            out[#out + 1] = "]"
        else
            error("Cannot serialise " .. kind .. ": type not supported", 0)
        end
    end

    local text, at, depth

    local function fail(what, found)
        error("Expected " .. what .. " but found " .. found .. " at character " .. at, 0)
    end

    -- The name of what stands here, for an error.
    local function token()
        at = find(text, "[^ \t\r\n]", at) or #text + 1
        local c = sub(text, at, at)
        local names = {
            [""] = "T_END", ["{"] = "T_OBJ_BEGIN", ["}"] = "T_OBJ_END", ["["] = "T_ARR_BEGIN",
            ["]"] = "T_ARR_END", [":"] = "T_COLON", [","] = "T_COMMA", ['"'] = "T_STRING",
        }
        if names[c] then return names[c] end
        if find(text, "^true", at) or find(text, "^false", at) then return "T_BOOLEAN" end
        if find(text, "^null", at) then return "T_NULL" end
        if find(text, "^[-+0-9]", at) or find(text, "^[nNiI]", at) then return "T_NUMBER" end
        return "invalid token"
    end

    local function utf8(code)
        if code < 0x80 then return char(code) end
        if code < 0x800 then return char(0xC0 + floor(code / 64), 0x80 + code % 64) end
        if code < 0x10000 then
            return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
        end
        return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64,
            0x80 + floor(code / 64) % 64, 0x80 + code % 64)
    end

    local unescapes = {
        ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t",
    }

    local function string_here()
        local out, from = {}, at + 1
        while true do
            local stop = find(text, '["\\%c]', from)
            if not stop then
                at = #text + 1
                fail("value", "unexpected end of string")
            end
            out[#out + 1] = sub(text, from, stop - 1)
            local c = sub(text, stop, stop)
            if c == '"' then
                at = stop + 1
                return concat(out)
            end
            at = stop
            if c ~= "\\" then fail("value", "invalid token") end
            local escape = sub(text, stop + 1, stop + 1)
            from = stop + 2
            if unescapes[escape] then
                out[#out + 1] = unescapes[escape]
            elseif escape == "u" then
                local high = tonumber((find(text, "^%x%x%x%x", from)) and sub(text, from, from + 3)
                    or "x", 16)
                if not high then fail("value", "invalid unicode escape code") end
                from = from + 4
                if high >= 0xDC00 and high < 0xE000 then
                    fail("value", "invalid unicode escape code")
                elseif high >= 0xD800 and high < 0xDC00 then
                    local low = find(text, "^\\u%x%x%x%x", from)
                        and tonumber(sub(text, from + 2, from + 5), 16)
                    if not low or low < 0xDC00 or low >= 0xE000 then
                        fail("value", "invalid unicode escape code")
                    end
                    from = from + 6
                    high = 0x10000 + (high - 0xD800) * 1024 + (low - 0xDC00)
                end
                out[#out + 1] = utf8(high)
            else
                fail("value", "invalid escape code")
            end
        end
    end

    local value_here

    local function enter()
        depth = depth + 1
        if depth > settings.decode_depth then
            error("Found too many nested data structures (" .. depth .. ")", 0)
        end
    end

    local function object_here()
        enter()
        local out = {}
        at = at + 1
        if token() == "T_OBJ_END" then
            at, depth = at + 1, depth - 1
            return out
        end
        while true do
            local kind = token()
            if kind ~= "T_STRING" then fail("object key string", kind) end
            local key = string_here()
            kind = token()
            if kind ~= "T_COLON" then fail("colon", kind) end
            at = at + 1
            out[key] = value_here(token())
            kind = token()
            at = at + 1
            if kind == "T_OBJ_END" then
                depth = depth - 1
                return out
            elseif kind ~= "T_COMMA" then
                at = at - 1
                fail("comma or object end", kind)
            end
        end
    end

    local function array_here()
        enter()
        local out, len = {}, 0
        at = at + 1
        if token() == "T_ARR_END" then
            at, depth = at + 1, depth - 1
            return out
        end
        while true do
            len = len + 1
            out[len] = value_here(token())
            local kind = token()
            at = at + 1
            if kind == "T_ARR_END" then
                depth = depth - 1
                return out
            elseif kind ~= "T_COMMA" then
                at = at - 1
                fail("comma or array end", kind)
            end
        end
    end

    value_here = function(kind)
        if kind == "T_STRING" then return string_here() end
        if kind == "T_OBJ_BEGIN" then return object_here() end
        if kind == "T_ARR_BEGIN" then return array_here() end
        if kind == "T_NULL" then
            at = at + 4
            return null
        elseif kind == "T_BOOLEAN" then
            local is_true = sub(text, at, at) == "t"
            at = at + (is_true and 4 or 5)
            return is_true
        elseif kind == "T_NUMBER" then
            local _, stop = find(text, "^[-+]?0[xX]%x+", at)
            if not stop then _, stop = find(text, "^[-+]?%d*%.?%d*[eE][-+]?%d+", at) end
            if not stop then _, stop = find(text, "^[-+]?%d+%.?%d*", at) end
            local found = stop and tonumber((gsub(sub(text, at, stop), "^%+", "")))
            if found and (settings.decode_invalid or not find(text, "^[-+]?0[%dxX]", at)) then
                at = stop + 1
                return found
            end
            kind = "invalid number"
        end
        fail("value", kind)
    end

    local function check(name, value, least, most)
        value = tonumber(value)
        if not value or value < least or value > most or floor(value) ~= value then
            error("bad argument #1 to '" .. name .. "' (expected integer between " .. least
                .. " and " .. most .. ")", 3)
        end
        return value
    end

    local function flag(name, key, others)
        return function(value)
            if value ~= nil then
                if type(value) ~= "boolean" and value ~= "on" and value ~= "off"
                    and not (others and value == others) then
                    error("bad argument #1 to '" .. name .. "' (invalid option)", 2)
                end
                if value == "on" then value = true elseif value == "off" then value = false end
                settings[key] = value
            end
            return settings[key]
        end
    end

    local function count(name, key, least, most)
        return function(value)
            if value ~= nil then settings[key] = check(name, value, least, most) end
            return settings[key]
        end
    end

    return {
        encode = function(...)
            if select("#", ...) ~= 1 then
                error("bad argument #1 to 'encode' (expected 1 argument)", 2)
            end
            local out = {}
            encode((...), out, 0)
            return concat(out)
        end,
        decode = function(...)
            if select("#", ...) ~= 1 then
                error("bad argument #1 to 'decode' (expected 1 argument)", 2)
            end
            text = ...
            if type(text) == "number" then text = tostring(text) end
            if type(text) ~= "string" then
                error("bad argument #1 to 'decode' (string expected, got " .. type(text) .. ")", 2)
            end
            at, depth = 1, 0
            local value = value_here(token())
            local kind = token()
            if kind ~= "T_END" then fail("the end", kind) end
            text = nil
            return value
        end,
        encode_sparse_array = function(convert, ratio, safe)
            if convert ~= nil then settings.sparse_convert = convert and true or false end
            if ratio ~= nil then
                settings.sparse_ratio = check("encode_sparse_array", ratio, 0, 2147483647)
            end
            if safe ~= nil then
                settings.sparse_safe = check("encode_sparse_array", safe, 0, 2147483647)
            end
            return settings.sparse_convert, settings.sparse_ratio, settings.sparse_safe
        end,
        encode_max_depth = count("encode_max_depth", "encode_depth", 1, 2147483647),
        decode_max_depth = count("decode_max_depth", "decode_depth", 1, 2147483647),
        encode_number_precision = count("encode_number_precision", "precision", 1, 14),
        encode_keep_buffer = flag("encode_keep_buffer", "keep_buffer"),
        encode_invalid_numbers = flag("encode_invalid_numbers", "encode_invalid", "null"),
        decode_invalid_numbers = flag("decode_invalid_numbers", "decode_invalid"),
        new = new,
        null = null,
        _NAME = "cjson",
        _VERSION = "2.1.0",
    }
end

cjson = new()
