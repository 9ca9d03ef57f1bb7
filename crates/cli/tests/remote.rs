//! `remote`: a host in this process, and commands that read and write what it shares.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use common::Shell;
use rhumb_remote::{Client, Host, ShareOptions};
use serde_json::{Value as Json, json};

/// A host with the keys of a small list of packages, at `host.sock` in the shell's directory.
fn with_packages() -> (Shell, Host) {
    let shell = Shell::new();
    let options = ShareOptions::default().capacity_bytes(4 << 20).entry_bytes(40);
    let host = Host::listen(shell.path("host.sock")).share("packages", options).start().unwrap();
    let keyspace = Client::connect(host.path()).unwrap().keyspace("packages").unwrap();
    let names = ["@babel/cli", "@babel/core", "@types/node", "left-pad", "react"];
    for (number, name) in (1..).zip(names) {
        keyspace.insert(name, number.to_string()).unwrap();
    }
    (shell, host)
}

/// `remote COMMAND URL packages ARGS`.
fn line<'a>(command: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["remote", command, "unix:host.sock", "packages"], args].concat()
}

#[test]
fn what_was_put_is_got_and_deleted() {
    let (shell, _host) = with_packages();
    assert_eq!(shell.ok(&line("put", &["greeting", "hello"])), "");
    assert_eq!(shell.ok(&line("get", &["greeting"])), "hello");
    assert_eq!(shell.ok(&["remote", "get", "host.sock", "packages", "greeting"]), "hello");
    assert_eq!(shell.ok(&line("del", &["greeting"])), "");
    for command in ["get", "del"] {
        let ended = shell.run(&line(command, &["greeting"]));
        assert_eq!((ended.code, ended.stderr.as_str()), (1, ""), "{command}");
        assert!(ended.stdout.is_empty());
    }
    // Larger than a leaf, so that it is asked for.
    let value: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    shell.ok_with_input(&line("put", &["binary"]), &value);
    let ended = shell.run(&line("get", &["--raw", "binary"]));
    assert!(ended.code == 0 && ended.stdout == value);
}

#[test]
fn keys_and_output_are_those_of_the_other_commands() {
    let (shell, _host) = with_packages();
    let got: Json = serde_json::from_str(&shell.ok(&line("get", &["--json", "react"]))).unwrap();
    assert_eq!(got, json!({"key": "react", "value": "5"}));
    shell.ok(&line("put", &["--u64", "18446744073709551615", "last"]));
    assert_eq!(shell.ok(&line("get", &["--hex", "ffffffffffffffff"])), "6c617374\n");
    shell.ok(&line("del", &["--u64", "18446744073709551615"]));
    let found = shell.ok_with_input(&line("get", &["--keys-from", "-"]), b"react\n@babel/cli\n");
    assert_eq!(found, "react\t5\n@babel/cli\t1\n");
    let ended = shell.run_with_input(&line("get", &["--keys-from", "-"]), b"react\nabsent\n");
    assert_eq!((ended.code, ended.stderr.as_str()), (1, "rhumb: 1 of 2 keys are absent\n"));
}

#[test]
fn a_scan_is_in_order_and_within_its_bounds() {
    let (shell, _host) = with_packages();
    let keys = |args: &[&str]| {
        let printed = shell.ok(&line("scan", &[args, &["--keys-only"]].concat()));
        printed.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]), ["@babel/cli", "@babel/core", "@types/node", "left-pad", "react"]);
    assert_eq!(keys(&["--prefix", "@babel/"]), ["@babel/cli", "@babel/core"]);
    assert_eq!(
        keys(&["--from", "@babel/core", "--to", "m"]),
        ["@babel/core", "@types/node", "left-pad"]
    );
    assert_eq!(keys(&["--rev", "--limit", "2"]), ["react", "left-pad"]);
    assert_eq!(keys(&["--reverse", "--limit", "1"]), ["react"]);
    assert_eq!(shell.ok(&line("scan", &["--limit", "1"])), "@babel/cli\t1\n");
    let printed = shell.ok(&line("scan", &["--limit", "1", "--json"]));
    assert_eq!(printed, "{\"key\":\"@babel/cli\",\"value\":\"1\"}\n");
}

#[test]
fn a_keyspace_is_inspected_without_its_host() {
    let (shell, host) = with_packages();
    let text = shell.ok(&line("inspect", &["--walk"]));
    assert!(text.contains("5, 5.0 a leaf; 0 must be asked for"), "{text}");
    let json = shell.ok(&line("inspect", &["--walk", "--json"]));
    let seen: Json = serde_json::from_str(&json).unwrap();
    let stats = host.stats("packages").unwrap();
    assert_eq!((&seen["keyspace"], &seen["applied"]), (&json!("packages"), &json!(stats.applied)));
    assert_eq!(seen["mapped_bytes"], json!(stats.mapped_bytes));
    assert_eq!(seen["walk"]["entries"], json!(5));
    assert_eq!(seen["walk"]["leaves"], json!(stats.leaves));
    assert!(seen["heartbeat_age_ms"].as_u64().unwrap() < 60_000, "{seen}");
    let seen: Json = serde_json::from_str(&shell.ok(&line("inspect", &["--json"]))).unwrap();
    assert!(seen.get("walk").is_none());
}

