//! Short forms of the fuzzing: seeds, and what is near them. `RHUMB_FUZZ_SECONDS=n` goes on for
//! that long with each target of [`TARGETS`].

use super::*;

const SEEDS: [&[u8]; 7] = [
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    b"SET a 'x y' \r\n\r\nGET \"\\x61\"\r\nQUIT\r\n",
    b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n*1\r\n$999\r\n",
    b"*1\r\nPING\r\n",
    b"*11\r\n",
    b"\"unbalanced\r\n",
    b"*3\r\n$4\r\nMSET\r\n$0\r\n\r\n$0\r\n\r\n*1\r\n$5\r\nMULTI\r\n",
];

#[test]
fn seeds_and_what_is_near_them_are_parsed_alike() {
    for seed in SEEDS {
        for split in 0..=255 {
            resp(&[&[split], seed].concat());
        }
        for at in 0..seed.len() {
            for byte in [b'\r', b'\n', b'*', b'$', b'0', b'9', b'-', b'"', 0xFF] {
                let mut near = [&[7], seed].concat();
                near[at + 1] = byte;
                resp(&near);
            }
        }
    }
}

#[test]
fn lines_at_their_limit_are_parsed_alike() {
    for len in 55..110 {
        for end in ["\r\n", "\n"] {
            for start in ["*", "*1\r\n$", "P"] {
                let line = format!("{start}{}{end}PING\r\n", "0".repeat(len));
                (0..=255).for_each(|split| resp(&[&[split], line.as_bytes()].concat()));
            }
        }
    }
}

/// Runs a target over its seeds, and over mutants of them.
fn run(name: &'static str, mutants: u64) {
    let (_, target) = *TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    rhumb_testkit::fuzzing::run(name, &seeds(name), mutants, target);
}

#[test]
fn dumps_and_values_near_real_ones_are_read_or_refused() {
    for seed in seeds("rdb") {
        rdb(&seed);
        for at in 1..seed.len() {
            rdb(&seed[..at]);
            for byte in [0, 1, 2, 0x3F, 0x7F, 0x80, 0x81, 0xC3, 0xF0, 0xFE, 0xFF] {
                let mut near = seed.clone();
                near[at] = byte;
                rdb(&near);
            }
        }
    }
    run("rdb", 5000);
}

#[test]
fn values_that_were_restored_are_dumped_and_restored_alike() {
    run("restore", 300);
}

#[test]
fn converters_of_scripts_keep_their_promises() {
    run("scripts", 1000);
}

#[test]
fn replies_are_told_from_what_is_none() {
    for reply in
        ["+OK\r\n", "*2\r\n:1\r\n$-1\r\n", "%1\r\n+a\r\n_\r\n", "$3\r\na\r\n\r\n", "*-1\r\n"]
    {
        assert_eq!(scripts::reply_len(reply.as_bytes()), Some(reply.len()), "{reply:?}");
    }
    for no_reply in ["", "OK\r\n", "*2\r\n:1\r\n", "$3\r\nab\r\n", "+a\rb\r\n", ":x\r\n", "+OK"] {
        assert_eq!(scripts::reply_len(no_reply.as_bytes()), None, "{no_reply:?}");
    }
}

#[test]
fn sessions_take_seeds() {
    SEEDS.iter().for_each(|seed| session(seed));
}
