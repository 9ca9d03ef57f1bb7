//! A stream as a map of its entries, with two groups: where each has read to, and what is pending
//! for whom, how often it was delivered.

use std::collections::{BTreeMap, BTreeSet};

use rhumb_testkit::random::Random;

use super::{Step, common::Value};

type Id = (u64, u64);

#[derive(Default)]
struct Group {
    last: Id,
    /// Whose an entry is, and how often it was delivered.
    pending: BTreeMap<Id, (String, i64)>,
    consumers: BTreeSet<String>,
}

/// The model of the key `s`.
#[derive(Default)]
pub(crate) struct Model {
    entries: BTreeMap<Id, String>,
    last: Id,
    groups: BTreeMap<String, Group>,
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn id_text((ms, at): Id) -> String {
    format!("{ms}-{at}")
}

fn entry(id: Id, value: &str) -> Value {
    Value::Array(vec![Value::bulk(id_text(id)), Value::bulks(&["f", value])])
}

impl Model {
    /// An identifier, mostly of an entry that there was.
    fn some_id(&self, random: &mut Random) -> Id {
        (self.last.0.saturating_sub(random.below(40)), random.below(3))
    }

    /// A command, and its reply.
    pub(crate) fn step(&mut self, random: &mut Random) -> Step {
        if self.groups.len() < 2 {
            let name = format!("g{}", self.groups.len());
            self.groups.insert(name.clone(), Group { last: (0, 0), ..Group::default() });
            return (words(&format!("XGROUP CREATE s {name} 0 MKSTREAM")), Value::ok());
        }
        let group = format!("g{}", random.index(2));
        let consumer = format!("c{}", random.index(3));
        match random.index(24) {
            0..=6 => self.add(random),
            7 => {
                let id = self.some_id(random);
                let removed = self.entries.remove(&id).is_some();
                (words(&format!("XDEL s {}", id_text(id))), Value::Int(removed.into()))
            }
            8 if random.one_in(4) => {
                let most = 20 + random.index(200);
                let removed = self.entries.len().saturating_sub(most);
                (0..removed).for_each(|_| drop(self.entries.pop_first()));
                (words(&format!("XTRIM s MAXLEN {most}")), Value::Int(removed as i64))
            }
            9 => self.range(random),
            10..=13 => {
                // Now and then more than a page of what is pending holds.
                let most = if random.one_in(4) { 50 } else { 5 };
                self.read(&group, &consumer, 1 + random.index(most))
            }
            14..=15 => {
                let id = self.some_id(random);
                let done = self.group(&group).pending.remove(&id).is_some();
                (words(&format!("XACK s {group} {}", id_text(id))), Value::Int(done.into()))
            }
            16 => self.claim(&group, &consumer, self.some_id(random), random.one_in(2)),
            17 => self.pending(&group),
            18 => self.pending_of(&group, random),
            19 if random.one_in(2) => self.read_again(&group, &consumer, self.some_id(random)),
            20 => {
                let id = self.some_id(random);
                self.group(&group).last = id;
                (words(&format!("XGROUP SETID s {group} {}", id_text(id))), Value::ok())
            }
            21 if random.one_in(4) => self.remove_consumer(&group, &consumer),
            22..=23 => self.acknowledge(&group, random),
            _ => (words("XLEN s"), Value::Int(self.entries.len() as i64)),
        }
    }

    fn group(&mut self, name: &str) -> &mut Group {
        self.groups.get_mut(name).expect("both were made")
    }

    fn add(&mut self, random: &mut Random) -> Step {
        let id = (self.last.0 + random.below(2), 0);
        let id = if id.0 == self.last.0 { (id.0, self.last.1 + 1) } else { id };
        let value = format!("v{}", random.index(1000));
        self.entries.insert(id, value.clone());
        self.last = id;
        (words(&format!("XADD s {} f {value}", id_text(id))), Value::bulk(id_text(id)))
    }

    fn range(&mut self, random: &mut Random) -> Step {
        let (from, to) = (self.some_id(random), self.some_id(random));
        let most = 1 + random.index(6);
        let mut all: Vec<_> = match from <= to {
            true => self.entries.range(from..=to).collect(),
            false => Vec::new(),
        };
        let (mut name, mut ends) = ("XRANGE", [from, to]);
        if random.one_in(2) {
            (name, ends) = ("XREVRANGE", [to, from]);
            all.reverse();
        }
        let found = all.into_iter().take(most).map(|(id, value)| entry(*id, value));
        let line = format!("{name} s {} {} COUNT {most}", id_text(ends[0]), id_text(ends[1]));
        (words(&line), Value::Array(found.collect()))
    }

