//! The `floe` command.

use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    floe::cli::run(std::env::args_os(), Arc::new(floe::node::Node))
}
