//! YCSB's mixes, by the side that walks the index.

use anyhow::Result;
use rhumb_remote::{Preset, ShareOptions};

use super::{
    Figure,
    field::{Field, Player},
    results::Results,
};
use crate::suite::remote::{
    options::{
        Data,
        Distribution::{self, Latest, Uniform, Zipf},
    },
    subject::{Place, Session, Subject},
    walk::{WALK, WALK_CACHED, WALK_WHOLE},
    workload::Workload,
};

/// Where an index is walked.
pub(super) const FIGURE_2: Figure = Figure {
    name: "xstore-2",
    claim: "C and D, uniform: a call costs the server a walk; a walk by the client takes 8 reads, 4 \
            with four levels cached, 1 with all inner nodes, which inserts make stale",
    run: figure_2,
};

/// All mixes.
pub(super) const FIGURE_10: Figure = Figure {
    name: "xstore-10",
    claim: "gets that need no server leave it to writes: C 3.7 to 5.9 times the others, A 1.5 to \
            2.3, B 3.1 to 5.3, D 1.9 to 3.5, E 1.4 to 1.8 times",
    run: figure_10,
};

/// What finding a leaf costs a client.
pub(super) const FIGURE_12: Figure = Figure {
    name: "xstore-12",
    claim: "C: a client finds the leaf in 0.35 us by a model, in 2.14 us by a tree that it keeps; \
            without load one call takes less time than two reads",
    run: figure_12,
};

fn figure_2(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    by_hosts(field, results, &[(Workload::C, Uniform), (Workload::D, Uniform)])
}

fn figure_10(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let mixes = [
        (Workload::A, Uniform),
        (Workload::A, Zipf),
        (Workload::B, Uniform),
        (Workload::B, Zipf),
        (Workload::C, Uniform),
        (Workload::C, Zipf),
        (Workload::D, Uniform),
        (Workload::D, Latest),
        (Workload::E, Uniform),
        (Workload::E, Zipf),
        (Workload::F, Uniform),
        (Workload::F, Zipf),
    ];
    by_hosts(field, results, &mixes)
}

fn figure_12(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    by_hosts(field, results, &[(Workload::C, Uniform)])
}

/// Clients with the names of their subjects.
type Sessions = Vec<(&'static str, Box<dyn Session>)>;

/// A mix and the keys that are asked for.
type Mix = (Workload, Distribution);

/// Mixes by clients of one host after the other.
fn by_hosts(field: &mut Field<'_>, results: &mut Results, mixes: &[Mix]) -> Result<()> {
    let data = field.options.data()?;
    by_trees(field, results, &data, mixes)?;
    for preset in [Preset::Rhumb, Preset::XStore] {
        let host = field.host(&data, ShareOptions::default().preset(preset), |host| host)?;
        let session = Box::new(host.session(host.builder())?);
        let sessions: Sessions = match preset {
            Preset::XStore => vec![("xstore", session)],
            _ => vec![("call", Box::new(host.session_by_calls()?)), ("rhumb", session)],
        };
        take_turns(field, results, &data, (sessions, mixes))?;
    }
    Ok(())
}

/// Mixes by clients that walk a tree.
fn by_trees(
    field: &mut Field<'_>,
    results: &mut Results,
    data: &Data,
    mixes: &[Mix],
) -> Result<()> {
    field.task("loading a tree");
    let (options, directory) = (field.options.remote(), field.directory().to_owned());
    let place = Place { directory: &directory, options: &options, data, server: 0 };
    let _keeper = WALK.start(&place)?;
    let mut sessions: Sessions = Vec::new();
    for walk in [&WALK, &WALK_CACHED, &WALK_WHOLE] {
        sessions.push((walk.name(), walk.connect(&place)?));
    }
    take_turns(field, results, data, (sessions, mixes))
}

fn take_turns(
    field: &mut Field<'_>,
    results: &mut Results,
    data: &Data,
    (mut sessions, mixes): (Sessions, &[Mix]),
) -> Result<()> {
    let mut player = Player::new(data, field.options);
    for (_, session) in &mut sessions {
        player.warm_up(field, session.as_mut())?;
    }
    for mix in mixes {
        for (subject, session) in &mut sessions {
            let case = format!("{subject} {} {}", mix.0.name(), mix.1.name());
            field.task(&case);
            let counts = player.measure(field, session.as_mut(), *mix, data.records)?;
            results.add(case, data.records, counts);
        }
    }
    Ok(())
}
