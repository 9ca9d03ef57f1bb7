//! Scripts: what they do happens together, and they stay within their limits.

mod common;

use std::{thread, time::Duration};

use common::{Client, Value, start};

/// Sends a script without keys; the reply as it is printed.
fn eval(client: &mut Client, script: &str) -> String {
    format!("{:?}", client.call(&["EVAL", script, "0"]))
}

#[test]
fn a_script_is_one_step_for_other_clients_and_may_use_keys_that_it_is_not_given() {
    let (_dir, server, mut control) = start();
    let script = "local n = redis.call('get','n') or 0 redis.call('set','n',n+1) return n";
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut client = Client::connect(server.address());
            thread::spawn(move || (0..50).for_each(|_| drop(eval(&mut client, script))))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(control.run("GET n").text(), "200");
}

/// Functions of scripts are kept with the worker: no run shows in the next one, and more sources
/// than are kept are run as well.
#[test]
fn a_script_that_runs_again_finds_everything_as_the_first_time() {
    let (_dir, _server, mut client) = start();
    let filler = "-".repeat(10_000);
    let source = |n: usize| {
        format!(
            "local count = 0 local function more() count = count + 1 return count end \
             redis.call('select', '3') redis.call('set', KEYS[1], ARGV[1]) \
             return {{more(), {n}, KEYS[1], ARGV[1]}} --{filler}"
        )
    };
    let shas: Vec<String> =
        (0..60).map(|n| client.call(&["SCRIPT", "LOAD", &source(n)]).text()).collect();
    for round in ["one", "two", "three"] {
        for (n, sha) in shas.iter().enumerate() {
            let key = format!("k{n}");
            let reply = client.call(&["EVALSHA", sha, "1", &key, round]);
            let words = [Value::bulk(&key), Value::bulk(round)];
            let numbers = [Value::Int(1), Value::Int(n as i64)];
            assert_eq!(reply, Value::Array([&numbers[..], &words].concat()));
        }
    }
    // What scripts select ends with them.
    assert_eq!(client.run("EXISTS k0"), Value::Int(0));
    assert!(client.run("CLIENT INFO").text().contains(" db=0 "));
    client.run("SELECT 3");
    assert_eq!(client.run("GET k59").text(), "three");
}

#[test]
fn numbers_reach_commands_as_redis_writes_them() {
    let (_dir, _server, mut client) = start();
    for (number, text) in [
        ("7", "7"),
        ("-3", "-3"),
        ("0", "0"),
        ("-0", "-0"),
        ("1e15", "1000000000000000"),
        ("2^53", "9007199254740992"),
        ("1e17", "1e+17"),
        ("0.1", "0.10000000000000001"),
    ] {
        let script =
            format!("local n = tonumber('{number}') or {number} return redis.call('echo', n)");
        assert_eq!(client.call(&["EVAL", &script, "0"]).text(), text, "{number}");
    }
}

#[test]
fn an_error_keeps_what_was_written_before_it() {
    let (_dir, _server, mut client) = start();
    let reply = eval(&mut client, "redis.call('set','w','1') error('after')");
    assert!(reply.contains("user_script:1: after"), "{reply}");
    assert_eq!(client.run("GET w").text(), "1");
}

/// Each coroutine stops with a deep stack.
const DEEP_COROUTINES: &str = "local t = {} \
    local function f(n) if n > 0 then return 1 + f(n - 1) end coroutine.yield() end \
    for i = 1, 1e9 do t[i] = coroutine.create(f) coroutine.resume(t[i], 10000) end";

const NESTED_COROUTINES: &str = "local function f() \
    return assert(coroutine.resume(coroutine.create(f))) end f()";

#[test]
fn coroutines_take_turns_and_count_as_the_script() {
    let (_dir, server, mut control) = start();
    let script = "local add = coroutine.wrap(function(a) \
        while true do a = coroutine.yield(a + 1) end end) return {add(1), add(5)}";
    let replies = Value::Array(vec![Value::Int(2), Value::Int(6)]);
    assert_eq!(control.call(&["EVAL", script, "0"]), replies);
    assert_eq!(control.call(&["EVAL", "return type(cjson.null)", "0"]).text(), "userdata");
    let endless = [
        "local f = coroutine.wrap(function() while true do end end) while true do pcall(f) end",
        "return ('a'):rep(3000):find('.-.-.-.-.-.-b')",
        "return ('a'):rep(9):gsub('a', function() while true do end end)",
    ];
    for script in endless {
        let mut client = Client::connect(server.address());
        let running = thread::spawn(move || eval(&mut client, script));
        while control.run("SCRIPT KILL") != Value::ok() {
            thread::sleep(Duration::from_millis(10));
        }
        let reply = running.join().unwrap();
        assert!(reply.contains("Script killed by user"), "{script}: {reply}");
    }
}

