//! What the engine reports to a subscriber of `tracing` agrees with its statistics; and so does the
//! histogram of reads.

use std::{
    collections::HashMap,
    fmt::{self, Write},
    sync::{Arc, Mutex},
};

use rhumb::{
    Database, DatabaseBuilder, Keyspace, KeyspaceOptions, PersistMode, Stats,
    io::sim::{CallKind, Fault, Matcher, SimFs},
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// One event: the spans that it was reported in, and its fields.
#[derive(Clone, Debug, Default)]
struct Reported {
    level: Option<Level>,
    spans: Vec<&'static str>,
    numbers: HashMap<&'static str, u64>,
    texts: HashMap<&'static str, String>,
}

impl Visit for Reported {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.numbers.insert(field.name(), value);
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.texts.insert(field.name(), value.to_owned());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        write!(text, "{value:?}").unwrap();
        self.texts.insert(field.name(), text);
    }
}

/// Collects what the engine reports.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    names: Vec<&'static str>,
    entered: Vec<&'static str>,
    events: Vec<Reported>,
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rhumb"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut collected = self.0.lock().unwrap();
        collected.names.push(span.metadata().name());
        Id::from_u64(collected.names.len() as u64)
    }
    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut collected = self.0.lock().unwrap();
        let mut reported = Reported {
            level: Some(*event.metadata().level()),
            spans: collected.entered.clone(),
            ..Reported::default()
        };
        event.record(&mut reported);
        collected.events.push(reported);
    }
    fn enter(&self, span: &Id) {
        let mut collected = self.0.lock().unwrap();
        let name = collected.names[span.into_u64() as usize - 1];
        collected.entered.push(name);
    }
    fn exit(&self, _span: &Id) {
        self.0.lock().unwrap().entered.pop();
    }
}

impl Collector {
    /// The events with this message.
    fn of(&self, message: &str) -> Vec<Reported> {
        let events = &self.0.lock().unwrap().events;
        events.iter().filter(|event| event.texts["message"] == message).cloned().collect()
    }

    /// The number of events with this message, and the sum of a field of theirs.
    fn sum(&self, message: &str, field: &str) -> (u64, u64) {
        let events = self.of(message);
        (events.len() as u64, events.iter().map(|event| event.numbers[field]).sum())
    }
}

/// All work is done in the calling thread, whose subscriber hears of it.
fn builder(fs: &SimFs) -> DatabaseBuilder {
    Database::builder("/db")
        .file_system(Arc::new(fs.clone()))
        .background_threads(0)
        .memtable_bytes(64 << 10)
        .durability(PersistMode::SyncData)
}

fn filled(db: &Database) -> Keyspace {
    let keyspace = db.keyspace("films", KeyspaceOptions::default()).unwrap();
    for i in 0..6_000_u32 {
        let key = i.wrapping_mul(0x9E37_79B1).to_be_bytes();
        keyspace.insert(key, [i as u8; 100]).unwrap();
    }
    keyspace
}

