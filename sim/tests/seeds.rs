//! Seeds 0 to `FLOE_SIM_SEEDS` (50); `FLOE_SIM_SEED` runs a single one and prints its newest
//! events.

use floe_sim::calls::{Deaths, Phase};
use floe_sim::cluster::{DEADLY_KINDS, Tally};
use floe_sim::{Plant, Report, run};
use std::ops::Range;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn explain(report: &Report) -> String {
    format!(
        "seed {}:\n  {}\n\
         replay: FLOE_SIM_SEED={} cargo test -p floe-sim --test seeds -- --nocapture",
        report.seed,
        report.violations.join("\n  "),
        report.seed
    )
}

/// CPU seconds that this thread has taken, where the system says so.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

/// The reports of seeds in their order, and the CPU seconds of one. Seeds share nothing: each core
/// runs some of them.
fn run_all(seeds: Range<u64>) -> (Vec<Report>, Option<f64>) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let of_core = |core: usize| {
        let began = cpu_seconds();
        let own = seeds.clone().skip(core).step_by(cores);
        let reports: Vec<Report> = own.map(|seed| run(seed, Plant::Nothing)).collect();
        let took = began.and_then(|began| cpu_seconds().map(|ended| ended - began));
        (reports, took)
    };
    let (mut reports, took): (Vec<Vec<Report>>, Vec<Option<f64>>) = std::thread::scope(|scope| {
        let running: Vec<_> = (0..cores).map(|core| scope.spawn(move || of_core(core))).collect();
        running.into_iter().map(|core| core.join().expect("a run does not panic")).unzip()
    });
    let mut reports: Vec<Report> = reports.drain(..).flatten().collect();
    reports.sort_by_key(|report| report.seed);
    let took = took.into_iter().sum::<Option<f64>>();
    let each = took.map(|took| took / reports.len() as f64);
    (reports, each)
}

#[test]
fn no_seed_finds_a_violation() {
    let (seeds, is_single) = match number("FLOE_SIM_SEED") {
        Some(seed) => (seed..seed + 1, true),
        None => (0..number("FLOE_SIM_SEEDS").unwrap_or(50), false),
    };
    let (mut deaths, mut failed) = (Deaths::new(), Vec::new());
    let (mut lives, mut acknowledged, mut events, mut orphans) = (Tally::default(), 0, 0, 0);
    let (mut group_commits, mut without_group) = (0, Vec::new());
    let (reports, seconds) = run_all(seeds);
    for report in reports {
        let seed = report.seed;
        if is_single {
            report.lines.iter().for_each(|line| println!("{line}"));
        }
        if !report.violations.is_empty() {
            eprintln!("{}", explain(&report));
            failed.push(seed);
        }
        for (moment, count) in report.deaths {
            *deaths.entry(moment).or_default() += count;
        }
        lives.add(&report.lives);
        orphans += report.table_orphans;
        acknowledged += report.acknowledged;
        group_commits += report.group_commits;
        if report.group_commits == 0 {
            without_group.push(seed);
        }
        events += report.events;
    }
    if let Some(seconds) = seconds {
        println!("{seconds:.2} CPU seconds a seed");
    }
    println!("{lives:?}");
    println!("{acknowledged} records acknowledged, {events} events, {orphans} orphans of tables");
    println!("{group_commits} commits of a group's offsets acknowledged");
    println!("{:<20} {:>8} {:>8} {:>8}", "died", "before", "in", "after");
    let died = |kind: &'static str, phase| deaths.get(&(kind, phase)).copied().unwrap_or(0);
    let mut never = Vec::new();
    for (kind, _) in DEADLY_KINDS {
        let [before, within, after] =
            [Phase::Before, Phase::In, Phase::After].map(|phase| died(kind, phase));
        println!("{kind:<20} {before:>8} {within:>8} {after:>8}");
        if before == 0 || within == 0 || after == 0 {
            never.push(*kind);
        }
    }
    assert!(failed.is_empty(), "seeds with violations: {failed:?}");
    assert!(without_group.is_empty(), "no offset was ever committed: {without_group:?}");
    assert!(is_single || never.is_empty(), "no node ever died around these calls: {never:?}");
}
