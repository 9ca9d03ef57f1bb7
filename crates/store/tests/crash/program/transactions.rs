//! Transactions: what they read, which of them conflict, and what they leave.

use rhumb::{Error, TransactionOptions};

use super::{
    super::{
        coverage::{COVERAGE, Coverage},
        history::{Change, Transaction, expires},
        oracle::{Effect, Model, differences},
    },
    Program,
    writes::{effect_of, range},
};

impl Program {
    /// Does all of a transaction.
    pub(super) fn transact(&mut self, step: &Transaction) -> Result<Result<(), String>, Error> {
        // A transaction does not see a keyspace that is created after it has begun.
        for (keyspace, _) in &step.reads {
            self.keyspace(*keyspace)?;
        }
        for change in step.writes().chain(&step.undone) {
            self.keyspace(change.keyspace())?;
        }
        let mut options = TransactionOptions::default();
        if step.is_serializable {
            options = options.serializable();
        }
        let durability = step.durability.unwrap_or(self.settings.durability);
        let mut transaction = self.db().transaction_with(options).durability(durability);
        for (keyspace, key) in &step.reads {
            let found = transaction.get(&self.keyspace(*keyspace)?, key)?;
            let expected = self.oracle.get(*keyspace, key);
            if found.as_deref() != expected {
                let key = key.escape_ascii();
                return Ok(Err(format!("a transaction read {found:?} of {key}, not {expected:?}")));
            }
        }
        self.apply(&mut transaction, &step.first)?;
        let savepoint = transaction.savepoint();
        self.apply(&mut transaction, &step.undone)?;
        transaction.rollback_to(savepoint)?;
        self.apply(&mut transaction, &step.then)?;
        let effects: Vec<Effect> = step.writes().map(effect_of).collect();
        if let Err(broken) = self.look_within(&transaction, step, &effects)? {
            return Ok(Err(broken));
        }
        if let Some(other) = &step.other {
            self.write(other)?;
        }
        if !step.commits {
            return Ok(Ok(()));
        }
        match (transaction.commit(), step.conflicts()) {
            (Err(Error::Conflict { .. }), true) => {
                Coverage::add(&COVERAGE.conflicts, 1);
                return Ok(Ok(()));
            }
            (Err(conflict @ Error::Conflict { .. }), false) => {
                return Ok(Err(format!("without a cause: {conflict}")));
            }
            (Ok(()), true) => return Ok(Err("an update is lost".to_owned())),
            (result, _) => self.finish_write(result, effects, durability)?,
        }
        Coverage::add(&COVERAGE.transactions, 1);
        Ok(Ok(()))
    }

    /// Makes changes pending.
    fn apply(
        &mut self,
        transaction: &mut rhumb::Transaction,
        changes: &[Change],
    ) -> Result<(), Error> {
        for change in changes {
            let keyspace = self.keyspace(change.keyspace())?;
            match change {
                Change::Put { key, value, .. } => match expires(value) {
                    None => transaction.insert(&keyspace, key, &value[..])?,
                    Some(time) => transaction.insert_until(&keyspace, key, &value[..], time)?,
                },
                Change::Remove { key, .. } => transaction.remove(&keyspace, key)?,
                Change::RemoveRange { from, to, .. } => {
                    transaction.remove_range(&keyspace, range(from, to))?;
                }
            }
        }
        Ok(())
    }

    /// Compares what a transaction shows of a keyspace that it has written to.
    fn look_within(
        &mut self,
        transaction: &rhumb::Transaction,
        step: &Transaction,
        effects: &[Effect],
    ) -> Result<Result<(), String>, Error> {
        let keyspace = step.first[0].keyspace();
        let (mut all, mut expected, mut found) =
            (self.oracle.now(), Model::default(), Model::default());
        effects.iter().for_each(|effect| effect.apply(&mut all));
        expected[keyspace] = std::mem::take(&mut all[keyspace]);
        let open = self.keyspace(keyspace)?;
        for entry in transaction.iter(&open)? {
            let (key, value) = entry?;
            found[keyspace].insert(key.to_vec(), value.to_vec());
        }
        if found == expected {
            return Ok(Ok(()));
        }
        let differences = differences(&expected, &found);
        Ok(Err(format!("a transaction shows another state:\n{differences}")))
    }
}
