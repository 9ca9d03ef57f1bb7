//! Streams and their groups: beside a model, and what no comparison with Redis 7.0 can show.

mod common;

use std::collections::BTreeMap;

use common::{Client, Value, config, encode, start};
use rhumb_server::Running;
use rhumb_testkit::random::Random;

/// An identifier of the model: its milliseconds, with 0 as the second part.
type Id = u64;

/// A stream with one group: its entries, the last one delivered, and who has what pending.
#[derive(Default)]
struct Model {
    entries: BTreeMap<Id, String>,
    last: Id,
    delivered: Id,
    pending: BTreeMap<Id, (String, i64)>,
}

impl Model {
    fn read(&mut self, consumer: &str, count: usize) -> Vec<Id> {
        let new: Vec<Id> =
            self.entries.range(self.delivered + 1..).map(|(id, _)| *id).take(count).collect();
        for id in &new {
            self.pending.insert(*id, (consumer.to_owned(), 1));
            self.delivered = *id;
        }
        new
    }

    fn of(&self, consumer: &str) -> Vec<Id> {
        let own = self.pending.iter().filter(|(_, (other, _))| other == consumer);
        own.map(|(id, _)| *id).collect()
    }

    fn trim(&mut self, keep: usize) -> i64 {
        let mut removed = 0;
        while self.entries.len() > keep {
            self.entries.pop_first();
            removed += 1;
        }
        removed
    }
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        Value::Null | Value::NullArray => Vec::new(),
        other => panic!("no array: {other:?}"),
    }
}

/// The identifiers of entries, or of pairs that begin with one.
fn ids(entries: Value) -> Vec<Id> {
    let id = |entry: Value| {
        let text = match entry {
            Value::Array(parts) => parts[0].text(),
            other => other.text(),
        };
        text.split('-').next().unwrap().parse().unwrap()
    };
    items(entries).into_iter().map(id).collect()
}

/// What `XREADGROUP` of one stream has read.
fn read_ids(reply: Value) -> Vec<Id> {
    match items(reply).pop() {
        Some(Value::Array(mut stream)) => ids(stream.pop().unwrap()),
        _ => Vec::new(),
    }
}

fn check(client: &mut Client, model: &Model) {
    assert_eq!(client.run("XLEN s"), Value::Int(model.entries.len() as i64));
    let all: Vec<Id> = model.entries.keys().copied().collect();
    assert_eq!(ids(client.run("XRANGE s - +")), all);
    let reversed: Vec<Id> = all.iter().rev().copied().collect();
    assert_eq!(ids(client.run("XREVRANGE s + -")), reversed);
    let pending = items(client.run("XPENDING s g - + 100000"));
    let told: Vec<(Id, String, Value)> = pending
        .into_iter()
        .map(|entry| {
            let parts = items(entry);
            let id = parts[0].text().trim_end_matches("-0").parse().unwrap();
            (id, parts[1].text(), parts[3].clone())
        })
        .collect();
    let expected: Vec<(Id, String, Value)> = model
        .pending
        .iter()
        .map(|(id, (consumer, count))| (*id, consumer.clone(), Value::Int(*count)))
        .collect();
    assert_eq!(told, expected);
    let summary = items(client.run("XPENDING s g"));
    assert_eq!(summary[0], Value::Int(model.pending.len() as i64));
    if let (Some((first, _)), Some((last, _))) =
        (model.pending.first_key_value(), model.pending.last_key_value())
    {
        assert_eq!(summary[1].text(), format!("{first}-0"));
        assert_eq!(summary[2].text(), format!("{last}-0"));
    }
    for entry in items(summary[3].clone()) {
        let [name, count] = &items(entry)[..] else { panic!("no pair") };
        assert_eq!(count.text(), model.of(&name.text()).len().to_string());
    }
}

