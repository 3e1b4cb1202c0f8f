//! The engine behind an async handle.
//!
//! One OS thread owns the [`Engine`] and everything in it. Handles send commands over a bounded crossbeam
//! channel; each request's events go back over a bounded tokio channel of its own. A request whose reader is
//! gone, or falls [`EVENTS_BUFFERED`] events per sample behind, is cancelled: a slow reader never slows the batch
//! down. How all this fits together, and ends, is `protocol.rs`.
//!
//! `dashmap` holds which requests are under way, for [`AsyncEngine::in_flight`] and
//! [`AsyncEngine::cancel`], and nothing else.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use thiserror::Error;

use crate::engine::Engine;
use crate::frontend::{Frontend, Prepared, SubmitRefused};
use crate::protocol::{Handle, Limits, NoAnswer, Serve, Stream};
use crate::request::{Event, GenerateRequest, RequestId, RequestOutput};

/// Commands that may wait for the engine thread before senders are refused.
const COMMANDS_BUFFERED: usize = 1024;

/// Events that may wait for a request's reader before the request is cancelled, for each of its samples.
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

impl From<NoAnswer<SubmitRefused>> for AsyncError {
    fn from(error: NoAnswer<SubmitRefused>) -> Self {
        match error {
            NoAnswer::Refused(refused) => Self::Refused(refused),
            NoAnswer::Overloaded => Self::Overloaded,
            NoAnswer::ShutDown => Self::ShutDown,
        }
    }
}

impl Serve for Engine {
    type Request = Box<Prepared>;
    type Id = RequestId;
    type Refused = SubmitRefused;
    type Event = Event;

    fn ends(request: &Self::Request) -> usize {
        request.samples()
    }

    fn about(event: &Event) -> (RequestId, bool) {
        (event.id(), matches!(event, Event::Finished { .. }))
    }

    fn submit(&mut self, request: Self::Request) -> Result<RequestId, SubmitRefused> {
        self.submit_prepared(*request)
    }

    fn cancel(&mut self, id: RequestId) {
        Engine::cancel(self, id);
    }

    fn pause(&mut self, paused: bool) {
        if paused { Engine::pause(self) } else { Engine::resume(self) }
    }

    fn step(&mut self) -> Vec<Event> {
        Engine::step(self)
    }

    fn has_work(&self) -> bool {
        Engine::has_work(self)
    }
}

/// A cheap, cloneable handle to an engine on its own thread.
#[derive(Clone)]
pub struct AsyncEngine {
    handle: Handle<Engine>,
    frontend: Arc<Frontend>,
}

impl AsyncEngine {
    /// Moves `engine` onto a thread of its own.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn spawn(engine: Engine) -> std::io::Result<Self> {
        let frontend = engine.frontend();
        let limits = Limits { commands: COMMANDS_BUFFERED, events: EVENTS_BUFFERED };
        Ok(Self { handle: Handle::spawn(engine, "redline-engine", limits)?, frontend })
    }

    /// Submits a request. The text is tokenized off the async threads.
    ///
    /// # Errors
    /// [`AsyncError::Refused`] when the request can't be served, [`AsyncError::Overloaded`] or
    /// [`AsyncError::ShutDown`] when the engine can't be reached.
    pub async fn submit(&self, request: GenerateRequest) -> Result<RequestStream, AsyncError> {
        let frontend = Arc::clone(&self.frontend);
        let prepared = tokio::task::spawn_blocking(move || frontend.prepare(request))
            .await
            .map_err(|_| AsyncError::ShutDown)??;
        Ok(RequestStream { stream: self.handle.submit(Box::new(prepared)).await? })
    }

    /// Cancels a request; `false` when it is not under way.
    ///
    /// # Errors
    /// [`AsyncError::Overloaded`] or [`AsyncError::ShutDown`] when the engine can't be reached.
    pub fn cancel(&self, id: RequestId) -> Result<bool, AsyncError> {
        Ok(self.handle.cancel(id)?)
    }

    /// How many requests are waiting or running.
    pub fn in_flight(&self) -> usize {
        self.handle.in_flight()
    }

    /// Computes nothing until [`Self::resume`]. Requests may come and be cancelled meanwhile; timeouts are looked
    /// at when it goes on.
    ///
    /// # Errors
    /// [`AsyncError::Overloaded`] or [`AsyncError::ShutDown`] when the engine can't be reached.
    pub fn pause(&self) -> Result<(), AsyncError> {
        Ok(self.handle.pause(true)?)
    }

    /// Takes back [`Self::pause`].
    ///
    /// # Errors
    /// [`AsyncError::Overloaded`] or [`AsyncError::ShutDown`] when the engine can't be reached.
    pub fn resume(&self) -> Result<(), AsyncError> {
        Ok(self.handle.pause(false)?)
    }

    /// Takes nothing more in, finishes what is under way, and waits for the engine thread to end. For a deadline, race
    /// it against a timer and then [`Self::shut_down`].
    pub async fn drain(&self) {
        let handle = self.handle.clone();
        // It blocks: not on an async thread.
        let _ = tokio::task::spawn_blocking(move || handle.drain()).await;
    }

    /// Cancels what is under way and waits for the engine thread to end.
    pub async fn shut_down(&self) {
        let handle = self.handle.clone();
        // It blocks: not on an async thread.
        let _ = tokio::task::spawn_blocking(move || handle.shut_down()).await;
    }
}

/// The events of one request. Dropping it cancels the request.
pub struct RequestStream {
    stream: Stream<Engine>,
}

impl RequestStream {
    /// The request's id.
    pub fn id(&self) -> RequestId {
        self.stream.id()
    }

    /// The next event; `None` after [`Event::Finished`] of every sample, or if the engine's thread died. A request whose
    /// stream was not read for too long ends as cancelled.
    pub async fn next(&mut self) -> Option<Event> {
        self.stream.next().await
    }

    /// Reads to the end; `None` when the engine went away before the request finished. Of several samples the first.
    pub async fn finish(self) -> Option<RequestOutput> {
        self.finish_all().await.into_iter().find(|output| output.sample == 0)
    }

    /// Reads to the end: what each sample produced, in order. Some are missing when the engine went away.
    pub async fn finish_all(mut self) -> Vec<RequestOutput> {
        let mut outputs = Vec::new();
        while let Some(event) = self.next().await {
            if let Event::Finished { output, .. } = event {
                outputs.push(*output);
            }
        }
        outputs.sort_by_key(|output| output.sample);
        outputs
    }
}

impl futures_core::Stream for RequestStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.stream.poll_next(context)
    }
}
