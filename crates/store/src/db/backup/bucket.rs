//! A backup in a bucket, of any store that the crate `object_store` reaches: each file is an object
//! under one prefix. Compiled with the feature `object-store`.
//!
//! An object is there whole or not at all, so that there are no temporary ones, and durable once
//! the store says so. A bucket has no lock that ends with its holder: one process at a time adds
//! and removes points.

use std::{
    collections::HashSet,
    fmt,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread,
};

use futures_util::{
    StreamExt, TryStreamExt,
    future::{self, Future},
    stream,
};
use object_store::{
    GetOptions, MultipartUpload, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    path::Path as Location,
};
use rhumb_sync::primitive::{Arc, Mutex};
use tokio::runtime::{self, Runtime};

use super::{
    POINT_ENDING,
    target::{Files, Give, Held, Take, Target},
};
use crate::error::{Error, Result};

/// Longer files are sent in parts of this many bytes. Stores want at least 5 MiB.
const PART_BYTES: u64 = 8 << 20;

/// The most parts that S3 lets an object have.
const PARTS_MAX: u64 = 10_000;

/// Parts that are under way at a time: four keep a line of 1 Gbit/s busy at round trips of 100 ms,
/// and take 32 MiB of memory.
const PARTS_AT_ONCE: usize = 4;

/// Part of a bucket.
pub(super) struct Bucket {
    store: Arc<dyn ObjectStore>,
    prefix: Location,
    /// The store and the prefix, for people.
    place: PathBuf,
    /// Held while this process adds or removes points.
    one: Mutex<()>,
    /// What drives the store's futures. There until it is dropped.
    runtime: Option<Runtime>,
}

impl Bucket {
    pub(super) fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self> {
        let prefix = Location::parse(prefix).map_err(|error| {
            Error::InvalidArgument(format!("{prefix:?} is no prefix in a bucket: {error}").into())
        })?;
        let place = PathBuf::from(format!("{store}/{prefix}"));
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = Some(runtime.map_err(|error| Error::io("prepare", &place, error))?);
        Ok(Self { store, prefix, place, one: Mutex::default(), runtime })
    }

    fn location(&self, name: &str) -> Location {
        self.prefix.clone().join(name)
    }

    /// Drives a future to its end, in a thread of its own: the caller may be a task of an executor,
    /// where no other one can be entered.
    fn drive<T: Send>(&self, future: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let Some(runtime) = &self.runtime else {
            return Err(Error::Closed("the bucket is being closed".into()));
        };
        thread::scope(|scope| {
            let builder = thread::Builder::new().name("rhumb-bucket".to_owned());
            let started = builder.spawn_scoped(scope, || runtime.block_on(future));
            let thread = started.map_err(|error| Error::io("speak to", &self.place, error))?;
            thread.join().unwrap_or_else(|_| {
                Err(Error::Internal("a thread that speaks to a bucket panicked".into()))
            })
        })
    }