#[test]
fn a_stream_with_a_group_is_as_its_model() {
    let (dir, server, mut client) = start();
    let (mut random, mut model) = (Random::new(7), Model::default());
    assert_eq!(client.run("XGROUP CREATE s g 0 MKSTREAM"), Value::ok());
    for step in 0..3000 {
        let consumer = format!("c{}", random.index(3));
        let near = model.last.saturating_sub(random.index(60) as u64);
        match random.index(12) {
            0..=4 => {
                model.last += 1 + random.index(3) as u64;
                model.entries.insert(model.last, format!("v{step}"));
                client.run(&format!("XADD s {}-0 f v{step}", model.last));
            }
            5 => {
                let gone = i64::from(model.entries.remove(&near).is_some());
                assert_eq!(client.run(&format!("XDEL s {near}-0")), Value::Int(gone));
            }
            6..=7 => {
                let count = 1 + random.index(5);
                let line = format!("XREADGROUP GROUP g {consumer} COUNT {count} STREAMS s >");
                assert_eq!(read_ids(client.run(&line)), model.read(&consumer, count));
            }
            8 => {
                let gone = i64::from(model.pending.remove(&near).is_some());
                assert_eq!(client.run(&format!("XACK s g {near}-0")), Value::Int(gone));
            }
            9 => {
                let line = format!("XREADGROUP GROUP g {consumer} STREAMS s 0");
                let own = model.of(&consumer);
                assert_eq!(read_ids(client.run(&line)), own);
                for id in own.iter().filter(|id| model.entries.contains_key(id)) {
                    model.pending.get_mut(id).unwrap().1 += 1;
                }
            }
            10 => {
                let reply = items(client.run(&format!("XAUTOCLAIM s g {consumer} 0 0 COUNT 3")));
                let some: Vec<Id> = model.pending.keys().copied().take(3).collect();
                let (here, gone): (Vec<Id>, Vec<Id>) =
                    some.into_iter().partition(|id| model.entries.contains_key(id));
                assert_eq!(
                    (ids(reply[1].clone()), ids(reply[2].clone())),
                    (here.clone(), gone.clone())
                );
                for id in here {
                    let pending = model.pending.get_mut(&id).unwrap();
                    *pending = (consumer.clone(), pending.1 + 1);
                }
                gone.iter().for_each(|id| drop(model.pending.remove(id)));
            }
            _ if step % 20 == 0 => {
                let keep = random.index(300);
                let removed = Value::Int(model.trim(keep));
                assert_eq!(client.run(&format!("XTRIM s MAXLEN {keep}")), removed);
            }
            _ => {
                let pending = Value::Int(model.of(&consumer).len() as i64);
                model.pending.retain(|_, (other, _)| *other != consumer);
                assert_eq!(client.run(&format!("XGROUP DELCONSUMER s g {consumer}")), pending);
            }
        }
        if step % 50 == 0 {
            check(&mut client, &model);
        }
    }
    check(&mut client, &model);
    server.stop().unwrap();
    let server = Running::start(config(&dir)).unwrap();
    check(&mut Client::connect(server.address()), &model);
}

fn fill(client: &mut Client, key: &str, from: u64, count: u64) {
    for id in from..from + count {
        client.run(&format!("XADD {key} {id}-0 f v"));
    }
}

#[test]
fn trimming_counts_exactly_from_either_end() {
    let (_dir, _server, mut client) = start();
    fill(&mut client, "s", 1, 2500);
    for (line, removed, first, length) in [
        ("XTRIM s MAXLEN 2490", 10, 11, 2490),
        ("XTRIM s MINID 111", 100, 111, 2390),
        ("XTRIM s MAXLEN ~ 2345", 0, 111, 2390),
        ("XTRIM s MAXLEN ~ 2190", 190, 301, 2200),
        ("XTRIM s MINID ~ 620 LIMIT 250", 200, 501, 2000),
        ("XTRIM s MAXLEN 40", 1960, 2461, 40),
    ] {
        assert_eq!(client.run(line), Value::Int(removed), "{line}");
        assert_eq!(client.run("XLEN s"), Value::Int(length), "{line}");
        assert_eq!(ids(client.run("XRANGE s - + COUNT 1")), [first], "{line}");
        assert_eq!(ids(client.run("XRANGE s - +")).len() as i64, length, "{line}");
    }
}

#[test]
fn what_is_trimmed_is_gone_within_its_transaction() {
    let (_dir, _server, mut client) = start();
    fill(&mut client, "s", 1, 200);
    client.run("MULTI");
    for line in [
        "XTRIM s MAXLEN 0",
        "XSETID s 0-0",
        "XADD s 150-0 f again",
        "XADD s 300-0 f v",
        "XRANGE s - +",
        "COPY s t",
        "XRANGE t - +",
    ] {
        client.run(line);
    }
    let replies = items(client.run("EXEC"));
    assert_eq!(replies[0], Value::Int(200));
    assert_eq!(ids(replies[4].clone()), [150, 300]);
    assert_eq!(ids(replies[6].clone()), [150, 300]);
    for key in ["s", "t"] {
        assert_eq!(ids(client.run(&format!("XRANGE {key} - +"))), [150, 300], "{key}");
    }
}

