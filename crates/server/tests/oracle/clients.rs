//! Several clients of each server at once: some wait for keys until others bring them something,
//! some listen to channels and to what happens to keys. All get the same from both servers.
//!
//! One client runs a command at a time, and the next one comes once both servers have served those
//! that it let go on, so that there is one right outcome.

use std::{net::TcpStream, time::Duration};

use rhumb_testkit::random::Random;

use super::{
    Oracle,
    common::{self, Client, Value, encode, wait_until},
    generate::Generator,
    number,
    replies::{Replies, shown, text},
    streams::Streams,
};

type Command = Vec<Vec<u8>>;

const ACTORS: usize = 5;
const CHANNELS: [&str; 4] = ["c0", "c1", "d0", "c0x"];

/// A client of which it can be told whether something has come for it.
struct Peer {
    client: Client,
    socket: TcpStream,
}

impl Peer {
    fn connect(address: std::net::SocketAddr, resp3: bool) -> Self {
        let socket = Client::socket(address);
        let mut client = Client::over(socket.try_clone().unwrap());
        if resp3 {
            client.run("HELLO 3");
        }
        Self { client, socket }
    }

    fn has_something(&self) -> bool {
        if self.client.has_read_ahead() {
            return true;
        }
        self.socket.set_nonblocking(true).unwrap();
        let found = self.socket.peek(&mut [0]);
        self.socket.set_nonblocking(false).unwrap();
        found.is_ok()
    }
}

/// One of the two servers, with its clients.
struct Side {
    actors: Vec<Peer>,
    /// A client of each version of the protocol that listens.
    listeners: [Client; 2],
    control: Client,
}

impl Side {
    fn new(address: std::net::SocketAddr) -> Self {
        let mut control = Client::connect(address);
        control.run("FLUSHALL");
        control.run("CONFIG SET notify-keyspace-events KEA");
        let mut listeners = [Client::connect(address), Client::connect(address)];
        listeners[1].run("HELLO 3");
        for (listener, lines) in listeners.iter_mut().zip([
            ["SUBSCRIBE c0 fence", "PSUBSCRIBE c* __keyevent@*"],
            ["SUBSCRIBE fence c1", "PSUBSCRIBE __keyspace@*"],
        ]) {
            for line in lines {
                let names = line.split(' ').count() - 1;
                listener
                    .send_raw(&encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()))
                    .unwrap();
                (0..names).for_each(|_| drop(listener.reply().expect("a reply")));
            }
        }
        let actors = (0..ACTORS).map(|at| Peer::connect(address, at % 2 == 1)).collect();
        Self { actors, listeners, control }
    }

    /// How many clients wait.
    fn waiting(&mut self) -> usize {
        let text = self.control.run("INFO clients").text();
        let line = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        line.expect("a figure").parse().unwrap()
    }

    /// The number of an actor's connection.
    fn id_of(&mut self, at: usize) -> String {
        let list = self.control.run("CLIENT LIST").text();
        let local = self.actors[at].socket.local_addr().unwrap();
        let line = list.lines().find(|line| line.contains(&format!(" addr={local} ")));
        line.expect("a line of the client").split(['=', ' ']).nth(1).unwrap().to_owned()
    }

    /// What has come for the listeners since the last call.
    fn messages(&mut self, fence: u64) -> [Vec<Value>; 2] {
        self.control.run(&format!("PUBLISH fence {fence}"));
        self.listeners.each_mut().map(|listener| {
            let mut messages = Vec::new();
            loop {
                let message = listener.reply().expect("a message");
                let (Value::Array(words) | Value::Push(words)) = &message else {
                    panic!("no message: {message:?}")
                };
                if words.get(1) == Some(&Value::bulk("fence")) {
                    break messages;
                }
                messages.push(message);
            }
        })
    }
}

/// Milliseconds after which a reply does not come any more.
const WAIT_MS: usize = 20_000;

/// The consumer of a client that waits. It is made beforehand: 7.0 makes it once there is an entry
/// for it, and 7.2 when it begins to wait.
const WAITING: &str = "waiting";

