//! Tests of the rules and of the checks.

use super::*;
use crate::resp::{Args, OwnedArgs};

fn catalog() -> Catalog {
    let slots = [
        ("client", &["slow"][..], 6..8),
        ("config", &["slow"], 8..10),
        ("get", &["read", "string", "fast"], 0..0),
        ("select", &["fast", "connection"], 0..0),
        ("set", &["write", "string", "slow"], 0..0),
        ("subscribe", &["pubsub", "slow"], 0..0),
        ("client|id", &["slow", "connection"], 0..0),
        ("client|kill", &["admin", "slow", "dangerous", "connection"], 0..0),
        ("config|get", &["admin", "slow", "dangerous"], 0..0),
        ("config|set", &["admin", "slow", "dangerous"], 0..0),
    ];
    Catalog::new(slots.into_iter().map(|(name, all, parts)| Slot::new(name, all, parts)).collect())
}

fn user(rules: &str) -> Result<User, &'static str> {
    let catalog = catalog();
    let mut user = User::new(&catalog, b"u", false);
    let rules = join_selectors(rules.split(' ').map(str::as_bytes)).map_err(|_| "unmatched")?;
    for rule in rules {
        user.apply(&catalog, &rule, false).map_err(rules::RuleError::text)?;
    }
    Ok(user)
}

fn described(rules: &str) -> String {
    String::from_utf8(user(rules).unwrap().describe()).unwrap()
}

#[test]
fn rules_are_told_in_one_order() {
    for (rules, expected) in [
        ("reset", "user u off sanitize-payload resetchannels -@all"),
        ("on nopass +@all &* ~*", "user u on nopass sanitize-payload ~* &* +@all"),
        (
            "%R~a %w~b %RW~c ~a %R~d %W~d",
            "user u off sanitize-payload ~a %W~b ~c ~d resetchannels -@all",
        ),
        (
            "&a &b &a skip-sanitize-payload",
            "user u off skip-sanitize-payload resetchannels &a &b -@all",
        ),
        ("+GET -get +set", "user u off sanitize-payload resetchannels -@all -get +set"),
        ("+client|id +client", "user u off sanitize-payload resetchannels -@all +client"),
        (
            "+@all -client +client|id",
            "user u off sanitize-payload resetchannels +@all -client +client|id",
        ),
        ("+@STRING -@string +@all", "user u off sanitize-payload resetchannels +@all"),
        (
            "+@fast -@string +@fast",
            "user u off sanitize-payload resetchannels -@all -@string +@fast",
        ),
        ("+select|0 +select|0", "user u off sanitize-payload resetchannels -@all +select|0"),
        (
            "( ~a +get ) ()",
            "user u off sanitize-payload resetchannels -@all (~a resetchannels -@all +get) (resetchannels -@all)",
        ),
        ("(~a) clearselectors", "user u off sanitize-payload resetchannels -@all"),
        ("%R", "user u off sanitize-payload %R~ resetchannels -@all"),
    ] {
        assert_eq!(described(rules), expected, "{rules}");
        // What is told makes the same user again.
        let words = expected.strip_prefix("user u ").unwrap();
        assert_eq!(described(words), expected, "{words}");
    }
}

#[test]
fn wrong_rules_are_refused() {
    for (rules, wrong) in [
        ("x", "Syntax"),
        (")", "Syntax"),
        ("(x)", "Syntax"),
        ("(on)", "Syntax"),
        ("%~a", "Syntax"),
        ("%RR~a", "Syntax"),
        ("%", "Syntax"),
        ("+nosuch", "Unknown"),
        ("-select|0", "Unknown"),
        ("+config|x", "Unknown"),
        ("+get|a|b", "Unknown"),
        ("+@nosuch", "Unknown"),
        ("+get|", "Syntax"),
        ("+config|get|x", "Allowing first-arg"),
        ("~* ~a", "Adding a pattern after the * pattern (or the 'allkeys'"),
        ("allchannels &a", "Adding a pattern after the * pattern (or the 'allchannels'"),
        ("<a", "The password you"),
        ("#ABC", "The password hash"),
        ("(+get", "unmatched"),
    ] {
        let found = user(rules).unwrap_err();
        assert!(found.starts_with(wrong), "{rules}: {found}");
    }
}

