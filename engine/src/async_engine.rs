//! The engine behind an async handle.
//!
//! One OS thread owns the [`Engine`] and everything in it. Handles send [`Command`]s over a bounded
//! crossbeam channel; each request's events go back over a bounded tokio channel of its own. A request
//! whose reader is gone, or does not keep up with [`EVENTS_BUFFERED`] events, is cancelled: a slow
//! reader never slows the batch down.
//!
//! `dashmap` holds which requests are under way, for [`AsyncEngine::in_flight`] and
//! [`AsyncEngine::cancel`], and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam::channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use dashmap::DashMap;
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::engine::{Engine, Frontend, Prepared, SubmitRefused};
use crate::request::{Event, GenerateRequest, RequestId, RequestOutput};

/// Commands that may wait for the engine thread before senders are refused.
const COMMANDS_BUFFERED: usize = 1024;

/// Events that may wait for a request's reader before the request is cancelled.
pub const EVENTS_BUFFERED: usize = 1024;

/// Why the async handle refused.
#[derive(Debug, Error)]
pub enum AsyncError {
    /// The request itself was refused.
    #[error(transparent)]
    Refused(#[from] SubmitRefused),
    /// More commands are waiting than the engine takes.
    #[error("{COMMANDS_BUFFERED} commands are waiting for the engine; try again later")]
    Overloaded,
    /// The engine has been shut down, or its thread has ended.
    #[error("the engine has shut down")]
    ShutDown,
}

enum Command {
    Submit {
        prepared: Box<Prepared>,
        events: mpsc::Sender<Event>,
        reply: oneshot::Sender<Result<RequestId, SubmitRefused>>,
    },
    Cancel(RequestId),
    ShutDown,
}

/// A cheap, cloneable handle to an engine on its own thread.
#[derive(Clone)]
pub struct AsyncEngine {
    shared: Arc<Shared>,
}

struct Shared {
    commands: Sender<Command>,
    frontend: Arc<Frontend>,
    in_flight: Arc<DashMap<RequestId, ()>>,
    thread: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl AsyncEngine {
    /// Moves `engine` onto a thread of its own.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn spawn(engine: Engine) -> std::io::Result<Self> {
        let (commands, inbox) = bounded(COMMANDS_BUFFERED);
        let frontend = engine.frontend();
        let in_flight = Arc::new(DashMap::new());
        let worker =
            Worker { engine, inbox, readers: BTreeMap::new(), in_flight: Arc::clone(&in_flight) };
        let thread = std::thread::Builder::new()
            .name("redline-engine".into())
            .spawn(move || worker.run())?;
        Ok(Self {
            shared: Arc::new(Shared {
                commands,
                frontend,
                in_flight,
                thread: std::sync::Mutex::new(Some(thread)),
            }),
        })
    }

    /// Submits a request. The text is tokenized off the async threads.
    ///
    /// # Errors
    /// [`AsyncError::Refused`] when the request can't be served, [`AsyncError::Overloaded`] or
    /// [`AsyncError::ShutDown`] when the engine can't be reached.
    pub async fn submit(&self, request: GenerateRequest) -> Result<RequestStream, AsyncError> {
        let frontend = Arc::clone(&self.shared.frontend);
        let prepared = tokio::task::spawn_blocking(move || frontend.prepare(request))
            .await
            .map_err(|_| AsyncError::ShutDown)??;
        let (events, receiver) = mpsc::channel(EVENTS_BUFFERED + 1);
        let (reply, answer) = oneshot::channel();
        self.send(Command::Submit { prepared: Box::new(prepared), events, reply })?;
        let id = answer.await.map_err(|_| AsyncError::ShutDown)??;
        Ok(RequestStream { id, receiver, commands: self.shared.commands.clone(), ended: false })
    }

    /// Cancels a request; `false` when it is not under way.
    ///
    /// # Errors
    /// [`AsyncError::Overloaded`] or [`AsyncError::ShutDown`] when the engine can't be reached.
    pub fn cancel(&self, id: RequestId) -> Result<bool, AsyncError> {
        let known = self.shared.in_flight.contains_key(&id);
        if known {
            self.send(Command::Cancel(id))?;
        }
        Ok(known)
    }

    /// How many requests are waiting or running.
    pub fn in_flight(&self) -> usize {
        self.shared.in_flight.len()
    }

    /// Cancels what is under way and waits for the engine thread to end.
    pub async fn shut_down(&self) {
        let commands = self.shared.commands.clone();
        let thread = self.shared.thread.lock().ok().and_then(|mut slot| slot.take());
        // Both the send into a full channel and the join may block: not on an async thread.
        let _ = tokio::task::spawn_blocking(move || {
            let _ = commands.send(Command::ShutDown);
            thread.map(JoinHandle::join)
        })
        .await;
    }

