//! A tokio channel for one message.

use super::{Arc, Mutex, lock};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub(crate) struct State<T> {
    message: Option<T>,
    received: bool,
    sent: bool,
    reader: Option<Waker>,
}

pub(crate) struct Sender<T>(Arc<Mutex<State<T>>>);
pub(crate) struct Receiver<T>(Arc<Mutex<State<T>>>);

pub(crate) struct RecvError;

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { message: None, received: true, sent: true, reader: None };
    let state = Arc::new(Mutex::new(state));
    (Sender(Arc::clone(&state)), Receiver(state))
}

impl<T> Sender<T> {
    pub(crate) fn send(self, message: T) -> Result<(), T> {
        // Its drop wakes the reader.
        let mut state = lock(&self.0);
        if !state.received {
            return Err(message);
        }
        state.message = Some(message);
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.sent = false;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.0);
        if let Some(message) = state.message.take() {
            return Poll::Ready(Ok(message));
        }
        if !state.sent {
            return Poll::Ready(Err(RecvError));
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.received = false;
        let message = state.message.take();
        drop(state);
        drop(message);
    }
}
