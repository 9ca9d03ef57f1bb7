//! The library `cmsgpack` beside that of Redis.

use proptest::prelude::*;

use super::{
    super::lib_values::testing::{check, run},
    *,
};

/// Arguments of `cmsgpack.pack`, and what Redis 7.2.6 makes of them in base 16.
const GOLDEN: [(&str, &str); 10] = [
    (
        "0,-0,1,127,128,255,256,65535,65536,2^32-1,2^32,2^53,2^62,2^63,2^64",
        "0000017fcc80ccffcd0100cdffffce00010000ceffffffffcf0000000100000000cf0020000000000000cf4000000000000000ca5f000000ca5f800000",
    ),
    (
        "-1,-32,-33,-128,-129,-32768,-32769,-2^31,-2^31-1,-2^53,-2^63,-2^64",
        "ffe0d0dfd080d1ff7fd18000d2ffff7fffd280000000d3ffffffff7fffffffd3ffe0000000000000d38000000000000000cadf800000",
    ),
    (
        "0.5,0.1,-1.5,1e300,1/0,-1/0,16777217.5,1e-46",
        "ca3f000000cb3fb999999999999acabfc00000cb7e37e43c8800759cca7f800000caff800000cb4170000018000000cb366244ce242c5561",
    ),
    ("nil,true,false,tostring", "c0c3c2c0"),
    (
        "'','a',('x'):rep(31),('x'):rep(32)",
        "a0a161bf78787878787878787878787878787878787878787878787878787878787878d9207878787878787878787878787878787878787878787878787878787878787878",
    ),
    (
        "{},{1},{nil,2},{1,2,nil,4},{[1]=1,[2]=2},{[0]=1},{[1.5]=1},{[-1]=1}",
        "9091018102028301010202040492010281000181ca3fc000000181ff01",
    ),
    ("{[2^31-1]=1},{[2^31]=1},{[2]=1}", "81ce7fffffff0181ce8000000001810201"),
    ("{a=1},{[{1}]=2},{[true]=false}", "81a161018191010281c3c2"),
    ("{{{{{{{{{{{{{{{{{{1}}}}}}}}}}}}}}}}}}", "91919191919191919191919191919191c0"),
    (
        "{1,2,3,4,5,6,7,8,9,10,11,12,13,14,15},{1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}",
        "9f0102030405060708090a0b0c0d0e0fdc00100102030405060708090a0b0c0d0e0f10",
    ),
];

/// What a script packs, in base 16.
fn packed(arguments: &str) -> String {
    let script = format!(
        "return (cmsgpack.pack({arguments}):gsub('.', \
         function(c) return ('%02x'):format(c:byte()) end))"
    );
    String::from_utf8(run(open, script.as_bytes())).unwrap()
}

#[test]
fn values_are_packed_as_in_redis() {
    for (arguments, expected) in GOLDEN {
        assert_eq!(packed(arguments), expected, "{arguments}");
    }
}

#[test]
fn lengths_are_packed_as_in_redis() {
    let head = |made: &str| {
        let script = format!(
            "local a, m = {{}}, {{}} for i = 1, LEN do a[i] = 1 m['k' .. i] = 1 end \
             local s = ('x'):rep(LEN) \
             return (cmsgpack.pack({made}):sub(1, 5):gsub('.', \
             function(c) return ('%02x'):format(c:byte()) end))"
        );
        let heads = [32, 255, 256, 65_535, 65_536].map(|len| {
            let script = script.replace("LEN", &format!("{len}"));
            String::from_utf8(run(open, script.as_bytes())).unwrap()
        });
        heads.join(" ")
    };
    assert_eq!(head("s"), "d920787878 d9ff787878 da01007878 daffff7878 db00010000");
    assert_eq!(head("a"), "dc00200101 dc00ff0101 dc01000101 dcffff0101 dd00010000");
    let maps = head("m");
    let heads = ["de0020", "de00ff", "de0100", "deffff", "df00010000"];
    for (map, head) in maps.split(' ').zip(heads) {
        assert!(map.starts_with(head), "{map}");
    }
}