/// Messages by what they are of, a key or a text; those of one stay in their order. Clients that
/// wait for different keys go on side by side, also if one of them writes the key of the other.
fn by_subject(mut messages: Vec<Value>) -> Vec<Value> {
    messages.sort_by_cached_key(subject);
    messages
}

/// The key of an event with its database, or else the text of a message. The channel of an event is
/// `__keyspace@0__:key` or `__keyevent@0__:event`, and the key is in its message then.
fn subject(message: &Value) -> Option<String> {
    let (Value::Array(parts) | Value::Push(parts)) = message else { return None };
    let [.., channel, text] = parts.as_slice() else { return None };
    let channel = channel.text();
    let Some((database, name)) = channel.split_once("__:") else { return Some(text.text()) };
    let key = if database.starts_with("__keyspace") { name.to_owned() } else { text.text() };
    Some(format!("{key} of {}", database.split('@').nth(1)?))
}

/// What is being compared.
struct Both {
    sides: [Side; 2],
    replies: Vec<Replies>,
    /// The commands that actors wait with.
    waiting: Vec<Option<Command>>,
    /// Replies of Redis that were read before those from here.
    early: [Option<Value>; ACTORS],
    history: Vec<String>,
}

impl Both {
    fn check(&self, what: &str, ours: &Value, theirs: &Value) {
        if ours != theirs {
            let tail = self.tail();
            let (ours, theirs) = first_difference(ours, theirs);
            panic!("{what}:\n{tail}\n  ours   {}\n  theirs {}", shown(&ours), shown(&theirs));
        }
    }

    /// Waits until `done`, which the history must bring about.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut [Side; 2]) -> bool) {
        for _ in 0..WAIT_MS {
            if done(&mut self.sides) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let counts = self.sides.each_mut().map(Side::waiting);
        panic!("{what} does not happen:\n{}\n  {counts:?} wait (here, Redis)", self.tail());
    }

    /// The last commands, and those that actors wait with.
    fn tail(&self) -> String {
        let from = self.history.len().saturating_sub(100);
        let waits = |(at, command): (usize, &Option<Command>)| {
            Some(format!("  {at} waits: {}", text(command.as_ref()?)))
        };
        let waiting = (0..).zip(&self.waiting).filter_map(waits);
        self.history[from..].iter().cloned().chain(waiting).collect::<Vec<_>>().join("\n")
    }