#[test]
fn what_cannot_be_done_says_what_to_do() {
    let (shell, host) = with_packages();
    let nobody = "no host listens at unix:none.sock: start one";
    shell.fails(&["remote", "get", "none.sock", "packages", "a"], 3, nobody);
    shell.fails(&["remote", "inspect", "unix:host.sock", "others"], 3, "shares no keyspace");
    shell.fails(&["remote", "get", "rdma:db:7000", "k", "a"], 3, "7000: this build has no RDMA");
    shell.fails(&["remote", "put", "tcp:db", "k", "a", "b"], 64, "no port");
    shell.fails(&["remote", "del", "ssh:db", "k", "a"], 64, "no scheme \"ssh\"");
    shell.fails(&line("get", &["--u64", "abc"]), 64, "is not a number");
    shell.fails(&line("scan", &["--from", "b", "--to", "a"]), 64, "--from is after --to");
    let long_key = "k".repeat(70_000);
    shell.fails(&line("put", &[&long_key, "v"]), 3, "70000");
    // What a dead host leaves.
    let path = host.path().to_owned();
    drop(host);
    let left = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(left);
    shell.fails(&line("get", &["react"]), 3, "no host listens at unix:host.sock");
}

#[test]
fn every_command_has_examples() {
    let shell = Shell::new();
    for command in ["get", "scan", "put", "del", "inspect", "table", "bench"] {
        let help = shell.ok(&["remote", command, "--help"]);
        assert!(help.contains("Examples:") && help.contains("<URL> <KEYSPACE>"), "{help}");
    }
}

#[test]
fn a_benchmark_reads_from_other_processes_and_verifies() {
    let shell = Shell::new();
    let args = ["bench", "remote", "--keys", "2000", "--seconds", "0.02", "--repeat", "1"];
    let args = [&args[..], &["--clients", "2", "--verify", "--json"]].concat();
    let lines: Vec<Json> =
        shell.ok(&args).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = |subject: &str, workload: &str| {
        let is_it = |line: &&Json| line["subject"] == subject && line["workload"] == workload;
        lines.iter().find(|line| is_it(line) && line.get("ratio").is_none()).unwrap().clone()
    };
    for workload in ["get", "multi_get", "scan100", "a", "b", "c", "d", "e", "f", "insert"] {
        for subject in ["rhumb", "call", "index"] {
            let line = line(subject, workload);
            assert!(line["value"].as_f64().unwrap() > 0.0, "{line}");
            assert_eq!((&line["threads"], &line["suite"]), (&json!(2), &json!("remote")));
        }
    }
    let get = line("rhumb", "get");
    assert!(get["reads_per_op"].as_f64().unwrap() >= 1.0, "{get}");
    assert_eq!((&get["trips_per_op"], &get["cache_bytes_per_key"]), (&json!(0.0), &json!(0.0)));
    assert_eq!(line("call", "get")["calls_per_op"], json!(1.0));
    assert!(line("call", "get")["p50_ns"].as_u64().unwrap() > 500);
    assert!(line("call", "get")["server_ns_per_op"].as_f64().unwrap() > 100.0);
    assert_eq!(line("limit", "get")["reads_per_op"], json!(1.0));
    let is_ratio = |line: &&Json| line["against"] == "limit" && line["workload"] == "get";
    assert!(lines.iter().any(|line| is_ratio(&line)));
    let verified = lines.iter().filter(|line| line["verified"] == true);
    assert!(verified.clone().all(|line| line["missing"] == 0 && line["wrong"] == 0));
    // The limit has no answers.
    assert_eq!(verified.count(), 3);
}

#[test]
fn a_benchmark_of_several_hosts_says_what_each_got() {
    let shell = Shell::new();
    let args = ["bench", "remote", "--keys", "3000", "--seconds", "0.02", "--repeat", "1"];
    let more = ["--servers", "3", "--workload", "get,scan100,a", "--distribution", "zipf"];
    let args = [&args[..], &more, &["--verify", "--json"]].concat();
    let lines: Vec<Json> =
        shell.ok(&args).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let hosts: Vec<_> = lines.iter().filter(|line| line["host"] == "rhumb").collect();
    let entries = hosts.iter().map(|line| line["entries"].as_u64().unwrap());
    assert!(hosts.len() == 3 && entries.clone().all(|entries| entries > 700), "{hosts:?}");
    assert_eq!(entries.sum::<u64>(), 2_500);
    for workload in ["get", "scan100", "a"] {
        for subject in ["rhumb", "call"] {
            let is_it = |line: &&Json| line["subject"] == subject && line["workload"] == workload;
            let line = lines.iter().find(|line| is_it(line) && line.get("ratio").is_none());
            let line = line.unwrap();
            let share = |host| line[format!("share_of_host_{host}")].as_f64().unwrap();
            assert!((1..=3).all(|host| share(host) > 0.1), "{line}");
            assert!((share(1) + share(2) + share(3) - 1.0).abs() < 0.01, "{line}");
            assert!(line["share_of_host_4"].is_null() && line["servers"].is_null(), "{line}");
            let calls = line["calls_per_op"].as_f64().unwrap();
            assert!(if subject == "rhumb" { calls < 0.001 } else { calls > 0.001 }, "{line}");
        }
    }
    let verified = lines.iter().filter(|line| line["verified"] == true);
    assert!(verified.clone().all(|line| line["missing"] == 0 && line["wrong"] == 0));
    assert_eq!(verified.count(), 2);
}
