//! Scenes of the protocol: handles and readers of a [`Fake`] engine, each with what must hold at its end whatever the
//! schedule. That nobody waits for ever is the checker's to see.

use std::task::{Context, Poll, Waker};

use super::fake::{Alive, Ask, BAD, ENDLESS, Event, Fake, Refused, events};
use super::protocol::{Handle, Limits, NoAnswer, Serve, Stream};
use super::tool::future::block_on;
use super::tool::thread;

/// An engine with room for so many commands and events, which dies in step `dies` (0: never).
fn start(commands: usize, events: usize, dies: usize) -> (Handle<Fake>, Alive) {
    let (fake, alive) = Fake::new(dies);
    (Handle::spawn(fake, "engine", Limits { commands, events }).unwrap(), alive)
}

/// Submits where there is room and the engine is there.
fn submit(engine: &Handle<Fake>, ask: Ask) -> Stream<Fake> {
    block_on(engine.submit(ask)).map_err(|_| "it is not taken in").unwrap()
}

/// Reads to the end: how many events, and the ends. `None` once the stream is over.
fn read(stream: &mut Stream<Fake>) -> (usize, Vec<Event>) {
    let (mut said, mut ends) = (0, Vec::new());
    while let Some(event) = block_on(stream.next()) {
        assert_eq!(Fake::about(&event).0, stream.id());
        match event {
            Event::Said(_) => {
                assert!(ends.is_empty(), "an event after the end");
                said += 1;
            }
            end => ends.push(end),
        }
    }
    (said, ends)
}

/// Reads one end, and finds the request gone.
fn read_end(engine: &Handle<Fake>, stream: &mut Stream<Fake>) -> Event {
    loop {
        let event = block_on(stream.next()).expect("an end");
        if !matches!(event, Event::Said(_)) {
            assert_eq!(engine.in_flight(), 0, "in flight after its end was read");
            return event;
        }
    }
}

/// A submit and a shut-down at the same time: a stream that is told its end, or a refusal.
pub(crate) fn submit_and_shut_down() {
    let (engine, alive) = start(2, 1, 0);
    let other = engine.clone();
    let submitter = thread::spawn(move || match block_on(other.submit(events(1))) {
        Ok(mut stream) => {
            let (_, ends) = read(&mut stream);
            assert!(matches!(ends[..], [Event::Done(1) | Event::Cancelled(1)]), "{ends:?}");
        }
        Err(NoAnswer::ShutDown) => {}
        Err(_) => panic!("neither full nor bad"),
    });
    engine.shut_down();
    assert!(!alive.there());
    assert_eq!(engine.in_flight(), 0);
    submitter.join().unwrap();
    assert!(matches!(block_on(engine.submit(events(1))), Err(NoAnswer::ShutDown)));
}

/// A submit and a drain at the same time: what was taken in runs to its end, the rest is refused.
pub(crate) fn submit_and_drain() {
    let (engine, alive) = start(2, 3, 0);
    let mut first = submit(&engine, events(1));
    let other = engine.clone();
    let submitter = thread::spawn(move || match block_on(other.submit(events(1))) {
        Ok(mut stream) => assert_eq!(read(&mut stream), (1, vec![Event::Done(2)])),
        Err(answer) => assert!(matches!(answer, NoAnswer::ShutDown)),
    });
    engine.drain();
    assert!(!alive.there());
    assert_eq!(engine.in_flight(), 0);
    assert_eq!(read(&mut first), (1, vec![Event::Done(1)]), "cut short by a drain");
    submitter.join().unwrap();
    assert!(matches!(block_on(engine.submit(events(1))), Err(NoAnswer::ShutDown)));
}

/// A pause beside a drain: the drain goes on with what the pause held.
pub(crate) fn pause_and_drain() {
    let (engine, alive) = start(2, 3, 0);
    let other = engine.clone();
    let mut stream = submit(&engine, events(1));
    let pauser = thread::spawn(move || {
        assert!(!matches!(other.pause(true), Err(NoAnswer::Refused(_))));
    });
    engine.drain();
    assert!(!alive.there());
    assert_eq!(read(&mut stream), (1, vec![Event::Done(1)]));
    pauser.join().unwrap();
}

