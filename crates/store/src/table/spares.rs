//! Memory of evicted blocks, for the next ones.
//!
//! An allocator that keeps a heap for each thread cannot use what one thread's block left for
//! another thread's: a cache whose blocks come and go would grow to its size in every heap. So the
//! memory of evicted blocks is used again, whichever thread asks. In a full cache every new block
//! follows an eviction and spares are few; a compaction sets free all blocks of its inputs at once.

use crate::sync::{
    primitive::{AtomicU64, Mutex, Ordering},
    shared_bytes::{CAPACITY_STEP_BYTES, POOLED_BYTES_MAX, SharedBytes},
};

/// Memory of evicted blocks by size.
pub(crate) struct Spares {
    classes: Box<[Mutex<Vec<SharedBytes>>]>,
    bytes: AtomicU64,
}

impl Default for Spares {
    fn default() -> Self {
        let classes = (0..=POOLED_BYTES_MAX / CAPACITY_STEP_BYTES).map(|_| Mutex::default());
        Self { classes: classes.collect(), bytes: AtomicU64::new(0) }
    }
}

impl Spares {
    /// Takes the memory of a block that went, unless somebody still reads it or the spares would
    /// exceed `room`, in bytes.
    pub(crate) fn add(&self, bytes: SharedBytes, room: u64) {
        let capacity = bytes.capacity() as u64;
        let fits = self.bytes.load(Ordering::Relaxed) + capacity <= room;
        if let (true, Some(class)) = (fits && bytes.is_unique(), self.class(bytes.capacity())) {
            self.bytes.fetch_add(capacity, Ordering::Relaxed);
            class.lock().push(bytes);
        }
    }

    /// A copy of `contents`, in spare memory if there is any of its size. Frees spares of other
    /// sizes where they exceed `room`, in bytes.
    pub(crate) fn copy(&self, contents: &[u8], room: u64) -> SharedBytes {
        let class = self.class(SharedBytes::capacity_for(contents.len()));
        if let Some(mut spare) = class.and_then(|class| self.take(class))
            && spare.replace(contents)
        {
            return spare;
        }
        for class in &self.classes {
            while self.bytes.load(Ordering::Relaxed) > room && self.take(class).is_some() {}
        }
        SharedBytes::copy_from(contents)
    }

    fn take(&self, class: &Mutex<Vec<SharedBytes>>) -> Option<SharedBytes> {
        let spare = class.lock().pop()?;
        self.bytes.fetch_sub(spare.capacity() as u64, Ordering::Relaxed);
        Some(spare)
    }

    fn class(&self, capacity: usize) -> Option<&Mutex<Vec<SharedBytes>>> {
        self.classes.get(capacity / CAPACITY_STEP_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 1 << 20;

    #[test]
    fn memory_is_used_again_unless_it_is_shared_or_of_another_size() {
        let spares = Spares::default();
        let first = SharedBytes::copy_from(&[1; 4000]);
        let address = first.as_ptr();
        spares.add(first.clone(), ROOM);
        assert_ne!(spares.copy(&[2; 4000], ROOM).as_ptr(), address, "it is shared");
        spares.add(first, ROOM);
        assert_ne!(spares.copy(&[2; 5000], ROOM).as_ptr(), address, "it is too small");
        let second = spares.copy(&[2; 3900], ROOM);
        assert_eq!((second.as_ptr(), &*second), (address, &[2; 3900][..]));
        assert_ne!(spares.copy(&[3; 3900], ROOM).as_ptr(), address, "it is in use");
    }

    #[test]
    fn spares_keep_to_their_room_and_give_way_to_other_sizes() {
        let spares = Spares::default();
        let bytes = || spares.bytes.load(Ordering::Relaxed);
        (0..1000).for_each(|_| spares.add(SharedBytes::copy_from(&[1; 4000]), ROOM));
        assert!(bytes() <= ROOM && bytes() > ROOM / 2);
        spares.add(SharedBytes::copy_from(&[1; 2 << 20]), u64::MAX);
        assert!(bytes() <= ROOM, "what is too long is not kept");
        let _ = spares.copy(&[2; 9000], ROOM / 4);
        assert!(bytes() <= ROOM / 4 && bytes() > ROOM / 8);
        while bytes() > 0 {
            let _ = spares.copy(&[2; 4000], ROOM);
        }
        assert!(spares.classes.iter().all(|class| class.lock().is_empty()));
    }
}