#[test]
fn events_agree_with_the_statistics() {
    let (fs, collector) = (SimFs::new(1), Collector::default());
    let stats: Stats = tracing::subscriber::with_default(collector.clone(), || {
        let db = builder(&fs).durability(PersistMode::Buffer).open().unwrap();
        let _keyspace = filled(&db);
        db.persist(PersistMode::SyncAll).unwrap();
        db.checkpoint("/checkpoint").unwrap();
        let info = db.backup("/backup").unwrap();
        let backup = &collector.of("backed up")[0];
        assert_eq!(backup.numbers["number"], info.number);
        assert_eq!(backup.numbers["copied_bytes"], info.copied_bytes);
        assert_eq!(backup.spans, ["backup"]);
        db.stats()
    });
    assert!(stats.flushes > 3 && stats.compactions > 0, "too little has happened: {stats:?}");
    assert_eq!(collector.sum("flushed", "bytes_out"), (stats.flushes, stats.flushed_bytes));
    let flushed = collector.of("flushed");
    assert!(flushed.iter().all(|it| it.numbers["bytes_in"] > 0 && it.numbers["tables"] == 1));
    assert!(flushed.iter().all(|it| it.spans.last() == Some(&"flush")));
    let (merges, read) = collector.sum("compacted", "bytes_in");
    assert!(merges >= stats.compactions);
    assert_eq!(read, stats.compacted_read_bytes);
    assert_eq!(collector.sum("compacted", "bytes_out"), (merges, stats.compacted_written_bytes));
    for merge in collector.of("compacted") {
        assert_eq!(merge.texts["keyspace"], "films");
        assert_eq!(merge.spans.last(), Some(&"compaction"));
        assert!(merge.numbers["tables_in"] > 0 && merge.numbers["level"] < 7);
    }
    let syncs = (collector.of("synced").len() + collector.of("slow sync").len()) as u64;
    assert_eq!(syncs, stats.log_syncs);
    let waited = (collector.of("write stalled"), collector.of("writes delayed"));
    let waited_us: u64 =
        waited.0.iter().chain(&waited.1).map(|event| event.numbers["duration_us"]).sum();
    assert!(waited_us <= (stats.stall_ns_total + stats.delay_ns_total) / 1_000);
    assert_eq!(waited.0.is_empty(), stats.stall_ns_total == 0);
    assert_eq!(collector.of("checkpointed").len(), 1);
    let recovered = collector.of("recovered");
    assert_eq!(recovered.len(), 1);
    assert_eq!((recovered[0].numbers["records"], recovered[0].numbers["keyspaces"]), (0, 0));
}

#[test]
fn recovery_and_failures_are_reported() {
    let (fs, collector) = (SimFs::new(2), Collector::default());
    let db = builder(&fs).open().unwrap();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    (0..10_u8).for_each(|i| keyspace.insert([i], "v").unwrap());
    let killed = fs.copy().kill();
    tracing::subscriber::with_default(collector.clone(), || {
        let db = builder(&killed).open().unwrap();
        let recovered = collector.of("recovered").pop().unwrap();
        assert_eq!(recovered.numbers["records"], db.stats().replayed_records);
        assert_eq!((recovered.numbers["records"], recovered.numbers["keyspaces"]), (10, 1));
        assert_eq!(recovered.spans, ["recovery"]);

        // A flush that fails.
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        let tables = Matcher::any().kinds(&[CallKind::Create]).name_suffix(".sst");
        killed.inject(tables, Fault::NoSpace, 2);
        for i in 0..1_500_u32 {
            let _ = keyspace.insert(i.to_be_bytes(), [0; 100]);
        }
        killed.clear_faults();
        let failed = collector.of("background work failed");
        assert_eq!(failed.len() as u64, db.stats().failed_jobs);
        assert!(!failed.is_empty() && failed[0].level == Some(Level::ERROR));

        // A sync that fails stops all writes: that is reported once.
        killed.inject(Matcher::any().kinds(&[CallKind::SyncData]), Fault::Eio, 1);
        assert!(keyspace.insert("no", "").is_err() && keyspace.insert("no", "").is_err());
        let stopped = collector.of("writes stopped");
        assert_eq!(stopped.len(), 1);
        assert!(stopped[0].texts["cause"].contains(".log"), "{stopped:?}");
    });
}

#[test]
fn reads_are_timed_as_often_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    for (one_in, expected) in [(0, 0), (1, 1_000), (8, 125), (1_000, 1)] {
        let db = Database::builder(dir.path()).timed_reads(one_in).open().unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        // A thread counts its reads by itself.
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1_000_u32).for_each(|_| drop(keyspace.get("key").unwrap())));
            }
        });
        let latency = db.stats().read_latency;
        assert_eq!((latency.one_in(), latency.count()), (one_in, 2 * expected));
        let buckets: u64 = latency.buckets().map(|(_, count)| count).sum();
        assert_eq!(buckets, latency.count());
        let (half, most) = (latency.quantile_ns(0.5), latency.quantile_ns(1.0));
        assert!(half <= most && (one_in == 0) == (most == 0), "{half} {most}");
    }
}
