//! The protocol between the handles of an engine and the one thread that owns it: submit, cancel, events, shut-down.
//!
//! What it keeps, whatever the schedule: every submit is answered; every stream ends; whoever has read the end of a
//! request finds it no longer in flight; whoever has waited for the shut-down finds the engine gone; a reader never
//! slows the engine down, and learns how its request ended even if it fell behind.
//!
//! Knows neither the engine ([`Serve`] is what it needs of one) nor the channels (`super::sync`), so that its tests
//! can walk through the schedules with models of both.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use super::sync::channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use super::sync::thread::{self, JoinHandle};
use super::sync::{AtomicBool, DashMap, Mutex, mpsc, oneshot};

/// What the protocol needs of an engine.
pub(crate) trait Serve: Send + 'static {
    /// A request, ready to run.
    type Request: Send;
    /// Names a request that was taken in.
    type Id: Copy + Ord + Hash + Display + Send + Sync;
    /// Why a request was not taken in.
    type Refused: Send;
    /// What happened to a request.
    type Event: Send;

    /// How many of a request's events will be ends. Its stream is over after the last of them.
    fn ends(request: &Self::Request) -> usize;
    /// The request that an event is about, and whether it is an end.
    fn about(event: &Self::Event) -> (Self::Id, bool);
    /// Takes a request in.
    fn submit(&mut self, request: Self::Request) -> Result<Self::Id, Self::Refused>;
    /// Takes a request back: its ends come with the next step.
    fn cancel(&mut self, id: Self::Id);
    /// Computes nothing more until it may again; cancelled requests end all the same.
    fn pause(&mut self, paused: bool);
    /// Computes a little, and says what happened.
    fn step(&mut self) -> Vec<Self::Event>;
    /// Whether a step would do anything.
    fn has_work(&self) -> bool;
}

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Commands that may wait for the engine thread before senders are refused.
    pub(crate) commands: usize,
    /// Events that may wait for a request's reader before the request is cancelled, for each of its ends, and these
    /// aside: one with more to say may be that much more behind.
    pub(crate) events: usize,
}

/// Why a command was not carried out.
#[derive(Debug)]
pub(crate) enum NoAnswer<R> {
    /// The engine said no.
    Refused(R),
    /// More commands are waiting than the engine takes.
    Overloaded,
    /// The engine thread has ended, or is about to.
    ShutDown,
}

enum Command<S: Serve> {
    Submit {
        request: S::Request,
        events: mpsc::Sender<S::Event>,
        reply: oneshot::Sender<Result<S::Id, S::Refused>>,
    },
    Cancel(S::Id),
    Pause(bool),
    Drain,
    ShutDown,
}

/// What the handles see of the engine thread.
struct Board<I: Eq + Hash> {
    in_flight: DashMap<I, ()>,
    /// The engine thread takes no more commands.
    closed: AtomicBool,
}

/// The way to the engine thread. Clones are the same handle; the thread ends when all of them, and all streams, are
/// gone.
pub(crate) struct Handle<S: Serve> {
    shared: Arc<Shared<S>>,
}

