//! The log: one line an event, to standard error, without colours.

use super::Failure;
use floe_env::Error;
use tracing_subscriber::EnvFilter;

/// Starts the log with a filter such as `info,floe_log=debug`.
pub(super) fn start(filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        let message = format!("setting log.filter: '{filter}' is no log filter");
        Failure::Usage(Error::invalid(message).with_source(error))
    })?;
    tracing_subscriber::fmt()
        .compact()
        .with_ansi(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init()
        .map_err(|error| Failure::Failed(Error::bug(format!("cannot start the log: {error}"))))
}