    /// Reads the replies of an actor and compares them.
    fn compare(&mut self, actor: usize, command: &[Vec<u8>]) {
        let mut replied = [false; 2];
        for _ in 0..WAIT_MS {
            replied = self.sides.each_ref().map(|side| side.actors[actor].has_something());
            replied[1] |= self.early[actor].is_some();
            if replied == [true; 2] {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if replied != [true; 2] {
            let tail = self.tail();
            panic!("client {actor} has a reply (here, Redis): {replied:?}\n{tail}");
        }
        let mut read = |side: usize| self.sides[side].actors[actor].client.reply();
        let ours = read(0).expect("a reply");
        let theirs = self.early[actor].take().or_else(|| read(1)).expect("a reply");
        let pair = [ours, theirs];
        let [ours, theirs] = self.replies[actor].compared(command, pair);
        self.check(&format!("client {actor}, {}", text(command)), &ours, &theirs);
    }

    /// Has an actor run a command, and those that it lets go on get their replies.
    fn run(&mut self, actor: usize, command: Command, may_wait: bool) {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        self.history.push(format!("{actor}: {}", text(&command)));
        let before = self.waiting.iter().flatten().count();
        for side in &mut self.sides {
            side.actors[actor].client.send_raw(&encode(&words)).unwrap();
        }
        if may_wait {
            self.until("a reply or a client that waits", |sides| {
                let has_replied = |side: &mut Side| side.actors[actor].has_something();
                sides.iter_mut().all(|side| has_replied(side) || side.waiting() == before + 1)
            });
            let replied = self.sides.each_ref().map(|side| side.actors[actor].has_something());
            if !replied[0] && !replied[1] {
                self.waiting[actor] = Some(command);
                return;
            }
        }
        self.compare(actor, &command);
        if before > 0 {
            self.serve(before);
        }
    }

    /// Reads the replies of those that wait no longer.
    fn serve(&mut self, mut before: usize) {
        // Redis has served them before it has answered; here they may be served a little later.
        let left = self.sides[1].waiting();
        let is_let_go = |both: &Self, at: usize| {
            both.waiting[at].is_some() && both.sides[1].actors[at].has_something()
        };
        let let_go =
            |both: &Self| (0..ACTORS).filter(|at| is_let_go(both, *at)).collect::<Vec<_>>();
        wait_until(|| let_go(self).len() == before - left);
        for at in let_go(self) {
            let reply = self.sides[1].actors[at].client.reply().expect("a reply");
            if is_of_empty_streams(&reply) {
                self.let_go_unserved(at);
                before -= 1;
            } else {
                self.early[at] = Some(reply);
            }
        }
        self.until("that the same number waits", |sides| sides[0].waiting() == left);
        for at in (0..ACTORS).filter(|at| self.early[*at].is_some()).collect::<Vec<_>>() {
            let command = self.waiting[at].take().expect("it has waited");
            self.history.push(format!("{at} goes on: {}", text(&command)));
            self.compare(at, &command);
            before -= 1;
        }
        assert_eq!(before, left);
    }

    /// Lets a client go on here that Redis 7.0 has let go on without an entry. It does that if
    /// everything that was added to a stream is gone by then, and 7.2 does not.
    fn let_go_unserved(&mut self, at: usize) {
        let command = self.waiting[at].take().expect("it has waited");
        self.history.push(format!("{at} is let go on unserved: {}", text(&command)));
        let id = self.sides[0].id_of(at);
        assert_eq!(self.sides[0].control.run(&format!("CLIENT UNBLOCK {id}")), Value::Int(1));
        let reply = self.sides[0].actors[at].client.reply().expect("a reply");
        assert!(matches!(reply, Value::Null | Value::NullArray), "{reply:?}");
    }

    /// Lets one that waits go on without a key.
    fn unblock(&mut self, at: usize, how: &str) {
        let before = self.waiting.iter().flatten().count();
        self.history.push(format!("{at} is unblocked with {how}"));
        for side in &mut self.sides {
            let id = side.id_of(at);
            let reply = side.control.run(&format!("CLIENT UNBLOCK {id} {how}"));
            assert_eq!(reply, Value::Int(1));
        }
        self.serve(before);
    }

    fn compare_messages(&mut self, fence: u64) {
        let [ours, theirs] = self.sides.each_mut().map(|side| side.messages(fence));
        for (ours, theirs) in ours.into_iter().zip(theirs) {
            let [ours, theirs] = [ours, theirs].map(|all| Value::Array(by_subject(all)));
            self.check("messages", &ours, &theirs);
        }
    }
}

/// A command that waits for a key until it is there.
fn waits(random: &mut Random) -> Command {
    let list = |random: &mut Random| format!("t3{}", random.index(3));
    let sorted = |random: &mut Random| format!("t2{}", random.index(3));
    let (one, other) = (list(random), list(random));
    let (low, high) = (sorted(random), sorted(random));
    let end = ["LEFT", "RIGHT"][random.index(2)];
    let least = ["MIN", "MAX"][random.index(2)];
    let (stream, from) = (random.index(2), ["$", "3-1", "0"][random.index(3)]);
    let line = match random.index(11) {
        0..=1 => format!("BLPOP {one} {other} 0"),
        2 => format!("BRPOP {one} {other} 0"),
        3 => format!("BLMOVE {one} {other} {end} LEFT 0"),
        4 => format!("BRPOPLPUSH {one} {other} 0"),
        5 => format!("BLMPOP 0 2 {one} {other} {end} COUNT 2"),
        6 => format!("BZPOPMIN {low} {high} 0"),
        7 => format!("BZPOPMAX {low} 0"),
        8 => format!("BZMPOP 0 2 {low} {high} {least} COUNT 2"),
        9 => format!("XREAD COUNT 2 BLOCK 0 STREAMS s{stream} {from}"),
        _ => format!("XREADGROUP GROUP g0 {WAITING} BLOCK 0 STREAMS s{stream} >"),
    };
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns true for streams without entries, which Redis 7.0 sends to a client that has waited.
fn is_of_empty_streams(reply: &Value) -> bool {
    let is_empty = |entries: &Value| matches!(entries, Value::Array(all) if all.is_empty());
    match reply {
        Value::Array(streams) => match &streams[..] {
            [Value::Array(stream)] => matches!(&stream[..], [_, entries] if is_empty(entries)),
            _ => false,
        },
        Value::Map(streams) => matches!(&streams[..], [_, entries] if is_empty(entries)),
        _ => false,
    }
}

/// Two lists from the elements on in which they differ; other values as they are.
fn first_difference(ours: &Value, theirs: &Value) -> (Value, Value) {
    if let (Value::Array(ours), Value::Array(theirs)) = (ours, theirs) {
        let same = ours.iter().zip(theirs).take_while(|(one, other)| one == other).count();
        let rest = |all: &[Value]| Value::Array(all[same..].iter().take(8).cloned().collect());
        return (rest(ours), rest(theirs));
    }
    (ours.clone(), theirs.clone())
}

fn publishes(random: &mut Random) -> Command {
    let channel = CHANNELS[random.index(CHANNELS.len())];
    let message = format!("m{}", random.index(100));
    ["PUBLISH", channel, &message].iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Commands that say of a client or a setting what is each server's own affair, or that would take
/// the events away; and `SWAPDB`, also in a script, after which Redis serves those that wait in the
/// order of its hash table of their keys.
fn is_left_out(command: &[Vec<u8>]) -> bool {
    let is = |word: &[u8], names: &[&str]| {
        names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    is(&command[0], &["config", "client", "hello"])
        || command.iter().any(|word| is(word, &["swapdb"]))
}

#[test]
fn several_clients_get_what_redis_gives() {
    let Some(oracle) = Oracle::start() else { return };
    let (_dir, server, _client) = common::start();
    let commands = number("RHUMB_ORACLE_COMMANDS").unwrap_or(8_000) / 4;
    let seed = number("RHUMB_SEED").unwrap_or(1);
    let mut random = Random::new(seed);
    let mut both = Both {
        sides: [Side::new(server.address()), Side::new(oracle.address)],
        replies: (0..ACTORS).map(|_| Replies::default()).collect(),
        waiting: vec![None; ACTORS],
        early: Default::default(),
        history: vec![format!("seed {seed}")],
    };
    let mut generators: Vec<Generator> =
        (0..ACTORS).map(|_| Generator::new(random.next())).collect();
    let mut streams = Streams::new(seed);
    let mut waited = 0;
    for at in 0..commands {
        let free: Vec<usize> = (0..ACTORS).filter(|at| both.waiting[*at].is_none()).collect();
        let actor = free[random.index(free.len())];
        match random.index(20) {
            0..=3 if free.len() > 1 => {
                let command = waits(&mut random);
                if command[0] == b"XREADGROUP" {
                    let stream = String::from_utf8_lossy(&command[7]).into_owned();
                    let line = format!("XGROUP CREATECONSUMER {stream} g0 {WAITING}");
                    let makes = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
                    both.run(actor, makes, false);
                }
                both.run(actor, command, true);
                waited += u64::from(both.waiting[actor].is_some());
            }
            4 if free.len() < ACTORS => {
                let waiting: Vec<usize> =
                    (0..ACTORS).filter(|at| both.waiting[*at].is_some()).collect();
                let how = ["TIMEOUT", "ERROR"][random.index(2)];
                both.unblock(waiting[random.index(waiting.len())], how);
            }
            5 => both.run(actor, publishes(&mut random), false),
            6..=8 => {
                for command in streams.commands() {
                    both.run(actor, command, false);
                }
            }
            _ => {
                let command = generators[actor].one();
                if !is_left_out(&command) {
                    both.run(actor, command, false);
                }
            }
        }
        if random.index(10) == 0 {
            both.compare_messages(at);
        }
    }
    println!("{commands} commands of several clients, of which {waited} waited: the same");
    drop(both);
    server.stop().unwrap();
}
