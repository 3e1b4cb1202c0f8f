//! The channels that the protocol stands on, as models over the primitives of loom or shuttle: the same names, the same
//! promises, and no more. Included once for each, beside a module `tool`.
//!
//! Where the real ones promise little, so do these: a bounded crossbeam channel keeps what was sent to a receiver that
//! is gone until the last sender goes, too; a tokio channel is open as long as a place in it is reserved.
//!
//! Counts of handles are plain atomics: no schedule depends on them, and each one less is a thousand fewer to walk.

pub(crate) mod channel;
pub(crate) mod mpsc;
pub(crate) mod oneshot;
pub(crate) mod thread;

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, PoisonError};

use super::tool;

pub(crate) use tool::sync::Mutex;
pub(crate) use tool::sync::atomic::AtomicBool;

fn lock<T>(mutex: &Mutex<T>) -> tool::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A channel that its last sender closes.
pub(crate) trait Close {
    fn close(&self);
}

/// One of a channel's senders.
pub(crate) struct Counted<C: Close> {
    channel: Arc<C>,
    senders: Arc<AtomicUsize>,
}

impl<C: Close> Counted<C> {
    fn first(channel: &Arc<C>) -> Self {
        Self { channel: Arc::clone(channel), senders: Arc::new(AtomicUsize::new(1)) }
    }
}

impl<C: Close> Clone for Counted<C> {
    fn clone(&self) -> Self {
        self.senders.fetch_add(1, SeqCst);
        Self { channel: Arc::clone(&self.channel), senders: Arc::clone(&self.senders) }
    }
}

impl<C: Close> Drop for Counted<C> {
    fn drop(&mut self) {
        if self.senders.fetch_sub(1, SeqCst) == 1 {
            self.channel.close();
        }
    }
}

/// As much of dashmap as the protocol may use.
pub(crate) struct DashMap<K, V>(Mutex<HashMap<K, V>>);

impl<K: Eq + Hash, V> DashMap<K, V> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    pub(crate) fn insert(&self, key: K, value: V) {
        lock(&self.0).insert(key, value);
    }

    pub(crate) fn remove(&self, key: &K) {
        lock(&self.0).remove(key);
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        lock(&self.0).contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }
}
