//! Users: what each may do, however a command is run, and what happens to clients whose user
//! changes.

mod common;
#[path = "common/oracle.rs"]
mod oracle;

use std::collections::BTreeMap;

use common::{Client, Value, config, start, wait_until};
use oracle::Oracle;
use rhumb_server::Running;

const NO_KEY: &str = "NOPERM No permissions to access a key";
const NO_CHANNEL: &str = "NOPERM No permissions to access a channel";

/// A client that is a new user with these rules.
#[track_caller]
fn user(server: &Running, admin: &mut Client, rules: &str) -> Client {
    assert_eq!(admin.run(&format!("acl setuser u reset on nopass {rules}")), Value::ok());
    let mut client = Client::connect(server.address());
    assert_eq!(client.run("auth u x"), Value::ok());
    client
}

#[track_caller]
fn denies(client: &mut Client, line: &str, error: &str) {
    assert_eq!(client.run(line), Value::Error(error.to_owned()), "{line}");
}

fn no_command(name: &str) -> String {
    format!("NOPERM User u has no permissions to run the '{name}' command")
}

/// Sends lines at once and reads their replies.
fn together(client: &mut Client, lines: &[&str]) -> Vec<Value> {
    let bytes =
        |line: &&str| common::encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    let all: Vec<u8> = lines.iter().flat_map(bytes).collect();
    client.send_raw(&all).unwrap();
    lines.iter().map(|_| client.reply().unwrap()).collect()
}

#[test]
fn commands_keys_and_channels_are_denied() {
    let (_dir, server, mut admin) = start();
    let mut u = user(&server, &mut admin, "+@all -incr -config|get %R~r* %W~w* &c*");
    denies(&mut u, "incr w", &no_command("incr"));
    denies(&mut u, "config get x", &no_command("config|get"));
    assert_eq!(u.run("get r"), Value::Null);
    assert_eq!(u.run("rpush w 1"), Value::Int(1));
    for line in [
        "get w",
        "set r 1",
        "set w 1 get",
        "copy w r",
        "rename r w",
        "mget r w",
        "mset w 1 x 1",
        "sort r store r2",
        "bitop and r w",
        "sunionstore r r",
        "zunionstore w 2 r x",
        "xread streams w 0",
        "eval x 1 w",
        "migrate h 1  0 9 keys r",
        "range - +",
        "delrange a z",
        "memory usage x",
    ] {
        denies(&mut u, line, NO_KEY);
    }
    assert_eq!(u.run("copy r w"), Value::Int(0));
    assert_eq!(u.run("exists w"), Value::Int(1));
    assert_eq!(u.run("sunionstore w r"), Value::Int(0));
    denies(&mut u, "publish x 1", NO_CHANNEL);
    denies(&mut u, "subscribe c1 x", NO_CHANNEL);
    denies(&mut u, "psubscribe c", NO_CHANNEL);
    assert_eq!(u.run("spublish c1 1"), Value::Int(0));
    denies(
        &mut u,
        "sort r by x*",
        "ERR BY option of SORT denied due to insufficient ACL permissions.",
    );
    denies(
        &mut u,
        "sort r get #",
        "ERR GET option of SORT denied due to insufficient ACL permissions.",
    );
    assert_eq!(u.run("sort r by nosort"), Value::Array(vec![]));
    // Everybody may say a password.
    let mut none = user(&server, &mut admin, "");
    denies(&mut none, "ping", &no_command("ping"));
    assert_eq!(none.run("auth default x"), Value::ok());
    assert_eq!(none.run("acl whoami").text(), "default");
}

#[test]
fn neighbours_of_a_pipeline_are_each_asked_for() {
    let (_dir, server, mut admin) = start();
    let mut u = user(&server, &mut admin, "+get +set +incr ~a*");
    let denied = Value::Error(NO_KEY.to_owned());
    let replies = together(
        &mut u,
        &["set a1 1", "set b1 1", "set a2 2", "get a1", "get b1", "get a2", "incr a1", "incr b1"],
    );
    let text = |text: &str| Value::bulk(text);
    let expected = [
        Value::ok(),
        denied.clone(),
        Value::ok(),
        text("1"),
        denied.clone(),
        text("2"),
        Value::Int(2),
        denied,
    ];
    assert_eq!(replies, expected);
    assert_eq!(admin.run("exists b1"), Value::Int(0));
}

