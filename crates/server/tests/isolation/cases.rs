//! Every command in its worst form on collections of any size: what the test of isolation counts,
//! and what `cargo xtask isolation` measures.
//!
//! A line is a command. In its words `{n}` is the number of elements, `{half}` and `{last}` are
//! places among them, `{bytes}` is the number of bytes of the large string, and `{blob}` are these
//! bytes. A word with a star stands for many: `m*` for `m0 m1 …`, `m*=v` for `m0 v m1 v …`, and
//! `#=m*` for `0 m0 1 m1 …`. A line that begins with `*` is sent that many times in one pipeline,
//! with `{i}` counted. A line that begins with `>` is what is measured; others prepare it.

/// A command by the name that the table has, and its lines.
pub(crate) type Case = (&'static str, &'static [&'static str]);

/// The most arguments that stars stand for, and the most commands of a pipeline.
const MANY: usize = 100_000;

/// Bytes of the large string for each element.
const BYTES_OF_ELEMENT: usize = 256;

/// Elements that are added by one command while the collections are made.
const CHUNK: usize = 500;

fn many(n: usize) -> usize {
    n.min(MANY)
}

fn word(text: &str, n: usize) -> Vec<Vec<u8>> {
    let bytes = n * BYTES_OF_ELEMENT;
    if text == "{blob}" {
        return vec![vec![b'x'; bytes]];
    }
    if let Some(name) = text.strip_prefix("#=").and_then(|rest| rest.strip_suffix('*')) {
        let pair = |at: usize| [at.to_string().into_bytes(), format!("{name}{at}").into_bytes()];
        return (0..many(n)).flat_map(pair).collect();
    }
    if let Some((name, value)) = text.split_once("*=") {
        let pair = |at: usize| [format!("{name}{at}").into_bytes(), value.as_bytes().to_vec()];
        return (0..many(n)).flat_map(pair).collect();
    }
    if let Some(name) =
        text.strip_suffix('*').filter(|name| !name.is_empty() && !name.contains('*'))
    {
        return (0..many(n)).map(|at| format!("{name}{at}").into_bytes()).collect();
    }
    let text = text.replace("{n}", &n.to_string()).replace("{many}", &many(n).to_string());
    let text = text.replace("{half}", &(n / 2).to_string()).replace("{last}", &(n - 1).to_string());
    vec![text.replace("{bytes}", &bytes.to_string()).into_bytes()]
}

/// A line's commands, and whether they are measured.
pub(crate) fn commands(line: &str, n: usize) -> (bool, Vec<Vec<Vec<u8>>>) {
    let (is_measured, line) = line.strip_prefix("> ").map_or((false, line), |line| (true, line));
    let (times, line) = line.strip_prefix("* ").map_or((1, line), |line| (many(n), line));
    let one = |at: usize| {
        let line = if times > 1 { line.replace("{i}", &at.to_string()) } else { line.to_owned() };
        line.split(' ').flat_map(|text| word(text, n)).collect()
    };
    (is_measured, (0..times).map(one).collect())
}

/// The commands that make the collections: a list `L`, sets `S` and `S2`, a hash `H` and one whose
/// fields end `HT`, sorted sets `Z` and `Z2`, places `G`, a stream `X` whose entries are pending, a
/// string `T`, and keys `k0`, `k1`, ….
pub(crate) fn collections(n: usize) -> impl Iterator<Item = Vec<Vec<u8>>> {
    let chunk = move |from: usize| {
        let all = from..(from + CHUNK).min(n);
        let add = |head: &str, one: &dyn Fn(usize) -> String| {
            let words = all.clone().map(one).collect::<Vec<_>>().join(" ");
            format!("{head} {words}").split(' ').map(|word| word.as_bytes().to_vec()).collect()
        };
        vec![
            add("RPUSH L", &|at| at.to_string()),
            add("SADD S", &|at| format!("m{at}")),
            add("SADD S2", &|at| format!("m{}", at + n / 2)),
            add("HSET H", &|at| format!("m{at} {at}")),
            add("ZADD Z", &|at| format!("{at} m{at}")),
            add("ZADD Z2", &|at| format!("{at} m{}", at + n / 2)),
            add("GEOADD G", &|at| format!("{} {} m{at}", at % 100, at / 100 % 80)),
            add("MSET", &|at| format!("k{at} {at}")),
        ]
    };
    let entry = |at: usize| {
        let id = format!("{}-1", at + 1);
        ["XADD", "X", &id, "f", "v"].iter().map(|word| word.as_bytes().to_vec()).collect()
    };
    let rest = REST.iter().flat_map(move |line| commands(line, n).1);
    (0..n).step_by(CHUNK).flat_map(chunk).chain((0..n).map(entry)).chain(rest)
}

const REST: &[&str] = &[
    "SETRANGE T {bytes} x",
    "HSET HT m*=v",
    "HPEXPIRE HT 1000000000 FIELDS {many} m*",
    "* PFADD p{i} {i}",
    "XGROUP CREATE X g 0",
    "XREADGROUP GROUP g c COUNT {n} STREAMS X >",
    "SCRIPT LOAD return{redis.call('LRANGE',KEYS[1],0,-1)}",
];

const MOVES_A_LIST: &[&str] = &["COPY L t REPLACE", "> LMOVE t u LEFT RIGHT"];

/// All commands that go through elements.
pub(crate) const CASES: &[Case] = &[
    ("append", &["COPY T t REPLACE", "> APPEND t x", "> APPEND t2 {blob}"]),
    ("bitcount", &["> BITCOUNT T"]),
    (
        "bitfield",
        &["COPY T t REPLACE", "> BITFIELD t SET u8 0 1", "> BITFIELD fresh SET u8 40000000 1"],
    ),
    ("bitfield_ro", &["> BITFIELD_RO T GET u8 0"]),
    ("bitop", &["> BITOP NOT t T"]),
    ("bitpos", &["> BITPOS T 1"]),
    ("blmove", &["COPY L t REPLACE", "> BLMOVE t u LEFT RIGHT 0"]),
    ("blmpop", &["COPY L t REPLACE", "> BLMPOP 0 1 t LEFT COUNT {n}"]),
    ("blpop", &["COPY L t REPLACE", "> BLPOP t 0"]),
    ("brpop", &["COPY L t REPLACE", "> BRPOP t 0"]),
    ("brpoplpush", &["COPY L t REPLACE", "> BRPOPLPUSH t u 0"]),
    ("bzmpop", &["COPY Z t REPLACE", "> BZMPOP 0 1 t MIN COUNT {n}"]),
    ("bzpopmax", &["COPY Z t REPLACE", "> BZPOPMAX t 0"]),
    ("bzpopmin", &["COPY Z t REPLACE", "> BZPOPMIN t 0"]),
    ("copy", &["> COPY Z t REPLACE", "> COPY T t REPLACE"]),
    ("dbsize", &["> DBSIZE"]),
    ("del", &["COPY Z t REPLACE", "> DEL t", "MSET d*=v", "> DEL d*"]),
    ("delrange", &["MSET d*=v", "> DELRANGE [d [e"]),
    ("dump", &["> DUMP Z", "> DUMP T"]),
    ("eval", &["> EVAL return{redis.call('LRANGE',KEYS[1],0,-1)} 1 L"]),
    ("eval_ro", &["> EVAL_RO return{redis.call('LRANGE',KEYS[1],0,-1)} 1 L"]),
    ("exec", &["MULTI", "* RPUSH ex{i} v", "> EXEC", "MULTI", "SMEMBERS S", "> EXEC"]),
    ("exists", &["> EXISTS k*"]),
    ("expire", &["COPY Z t REPLACE", "> EXPIRE t 1000"]),
    ("geoadd", &["COPY G t REPLACE", "> GEOADD t 1 1 new"]),
    ("geodist", &["> GEODIST G m0 m{last}"]),
    ("geohash", &["> GEOHASH G m*"]),
    ("geopos", &["> GEOPOS G m*"]),
    ("georadius", &["> GEORADIUS G 50 40 20000 km", "> GEORADIUS G 50 40 20000 km STORE t"]),
    ("georadius_ro", &["> GEORADIUS_RO G 50 40 20000 km"]),
    ("georadiusbymember", &["> GEORADIUSBYMEMBER G m0 20000 km STORE t"]),
    ("georadiusbymember_ro", &["> GEORADIUSBYMEMBER_RO G m0 20000 km"]),
    ("geosearch", &["> GEOSEARCH G FROMMEMBER m0 BYRADIUS 20000 km ASC"]),
    ("geosearchstore", &["> GEOSEARCHSTORE t G FROMMEMBER m0 BYRADIUS 20000 km"]),
    ("get", &["> GET T"]),
    ("getbit", &["> GETBIT T 9"]),
    ("getdel", &["COPY T t REPLACE", "> GETDEL t"]),
    ("getex", &["> GETEX T PERSIST"]),
    ("getrange", &["> GETRANGE T 0 -1"]),
    ("getset", &["COPY T t REPLACE", "> GETSET t v"]),
    ("hdel", &["COPY H t REPLACE", "> HDEL t m*"]),
    ("hexists", &["> HEXISTS H m0"]),
    ("hexpire", &["COPY H t REPLACE", "> HEXPIRE t 1000 FIELDS {many} m*"]),
    ("hexpireat", &["COPY H t REPLACE", "> HEXPIREAT t 9000000000 FIELDS {many} m*"]),
    ("hexpiretime", &["> HEXPIRETIME HT FIELDS {many} m*"]),
    ("hget", &["> HGET H m0"]),
    ("hgetall", &["> HGETALL H", "> HGETALL HT"]),
    ("hgetdel", &["COPY HT t REPLACE", "> HGETDEL t FIELDS {many} m*"]),
    ("hgetex", &["COPY HT t REPLACE", "> HGETEX t PX 100000 FIELDS {many} m*"]),
    ("hincrby", &["COPY H t REPLACE", "> HINCRBY t m0 1"]),
    ("hincrbyfloat", &["COPY H t REPLACE", "> HINCRBYFLOAT t m0 1"]),
    ("hkeys", &["> HKEYS H"]),
    ("hlen", &["> HLEN H", "> HLEN HT"]),
    ("hmget", &["> HMGET H m*"]),
    ("hmset", &["> HMSET t3 m*=v"]),
    ("hpersist", &["COPY HT t REPLACE", "> HPERSIST t FIELDS {many} m*"]),
    ("hpexpire", &["COPY H t REPLACE", "> HPEXPIRE t 1000000 FIELDS {many} m*"]),
    ("hpexpireat", &["COPY H t REPLACE", "> HPEXPIREAT t 9000000000000 FIELDS {many} m*"]),
    ("hpexpiretime", &["> HPEXPIRETIME HT FIELDS {many} m*"]),
    ("hpttl", &["> HPTTL HT FIELDS {many} m*"]),
    (
        "hrandfield",
        &["> HRANDFIELD H", "> HRANDFIELD H {n}", "> HRANDFIELD H -{many}", "> HRANDFIELD HT 3"],
    ),
    ("hscan", &["> HSCAN H 0 COUNT {n}", "> HSCAN HT 0 COUNT {n}"]),
    ("hset", &["> HSET t4 m*=v"]),
    ("hsetex", &["> HSETEX t5 PX 100000 FIELDS {many} m*=v"]),
    ("hsetnx", &["COPY H t REPLACE", "> HSETNX t new v"]),
    ("hstrlen", &["> HSTRLEN H m0"]),
    ("httl", &["> HTTL HT FIELDS {many} m*"]),
    ("hvals", &["> HVALS H"]),
    ("keys", &["> KEYS *", "> KEYS *nothing*"]),
    ("lcs", &["SETRANGE a 4000 x", "SETRANGE b 4000 y", "> LCS a b"]),
    ("lindex", &["> LINDEX L {half}"]),
    ("linsert", &["COPY L t REPLACE", "> LINSERT t BEFORE {half} new"]),
    ("llen", &["> LLEN L"]),
    ("lmove", MOVES_A_LIST),
    ("lmpop", &["COPY L t REPLACE", "> LMPOP 1 t RIGHT COUNT {n}"]),
    ("lpop", &["COPY L t REPLACE", "> LPOP t {n}"]),
    ("lpos", &["> LPOS L nothing", "> LPOS L {last} RANK -1 COUNT 0"]),
    ("lpush", &["> LPUSH t6 m*"]),
    ("lpushx", &["COPY L t REPLACE", "> LPUSHX t m*"]),
    ("lrange", &["> LRANGE L 0 -1"]),
    ("lrem", &["COPY L t REPLACE", "> LREM t 0 {half}", "> LREM t -1 nothing"]),
    ("lset", &["COPY L t REPLACE", "> LSET t {half} new"]),
    ("ltrim", &["COPY L t REPLACE", "> LTRIM t {half} {half}"]),
    ("memory", &["> MEMORY USAGE Z SAMPLES 0"]),
    ("mget", &["> MGET k*", "> MGET T T"]),
    ("move", &["COPY Z mv REPLACE", "> MOVE mv 2"]),
    ("mset", &["> MSET s*=v", "> MSET s {blob}"]),
    ("msetnx", &["> MSETNX nx*=v"]),
    ("object", &["> OBJECT ENCODING Z", "> OBJECT ENCODING S", "> OBJECT ENCODING L"]),
    ("pfadd", &["> PFADD hl m*"]),
    ("pfcount", &["> PFCOUNT p*"]),
    ("pfmerge", &["> PFMERGE hm p*"]),
    ("prefix", &["> PREFIX k LIMIT {n}"]),
    ("psubscribe", &["> PSUBSCRIBE c*", "> PUNSUBSCRIBE"]),
    ("punsubscribe", &["PSUBSCRIBE c*", "> PUNSUBSCRIBE"]),
    ("randomkey", &["> RANDOMKEY"]),
    ("range", &["> RANGE [k (l LIMIT {n}"]),
    ("rangecount", &["> RANGECOUNT - +"]),
    ("rename", &["COPY Z t REPLACE", "> RENAME t t2"]),
    ("renamenx", &["COPY Z t REPLACE", "DEL t2", "> RENAMENX t t2"]),
    ("rpop", &["COPY L t REPLACE", "> RPOP t {n}"]),
    ("rpoplpush", &["COPY L t REPLACE", "> RPOPLPUSH t u"]),
    ("rpush", &["> RPUSH t6 m*"]),
    ("rpushx", &["COPY L t REPLACE", "> RPUSHX t m*"]),
    ("sadd", &["> SADD t7 m*"]),
    ("scan", &["> SCAN 0 COUNT {n}"]),
    ("scard", &["> SCARD S"]),
    ("sdiff", &["> SDIFF S S2"]),
    ("sdiffstore", &["> SDIFFSTORE t S S2"]),
    ("set", &["> SET t {blob}", "> SET t {blob} GET"]),
    ("setbit", &["COPY T t REPLACE", "> SETBIT t 9 1", "> SETBIT fresh2 40000000 1"]),
    ("setex", &["> SETEX t 1000 {blob}"]),
    ("setrange", &["COPY T t REPLACE", "> SETRANGE t 0 y", "> SETRANGE fresh3 {bytes} y"]),
    ("sinter", &["> SINTER S S2"]),
    ("sintercard", &["> SINTERCARD 2 S S2"]),
    ("sinterstore", &["> SINTERSTORE t S S2"]),
    ("sismember", &["> SISMEMBER S m0"]),
    ("smembers", &["> SMEMBERS S"]),
    ("smismember", &["> SMISMEMBER S m*"]),
    ("smove", &["COPY S t REPLACE", "> SMOVE t smoved m0"]),
    ("sort", &["> SORT L DESC", "> SORT L STORE t"]),
    ("sort_ro", &["> SORT_RO L", "> SORT_RO S BY w_*_ ALPHA LIMIT 0 5"]),
    ("spop", &["COPY S t REPLACE", "> SPOP t", "> SPOP t {half}"]),
    ("srandmember", &["> SRANDMEMBER S", "> SRANDMEMBER S {half}", "> SRANDMEMBER S -{many}"]),
    ("srem", &["COPY S t REPLACE", "> SREM t m*"]),
    ("sscan", &["> SSCAN S 0 COUNT {n}"]),
    ("ssubscribe", &["> SSUBSCRIBE c*", "> SUNSUBSCRIBE"]),
    ("strlen", &["> STRLEN T"]),
    ("subscribe", &["> SUBSCRIBE c*", "> UNSUBSCRIBE"]),
    ("substr", &["> SUBSTR T 0 -1"]),
    ("sunion", &["> SUNION S S2"]),
    ("sunionstore", &["> SUNIONSTORE t S S2"]),
    ("sunsubscribe", &["SSUBSCRIBE c*", "> SUNSUBSCRIBE"]),
    ("touch", &["> TOUCH k*"]),
    ("unlink", &["COPY Z t REPLACE", "> UNLINK t", "MSET d*=v", "> UNLINK d*"]),
    ("unsubscribe", &["SUBSCRIBE c*", "> UNSUBSCRIBE"]),
    ("unwatch", &["WATCH k*", "> UNWATCH"]),
    ("watch", &["> WATCH k*", "UNWATCH"]),
    ("xack", &["COPY X t REPLACE", "> XACK t g 1-1"]),
    ("xadd", &["COPY X t REPLACE", "> XADD t MAXLEN 1 * f v"]),
    ("xautoclaim", &["COPY X t REPLACE", "> XAUTOCLAIM t g d 0 0 COUNT {many}"]),
    ("xclaim", &["COPY X t REPLACE", "> XCLAIM t g d 0 1-1 2-1"]),
    ("xdel", &["COPY X t REPLACE", "> XDEL t 1-1 2-1"]),
    ("xgroup", &["COPY X t REPLACE", "> XGROUP DELCONSUMER t g c", "> XGROUP DESTROY t g"]),
    ("xinfo", &["> XINFO STREAM X FULL COUNT 0", "> XINFO GROUPS X", "> XINFO CONSUMERS X g"]),
    ("xlen", &["> XLEN X"]),
    (
        "xpending",
        &["> XPENDING X g", "> XPENDING X g - + {n}", "> XPENDING X g IDLE 1 - + {n} nobody"],
    ),
    ("xrange", &["> XRANGE X - +"]),
    ("xread", &["> XREAD STREAMS X 0"]),
    (
        "xreadgroup",
        &[
            "COPY X t REPLACE",
            "XGROUP CREATE t h 0",
            "> XREADGROUP GROUP h c STREAMS t >",
            "> XREADGROUP GROUP h c STREAMS t 0",
        ],
    ),
    ("xrevrange", &["> XREVRANGE X + -"]),
    ("xsetid", &["COPY X t REPLACE", "> XSETID t 99999999-1"]),
    ("xtrim", &["COPY X t REPLACE", "> XTRIM t MINID {half}", "> XTRIM t MAXLEN 1"]),
    ("zadd", &["> ZADD t8 #=m*", "COPY Z t REPLACE", "> ZADD t 1 new"]),
    ("zcard", &["> ZCARD Z"]),
    ("zcount", &["COPY Z t REPLACE", "> ZCOUNT t 5 {half}"]),
    ("zdiff", &["> ZDIFF 2 Z Z2"]),
    ("zdiffstore", &["> ZDIFFSTORE t 2 Z Z2"]),
    ("zincrby", &["COPY Z t REPLACE", "> ZINCRBY t 1 m0"]),
    ("zinter", &["> ZINTER 2 Z Z2"]),
    ("zintercard", &["> ZINTERCARD 2 Z Z2"]),
    ("zinterstore", &["> ZINTERSTORE t 2 Z Z2"]),
    ("zlexcount", &["COPY Z t REPLACE", "> ZLEXCOUNT t [m1 [m5"]),
    ("zmpop", &["COPY Z t REPLACE", "> ZMPOP 1 t MAX COUNT {n}"]),
    ("zmscore", &["> ZMSCORE Z m*"]),
    ("zpopmax", &["COPY Z t REPLACE", "> ZPOPMAX t {n}"]),
    ("zpopmin", &["COPY Z t REPLACE", "> ZPOPMIN t {n}"]),
    (
        "zrandmember",
        &[
            "COPY Z t REPLACE",
            "> ZRANDMEMBER t",
            "> ZRANDMEMBER t {half}",
            "> ZRANDMEMBER t -{many}",
        ],
    ),
    ("zrange", &["> ZRANGE Z 0 -1 WITHSCORES", "COPY Z t REPLACE", "> ZRANGE t {half} {half}"]),
    ("zrangebylex", &["> ZRANGEBYLEX Z - +"]),
    ("zrangebyscore", &["> ZRANGEBYSCORE Z -inf +inf"]),
    ("zrangestore", &["> ZRANGESTORE t Z 0 -1"]),
    ("zrank", &["COPY Z t REPLACE", "> ZRANK t m{half}"]),
    ("zrem", &["COPY Z t REPLACE", "> ZREM t m*"]),
    ("zremrangebylex", &["COPY Z t REPLACE", "> ZREMRANGEBYLEX t - +"]),
    ("zremrangebyrank", &["COPY Z t REPLACE", "> ZREMRANGEBYRANK t 1 -2"]),
    ("zremrangebyscore", &["COPY Z t REPLACE", "> ZREMRANGEBYSCORE t 1 +inf"]),
    ("zrevrange", &["> ZREVRANGE Z 0 -1"]),
    ("zrevrangebylex", &["> ZREVRANGEBYLEX Z + -"]),
    ("zrevrangebyscore", &["> ZREVRANGEBYSCORE Z +inf -inf"]),
    ("zrevrank", &["COPY Z t REPLACE", "> ZREVRANK t m{half}"]),
    ("zscan", &["> ZSCAN Z 0 COUNT {n}"]),
    ("zscore", &["> ZSCORE Z m0"]),
    ("zunion", &["> ZUNION 2 Z Z2"]),
    ("zunionstore", &["> ZUNIONSTORE t 2 Z Z2"]),
    // Last, for they empty what the others read.
    ("swapdb", &["> SWAPDB 0 1", "SWAPDB 0 1"]),
    ("flushdb", &["> FLUSHDB"]),
    ("flushall", &["MSET k*=v", "> FLUSHALL"]),
];
