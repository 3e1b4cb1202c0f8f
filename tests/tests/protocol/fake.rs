//! An engine that is a few counters, for scenes of the protocol.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::protocol::Serve;
use super::sync::thread::Died;
use super::tool::thread;

/// A request: how many events it has before its end, and how many ends.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) events: usize,
    pub(crate) ends: usize,
}

/// Takes so many steps.
pub(crate) const fn events(events: usize) -> Ask {
    Ask { events, ends: 1 }
}

/// Waits, says nothing and is never done.
pub(crate) const ENDLESS: Ask = events(usize::MAX);
/// Is refused.
pub(crate) const BAD: Ask = Ask { events: 0, ends: 0 };

#[derive(Debug, PartialEq)]
pub(crate) struct Refused;

/// What is told of a request: what it says, then how each of its ends came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Event {
    Said(u32),
    Done(u32),
    Cancelled(u32),
}

/// An engine.
#[derive(Default)]
pub(crate) struct Fake {
    running: BTreeMap<u32, Ask>,
    ended: Vec<Event>,
    paused: bool,
    next: u32,
    /// Dies in this step, counted from 1.
    dies: usize,
    steps: usize,
    life: Life,
}

/// Goes with the engine.
#[derive(Default)]
struct Life(Alive);

/// Tells whether the engine is still there.
#[derive(Clone, Default)]
pub(crate) struct Alive(Arc<AtomicBool>);

impl Alive {
    pub(crate) fn there(&self) -> bool {
        self.0.load(SeqCst)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.0.store(false, SeqCst);
    }
}

impl Serve for Fake {
    type Request = Ask;
    type Id = u32;
    type Refused = Refused;
    type Event = Event;

    fn ends(request: &Ask) -> usize {
        request.ends
    }

    fn about(event: &Event) -> (u32, bool) {
        match *event {
            Event::Said(id) => (id, false),
            Event::Done(id) | Event::Cancelled(id) => (id, true),
        }
    }

    fn submit(&mut self, request: Ask) -> Result<u32, Refused> {
        if request.ends == 0 {
            return Err(Refused);
        }
        self.next += 1;
        self.running.insert(self.next, request);
        Ok(self.next)
    }

    fn cancel(&mut self, id: u32) {
        if let Some(request) = self.running.remove(&id) {
            self.ended.extend(vec![Event::Cancelled(id); request.ends]);
        }
    }

    fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    fn step(&mut self) -> Vec<Event> {
        self.steps += 1;
        if self.steps == self.dies {
            std::panic::resume_unwind(Box::new(Died));
        }
        let mut told = std::mem::take(&mut self.ended);
        if self.paused {
            return told;
        }
        let mut endless = false;
        self.running.retain(|&id, request| {
            if request.events == ENDLESS.events {
                endless = true;
            } else if request.events > 0 {
                request.events -= 1;
                told.push(Event::Said(id));
            } else {
                request.ends -= 1;
                told.push(Event::Done(id));
            }
            request.ends > 0
        });
        if endless {
            thread::yield_now(); // whoever could end it has to come to it
        }
        told
    }

    fn has_work(&self) -> bool {
        !self.running.is_empty() && !self.paused || !self.ended.is_empty()
    }
}

impl Fake {
    /// One that dies in step `dies` (0: never), and whether it is still there.
    pub(crate) fn new(dies: usize) -> (Self, Alive) {
        let alive = Alive(Arc::new(AtomicBool::new(true)));
        (Self { dies, life: Life(alive.clone()), ..Self::default() }, alive)
    }
}
