//! Questions of clients that keep models, and which keys they touch: a host answers for those that
//! it serves alone, whichever way it is asked.

use std::ops::Bound;

use super::share::Preset;
use crate::{
    binned::{Request, Verb},
    bounds::Bounds,
    error::{Error, Result},
    two_stage::Lookup,
};

/// What a client asks.
pub(super) enum Question<'q> {
    /// A get that a client's two-stage models could not do.
    LookUp(Lookup<'q>),
    /// Of a session, of arrays or of what the level bins hold.
    Arrays(Request),
}

/// The keys that an answer is of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Touched<'q> {
    /// None: models and sessions prove nothing.
    Nothing,
    /// Those of a range are read.
    Read(Bounds<&'q [u8]>),
    /// One is written.
    Written(&'q [u8]),
}

impl<'q> Question<'q> {
    /// The question that a client of a keyspace of this preset asks.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if clients of the keyspace keep no models; what is wrong with
    /// bytes that are no question.
    pub(super) fn decode(preset: Preset, bytes: &'q [u8]) -> Result<Self> {
        match preset {
            Preset::Rhumb => {
                Err(Error::InvalidArgument("clients of this keyspace keep no models".into()))
            }
            Preset::XStore => Lookup::decode(bytes)
                .map(Self::LookUp)
                .map_err(|error| Error::invalid(format!("a lookup: {error}"))),
            Preset::FineStore => Request::decode(bytes)
                .map(Self::Arrays)
                .map_err(|error| Error::InvalidArgument(format!("a question: {error}").into())),
        }
    }

    /// The keys that the answer is of.
    pub(super) fn touched(&self) -> Touched<'_> {
        let one = |key| Touched::Read((Bound::Included(key), Bound::Included(key)));
        match self {
            Self::LookUp(lookup) => one(lookup.key),
            Self::Arrays(Request::Operate(operation)) => match operation.verb {
                Verb::Search => one(&operation.key),
                Verb::Range => {
                    let end = operation.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                    Touched::Read((Bound::Included(&operation.key), end))
                }
                Verb::Insert | Verb::Update | Verb::Put | Verb::Remove => {
                    Touched::Written(&operation.key)
                }
            },
            Self::Arrays(
                Request::Join
                | Request::Renew { .. }
                | Request::Leave { .. }
                | Request::Learn { .. },
            ) => Touched::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binned::{Address, Operation};

    #[track_caller]
    fn check(request: Request, touched: Touched<'_>) {
        assert_eq!(Question::Arrays(request).touched(), touched);
    }

    #[test]
    fn every_operation_touches_its_keys() {
        let operation = |verb| Operation::new(verb, Address::default(), b"k", b"v");
        let from = Bound::Included(&b"k"[..]);
        check(Request::Operate(operation(Verb::Search)), Touched::Read((from, from)));
        let mut range = operation(Verb::Range);
        check(Request::Operate(range.clone()), Touched::Read((from, Bound::Unbounded)));
        range.end = Some((&b"m"[..]).into());
        check(Request::Operate(range), Touched::Read((from, Bound::Excluded(b"m"))));
        for verb in [Verb::Insert, Verb::Update, Verb::Put, Verb::Remove] {
            check(Request::Operate(operation(verb)), Touched::Written(b"k"));
        }
        for request in [
            Request::Join,
            Request::Renew { session: 1, model: 1 },
            Request::Leave { session: 1 },
            Request::Learn { from: b"k".to_vec() },
        ] {
            check(request, Touched::Nothing);
        }
        let lookup = Question::LookUp(Lookup { epoch: 1, wants_model: true, key: b"k" });
        assert_eq!(lookup.touched(), Touched::Read((from, from)));
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let decode = |preset, bytes: &[u8]| Question::decode(preset, bytes).err();
        assert!(matches!(decode(Preset::Rhumb, b""), Some(Error::InvalidArgument(_))));
        assert!(matches!(decode(Preset::XStore, b""), Some(Error::Invalid(_))));
        assert!(matches!(decode(Preset::FineStore, &[9]), Some(Error::InvalidArgument(_))));
    }
}