/// A string that is made again while the collector is at work is not taken away by it.
#[test]
fn strings_outlive_collections_while_they_are_used() {
    let (_dir, _server, mut client) = start();
    let script = "for i = 1, 20000 do \
        local a = string.rep('x', i % 100) local b = string.rep('x', i % 100) .. 'y' \
        if #a + 1 ~= #b then return 'wrong' end end return 'right'";
    assert_eq!(client.call(&["EVAL", script, "0"]).text(), "right");
}

#[test]
fn hostile_scripts_end_and_the_server_lives() {
    let (_dir, _server, mut client) = start();
    for (script, expected) in [
        ("local s = 'x' while true do s = s .. s end", "not enough memory"),
        ("return string.rep('x', 1e9)", "not enough memory"),
        ("local function f() return f() + 1 end return f()", "stack overflow"),
        ("return string.format('%99999999d', 1)", "invalid format"),
        ("string.x = 1", "readonly table"),
        ("x = 1", "readonly table"),
        ("return y", "nonexistent global variable 'y'"),
        ("return redis.call('multi')", "not allowed from script"),
        ("return redis.call('eval', 'return 1', 0)", "not allowed from script"),
        ("return redis.call('fcall', 'f', 0)", "not allowed from script"),
        ("local t = {} for i = 1, 1e9 do t[i] = {} end", "not enough memory"),
        ("local t = {} for i = 1, 1e9 do t['k' .. i] = 1 end", "not enough memory"),
        ("local t = {} for i = 1, 1e9 do table.insert(t, i) end", "not enough memory"),
        ("local t = {} for i = 1, 1e9 do rawset(t, i, i) end", "not enough memory"),
        (DEEP_COROUTINES, "not enough memory"),
        ("return unpack({}, 1, 1e7)", "too many results to unpack"),
        ("return ('x'):rep(1e6):byte(1, -1)", "string slice too long"),
        ("return ('a'):rep(300):find(('a?'):rep(300))", "pattern too complex"),
        ("local t = {} t[1] = t return t", "reached lua stack limit"),
        ("local t = {} t[1] = t return cjson.encode(t)", "excessive depth"),
        ("return cjson.decode(('['):rep(100000))", "too many nested data"),
        ("return coroutine.yield()", "attempt to yield"),
        (NESTED_COROUTINES, "stack overflow"),
    ] {
        let reply = eval(&mut client, script);
        assert!(reply.contains(expected), "{script}: {reply}");
    }
    assert_eq!(client.run("PING").text(), "PONG");
}

#[test]
fn a_script_that_is_killed_leaves_nothing() {
    let (_dir, server, mut control) = start();
    let mut client = Client::connect(server.address());
    let script =
        "redis.call('set','k','1') while true do pcall(function() while true do end end) end";
    let running = thread::spawn(move || eval(&mut client, script));
    loop {
        thread::sleep(Duration::from_millis(100));
        if !format!("{:?}", control.run("SCRIPT KILL")).contains("NOTBUSY") {
            break;
        }
    }
    let reply = running.join().unwrap();
    assert!(reply.contains("Script killed by user"), "{reply}");
    assert!(!format!("{:?}", control.run("EXISTS k")).contains('1'));
}

#[test]
fn a_script_that_has_emptied_a_database_is_not_begun_again() {
    let (_dir, _server, mut client) = start();
    for emptying in ["flushdb", "flushall"] {
        client.run("SET k 1");
        client.run("SET counted 41");
        let script = "local had = redis.call('exists', 'k') redis.call(ARGV[1]) \
                      for n = 1, 3e6 do end return {had, redis.call('incr', 'counted')}";
        let reply = client.call(&["EVAL", script, "0", emptying]);
        assert_eq!(reply, Value::Array(vec![Value::Int(1), Value::Int(1)]));
    }
    client.run("SET k here");
    client.run("SELECT 1");
    client.run("SET k there");
    let script = "redis.call('swapdb', 0, 1) for n = 1, 3e6 do end return redis.call('get', 'k')";
    assert_eq!(client.call(&["EVAL", script, "0"]), Value::bulk("here"));
    client.run("MULTI");
    client.call(&["EVAL", "return redis.call('swapdb', 0, 1)", "0"]);
    client.run("GET k");
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::ok(), Value::bulk("there")]));
}

