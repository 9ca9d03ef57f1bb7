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
}

/// An event: its kind, and the name that clients are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyEvent {
    pub(crate) class: EventClass,
    pub(crate) name: &'static str,
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