impl<S: Serve> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<S: Serve> {
    commands: Sender<Command<S>>,
    board: Arc<Board<S::Id>>,
    limits: Limits,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<S: Serve> Drop for Shared<S> {
    /// Nobody is left who could end a pause: what streams still wait for goes on.
    fn drop(&mut self) {
        // There is room: while it is paused the thread does nothing but take commands.
        let _ = self.commands.try_send(Command::Pause(false));
    }
}

impl<S: Serve> Handle<S> {
    /// Moves `serve` onto a thread of its own.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn spawn(serve: S, name: &str, limits: Limits) -> std::io::Result<Self> {
        let (commands, inbox) = bounded(limits.commands);
        let board = Board { in_flight: DashMap::new(), closed: AtomicBool::new(false) };
        let board = Arc::new(board);
        let (readers, thread_board) = (BTreeMap::new(), Arc::clone(&board));
        let worker = Worker { serve, inbox, readers, board: thread_board, draining: false };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || worker.run())?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { shared: Arc::new(Shared { commands, board, limits, thread }) })
    }

    /// Submits a request and waits for the engine to take it in.
    pub(crate) async fn submit(
        &self,
        request: S::Request,
    ) -> Result<Stream<S>, NoAnswer<S::Refused>> {
        let ends = S::ends(&request);
        let (events, receiver) = mpsc::channel(self.shared.limits.events * ends.max(1) + ends);
        let (reply, answer) = oneshot::channel();
        self.send(Command::Submit { request, events, reply })?;
        // A command that arrives behind the last one looked at is never answered, nor dropped while any handle lives.
        if self.shared.board.closed.load(Ordering::SeqCst) {
            return Err(NoAnswer::ShutDown);
        }
        let id = answer.await.map_err(|_| NoAnswer::ShutDown)?.map_err(NoAnswer::Refused)?;
        Ok(Stream { id, receiver, commands: self.shared.commands.clone(), ends })
    }

    /// Cancels a request; `false` when it is not under way.
    pub(crate) fn cancel(&self, id: S::Id) -> Result<bool, NoAnswer<S::Refused>> {
        let known = self.shared.board.in_flight.contains_key(&id);
        if known {
            self.send(Command::Cancel(id))?;
        }
        Ok(known)
    }

    /// How many requests are waiting or running.
    pub(crate) fn in_flight(&self) -> usize {
        self.shared.board.in_flight.len()
    }

    /// Stops the computing, or lets it go on.
    pub(crate) fn pause(&self, paused: bool) -> Result<(), NoAnswer<S::Refused>> {
        self.send(Command::Pause(paused))
    }

    /// Cancels what is under way and waits for the engine thread to end, whoever else waits for it. Blocks.
    pub(crate) fn shut_down(&self) {
        self.end_by(Command::ShutDown);
    }

    /// Takes nothing more in, finishes what is under way, and waits for the engine thread to end. Blocks. A
    /// [`Self::shut_down`] meanwhile cuts it short.
    pub(crate) fn drain(&self) {
        self.end_by(Command::Drain);
    }

    fn end_by(&self, command: Command<S>) {
        let _ = self.shared.commands.send(command);
        let mut thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = thread.take().map(JoinHandle::join);
    }

    fn send(&self, command: Command<S>) -> Result<(), NoAnswer<S::Refused>> {
        self.shared.commands.try_send(command).map_err(|error| match error {
            TrySendError::Full(_) => NoAnswer::Overloaded,
            TrySendError::Disconnected(_) => NoAnswer::ShutDown,
        })
    }
}

/// The events of one request. Dropping it cancels the request.
pub(crate) struct Stream<S: Serve> {
    id: S::Id,
    receiver: mpsc::Receiver<S::Event>,
    commands: Sender<Command<S>>,
    /// Ends that have not been read.
    ends: usize,
}

impl<S: Serve> Stream<S> {
    pub(crate) fn id(&self) -> S::Id {
        self.id
    }

    /// The next event; `None` after the last end, or if the engine thread died.
    pub(crate) async fn next(&mut self) -> Option<S::Event> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<S::Event>> {
        let polled = self.receiver.poll_recv(context);
        match &polled {
            Poll::Ready(Some(event)) => self.ends -= usize::from(S::about(event).1),
            Poll::Ready(None) => self.ends = 0,
            Poll::Pending => {}
        }
        polled
    }
}

impl<S: Serve> Drop for Stream<S> {
    fn drop(&mut self) {
        if self.ends > 0 {
            // If the channel is full the worker still notices at its next step.
            let _ = self.commands.try_send(Command::Cancel(self.id));
        }
    }
}

/// The engine thread.
struct Worker<S: Serve> {
    serve: S,
    inbox: Receiver<Command<S>>,
    readers: BTreeMap<S::Id, Reader<S::Event>>,
    board: Arc<Board<S::Id>>,
    /// Nothing more is taken in; the thread ends with the last request.
    draining: bool,
}

/// Where a request's events go.
struct Reader<E> {
    events: mpsc::Sender<E>,
    /// Places kept free for the ends, so that even a reader that fell behind learns how it ended.
    ends: Vec<mpsc::OwnedPermit<E>>,
}

