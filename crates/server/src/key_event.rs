//! What happens to keys, as keyspace notifications name it.

/// Kinds of events, one bit each: the letters of `notify-keyspace-events`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventClass(pub(crate) u32);

impl EventClass {
    /// `K`: messages to the channel of the key.
    pub(crate) const KEYSPACE: Self = Self(1);
    /// `E`: messages to the channel of the event.
    pub(crate) const KEYEVENT: Self = Self(1 << 1);
    /// `g`: commands on keys of any type.
    pub(crate) const GENERIC: Self = Self(1 << 2);
    /// `$`
    pub(crate) const STRING: Self = Self(1 << 3);
    /// `l`
    pub(crate) const LIST: Self = Self(1 << 4);
    /// `s`
    pub(crate) const SET: Self = Self(1 << 5);
    /// `h`
    pub(crate) const HASH: Self = Self(1 << 6);
    /// `z`
    pub(crate) const ZSET: Self = Self(1 << 7);
    /// `x`: keys that have ended.
    pub(crate) const EXPIRED: Self = Self(1 << 8);
    /// `e`: keys that were evicted, of which there are none.
    pub(crate) const EVICTED: Self = Self(1 << 9);
    /// `t`
    pub(crate) const STREAM: Self = Self(1 << 10);
    /// `m`: reads of absent keys.
    pub(crate) const KEY_MISS: Self = Self(1 << 11);
    /// `n`: keys that are new.
    pub(crate) const NEW: Self = Self(1 << 12);
    /// `d`: of modules, of which there are none.
    const MODULE: Self = Self(1 << 13);

    /// The letters of the kinds that `A` stands for, in the order in which they are told.
    const ALL: [(u8, Self); 10] = [
        (b'g', Self::GENERIC),
        (b'$', Self::STRING),
        (b'l', Self::LIST),
        (b's', Self::SET),
        (b'h', Self::HASH),
        (b'z', Self::ZSET),
        (b'x', Self::EXPIRED),
        (b'e', Self::EVICTED),
        (b't', Self::STREAM),
        (b'd', Self::MODULE),
    ];

    /// The letters that come after those, `n` only if `A` does not stand there.
    const OTHERS: [(u8, Self); 4] =
        [(b'n', Self::NEW), (b'K', Self::KEYSPACE), (b'E', Self::KEYEVENT), (b'm', Self::KEY_MISS)];

    /// Returns true if some of these kinds are among `other`.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn all() -> u32 {
        Self::ALL.iter().fold(0, |bits, (_, class)| bits | class.0)
    }

    /// The kinds that letters stand for; none if one stands for nothing.
    pub(crate) fn parse(letters: &[u8]) -> Option<Self> {
        let mut bits = 0;
        for letter in letters {
            let mut known = Self::ALL.iter().chain(&Self::OTHERS);
            bits |= match letter {
                b'A' => Self::all(),
                _ => known.find(|(known, _)| known == letter)?.1.0,
            };
        }
        Some(Self(bits))
    }

    /// The letters of these kinds, as Redis tells them.
    pub(crate) fn letters(self) -> String {
        let has_all = self.0 & Self::all() == Self::all();
        let mut letters = String::from(if has_all { "A" } else { "" });
        let known = Self::ALL.iter().filter(|_| !has_all).chain(&Self::OTHERS);
        for (letter, class) in known {
            if self.meets(*class) && !(has_all && *class == Self::NEW) {
                letters.push(char::from(*letter));
            }
        }
        letters
    }
}

/// An event: its kind, and the name that clients are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyEvent {
    pub(crate) class: EventClass,
    pub(crate) name: &'static str,
}

impl KeyEvent {
    /// A key whose time is over was taken away.
    pub(crate) const EXPIRED: Self = Self { class: EventClass::EXPIRED, name: "expired" };
    /// A key was read that is not there.
    pub(crate) const MISS: Self = Self { class: EventClass::KEY_MISS, name: "keymiss" };
    /// A key came that was not there.
    pub(crate) const ADDED: Self = Self { class: EventClass::NEW, name: "new" };
}

macro_rules! constructors {
    ($($name:ident $class:ident)*) => {
        impl KeyEvent {$(
            /// An event of this kind.
            pub(crate) const fn $name(name: &'static str) -> Self {
                Self { class: EventClass::$class, name }
            }
        )*}
    };
}

constructors! {
    generic GENERIC
    string STRING
    list LIST
    set SET
    hash HASH
    zset ZSET
    stream STREAM
}

#[cfg(test)]
mod tests {
    use super::EventClass;

    #[test]
    fn letters_are_told_as_redis_does() {
        let told = |text: &str| EventClass::parse(text.as_bytes()).map(EventClass::letters);
        let cases = [
            ("", ""),
            ("KEA", "AKE"),
            ("AKEmn", "AKEm"),
            ("gKn", "gnK"),
            ("dtexzhsl$gE", "AE"),
            ("Kmx$", "$xKm"),
        ];
        for (said, expected) in cases {
            assert_eq!(told(said).as_deref(), Some(expected), "{said}");
        }
        assert!(told("Kq").is_none());
    }
}