    /// Adds an object at once.
    async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let (location, payload) = (self.location(name), PutPayload::from(bytes));
        let put = |mode| {
            let options = PutOptions { mode, ..PutOptions::default() };
            self.store.put_opts(&location, payload.clone(), options)
        };
        // Two that add a point at a time must not replace each other's.
        let is_new = name.ends_with(POINT_ENDING);
        // planted: backup-replaced
        let mut done = put(if is_new { PutMode::Create } else { PutMode::Overwrite }).await;
        let is_refused = |error: &object_store::Error| {
            use object_store::Error::{NotImplemented, NotSupported};
            matches!(error, NotImplemented { .. } | NotSupported { .. })
        };
        if is_new && done.as_ref().is_err_and(is_refused) {
            // The store cannot do that.
            done = put(PutMode::Overwrite).await;
        }
        match done {
            Err(object_store::Error::AlreadyExists { .. }) => {
                let holder = "another backup".to_owned();
                Err(Error::Locked { path: self.path(name), holder })
            }
            done => done.map(drop).map_err(|error| self.failure("put", name, error)),
        }
    }

    /// Adds an object in parts. None is there if this fails.
    async fn put_parts(&self, name: &str, len: u64, give: &mut Give<'_>) -> Result<()> {
        let options = PutMultipartOptions::default();
        let upload = self.store.put_multipart_opts(&self.location(name), options).await;
        let mut upload = upload.map_err(|error| self.failure("begin to put", name, error))?;
        let sent = match self.send_parts(&mut *upload, name, len, give).await {
            Ok(()) => upload.complete().await.map(drop),
            Err(error) => {
                // The store removes what it has of the parts, at once or as the bucket's owner
                // has it do.
                let _ = upload.abort().await;
                return Err(error);
            }
        };
        sent.map_err(|error| self.failure("put", name, error))
    }

    async fn send_parts(
        &self,
        upload: &mut dyn MultipartUpload,
        name: &str,
        mut left: u64,
        give: &mut Give<'_>,
    ) -> Result<()> {
        // Some stores want all parts but the last to have one length.
        let part = PART_BYTES.max(left.div_ceil(PARTS_MAX).next_multiple_of(1 << 20));
        while left > 0 {
            let mut parts = Vec::new();
            while left > 0 && parts.len() < PARTS_AT_ONCE {
                let mut bytes = vec![0; usize::try_from(part.min(left)).unwrap_or(usize::MAX)];
                give(&mut bytes)?;
                left -= bytes.len() as u64;
                parts.push(upload.put_part(bytes.into()));
            }
            // planted: backup-lost-part
            let sent = future::try_join_all(parts).await;
            sent.map_err(|error| self.failure("put a part of", name, error))?;
        }
        Ok(())
    }

    fn failure(&self, operation: &'static str, name: &str, error: object_store::Error) -> Error {
        use object_store::Error as Failure;
        let kind = match &error {
            Failure::NotFound { .. } => ErrorKind::NotFound,
            Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. } => {
                ErrorKind::PermissionDenied
            }
            _ => ErrorKind::Other,
        };
        Error::io(operation, self.path(name), io::Error::new(kind, error))
    }
}

impl Target for Bucket {
    fn place(&self) -> &Path {
        &self.place
    }

    fn lock(&self) -> Result<Box<dyn Held + '_>> {
        match self.one.try_lock() {
            Some(held) => Ok(Box::new(held)),
            None => {
                let holder = "another backup of this process".to_owned();
                Err(Error::Locked { path: self.place.clone(), holder })
            }
        }
    }

    fn files(&self) -> Result<Files> {
        self.drive(async {
            let prefix = (!self.prefix.as_ref().is_empty()).then_some(&self.prefix);
            let found = self.store.list_with_delimiter(prefix).await;
            let found = found.map_err(|error| self.failure("list", "", error))?;
            let named = found.objects.iter().filter_map(|object| {
                Some((object.location.filename()?.to_owned(), Some(object.size)))
            });
            Ok(named.collect())
        })
    }

    fn read(&self, name: &str, take: &mut Take<'_>) -> Result<()> {
        self.drive(async {
            let found = self.store.get_opts(&self.location(name), GetOptions::default()).await;
            let found = found.map_err(|error| self.failure("get", name, error))?;
            let mut parts = found.into_stream();
            while let Some(part) = parts.next().await {
                take(&part.map_err(|error| self.failure("get", name, error))?)?;
            }
            Ok(())
        })
    }

    fn add(&self, name: &str, len: u64, give: &mut Give<'_>) -> Result<()> {
        self.drive(async {
            if len > PART_BYTES && !name.ends_with(POINT_ENDING) {
                return self.put_parts(name, len, give).await;
            }
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
            give(&mut bytes)?;
            self.put(name, bytes).await
        })
    }

    fn remove(&self, names: &HashSet<String>) -> Result<()> {
        let all: Vec<_> = names.iter().map(|name| Ok(self.location(name))).collect();
        self.drive(async {
            let mut removed = self.store.delete_stream(stream::iter(all).boxed());
            loop {
                match removed.try_next().await {
                    Ok(None) => return Ok(()),
                    Ok(Some(_)) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(self.failure("delete in", "", error)),
                }
            }
        })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Its usual end waits, which a task of an executor may not.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("place", &self.place).finish_non_exhaustive()
    }
}
