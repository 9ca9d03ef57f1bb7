//! A keyspace that several hosts divide, from the shell: `remote --table`, and servers with
//! `--share-table`.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use common::Shell;
use rhumb_remote::{Address, Client, Error, Host, Preset, RoutingTable, Served, ShareOptions};
use serde_json::{Value as Json, json};

/// Three hosts with a part of the keys each: up to "h", to "q", and the rest.
fn with_hosts() -> (Shell, Vec<Host>) {
    let shell = Shell::new();
    let names = ["a.sock", "b.sock", "c.sock"];
    // Relative, as the commands run in the directory; the hosts do not.
    let addresses = names.map(|name| Address::Unix(name.into()));
    let lows = ["", "h", "q"];
    let table = RoutingTable::new(7, lows.into_iter().zip(addresses.clone())).unwrap();
    shell.file("users.table", table.to_string());
    let start = |(name, address): (&str, &Address)| {
        let options = ShareOptions::default().capacity_bytes(4 << 20).entry_bytes(40);
        let host = Host::listen(shell.path(name)).share("users", options);
        host.serve("users", Served::by(&table, address)).start().unwrap()
    };
    let hosts = names.into_iter().zip(&addresses).map(start).collect();
    (shell, hosts)
}

#[test]
fn a_table_or_any_host_leads_to_all_keys() {
    let (shell, hosts) = with_hosts();
    let names = ["ada", "hopper", "lovelace", "turing", "zuse"];
    for (number, name) in names.iter().enumerate() {
        let put = ["remote", "put", "users", name, &number.to_string(), "--table", "users.table"];
        assert_eq!(shell.ok(&put), "");
    }
    let entries: Vec<u64> = hosts.iter().map(|host| host.stats("users").unwrap().entries).collect();
    assert_eq!(entries, [1, 2, 2]);
    for to in [&["--table", "users.table"][..], &["a.sock"], &["unix:b.sock"], &["c.sock"]] {
        let line = |command: &'static str, words: &[&'static str]| {
            // The words after the URL, or after the table that stands for it.
            [&["remote", command][..], to, &["users"], words].concat()
        };
        assert_eq!(shell.ok(&line("get", &["turing"])), "3", "{to:?}");
        assert_eq!(shell.run(&line("get", &["absent"])).code, 1);
        let keys = shell.ok(&line("scan", &["--keys-only"]));
        assert_eq!(keys.lines().collect::<Vec<_>>(), names, "{to:?}");
        let keys = shell.ok(&line("scan", &["--keys-only", "--rev", "--from", "h", "--to", "tz"]));
        assert_eq!(keys, "turing\nlovelace\nhopper\n");
        let some = shell.ok_with_input(&line("get", &["--keys-from", "-"]), b"zuse\nada\n");
        assert_eq!(some, "zuse\t4\nada\t0\n");
        shell.ok(&line("put", &["borg", "1981"]));
        shell.ok(&line("del", &["borg"]));
        assert_eq!(shell.run(&line("del", &["borg"])).code, 1);
        let table = shell.ok(&line("table", &[]));
        assert_eq!(table, std::fs::read_to_string(shell.path("users.table")).unwrap());
    }
}

#[test]
fn a_divided_keyspace_is_inspected_and_measured() {
    let (shell, _hosts) = with_hosts();
    for key in ["ada", "hopper", "lovelace", "turing"] {
        shell.ok(&["remote", "put", "users", key, "1", "--table", "users.table"]);
    }
    let inspect = ["remote", "inspect", "users", "--table=users.table", "--walk"];
    let text = shell.ok(&inspect);
    assert!(text.starts_with("unix:a.sock\nkeys       from \"\" to before \"h\"\n"), "{text}");
    assert!(text.contains("\n\nunix:c.sock\nkeys       from \"q\" to the last\n"), "{text}");
    let seen: Json =
        serde_json::from_str(&shell.ok(&[&inspect[..], &["--json"]].concat())).unwrap();
    let entries: Vec<_> =
        seen["hosts"].as_array().unwrap().iter().map(|host| &host["walk"]["entries"]).collect();
    assert_eq!((&seen["epoch"], entries), (&json!(7), vec![&json!(1), &json!(2), &json!(1)]));
    assert_eq!(seen["hosts"][1]["ranges"], json!([{"from": "h", "to": "q"}]));
    let one = shell.ok(&["remote", "inspect", "b.sock", "users"]);
    assert!(one.contains("\ntable      epoch 7: 3 ranges of 3 hosts\n"), "{one}");

    let bench = ["remote", "bench", "users", "--table", "users.table", "--seconds", "0.02"];
    let text = shell.ok(&bench);
    assert!(text.contains("a second, of 4 keys\n") && text.contains("unix:b.sock: "), "{text}");
    let seen: Json = serde_json::from_str(&shell.ok(&[&bench[..], &["--json"]].concat())).unwrap();
    assert!(seen["gets"].as_u64().unwrap() > 0 && seen["absent"] == 0, "{seen}");
    let shares = seen["hosts"].as_array().unwrap().iter().map(|host| host["share"].as_f64());
    let sum: f64 = shares.map(Option::unwrap).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{seen}");
}

