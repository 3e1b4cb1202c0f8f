//! B18: a long prompt does not starve decoding, nor does the catching up of a draft lane.

use std::sync::{Arc, Mutex};

use redline::spec::Drafter;
use redline::{DraftLength, DraftModel, Event, RequestId};
use redline_tests::requests::{greedy, prompt};
use redline_tests::rig::{Rig, assert_clean, model};
use redline_tests::runners::Watched;
use redline_tests::words::VOCAB;

const BUDGET: usize = 128;
const LONG: usize = 1500;

/// Takes the rows of the passes so far.
fn taken(rows: &Arc<Mutex<Vec<usize>>>) -> usize {
    rows.lock().unwrap().drain(..).sum()
}

/// Four decode steadily when a long prompt comes. Until it is done, and its lane caught up, every step has a token for
/// each of the four, and no step has more rows than its budget, drafts and fills included. (A draft counts once, as a row
/// of the target; that the draft model is fed all but the last of them comes on top.)
#[test]
fn b18_decoding_goes_on_in_every_step_beside_a_long_prompt() {
    for (drafts, length) in [(false, 0), (true, 0), (true, 4)] {
        let (target, draft) = (Watched::new(model(0.0, 1)), Watched::new(model(0.1, 1)));
        let (target_rows, draft_rows) = (target.rows.clone(), draft.rows.clone());
        let model = DraftModel::new("watched", Box::new(draft), VOCAB);
        let rig = Rig {
            target: Box::new(target),
            drafter: drafts.then(|| Box::new(model) as Box<dyn Drafter>),
            length: DraftLength::Fixed(length),
            token_budget: BUDGET,
            ..Rig::default()
        };
        let mut engine = rig.build();
        let steady: Vec<_> =
            (0..4).map(|i| engine.submit(greedy(&prompt(i, 12), 400)).unwrap()).collect();
        while engine.step().len() < 4 {}
        let long = engine.submit(greedy(&prompt(9, LONG), 40)).unwrap();
        let _ = (taken(&target_rows), taken(&draft_rows));
        let (mut beside, mut filled, mut ended) = (0, 0, false);
        while !ended {
            let events = engine.step();
            engine.audit().unwrap();
            let told = |id: RequestId| events.iter().any(|event| event.id() == id);
            assert!(steady.iter().all(|&id| told(id)), "step {beside} leaves somebody out");
            let (target_rows, draft_rows) = (taken(&target_rows), taken(&draft_rows));
            let most = BUDGET + 5 * length.saturating_sub(1);
            assert!(target_rows + draft_rows <= most, "{target_rows} and {draft_rows} rows");
            beside += 1;
            filled += draft_rows;
            ended = events.iter().any(|e| matches!(e, Event::Finished { id, .. } if *id == long));
        }
        // It is not starved either: four rounds with their drafts and fills leave the rest of a step to it.
        let most = LONG / (BUDGET - 4 * 11) + 42;
        assert!((LONG / BUDGET..=most).contains(&beside), "{beside} steps");
        assert_eq!(filled > LONG, length > 0, "the long lane was caught up: {filled} rows");
        for id in steady {
            engine.cancel(id);
        }
        engine.run(|_| {});
        assert_clean(&engine);
    }
}
