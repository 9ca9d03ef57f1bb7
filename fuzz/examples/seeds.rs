//! Writes real encodings for the fuzz targets to start from: `seeds DIRECTORY`.

use std::{env, fs, io, path::Path};

use rhumb::fuzzing::{TARGETS, seeds};
use rhumb_model::{
    Line,
    codec::{put_column, put_line, put_varint},
};

fn main() -> io::Result<()> {
    let root = env::args_os().nth(1).unwrap_or_else(|| "fuzz/corpus".into());
    for (target, _) in TARGETS {
        write(&Path::new(&root).join(target), &seeds(target))?;
    }
    for (target, _) in rhumb_remote::fuzzing::TARGETS {
        write(&Path::new(&root).join(target), &rhumb_remote::fuzzing::seeds(target))?;
    }
    for (target, _) in rhumb_server::fuzzing::TARGETS {
        write(&Path::new(&root).join(target), &rhumb_server::fuzzing::seeds(target))?;
    }
    write(&Path::new(&root).join("model"), &models())?;
    write(&Path::new(&root).join("resp"), &commands(&[0]))?;
    write(&Path::new(&root).join("session"), &commands(&[]))
}

fn write(dir: &Path, seeds: &[Vec<u8>]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(dir.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}

/// Inputs of the target `model`, one for each of its forms.
fn models() -> Vec<Vec<u8>> {
    let mut encoded = vec![0, 0];
    put_varint(300, &mut encoded);
    encoded.push(1);
    put_line(&Line { x0: 1, y0: -1, mantissa: 77, shift: 3 }, &mut encoded);
    encoded.extend([3, 5]);
    put_column(&[5, 6, 800, 5, 70], &mut encoded);
    let segment = [1, 7, 1 << 30, 40, 3, 4, 0, 100, 1, 2, 3, 400, 5000, 60_000];
    let points = (1..40_u64).map(|i| (i * i % 97) << 40 | (i % 5) << 16);
    let words = |form: u8, words: Vec<u64>| {
        [vec![form], words.iter().flat_map(|word| word.to_le_bytes()).collect()].concat()
    };
    vec![
        encoded,
        words(1, segment.to_vec()),
        words(2, [4 << 16].into_iter().chain(points).collect()),
        [&[3, 4, 9][..], b"key-00017key-00018"].concat(),
    ]
}

/// Commands as clients send them, each after `front`.
fn commands(front: &[u8]) -> Vec<Vec<u8>> {
    let lines = [
        "SET a 1 EX 100 NX GET",
        "MSET a 1 b 2 c 3",
        "APPEND a x",
        "SETRANGE a 5 y",
        "INCRBYFLOAT a 0.1",
        "HSET h f v g w",
        "HSCAN h 0 MATCH * COUNT 1",
        "HINCRBYFLOAT h f 1e3",
        "ZADD z NX CH 1 a 2 b inf c",
        "ZRANGE z (1 +inf BYSCORE REV LIMIT 0 2 WITHSCORES",
        "ZPOPMIN z 2",
        "ZRANGE z [a + BYLEX",
        "RPUSH l a b c",
        "LINDEX l -1",
        "LTRIM l 1 -1",
        "LSET l 0 x",
        "SADD s a b c",
        "SPOP s 2",
        "SRANDMEMBER s -5",
        "SCAN 0 MATCH a* COUNT 3 TYPE string",
        "RANGE [a + LIMIT 2 KEYSONLY",
        "PREFIX a REV",
        "NEXT a",
        "PREV b",
        "DELRANGE - + LIMIT 1",
        "EXEC",
        "MULTI",
        "WATCH a b",
        "EXPIRE a 10 GT",
        "RENAME a b",
        "COPY a b DB 1 REPLACE",
        "SWAPDB 0 1",
        "HELLO 3 SETNAME x",
        "CLIENT LIST",
        "COMMAND DOCS get",
        "CONFIG GET *",
        "INFO all",
        "OBJECT ENCODING a",
    ];
    let multibulk = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), words.collect::<String>())
    };
    let inline = lines.iter().map(|line| format!("{line}\r\n"));
    let inline = inline.chain(lines.iter().map(|line| multibulk(line)));
    let all = lines.iter().map(|line| multibulk(line)).collect::<String>();
    inline.chain([all]).map(|text| [front, text.as_bytes()].concat()).collect()
}
