//! The harness on a store in memory: a sound one passes every suite, each faulty one fails.

use clap::{Args, FromArgMatches};

use super::{
    choose, engine,
    ycsb::{self, YcsbOptions},
};
use crate::{
    model::{Fault, ModelEngine},
    options::Options,
    subject::Engine,
    work::Workload,
};

fn options(more: &[&str]) -> Options {
    let usual = ["test", "--keys=3000", "--seconds=0.02"];
    let command = Options::augment_args(clap::Command::new("test"));
    let matches = command.get_matches_from(usual.iter().chain(more));
    Options::from_arg_matches(&matches).expect("valid options")
}

fn all_workloads() -> Vec<Workload> {
    Workload::ALL.to_vec()
}

#[test]
fn sound_stores_pass_and_every_line_is_reported() {
    let (ours, grouped) =
        (ModelEngine::new("rhumb", 1, None), ModelEngine::new("other", 100, None));
    let engines: [&dyn Engine; 2] = [&ours, &grouped];
    let options = options(&["--threads=1,2", "--repeat=2"]);
    let report = engine::run(&engines, &all_workloads(), &options).expect("sound");
    let text = report.json_lines();
    for workload in Workload::ALL {
        let line = format!("\"workload\":\"{}\"", workload.name());
        let lines = text.lines().filter(|l| l.contains(&line));
        // Two subjects and one ratio, each with one and with two threads.
        assert_eq!(lines.count(), 6, "{line} in {text}");
    }

    let letters = ycsb::choose_workloads(&[]).expect("all");
    let report = ycsb::run(&engines, &letters, &options, &YcsbOptions::default());
    let text = report.expect("sound").json_lines();
    assert_eq!(text.lines().count(), 1 + 6 * 2 * 2 + 6 * 2, "{text}");

    let directory = tempfile::tempdir().expect("a directory");
    let plot = directory.path().join("ycsb.svg");
    let own = YcsbOptions { cache_share: Some(0.1), plot: Some(plot.clone()) };
    let report = ycsb::run(&engines, &letters, &options, &own).expect("sound");
    assert!(report.json_lines().contains("\"cold\":"), "{}", report.json_lines());
    let drawn = std::fs::read_to_string(&plot).expect("drawn");
    assert!(drawn.contains("other") && drawn.matches("operations a second").count() == 6);
    let own = YcsbOptions { cache_share: Some(0.0), plot: None };
    assert!(ycsb::run(&engines, &letters, &options, &own).is_err());
}

#[cfg(feature = "rhumb")]
#[test]
fn models_are_measured_with_every_way_and_code() {
    let options = options(&["--repeat=1", "--encoding=decimal", "--data=sequential"]);
    let report = super::models::run(&options).expect("sound");
    for way in ["rhumb", "rhumb-coded", "rhumb-plain", "rhumb-binary"] {
        for workload in ["compact", "index", "index_memory", "get", "blocks_read"] {
            assert!(report.value(way, workload, 1).is_some(), "{way} {workload}");
        }
        let blocks = report.value(way, "blocks_read", 1).expect("measured");
        assert!(blocks <= 1.0, "{way} reads {blocks} blocks for a key");
    }
    for code in ["plain8", "by-position", "by-previous"] {
        assert_eq!(report.value(code, "distinct", 1), Some(100.0), "{code}");
    }
    assert_eq!(report.value("rhumb-coded", "coded_segments", 1), Some(100.0));
    assert_eq!(report.value("rhumb-plain", "codes", 1), Some(0.0));
}

#[test]
fn every_fault_is_caught() {
    for fault in Fault::ALL {
        let faulty = ModelEngine::new("faulty", 1, Some(fault));
        let engines: [&dyn Engine; 1] = [&faulty];
        let result = engine::run(&engines, &all_workloads(), &options(&["--repeat=1"]));
        assert!(result.is_err(), "{fault:?} passed the engine suite");
        if !matches!(fault, Fault::PhantomKey | Fault::MultiGetForgets) {
            let letters = ycsb::choose_workloads(&[]).expect("all");
            let options = options(&["--repeat=1"]);
            let result = ycsb::run(&engines, &letters, &options, &YcsbOptions::default());
            assert!(result.is_err(), "{fault:?} passed YCSB");
        }
    }
}