/// A request that waits in a paused engine can be cancelled, and one that is left goes on afterwards.
pub(crate) fn pause_and_cancel() {
    let (engine, _) = start(3, 3, 0);
    assert!(engine.pause(true).is_ok());
    let (cancelled, mut left) = (submit(&engine, ENDLESS), submit(&engine, events(1)));
    let other = engine.clone();
    let canceller = thread::spawn(move || {
        let mut cancelled = cancelled;
        assert!(other.cancel(cancelled.id()).is_ok());
        assert_eq!(read(&mut cancelled), (0, vec![Event::Cancelled(1)]));
    });
    canceller.join().unwrap();
    assert_eq!(engine.in_flight(), 1, "paused");
    assert!(engine.pause(false).is_ok());
    assert_eq!(read(&mut left), (1, vec![Event::Done(2)]));
}

/// A cancel and the end at the same time: one end of either kind, and the request is gone for whoever read it.
pub(crate) fn cancel_and_finish() {
    let (engine, _) = start(2, 3, 0);
    let mut stream = submit(&engine, events(1));
    let (other, id) = (engine.clone(), stream.id());
    let canceller = thread::spawn(move || {
        assert!(other.cancel(id).is_ok(), "there is room");
    });
    let end = read_end(&engine, &mut stream);
    assert!(matches!(end, Event::Done(1) | Event::Cancelled(1)));
    assert!(matches!(engine.cancel(id), Ok(false)), "it has ended");
    assert_eq!(read(&mut stream), (0, Vec::new()), "one end");
    canceller.join().unwrap();
}

/// A request that has been answered can be cancelled.
pub(crate) fn cancel_at_once() {
    let (engine, _) = start(2, 1, 0);
    let mut stream = submit(&engine, ENDLESS);
    assert!(matches!(engine.cancel(stream.id()), Ok(true)));
    assert_eq!(read_end(&engine, &mut stream), Event::Cancelled(1));
}

/// A stream is dropped while the channel for its cancel is full: the request ends all the same.
pub(crate) fn drop_a_stream_while_commands_are_full() {
    let (engine, _) = start(1, 1, 0);
    let (first, mut second) = (submit(&engine, ENDLESS), submit(&engine, ENDLESS));
    let (other, id) = (engine.clone(), second.id());
    let canceller = thread::spawn(move || {
        while other.cancel(id).is_err() {
            thread::yield_now();
        }
    });
    drop(first);
    canceller.join().unwrap();
    let (_, ends) = read(&mut second);
    assert_eq!(ends, [Event::Cancelled(id)]);
    while engine.in_flight() > 0 {
        thread::yield_now();
    }
}

/// A reader that falls behind is told its end, whatever it had room for.
pub(crate) fn read_late() {
    let (engine, _) = start(2, 1, 0);
    let mut stream = submit(&engine, Ask { events: 3, ends: 2 });
    let (said, ends) = read(&mut stream);
    assert!(said <= 3);
    let all = said == 3 && ends == [Event::Done(1); 2];
    assert!(all || ends == [Event::Cancelled(1); 2], "cut short: {said} and {ends:?}");
    assert_eq!(engine.in_flight(), 0);
}

/// Two handles shut down while a request runs and a cancel may fill the channel: both find the engine gone.
pub(crate) fn shut_down_twice() {
    let (engine, alive) = start(1, 1, 0);
    let (mut stream, dropped) = (submit(&engine, ENDLESS), submit(&engine, ENDLESS));
    let (other, also) = (engine.clone(), alive.clone());
    let second = thread::spawn(move || {
        other.shut_down();
        assert!(!also.there(), "it has not waited");
    });
    drop(dropped);
    engine.shut_down();
    assert!(!alive.there(), "it has not waited");
    assert_eq!(engine.in_flight(), 0);
    assert_eq!(read(&mut stream).1, [Event::Cancelled(1)]);
    second.join().unwrap();
}

/// The engine dies with a reader and a submitter waiting: both hear, and nothing is in flight.
pub(crate) fn die() {
    let (engine, alive) = start(2, 2, 2);
    let other = engine.clone();
    let submitter = thread::spawn(move || match block_on(other.submit(events(3))) {
        Ok(mut stream) => assert_eq!(read(&mut stream).1, [], "nobody can have told it"),
        Err(answer) => assert!(matches!(answer, NoAnswer::ShutDown)),
    });
    if let Ok(mut stream) = block_on(engine.submit(events(3))) {
        assert_eq!(read(&mut stream).1, []);
        assert_eq!(engine.in_flight(), 0, "in flight in a dead engine");
    }
    submitter.join().unwrap();
    engine.shut_down();
    assert_eq!(engine.in_flight(), 0, "in flight in a dead engine");
    assert!(!alive.there());
}