/// The values are those that Redis 7.0.15 gives.
#[test]
fn libraries_answer_as_those_of_redis() {
    let (_dir, _server, mut client) = start();
    let hex = "local h = '' for c in (EXPR):gmatch('.') do \
               h = h .. string.format('%02x', string.byte(c)) end return h";
    let packed = "cmsgpack.pack({1,-5,300,1.5,'abc',{a=1}},-200,-40000,2^40,0.1,false)";
    let cases = [
        (
            "return cjson.encode({1,2,{a='x/\"y',b=1.5}})".to_owned(),
            r#"[1,2,{"a":"x\/\"y","b":1.5}]"#,
        ),
        ("return cjson.encode({})".to_owned(), "{}"),
        (r#"return cjson.encode(cjson.decode('{"a":null}'))"#.to_owned(), r#"{"a":null}"#),
        (r#"return cjson.decode('["\\u00e9\\n"]')[1]"#.to_owned(), "\u{e9}\n"),
        (
            hex.replace("EXPR", packed),
            "9601fbcd012cca3fc00000a361626381a16101d1ff38d2ffff63c0cf0000010000000000cb3fb999999999999ac2",
        ),
        ("return tostring(cmsgpack.unpack(cmsgpack.pack(-2^40)) == -2^40)".to_owned(), "true"),
        ("return bit.tohex(bit.bxor(5, 0xff))".to_owned(), "000000fa"),
        (hex.replace("EXPR", "struct.pack('>I2', 258)"), "0102"),
    ];
    for (script, expected) in cases {
        assert_eq!(client.call(&["EVAL", &script, "0"]), Value::bulk(expected), "{script}");
    }
    let error = client.call(&["EVAL", "return cjson.decode('[1,')", "0"]).text();
    assert!(error.contains("Expected value but found T_END at character 4"), "{error}");
}

/// The line of a command or of a code of errors in what `INFO` counts, up to its times.
fn counted(client: &mut Client, section: &str, name: &str) -> Option<String> {
    let text = client.run(&format!("INFO {section}")).text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let fields = line.split(',').filter(|field| !field.starts_with("usec"));
    Some(fields.collect::<Vec<_>>().join(","))
}

/// The last call needs all locks, so that the script is run twice.
#[test]
fn what_a_script_calls_is_counted_once() {
    let (_dir, _server, mut client) = start();
    client.run("CONFIG RESETSTAT");
    let script = "redis.pcall('set') redis.call('set','a',1) redis.pcall('lpush','a',1) \
                  redis.pcall('no-such') return redis.call('get','a')";
    assert_eq!(client.call(&["EVAL", script, "1", "b"]).text(), "1");
    assert!(eval(&mut client, "return redis.call('incr','b','c')").contains("Wrong number"));
    assert!(eval(&mut client, "return redis.error_reply('MINE x')").contains("MINE x"));
    let mut is = |section, name, expected| {
        assert_eq!(counted(&mut client, section, name).as_deref(), expected, "{name}");
    };
    is("commandstats", "cmdstat_set", Some("calls=1,rejected_calls=1,failed_calls=0"));
    is("commandstats", "cmdstat_lpush", Some("calls=1,rejected_calls=0,failed_calls=1"));
    is("commandstats", "cmdstat_incr", Some("calls=0,rejected_calls=1,failed_calls=0"));
    is("commandstats", "cmdstat_eval", Some("calls=3,rejected_calls=0,failed_calls=2"));
    is("errorstats", "errorstat_ERR", Some("count=3"));
    is("errorstats", "errorstat_WRONGTYPE", Some("count=1"));
    is("errorstats", "errorstat_MINE", Some("count=1"));
}

#[test]
fn monitors_see_a_script_and_then_what_it_calls() {
    let (_dir, server, mut client) = start();
    let mut monitor = Client::connect(server.address());
    assert_eq!(monitor.run("MONITOR"), Value::ok());
    let script = "redis.call('select',3) redis.pcall('set') return redis.call('set','a','b')";
    client.call(&["EVAL", script, "0"]);
    client.run("FUNCTION FLUSH");
    let code = "#!lua name=l\nredis.register_function('f', function() redis.call('get','a') end)";
    client.call(&["FUNCTION", "LOAD", code]);
    client.run("MULTI");
    client.run("FCALL f 0");
    client.run("EXEC");
    let mut next = || monitor.reply().unwrap().text();
    let mut sees = |expected: &str| {
        let line = next();
        assert!(line.contains(expected), "{line}");
    };
    sees("\"EVAL\" \"redis.call");
    sees("[0 lua] \"select\" \"3\"");
    sees("[3 lua] \"set\" \"a\" \"b\"");
    sees("\"FUNCTION\" \"FLUSH\"");
    sees("\"FUNCTION\" \"LOAD\"");
    sees("\"MULTI\"");
    sees("\"FCALL\" \"f\" \"0\"");
    sees("[0 lua] \"get\" \"a\"");
    sees("\"EXEC\"");
}

/// Makes debugging possible; scripts are given the commands that are not for them.
#[test]
fn the_time_stands_still_in_a_script_and_attributes_are_not_seen() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = common::config(&dir);
    config.enable_debug_command = rhumb_server::DebugCommand::Yes;
    let server = rhumb_server::Running::start(config).unwrap();
    let mut client = Client::connect(server.address());
    let timed = "local a = redis.call('time') redis.call('debug', 'sleep', '0.01') \
                 local b = redis.call('time') return {a[1] == b[1], a[2] == b[2]}";
    assert!(eval(&mut client, timed).contains("not allowed from script"));
    client.run("DEBUG SET-DISABLE-DENY-SCRIPTS 1");
    assert_eq!(eval(&mut client, timed), "Array([Int(1), Int(1)])");
    let attribute = "redis.setresp(3) return redis.call('debug', 'protocol', 'attrib')";
    let reply = client.call(&["EVAL", attribute, "0"]);
    assert_eq!(reply.text(), "Some real reply following the attribute");
    client.run("DEBUG SET-DISABLE-DENY-SCRIPTS 0");
    assert!(eval(&mut client, timed).contains("not allowed from script"));
    assert!(eval(&mut client, "redis.call('cluster', 'reset')").contains("not allowed"));
}

#[test]
fn scripts_get_other_random_numbers_each_time_and_the_same_after_a_seed() {
    let (_dir, _server, mut client) = start();
    let random = "return tostring(math.random())";
    assert_ne!(eval(&mut client, random), eval(&mut client, random));
    let seeded = "math.randomseed(7) return tostring(math.random())";
    assert_eq!(eval(&mut client, seeded), eval(&mut client, seeded));
}

#[test]
fn scripts_get_sets_sorted_by_a_constant_in_order() {
    let (_dir, _server, mut client) = start();
    let members: Vec<String> = (b'a'..=b'z').map(|byte| char::from(byte).to_string()).collect();
    for member in &members {
        client.call(&["SADD", "s", member]);
    }
    let sorted = "return table.concat(redis.call('sort', KEYS[1], 'by', '_'))";
    let reply = client.call(&["EVAL", sorted, "1", "s"]);
    assert_eq!(reply.text(), members.concat());
}

#[test]
fn the_functions_of_strings_that_copy_nothing_answer_as_those_of_lua() {
    let (_dir, _server, mut client) = start();
    let script = "local s = 'hello' local all = {s:sub(2, 3), s:sub(-3), s:sub(-100, 2), \
                  s:sub(4, 2), s:sub(2, -2), s:sub(10), s:sub(0), string.sub(12345, 2, 3), \
                  s:byte(), s:byte(-1), #{s:byte(1, -1)}, #{s:byte(10)}, #{s:byte(3, 2)}} \
                  return table.concat(all, '|')";
    assert_eq!(
        client.call(&["EVAL", script, "0"]).text(),
        "el|llo|he||ell||hello|23|104|111|5|0|0"
    );
    let dumped = "return loadstring(string.dump(function() end))()";
    assert!(eval(&mut client, dumped).contains("attempt to call a nil value"));
    let changed = "getmetatable(_G).__index = {}";
    assert!(eval(&mut client, changed).contains("Attempt to modify a readonly table"));
}

#[test]
fn packed_numbers_come_back_as_they_were() {
    let (_dir, _server, mut client) = start();
    let script = "local all = {0, 127, 128, 255, 256, 65535, 65536, 4294967295, 4294967296, 2^53, \
                  2^62, -1, -32, -33, -128, -129, -32768, -32769, -2147483648, -2147483649, \
                  -2^53, 0.1, 1e300} \
                  for i, n in ipairs(all) do \
                  if cmsgpack.unpack(cmsgpack.pack(n)) ~= n then return i end end \
                  local t = {} for i = 1, 300 do t[tostring(i)] = i end \
                  for k, n in pairs(cmsgpack.unpack(cmsgpack.pack(t))) do \
                  if t[k] ~= n then return k end end return 'same'";
    assert_eq!(client.call(&["EVAL", script, "0"]).text(), "same");
}

#[test]
fn numbers_of_any_size_are_one_line_of_a_reply() {
    let (_dir, _server, mut client) = start();
    let reply = client.call(&["EVAL", "return {big_number='123\\r\\n123'}", "0"]);
    assert_eq!(reply.text(), "123  123");
}
