//! What is done for the region of a publisher beside its writers: runs are built anew, models and
//! arrays are trained.
//!
//! A group of changes that the store's readers do not see yet stays latched whatever is done here:
//! nothing is published before its time.

use super::{
    binned_store::TRAININGS_MAX,
    care::care_for,
    publisher::{Moment, Publisher},
    replica::{AnyReplica, Arrays, Replica},
    share::Preset,
};
use crate::clock;

impl Publisher {
    /// Does what the replica wants, while writers go on. What is being loaded wants nothing.
    pub(super) fn care(&self) {
        let Some(_built) = self.keep_built() else { return };
        match self.preset() {
            Preset::Rhumb => care_for(self.region(), &|act| {
                let with = |replica: &mut AnyReplica, moment: Moment| match replica {
                    AnyReplica::Runs(table) => act(table, moment.seq),
                    AnyReplica::TwoStage(_) | AnyReplica::Binned(_) => {}
                };
                self.with_live(with).is_some()
            }),
            Preset::XStore => while self.train_model() {},
            Preset::FineStore => self.train_arrays(),
        }
    }

    /// Trains a sub-model that is stale; returns false if there is none, or no memory for it.
    fn train_model(&self) -> bool {
        let task = self.with_live(|replica, _| match replica {
            AnyReplica::TwoStage(table) => table.next_task().ok().flatten(),
            AnyReplica::Runs(_) | AnyReplica::Binned(_) => None,
        });
        let Some(task) = task.flatten() else { return false };
        let trained = task.train();
        let committed = self.with_live(|replica, _| match replica {
            AnyReplica::TwoStage(table) => table.commit(trained).is_ok(),
            AnyReplica::Runs(_) | AnyReplica::Binned(_) => false,
        });
        committed == Some(true)
    }

    /// Trains arrays that are due, and frees what no session may know any more.
    fn train_arrays(&self) {
        for _ in 0..TRAININGS_MAX {
            let plan = self.with_arrays(|arrays| arrays.host.begin_training());
            let Some(plan) = plan.flatten() else { break };
            let trained = plan.train();
            let finished = self.with_arrays(|arrays| arrays.host.finish_training(trained).is_ok());
            if finished != Some(true) {
                // Without memory for that, searches in gaps stay calls.
                break;
            }
        }
        let wants_more = self.with_arrays(|arrays| {
            arrays.host.poll(clock::now_ms());
            arrays.wants_care()
        });
        if wants_more == Some(true) {
            self.ring();
        }
    }

    /// Has `act` do something with the arrays, and lets readers see it, together with the group of
    /// changes that is under way, if one is.
    fn with_arrays<T>(&self, act: impl FnOnce(&mut Arrays) -> T) -> Option<T> {
        let done = self.with_live(|replica, moment| {
            let AnyReplica::Binned(arrays) = replica else { return None };
            let done = act(arrays);
            // planted: training-shows-group-changes-before
            if !moment.is_pending {
                arrays.publish(moment.seq);
            }
            Some(done)
        });
        done.flatten()
    }
}
