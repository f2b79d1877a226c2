//! `floe config`: shows the settings. A configuration that breaks a rule between settings is shown
//! all the same, and then refused, because that is when one wants to see it.

use super::arguments::ConfigArguments;
use super::{Failure, Outcome, print, print_json};
use crate::config::{Config, page};
use crate::metrics::Metrics;

pub(super) fn run(arguments: ConfigArguments) -> Outcome {
    if arguments.markdown {
        return print(&page::markdown());
    }
    if arguments.metrics {
        return print(&Metrics::new().markdown());
    }
    let resolved = arguments.settings.resolve()?;
    if arguments.json {
        print_json(&page::json(&resolved))?;
    } else {
        print(&page::listing(&resolved))?;
    }
    Config::from_resolved(&resolved).map(drop).map_err(Failure::Usage)
}
