//! Every figure over a few thousand keys, and what must hold whatever the machine.

use clap::{Args, FromArgMatches};

use super::{FIGURES, Figure, PRICES, PapersOptions, choose, measure, results::Results};

fn options(more: &[&str]) -> PapersOptions {
    let usual = ["test", "--keys=6000", "--seconds=0.01"];
    let command = PapersOptions::augment_args(clap::Command::new("test"));
    let matches = command.get_matches_from(usual.iter().chain(more));
    PapersOptions::from_arg_matches(&matches).expect("valid options")
}

/// The results of a figure, of which every answer was right.
struct Outcome {
    figure: &'static str,
    results: Results,
}

impl Outcome {
    fn of(figure: &'static str, more: &[&str]) -> Self {
        let known = FIGURES.iter().chain(PRICES);
        let figures: Vec<&Figure> = known.filter(|known| known.name == figure).collect();
        let (results, tally) = measure(&figures, &options(more)).expect("measured");
        assert!(tally.checked > 100 && tally.faults() == 0, "{tally:?}");
        Self { figure, results }
    }

    /// A number of the line of a case.
    fn count(&self, case: &str, name: &str) -> f64 {
        let lines = self.results.lines(self.figure);
        let line = lines.iter().find(|line| line.case == case);
        line.unwrap_or_else(|| panic!("{} has no {case}", self.figure)).count(name)
    }

    fn len(&self) -> usize {
        self.results.lines(self.figure).len()
    }
}

#[test]
fn what_sharing_costs_is_counted() {
    let writers = Outcome::of("writers", &["--value-size=100", "--repeat=2"]);
    for case in ["update alone", "update shared", "insert alone", "insert shared"] {
        assert!(writers.count(case, "writes_per_second") > 0.0);
        assert!(writers.count(case, "p99_9_ns") >= writers.count(case, "p50_ns"));
    }
    let region = Outcome::of("region", &["--value-size=100"]);
    assert_eq!(region.len(), 12);
    for case in ["loaded from an engine", "inserted in random order", "updated 10 times"] {
        assert_eq!(region.count(case, "entries"), region.count(case, "keys"));
        let live = region.count(case, "leaf_bytes_per_live_byte");
        assert!((1.0..2.6).contains(&live), "{case}: {live}");
    }
}

#[test]
fn reads_are_where_each_way_has_them() {
    for more in [&[][..], &["--data=random16", "--value-size=100"]] {
        let outcome = Outcome::of("xstore-2", more);
        // 5,000 keys: a tree has some 450 leaves, and inner nodes on three levels. With models a
        // get reads heads and a value.
        for (subject, trips, calls) in [
            ("walk", 4.0, 0.0),
            ("walk-cached", 1.0, 0.0),
            ("walk-whole", 1.0, 0.0),
            ("call", 1.0, 1.0),
            ("rhumb", 0.0, 0.0),
            ("xstore", 2.0, 0.0),
        ] {
            let of = |name: &str| outcome.count(&format!("{subject} c uniform"), name);
            assert_eq!((of("trips_per_op"), of("calls_per_op")), (trips, calls), "{subject}");
            assert!(outcome.count(&format!("{subject} d uniform"), "trips_per_op") > 0.0);
        }
    }
}

#[test]
fn all_mixes_are_measured() {
    let outcome = Outcome::of("xstore-10", &[]);
    assert_eq!(outcome.len(), 6 * 12);
    // Without a server at work for reads, and with one that walks for them.
    assert_eq!(outcome.count("rhumb a uniform", "calls_per_op"), 0.0);
    let reads = outcome.count("call a uniform", "calls_per_op");
    assert!((0.3..0.7).contains(&reads), "{reads}");
    assert_eq!(Outcome::of("xstore-12", &[]).len(), 6);
}

#[test]
fn what_is_not_kept_is_read() {
    let outcome = Outcome::of("xstore-15", &[]);
    for distribution in ["uniform", "zipf"] {
        for (budget, trips) in [("full", 2.0), ("models", 3.0), ("top", 4.0)] {
            let case = format!("xstore {budget} {distribution}");
            assert_eq!(outcome.count(&case, "trips_per_op"), trips, "{case}");
        }
        let bytes = |budget: &str| {
            outcome.count(&format!("xstore {budget} {distribution}"), "cache_bytes_per_key")
        };
        assert!(bytes("half") < bytes("full") && bytes("models") < bytes("full"));
        // Whatever is kept, the host looks into one leaf in one trip. A part of a directory of one
        // block is none.
        for budget in ["full", "top"] {
            let case = format!("rhumb-tcp {budget} {distribution}");
            let trips = outcome.count(&case, "trips_per_op");
            assert!((1.0..1.3).contains(&trips), "{case}: {trips}");
        }
    }
}

#[test]
fn fewer_keys_a_model_are_fewer_leaves_a_get() {
    let outcome = Outcome::of("xstore-15d", &[]);
    let of = |keys: u32, name: &str| outcome.count(&format!("xstore, {keys} keys a model"), name);
    assert!(of(12, "leaves_per_get") < of(200, "leaves_per_get"));
    assert!(of(12, "cache_bytes_per_key") > of(200, "cache_bytes_per_key"));
    assert_eq!(of(200, "calls_per_1000"), 0.0);
    assert!(outcome.count("rhumb-tcp", "one_leaf_percent") > 99.0);
}

