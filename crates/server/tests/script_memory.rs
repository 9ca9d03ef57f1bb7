//! The memory that scripts take, by the peak of the whole process: alone in its process.

mod common;

use std::fs;

use common::{Client, start};

const MIB: u64 = 1 << 20;

/// What a script may take at its peak: its limit, and what it makes last twice, as that is made
/// beside the string that it becomes.
const MOST: u64 = 3 * 64 * MIB;

/// A line of the system's report on this process's memory, in bytes; `None` if the system has none.
fn status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// Checks what a script replies with, and that it stays within its memory.
fn check(client: &mut Client, script: &str, expected: &str) {
    let before = status("VmRSS:");
    // Resets the peak.
    let is_reset = fs::write("/proc/self/clear_refs", "5").is_ok();
    let reply = format!("{:?}", client.call(&["EVAL", script, "0"]));
    let shown = &script[..script.len().min(120)];
    assert!(reply.contains(expected), "{shown}: {reply}");
    if let (Some(before), true, Some(peak)) = (before, is_reset, status("VmHWM:")) {
        let grew = peak.saturating_sub(before);
        println!("{} MiB: {shown}", grew / MIB);
        assert!(grew <= MOST, "{shown}: {} MiB", grew / MIB);
    }
}

/// Scripts of which most memory is used no more when they take some again.
fn thrifty() -> [(String, &'static str); 4] {
    let s = "local s = string.rep('x', 8e6) ";
    [
        (format!("{s} for i = 1, 100 do local t = s:sub(i) end return 7"), "Int(7)"),
        (format!("{s} for i = 1, 50 do local t = s .. i end return 7"), "Int(7)"),
        (
            "for i = 1, 2000 do local f = loadstring('return ' .. ('1 +'):rep(100) .. i) end \
             return 7"
                .to_owned(),
            "Int(7)",
        ),
        (
            "redis.call('set', 'k', string.rep('x', 8e6)) for i = 1, 30 do \
             redis.call('append', 'k', i) local v = redis.call('get', 'k') end return 7"
                .to_owned(),
            "Int(7)",
        ),
    ]
}

/// Scripts whose packed values take more than their bytes, or more than their tables.
fn packed() -> [(String, &'static str); 3] {
    let refused = "not enough memory";
    [
        ("return #cmsgpack.unpack('\\221\\0\\127\\0\\0' .. ('\\1'):rep(8323072))".to_owned(), refused),
        (
            "return #cmsgpack.unpack('\\221\\0\\127\\0\\0' .. \
             ('\\129\\1\\2'):rep(8323072))"
                .to_owned(),
            refused,
        ),
        (
            "local t = {1, 2} for i = 1, 14 do local u = {} for j = 1, 16 do u[j] = t end t = u end \
             return #cmsgpack.pack(t)"
                .to_owned(),
            refused,
        ),
    ]
}

#[test]
fn scripts_are_refused_memory_before_they_take_it() {
    let (_dir, _server, mut client) = start();
    let refused = "not enough memory";
    let many = |word: &str, count: usize| vec![word; count].join("..");
    let s = "local s = string.rep('x', 8e6) ";
    let captures = format!("{}(.*){}", "(.".repeat(31), ")".repeat(31));
    let cases = [
        // Strings that are joined by one instruction, in the script and in what it compiles.
        (format!("{s} return #({})", many("s", 190)), refused),
        (format!("{s} return loadstring('local s = ... return {}')(s)", many("s", 190)), refused),
        (
            format!(
                "{s} local t = setmetatable({{}}, {{__concat = function() return s end}}) \
                 return {}",
                many("s..t", 60)
            ),
            refused,
        ),
        // What functions make.
        ("return string.rep('x', 1e9)".to_owned(), refused),
        ("return ('xy'):rep(2^31)".to_owned(), refused),
        (
            format!("{s} return string.format('{}', s, s, s, s, s, s, s, s, s)", "%s".repeat(9)),
            refused,
        ),
        (format!("{s} return string.format('%q%q', s, s)"), refused),
        (
            format!("{s} local t = {{}} for i = 1, 5000 do t[i] = s end return table.concat(t)"),
            refused,
        ),
        (format!("{s} return (s:gsub('.', s))"), refused),
        ("return (('x'):rep(3e6):gsub('x+', ('%0'):rep(30)))".to_owned(), refused),
        (format!("{s} return (('xxxxxxxxxxxx'):gsub('.', function() return s end))"), refused),
        (format!("{s} return {{s:find('{captures}')}}"), refused),
        (format!("{s} local t = {{}} for i = 1, 100 do t[i] = s:sub(i) end"), refused),
        (
            format!("{s} local t = {{}} for i = 1, 100 do t[i] = s:sub(i):upper():reverse() end"),
            refused,
        ),
        (
            format!("{s} local t = {{}} for i = 1, 100 do t[i] = struct.pack('s', s:sub(i)) end"),
            refused,
        ),
        (
            format!(
                "{s} local t = {{}} for i = 1, 5000 do t[i] = s end redis.call('mset', unpack(t))"
            ),
            refused,
        ),
        ("return loadstring(string.rep('a=1 ', 1e7))".to_owned(), "Null"),
        (
            "local t = {} for i = 1, 1e4 do t[i] = loadstring('local f = {' .. \
             ('function() end,'):rep(2e4) .. '}') end"
                .to_owned(),
            refused,
        ),
    ];
    for (script, expected) in cases.into_iter().chain(packed()).chain(thrifty()) {
        check(&mut client, &script, expected);
    }
    let long = "-".repeat((1 << 20) + 1);
    let reply = client.call(&["EVAL", &long, "0"]).text();
    assert!(reply.contains("a script has at most 1048576 bytes"), "{reply}");
    assert_eq!(client.run("PING").text(), "PONG");
}
