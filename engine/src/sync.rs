//! What the protocol between handles and engine thread stands on. The protocol names only what is here, so that its
//! tests can put models of these channels in their place and walk through the schedules (`tests/tests/protocol`): a
//! model checker can't see inside crossbeam or tokio.

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::AtomicBool;
pub(crate) use std::thread;

pub(crate) use crossbeam::channel;
pub(crate) use dashmap::DashMap;
pub(crate) use tokio::sync::{mpsc, oneshot};
