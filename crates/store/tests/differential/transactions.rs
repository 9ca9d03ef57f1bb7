//! Transactions of a history.

use std::{collections::BTreeMap, ops::RangeBounds};

use rhumb::{Error, Slice, TransactionOptions};

use super::{Draw, Map, World, expires};

impl World {
    /// A transaction over several keyspaces that goes back to a savepoint at times. It is
    /// committed, or dropped, or another write comes between.
    pub(crate) fn transact(&mut self) {
        let names = [self.space(), self.space()];
        let mut options = TransactionOptions::default();
        if self.random.one_in(2) {
            options = options.serializable();
        }
        let mut transaction = self.db().transaction_with(options);
        let mut maps: BTreeMap<String, Map> =
            names.iter().map(|name| (name.clone(), self.spaces[name].1.clone())).collect();
        let (mut saved, mut written) = (None, None);
        for _ in 0..1 + self.random.below(20) {
            let name = names[self.random.index(2)].clone();
            let keyspace = self.spaces[&name].0.clone();
            let map = maps.get_mut(&name).expect("taken above");
            let key = self.random.key();
            match self.random.below(20) {
                0 => {
                    let bounds = self.bounds();
                    transaction.remove_range(&keyspace, bounds.clone()).expect("remove a range");
                    map.retain(|key, _| !bounds.contains(key));
                }
                1..=4 => {
                    transaction.remove(&keyspace, &key).expect("remove");
                    map.remove(&key);
                    written = Some((name, key));
                }
                5 => saved = Some((transaction.savepoint(), maps.clone(), written.clone())),
                6 => {
                    if let Some((savepoint, then, before)) = saved.clone() {
                        transaction.rollback_to(savepoint).expect("a savepoint of its own");
                        (maps, written) = (then, before);
                    }
                }
                _ => {
                    let value = self.random.value();
                    let end = expires(&value);
                    match end {
                        None => transaction.insert(&keyspace, &key, &value[..]).expect("insert"),
                        Some(time) => transaction
                            .insert_until(&keyspace, &key, &value[..], time)
                            .expect("insert_until"),
                    }
                    map.insert(key.clone(), value);
                    written = Some((name, key));
                }
            }
        }
        for (name, map) in &maps {
            let keyspace = &self.spaces[name].0;
            let copied = |pair: rhumb::Result<(Slice, Slice)>| {
                pair.map(|(key, value)| (key.to_vec(), value.to_vec())).expect("scan")
            };
            let iter = || transaction.iter(keyspace).expect("iter");
            assert!(iter().map(copied).eq(map.clone()), "{name}");
            assert!(iter().rev().map(copied).eq(map.clone().into_iter().rev()), "{name}");
        }
        match (self.random.below(3), written) {
            (0, _) => drop(transaction),
            (1, Some((name, key))) => {
                let (keyspace, map) = self.spaces.get_mut(&name).expect("made above");
                keyspace.insert(&key, b"between").expect("insert");
                map.insert(key, b"between".to_vec());
                let refused = transaction.commit();
                assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
            }
            _ => {
                transaction.commit().expect("nothing came between");
                for (name, map) in maps {
                    self.spaces.get_mut(&name).expect("made above").1 = map;
                }
            }
        }
    }
}
