//! `floe tables relocate`: the store was moved, and tables name their files by where these were.

use super::arguments::RelocateArguments;
use super::assembly::Assembly;
use super::{Outcome, print, progress, runtime};
use std::sync::Arc;

pub(super) fn run(arguments: RelocateArguments, assembly: Arc<dyn Assembly>) -> Outcome {
    let config = arguments.settings.config()?;
    let relocating = async |env| assembly.relocate(&env, &config, &progress::show).await;
    let done = runtime::run_command(relocating)?;
    progress::clear();
    let done = done?;
    print(&format!("{done}\n"))
}
