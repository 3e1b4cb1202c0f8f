//! The async handle: order, ends, cancelling, readers that do not read, shutting down.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redline::{
    AsyncEngine, AsyncError, EVENTS_BUFFERED, Event, FinishReason, GenerateRequest, Prompt,
    RequestId, RequestStream,
};
use redline_tests::patience::{idle, slow, soon};
use redline_tests::requests::{greedy, mixed};
use redline_tests::rig::{Draft, Rig, Said, run};
use redline_tests::runners::Table;
use redline_tests::words::VOCAB;

#[tokio::test]
async fn events_come_in_order_and_end_once() {
    let requests = mixed(41, 8);
    let expected = run(&mut Rig::default().build(), &requests);
    let rig = Rig { drafter: Draft::Model(0.2).drafter(1), ..Rig::default() };
    let engine = AsyncEngine::spawn(rig.build()).unwrap();
    let mut streams = Vec::new();
    for request in &requests {
        streams.push(soon(engine.submit(request.clone())).await.unwrap());
    }
    for (mut stream, expected) in streams.into_iter().zip(&expected) {
        let (mut ids, mut text) = (Vec::new(), String::new());
        let output = loop {
            match soon(stream.next()).await.expect("an end") {
                Event::Tokens { id, tokens, .. } => {
                    assert_eq!(id, stream.id());
                    ids.extend(tokens.iter().map(|token| token.id));
                    tokens.iter().for_each(|token| text.push_str(&token.text));
                }
                Event::Finished { output, .. } => break output,
            }
        };
        assert!(soon(stream.next()).await.is_none(), "nothing after the end");
        assert_eq!((&ids, &text), (&output.token_ids, &output.text));
        assert_eq!(Said::from(&*output), Said::from(expected));
    }
    assert_eq!(engine.in_flight(), 0);
    soon(engine.shut_down()).await;
}

#[tokio::test]
async fn dropping_a_stream_frees_its_blocks() {
    let (rig, passes, _) = slow(200);
    // 41 blocks: whoever runs has the pool for itself.
    let engine = AsyncEngine::spawn(Rig { blocks: 41, ..rig }.build()).unwrap();
    let long = || greedy(&[1, 2, 3], 1300);
    let mut running = soon(engine.submit(long())).await.unwrap();
    soon(running.next()).await.unwrap();
    let waiting = soon(engine.submit(greedy(&vec![7; 1200], 100))).await.unwrap();
    assert_eq!(engine.in_flight(), 2);
    drop(running);
    drop(waiting);
    idle(&engine).await;
    let before = passes.load(Ordering::Relaxed);
    assert!(before < 1000, "{before} passes: it ran on");
    let output = soon(engine.submit(greedy(&vec![9; 1290], 20))).await.unwrap();
    let output = soon(output.finish()).await.unwrap();
    assert_eq!((output.token_ids.len(), output.finish_reason), (20, FinishReason::Length));
}

#[tokio::test]
async fn a_reader_that_never_reads_is_cancelled_alone() {
    let (rig, _, _) = slow(0);
    let engine = AsyncEngine::spawn(rig.build()).unwrap();
    let mut silent = soon(engine.submit(greedy(&[1], 2000))).await.unwrap();
    let other = soon(engine.submit(greedy(&[5], 900))).await.unwrap();
    let output = soon(other.finish()).await.unwrap();
    assert_eq!(output.token_ids.len(), 900);
    idle(&engine).await;
    let (mut events, mut end) = (0, None);
    while let Some(event) = soon(silent.next()).await {
        match event {
            Event::Tokens { .. } => events += 1,
            Event::Finished { output, .. } => end = Some(output.finish_reason),
        }
    }
    // It learns how it ended all the same: a place is kept for the last event.
    assert_eq!((events, end), (EVENTS_BUFFERED, Some(FinishReason::Cancelled)));
    let after = soon(engine.submit(greedy(&[9], 30))).await.unwrap();
    assert_eq!(soon(after.finish()).await.unwrap().token_ids.len(), 30);
}

/// How far a reader may be behind is counted per sample: what is in time for one sample must be for many.
#[tokio::test]
async fn every_sample_has_room_for_its_events() {
    let (rig, _, _) = slow(0);
    let engine = AsyncEngine::spawn(rig.build()).unwrap();
    let request = GenerateRequest { samples: 8, ..greedy(&[1], EVENTS_BUFFERED / 8 + 40) };
    let stream = soon(engine.submit(request)).await.unwrap();
    // Nobody reads while it runs.
    idle(&engine).await;
    let outputs = soon(stream.finish_all()).await;
    let ends: Vec<_> = outputs.iter().map(|output| output.finish_reason).collect();
    assert_eq!(ends, [FinishReason::Length; 8]);
}