#[test]
fn passwords_are_hashes() {
    let of_a = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
    let one = user(&format!("on #{of_a} >b")).unwrap();
    assert!(one.accepts(b"a") && one.accepts(b"b") && !one.accepts(b"c") && !one.accepts(b""));
    assert!(user("on <a").is_err() && !user("off >a").unwrap().accepts(b"a"));
    assert!(user("on nopass").unwrap().accepts(b"x"));
    assert!(!user("on nopass >a").unwrap().accepts(b"x"));
    assert!(!user("on nopass resetpass").unwrap().accepts(b""));
    assert!(!user(&format!("on >a !{of_a}")).unwrap().accepts(b"a"));
}

type Keys = Vec<(usize, Access)>;

fn check(rules: &str, call: &str, keys: &Keys) -> Option<(Reason, usize)> {
    let (catalog, user) = (catalog(), user(rules).unwrap());
    let args = OwnedArgs::new(call.split(' ').map(str::as_bytes));
    let args: Args<'_> = args.args();
    let whole = catalog.find(args.at(0)).unwrap();
    let part = args.get(1).and_then(|word| catalog.find(&[args.at(0), b"|", word].concat()));
    let channels = if call.starts_with("subscribe") { 1..args.len() } else { 0..0 };
    let asked = Asked {
        slot: part.unwrap_or(whole),
        args,
        is_free: false,
        keys: keys.iter().copied(),
        other_keys: None,
        channels,
        are_patterns: false,
    };
    user.check(&asked).err().map(|denied| (denied.reason, denied.at))
}

#[test]
fn calls_are_allowed_by_one_selector() {
    let (read, write, none) = (Access::READ, Access::WRITE, Access::NONE);
    for (rules, call, keys, denied) in [
        ("+get ~a*", "get ab", vec![(1, read)], None),
        ("+get ~a*", "get b", vec![(1, read)], Some((Reason::Key, 1))),
        ("+get %W~a*", "get ab", vec![(1, read)], Some((Reason::Key, 1))),
        ("+get %W~a*", "get ab", vec![(1, none)], None),
        ("+set %R~a %W~b", "set a b", vec![(1, read), (2, write)], None),
        ("+set %R~a %W~b", "set b a", vec![(1, read), (2, write)], Some((Reason::Key, 1))),
        ("(+set %R~a) (+set %W~b)", "set a b", vec![(1, read), (2, write)], Some((Reason::Key, 2))),
        ("+set", "get a", vec![(1, read)], Some((Reason::Command, 0))),
        ("~* +@all -@string", "get a", vec![(1, read)], Some((Reason::Command, 0))),
        ("+client -client|kill", "client id", vec![], None),
        ("+client -client|kill", "client kill", vec![], Some((Reason::Command, 0))),
        ("+@connection", "client kill", vec![], None),
        ("-@all +@all -@slow", "client kill", vec![], Some((Reason::Command, 0))),
        ("+select|0", "select 0", vec![], None),
        ("+select|0", "select 1", vec![], Some((Reason::Command, 0))),
        ("+select|0 -select", "select 0", vec![], Some((Reason::Command, 0))),
        ("+subscribe &a*", "subscribe ab b", vec![], Some((Reason::Channel, 2))),
        ("+subscribe &a* &b", "subscribe ab b", vec![], None),
        ("+get ~a (~b)", "get b", vec![(1, read)], Some((Reason::Key, 1))),
    ] {
        assert_eq!(check(rules, call, &keys), denied, "{rules}: {call}");
    }
}

