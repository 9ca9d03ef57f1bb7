//! `DEBUG PROTOCOL`: a reply of each type, for the tests of clients.

use super::{Context, Done, is_word};

const BIG: &str = "1234567999999999999999999999999999999";

/// Replies with a value of the type that is asked for.
pub(super) fn reply(context: &mut Context<'_, '_>, kind: &[u8]) -> Done {
    let out = &mut *context.out;
    let is = |word| is_word(kind, word);
    let truth = |value: bool| if value { "#t\r\n" } else { "#f\r\n" };
    let three = 0..3_i64;
    if is("string") {
        out.bulk(b"Hello World");
    } else if is("integer") {
        out.int(12_345);
    } else if is("double") {
        out.decimal("3.141");
    } else if is("null") {
        out.null();
    } else if is("array") {
        out.array(3);
        three.for_each(|number| out.int(number));
    } else if is("set") {
        out.set(3);
        three.for_each(|number| out.int(number));
    } else if is("map") {
        out.map(3);
        for number in three {
            out.int(number);
            if out.resp3 { out.raw(truth(number == 1).as_bytes()) } else { out.int(number & 1) }
        }
    } else if is("attrib") {
        if out.resp3 {
            out.raw(b"|1\r\n");
            out.bulk(b"key-popularity");
            out.array(2);
            out.bulk(b"key:123");
            out.int(90);
        }
        out.bulk(b"Some real reply following the attribute");
    } else if is("push") {
        if !out.resp3 {
            return Err("ERR RESP2 is not supported by this command".into());
        }
        // The push comes after the reply, as what a client is told of does.
        out.bulk(b"Some real reply following the push reply");
        out.push(2);
        out.bulk(b"server-cpu-usage");
        out.int(42);
    } else if is("verbatim") {
        out.verbatim("This is a verbatim\nstring");
    } else if is("true") || is("false") {
        let value = is("true");
        if out.resp3 { out.raw(truth(value).as_bytes()) } else { out.int(value.into()) }
    } else if is("bignum") {
        if out.resp3 { out.raw(format!("({BIG}\r\n").as_bytes()) } else { out.bulk(BIG.as_bytes()) }
    } else {
        return Err("ERR Wrong protocol type name. Please use one of the following: \
                    string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false"
            .into());
    }
    Ok(())
}