#[test]
fn values_elsewhere_take_another_read() {
    for more in [&[][..], &["--value-size=100"]] {
        let outcome = Outcome::of("xstore-16a", more);
        let trips = |case: &str| outcome.count(case, "trips_per_op");
        assert_eq!((trips("inline"), trips("indirect")), (2.0, 3.0));
    }
}

#[test]
fn hints_are_given_or_not() {
    let outcome = Outcome::of("xstore-hints", &[]);
    let right = |case: &str| outcome.count(case, "hints_right");
    assert!(right("with hints") > outcome.count("with hints", "hints_wrong"));
    assert_eq!((right("without"), outcome.count("without", "hints_wrong")), (0.0, 0.0));
}

#[test]
fn models_follow_inserts() {
    let outcome = Outcome::of("xstore-10-error", &[]);
    assert_eq!(outcome.count("c", "calls_per_1000"), 0.0);
    assert!(outcome.count("d", "leaves_per_get") >= 1.0);
    let outcome = Outcome::of("xstore-11", &[]);
    assert_eq!(outcome.len(), 10);
    assert!(outcome.count("uniform 1", "inserts") > 0.0);
    let outcome = Outcome::of("xstore-14a", &[]);
    for case in ["1 trainers", "2 trainers"] {
        assert!(outcome.count(case, "inserts_per_s") > 0.0);
    }
    let outcome = Outcome::of("xstore-14b", &[]);
    assert_eq!(outcome.len(), 12);
    assert_eq!(outcome.count("rhumb, 0.5 %/s", "calls_per_1000"), 0.0);
    assert_eq!(Outcome::of("xstore-14c", &[]).len(), 8);
}

#[test]
fn each_kind_of_operation_costs_what_it_must() {
    let mix = Outcome::of("xstore-13a", &[]);
    // Every operation is a call, of which 41 of 100 are gets and 2 are scans.
    assert_eq!(mix.count("call nutanix uniform", "trips_per_op"), 1.0);
    let reads = mix.count("call nutanix uniform", "calls_per_op");
    assert!((0.3..0.55).contains(&reads), "{reads}");
    let writes = mix.count("rhumb nutanix uniform", "trips_per_op");
    assert!((0.45..0.7).contains(&writes), "{writes}");
    let ratios = Outcome::of("finestore-18", &[]);
    assert_eq!(ratios.len(), 3 * 5);
    assert_eq!(ratios.count("call updates100 uniform", "calls_per_op"), 0.0);
    assert_eq!(ratios.count("call updates100 uniform", "trips_per_op"), 1.0);
    let logged = Outcome::of("xstore-table-3", &[]);
    assert_eq!(logged.len(), 3 * 6);
    assert_eq!(logged.count("volatile a zipf", "throughput_of_volatile"), 1.0);
    assert_eq!(logged.count("log and sync c zipf", "trips_per_op"), 0.0);
}

#[test]
fn pipeline_operations_are_between_both_ends() {
    let outcome = Outcome::of("finestore-21", &[]);
    // What was trained is one trip to a window, or a call.
    for way in ["pipeline", "client"] {
        let calls = outcome.count(&format!("{way} c uniform"), "calls_per_op");
        assert!(calls < 0.2, "{way}: {calls}");
    }
    assert_eq!(outcome.count("server c uniform", "calls_per_op"), 1.0);
    assert_eq!(outcome.count("server insert uniform", "trips_per_op"), 1.0);
    assert_eq!(Outcome::of("finestore-17", &[]).len(), 3 * 6);
    assert_eq!(Outcome::of("finestore-19", &[]).len(), 3);
}

#[test]
fn training_and_memory_are_counted() {
    let training = Outcome::of("finestore-14", &[]);
    for name in ["xstore", "finestore"] {
        assert!(training.count(name, "keys_per_training") >= 1.0);
    }
    let memory = Outcome::of("finestore-15", &["--data=uniform"]);
    for name in ["rhumb uniform", "xstore uniform", "finestore uniform"] {
        assert!(memory.count(name, "region_bytes_per_key") > 16.0);
    }
    assert!(memory.count("finestore uniform", "cache_bytes_per_key") > 0.0);
    let beside = Outcome::of("finestore-20", &[]);
    assert_eq!(beside.count("barrier", "waits_per_1000_gets"), 0.0);
    assert_eq!(beside.count("read lock", "inserts"), 1_000.0);
}

#[test]
fn figures_are_chosen_by_name() {
    assert_eq!(choose(&[], FIGURES).expect("all").len(), FIGURES.len());
    let chosen = choose(&["xstore-2".to_owned()], FIGURES).expect("known");
    assert_eq!(chosen.iter().map(|figure| figure.name).collect::<Vec<_>>(), ["xstore-2"]);
    let error = choose(&["2".to_owned()], FIGURES).expect_err("unknown");
    assert!(error.to_string().contains("xstore-10"));
    let refused = options(&["--threads=2"]).validate().expect_err("refused").to_string();
    assert!(refused.contains("--threads"), "{refused}");
}
