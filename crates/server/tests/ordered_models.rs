//! Sorted sets and streams beside models of `BTreeMap`s, through a socket and over restarts: ranks,
//! counts and ranges, consumer groups and what they have pending.
//!
//! `RHUMB_MODEL_STEPS` says how many steps (default 3,000 for each), `RHUMB_SEED` repeats a run.

mod common;
#[path = "models/sorted_set.rs"]
mod sorted_set;
#[path = "models/stream.rs"]
mod stream;

use common::{Client, Value, config};
use rhumb_server::Running;
use rhumb_testkit::random::Random;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A command, and the reply that the model gives.
type Step = (Vec<String>, Value);

/// Runs the steps of a model against a server, which is started again now and then.
fn follow(mut step: impl FnMut(&mut Random) -> Step) {
    let seed = number("RHUMB_SEED").unwrap_or(1);
    let steps = number("RHUMB_MODEL_STEPS").unwrap_or(3_000);
    let mut random = Random::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut server = Running::start(config(&dir)).unwrap();
    let mut client = Client::connect(server.address());
    let mut history: Vec<String> = Vec::new();
    for _ in 0..steps {
        if random.one_in(1_000) {
            history.push("the server is started again".into());
            drop(client);
            server.stop().unwrap();
            server = Running::start(config(&dir)).unwrap();
            client = Client::connect(server.address());
        }
        let (command, expected) = step(&mut random);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        history.push(words.join(" "));
        let mut reply = client.call(&words);
        if let (["XPENDING", _, _, _, ..], Value::Array(all)) = (&words[..], &mut reply) {
            for one in all {
                if let Value::Array(parts) = one {
                    // For how long.
                    parts[2] = Value::Null;
                }
            }
        }
        let tail = &history[history.len().saturating_sub(40)..];
        assert_eq!(reply, expected, "seed {seed}:\n{}", tail.join("\n"));
    }
    server.stop().unwrap();
}

#[test]
fn a_sorted_set_is_as_its_model() {
    let mut model = sorted_set::Model::default();
    follow(|random| model.step(random));
}

#[test]
fn a_stream_and_its_groups_are_as_their_model() {
    let mut model = stream::Model::default();
    follow(|random| model.step(random));
}
