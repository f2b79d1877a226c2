//! The command line: `floe serve`, `config`, `topics`, `tables`, `segments`, `doctor`, `restore`,
//! `cost`, `version`.
//!
//! [`run`] parses, does what was asked and returns the exit code: 0 for success, 1 for failure, 2
//! for wrong usage, which a wrong configuration is too. Results go to standard output, everything
//! else to standard error; an error is one line that begins with `floe:`. What needs the whole
//! broker is reached through [`Assembly`], so that nothing here knows how one is put together.

mod arguments;
mod assembly;
mod client;
mod config_command;
mod cost;
mod doctor;
mod logging;
mod progress;
mod relocate;
mod remote;
mod restore;
mod runtime;
mod segments;
mod serve;
mod settings;
mod tables;
#[cfg(test)]
mod tests;

pub use assembly::{Assembly, Backup, Deletion, Endpoints, Reconciliation, Serving, SnapshotView};

use crate::text;
use arguments::{Command, CommandLine, SegmentsCommand};
use clap::Parser;
use floe_env::Error;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

/// Exit code of success.
const SUCCESS: u8 = 0;
/// Exit code of a failure.
const FAILURE: u8 = 1;
/// Exit code of wrong usage or configuration.
const USAGE: u8 = 2;

/// Why a command ended without success.
#[derive(Debug)]
enum Failure {
    /// What was asked for is wrong.
    Usage(Error),
    /// It failed.
    Failed(Error),
    /// It failed, and has said so already.
    Reported,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// How a command ended.
type Outcome = Result<(), Failure>;

/// Runs the command line `arguments`, the program's name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>, assembly: Arc<dyn Assembly>) -> ExitCode {
    let line = match CommandLine::try_parse_from(arguments) {
        Ok(line) => line,
        Err(refused) => {
            // A closed standard output leaves nobody to tell.
            let _ = refused.print();
            return ExitCode::from(if refused.use_stderr() { USAGE } else { SUCCESS });
        }
    };
    let outcome = match line.command {
        Command::Serve(arguments) => serve::run(arguments, assembly),
        Command::Config(arguments) => config_command::run(arguments),
        Command::Topics(arguments) => remote::topics(arguments),
        Command::Tables(arguments) => tables::run(arguments, assembly),
        Command::Segments(SegmentsCommand::Inspect(arguments)) => segments::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments, assembly),
        Command::Restore(arguments) => restore::run(arguments, assembly),
        Command::Cost(arguments) => cost::run(arguments),
        Command::Version => print(&format!("floe {}\n", env!("CARGO_PKG_VERSION"))),
    };
    let (error, code) = match outcome {
        Ok(()) => return ExitCode::from(SUCCESS),
        Err(Failure::Usage(error)) => (error, USAGE),
        Err(Failure::Failed(error)) => (error, FAILURE),
        Err(Failure::Reported) => return ExitCode::from(FAILURE),
    };
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(std::io::stderr(), "floe: {}", text::plain(&error.to_string()));
    ExitCode::from(code)
}

/// Prints a result. A reader that has gone away, such as `head`, is no failure.
fn print(result: &str) -> Outcome {
    match std::io::stdout().write_all(result.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::unavailable("cannot write the result").with_source(error).into())
        }
        _ => Ok(()),
    }
}

/// Prints a result as JSON.
fn print_json(result: &impl serde::Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(result)
        .map_err(|error| Error::bug("cannot write JSON").with_source(error))?;
    print(&format!("{text}\n"))
}
