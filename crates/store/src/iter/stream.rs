//! Iteration that does not block a thread.

use super::Ends;
use crate::{
    error::Result,
    plan::{drivers::load_async, point::Found},
    slice::Slice,
    table::Access,
};

/// The keys of a range with their values, from both ends, for callers that must not block a thread.
///
/// It depends on no executor, and may be used under any. Any item may be an error; after an error
/// it ends. A future of [`AsyncIter::next`] may be dropped: the next call goes on where it was, and
/// no item is lost; only the read of a large value starts again. Blocks are read ahead, more of
/// them the longer the iterator goes on.
///
/// ```
/// # async fn sum(users: &rhumb::Keyspace) -> rhumb::Result<usize> {
/// let mut bytes = 0;
/// let mut range = users.range_async("a".."m");
/// while let Some((_name, value)) = range.next().await.transpose()? {
///     bytes += value.len();
/// }
/// # Ok(bytes)
/// # }
/// ```
pub struct AsyncIter {
    ends: Ends,
    /// The item that an end stands on, while its value is being read.
    front: Option<(Slice, Found)>,
    back: Option<(Slice, Found)>,
}

impl AsyncIter {
    pub(crate) fn new(ends: Ends) -> Self {
        Self { ends, front: None, back: None }
    }

    /// Like [`Iter::hint_len`](crate::Iter::hint_len).
    pub fn hint_len(&mut self, entries: usize) {
        self.ends.expected = entries;
    }

    /// The next key with its value, ascending; `None` after the last.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if a block is damaged,
    /// [`Error::Io`](crate::Error::Io), [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub async fn next(&mut self) -> Option<Result<(Slice, Slice)>> {
        if self.ends.ended {
            return None;
        }
        let item = match self.ends.failure.take() {
            Some(error) => Err(error),
            None => self.step_front().await,
        };
        self.ends.record(item)
    }

    /// Like [`AsyncIter::next`], for a caller that only looks at the pair: nothing is copied or
    /// counted, except for values that are stored outside their block.
    ///
    /// # Errors
    ///
    /// As [`AsyncIter::next`].
    pub async fn next_with<T>(
        &mut self,
        look: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> Option<Result<T>> {
        if self.ends.ended {
            return None;
        }
        let item = match self.ends.failure.take() {
            Some(error) => Err(error),
            None => self.look_front(look).await,
        };
        self.ends.record(item)
    }

    /// The next key with its value from the other end, descending; `None` before the first.
    ///
    /// # Errors
    ///
    /// As [`AsyncIter::next`].
    pub async fn next_back(&mut self) -> Option<Result<(Slice, Slice)>> {
        if self.ends.ended {
            return None;
        }
        let item = match self.ends.failure.take() {
            Some(error) => Err(error),
            None => self.step_back().await,
        };
        self.ends.record(item)
    }

    /// The keys with their values as a stream, ascending. The stream holds its future, so pin it
    /// (`std::pin::pin!`) before you poll it.
    ///
    /// ```
    /// # async fn sum(users: &rhumb::Keyspace) -> rhumb::Result<usize> {
    /// use futures_util::TryStreamExt;
    ///
    /// users
    ///     .range_async("a".."m")
    ///     .into_stream()
    ///     .try_fold(0, async |n, pair| Ok(n + pair.1.len()))
    ///     .await
    /// # }
    /// ```
    #[cfg(feature = "futures")]
    pub fn into_stream(
        self,
    ) -> impl futures_util::Stream<Item = Result<(Slice, Slice)>> + Send + 'static {
        futures_util::stream::unfold(self, async |mut iter| {
            let item = iter.next().await?;
            Some((item, iter))
        })
    }

    async fn look_front<T>(&mut self, look: impl FnOnce(&[u8], &[u8]) -> T) -> Result<Option<T>> {
        if self.front.is_none() {
            let stands = self.ends.front(Access::Overlapped).drive_async().await?;
            if !self.ends.record_front(stands) {
                return Ok(None);
            }
            let Some(front) = self.ends.front.as_mut() else { return Ok(None) };
            if let Some(value) = front.value_bytes() {
                return Ok(Some(look(front.key(), value)));
            }
            // Kept in case the future is dropped while the value is being read.
            self.front = Some((Slice::copy_from(front.key()), front.value()));
        }
        let item = finish(&self.front).await;
        self.front = None;
        Ok(item?.map(|(key, value)| look(&key, &value)))
    }

    async fn step_front(&mut self) -> Result<Option<(Slice, Slice)>> {
        if self.front.is_none() {
            let stands = self.ends.front(Access::Overlapped).drive_async().await?;
            self.front = self.ends.take_front(stands);
        }
        let item = finish(&self.front).await;
        self.front = None;
        item
    }

    async fn step_back(&mut self) -> Result<Option<(Slice, Slice)>> {
        if self.back.is_none() {
            let stands = self.ends.back(Access::Overlapped).drive_async().await?;
            self.back = self.ends.take_back(stands);
        }
        let item = finish(&self.back).await;
        self.back = None;
        item
    }
}

/// Reads the value of an item that an end stands on.
async fn finish(item: &Option<(Slice, Found)>) -> Result<Option<(Slice, Slice)>> {
    let Some((key, found)) = item else { return Ok(None) };
    Ok(Some((key.clone(), load_async(found.clone()).await?.unwrap_or_default())))
}

impl std::fmt::Debug for AsyncIter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncIter").field("seq", &self.ends.moment.seq).finish_non_exhaustive()
    }
}