#[test]
fn each_read_workload_catches_what_it_alone_can() {
    for (fault, workload) in [
        (Fault::WrongValue, Workload::ReadRandom),
        (Fault::ChangedByte, Workload::ReadRandomCold),
        (Fault::PhantomKey, Workload::ReadMissing),
        (Fault::MultiGetForgets, Workload::MultiGet),
        (Fault::MultiGetForgets, Workload::MultiGetCold),
        (Fault::ScanEnds, Workload::Seek100),
        (Fault::ScanRepeats, Workload::Scan),
        (Fault::StaleValue, Workload::Mixed90),
    ] {
        let faulty = ModelEngine::new("faulty", 1, Some(fault));
        let error =
            engine::run(&[&faulty], &[workload], &options(&["--repeat=1"])).expect_err("faulty");
        let text = format!("{error:#}");
        assert!(text.starts_with("faulty: "), "{fault:?}: {text}");
    }
}

#[test]
fn subjects_and_workloads_are_chosen_by_name() {
    let model = ModelEngine::new("rhumb", 1, None);
    let engines: [&dyn Engine; 1] = [&model];
    assert_eq!(choose(&[], &engines).expect("all").len(), 1);
    assert!(choose(&["nonesuch".into()], &engines).is_err());
    assert!(choose(&["rhumb".into(), "rhumb".into()], &engines).is_err());
    let chosen = engine::choose_workloads(&["scan".into(), "fillseq".into()]).expect("known");
    assert_eq!(chosen, [Workload::FillSeq, Workload::Scan]);
    assert!(engine::choose_workloads(&["nonesuch".into()]).is_err());
    assert!(ycsb::choose_workloads(&["g".into()]).is_err());
    let usual = engine::choose_workloads(&[]).expect("usual");
    assert!(usual.len() == 11 && !usual.contains(&Workload::Mixed50));
}

#[cfg(all(
    feature = "rhumb",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]
#[test]
fn techniques_are_held_against_none_and_drawn() {
    let directory = tempfile::tempdir().expect("a directory");
    let plot = directory.path().join("ablation.svg");
    let report = super::ablation::run(&options(&["--repeat=1"]), Some(&plot)).expect("sound");
    let drawn = std::fs::read_to_string(&plot).expect("drawn");
    for name in ["none", "models", "coding", "adaptive", "partitions", "async", "tridentkv"] {
        for workload in ["fill", "settle", "index", "get_large_cache", "get_small_cache"] {
            assert!(report.value(name, workload, 1).is_some(), "{name} {workload}");
        }
        assert!(drawn.contains(name), "{name} is drawn");
    }
}

#[cfg(feature = "rhumb")]
#[test]
fn writers_are_followed_by_a_reader() {
    let report = super::training::run(&options(&["--repeat=1", "--threads=1,3"])).expect("sound");
    for name in ["rhumb", "rhumb-adaptive", "rhumb-untrained"] {
        for (workload, threads) in [("fillrandom", 3), ("read_after", 1), ("read_after", 3)] {
            assert!(report.value(name, workload, threads).is_some(), "{name} {workload}");
        }
    }
}

#[cfg(feature = "rhumb")]
#[test]
fn drops_are_held_against_what_was_before() {
    use super::{
        idle::{PARTITIONS, Process},
        readafterdelete::{choose, run},
    };

    let known: [&dyn crate::dropping::DropEngine; 1] = [&crate::dropping::RHUMB];
    assert!(choose(&["other".to_owned()], &known).is_err());
    let engines = choose(&[], &known).expect("all");
    let report = run(&engines, &options(&["--repeat=1"]), Process::This).expect("sound");
    for partitions in PARTITIONS {
        for workload in ["create", "flush", "written", "idle", "files", "scan10"] {
            let workload = format!("{workload}_{partitions}");
            assert!(report.value("rhumb", &workload, 1).is_some(), "{workload}");
        }
    }
    for workload in ["seek_dead", "scan_dead", "scan_live", "get_live", "space"] {
        for subject in ["rhumb", "before"] {
            assert!(report.value(subject, workload, 1).is_some(), "{subject} {workload}");
        }
        let lines = report.json_lines();
        let against = "\"against\":\"before\"";
        let is_its = |line: &str| line.contains(against) && line.contains(workload);
        assert!(lines.lines().any(is_its), "{workload} in {lines}");
    }
}
