//! Drivers: they fetch the blocks that plans ask for, many reads at a time, blocking the calling
//! thread or as a future.

use std::{collections::VecDeque, future::poll_fn, io, task::Poll};

use super::{
    BlockRequest, Plan, Progress,
    many::ManyReads,
    point::{Found, load},
};
use crate::{
    error::Result,
    io::{
        ReadRequest,
        buffers::ReadBuf,
        engine::{BORROWED_DEPTH, BorrowedQueue, Pending, ReadEngine, ReadPart},
        read_full,
    },
    slice::{BlockRef, Slice},
    table::VALUE_PART_BYTES,
};

/// The number of parts of a large value that are read at once.
const VALUE_PARTS_AHEAD: usize = 4;
/// The number of reads of one call that run at once.
const DEPTH: usize = BORROWED_DEPTH as usize;

/// Drives reads of many keys with a queue of the calling thread. `begin_some` begins reads until it
/// reports that there are no more. The blocks that the first reads need are read meanwhile, unless
/// later reads may need blocks beside them.
pub(crate) fn drive_many<'k>(
    engine: &ReadEngine,
    reads: &mut ManyReads<'k>,
    mut begin_some: impl FnMut(&mut ManyReads<'k>) -> Result<bool>,
) -> Result<()> {
    let (mut reader, mut has_more) = (None::<Together<'_, usize>>, true);
    loop {
        if has_more && reads.fetches_waiting() < DEPTH {
            has_more = begin_some(reads)?;
            if has_more && !reads.lie_apart() {
                continue;
            }
        }
        let pending = reader.as_ref().map_or(0, Together::pending);
        let mut next = if pending < DEPTH { reads.next_fetch() } else { None };
        if let (0, false, Some((number, part))) = (pending, has_more, &next)
            && reads.fetches_waiting() == 0
        {
            // One read needs no queue.
            let (result, pages) = read_here(engine, part);
            reads.arrive(*number, result, &pages)?;
            continue;
        }
        if next.is_some() {
            let reader = reader.get_or_insert_with(|| Together::new(engine));
            while let Some((number, part)) = next {
                reader.begin(part, number);
                next = if reader.pending() < DEPTH { reads.next_fetch() } else { None };
            }
        }
        match &mut reader {
            Some(reader) if has_more && reads.fetches_waiting() < DEPTH => reader.start(),
            Some(reader) if reader.pending() > 0 => {
                for (number, result, pages) in reader.wait() {
                    reads.arrive(number, result, &pages)?;
                }
            }
            _ if has_more => {}
            _ => return Ok(()),
        }
    }
}

/// Does several reads at once with a queue of the calling thread. Each result comes back with its
/// tag.
pub(crate) fn read_many<T>(
    engine: &ReadEngine,
    mut parts: impl Iterator<Item = (T, ReadPart)>,
) -> Vec<(T, io::Result<usize>, ReadBuf)> {
    let Some((first, part)) = parts.next() else { return Vec::new() };
    let Some((second, second_part)) = parts.next() else {
        let (result, bytes) = read_here(engine, &part);
        return vec![(first, result, bytes)];
    };
    let mut reader = Together::new(engine);
    reader.begin(part, first);
    reader.begin(second_part, second);
    parts.for_each(|(what, part)| reader.begin(part, what));
    let mut all = Vec::new();
    while reader.pending() > 0 {
        all.extend(reader.wait());
    }
    all
}

/// Reads of the calling thread, each with its tag.
struct Together<'a, T> {
    engine: &'a ReadEngine,
    borrowed: BorrowedQueue<'a>,
    flights: Vec<Option<(T, ReadBuf)>>,
    free: Vec<usize>,
}

impl<'a, T> Together<'a, T> {
    fn new(engine: &'a ReadEngine) -> Self {
        let borrowed = engine.borrow_queue();
        Self { engine, borrowed, flights: Vec::with_capacity(DEPTH), free: Vec::new() }
    }

