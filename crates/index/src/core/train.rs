//! The work of background threads: they replace leaves, so that writers need not. The first of them
//! looks after the leaves while no thread asks for anything (`tune`).

use rhumb_sync::{epoch, primitive::Ordering};

use super::{IndexCore, tune::Tour};
use crate::{
    op::Trigger,
    raw::{branch::Bound, schema::Schema},
    trainers::TrainerWork,
};

/// Runs a trainer until it is stopped.
pub(crate) fn run<S: Schema>(core: &IndexCore<S>, is_first: bool) {
    let Some(trainers) = &core.trainers else { return };
    let mut tour = is_first.then(Tour::default);
    loop {
        match trainers.next(tour.as_ref().map(Tour::patience)) {
            TrainerWork::Replace(lower, trigger) => replace(core, &lower, trigger),
            TrainerWork::Nothing => tour.iter_mut().for_each(|tour| core.go_on(tour)),
            TrainerWork::Stop => return,
        }
    }
}

fn replace<S: Schema>(core: &IndexCore<S>, lower: &Bound, trigger: Trigger) {
    let guard = epoch::pin();
    let place = core.place(lower.probe(), &guard);
    // Otherwise it was replaced meanwhile.
    if place.leaf.is_retraining().load(Ordering::Relaxed) {
        core.replace(&place, trigger, &guard);
    }
}
