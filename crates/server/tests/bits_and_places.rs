//! Bits of strings, HyperLogLogs and places: what Redis replies, bytes that it wrote, bytes that
//! nobody should have written, and keys that a command names in its options.

mod common;

use common::{Client, Value, start};

fn integers(numbers: &[i64]) -> Value {
    Value::Array(numbers.iter().copied().map(Value::Int).collect())
}

#[test]
fn bits_are_counted_from_the_highest_of_the_first_byte() {
    let (_dir, _server, mut client) = start();
    assert_eq!(client.run("SETBIT k 7 1"), Value::Int(0));
    assert_eq!(client.run("SETBIT k 7 1"), Value::Int(1));
    assert_eq!(client.run("GET k"), Value::bulk([1]));
    assert_eq!(client.run("SETBIT k 100 0"), Value::Int(0));
    assert_eq!(client.run("STRLEN k"), Value::Int(13));
    assert_eq!(client.run("GETBIT k 7"), Value::Int(1));
    assert_eq!(client.run("GETBIT k 4294967295"), Value::Int(0));
    let error = "ERR bit offset is not an integer or out of range";
    assert_eq!(client.run("GETBIT k 4294967296"), Value::Error(error.into()));
    client.run("SET k foobar");
    assert_eq!(client.run("BITCOUNT k"), Value::Int(26));
    assert_eq!(client.run("BITCOUNT k 5 30 BIT"), Value::Int(17));
    assert_eq!(client.run("BITPOS k 1 2"), Value::Int(17));
    assert_eq!(client.run("BITPOS absent 0"), Value::Int(0));
    // A range that is backward from the end is the first byte of a short string to one of them.
    assert_eq!(client.run("BITPOS k 0 -7 -100"), Value::Int(0));
    assert_eq!(client.run("BITCOUNT k -7 -100"), Value::Int(0));
    // Arguments are wrong for an absent key, too.
    assert_eq!(client.run("BITCOUNT absent 0"), Value::Error("ERR syntax error".into()));
    client.run("SET ones \u{7f}");
    client.run("BITOP NOT zeros ones");
    assert_eq!(client.call_bytes(&[b"GET", b"zeros"]), Value::bulk([0x80]));
    assert_eq!(client.run("BITOP AND zeros absent nowhere"), Value::Int(0));
    assert_eq!(client.run("EXISTS zeros"), Value::Int(0));
}

#[test]
fn integers_of_a_string_overflow_as_they_are_told() {
    let (_dir, _server, mut client) = start();
    let line = "BITFIELD k OVERFLOW SAT INCRBY u2 100 5 OVERFLOW FAIL INCRBY u2 100 1 \
                OVERFLOW WRAP INCRBY u2 100 1";
    let expected = Value::Array(vec![Value::Int(3), Value::Null, Value::Int(0)]);
    assert_eq!(client.run(line), expected);
    assert_eq!(client.run("BITFIELD k SET i8 #1 -100 GET u8 8"), integers(&[0, 156]));
    assert_eq!(client.run("BITFIELD_RO k GET i8 #1"), integers(&[-100]));
    let error = "ERR BITFIELD_RO only supports the GET subcommand";
    assert_eq!(client.run("BITFIELD_RO k SET u8 0 1"), Value::Error(error.into()));
    // The key's time of expiry stays.
    client.run("EXPIREAT k 99999999999");
    client.run("BITFIELD k SET u8 0 9");
    assert_eq!(client.run("EXPIRETIME k"), Value::Int(99_999_999_999));
}

#[test]
fn a_hyperloglog_has_the_bytes_that_redis_gives_it() {
    let (_dir, _server, mut client) = start();
    assert_eq!(client.run("PFADD h a b c d e f g"), Value::Int(1));
    assert_eq!(client.run("PFADD h a g"), Value::Int(0));
    assert_eq!(client.run("PFCOUNT h"), Value::Int(7));
    let bytes =
        b"HYLL\x01\0\0\0\x07\0\0\0\0\0\0\0Fm\x80V\x0C\x80D<\x848\x80P\xB1\x84I\x8C\x80Bm\x80BZ";
    assert_eq!(client.run("GET h"), Value::bulk(bytes));
    client.run("PFADD other x y z a");
    assert_eq!(client.run("PFCOUNT h other absent"), Value::Int(10));
    assert_eq!(client.run("PFMERGE all h other"), Value::ok());
    assert_eq!(client.run("PFDEBUG ENCODING all").text(), "sparse");
    assert_eq!(client.run("PFDEBUG TODENSE all"), Value::Int(1));
    assert_eq!(client.run("PFCOUNT all"), Value::Int(10));
    assert_eq!(client.run("STRLEN all"), Value::Int(12304));
    assert_eq!(client.run("PFSELFTEST"), Value::ok());
}

#[test]
fn strings_that_are_no_hyperloglogs_are_refused() {
    let (_dir, _server, mut client) = start();
    let no_value = Value::Error("WRONGTYPE Key is not a valid HyperLogLog string value.".into());
    let corrupt = Value::Error("INVALIDOBJ Corrupted HLL object detected".into());
    client.run("SET text hello");
    client.run("PFADD added a b c");
    client.run("APPEND added hello");
    client.run("PFADD cut a b c");
    let Value::Bulk(bytes) = client.run("GET cut") else { panic!("no string") };
    client.call_bytes(&[b"SET", b"cut", &bytes[..bytes.len() - 1]]);
    for (key, error) in [("text", no_value), ("added", corrupt.clone()), ("cut", corrupt)] {
        for line in ["PFCOUNT {}", "PFCOUNT {} x", "PFMERGE x {}", "PFDEBUG TODENSE {}"] {
            assert_eq!(client.run(&line.replace("{}", key)), error, "{line} {key}");
        }
    }
    assert_eq!(client.run("EXISTS x"), Value::Int(0));
}