#[test]
fn a_group_that_is_made_again_has_nothing_of_the_one_before() {
    let (_dir, _server, mut client) = start();
    fill(&mut client, "s", 1, 20);
    client.run("XGROUP CREATE s g 0");
    client.run("XREADGROUP GROUP g c STREAMS s >");
    client.run("MULTI");
    client.run("XGROUP DESTROY s g");
    client.run("XGROUP CREATE s g 15");
    client.run("XREADGROUP GROUP g d STREAMS s >");
    client.run("XPENDING s g");
    let replies = items(client.run("EXEC"));
    assert_eq!(read_ids(replies[2].clone()), [16, 17, 18, 19, 20]);
    assert_eq!(items(replies[3].clone())[0], Value::Int(5));
    assert_eq!(items(client.run("XINFO CONSUMERS s g")).len(), 1);
}

#[test]
fn the_last_entry_is_read_by_a_plus() {
    let (_dir, _server, mut client) = start();
    assert_eq!(client.run("XREAD STREAMS s +"), Value::NullArray);
    fill(&mut client, "s", 1, 5);
    assert_eq!(read_ids(client.run("XREAD STREAMS s +")), [5]);
    client.run("XDEL s 5-0");
    assert_eq!(read_ids(client.run("XREAD COUNT 7 STREAMS s +")), [4]);
}

#[test]
fn a_consumer_is_made_though_there_is_nothing_for_it() {
    let (_dir, _server, mut client) = start();
    client.run("XGROUP CREATE s g $ MKSTREAM");
    assert_eq!(client.run("XREADGROUP GROUP g a STREAMS s >"), Value::NullArray);
    client.run("XAUTOCLAIM s g b 0 0");
    client.run("XCLAIM s g c 0 1-1");
    let consumers = items(client.run("XINFO CONSUMERS s g"));
    let names: Vec<String> =
        consumers.into_iter().map(|consumer| items(consumer)[1].text()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[test]
fn approximate_trimming_removes_whole_nodes() {
    let (_dir, _server, mut client) = start();
    client.run("CONFIG SET stream-node-max-entries 10");
    let fill = |client: &mut Client| {
        client.run("DEL s");
        for id in 1..=100 {
            client.run(&format!("XADD s {id} f v"));
        }
    };
    fill(&mut client);
    for (line, left) in [
        ("XADD s MAXLEN ~ 55 LIMIT 30 * f v", 71),
        ("XADD s MAXLEN ~ 55 LIMIT 30 * f v", 62),
        ("XTRIM s MAXLEN ~ 55 LIMIT 9", 62),
        // A node of which a part is gone already.
        ("XTRIM s MAXLEN 57", 57),
        ("XTRIM s MAXLEN ~ 55", 57),
        ("XTRIM s MAXLEN ~ 52", 52),
        ("XTRIM s MINID ~ 80", 32),
        ("XTRIM s MAXLEN ~ 0", 0),
    ] {
        client.run(line);
        assert_eq!(client.run("XLEN s"), Value::Int(left), "{line}");
    }
    client.run("CONFIG SET stream-node-max-entries 0");
    fill(&mut client);
    assert_eq!(client.run("XTRIM s MAXLEN ~ 1"), Value::Int(0));
}

/// Commands of one pipeline share a commit: one that is to wait does so outside of it, and sees
/// what came before it.
#[test]
fn groups_are_read_in_a_pipeline_as_one_by_one() {
    let (_dir, server, mut client) = start();
    let mut other = Client::connect(server.address());
    client.run("XGROUP CREATE s g 0 MKSTREAM");
    client.run("XGROUP CREATE t g 0 MKSTREAM");
    let lines = [
        "XADD s 1-0 f v",
        "XADD s 2-0 f v",
        "XREADGROUP GROUP g a COUNT 1 STREAMS s >",
        "XREADGROUP GROUP g b COUNT 9 STREAMS s s > >",
        "XREADGROUP GROUP g b COUNT 9 STREAMS s >",
        "XACK s g 1-0 2-0",
        "XREADGROUP GROUP g a COUNT 9 STREAMS t s > 0",
        "XREADGROUP GROUP g a BLOCK 0 STREAMS t >",
        "XLEN s",
    ];
    let bytes: Vec<u8> = lines
        .iter()
        .flat_map(|line| encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
        .collect();
    client.send_raw(&bytes).unwrap();
    let replies: Vec<Value> = lines[..7].iter().map(|_| client.reply().unwrap()).collect();
    assert_eq!(read_ids(replies[2].clone()), [1]);
    // The second time that the stream is named nothing is left.
    assert_eq!(items(replies[3].clone()).len(), 1);
    assert_eq!(read_ids(replies[3].clone()), [2]);
    assert_eq!((&replies[4], &replies[5]), (&Value::NullArray, &Value::Int(2)));
    assert_eq!(items(replies[6].clone()).len(), 1);
    assert!(read_ids(replies[6].clone()).is_empty());
    other.run("XADD t 5-0 f v");
    assert_eq!(read_ids(client.reply().unwrap()), [5]);
    assert_eq!(client.reply(), Some(Value::Int(2)));
    // Moved back: what is pending is taken over, and counted once.
    client.run("XREADGROUP GROUP g a STREAMS t >");
    client.run("XGROUP SETID t g 0");
    assert_eq!(read_ids(client.run("XREADGROUP GROUP g b STREAMS t >")), [5]);
    let pending = items(client.run("XPENDING t g - + 10"));
    assert_eq!(pending.len(), 1);
    assert_eq!(items(pending[0].clone())[1].text(), "b");
    assert_eq!(items(client.run("XPENDING t g"))[0], Value::Int(1));
}

/// A consumer that waits is there, as in Redis: it can be seen, and is not taken for one that has
/// gone.
#[test]
fn a_consumer_that_waits_is_known() {
    let (_dir, server, mut client) = start();
    let mut waiting = Client::connect(server.address());
    client.run("XGROUP CREATE s g 0 MKSTREAM");
    client.run("XGROUP CREATE t g 0 MKSTREAM");
    let names = |client: &mut Client, key: &str| -> Vec<String> {
        let consumers = items(client.run(&format!("XINFO CONSUMERS {key} g")));
        consumers.into_iter().map(|consumer| items(consumer)[1].text()).collect()
    };
    client.run("WATCH s t");
    waiting.send_raw(b"XREADGROUP GROUP g a BLOCK 0 STREAMS s t > >\r\n").unwrap();
    common::wait_until(|| names(&mut client, "t") == ["a"]);
    assert_eq!(names(&mut client, "s"), ["a"]);
    // The streams are as they were.
    client.run("MULTI");
    client.run("XGROUP DELCONSUMER s g a");
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::Int(0)]));
    client.run("XADD s 5-0 f v");
    assert_eq!(read_ids(waiting.reply().unwrap()), [5]);
    assert_eq!(names(&mut client, "s"), ["a"]);
    // One that waits in vain was heard of.
    let mut quiet_ms = || {
        let consumers = items(client.run("XINFO CONSUMERS t g"));
        match items(consumers[0].clone())[5] {
            Value::Int(idle) => idle,
            ref other => panic!("{other:?}"),
        }
    };
    common::wait_until(|| quiet_ms() >= 50);
    common::wait_until(|| {
        assert_eq!(waiting.run("XREADGROUP GROUP g a BLOCK 1 STREAMS t >"), Value::NullArray);
        quiet_ms() < 50
    });
}