impl<E> Reader<E> {
    /// `None` if the reader is gone already.
    fn new(events: mpsc::Sender<E>, ends: usize) -> Option<Self> {
        let place = || events.clone().try_reserve_owned().ok();
        let ends = std::iter::repeat_with(place).take(ends).collect::<Option<_>>()?;
        Some(Self { events, ends })
    }
}

impl<S: Serve> Drop for Worker<S> {
    /// Also if the engine thread panics: nothing is in flight then, and nobody waits for an answer.
    fn drop(&mut self) {
        // In this order: a sender that does not see the door closed has its command dropped here.
        self.board.closed.store(true, Ordering::SeqCst);
        while self.inbox.try_recv().is_ok() {}
        self.board.in_flight.clear();
    }
}

impl<S: Serve> Worker<S> {
    fn run(mut self) {
        let served = catch_unwind(AssertUnwindSafe(|| self.work()));
        // Whoever waits is told before the panic goes on, and not by an unwinding thread.
        drop(self);
        if let Err(panic) = served {
            resume_unwind(panic);
        }
    }

    fn work(&mut self) {
        while self.take_commands() {
            if self.serve.has_work() {
                self.step();
            }
        }
        for &id in self.readers.keys() {
            self.serve.cancel(id);
        }
        self.step();
    }

    /// Waits for a command only while there is nothing to compute. `false` ends the thread: on
    /// shut-down, or when nothing is left to do and the last handle is gone or nothing more is taken in.
    fn take_commands(&mut self) -> bool {
        if self.draining && self.readers.is_empty() {
            return false;
        }
        if !self.serve.has_work() {
            match self.inbox.recv() {
                Ok(command) => {
                    if !self.handle(command) {
                        return false;
                    }
                }
                Err(_) => return false,
            }
        }
        loop {
            match self.inbox.try_recv() {
                Ok(command) => {
                    if !self.handle(command) {
                        return false;
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return self.serve.has_work(),
            }
        }
    }

    fn handle(&mut self, command: Command<S>) -> bool {
        match command {
            // Dropping the reply answers that the engine shuts down.
            Command::Submit { .. } if self.draining => {}
            Command::Submit { request, events, reply } => {
                let reader = Reader::new(events, S::ends(&request));
                let answer = self.serve.submit(request);
                if let (&Ok(id), Some(reader)) = (&answer, reader) {
                    self.readers.insert(id, reader);
                    // Before the answer, so that whoever has it can cancel.
                    self.board.in_flight.insert(id, ());
                    if reply.send(Ok(id)).is_err() {
                        self.serve.cancel(id);
                    }
                } else {
                    // Refused, or its reader is gone already.
                    if let &Ok(id) = &answer {
                        self.serve.cancel(id);
                    }
                    let _ = reply.send(answer);
                }
            }
            Command::Cancel(id) => self.serve.cancel(id),
            Command::Pause(paused) => self.serve.pause(paused && !self.draining),
            Command::Drain => {
                self.draining = true;
                self.serve.pause(false);
            }
            Command::ShutDown => return false,
        }
        true
    }

    fn step(&mut self) {
        // Readers that are gone are noticed even while their requests wait or prefill.
        let gone = self.readers.iter().filter(|(_, reader)| reader.events.is_closed());
        let mut unread: Vec<S::Id> = gone.map(|(&id, _)| id).collect();
        for event in self.serve.step() {
            let (id, end) = S::about(&event);
            if end {
                self.end(id, event);
            } else if self.readers.get(&id).is_none_or(|r| r.events.try_send(event).is_err()) {
                unread.push(id);
            }
        }
        for id in unread {
            tracing::warn!(%id, "its reader is gone or has fallen behind: cancelled");
            self.serve.cancel(id);
        }
    }

    /// Tells a reader an end; with the last one the request is over.
    fn end(&mut self, id: S::Id, event: S::Event) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        let place = reader.ends.pop();
        if reader.ends.is_empty() {
            // First, so that whoever has read the end finds the request gone.
            self.board.in_flight.remove(&id);
            self.readers.remove(&id);
        }
        if let Some(place) = place {
            place.send(event);
        }
    }
}
