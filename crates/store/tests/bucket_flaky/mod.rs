//! A bucket in memory that does one of its calls wrongly.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use futures_util::{
    FutureExt, StreamExt, TryStreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart, memory::InMemory, path::Path,
};

/// What is done wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// The call fails, and nothing is done.
    Refuse,
    /// It is done, or half of it in a call that has several things to do, and the call fails.
    LoseReply,
    /// The call succeeds, and nothing is done; of a point, as `LoseReply`.
    Forget,
    /// What is put is cut short; otherwise as `LoseReply`.
    Cut,
    /// This call and all after it fail, as if the process had ended.
    Die,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] =
        [Self::Refuse, Self::LoseReply, Self::Forget, Self::Cut, Self::Die];
}

#[derive(Debug, Default)]
struct State {
    /// Calls until the fault; it has been if there are none.
    left: Option<(u64, Fault)>,
    is_dead: bool,
    was_met: bool,
    races: bool,
    puts: u64,
    parts: u64,
    parts_max: u64,
}

#[derive(Debug)]
pub(crate) struct Flaky {
    pub(crate) inner: Arc<InMemory>,
    state: Arc<Mutex<State>>,
}

fn failure() -> Error {
    Error::Generic { store: "flaky", source: "this call was to fail".into() }
}

fn next(state: &Mutex<State>) -> Option<Fault> {
    let mut state = state.lock().unwrap();
    if state.is_dead {
        return Some(Fault::Refuse);
    }
    let (left, fault) = state.left.as_mut()?;
    if *left > 0 {
        *left -= 1;
        return None;
    }
    let fault = *fault;
    state.left = None;
    state.was_met = true;
    state.is_dead = fault == Fault::Die;
    Some(fault)
}

impl Flaky {
    pub(crate) fn new() -> Self {
        Self { inner: Arc::default(), state: Arc::default() }
    }

    /// The call after `calls` others is done wrongly.
    pub(crate) fn fail_at(&self, calls: u64, fault: Fault) {
        self.state.lock().unwrap().left = Some((calls, fault));
    }

    /// From now on all is done rightly. Returns true if a call was not.
    pub(crate) fn repair(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        (state.left, state.is_dead) = (None, false);
        std::mem::take(&mut state.was_met)
    }

    /// Before the next point is added, another one is there.
    pub(crate) fn race(&self) {
        self.state.lock().unwrap().races = true;
    }

    /// Objects that were put.
    pub(crate) fn puts(&self) -> u64 {
        self.state.lock().unwrap().puts
    }

    /// The most parts of an object that were under way at a time.
    pub(crate) fn parts_max(&self) -> u64 {
        self.state.lock().unwrap().parts_max
    }

    /// The names of all objects.
    pub(crate) fn names(&self) -> Vec<String> {
        let all = self.inner.list(None).try_collect::<Vec<_>>().now_or_never();
        let all = all.expect("it is in memory").unwrap();
        all.into_iter().map(|object| object.location.to_string()).collect()
    }
}

impl fmt::Display for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("flaky")
    }
}

// As the macro of `async_trait` writes them.
impl ObjectStore for Flaky {
    fn put_opts<'s, 'l, 'f>(
        &'s self,
        location: &'l Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> BoxFuture<'f, Result<PutResult>>
    where
        's: 'f,
        'l: 'f,
        Self: 'f,
    {
        let mut fault = next(&self.state);
        let races = {
            let mut state = self.state.lock().unwrap();
            state.puts += 1;
            location.as_ref().ends_with(".point") && std::mem::take(&mut state.races)
        };
        if location.as_ref().ends_with(".point")
            && matches!(fault, Some(Fault::Forget | Fault::Cut))
        {
            fault = Some(Fault::LoseReply);
        }
        Box::pin(async move {
            if races {
                self.inner.put(location, "another".into()).await?;
            }
            match fault {
                None => self.inner.put_opts(location, payload, options).await,
                Some(Fault::Refuse | Fault::Die) => Err(failure()),
                Some(Fault::LoseReply) => {
                    self.inner.put_opts(location, payload, options).await?;
                    Err(failure())
                }
                Some(Fault::Forget) => {
                    let done = self.inner.put_opts(location, payload, options).await?;
                    self.inner.delete(location).await?;
                    Ok(done)
                }
                Some(Fault::Cut) => {
                    let bytes: Vec<u8> = payload.iter().flatten().copied().collect();
                    let half = bytes[..bytes.len() / 2].to_vec();
                    self.inner.put_opts(location, half.into(), options).await
                }
            }
        })
    }