#[test]
fn streams_without_an_identifier_are_refused_by_name() {
    let (_dir, _server, mut client) = start();
    for (line, name, symbol) in [
        ("XREADGROUP GROUP g a COUNT 1 STREAMS s", "xreadgroup", '>'),
        ("XREAD COUNT 1 STREAMS s", "xread", '$'),
    ] {
        let text = format!(
            "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must \
             be specified."
        );
        assert_eq!(client.run(line), Value::Error(text));
    }
}

/// A group that goes back delivers entries on both sides of one that is pending.
#[test]
fn what_is_pending_is_in_order_after_a_group_goes_back() {
    let (_dir, _server, mut client) = start();
    for ms in [4, 5, 8] {
        client.run(&format!("XADD s {ms}-0 f v"));
    }
    client.run("XGROUP CREATE s g 4");
    client.run("XREADGROUP GROUP g a COUNT 1 STREAMS s >");
    client.run("XDEL s 5-0");
    client.run("XGROUP SETID s g 0");
    assert_eq!(read_ids(client.run("XREADGROUP GROUP g b STREAMS s >")), [4, 8]);
    let pending = items(client.run("XPENDING s g - + 10"));
    let ids: Vec<String> = pending.iter().map(|one| items(one.clone())[0].text()).collect();
    assert_eq!(ids, ["4-0", "5-0", "8-0"]);
    assert_eq!(client.run("XACK s g 5-0"), Value::Int(1));
    assert_eq!(client.run("XACK s g 4-0 8-0"), Value::Int(2));
}