#[test]
fn a_pattern_is_allowed_as_it_is() {
    let user = user("&a* &b").unwrap();
    assert!(user.allows_channel(b"a*", true) && !user.allows_channel(b"ab", true));
    assert!(user.allows_channel(b"ab", false) && !user.allows_channel(b"bb", false));
}

#[test]
fn users_of_a_file_are_all_right_or_none() {
    let catalog = catalog();
    let parse = |text: &str| file::parse(&catalog, "f", text.as_bytes(), false);
    let good = parse("user a on +get ~x (+set ~y)\n\n  user default on nopass\n").unwrap();
    assert_eq!(good.len(), 2);
    for (text, wrong) in [
        ("usr a", "f:1 should start with user keyword followed by the username. "),
        ("\n# x", "f:2 should start with user keyword followed by the username. "),
        ("user a\nuser a", "WARNING: Duplicate user 'a' found on line 2. "),
        (
            "user a +x",
            "f:1: Error in applying operation '+x': Unknown command or category name in ACL. ",
        ),
        ("user a x y", "f:1: Syntax error. "),
        ("user a (+get", "f:1: Unmatched parenthesis in selector definition. "),
    ] {
        assert_eq!(parse(text).unwrap_err(), wrong, "{text}");
    }
}

#[test]
fn users_are_saved_and_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users");
    let wrong = Acl::open(catalog(), Some(path.clone()), None, true).unwrap_err();
    assert!(wrong.contains("opening file"), "{wrong}");
    std::fs::write(&path, "user a on >p +get ~x\n").unwrap();
    let acl = Acl::open(catalog(), Some(path.clone()), Some(b"secret"), false).unwrap();
    assert!(acl.authenticate(b"a", b"p").is_some() && acl.authenticate(b"a", b"q").is_none());
    // The file says nothing of the default user: its password stays.
    assert!(!acl.is_open() && acl.authenticate(DEFAULT, b"secret").is_some());
    let rules = [&b"on"[..], b">q", b"(~y", b"+set)"];
    assert!(acl.set_user(b"b", rules.into_iter()).unwrap().is_none());
    assert!(acl.set_user(b"b c", rules.into_iter()).is_err());
    let nopass = acl.set_user(DEFAULT, [&b"nopass"[..]].into_iter()).unwrap_err();
    assert!(nopass.contains("--allow-open"), "{nopass}");
    acl.save().unwrap();
    let before = acl.users();
    let old = acl.find(b"a").unwrap();
    assert_eq!(acl.load().unwrap().len(), 2);
    assert!(old.is_removed() && !acl.find(b"a").unwrap().is_removed());
    assert_eq!(acl.users(), before);
    std::fs::write(&path, "user a nosuch").unwrap();
    assert!(acl.load().is_err());
    assert_eq!(acl.users(), before);
}

#[test]
fn the_same_denial_is_one_entry() {
    let log = DenialLog::default();
    let denial = |object: &str| Denial {
        reason: Reason::Key,
        place: Place::TopLevel,
        object: object.into(),
        user: b"u".to_vec(),
    };
    log.note(denial("a"), "one".into(), 1000);
    log.note(denial("b"), "one".into(), 1001);
    log.note(denial("a"), "two".into(), 61_000);
    let latest = log.latest(9);
    let entry = &latest[0];
    assert_eq!((latest.len(), entry.id, entry.count, &entry.client[..]), (2, 0, 2, "two"));
    assert_eq!((entry.created_ms, entry.updated_ms), (1000, 61_000));
    log.note(denial("b"), "one".into(), 61_002);
    assert_eq!((log.latest(9).len(), log.latest(9)[0].id), (3, 2));
    log.set_len_max(1);
    assert_eq!(log.latest(9).len(), 1);
    log.set_len_max(0);
    log.note(denial("c"), "one".into(), 1);
    assert!(log.latest(9).is_empty());
}
