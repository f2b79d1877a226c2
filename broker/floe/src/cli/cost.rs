//! `floe cost`: what a month costs at given prices, from what was measured. Asks nobody.

mod basis;
mod bill;
mod page;
mod prices;

use super::{Failure, Outcome, print, print_json};
use basis::Basis;
use bill::{Bill, Workload};
use clap::Args;
use floe_env::{Error, Result};
use prices::Prices;
use std::ops::RangeInclusive;

/// What is asked of Floe, and at which prices.
#[derive(Args, Debug)]
pub(super) struct CostArguments {
    #[command(flatten)]
    workload: Workload,
    #[command(flatten)]
    prices: Prices,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print the page about costs, in Markdown.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

pub(super) fn run(arguments: CostArguments) -> Outcome {
    let basis = Basis::measured()?;
    if arguments.markdown {
        return print(&page::markdown(&basis));
    }
    arguments.workload.check().map_err(Failure::Usage)?;
    arguments.prices.check().map_err(Failure::Usage)?;
    let bill = Bill::of(&arguments.workload, &arguments.prices, &basis);
    if arguments.json { print_json(&bill) } else { print(&page::listing(&bill)) }
}

/// # Errors
/// `Invalid`, with the flag's name, for a value outside its range; no number is outside all.
fn in_range(flag: &str, value: f64, range: RangeInclusive<f64>) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(Error::invalid(format!("{flag} {value} is not from {least} to {most}")))
}