#[test]
fn what_cannot_be_done_with_a_table_is_said() {
    let (shell, mut hosts) = with_hosts();
    shell.fails(&["remote", "get", "db0", "a", "--table", "users.table"], 64, "of one server");
    shell.fails(&["remote", "get", "users", "a", "--table", "none"], 3, "routing table none");
    shell.file("bad.table", "epoch 1\nfrom \"b\" unix:a.sock\n");
    shell.fails(&["remote", "get", "users", "a", "--table", "bad.table"], 3, "begins at \"b\"");
    shell.fails_usage(&["remote", "get", "a.sock", "users", "a", "--table", "users.table"]);
    shell.fails(&["remote", "bench", "a.sock", "users"], 3, "no keys to get");
    // A host that is down concerns its own keys alone.
    shell.ok(&["remote", "put", "c.sock", "users", "ada", "1"]);
    hosts.remove(1);
    assert_eq!(shell.ok(&["remote", "get", "c.sock", "users", "ada"]), "1");
    let down = "unix:b.sock (keys from \"h\" to before \"q\")";
    shell.fails(&["remote", "get", "users", "hopper", "--table", "users.table"], 3, down);
}

/// Server processes that end with the test.
#[derive(Default)]
struct Servers(Vec<Child>);

impl Servers {
    /// Starts one and returns where Redis clients come to.
    fn start(&mut self, shell: &Shell, args: &[&str]) -> String {
        let mut command = shell.command(args);
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        self.0.push(started.spawn().expect("the binary starts"));
        let output = self.0.last_mut().and_then(|process| process.stdout.take()).expect("a pipe");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let banner = lines.next().expect("a banner");
        banner.rsplit(' ').next().expect("an address").to_owned()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // It may have ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn servers_have_a_part_each() {
    for preset in Preset::ALL {
        servers_have_a_part_each_of(&format!("users,preset={}", preset.name()));
    }
}

fn servers_have_a_part_each_of(share: &str) {
    let shell = Shell::new();
    let table = shell.file("t", "epoch 1\nfrom \"\" unix:a.sock\nfrom \"m\" unix:./b.sock\n");
    let table = table.to_str().unwrap();
    let mut servers = Servers::default();
    let mut start = |name: &str| {
        let base = ["serve", "--db", name, "--listen", "127.0.0.1:0", "--share", share];
        servers.start(&shell, &[&base[..], &["--share", "db0", "--share-table", table]].concat())
    };
    let redis = ["a", "b"].map(&mut start);
    for (server, own, other) in [("a.sock", "ada", "zuse"), ("b.sock", "zuse", "ada")] {
        let users = Client::connect(shell.path(server)).unwrap().keyspace("users").unwrap();
        users.insert(own, "1").unwrap();
        // A client that follows no table is told that the key is another server's.
        for refused in [
            users.insert(other, "2").unwrap_err(),
            users.get(other).unwrap_err(),
            users.compare_and_swap(other, None, Some(b"2")).unwrap_err(),
        ] {
            assert!(matches!(refused, Error::Moved { epoch: 1 }), "{refused:?}");
        }
    }
    for server in ["a.sock", "b.sock"] {
        assert_eq!(shell.ok(&["remote", "scan", server, "users"]), "ada\t1\nzuse\t1\n");
    }
    // Databases of Redis clients are whole, of each server by itself.
    for (address, socket) in redis.iter().zip(["a.sock", "b.sock"]) {
        for key in ["ada", "zuse"] {
            let mut client = TcpStream::connect(address).unwrap();
            let mut reply = [0; 5];
            client.write_all(format!("SET {key} {socket}\r\n").as_bytes()).unwrap();
            client.read_exact(&mut reply).unwrap();
            assert_eq!(&reply, b"+OK\r\n");
            assert_eq!(shell.ok(&["remote", "get", socket, "db0", key]), socket);
        }
    }
    let lost = ["serve", "--db", "c", "--listen", "127.0.0.1:0", "--share", "users"];
    shell.fails(
        &[&lost[..], &["--share-table", table, "--log-level", "error"]].concat(),
        3,
        "say with --share-address which of them it is",
    );
}

/// The code blocks of a section of a document.
fn blocks<'a>(document: &'a str, section: &str) -> Vec<&'a str> {
    let begin = document.find(section).expect("the section is there");
    let text = &document[begin + section.len()..];
    let text = &text[..text.find("\n## ").unwrap_or(text.len())];
    text.split("\n```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap().1).collect()
}

#[test]
fn the_walk_through_of_the_document_is_right() {
    let shell = Shell::new();
    let document = include_str!("../../../docs/shell.md");
    let [table, commands] = blocks(document, "## Keyspaces divided among servers")[..] else {
        panic!("a table and commands");
    };
    shell.file("users.table", table);
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_rhumb")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut servers = Servers::default();
    let mut lines = commands.lines().peekable();
    while let Some(line) = lines.next() {
        let command = line.strip_prefix("$ ").unwrap_or_else(|| panic!("a command: {line}"));
        if let Some(server) = command.strip_suffix(" &") {
            // A port that is free.
            let words = server.split(' ').skip(1);
            let word =
                |word| if str::starts_with(word, "127.0.0.1:") { "127.0.0.1:0" } else { word };
            servers.start(&shell, &words.map(word).collect::<Vec<_>>());
            continue;
        }
        let mut expected = String::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
            expected = expected + line + "\n";
        }
        let mut process = Command::new("sh");
        let process = process.args(["-c", command]).env("PATH", &path);
        let output = process.current_dir(shell.path("")).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).unwrap();
        assert_eq!(printed.trim_end(), expected.trim_end(), "{command}");
    }
    assert_eq!(servers.0.len(), 3);
}