    fn put_multipart_opts<'s, 'l, 'f>(
        &'s self,
        location: &'l Path,
        options: PutMultipartOptions,
    ) -> BoxFuture<'f, Result<Box<dyn MultipartUpload>>>
    where
        's: 'f,
        'l: 'f,
        Self: 'f,
    {
        let fault = next(&self.state);
        Box::pin(async move {
            let inner = self.inner.put_multipart_opts(location, options).await?;
            match fault {
                None => Ok(Box::new(Upload { inner, state: Arc::clone(&self.state) }) as _),
                Some(_) => Err(failure()),
            }
        })
    }

    fn get_opts<'s, 'l, 'f>(
        &'s self,
        location: &'l Path,
        options: GetOptions,
    ) -> BoxFuture<'f, Result<GetResult>>
    where
        's: 'f,
        'l: 'f,
        Self: 'f,
    {
        let fault = next(&self.state);
        Box::pin(async move {
            let mut found = self.inner.get_opts(location, options).await?;
            match fault {
                None => return Ok(found),
                Some(Fault::LoseReply) => {}
                Some(_) => return Err(failure()),
            }
            let payload = GetResultPayload::Stream(stream::empty().boxed());
            let all = std::mem::replace(&mut found.payload, payload);
            #[expect(
                irrefutable_let_patterns,
                reason = "there are files with a feature of the crate"
            )]
            let GetResultPayload::Stream(all) = all else { return Err(failure()) };
            let half = all.map_ok(|part| part.slice(..part.len() / 2));
            let end = stream::once(async { Err(failure()) });
            found.payload = GetResultPayload::Stream(half.chain(end).boxed());
            Ok(found)
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let end = stream::once(async { Err(failure()) });
        match next(&self.state) {
            None => self.inner.delete_stream(locations),
            Some(Fault::Refuse | Fault::Die) => end.boxed(),
            Some(Fault::LoseReply) => self.inner.delete_stream(locations).chain(end).boxed(),
            Some(Fault::Forget) => locations,
            Some(Fault::Cut) => {
                self.inner.delete_stream(locations.take(1).boxed()).chain(end).boxed()
            }
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_delimiter<'s, 'l, 'f>(
        &'s self,
        prefix: Option<&'l Path>,
    ) -> BoxFuture<'f, Result<ListResult>>
    where
        's: 'f,
        'l: 'f,
        Self: 'f,
    {
        let fault = next(&self.state);
        Box::pin(async move {
            match fault {
                None => self.inner.list_with_delimiter(prefix).await,
                Some(_) => Err(failure()),
            }
        })
    }

    fn copy_opts<'s, 'l, 'm, 'f>(
        &'s self,
        from: &'l Path,
        to: &'m Path,
        options: CopyOptions,
    ) -> BoxFuture<'f, Result<()>>
    where
        's: 'f,
        'l: 'f,
        'm: 'f,
        Self: 'f,
    {
        self.inner.copy_opts(from, to, options)
    }
}

/// An object that is put in parts.
#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    state: Arc<Mutex<State>>,
}

impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (fault, part) = (next(&self.state), self.inner.put_part(data));
        let state = Arc::clone(&self.state);
        {
            let mut state = state.lock().unwrap();
            state.parts += 1;
            state.parts_max = state.parts_max.max(state.parts);
        }
        Box::pin(async move {
            let done = part.await;
            state.lock().unwrap().parts -= 1;
            if fault.is_some() { Err(failure()) } else { done }
        })
    }

    fn complete<'s, 'f>(&'s mut self) -> BoxFuture<'f, Result<PutResult>>
    where
        's: 'f,
        Self: 'f,
    {
        let fault = next(&self.state);
        Box::pin(async move {
            match fault {
                None => self.inner.complete().await,
                Some(Fault::LoseReply) => {
                    self.inner.complete().await?;
                    Err(failure())
                }
                Some(_) => Err(failure()),
            }
        })
    }

    fn abort<'s, 'f>(&'s mut self) -> BoxFuture<'f, Result<()>>
    where
        's: 'f,
        Self: 'f,
    {
        self.state.lock().unwrap().parts = 0;
        self.inner.abort()
    }
}
