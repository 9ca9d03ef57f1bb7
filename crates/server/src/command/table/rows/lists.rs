//! The rows of the commands on lists.

use super::{
    super::super::{Handler, list_moves as lm, list_search as ls, lists as l},
    Command, FAST_READ, FAST_WRITE, Flags, Group, KeyPlaces, MoreKeys, READ, TWO_KEYS, Text, WRITE,
    in_turn, on_key, places, with_keys,
};

/// Keys whose number is the argument `at`.
const fn counted_at(at: usize) -> KeyPlaces {
    KeyPlaces { more: MoreKeys::Counted { at }, ..places(0, 0, 0) }
}

fn list(name: &'static str, arity: i16, flags: Flags, run: Handler, text: Text) -> Command {
    on_key(Group::Lists, name, arity, flags, run, text)
}

/// Those that move elements, or take them from one of several lists; and that wait for one.
fn moves() -> Vec<Command> {
    let blocking = |keys, name, arity, run: Handler, text| {
        in_turn(with_keys(keys, list(name, arity, WRITE, run, text)))
    };
    let before_timeout = places(1, -2, 1);
    vec![
        blocking(
            TWO_KEYS,
            "blmove",
            6,
            lm::blmove,
            ("O(1)", "Moves an element from a list to another; waits for one"),
        ),
        blocking(
            counted_at(2),
            "blmpop",
            -5,
            lm::blmpop,
            ("O(keys + count)", "Takes elements from the first list that has some; waits for one"),
        ),
        blocking(
            before_timeout,
            "blpop",
            -3,
            lm::blpop,
            ("O(keys)", "Takes an element from the front of the first list; waits for one"),
        ),
        blocking(
            before_timeout,
            "brpop",
            -3,
            lm::brpop,
            ("O(keys)", "Takes an element from the end of the first list; waits for one"),
        ),
        blocking(
            TWO_KEYS,
            "brpoplpush",
            4,
            lm::brpoplpush,
            ("O(1)", "Moves the last element to the front of a list; waits for one"),
        ),
        with_keys(
            TWO_KEYS,
            list("lmove", 5, WRITE, lm::lmove, ("O(1)", "Moves an element from a list to another")),
        ),
        with_keys(
            counted_at(1),
            list(
                "lmpop",
                -4,
                WRITE,
                lm::lmpop,
                ("O(keys + count)", "Takes elements from the first list that has some"),
            ),
        ),
        with_keys(
            TWO_KEYS,
            list(
                "rpoplpush",
                3,
                WRITE,
                lm::rpoplpush,
                ("O(1)", "Moves the last element to the front of a list"),
            ),
        ),
    ]
}

pub(super) fn lists() -> Vec<Command> {
    let on_one = vec![
        list("lindex", 3, READ, l::lindex, ("O(1)", "The element at an index")),
        list("llen", 2, FAST_READ, l::llen, ("O(1)", "Counts the elements")),
        list("lpop", -2, FAST_WRITE, l::lpop, ("O(count)", "Takes elements from the front")),
        list("lpush", -3, FAST_WRITE, l::lpush, ("O(elements)", "Adds elements at the front")),
        list(
            "lpushx",
            -3,
            FAST_WRITE,
            l::lpushx,
            ("O(elements)", "Adds elements at the front of a list that is there"),
        ),
        list("linsert", 5, WRITE, ls::linsert, ("O(n)", "Inserts an element beside another")),
        list("lpos", -3, READ, ls::lpos, ("O(n)", "The indexes of elements of a value")),
        list("lrem", 4, WRITE, ls::lrem, ("O(n)", "Removes elements of a value")),
        list("lrange", 4, READ, l::lrange, ("O(found)", "The elements between two indexes")),
        list("lset", 4, WRITE, l::lset, ("O(1)", "Replaces the element at an index")),
        list("ltrim", 4, WRITE, l::ltrim, ("O(removed)", "Keeps the elements between two indexes")),
        list("rpop", -2, FAST_WRITE, l::rpop, ("O(count)", "Takes elements from the end")),
        list("rpush", -3, FAST_WRITE, l::rpush, ("O(elements)", "Adds elements at the end")),
        list(
            "rpushx",
            -3,
            FAST_WRITE,
            l::rpushx,
            ("O(elements)", "Adds elements at the end of a list that is there"),
        ),
    ];
    on_one.into_iter().chain(moves()).collect()
}
