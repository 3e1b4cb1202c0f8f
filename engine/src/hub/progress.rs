//! How a pull tells how far it is.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What a pull reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Another process is pulling the same model; this one waits for it.
    Waiting {
        /// The model.
        name: &'a str,
    },
    /// A pull begins.
    Start {
        /// The model.
        name: &'a str,
        /// Bytes of the whole file.
        bytes: u64,
        /// Bytes that an earlier pull already fetched.
        resumed: u64,
    },
    /// About how many bytes of the whole file are here.
    At {
        /// That many.
        bytes: u64,
    },
    /// The file is complete and verified.
    Done {
        /// The model.
        name: &'a str,
        /// Where it is.
        path: &'a Path,
    },
}

/// Receives a pull's progress, and may stop it.
pub trait Progress {
    /// Something happened. Called often; should return at once.
    fn report(&mut self, event: &Event<'_>);

    /// Asked several times a second; `true` ends the pull with [`super::HubError::Cancelled`].
    fn cancelled(&self) -> bool {
        false
    }
}

/// Says nothing.
impl Progress for () {
    fn report(&mut self, _event: &Event<'_>) {}
}

/// A progress bar on standard error; plain lines, a few per pull, if that is no terminal.
#[derive(Debug, Default)]
pub struct TerminalProgress {
    bar: Option<ProgressBar>,
    name: String,
    bytes: u64,
    next_line: u64,
}

impl TerminalProgress {
    /// Shows nothing before the first event.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn start(&mut self, name: &str, bytes: u64, resumed: u64) {
        name.clone_into(&mut self.name);
        self.bytes = bytes;
        self.next_line = resumed + bytes / 4;
        if io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
            let template = "{msg} {bar:32} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(self.name.clone());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar.set_position(resumed);
            bar.reset_eta();
            self.bar = Some(bar);
        } else if resumed > 0 {
            line(&format!("pulling {name}: {} MiB, {} MiB already here", mib(bytes), mib(resumed)));
        } else {
            line(&format!("pulling {name}: {} MiB", mib(bytes)));
        }
    }

    fn at(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(bytes);
        } else if bytes >= self.next_line && bytes < self.bytes {
            self.next_line = bytes + self.bytes / 4;
            line(&format!("pulling {}: {} of {} MiB", self.name, mib(bytes), mib(self.bytes)));
        }
    }
}

impl Progress for TerminalProgress {
    fn report(&mut self, event: &Event<'_>) {
        match *event {
            Event::Waiting { name } => line(&format!("waiting for another pull of {name}")),
            Event::Start { name, bytes, resumed } => self.start(name, bytes, resumed),
            Event::At { bytes } => self.at(bytes),
            Event::Done { name, path } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
                line(&format!("{name} is in {}", path.display()));
            }
        }
    }
}

impl Drop for TerminalProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

/// Progress that nobody can see is no reason to fail.
fn line(text: &str) {
    drop(writeln!(io::stderr(), "redline: {text}"));
}

fn mib(bytes: u64) -> u64 {
    bytes / (1024 * 1024)
}
