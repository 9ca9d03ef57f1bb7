//! The priority of a thread on the processor.

/// Makes the calling thread yield to others of the machine: `niceness` is from 0, as others, to 19.
/// Does nothing where threads of a process have one priority.
pub(crate) fn yield_to_others(niceness: i32) {
    // To Linux the process 0 is the calling thread, and a niceness may always be raised.
    #[cfg(target_os = "linux")]
    if niceness > 0 {
        let _ = rustix::process::setpriority_process(None, niceness);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_the_calling_thread_yields() {
        let before = rustix::process::getpriority_process(None).unwrap();
        let other = std::thread::spawn(|| {
            yield_to_others(19);
            rustix::process::getpriority_process(None).unwrap()
        });
        assert_eq!(other.join().unwrap(), 19);
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), before);
    }
}