#[tokio::test]
async fn cancel_by_id() {
    let (rig, _, _) = slow(200);
    let engine = AsyncEngine::spawn(rig.build()).unwrap();
    assert!(!engine.cancel(RequestId(7)).unwrap(), "nobody there");
    let mut stream = soon(engine.submit(greedy(&[1], 3000))).await.unwrap();
    let id = stream.id();
    soon(stream.next()).await.unwrap();
    assert!(engine.cancel(id).unwrap());
    let output = soon(stream.finish()).await.unwrap();
    assert_eq!(output.finish_reason, FinishReason::Cancelled);
    let said: Vec<_> = (2..).take(output.token_ids.len()).map(|n| n % 62).collect();
    assert_eq!(output.token_ids, said);
    assert!(!engine.cancel(id).unwrap(), "it has ended");
}

#[tokio::test]
async fn two_hundred_at_once() {
    let requests = mixed(43, 200);
    let expected = run(&mut Rig::default().build(), &requests);
    let rig = Rig { drafter: Draft::Ngram.drafter(1), blocks: 24, seqs: 16, ..Rig::default() };
    let engine = AsyncEngine::spawn(rig.build()).unwrap();
    let one = |request: GenerateRequest| {
        let engine = engine.clone();
        async move { engine.submit(request).await.unwrap().finish().await.unwrap() }
    };
    let tasks: Vec<_> = requests.into_iter().map(|request| tokio::spawn(one(request))).collect();
    for (task, expected) in tasks.into_iter().zip(&expected) {
        assert_eq!(Said::from(&soon(task).await.unwrap()), Said::from(expected));
    }
    assert_eq!(engine.in_flight(), 0);
}

#[tokio::test]
async fn shutting_down_ends_every_stream() {
    let (rig, passes, alive) = slow(200);
    let engine = AsyncEngine::spawn(rig.build()).unwrap();
    let mut streams: Vec<RequestStream> = Vec::new();
    for n in 1..30 {
        streams.push(soon(engine.submit(greedy(&[n], 3000))).await.unwrap());
    }
    soon(streams[0].next()).await.unwrap();
    soon(engine.shut_down()).await;
    assert_eq!(Arc::strong_count(&alive), 1, "the engine is gone");
    assert!(passes.load(Ordering::Relaxed) < 2000);
    for stream in streams {
        let output = soon(stream.finish()).await.expect("it is told its end");
        assert_eq!(output.finish_reason, FinishReason::Cancelled);
    }
    assert_eq!(engine.in_flight(), 0);
    let refused = soon(engine.submit(greedy(&[1], 3))).await;
    assert!(matches!(refused, Err(AsyncError::ShutDown)));
    soon(engine.shut_down()).await;
}

/// The shut-down is on its way while the engine computes; what is submitted behind it is answered all the same.
#[tokio::test]
async fn a_request_behind_the_shut_down_is_answered() {
    // The first pass does not end before the gate opens, so that commands pile up.
    let (gate, closed) = std::sync::mpsc::channel::<()>();
    let target = Table::new(VOCAB, 64, move |_, logits| {
        let _ = closed.recv();
        logits[1] = 1.0;
    });
    let engine = AsyncEngine::spawn(Rig { target: Box::new(target), ..Rig::default() }.build());
    let engine = engine.unwrap();
    let running = soon(engine.submit(greedy(&[1], 50))).await.unwrap();
    let closing = engine.clone();
    let closing = tokio::spawn(async move { closing.shut_down().await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let submit = |n| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.submit(greedy(&[n], 3)).await })
    };
    let behind: Vec<_> = (0..3).map(submit).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(gate);
    for answer in behind {
        // One that overtook the shut-down runs, and is cancelled by it.
        match soon(answer).await.unwrap() {
            Ok(stream) => assert!(soon(stream.finish()).await.is_some()),
            Err(refused) => assert!(matches!(refused, AsyncError::ShutDown)),
        }
    }
    soon(closing).await.unwrap();
    assert!(soon(running.finish()).await.is_some(), "it is told its end");
}

