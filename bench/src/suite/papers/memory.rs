//! What clients keep, and what it spares them.

use anyhow::Result;
use rhumb_remote::{CacheBudget, Preset, ShareOptions};

use super::{
    Figure,
    field::{Field, Kept, Player},
    results::Results,
};
use crate::suite::remote::{
    options::{
        Data,
        Distribution::{Uniform, Zipf},
    },
    rhumb::OneSided,
    workload::Workload,
};

/// Reads of a get by what a client keeps.
pub(super) const FIGURE_15: Figure = Figure {
    name: "xstore-15",
    claim: "100 M keys: a table of 98 MB, models of 6.8 MB, inner nodes of 654 MB; with models alone \
            a get takes one read more, with the top alone two",
    run: figure_15,
};

/// Bytes for few leaves a get.
pub(super) const FIGURE_15D: Figure = Figure {
    name: "xstore-15d",
    claim: "keys that lines fit badly want 40 times the models (--data hard: OSM, 20 M models for \
            100 M keys)",
    run: figure_15d,
};

/// Values in leaves and elsewhere.
pub(super) const FIGURE_16A: Figure = Figure {
    name: "xstore-16a",
    claim: "values that are not in the leaf take one read more: 8 to 43 % fewer gets",
    run: figure_16a,
};

/// Writes that say where their key is expected.
pub(super) const FIGURE_HINTS: Figure = Figure {
    name: "xstore-hints",
    claim: "an update whose client says where the key is spares the server the walk (5.1)",
    run: figure_hints,
};

/// Keys a model at which models are expanded: the paper's 200, and fewer.
const KEYS_PER_MODEL: [u32; 4] = [200, 50, 12, 3];

/// Gets of which each is counted by itself.
const COUNTED_GETS: usize = 10_000;

fn figure_15(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    for preset in [Preset::XStore, Preset::Rhumb] {
        let options = ShareOptions::default().preset(preset);
        let host =
            field.host(&data, options, |host| host.listen_tcp(([127, 0, 0, 1], 0).into()))?;
        let mut player = Player::new(&data, field.options);
        for distribution in [Uniform, Zipf] {
            let mut full_bytes = 0.0;
            let budgets = ["full", "half", "eighth", "models", "top"];
            for name in budgets.into_iter().filter(|n| preset == Preset::XStore || *n != "models") {
                let budget = match name {
                    "full" => CacheBudget::Full,
                    "half" => CacheBudget::Bytes((full_bytes / 2.0) as u64),
                    "eighth" => CacheBudget::Bytes((full_bytes / 8.0) as u64),
                    "models" => CacheBudget::Models,
                    _ => CacheBudget::Top,
                };
                // Clients that map the region of runs keep nothing: they read the directory there.
                let (subject, builder) = match preset {
                    Preset::XStore => ("xstore", host.builder()),
                    _ => ("rhumb-tcp", host.tcp_builder()?),
                };
                let mut session = host.session(builder.cache(budget))?;
                let case = format!("{subject} {name} {}", distribution.name());
                field.task(&case);
                let mix = (Workload::C, distribution);
                player.warm_up(field, &mut session)?;
                let counts = player.measure(field, &mut session, mix, data.records)?;
                if name == "full" {
                    let found = counts.iter().find(|(name, _)| *name == "cache_bytes_per_key");
                    full_bytes = found.map_or(0.0, |(_, bytes)| bytes * data.records as f64);
                }
                results.add(case, data.records, counts);
            }
        }
    }
    Ok(())
}

