//! A checker of concurrent histories: it looks for an order of the operations on one key, each at a
//! moment between its call and its return, in which a register would have given every answer.
//!
//! After Wing and Gong (1993), with the memory of visited configurations of Lowe (2017). Each
//! thread's operations follow one another, so a configuration is the number of operations of each
//! thread that are done, and the register's value. Keys are independent of one another:
//! linearizability is a local property (Herlihy and Wing 1990), so each key is checked by itself.

use std::collections::HashSet;

/// A call on a key with its answer.
pub trait Answered: Copy {
    /// The register after the call, if this is the answer that a register with `state` gives.
    fn apply(self, state: Option<u64>) -> Option<Option<u64>>;
}

/// A call on a key of a map, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named as in the map's interface")]
pub enum Call {
    /// Sets the value; the answer is the one before.
    Insert { value: u64, old: Option<u64> },
    /// Sets the value of a key that is present.
    Update { value: u64, was_there: bool },
    /// Removes the key; the answer is its value.
    Remove { old: Option<u64> },
    /// Returns the value. Also stands for what a scan or a batch says of the key.
    Get { found: Option<u64> },
    /// Returns true if the key is present.
    Contains { found: bool },
    /// Returns the value. If there was none, it is `value` from now on.
    GetOrInsert { value: u64, got: u64 },
    /// Sets the value if it is `current`.
    CompareExchange { current: u64, new: u64, answer: Result<u64, Option<u64>> },
}

impl Answered for Call {
    fn apply(self, state: Option<u64>) -> Option<Option<u64>> {
        let (is_right, next) = match self {
            Self::Insert { value, old } => (old == state, Some(value)),
            Self::Update { value, was_there } => {
                (was_there == state.is_some(), state.map(|_| value))
            }
            Self::Remove { old } => (old == state, None),
            Self::Get { found } => (found == state, state),
            Self::Contains { found } => (found == state.is_some(), state),
            Self::GetOrInsert { value, got } => {
                let now = state.unwrap_or(value);
                (got == now, Some(now))
            }
            Self::CompareExchange { current, new, answer } => {
                if state == Some(current) {
                    (answer == Ok(current), Some(new))
                } else {
                    (answer == Err(state), state)
                }
            }
        };
        is_right.then_some(next)
    }
}

/// An operation on one key.
#[derive(Clone, Copy, Debug)]
pub struct Operation<C = Call> {
    /// The call and its answer.
    pub call: C,
    /// The time of the call, on a clock that all threads share.
    pub called: u64,
    /// The time of the return, on the same clock.
    pub returned: u64,
}

/// Returns true if the operations of all threads on one key, whose value was `initial`, can be put
/// in an order that explains every answer. Those of each thread are in order already.
pub fn is_linearizable<C: Answered>(threads: &[Vec<Operation<C>>], initial: Option<u64>) -> bool {
    let start = (vec![0_usize; threads.len()], initial);
    let mut visited = HashSet::from([start.clone()]);
    let mut pending = vec![start];
    while let Some((done, state)) = pending.pop() {
        let next = |thread: usize| threads[thread].get(done[thread]);
        // Nothing may come before an operation that had returned when it was called.
        let first_return = (0..threads.len()).filter_map(next).map(|op| op.returned).min();
        let Some(first_return) = first_return else { return true };
        for thread in 0..threads.len() {
            let Some(operation) = next(thread).filter(|op| op.called <= first_return) else {
                continue;
            };
            let Some(state) = operation.call.apply(state) else { continue };
            let mut done = done.clone();
            done[thread] += 1;
            if visited.insert((done.clone(), state)) {
                pending.push((done, state));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(called: u64, returned: u64, call: Call) -> Operation {
        Operation { call, called, returned }
    }

    fn insert(value: u64, old: Option<u64>) -> Call {
        Call::Insert { value, old }
    }

    fn get(found: Option<u64>) -> Call {
        Call::Get { found }
    }

    #[test]
    fn legal_histories_pass() {
        assert!(is_linearizable::<Call>(&[], None));
        // A lookup that overlaps an insert may see it or not.
        for found in [None, Some(1)] {
            let threads = [vec![at(0, 9, insert(1, None))], vec![at(1, 2, get(found))]];
            assert!(is_linearizable(&threads, None));
        }
        // The only legal order is against that of the calls.
        let threads = [
            vec![at(0, 9, insert(1, Some(2)))],
            vec![at(1, 8, insert(2, None)), at(9, 10, Call::Remove { old: Some(1) })],
            vec![at(2, 3, Call::CompareExchange { current: 5, new: 6, answer: Err(None) })],
            vec![at(11, 12, Call::GetOrInsert { value: 7, got: 7 })],
            vec![at(13, 14, Call::Update { value: 8, was_there: true })],
            vec![at(15, 16, Call::CompareExchange { current: 8, new: 9, answer: Ok(8) })],
            vec![at(17, 18, Call::Contains { found: true }), at(19, 20, get(Some(9)))],
        ];
        assert!(is_linearizable(&threads, None));
    }

    #[test]
    fn illegal_histories_are_caught() {
        // A lookup after an insert that does not see it.
        let threads = [vec![at(0, 1, insert(1, None))], vec![at(2, 3, get(None))]];
        assert!(!is_linearizable(&threads, None));
        // A value that comes back.
        let threads = [
            vec![at(0, 1, insert(1, None)), at(2, 3, insert(2, Some(1)))],
            vec![at(4, 5, get(Some(2))), at(6, 7, get(Some(1)))],
        ];
        assert!(!is_linearizable(&threads, None));
        // Two readers that see two overlapping writes in different orders.
        let threads = [
            vec![at(0, 9, insert(1, None))],
            vec![at(0, 9, insert(2, Some(1)))],
            vec![at(1, 2, get(Some(1))), at(3, 4, get(Some(2)))],
            vec![at(1, 2, get(Some(2))), at(3, 4, get(Some(1)))],
        ];
        assert!(!is_linearizable(&threads, None));
        // Both of two removals get the value.
        let threads = [
            vec![at(0, 9, Call::Remove { old: Some(1) })],
            vec![at(0, 9, Call::Remove { old: Some(1) })],
        ];
        assert!(!is_linearizable(&threads, Some(1)));
        // Both of two exchanges succeed.
        let exchange = |new| Call::CompareExchange { current: 1, new, answer: Ok(1) };
        let threads = [vec![at(0, 9, exchange(2))], vec![at(0, 9, exchange(3))]];
        assert!(!is_linearizable(&threads, Some(1)));
        // Two threads that both made the value.
        let threads = [
            vec![at(0, 9, Call::GetOrInsert { value: 1, got: 1 })],
            vec![at(0, 9, Call::GetOrInsert { value: 2, got: 2 })],
        ];
        assert!(!is_linearizable(&threads, None));
        // An update that brings back what was removed before.
        let threads = [
            vec![at(0, 1, Call::Remove { old: Some(1) })],
            vec![at(2, 3, Call::Update { value: 2, was_there: true })],
        ];
        assert!(!is_linearizable(&threads, Some(1)));
    }

    #[test]
    fn long_histories_of_few_threads_are_checked_quickly() {
        // Every operation overlaps one of the other thread; only memory keeps this from 2^400.
        let thread = |offset: u64| {
            (0..400).map(|i| at(i * 4 + offset, i * 4 + offset + 3, get(Some(1)))).collect()
        };
        assert!(is_linearizable(&[thread(0), thread(2)], Some(1)));
        assert!(!is_linearizable(&[thread(0), thread(2)], Some(2)));
    }
}