fn sicily(client: &mut Client) {
    let line = "GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";
    assert_eq!(client.run(line), Value::Int(2));
}

#[test]
fn places_are_told_digit_by_digit() {
    let (_dir, _server, mut client) = start();
    sicily(&mut client);
    assert_eq!(client.run("ZSCORE s Palermo").text(), "3479099956230698");
    assert_eq!(client.run("GEODIST s Palermo Catania").text(), "166274.1516");
    assert_eq!(client.run("GEODIST s Palermo Catania mi").text(), "103.3182");
    let palermo = Value::bulks(&["13.36138933897018433", "38.11555639549629859"]);
    let expected = Value::Array(vec![palermo.clone(), Value::NullArray]);
    assert_eq!(client.run("GEOPOS s Palermo nobody"), expected);
    assert_eq!(
        client.run("GEOHASH s Palermo Catania"),
        Value::bulks(&["sqc8b49rny0", "sqdtr74hyu0"])
    );
    let found = client.run("GEOSEARCH s FROMLONLAT 15 37 BYBOX 400 400 km ASC COUNT 2 WITHDIST");
    let pair = |name, distance| Value::bulks(&[name, distance]);
    let expected = Value::Array(vec![pair("Catania", "56.4413"), pair("Palermo", "190.4424")]);
    assert_eq!(found, expected);
    client.run("HELLO 3");
    let Value::Array(places) = client.run("GEOPOS s Palermo") else { panic!("no places") };
    let coordinates =
        ["13.36138933897018433", "38.11555639549629859"].map(|text| Value::Double(text.into()));
    assert_eq!(places, [Value::Array(coordinates.to_vec())]);
}

#[test]
fn a_search_may_be_stored_where_its_options_say() {
    let (_dir, server, mut client) = start();
    sicily(&mut client);
    let mut other = Client::connect(server.address());
    other.run("WATCH to");
    let line = "GEORADIUS s 15 37 100 km STORE to";
    assert_eq!(client.run(line), Value::Int(1));
    assert_eq!(
        client.run("ZRANGE to 0 -1 WITHSCORES"),
        Value::bulks(&["Catania", "3479447370796909"])
    );
    other.run("MULTI");
    other.run("PING");
    assert_eq!(other.run("EXEC"), Value::NullArray);
    let line = "GEOSEARCHSTORE to s FROMMEMBER Palermo BYRADIUS 500 km STOREDIST";
    assert_eq!(client.run(line), Value::Int(2));
    let Value::Array(members) = client.run("ZRANGE to 0 -1 WITHSCORES") else { panic!("none") };
    assert!(members[3].text().starts_with("166.274"), "{members:?}");
    assert_eq!(client.run("GEORADIUS s 0 0 1 km STORE to"), Value::Int(0));
    assert_eq!(client.run("EXISTS to"), Value::Int(0));
    // What the key is called may not be mistaken for an option.
    assert_eq!(client.run("GEORADIUS s 15 37 100 km STORE store"), Value::Int(1));
    let error = Value::Error("ERR syntax error".into());
    assert_eq!(client.run("GEORADIUS s 15 37 100 km STORE store COUNT 1"), error);
    let keys = Value::bulks(&["s", "to"]);
    assert_eq!(client.run("COMMAND GETKEYS GEORADIUS s 1 2 3 m STORE to"), keys);
}

#[test]
fn a_search_among_many_gives_the_nearest_in_order() {
    let (_dir, _server, mut client) = start();
    for row in 0..60 {
        let mut line = "GEOADD g".to_owned();
        for column in 0..60 {
            let (x, y) = (10.0 + f64::from(column) / 100.0, 40.0 + f64::from(row) / 100.0);
            line += &format!(" {x} {y} m{row}:{column}");
        }
        assert_eq!(client.run(&line), Value::Int(60));
    }
    let all = client.run("GEOSEARCH g FROMLONLAT 10.3 40.3 BYRADIUS 30 km ASC");
    let Value::Array(all) = all else { panic!("none") };
    assert!(all.len() > 2000, "{}", all.len());
    let some = client.run("GEOSEARCH g FROMLONLAT 10.3 40.3 BYRADIUS 30 km COUNT 70");
    assert_eq!(some, Value::Array(all[..70].to_vec()));
    let last = client.run("GEOSEARCH g FROMLONLAT 10.3 40.3 BYRADIUS 30 km COUNT 3 DESC WITHDIST");
    let Value::Array(last) = last else { panic!("none") };
    assert_eq!(last.len(), 3);
    let Value::Array(farthest) = &last[0] else { panic!("no pair") };
    assert!(farthest[1].text().starts_with("29."), "{last:?}");
    client.run("MULTI");
    client.run("GEOSEARCH g FROMLONLAT 10.3 40.3 BYRADIUS 30 km ASC");
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::Array(all)]));
}