fn figure_15d(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    for keys_per_model in KEYS_PER_MODEL {
        let options = ShareOptions::default().preset(Preset::XStore).keys_per_model(keys_per_model);
        let host = field.host(&data, options, |host| host)?;
        leaves(field, results, &host, (&data, &format!("xstore, {keys_per_model} keys a model")))?;
    }
    let host = field
        .host(&data, ShareOptions::default(), |host| host.listen_tcp(([127, 0, 0, 1], 0).into()))?;
    let mut session = host.session(host.tcp_builder()?)?;
    let mut player = Player::new(&data, field.options);
    player.warm_up(field, &mut session)?;
    let counts = player.measure(field, &mut session, (Workload::C, Uniform), data.records)?;
    let of = |name: &str| counts.iter().find(|c| c.0 == name).map_or(0.0, |c| c.1);
    // A read is of the leaf that was predicted, or a call.
    let line = vec![
        ("leaves_per_get", 1.0),
        ("one_leaf_percent", 100.0 * (1.0 - of("calls_per_op"))),
        ("calls_per_1000", 1e3 * of("calls_per_op")),
        ("cache_bytes_per_key", of("cache_bytes_per_key")),
    ];
    results.add("rhumb-tcp", data.records, line);
    Ok(())
}

/// How many leaves gets of a keyspace with models read, each by itself.
pub(super) fn leaves(
    field: &mut Field<'_>,
    results: &mut Results,
    host: &Kept,
    (data, case): (&Data, &str),
) -> Result<()> {
    field.task(case);
    let keyspace = host.keyspace(host.builder())?;
    let mut player = Player::new(data, field.options);
    let mut histogram = [0_u32; 5];
    let before = keyspace.counts();
    let mut last = before.leaves;
    for _ in 0..COUNTED_GETS {
        player.check_get(field, &keyspace, data)?;
        let sum = keyspace.counts().leaves;
        let leaves = sum - std::mem::replace(&mut last, sum);
        histogram[(leaves as usize).min(histogram.len() - 1)] += 1;
    }
    let (counts, models) = (keyspace.counts(), host.models());
    let gets = COUNTED_GETS as f64;
    let percent = |count: u32| 100.0 * f64::from(count) / gets;
    let errors = models.trained_errors as f64 / models.trained_keys.max(1) as f64;
    let line = vec![
        ("leaves_per_get", (counts.leaves - before.leaves) as f64 / gets),
        ("one_leaf_percent", percent(histogram[1])),
        ("two_percent", percent(histogram[2])),
        ("three_percent", percent(histogram[3])),
        ("more_percent", percent(histogram[4])),
        ("calls_per_1000", 1e3 * (counts.calls - before.calls) as f64 / gets),
        ("cache_bytes_per_key", counts.cache_bytes as f64 / data.records as f64),
        ("error_places", errors),
    ];
    results.add(case, data.records, line);
    Ok(())
}

fn figure_16a(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    for (name, inline) in [("inline", data.values.size()), ("indirect", 0)] {
        let options = ShareOptions::default().preset(Preset::XStore).inline_bytes(inline);
        let host = field.host(&data, options, |host| host)?;
        let mut session = host.session(host.builder())?;
        let mut player = Player::new(&data, field.options);
        player.warm_up(field, &mut session)?;
        let counts = player.measure(field, &mut session, (Workload::C, Uniform), data.records)?;
        results.add(name, data.records, counts);
    }
    Ok(())
}

fn figure_hints(field: &mut Field<'_>, results: &mut Results) -> Result<()> {
    let data = field.options.data()?;
    let host = field.host(&data, ShareOptions::default().preset(Preset::XStore), |host| host)?;
    let mut player = Player::new(&data, field.options);
    for (name, hints) in [("with hints", true), ("without", false)] {
        let keyspace = host.keyspace(host.builder())?;
        let keyspace = if hints { keyspace } else { keyspace.without_hints() };
        let mut session = OneSided::new(keyspace);
        player.warm_up(field, &mut session)?;
        let before = host.models();
        let mix = (Workload::A, Uniform);
        let mut counts = player.measure(field, &mut session, mix, data.records)?;
        let after = host.models();
        let right = (after.hints_right - before.hints_right) as f64;
        let wrong = (after.hints_wrong - before.hints_wrong) as f64;
        counts.push(("hints_right", right));
        counts.push(("hints_wrong", wrong));
        results.add(name, data.records, counts);
    }
    Ok(())
}