    fn send(&self, command: Command) -> Result<(), AsyncError> {
        self.shared.commands.try_send(command).map_err(|error| match error {
            TrySendError::Full(_) => AsyncError::Overloaded,
            TrySendError::Disconnected(_) => AsyncError::ShutDown,
        })
    }
}

/// The events of one request. Dropping it cancels the request.
pub struct RequestStream {
    id: RequestId,
    receiver: mpsc::Receiver<Event>,
    commands: Sender<Command>,
    ended: bool,
}

impl RequestStream {
    /// The request's id.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The next event; `None` after [`Event::Finished`], or if the engine's thread died. A request whose
    /// stream was not read for too long ends as cancelled.
    pub async fn next(&mut self) -> Option<Event> {
        let event = self.receiver.recv().await;
        self.note(event.as_ref());
        event
    }

    /// Reads to the end; `None` when the engine went away before the request finished.
    pub async fn finish(mut self) -> Option<RequestOutput> {
        while let Some(event) = self.next().await {
            if let Event::Finished { output, .. } = event {
                return Some(*output);
            }
        }
        None
    }

    fn note(&mut self, event: Option<&Event>) {
        self.ended |= matches!(event, None | Some(Event::Finished { .. }));
    }
}

impl futures_core::Stream for RequestStream {
    type Item = Event;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Event>> {
        let polled = self.receiver.poll_recv(context);
        if let std::task::Poll::Ready(event) = &polled {
            let event = event.as_ref();
            self.ended |= matches!(event, None | Some(Event::Finished { .. }));
        }
        polled
    }
}

impl Drop for RequestStream {
    fn drop(&mut self) {
        if !self.ended {
            // If the channel is full the worker still notices at its next send to this reader.
            let _ = self.commands.try_send(Command::Cancel(self.id));
        }
    }
}

/// The engine thread.
struct Worker {
    engine: Engine,
    inbox: Receiver<Command>,
    readers: BTreeMap<RequestId, Reader>,
    in_flight: Arc<DashMap<RequestId, ()>>,
}

/// Where a request's events go.
struct Reader {
    events: mpsc::Sender<Event>,
    /// A place kept free for the last event, so that even a reader that fell behind learns how it ended.
    last: mpsc::OwnedPermit<Event>,
}

impl Drop for Worker {
    /// Also if the engine thread panics: nothing is in flight then.
    fn drop(&mut self) {
        self.in_flight.clear();
    }
}

impl Worker {
    fn run(mut self) {
        while self.take_commands() {
            if self.engine.has_work() {
                self.step();
            }
        }
        for &id in self.readers.keys() {
            self.engine.cancel(id);
        }
        self.step();
    }

    /// Waits for a command only while there is nothing to compute. `false` ends the thread: on
    /// shut-down, or when the last handle is gone and nothing is left to do.
    fn take_commands(&mut self) -> bool {
        if !self.engine.has_work() {
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
                Err(TryRecvError::Disconnected) => return self.engine.has_work(),
            }
        }
    }

    fn handle(&mut self, command: Command) -> bool {
        match command {
            Command::Submit { prepared, events, reply } => {
                let answer = self.engine.submit_prepared(*prepared);
                if let (Ok(id), Ok(last)) = (&answer, events.clone().try_reserve_owned()) {
                    let id = *id;
                    self.readers.insert(id, Reader { events, last });
                    self.in_flight.insert(id, ());
                    if reply.send(Ok(id)).is_err() {
                        self.engine.cancel(id);
                    }
                } else {
                    // Refused, or its reader is gone already.
                    if let Ok(id) = &answer {
                        self.engine.cancel(*id);
                    }
                    let _ = reply.send(answer);
                }
            }
            Command::Cancel(id) => {
                self.engine.cancel(id);
            }
            Command::ShutDown => return false,
        }
        true
    }

    fn step(&mut self) {
        // Readers that are gone are noticed even while their requests wait or prefill.
        let gone = self.readers.iter().filter(|(_, reader)| reader.events.is_closed());
        let mut unread: Vec<RequestId> = gone.map(|(&id, _)| id).collect();
        for event in self.engine.step() {
            let id = event.id();
            if matches!(event, Event::Finished { .. }) {
                // First, so that whoever has read the end finds the request gone.
                self.in_flight.remove(&id);
                if let Some(reader) = self.readers.remove(&id) {
                    reader.last.send(event);
                }
            } else if self.readers.get(&id).is_none_or(|r| r.events.try_send(event).is_err()) {
                unread.push(id);
            }
        }
        for id in unread {
            tracing::warn!(%id, "its reader is gone or has fallen behind: cancelled");
            self.engine.cancel(id);
        }
    }
}