#[tokio::test]
async fn without_handles_the_engine_ends() {
    let (rig, _, alive) = slow(0);
    let engine = AsyncEngine::spawn(rig.build()).unwrap();
    let stream = soon(engine.submit(greedy(&[1], 100))).await.unwrap();
    drop(engine);
    // The stream keeps it going.
    assert_eq!(soon(stream.finish()).await.unwrap().token_ids.len(), 100);
    soon(async {
        while Arc::strong_count(&alive) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn refused_requests_leave_nothing() {
    let (rig, _, _) = slow(0);
    let engine = AsyncEngine::spawn(Rig { blocks: 4, ..rig }.build()).unwrap();
    for (request, words) in [
        (greedy(&[], 3), "the prompt is empty"),
        (greedy(&[64], 3), "is not in the vocabulary"),
        (greedy(&[1], 0), "max_tokens is 0"),
        (greedy(&[1], 200), "the request needs up to 1792 bytes of KV cache, there are 1024"),
        (GenerateRequest::new(Prompt::Messages(Vec::new())), "no chat template"),
    ] {
        match soon(engine.submit(request)).await {
            Err(AsyncError::Refused(refused)) => {
                assert!(refused.to_string().contains(words), "{refused}");
            }
            Err(other) => panic!("{other}"),
            Ok(stream) => panic!("{} was taken in", stream.id()),
        }
    }
    assert_eq!(engine.in_flight(), 0);
    let stream = soon(engine.submit(greedy(&[1], 5))).await.unwrap();
    assert_eq!(soon(stream.finish()).await.unwrap().token_ids, [2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn several_samples_come_over_one_stream() {
    let request = GenerateRequest { samples: 3, ..mixed(42, 3).remove(2) };
    let expected = run(&mut Rig::default().build(), std::slice::from_ref(&request));
    let engine = AsyncEngine::spawn(Rig::default().build()).unwrap();
    let mut stream = soon(engine.submit(request.clone())).await.unwrap();
    let mut ends = 0;
    while let Some(event) = soon(stream.next()).await {
        ends += usize::from(matches!(event, Event::Finished { .. }));
        // Before the last end is read the engine may have ended it already, or not.
        assert!(ends < 3 || engine.in_flight() == 0);
    }
    assert_eq!(ends, 3);
    let stream = soon(engine.submit(request)).await.unwrap();
    let outputs = soon(stream.finish_all()).await;
    let said = |outputs: &[_]| outputs.iter().map(Said::from).collect::<Vec<_>>();
    assert_eq!(said(&outputs), said(&expected));
    soon(engine.shut_down()).await;
}

#[tokio::test]
async fn who_drains_refuses_and_finishes() {
    let (rig, _, alive) = slow(500);
    let engine = AsyncEngine::spawn(rig.build()).unwrap();
    let mut stream = soon(engine.submit(greedy(&[1], 200))).await.unwrap();
    let draining = engine.clone();
    let drained = tokio::spawn(async move { draining.drain().await });
    soon(async {
        while !matches!(engine.submit(greedy(&[1], 1)).await, Err(AsyncError::ShutDown)) {}
    })
    .await;
    // Whether it still runs by now is up to the machine; it is never cut short.
    let mut tokens = 0;
    while let Some(event) = soon(stream.next()).await {
        match event {
            Event::Tokens { tokens: new, .. } => tokens += new.len(),
            Event::Finished { output, .. } => {
                assert_eq!(output.finish_reason, FinishReason::Length)
            }
        }
    }
    assert_eq!(tokens, 200);
    soon(drained).await.unwrap();
    assert_eq!(Arc::strong_count(&alive), 1, "the engine is gone");
}

#[tokio::test]
async fn a_paused_engine_computes_nothing_until_it_goes_on() {
    let (rig, passes, _) = slow(0);
    let engine = AsyncEngine::spawn(rig.build()).unwrap();
    engine.pause().unwrap();
    let stream = soon(engine.submit(greedy(&[1], 4))).await.unwrap();
    let cancelled = soon(engine.submit(greedy(&[2], 4))).await.unwrap();
    assert!(engine.cancel(cancelled.id()).unwrap());
    let output = soon(cancelled.finish()).await.unwrap();
    assert_eq!(output.finish_reason, FinishReason::Cancelled);
    assert_eq!(passes.load(Ordering::SeqCst), 0);
    engine.resume().unwrap();
    assert_eq!(soon(stream.finish()).await.unwrap().token_ids, [2, 3, 4, 5]);
    soon(engine.shut_down()).await;
}