#[test]
fn transactions_are_asked_for_twice() {
    let (_dir, server, mut admin) = start();
    let mut u = user(&server, &mut admin, "+@all ~a*");
    u.run("multi");
    denies(&mut u, "set b 1", NO_KEY);
    denies(&mut u, "exec", "EXECABORT Transaction discarded because of previous errors.");
    for line in ["multi", "incr a", "set a2 1", "publish c 1"] {
        u.run(line);
    }
    denies(&mut u, "exec", "EXECABORT Transaction discarded because of previous errors.");
    let mut u = user(&server, &mut admin, "+@all ~a* &*");
    for line in ["multi", "ping", "incr a", "set a2 1", "publish c 1"] {
        u.run(line);
    }
    admin.run("acl setuser u -incr resetkeys resetchannels");
    let changed = |why: &str| {
        Value::Error(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
             EXEC call. This command is no longer allowed for the following reason: {why}"
        ))
    };
    let expected = vec![
        Value::Simple("PONG".into()),
        changed("no permission to execute the command or subcommand"),
        changed("no permission to touch the specified keys"),
        changed("no permission to access one of the channels used as arguments"),
    ];
    assert_eq!(u.run("exec"), Value::Array(expected));
    admin.run("acl setuser u -exec");
    u.run("multi");
    let why = no_command("exec");
    denies(&mut u, "exec", &format!("EXECABORT Transaction discarded because of: {why}"));
}

#[test]
fn scripts_do_what_their_client_may() {
    let (_dir, server, mut admin) = start();
    let mut u = user(&server, &mut admin, "+@all -incr ~a*");
    let mut eval = |script: &str| u.call(&["eval", script, "0"]);
    let denied = eval("return redis.call('incr', 'a')").text();
    assert!(
        denied
            .starts_with("ERR ACL failure in script: User u has no permissions to run the 'incr'"),
        "{denied}"
    );
    let denied = eval("return redis.pcall('set', 'b', 1)").text();
    assert_eq!(denied, "ERR ACL failure in script: No permissions to access a key");
    assert_eq!(eval("return redis.call('set', 'a', 1)"), Value::ok());
    assert_eq!(eval("return redis.acl_check_cmd('set', 'a', 1)"), Value::Int(1));
    assert_eq!(eval("return redis.acl_check_cmd('set', 'b', 1)"), Value::Null);
    assert_eq!(eval("return redis.acl_check_cmd('incr', 'a')"), Value::Null);
    assert!(eval("return redis.acl_check_cmd('nosuch')").text().starts_with("ERR Invalid command"));
    let entry = admin.run("acl log 1");
    let Value::Array(entries) = entry else { panic!() };
    let Value::Array(fields) = &entries[0] else { panic!() };
    let texts: Vec<String> = [3, 5, 7, 9].iter().map(|at| fields[*at].text()).collect();
    assert_eq!(texts, ["key", "lua", "b", "u"]);
    assert!(fields[13].text().contains("cmd=eval user=u"), "{fields:?}");
}

#[test]
fn a_client_that_waits_is_asked_for_again() {
    let (_dir, server, mut admin) = start();
    let mut u = user(&server, &mut admin, "+@all ~*");
    u.send_raw(&common::encode(&[b"blpop", b"l", b"0"])).unwrap();
    wait_until(|| admin.run("info clients").text().contains("blocked_clients:1"));
    admin.run("acl setuser u resetkeys");
    assert_eq!(admin.run("rpush l 1"), Value::Int(1));
    assert_eq!(u.reply(), Some(Value::Error(NO_KEY.to_owned())));
    assert_eq!(admin.run("llen l"), Value::Int(1));
    let stats = admin.run("info commandstats").text();
    let line = stats.lines().find(|line| line.starts_with("cmdstat_blpop")).unwrap();
    assert!(line.contains("calls=0,") && line.contains("rejected_calls=1"), "{line}");
}

#[test]
fn clients_of_users_that_are_gone_end() {
    let (_dir, server, mut admin) = start();
    let mut u = user(&server, &mut admin, "+@all ~*");
    let mut own = user(&server, &mut admin, "+@all ~*");
    let mut listener = user(&server, &mut admin, "+@all &c* &p* &k");
    assert_eq!(own.run("acl setuser v on nopass +@all ~*"), Value::ok());
    listener.run("subscribe c1");
    // What stays allowed stays open.
    admin.run("acl setuser u resetchannels &c* &other");
    listener.run("subscribe c2");
    admin.run("acl setuser u resetchannels &c1");
    assert_eq!(listener.reply(), None);
    assert_eq!(own.run("auth v x"), Value::ok());
    assert_eq!(own.run("acl deluser v nosuch"), Value::Int(1));
    assert_eq!(own.reply(), None);
    assert_eq!(u.run("ping"), Value::Simple("PONG".into()));
    assert_eq!(admin.run("acl deluser u"), Value::Int(1));
    assert_eq!(u.reply(), None);
    denies(&mut admin, "acl deluser default", "ERR The 'default' user cannot be removed");
    assert_eq!(admin.run("acl users"), Value::bulks(&["default"]));
}

