//! Random scripts: they run commands of all families and tell what they saw, convert values of all
//! kinds to replies and back, and use the libraries; some are wrong.

use rhumb_testkit::random::Random;

type Command = Vec<Vec<u8>>;

/// Scripts that are run by their digests, and these.
const KEPT: [(&str, &str); 3] = [
    ("return redis.call('set',KEYS[1],ARGV[1])", "c686f316aaf1eb01d5a4de1b0b63cd233010e63d"),
    (
        "return {KEYS[1] or false,ARGV[1] or false,#ARGV}",
        "667159dd70a9683baf0382c21695dd4de37d26a6",
    ),
    ("return redis.pcall('incrby',KEYS[1],ARGV[1])", "9935086f4612003ee72edfb91c5c570aee4d9e46"),
];

/// Tells a value with its types, tables in the order of their keys, or of their values where the
/// reply has no order. One field of an error is Redis' own affair.
pub(crate) const SHOW: &str = "
local function show(v, unordered)
  if v == cjson.null then return 'null' end
  if type(v) ~= 'table' then return type(v) .. ':' .. tostring(v) end
  local keys, out = {}, {}
  for k in pairs(v) do if k ~= 'ignore_error_stats_update' then keys[#keys + 1] = k end end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for _, k in ipairs(keys) do
    out[#out + 1] = (unordered and '' or tostring(k) .. '=') .. show(v[k])
  end
  if unordered then table.sort(out) end
  return '{' .. table.concat(out, ',') .. '}'
end
";

/// Goes through the commands in `ARGV`: each is 1 if its reply has no order or 0, its length, and
/// its words.
pub(crate) const EACH: &str = "
local function each(run)
  local at = 1
  while ARGV[at] do
    local words, len = {}, tonumber(ARGV[at + 1])
    for n = 1, len do words[n] = ARGV[at + 1 + n] end
    run(words, ARGV[at] == '1')
    at = at + 2 + len
  end
end
";

/// What is done with all commands.
const BODIES: [&str; 7] = [
    "local out = {} each(function(w, u) out[#out + 1] = show(redis.pcall(unpack(w)), u) end)
     return out",
    "redis.setresp(3) local out = {}
     each(function(w, u) out[#out + 1] = show(redis.pcall(unpack(w)), u) end) return out",
    "local out = {} each(function(w, u) local ok, r = pcall(redis.call, unpack(w))
     out[#out + 1] = tostring(ok) .. show(r, u) end) return out",
    "local last each(function(w, u) local r = redis.call(unpack(w)) last = u and show(r, u) or r
     end) return last",
    "local last each(function(w, u) local r = redis.pcall(unpack(w)) last = u and show(r, u) or r
     end) return last",
    "local out = {} each(function(w, u) local r = redis.pcall(unpack(w))
     if type(r) == 'table' and (r.err or r.ok) then out[#out + 1] = show(r)
     else if u and type(r) == 'table' then table.sort(r) end
       out[#out + 1] = cjson.encode(r) out[#out + 1] = show(cjson.decode(cjson.encode({r}))) end
     end) return out",
    "local out = {} each(function(w, u) local r = redis.pcall(unpack(w))
     if type(r) == 'table' and (r.err or r.ok) then out[#out + 1] = show(r)
     else if u and type(r) == 'table' then table.sort(r) end
       out[#out + 1] = cmsgpack.pack(r) out[#out + 1] = show({cmsgpack.unpack(cmsgpack.pack(r, 1))})
     end end) return out",
];

/// Scripts that only convert, or are wrong. Redis 7.0.15 crashes where a table without `err` is
/// raised.
const ALONE: [&str; 43] = [
    "return 3.99",
    "return -3.99",
    "return -0",
    "return 1e15",
    "return 2^53",
    "return true",
    "return false",
    "return nil",
    "return {1,2,nil,4}",
    "return {1,{2,{3,{}}},'x'}",
    "return {true,false,1.5,'a'}",
    "return {ok='fine'}",
    "return {err='My fault'}",
    "return {err='ERR with\\r\\nlines'}",
    "return {ok='with\\r\\nlines'}",
    "return {a=1,b=2}",
    "return {double=3.5}",
    "return {double='x'}",
    "return {map={}}",
    "return {map={a={double=1.25}}}",
    "return {set={a=true}}",
    "return {big_number='123456789012345678901234567890'}",
    "return {verbatim_string={format='txt',string='text'}}",
    "redis.setresp(3) return {true,false,{double=0.1},{map={x=1}}}",
    "return redis.status_reply('S')",
    "return redis.error_reply('E')",
    "return redis.error_reply('-CODE text')",
    "return {redis.error_reply('one'),redis.status_reply('two')}",
    "error('plain')",
    "error({err='CODE of a table'})",
    "return redis.call()",
    "return redis.call('nosuch')",
    "return redis.pcall('get')",
    "return redis.call('set', {}, 1)",
    "return redis.pcall('set', 'k1', 1.5)",
    "return redis.call('get', true)",
    "return unknown",
    "unknown = 1",
    "return 1 +",
    "return redis.sha1hex(ARGV[1] or '')",
    "return redis.setresp(4)",
    "return {redis.LOG_DEBUG, redis.LOG_WARNING, redis.REDIS_VERSION_NUM ~= nil}",
    "local t = {} t.x = t return #t",
];

/// Numbers for expressions.
const NUMBERS: [&str; 12] =
    ["0", "1", "-1", "255", "65536", "2^31", "-2^31", "2^32-1", "1.5", "2^53", "1e100", "-7.25"];

/// Expressions of two numbers, `A` and `B`.
const EXPRESSIONS: [&str; 26] = [
    "bit.band(A,B)",
    "bit.bor(A,B)",
    "bit.bxor(A,B)",
    "bit.bnot(A)",
    "bit.lshift(A,3)",
    "bit.rshift(A,3)",
    "bit.arshift(A,3)",
    "bit.rol(A,5)",
    "bit.ror(A,5)",
    "bit.bswap(A)",
    "bit.tohex(A)",
    "bit.tobit(A)",
    "struct.pack('>i4<I2bB', 1, 2, -3, 200)",
    "struct.pack('>d<f', A, B)",
    "show({struct.unpack('<d', struct.pack('<d', A))})",
    "show({struct.unpack('>I2sI2', struct.pack('>I2sI2', 7, 'text', 9))})",
    "struct.size('>i8!4ibs')",
    "cjson.encode({A,B,{A}})",
    "cjson.encode({key=A})",
    "show(cjson.decode('[10.25,{\"x\":[true,null,\"\\\\u00e9\"]}]'))",
    "cmsgpack.pack(A,B)",
    "show({cmsgpack.unpack(cmsgpack.pack(A,{B},'x',false))})",
    "string.format('%d %5.2f %x %s %q', 7, 1.5, 255, tostring(A), 'q')",
    "tostring(A) .. '|' .. tostring(math.abs(A) < 2^53 and A % 7) .. '|' .. tostring(A / 3)",
    "tostring(math.floor(A)) .. tostring(math.max(A,B)) .. tostring(A < B)",
    "('x'):rep(3) .. ('hello'):upper():gsub('L+', '%0%0') .. #tostring(A)",
];

/// Replies of these have no order in Redis.
const UNORDERED: [&str; 12] = [
    "keys",
    "smembers",
    "hkeys",
    "hvals",
    "hgetall",
    "sinter",
    "sunion",
    "sdiff",
    "srandmember",
    "spop",
    "hrandfield",
    "zrandmember",
];

/// Scripts may call these since Redis 7.2.
const WAITING: [&str; 6] = ["blmove", "blpop", "brpop", "brpoplpush", "bzpopmax", "bzpopmin"];

/// Returns true for a command that a script may call here and not in Redis 7.0.
fn is_refused_there(command: &[Vec<u8>]) -> bool {
    WAITING.iter().any(|name| command[0].eq_ignore_ascii_case(name.as_bytes()))
}

/// Returns true for a command whose reply is in no order in Redis.
fn is_unordered(command: &[Vec<u8>]) -> bool {
    UNORDERED.iter().any(|name| command[0].eq_ignore_ascii_case(name.as_bytes()))
}

fn words(words: &[&str]) -> Command {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// A command of this family; `some` makes the commands that scripts run.
pub(crate) fn command(random: &mut Random, mut some: impl FnMut() -> Command) -> Command {
    match random.index(12) {
        0..=6 => running(random, &mut some),
        7..=8 => {
            let script = ALONE[random.index(ALONE.len())];
            words(&[eval(random), script, "0", "text"])
        }
        9 => {
            let mut number = || NUMBERS[random.index(NUMBERS.len())];
            let both = format!("local A, B = {}, {} ", number(), number());
            let expression = EXPRESSIONS[random.index(EXPRESSIONS.len())];
            words(&["EVAL", &format!("{SHOW}{both}return {expression}"), "0"])
        }
        _ => kept(random),
    }
}

fn eval(random: &mut Random) -> &'static str {
    ["EVAL", "EVAL", "EVAL", "eval", "EVAL_RO"][random.index(5)]
}

/// A script that runs one to four commands.
fn running(random: &mut Random, some: &mut impl FnMut() -> Command) -> Command {
    let body = BODIES[random.index(BODIES.len())];
    let script = format!("{SHOW}{EACH}{body}");
    let commands: Vec<Command> = std::iter::repeat_with(some)
        .filter(|command| !is_refused_there(command))
        .take(1 + random.index(4))
        .collect();
    // Some of the keys that it uses are named, and some that it does not use.
    let keys: Vec<&Vec<u8>> = commands.iter().filter_map(|command| command.get(1)).collect();
    let named = random.index(keys.len() + 1);
    let mut all = words(&[eval(random), &script, &named.to_string()]);
    all.extend(keys[..named].iter().map(|key| (*key).clone()));
    for command in &commands {
        let order = if is_unordered(command) { "1" } else { "0" };
        all.extend(words(&[order, &command.len().to_string()]));
        all.extend(command.iter().cloned());
    }
    all
}

/// What is done with scripts that are kept.
fn kept(random: &mut Random) -> Command {
    let (script, digest) = KEPT[random.index(KEPT.len())];
    let (_, other) = KEPT[random.index(KEPT.len())];
    let key = format!("t0{}", random.index(4));
    match random.index(10) {
        0..=1 => words(&["SCRIPT", "LOAD", script]),
        2 => words(&["SCRIPT", "EXISTS", digest, other, "nosuch"]),
        3 => words(&["SCRIPT", ["FLUSH", "NOSUCH", "LOAD", "EXISTS"][random.index(4)]]),
        4 => words(&["SCRIPT", "FLUSH", ["SYNC", "ASYNC", "x"][random.index(3)]]),
        5 => words(&["SCRIPT", "KILL"]),
        6 => words(&["EVALSHA_RO", digest, "1", &key, "5"]),
        7 => words(&["EVALSHA", &digest.to_uppercase(), ["-1", "x", "9"][random.index(3)], &key]),
        _ => words(&["EVALSHA", digest, "1", &key, ["5", "text", ""][random.index(3)]]),
    }
}
