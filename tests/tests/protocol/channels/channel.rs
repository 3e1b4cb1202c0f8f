//! A crossbeam channel of bounded size, of which one receiver is used.

use super::{Arc, Close, Counted, Mutex, PoisonError, VecDeque, lock, tool};
use tool::sync::Condvar;

pub(crate) struct State<T> {
    waiting: VecDeque<T>,
    received: bool,
    sent: bool,
}

pub(crate) struct Channel<T> {
    size: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

pub(crate) struct Sender<T>(Counted<Channel<T>>);
pub(crate) struct Receiver<T>(Arc<Channel<T>>);

pub(crate) struct Disconnected;

pub(crate) enum TrySendError<T> {
    Full(T),
    Disconnected(T),
}

pub(crate) enum TryRecvError {
    Empty,
    Disconnected,
}

pub(crate) fn bounded<T>(size: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { waiting: VecDeque::new(), received: true, sent: true };
    let (state, changed) = (Mutex::new(state), Condvar::new());
    let channel = Arc::new(Channel { size, state, changed });
    (Sender(Counted::first(&channel)), Receiver(channel))
}

impl<T> Close for Channel<T> {
    fn close(&self) {
        lock(&self.state).sent = false;
        self.changed.notify_all();
    }
}

impl<T> Sender<T> {
    pub(crate) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut state = lock(&self.0.channel.state);
        if !state.received {
            return Err(TrySendError::Disconnected(message));
        }
        if state.waiting.len() == self.0.channel.size {
            return Err(TrySendError::Full(message));
        }
        state.waiting.push_back(message);
        self.0.channel.changed.notify_all();
        Ok(())
    }

    pub(crate) fn send(&self, message: T) -> Result<(), Disconnected> {
        let mut state = lock(&self.0.channel.state);
        while state.received && state.waiting.len() == self.0.channel.size {
            state = self.0.channel.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.received {
            return Err(Disconnected);
        }
        state.waiting.push_back(message);
        self.0.channel.changed.notify_all();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Receiver<T> {
    pub(crate) fn recv(&self) -> Result<T, Disconnected> {
        let mut state = lock(&self.0.state);
        while state.sent && state.waiting.is_empty() {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.0.changed.notify_all();
        state.waiting.pop_front().ok_or(Disconnected)
    }

    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = lock(&self.0.state);
        self.0.changed.notify_all();
        match state.waiting.pop_front() {
            Some(message) => Ok(message),
            None if state.sent => Err(TryRecvError::Empty),
            None => Err(TryRecvError::Disconnected),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        lock(&self.0.state).received = false;
        self.0.changed.notify_all();
    }
}