    fn read(&mut self, name: &str, consumer: &str, most: usize) -> Step {
        let after = self.group(name).last;
        let new: Vec<(Id, String)> = self
            .entries
            .range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded))
            .take(most)
            .map(|(id, value)| (*id, value.clone()))
            .collect();
        let group = self.group(name);
        group.consumers.insert(consumer.to_owned());
        for (id, _) in &new {
            group.last = *id;
            group.pending.insert(*id, (consumer.to_owned(), 1));
        }
        let line = format!("XREADGROUP GROUP {name} {consumer} COUNT {most} STREAMS s >");
        if new.is_empty() {
            return (words(&line), Value::NullArray);
        }
        let entries = new.iter().map(|(id, value)| entry(*id, value)).collect();
        let stream = Value::Array(vec![Value::bulk("s"), Value::Array(entries)]);
        (words(&line), Value::Array(vec![stream]))
    }

    /// What was removed from the stream is pending no more once it is claimed.
    fn claim(&mut self, name: &str, consumer: &str, id: Id, forces: bool) -> Step {
        let value = self.entries.get(&id).cloned();
        let group = self.group(name);
        group.consumers.insert(consumer.to_owned());
        let force = if forces { " FORCE" } else { "" };
        let line = format!("XCLAIM s {name} {consumer} 0 {}{force}", id_text(id));
        let found = match (group.pending.get_mut(&id), value) {
            (Some(pending), Some(value)) => {
                *pending = (consumer.to_owned(), pending.1 + 1);
                vec![entry(id, &value)]
            }
            (Some(_), None) => {
                group.pending.remove(&id);
                Vec::new()
            }
            (None, Some(value)) if forces => {
                group.pending.insert(id, (consumer.to_owned(), 2));
                vec![entry(id, &value)]
            }
            (None, _) => Vec::new(),
        };
        (words(&line), Value::Array(found))
    }

    /// Acknowledges several entries, most of which are neighbours.
    fn acknowledge(&mut self, name: &str, random: &mut Random) -> Step {
        let (from, most) = (self.some_id(random), 1 + random.index(20));
        let mut ids = vec![from];
        ids.extend(self.entries.range(from..).map(|(id, _)| *id).take(most));
        let group = self.group(name);
        let done = ids.iter().filter(|id| group.pending.remove(id).is_some()).count();
        let mut line = words(&format!("XACK s {name}"));
        line.extend(ids.into_iter().map(id_text));
        (line, Value::Int(done as i64))
    }

    fn remove_consumer(&mut self, name: &str, consumer: &str) -> Step {
        let group = self.group(name);
        let before = group.pending.len();
        group.pending.retain(|_, (of, _)| of != consumer);
        group.consumers.remove(consumer);
        let line = format!("XGROUP DELCONSUMER s {name} {consumer}");
        (words(&line), Value::Int((before - group.pending.len()) as i64))
    }

    fn pending(&mut self, name: &str) -> Step {
        let group = self.group(name);
        let line = words(&format!("XPENDING s {name}"));
        let (Some((first, _)), Some((last, _))) =
            (group.pending.first_key_value(), group.pending.last_key_value())
        else {
            let nothing = vec![Value::Int(0), Value::Null, Value::Null, Value::NullArray];
            return (line, Value::Array(nothing));
        };
        let of_each = group.consumers.iter().filter_map(|consumer| {
            let own = group.pending.values().filter(|(of, _)| of == consumer).count();
            (own > 0).then(|| Value::bulks(&[consumer, &own.to_string()]))
        });
        let reply = vec![
            Value::Int(group.pending.len() as i64),
            Value::bulk(id_text(*first)),
            Value::bulk(id_text(*last)),
            Value::Array(of_each.collect()),
        ];
        (line, Value::Array(reply))
    }

    /// Which are pending, for whom, and how often they were delivered; the moment is left out.
    fn pending_of(&mut self, name: &str, random: &mut Random) -> Step {
        let (from, consumer) = (self.some_id(random), format!("c{}", random.index(3)));
        let is_asked_for = random.one_in(2);
        let group = self.group(name);
        let found =
            group.pending.range(from..).filter(|(_, (of, _))| !is_asked_for || *of == consumer);
        let told = found.take(10).map(|(id, (of, times))| {
            let (id, of) = (Value::bulk(id_text(*id)), Value::bulk(of));
            Value::Array(vec![id, of, Value::Null, Value::Int(*times)])
        });
        let reply = Value::Array(told.collect());
        let mut line = format!("XPENDING s {name} {} + 10", id_text(from));
        if is_asked_for {
            line += &format!(" {consumer}");
        }
        (words(&line), reply)
    }

    /// What a consumer has pending, with its values: null for what was removed.
    fn read_again(&mut self, name: &str, consumer: &str, after: Id) -> Step {
        let entries = self.entries.clone();
        let group = self.group(name);
        group.consumers.insert(consumer.to_owned());
        let own = group.pending.iter_mut().filter(|(id, (of, _))| **id > after && of == consumer);
        let told = own.take(4).map(|(id, (_, times))| match entries.get(id) {
            Some(value) => {
                *times += 1;
                entry(*id, value)
            }
            None => Value::Array(vec![Value::bulk(id_text(*id)), Value::NullArray]),
        });
        let stream = Value::Array(vec![Value::bulk("s"), Value::Array(told.collect())]);
        let line =
            format!("XREADGROUP GROUP {name} {consumer} COUNT 4 STREAMS s {}", id_text(after));
        (words(&line), Value::Array(vec![stream]))
    }
}
