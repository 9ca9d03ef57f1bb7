//! The queue, the sink and the limits of the log.

use std::sync::{Condvar, Mutex as StdMutex};

use super::*;

/// A sink that keeps what it is given.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Kept {
    fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.0.lock()).lines().map(str::to_owned).collect()
    }
}

/// A sink that takes nothing until it is opened.
#[derive(Clone, Default)]
struct Shut(Arc<(StdMutex<bool>, Condvar)>, Kept);

impl Shut {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

impl Write for Shut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_shut = |open: &mut bool| !*open;
        drop(self.0.1.wait_while(self.0.0.lock().unwrap(), is_shut).unwrap());
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A sink that refuses, as a full or closed one does.
struct Refusing;

impl Write for Refusing {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn start(sink: impl Write + Send + 'static) -> Log {
    Log::start(LogLevel::Info, LogFormat::Text, Box::new(sink)).unwrap()
}

#[test]
fn levels_choose_the_lines() {
    let kept = Kept::default();
    let log = start(kept.clone());
    log.write(Event::Start, "begins", &[]);
    log.write(Event::Connected, "a detail", &[]);
    log.write(Event::Damage, "bad", &[]);
    drop(log);
    let lines = kept.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].ends_with("INFO  start: begins"), "{lines:?}");
    assert!(lines[1].ends_with("ERROR damage: bad"), "{lines:?}");
}

#[test]
fn a_sink_that_takes_nothing_stops_nobody() {
    let shut = Shut::default();
    let log = start(shut.clone());
    // More than the queue and what the thread has in its hands.
    let written = QUEUE_LINES + 500;
    for n in 0..written {
        log.queue(Event::Start, &format!("line {n}"), &[]);
    }
    let dropped = log.dropped();
    assert!((499..=500).contains(&dropped), "{dropped}");
    shut.open();
    drop(log);
    let lines = shut.1.lines();
    let is_told = |line: &&String| line.contains("lines-dropped:") && line.contains("dropped=");
    assert_eq!(lines.iter().filter(is_told).count(), 1, "{lines:?}");
    assert_eq!(lines.len() as u64, written as u64 - dropped + 1);
}

#[test]
fn a_sink_that_refuses_is_counted() {
    let log = start(Refusing);
    for _ in 0..5 {
        log.write(Event::Start, "begins", &[]);
    }
    let counters = Arc::clone(&log.counters);
    drop(log);
    assert_eq!(counters.dropped.load(Ordering::Relaxed), 5);
}

#[test]
fn repeated_lines_are_few_and_the_others_are_counted() {
    let kept = Kept::default();
    let log = start(kept.clone());
    let now = Instant::now();
    let admitted = |at: Instant| (0..25).filter(|_| log.admit(Event::WriteFailed, at)).count();
    assert_eq!(admitted(now), LINES_MAX as usize);
    // Another event has its own.
    assert!(log.admit(Event::Damage, now));
    assert_eq!((log.suppressed(), log.dropped()), (15, 0));
    log.end_windows_at(now + WINDOW / 2);
    assert_eq!(admitted(now + WINDOW), LINES_MAX as usize);
    log.end_windows_at(now + 2 * WINDOW);
    // Nothing is left to be told.
    log.end_windows_at(now + 3 * WINDOW);
    drop(log);
    let lines = kept.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let is_told = |line: &String| line.contains("write-failed:") && line.contains("suppressed=15");
    assert!(lines.iter().all(is_told), "{lines:?}");
}
