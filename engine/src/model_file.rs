//! A model file that has been found and whose header has been read; its weights are read when it becomes a runner.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cores;
use crate::gguf::Header;
use crate::hub::{self, TerminalProgress};
use crate::load_error::LoadError;
use crate::load_options::Backend;
use crate::model::load::{FileSource, TensorSource};
use crate::model::slim::{Report, Slim, SlimSource};
use crate::model::{Config as ModelConfig, LoadError as ModelError};
use crate::model_runner::{CandleRunner, CpuRunner, RunOptions};
use crate::runner::ModelRunner;
use crate::text::Tokenizer;

/// A model file.
pub(crate) struct ModelFile {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    file: std::fs::File,
}

/// What computes a model, with how many threads.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) backend: Backend,
    /// `None`: one per physical core.
    pub(crate) threads: Option<usize>,
}

impl ModelFile {
    pub(crate) fn open(name: &str) -> Result<Self, LoadError> {
        let path = hub::resolve(name, &mut TerminalProgress::new())?;
        match Header::open(&path) {
            Ok((header, file)) => Ok(Self { path, header, file }),
            Err(source) => Err(LoadError::Gguf { path, source }),
        }
    }

    pub(crate) fn tokenizer(&self) -> Result<Arc<Tokenizer>, LoadError> {
        Tokenizer::from_gguf(&self.header)
            .map(Arc::new)
            .map_err(|source| LoadError::Tokenizer { path: self.path.clone(), source })
    }

    /// The model as it is.
    pub(crate) fn runner(self, machine: Machine) -> Result<Box<dyn ModelRunner>, LoadError> {
        let Self { path, header, file } = self;
        build(&header, &mut FileSource::new(&header, file), machine)
            .map_err(|source| LoadError::Model { path, source })
    }

    /// The model with smaller weights.
    pub(crate) fn slim_runner(
        self,
        machine: Machine,
        slim: Slim,
    ) -> Result<Box<dyn ModelRunner>, LoadError> {
        let Self { path, header, file } = self;
        let mut whole = FileSource::new(&header, file);
        let slim = Slim { threads: machine.threads(), ..slim };
        let report = progress(slim.quant.map(|quant| quant.name()));
        let mut source = SlimSource::new(&mut whole, slim).reporting(report);
        build(&header, &mut source, machine).map_err(|source| LoadError::Model { path, source })
    }
}

fn build(
    header: &Header,
    source: &mut dyn TensorSource,
    machine: Machine,
) -> Result<Box<dyn ModelRunner>, ModelError> {
    let config = ModelConfig::from_header(header)?;
    let options = RunOptions { threads: machine.threads(), ..RunOptions::default() };
    Ok(match machine.backend {
        Backend::Cpu => Box::new(CpuRunner::build(config, source, options)?),
        Backend::Candle => {
            let device = candle_core::Device::Cpu;
            Box::new(CandleRunner::build(config, source, &device, options.cache)?)
        }
    })
}

impl Machine {
    fn threads(self) -> usize {
        self.threads.map_or_else(cores::physical, cores::at_most)
    }
}

/// Time after which somebody who waits should be told why.
const PATIENCE: Duration = Duration::from_secs(2);

/// Says on standard error how far re-quantising is, if it takes long: a bar, or a line if that is no terminal.
fn progress<'a>(quant: Option<&'static str>) -> Report<'a> {
    let Some(quant) = quant else { return Box::new(|_, _| ()) };
    let (started, mut told, mut bar) = (Instant::now(), false, None::<ProgressBar>);
    Box::new(move |done, all| {
        if started.elapsed() < PATIENCE {
            return;
        }
        if !told {
            told = true;
            if std::io::stderr().is_terminal() {
                let target = ProgressDrawTarget::stderr();
                let new = ProgressBar::with_draw_target(Some(all as u64), target);
                if let Ok(style) = ProgressStyle::with_template("{msg} {bar:32} {pos}/{len} {eta}")
                {
                    new.set_style(style);
                }
                bar = Some(new.with_message(format!("re-quantising to {quant}")));
            } else {
                // Progress that nobody can see is no reason to fail.
                let _ = writeln!(
                    std::io::stderr(),
                    "redline: re-quantising to {quant}, {done} of {all} tensors so far"
                );
            }
        }
        if let Some(bar) = &bar {
            bar.set_position(done as u64);
            if done >= all {
                bar.finish_and_clear();
            }
        }
    })
}
