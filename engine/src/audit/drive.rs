//! Requests through an engine: a few more than can run, each tagged, until all have ended or somebody says stop.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::{AuditError, Watcher};
use crate::engine::Engine;
use crate::request::{Event, FinishReason, GenerateRequest, RequestId, RequestOutput};

/// A request and what the audit calls it.
pub(super) struct Job<T> {
    pub(super) tag: T,
    /// The prompt's name, for errors.
    pub(super) prompt: String,
    pub(super) request: GenerateRequest,
}

/// Requests in the engine at a time.
const WINDOW: usize = 16;

/// Runs all `jobs`, and hands each output to `on_output`, which may end it. False if the watcher ended it.
///
/// # Errors
/// A request that is refused or fails, and whatever `on_output` says.
pub(super) fn drive<T>(
    engine: &mut Engine,
    jobs: impl IntoIterator<Item = Job<T>>,
    watcher: &mut dyn Watcher,
    mut on_output: impl FnMut(
        T,
        &RequestOutput,
        &mut dyn Watcher,
    ) -> Result<ControlFlow<()>, AuditError>,
) -> Result<bool, AuditError> {
    let mut jobs = jobs.into_iter();
    let mut running: BTreeMap<RequestId, (T, String)> = BTreeMap::new();
    let mut goes_on = true;
    loop {
        goes_on &= !watcher.stop();
        while goes_on && running.len() < WINDOW {
            let Some(Job { tag, prompt, request }) = jobs.next() else { break };
            match engine.submit(request) {
                Ok(id) => drop(running.insert(id, (tag, prompt))),
                Err(source) => {
                    let error = AuditError::Refused { prompt, source: Box::new(source) };
                    return Err(cancel(engine, &running, error));
                }
            }
        }
        if !goes_on {
            cancel_all(engine, &running);
        }
        if !engine.has_work() {
            return Ok(goes_on);
        }
        for event in engine.step() {
            let Event::Finished { id, output, .. } = event else { continue };
            let Some((tag, prompt)) = running.remove(&id) else { continue };
            match output.finish_reason {
                FinishReason::Cancelled => {}
                FinishReason::Error | FinishReason::Timeout => {
                    let message = output.error.unwrap_or_default();
                    let error = AuditError::Failed { prompt, message };
                    return Err(cancel(engine, &running, error));
                }
                FinishReason::Stop | FinishReason::Length if goes_on => {
                    match on_output(tag, &output, watcher) {
                        Ok(ControlFlow::Continue(())) => {}
                        // Enough has been seen: the rest need not be written.
                        Ok(ControlFlow::Break(())) => {
                            cancel_all(engine, &running);
                            engine.run(drop);
                            return Ok(true);
                        }
                        Err(error) => return Err(cancel(engine, &running, error)),
                    }
                }
                FinishReason::Stop | FinishReason::Length => {}
            }
        }
    }
}

/// Leaves the engine empty.
fn cancel<T>(
    engine: &mut Engine,
    running: &BTreeMap<RequestId, T>,
    error: AuditError,
) -> AuditError {
    cancel_all(engine, running);
    engine.run(drop);
    error
}

fn cancel_all<T>(engine: &mut Engine, running: &BTreeMap<RequestId, T>) {
    for &id in running.keys() {
        engine.cancel(id);
    }
}
