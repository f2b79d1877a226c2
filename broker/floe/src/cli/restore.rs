//! `floe restore`: the metadata store was put back from a backup by its own tools. A new
//! incarnation closes all that brokers of the lost part may still do, and nothing is deleted until
//! `floe doctor --reconcile`.

use super::arguments::RestoreArguments;
use super::assembly::Assembly;
use super::{Outcome, print, runtime};
use std::sync::Arc;

pub(super) fn run(arguments: RestoreArguments, assembly: Arc<dyn Assembly>) -> Outcome {
    let config = arguments.settings.config()?;
    let done = runtime::run_command(async |env| assembly.restore(&env, &config).await)??;
    print(&format!(
        "{done} has begun. Nothing is deleted from the object store now: `floe doctor` shows what \
         is lost,\nand `floe doctor --reconcile` lets what nobody names be deleted.\n"
    ))
}
