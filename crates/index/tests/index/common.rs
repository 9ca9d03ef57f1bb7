//! The parameters that the tests are run for: kinds of keys, kinds of values, and settings.

use std::{env, fmt::Debug};

use rhumb_index::{Index, Key, Value};

pub(crate) use rhumb_testkit::random::{Random, scatter};

pub(crate) use crate::setting::Setting;

/// A number from the environment.
pub(crate) fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// The set that keys are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A few dozen keys, the ends of the type among them.
    Tiny,
    /// Thousands of neighbours.
    Dense,
    /// Everywhere.
    Sparse,
    /// Dense runs whose spacing differs by orders of magnitude, far from one another.
    Clustered,
}

impl Shape {
    pub(crate) const ALL: [Self; 4] = [Self::Tiny, Self::Dense, Self::Sparse, Self::Clustered];
}

/// A kind of key.
pub(crate) trait TestKey: Key<Query: Debug + PartialEq> + Debug {
    /// Draws a key at random.
    fn draw(random: &mut Random, shape: Shape) -> Self;

    /// The lowest and the highest key, or keys beyond all that are drawn.
    fn ends() -> [Self; 2];

    /// The form by which it is looked up.
    fn query(&self) -> &Self::Query {
        self.borrow()
    }
}

macro_rules! integer_keys {
    ($($key:ty),*) => {$(
        impl TestKey for $key {
            fn draw(random: &mut Random, shape: Shape) -> Self {
                let word = random.next();
                let wide = (u128::from(random.next()) << 64) | u128::from(word);
                match shape {
                    Shape::Tiny => match word % 8 {
                        0 => <$key>::MIN.wrapping_add((word >> 8) as $key % 3),
                        1 => <$key>::MAX.wrapping_sub((word >> 8) as $key % 3),
                        2 => (1 as $key).rotate_right((word >> 8) as u32),
                        _ => (word >> 8) as $key % 50,
                    },
                    Shape::Dense => ((word % 5000) as $key).wrapping_add(<$key>::MAX / 3),
                    Shape::Sparse => wide as $key,
                    Shape::Clustered => {
                        let cluster = word % 7;
                        let base = (scatter(cluster) as u128) << (cluster * 9);
                        let step = 1_u128 << (cluster * 5);
                        base.wrapping_add(u128::from((word >> 8) % 300) * step) as $key
                    }
                }
            }

            fn ends() -> [Self; 2] {
                [<$key>::MIN, <$key>::MAX]
            }
        }
    )*};
}

integer_keys!(u8, u16, u32, u64, i64, u128);

impl TestKey for Vec<u8> {
    fn draw(random: &mut Random, shape: Shape) -> Self {
        let word = random.next();
        match shape {
            // Prefixes of one another, with the bytes that padding could be confused with.
            Shape::Tiny => {
                let byte = [0, 0xFF, b'a'][(word % 3) as usize];
                vec![byte; ((word >> 8) % 18) as usize]
            }
            Shape::Dense => (word % 5000).to_be_bytes().to_vec(),
            Shape::Sparse => {
                let length = if word.is_multiple_of(200) { 3000 } else { word % 40 };
                (0..length).map(|_| random.next() as u8).collect()
            }
            // Equal codes: the keys differ only after many shared bytes.
            Shape::Clustered => {
                let mut key = vec![b'0' + (word % 3) as u8; 8 + (word % 3) as usize * 20];
                key.extend_from_slice(&((word >> 8) as u16 % 300).to_be_bytes());
                key.truncate(key.len() - usize::from(word.is_multiple_of(5)));
                key
            }
        }
    }

    fn ends() -> [Self; 2] {
        [Vec::new(), vec![0xFF; 1 << 16]]
    }
}

/// A kind of value, made from a number that it gives back.
pub(crate) trait TestValue: Value + PartialEq + Debug {
    /// The value of a number.
    fn make(number: u64) -> Self;

    /// [`Index::compare_exchange`] where the value is a word; otherwise `None`.
    fn compare_exchange<K: TestKey>(
        _index: &Index<K, Self>,
        _key: &K::Query,
        _current: Self,
        _new: Self,
    ) -> Option<Result<Self, Option<Self>>> {
        None
    }
}

impl TestValue for u64 {
    fn make(number: u64) -> Self {
        // Every bit pattern, the extreme ones often.
        match number % 5 {
            0 => 0,
            1 => u64::MAX,
            _ => scatter(number),
        }
    }

    fn compare_exchange<K: TestKey>(
        index: &Index<K, Self>,
        key: &K::Query,
        current: Self,
        new: Self,
    ) -> Option<Result<Self, Option<Self>>> {
        Some(index.compare_exchange(key, current, new))
    }
}

/// A value that does not fit into a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text(String);

impl TestValue for Text {
    fn make(number: u64) -> Self {
        Self(format!("{number:#x}").repeat((number % 4) as usize))
    }
}

impl TestKey for String {
    fn draw(random: &mut Random, shape: Shape) -> Self {
        // One character for each byte, of one byte or two.
        Vec::draw(random, shape).into_iter().map(char::from).collect()
    }

    fn ends() -> [Self; 2] {
        [Self::new(), "\u{10FFFF}".repeat(20)]
    }

    fn query(&self) -> &str {
        self
    }
}

impl TestKey for (i64, u64) {
    fn draw(random: &mut Random, shape: Shape) -> Self {
        // Ties in the first part, and none.
        let of_first = if random.one_in(3) { shape } else { Shape::Tiny };
        let first = i64::draw(random, of_first);
        (first, u64::draw(random, shape))
    }

    fn ends() -> [Self; 2] {
        [(i64::MIN, 0), (i64::MAX, u64::MAX)]
    }

    fn query(&self) -> &Self {
        self
    }
}

/// Runs a generic test for each kind of key and each kind of value, each as a test of its own.
macro_rules! for_each_kind {
    ($test:ident) => {
        $crate::common::for_each_kind!($test: word u64, boxed $crate::common::Text);
    };
    ($test:ident: $($name:ident $value:ty),*) => {
        mod $test {$(
            mod $name {
                #[test]
                fn u8() { super::super::$test::<u8, $value>(); }
                #[test]
                fn u16() { super::super::$test::<u16, $value>(); }
                #[test]
                fn u32() { super::super::$test::<u32, $value>(); }
                #[test]
                fn u64() { super::super::$test::<u64, $value>(); }
                #[test]
                fn i64() { super::super::$test::<i64, $value>(); }
                #[test]
                fn u128() { super::super::$test::<u128, $value>(); }
                #[test]
                fn bytes() { super::super::$test::<Vec<u8>, $value>(); }
                #[test]
                fn text() { super::super::$test::<String, $value>(); }
                #[test]
                fn pair() { super::super::$test::<(i64, u64), $value>(); }
            }
        )*}
    };
}

pub(crate) use for_each_kind;