/// A refusal is told as one, beside a request that runs.
pub(crate) fn refuse() {
    let (engine, _) = start(2, 3, 0);
    let other = engine.clone();
    let good = thread::spawn(move || {
        let mut stream = submit(&other, events(1));
        assert_eq!(read(&mut stream), (1, vec![Event::Done(1)]));
    });
    assert!(matches!(block_on(engine.submit(BAD)), Err(NoAnswer::Refused(Refused))));
    good.join().unwrap();
    assert_eq!(engine.in_flight(), 0);
}

/// Whoever submits goes away before the answer: the request does not run on.
pub(crate) fn give_up_submitting() {
    let (engine, _) = start(2, 1, 0);
    let mut submitting = Box::pin(engine.submit(ENDLESS));
    let polled = submitting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(stream) = polled {
        assert!(stream.is_ok());
    }
    drop(submitting);
    let mut after = submit(&engine, events(1));
    read(&mut after);
    while engine.in_flight() > 0 {
        thread::yield_now();
    }
}

/// The last handle goes, a stream stays: the request runs to its end, then the engine goes too.
pub(crate) fn leave_a_stream() {
    let (engine, alive) = start(2, 3, 0);
    let mut stream = submit(&engine, events(2));
    drop(engine);
    assert_eq!(read(&mut stream), (2, vec![Event::Done(1)]));
    drop(stream);
    while alive.there() {
        thread::yield_now();
    }
}

/// The last handle goes while the engine is paused: nobody could end the pause, so it ends.
pub(crate) fn leave_a_stream_in_a_pause() {
    let (engine, alive) = start(3, 3, 0);
    assert!(engine.pause(true).is_ok());
    let mut stream = submit(&engine, events(1));
    let other = engine.clone();
    let leaver = thread::spawn(move || drop(other));
    drop(engine);
    assert_eq!(read(&mut stream), (1, vec![Event::Done(1)]));
    leaver.join().unwrap();
    drop(stream);
    while alive.there() {
        thread::yield_now();
    }
}

/// Many handles, each with requests of all sorts, that read, cancel, drop and shut down as `choose` says.
pub(crate) fn crowd(choose: fn(usize) -> usize, dies: bool) {
    let dies = if dies { 1 + choose(12) } else { 0 };
    let (engine, alive) = start(1 + choose(3), 1 + choose(2), dies);
    let others: Vec<_> = (0..4)
        .map(|_| {
            let engine = engine.clone();
            thread::spawn(move || {
                (0..3).for_each(|_| one_of_many(&engine, choose, dies > 0));
                if choose(3) == 0 {
                    engine.shut_down();
                }
            })
        })
        .collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    while engine.in_flight() > 0 {
        thread::yield_now();
    }
    engine.shut_down();
    assert!(!alive.there());
}

/// One request of a crowd. Whether or not it is dropped, cancelled or read, it is answered, and told all its ends unless
/// the engine dies.
fn one_of_many(engine: &Handle<Fake>, choose: fn(usize) -> usize, dies: bool) {
    let ask = match choose(5) {
        0 => BAD,
        1 => ENDLESS,
        n => Ask { events: n, ends: 1 + choose(2) },
    };
    let mut stream = match block_on(engine.submit(ask)) {
        Ok(stream) => stream,
        Err(NoAnswer::Refused(Refused)) => return assert_eq!(ask.ends, 0),
        Err(NoAnswer::Overloaded | NoAnswer::ShutDown) => return,
    };
    match choose(4) {
        0 => return,
        1 => {
            let _ = engine.cancel(stream.id());
        }
        _ => {}
    }
    if ask.events == ENDLESS.events {
        return;
    }
    if choose(4) == 0 {
        block_on(stream.next());
        return;
    }
    let (_, ends) = read(&mut stream);
    assert!(ends.len() == ask.ends || dies && ends.len() < ask.ends, "cut short: {ends:?}");
}
