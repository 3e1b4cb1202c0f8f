//! A tokio channel of bounded size.

use super::{Arc, Close, Counted, Mutex, VecDeque, lock};
use std::task::{Context, Poll, Waker};

pub(crate) struct State<T> {
    waiting: VecDeque<T>,
    reserved: usize,
    received: bool,
    sent: bool,
    reader: Option<Waker>,
}

pub(crate) struct Channel<T> {
    size: usize,
    state: Mutex<State<T>>,
}

pub(crate) struct Sender<T>(Counted<Channel<T>>);
pub(crate) struct Receiver<T>(Arc<Channel<T>>);
pub(crate) struct OwnedPermit<T>(Option<Sender<T>>);

pub(crate) fn channel<T>(size: usize) -> (Sender<T>, Receiver<T>) {
    let state =
        State { waiting: VecDeque::new(), reserved: 0, received: true, sent: true, reader: None };
    let channel = Arc::new(Channel { size, state: Mutex::new(state) });
    (Sender(Counted::first(&channel)), Receiver(channel))
}

impl<T> Close for Channel<T> {
    fn close(&self) {
        self.change(|state| state.sent = false);
    }
}

impl<T> Channel<T> {
    /// Changes the state; wakes the reader once the lock is free again.
    fn change<R>(&self, how: impl FnOnce(&mut State<T>) -> R) -> R {
        let mut state = lock(&self.state);
        let result = how(&mut state);
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        result
    }

    fn has_room(&self, state: &State<T>) -> bool {
        state.received && state.waiting.len() + state.reserved < self.size
    }
}

impl<T> Sender<T> {
    fn channel(&self) -> &Channel<T> {
        &self.0.channel
    }

    pub(crate) fn try_send(&self, message: T) -> Result<(), T> {
        self.channel().change(|state| {
            if !self.channel().has_room(state) {
                return Err(message);
            }
            state.waiting.push_back(message);
            Ok(())
        })
    }

    pub(crate) fn try_reserve_owned(self) -> Result<OwnedPermit<T>, Self> {
        let mut state = lock(&self.channel().state);
        let room = self.channel().has_room(&state);
        state.reserved += usize::from(room);
        drop(state);
        if room { Ok(OwnedPermit(Some(self))) } else { Err(self) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        !lock(&self.channel().state).received
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> OwnedPermit<T> {
    pub(crate) fn send(mut self, message: T) -> Option<Sender<T>> {
        let sender = self.0.take()?;
        sender.channel().change(|state| {
            state.reserved -= 1;
            if state.received {
                state.waiting.push_back(message);
            }
        });
        Some(sender)
    }
}

impl<T> Drop for OwnedPermit<T> {
    fn drop(&mut self) {
        if let Some(sender) = &self.0 {
            lock(&sender.channel().state).reserved -= 1;
        }
    }
}

impl<T> Receiver<T> {
    pub(crate) fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = lock(&self.0.state);
        let message = state.waiting.pop_front();
        if message.is_some() || !state.sent {
            return Poll::Ready(message);
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.received = false;
        let unread = std::mem::take(&mut state.waiting);
        drop(state);
        drop(unread);
    }
}