#[test]
fn passwords_let_in_and_their_change_keeps_connections() {
    let (_dir, server, mut admin) = start();
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    admin.run("acl setuser u >one +acl|whoami");
    let mut u = Client::connect(server.address());
    denies(&mut u, "auth u one", wrong);
    admin.run("acl setuser u on");
    assert_eq!(u.run("auth u one"), Value::ok());
    admin.run("acl setuser u resetpass >two off");
    assert_eq!(u.run("acl whoami").text(), "u");
    denies(&mut u, "auth u two", wrong);
    admin.run("acl setuser default >secret");
    let mut new = Client::connect(server.address());
    denies(&mut new, "ping", "NOAUTH Authentication required.");
    assert_eq!(new.run("auth secret"), Value::ok());
    assert_eq!(new.run("config set requirepass other"), Value::ok());
    assert_eq!(new.run("auth other"), Value::ok());
    denies(&mut new, "auth secret", wrong);
    assert_eq!(new.run("config set requirepass").text().len(), 54);
    assert_eq!(new.call(&["config", "set", "requirepass", ""]), Value::ok());
    assert_eq!(Client::connect(server.address()).run("ping"), Value::Simple("PONG".into()));
    let stats = admin.run("info stats").text();
    assert!(stats.contains("acl_access_denied_auth:3"), "{stats}");
}

#[test]
fn users_are_kept_by_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    std::fs::write(&path, "user alice on >a +@all ~* &*\n").unwrap();
    let settings = || rhumb_server::Config { acl_file: Some(path.clone()), ..config(&dir) };
    let server = Running::start(settings()).unwrap();
    let mut admin = Client::connect(server.address());
    let mut alice = Client::connect(server.address());
    assert_eq!(alice.run("auth alice a"), Value::ok());
    admin.run("acl setuser bob on >b +get ~x (+set ~y)");
    assert_eq!(admin.run("acl save"), Value::ok());
    admin.run("acl setuser eve on");
    let before = std::fs::read_to_string(&path).unwrap();
    assert!(before.starts_with("user alice on sanitize-payload #") && before.lines().count() == 3);
    // Clients of the users before end; those of `default` stay.
    assert_eq!(admin.run("acl load"), Value::ok());
    assert_eq!(alice.reply(), None);
    assert_eq!(admin.run("acl users"), Value::bulks(&["alice", "bob", "default"]));
    std::fs::write(&path, "user alice on nosuch\n").unwrap();
    let refused = admin.run("acl load").text();
    assert!(
        refused.ends_with("no change to the previously active ACL rules was performed"),
        "{refused}"
    );
    assert_eq!(admin.run("acl save"), Value::ok());
    let before = admin.run("acl list");
    drop(server);
    let server = Running::start(settings()).unwrap();
    assert_eq!(Client::connect(server.address()).run("acl list"), before);
    drop(server);
    std::fs::write(&path, "user alice on nosuch\n").unwrap();
    assert!(Running::start(settings()).is_err());
}

/// The categories of every command and part.
fn categories(client: &mut Client) -> BTreeMap<String, Vec<String>> {
    let list = |value: Value| match value {
        Value::Array(all) => all.iter().map(Value::text).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let mut of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for category in list(client.run("acl cat")) {
        for name in list(client.run(&format!("acl cat {category}"))) {
            of.entry(name).or_default().push(category.clone());
        }
    }
    of
}

#[test]
fn categories_are_those_of_redis() {
    let Some(oracle) = Oracle::start() else {
        eprintln!("no redis-server: nothing is compared");
        return;
    };
    let (_dir, _server, mut admin) = start();
    let mut theirs = Client::connect(oracle.address);
    let (ours, theirs) = (categories(&mut admin), categories(&mut theirs));
    let mut compared = 0;
    for (name, expected) in &theirs {
        if let Some(found) = ours.get(name) {
            assert_eq!(found, expected, "{name}");
            compared += 1;
        }
    }
    assert!(compared > 300, "{compared}");
}

/// Calls of which each key is allowed in three ways.
const CALLS: &str = include_str!("acl/calls.txt");

#[test]
fn keys_are_read_and_written_as_in_redis() {
    let Some(oracle) = Oracle::start() else {
        eprintln!("no redis-server: nothing is compared");
        return;
    };
    let (_dir, _server, mut admin) = start();
    let mut theirs = Client::connect(oracle.address);
    let mut compared = 0;
    for rules in ["%R~r* %W~w* ~b*", "%R~w* %W~r*", "%R~*", "%W~*", "~r*"] {
        let set = format!("acl setuser u reset on nopass +@all {rules}");
        assert_eq!((admin.run(&set), theirs.run(&set)), (Value::ok(), Value::ok()));
        for call in CALLS.lines() {
            let line = format!("acl dryrun u {call}");
            let expected = theirs.run(&line);
            if !expected.text().contains("not found") {
                // 7.0 tells of a user's name in other places.
                let allowed = |value: &Value| *value == Value::ok();
                let found = admin.run(&line);
                assert_eq!(allowed(&found), allowed(&expected), "{rules}: {call}: {found:?}");
                compared += 1;
            }
        }
    }
    assert!(compared > 700, "{compared}");
}
