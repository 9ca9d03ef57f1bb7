//! The converters of scripts: JSON, MessagePack, structures of C, replies.

use std::{cell::RefCell, rc::Rc};

use super::LIMITS;
use crate::{
    log::LogLevel,
    resp::{Args, Reply},
    script::{self, End, Host, Program, Refused},
};

/// How deep arrays lie in each other in the replies that are made up.
const DEPTH: u32 = 6;

/// The most bytes of a reply.
const REPLY_BYTES: usize = 1 << 20;

/// What a script finds the second time must be what it found the first: numbers lose digits, and
/// arrays without elements their kind, on the first only. Tables that are keys are never the same.
const SAME: &str = "
local function same(a, b, deep)
  if type(a) ~= type(b) then return false end
  if type(a) ~= 'table' then return a == b or (a ~= a and b ~= b) end
  if deep > 1000 then return true end
  for k, v in pairs(a) do if type(k) ~= 'table' and not same(v, b[k], deep + 1) then return false end end
  for k in pairs(b) do if type(k) ~= 'table' and a[k] == nil then return false end end
  return true
end
local function again(read, write, bytes)
  local ok, first = pcall(read, bytes)
  if not ok then return 'refused' end
  local written, text = pcall(write, first)
  if not written then return 'not written' end
  local second = read(text)
  local third = read(write(second))
  if not same(second, third, 0) then return 'DIFFERS' end
  return second
end
";

/// One script for each converter; `ARGV[1]` has the bytes.
const CONVERTERS: [&str; 6] = [
    "return again(cjson.decode, cjson.encode, ARGV[1])",
    "return again(function(bytes) return {cmsgpack.unpack(bytes)} end,
       function(values) return cmsgpack.pack(unpack(values)) end, ARGV[1])",
    "local len = (ARGV[1]:byte(1) or 0) % 24
     local format, bytes = ARGV[1]:sub(2, len + 1), ARGV[1]:sub(len + 2)
     pcall(struct.size, format)
     local found = {pcall(struct.unpack, format, bytes)}
     if found[1] then pcall(struct.pack, format, unpack(found, 2)) end
     return #found",
    "redis.setresp(2) return redis.call('made')",
    "redis.setresp(3) return redis.call('made')",
    // Bytes build values on a stack: what tables hold, cycles among it.
    "local stack, names = {}, {'ok', 'err', 'double', 'map', 'set', 'big_number', 'verbatim_string', 'string'}
     for at = 1, #ARGV[1] do
       local byte = ARGV[1]:byte(at)
       local what, more, top = byte % 8, math.floor(byte / 8), stack[#stack]
       if what == 0 then stack[#stack + 1] = {}
       elseif what == 1 then stack[#stack + 1] = (more - 16) * 2.5e17
       elseif what == 2 then stack[#stack + 1] = ARGV[1]:sub(at, at + more)
       elseif what == 3 then stack[#stack + 1] = more % 2 == 0
       elseif #stack > 1 and type(stack[#stack - 1]) == 'table' then
         local into = stack[#stack - 1]
         if what == 4 then into[#into + 1] = top
         elseif what == 5 then into[names[more % 8 + 1]] = top
         elseif what == 6 then into[top] = into
         else setmetatable(into, {__index = function() error('no') end}) end
         if more % 2 == 0 then stack[#stack] = nil end
       end
     end
     redis.setresp(#ARGV[1] % 2 + 2)
     return stack[1]",
];

/// Answers every call with the same reply.
struct Made(Vec<u8>);

impl Host for Made {
    fn call(&mut self, _: Args<'_>, out: &mut Reply) -> Result<(), Refused> {
        out.raw(&self.0);
        Ok(())
    }

    fn may_call(&self, _: Args<'_>) -> Option<bool> {
        Some(true)
    }

    fn is_killed(&self) -> bool {
        false
    }

    fn log(&mut self, _: LogLevel, _: &str) {}
}

/// Makes up a whole reply of version 2 or 3 from bytes.
fn made_up(bytes: &mut &[u8], resp3: bool, depth: u32, out: &mut Reply) {
    out.resp3 = resp3;
    let Some((&first, rest)) = bytes.split_first() else { return out.null() };
    *bytes = rest;
    let some = usize::from(first >> 4);
    let text: Vec<u8> = bytes.iter().copied().take(some).collect();
    match first % 10 {
        0 => out.null(),
        1 => out.int(i64::from(first) << (some * 4)),
        2 => out.bulk(&text),
        3 => out.error(&String::from_utf8_lossy(&text).replace(['\r', '\n'], " ")),
        4 => out.double(f64::from(first) / 3.0),
        5 if depth > 0 => {
            out.map(some);
            (0..2 * some).for_each(|_| made_up(bytes, resp3, depth - 1, out));
        }
        6 if depth > 0 => {
            out.set(some);
            (0..some).for_each(|_| made_up(bytes, resp3, depth - 1, out));
        }
        7 => out.verbatim(&String::from_utf8_lossy(&text)),
        8 if depth > 0 => {
            out.array(some);
            (0..some).for_each(|_| made_up(bytes, resp3, depth - 1, out));
        }
        _ => out.null_array(),
    }
}

/// How long the reply is that these bytes begin with; none if they begin with no whole one.
pub(super) fn reply_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (kind, line) = (*bytes.first()?, bytes.get(1..end)?);
    let mut at = end + 2;
    let count = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    let mut elements = match kind {
        b'+' | b'-' | b'(' | b',' | b'_' | b'#' => {
            return (!line.contains(&b'\r') && !line.contains(&b'\n')).then_some(at);
        }
        b':' => return count().map(|_| at),
        b'$' | b'=' => {
            let Ok(len) = usize::try_from(count()?) else { return Some(at) };
            return (bytes.get(at + len..at + len + 2)? == b"\r\n").then_some(at + len + 2);
        }
        b'*' | b'~' | b'>' => count()?,
        b'%' => count()?.checked_mul(2)?,
        _ => return None,
    };
    while elements > 0 {
        at += reply_len(bytes.get(at..)?)?;
        elements -= 1;
    }
    Some(at)
}

/// The first byte says which converter the others are for, and whether the client speaks version 3.
///
/// # Panics
///
/// If a promise is broken.
pub fn scripts(data: &[u8]) {
    let Some((&which, bytes)) = data.split_first() else { return };
    let converter = CONVERTERS[usize::from(which) % CONVERTERS.len()];
    let resp3 = which >= 128;
    let mut made = Reply::new(REPLY_BYTES);
    made_up(&mut &*bytes, converter.contains("setresp(3)"), DEPTH, &mut made);
    if made.overflowed() || bytes.len() > LIMITS.bulk_bytes << 4 {
        return;
    }
    let host = Rc::new(RefCell::new(Made(made.bytes().to_vec())));
    let mut out = Reply::new(REPLY_BYTES);
    out.resp3 = resp3;
    let source = format!("{SAME}{converter}");
    let sha = script::sha_of(source.as_bytes());
    let program = Program::Script { sha: &sha, source: source.as_bytes() };
    let ran = script::run(program, (&[], &[bytes]), host, true, &mut out);
    if let Err(End::Text(text)) = &ran {
        assert!(!text.contains("interpreter failed"), "the interpreter has panicked");
    }
    if ran.is_ok() && !out.overflowed() {
        let reply = String::from_utf8_lossy(out.bytes());
        assert!(!reply.starts_with("$7\r\nDIFFERS"), "another value the second time");
        assert_eq!(reply_len(out.bytes()), Some(out.bytes().len()), "{reply:?} is no reply");
    }
}