    /// The number of reads that were begun and not handed back.
    fn pending(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Submits the reads that were begun, as far as there is room.
    fn start(&mut self) {
        self.borrowed.start();
    }

    fn begin(&mut self, part: ReadPart, what: T) {
        let ReadPart { file, offset, len } = part;
        let mut bytes = self.engine.lend_buffer(len);
        let buffer = bytes.take();
        let at = self.free.pop().unwrap_or(self.flights.len());
        if at == self.flights.len() {
            self.flights.push(None);
        }
        self.flights[at] = Some((what, bytes));
        self.borrowed.queue().push(ReadRequest { file, offset, buffer, token: at as u64 });
    }

    /// Waits until some reads have completed.
    fn wait(&mut self) -> impl Iterator<Item = (T, io::Result<usize>, ReadBuf)> {
        let Self { borrowed, flights, free, .. } = self;
        borrowed.wait().filter_map(|done| {
            let at = usize::try_from(done.token).expect("it was made from one");
            let (what, mut bytes) = flights[at].take()?;
            free.push(at);
            bytes.put(done.buffer);
            Some((what, done.result, bytes))
        })
    }
}

/// Reads in the calling thread.
fn read_here(engine: &ReadEngine, part: &ReadPart) -> (io::Result<usize>, ReadBuf) {
    let mut buffer = engine.lend_buffer(part.len);
    let result = read_full(&*part.file, &mut buffer, part.offset);
    (result, buffer)
}

/// Waits for a read without blocking a thread.
async fn ended(pending: Pending) -> (io::Result<usize>, ReadBuf) {
    poll_fn(|cx| pending.poll(cx)).await
}

/// Brings a block into memory without blocking a thread.
pub(crate) async fn fetch_block(request: &BlockRequest) -> Result<BlockRef> {
    let BlockRequest { table, block } = request;
    let address = table.address(*block)?;
    let (first, last) = table.span(address.first_page, address.last_page);
    let part = table.pages_part(first, last);
    let (result, pages) = ended(table.reads().start(part)).await;
    table.check_pages(first, &pages, result)?;
    table.keep_block(*block, address, first, &pages)
}

/// [`drive_from`](super::drive_from) without blocking a thread.
pub(crate) async fn drive_async<P: Plan>(
    plan: &mut P,
    mut request: BlockRequest,
) -> Result<P::Output> {
    loop {
        let block = fetch_block(&request).await?;
        match plan.resume(block)? {
            Progress::Done(output) => return Ok(output),
            Progress::Need(next) => request = next,
        }
    }
}

/// [`drive_many`] without blocking a thread.
pub(crate) async fn drive_many_async(engine: &ReadEngine, reads: &mut ManyReads<'_>) -> Result<()> {
    let mut numbers: Vec<usize> = Vec::new();
    let mut flying: Vec<Pending> = Vec::new();
    loop {
        let mut parts = Vec::new();
        while numbers.len() < DEPTH
            && let Some((number, part)) = reads.next_fetch()
        {
            numbers.push(number);
            parts.push(part);
        }
        engine.start_all(parts.into_iter(), &mut flying);
        if flying.is_empty() {
            return Ok(());
        }
        let arrived = poll_fn(|cx| {
            let mut arrived = Vec::new();
            let mut at = 0;
            while at < flying.len() {
                if let Poll::Ready((result, pages)) = flying[at].poll(cx) {
                    flying.swap_remove(at);
                    arrived.push((numbers.swap_remove(at), result, pages));
                } else {
                    at += 1;
                }
            }
            if arrived.is_empty() { Poll::Pending } else { Poll::Ready(arrived) }
        })
        .await;
        for (number, result, pages) in arrived {
            reads.arrive(number, result, &pages)?;
        }
    }
}

/// [`load`] without blocking a thread: several parts of a large value are read at a time.
pub(crate) async fn load_async(found: Found) -> Result<Option<Slice>> {
    let Found::Large(large) = found else { return load(found) };
    let mut value = large.table.begin_large(&large.pointer)?;
    let engine = large.table.reads();
    let (mut flying, mut begun) = (VecDeque::new(), 0);
    loop {
        while flying.len() < VALUE_PARTS_AHEAD
            && let Some(part) = value.part(begun)
        {
            begun += VALUE_PART_BYTES;
            flying.push_back(engine.start(part));
        }
        let Some(pending) = flying.pop_front() else {
            return large.table.counting_failure(value.finish()).map(Some);
        };
        let (result, bytes) = ended(pending).await;
        large.table.counting_failure(value.put(result, &bytes))?;
    }
}
