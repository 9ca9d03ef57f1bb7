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
    write(&Path::new(&root).join("model"), &models())
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
