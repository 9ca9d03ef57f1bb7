//! Questions of clients that keep models of a copy: of a keyspace of a store.
//!
//! 1. What a question changes goes through the store, and comes to the copy as every change does.
//! 2. The copy answers a search while it has no change that the store's readers do not see.
//!    Otherwise, and while it answers for nothing, the store is asked.
//! 3. Sessions and models are of the copy: while it answers for nothing there are none, and clients
//!    do without.

use std::ops::Bound;

use super::{
    Authority, Change, Scan,
    binned_store::{ANSWER_BYTES_MAX, handle},
    publisher::Publisher,
    question::Question,
    replica::AnyReplica,
};
use crate::{
    binned::{Address, Host, Operation, Outcome, Reply, Request, Value, Verb},
    error::{Error, Result},
    region::HostRegion,
    two_stage::{Answer, Lookup},
};

/// Bytes of keys and values that the store is asked for at once.
const SCAN_BYTES: usize = 256 << 10;

/// Times that an update is tried whose key changes between a look at it and the change.
const UPDATES_MAX: u32 = 64;

/// A copy, and the keyspace that it is of.
pub(super) struct Consultant<'c> {
    publisher: &'c Publisher,
    authority: &'c dyn Authority,
    name: &'c str,
}

impl<'c> Consultant<'c> {
    pub(super) fn new(
        publisher: &'c Publisher,
        authority: &'c dyn Authority,
        name: &'c str,
    ) -> Self {
        Self { publisher, authority, name }
    }

    /// Answers a client that keeps models. `joined` has the sessions that its connection has begun.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub(super) fn answer(&self, question: &Question<'_>, joined: &mut Vec<u64>) -> Result<Vec<u8>> {
        let mut answer = Vec::new();
        match question {
            Question::LookUp(lookup) => self.look_up(lookup)?.encode(&mut answer),
            Question::Arrays(request) => self.reply(request, joined)?.encode(&mut answer),
        }
        Ok(answer)
    }

    /// Answers a get that a client's models could not do.
    fn look_up(&self, lookup: &Lookup<'_>) -> Result<Answer> {
        let value = self.authority.get(self.name, lookup.key)?;
        let fresh = self.publisher.with_live(|replica, _| match replica {
            AnyReplica::TwoStage(table) => table.fresh_for(lookup),
            AnyReplica::Runs(_) | AnyReplica::Binned(_) => None,
        });
        // A stale sub-model that it met is to be trained.
        self.publisher.ring();
        Ok(Answer { value, fresh: fresh.flatten() })
    }

    /// Answers a client that keeps descriptors of arrays.
    fn reply(&self, request: &Request, joined: &mut Vec<u64>) -> Result<Reply> {
        match request {
            Request::Operate(operation) => self.operate(operation),
            other => {
                let handled = self.with_arrays(|host, _| handle(host, other, joined));
                handled.unwrap_or(Ok(Reply::Unknown))
            }
        }
    }

    /// Has `act` do something with the arrays, and whether they have changes that the store's
    /// readers do not see; returns none while they answer for nothing.
    fn with_arrays<T>(
        &self,
        act: impl FnOnce(&mut Host<std::sync::Arc<HostRegion>>, bool) -> T,
    ) -> Option<T> {
        let done = self.publisher.with_live(|replica, moment| match replica {
            AnyReplica::Binned(arrays) => Some(act(&mut arrays.host, moment.is_pending)),
            AnyReplica::Runs(_) | AnyReplica::TwoStage(_) => None,
        });
        done.flatten()
    }

    /// Does a pipeline operation.
    fn operate(&self, operation: &Operation) -> Result<Reply> {
        let is_read = matches!(operation.verb, Verb::Search | Verb::Range);
        if is_read {
            let found = self.with_arrays(|host, is_pending| {
                // planted: copy-bins-searched-amid-group
                let reply = (!is_pending).then(|| host.operate(operation));
                (reply, host.due_count() > 0)
            });
            if let Some((Some(reply), is_due)) = found {
                if is_due {
                    self.publisher.ring();
                }
                return reply;
            }
        }
        let outcome = match operation.verb {
            Verb::Search => {
                let value = self.authority.get(self.name, &operation.key)?;
                value.map_or(Outcome::Absent, |value| Outcome::Found(sent(value)))
            }
            Verb::Range => self.scan(operation)?,
            _ => Outcome::Written { was_there: self.write(operation)? },
        };
        let (address, key) = (operation.address, &operation.key[..]);
        let lesson = self.with_arrays(|host, _| host.lesson_for(address, key)).flatten();
        Ok(Reply::Done { outcome, lesson })
    }

    /// A range of the store; what lies in the gaps of an array alone, the copy would have to say.
    fn scan(&self, operation: &Operation) -> Result<Outcome> {
        if !matches!(operation.address.array, 0 | Address::UNTAUGHT) {
            return Ok(Outcome::Moved);
        }
        let scan = Scan {
            from: Bound::Included(&operation.key),
            to: operation.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            reverse: false,
            limit: operation.limit.max(1) as usize,
            bytes_max: SCAN_BYTES,
        };
        let (pairs, has_more) = self.authority.scan(self.name, &scan)?;
        let last = pairs.last().map(|(key, _)| [&key[..], &[0]].concat());
        let pairs = pairs.into_iter().map(|(key, value)| (key, sent(value))).collect();
        Ok(Outcome::Pairs { pairs, next: last.filter(|_| has_more) })
    }

    /// Makes a change in the store; returns true if the key was there, as far as a look at it
    /// shortly before says where the change does not depend on that.
    fn write(&self, operation: &Operation) -> Result<bool> {
        let (key, value) = (&operation.key[..], &operation.value[..]);
        let change = |value| Change { keyspace: self.name, key, value };
        match operation.verb {
            Verb::Insert => {
                let swapped = self.authority.compare_and_swap(&change(Some(value)), None)?;
                Ok(!swapped)
            }
            Verb::Update => {
                for _ in 0..UPDATES_MAX {
                    let now = self.authority.get(self.name, key)?;
                    if now.is_none() {
                        return Ok(false);
                    }
                    if self.authority.compare_and_swap(&change(Some(value)), now.as_deref())? {
                        return Ok(true);
                    }
                }
                Err(Error::failed("the key changes all the while, and was not updated"))
            }
            verb => {
                let known = self.with_arrays(|host, _| host.get(key).is_some());
                let was_there = match known {
                    Some(known) => known,
                    None => self.authority.get(self.name, key)?.is_some(),
                };
                let value = (verb != Verb::Remove).then_some(value);
                self.authority.commit(&[change(value)])?;
                Ok(was_there)
            }
        }
    }

    /// Ends the sessions that a connection has begun.
    pub(super) fn end(publisher: &Publisher, joined: &[u64]) {
        publisher.with_live(|replica, _| {
            if let AnyReplica::Binned(arrays) = replica {
                joined.iter().for_each(|session| arrays.host.leave(*session));
            }
        });
        publisher.ring();
    }
}

/// A value as an answer brings it: a long one takes another call.
fn sent(value: Vec<u8>) -> Value {
    if value.len() > ANSWER_BYTES_MAX { Value::Ask(value.len() as u32) } else { Value::Here(value) }
}
