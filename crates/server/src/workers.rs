//! Workers: the threads that serve connections, each with its own sockets and its own commit
//! groups.
//!
//! A connection stays with the worker that it was given to, so that no thread wakes another one and
//! all that its clients said between two looks at the sockets is at hand together. A command that
//! may take long leaves its worker's other connections to a thread that is made for it meanwhile.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    runtime::{Builder, Handle, Runtime},
};

use crate::worker_state::WorkerState;

/// A socket that can be handed to another thread's events.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + Sized + 'static {
    /// The socket without events.
    type Bare: Send + 'static;

    /// Takes it from the events of this thread.
    fn bare(self) -> io::Result<Self::Bare>;

    /// Gives it to the events of the thread that this is called on.
    fn of(bare: Self::Bare) -> io::Result<Self>;
}

impl Socket for TcpStream {
    type Bare = std::net::TcpStream;

    fn bare(self) -> io::Result<Self::Bare> {
        self.into_std()
    }

    fn of(bare: Self::Bare) -> io::Result<Self> {
        Self::from_std(bare)
    }
}

impl Socket for UnixStream {
    type Bare = std::os::unix::net::UnixStream;

    fn bare(self) -> io::Result<Self::Bare> {
        self.into_std()
    }

    fn of(bare: Self::Bare) -> io::Result<Self> {
        Self::from_std(bare)
    }
}

/// One worker, as the listeners see it.
struct Worker {
    handle: Handle,
    state: Arc<WorkerState>,
    connections: Arc<AtomicUsize>,
}

/// All workers. Dropping this ends their threads, and is to be done where waiting is allowed.
pub(crate) struct Workers {
    runtimes: Vec<Runtime>,
}

/// Gives connections to workers.
#[derive(Clone)]
pub(crate) struct Assign(Arc<[Worker]>);

impl Workers {
    /// Starts this number of workers. If none are asked for, one for each core but one, which is
    /// left to flushes, compactions and the system's work for the network: a worker that has to
    /// wait for a core keeps all its clients waiting.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores().saturating_sub(1).max(1) } else { threads };
        let start = |_| {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).thread_name("rhumb-serve").enable_all().build()
        };
        Ok(Self { runtimes: (0..threads).map(start).collect::<io::Result<_>>()? })
    }

    /// What connections are given through.
    pub(crate) fn assign(&self) -> Assign {
        let worker = |runtime: &Runtime| Worker {
            handle: runtime.handle().clone(),
            state: Arc::default(),
            connections: Arc::default(),
        };
        Assign(self.runtimes.iter().map(worker).collect())
    }
}

/// Counts a connection as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Assign {
    /// Has the worker that has the fewest connections serve this one.
    ///
    /// # Errors
    ///
    /// If the socket cannot be taken from this thread's events.
    pub(crate) fn serve<S: Socket, F: Future<Output = ()> + Send + 'static>(
        &self,
        socket: S,
        serve: impl FnOnce(io::Result<S>, Arc<WorkerState>) -> F + Send + 'static,
    ) -> io::Result<()> {
        let bare = socket.bare()?;
        let fewest = self.0.iter().min_by_key(|w| w.connections.load(Ordering::Relaxed));
        let Some(worker) = fewest else { return Err(io::Error::other("there are no workers")) };
        worker.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(&worker.connections));
        let state = Arc::clone(&worker.state);
        worker.handle.spawn(async move {
            let _counted = counted;
            serve(S::of(bare), state).await;
        });
        Ok(())
    }
}