/// As Redis 7.2.6.
#[test]
fn values_are_unpacked_as_in_redis() {
    check(
        open,
        &[
            (
                "return cmsgpack.unpack('\\204\\200\\208\\200\\205\\1\\2\\209\\254\\1')",
                "200|-56|258|-511",
            ),
            ("return cmsgpack.unpack('\\207' .. ('\\255'):rep(8))", "-1"),
            (
                "return cmsgpack.unpack('\\206\\255\\255\\255\\255\\210\\255\\255\\255\\255')",
                "4294967295|-1",
            ),
            ("return cmsgpack.unpack('\\192\\195\\194\\202\\191\\0\\0\\0')", "nil|true|false|-0.5"),
            ("return cmsgpack.unpack('\\161a\\217\\1b\\218\\0\\1c\\219\\0\\0\\0\\1d')", "a|b|c|d"),
            ("return #cmsgpack.unpack('\\147\\1\\192\\3')", "1"),
            ("return cmsgpack.unpack('\\221\\0\\0\\0\\2\\144\\128')[2][1]", "nil"),
            ("return cmsgpack.unpack('\\129\\161a\\146\\7\\129\\8\\9').a[2][8]", "9"),
            ("return cmsgpack.unpack('\\130\\1\\2\\1\\3')[1]", "3"),
            ("return cmsgpack.unpack('')", ""),
            ("return cmsgpack.unpack_one('\\1\\2\\3', 1)", "2|2"),
            ("return cmsgpack.unpack_one('\\1\\2\\3', 2)", "-1|3"),
            ("return cmsgpack.unpack_one('\\1\\2\\3', 3)", "-1"),
            ("return cmsgpack.unpack_limit('\\1\\2\\3', 2)", "2|1|2"),
            ("return cmsgpack.unpack_limit('\\1\\2\\3', 2, 2)", "-1|3"),
            ("return cmsgpack.unpack_limit('\\1\\2\\3', 0)", "1|2|3"),
            ("return cmsgpack.unpack_limit('\\1\\2\\3', 0, 1)", "1"),
            ("return cmsgpack._NAME, cmsgpack._VERSION", "cmsgpack|lua-cmsgpack 0.4.0"),
        ],
    );
}

#[test]
fn errors_have_the_words_of_redis() {
    let missing = "user_script:1: Missing bytes in input.";
    let format = "user_script:1: Bad data format in input.";
    check(
        open,
        &[
            (
                "return cmsgpack.pack()",
                "user_script:1: bad argument #0 to 'pack' (MessagePack pack needs input.)",
            ),
            (
                "return cmsgpack.unpack()",
                "user_script:1: bad argument #1 to 'unpack' (string expected, got no value)",
            ),
            (
                "return cmsgpack.unpack_limit('a')",
                "user_script:1: bad argument #2 to 'unpack_limit' (number expected, got no value)",
            ),
            (
                "return cmsgpack.unpack_one('a', 'x')",
                "user_script:1: bad argument #2 to 'unpack_one' (number expected, got string)",
            ),
            (
                "return cmsgpack.unpack_one('a', 2)",
                "user_script:1: Start offset 2 greater than input length 1.",
            ),
            (
                "return cmsgpack.unpack_one('ab', -2)",
                "user_script:1: Invalid request to unpack with offset of -2 and limit of 2.",
            ),
            (
                "return cmsgpack.unpack_limit('ab', -1)",
                "user_script:1: Invalid request to unpack with offset of 0 and limit of 2.",
            ),
            ("return cmsgpack.unpack('\\204')", missing),
            ("return cmsgpack.unpack('\\162a')", missing),
            ("return cmsgpack.unpack('\\221\\255\\255\\255\\255\\1')", missing),
            ("return cmsgpack.unpack('\\219\\255\\255\\255\\255\\1')", missing),
            ("return cmsgpack.unpack('\\193')", format),
            ("return cmsgpack.unpack('\\196\\1a')", format),
            ("return select(2, pcall(cmsgpack.unpack, '\\193'))", "Bad data format in input."),
            ("return select(2, pcall(cmsgpack.unpack, '\\129\\192\\1'))", "table index is nil"),
            (
                "return select(2, pcall(cmsgpack.unpack, '\\129\\203\\127\\248\\0\\0\\0\\0\\0\\0\\1'))",
                "table index is NaN",
            ),
        ],
    );
}

/// The depths are those of Redis 7.2.6: of its stack of 8,000 values.
#[test]
fn nested_tables_take_no_stack() {
    let many = format!("user_script:1: stack overflow ({TOO_MANY})");
    check(
        open,
        &[
            ("return type(cmsgpack.unpack(('\\145'):rep(3999) .. 'a'))", "table"),
            (
                "return cmsgpack.unpack(('\\145'):rep(4000) .. 'a')",
                "user_script:1: stack overflow (in function mp_decode_to_lua_array)",
            ),
            ("return type(cmsgpack.unpack(('\\129a'):rep(3999) .. 'b'))", "table"),
            ("return cmsgpack.unpack(('\\129a'):rep(4000) .. 'b')", &many),
            ("return cmsgpack.unpack(('\\129'):rep(9000))", &many),
            ("return #{cmsgpack.unpack(('a'):rep(7999))}", "7999"),
            ("return cmsgpack.unpack(('a'):rep(8000))", &many),
            (
                "local t = {} for i = 1, 4001 do t[i] = i end return cmsgpack.pack(unpack(t))",
                "user_script:1: bad argument #0 to 'pack' (Too many arguments for MessagePack pack.)",
            ),
            ("local t = {} t[1] = t return #cmsgpack.pack(t)", "17"),
        ],
    );
}

/// A script that compares what it packed with what it unpacks.
const AGAIN: &str = "
local function same(a, b)
  if type(a) ~= 'table' or type(b) ~= 'table' then return a == b end
  for k, v in pairs(a) do if not same(v, b[k]) then return false end end
  for k in pairs(b) do if a[k] == nil then return false end end
  return true
end
local packed = cmsgpack.pack(value)
local stop, first = cmsgpack.unpack_one(packed .. 'x')
return tostring(stop == #packed and same(value, first) and same(value, cmsgpack.unpack(packed)))";

/// A value as a script writes it, of at most a few levels.
fn value() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<i32>().prop_map(|number| format!("{number}")),
        (-(1_i64 << 53)..1 << 53).prop_map(|number| format!("{number}")),
        any::<f64>()
            .prop_filter("a number", |number| number.is_finite())
            .prop_map(|number| format!("{number:.17e}")),
        (-70_000..70_000_i32).prop_map(|number| format!("{number}")),
    ];
    let text = prop_oneof![
        "[a-z]{0,40}".prop_map(|text| format!("'{text}'")),
        (0..300_usize).prop_map(|len| format!("('x'):rep({len})")),
    ];
    let plain = prop_oneof![number, text, Just("true".to_owned()), Just("false".to_owned()),];
    plain.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..40)
                .prop_map(|items| format!("{{{}}}", items.join(","))),
            prop::collection::vec(("[a-z]{1,9}", inner), 0..40).prop_map(|items| {
                let items: Vec<_> =
                    items.iter().map(|(key, item)| format!("['{key}']={item}")).collect();
                format!("{{{}}}", items.join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_packed_is_unpacked(value in value()) {
        let script = format!("local value = {value} {AGAIN}");
        let got = run(open, script.as_bytes());
        prop_assert_eq!(String::from_utf8_lossy(&got), "true");
    }

    #[test]
    fn any_bytes_are_unpacked_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let bytes: String = bytes.iter().map(|byte| format!("\\{byte:03}")).collect();
        let script = format!(
            "local ok, value = pcall(cmsgpack.unpack_one, '{bytes}') \
             if not ok then return 'no' end \
             return type(cmsgpack.pack(value))"
        );
        let got = run(open, script.as_bytes());
        prop_assert!(got == b"no" || got == b"string", "{}", String::from_utf8_lossy(&got));
    }
}
