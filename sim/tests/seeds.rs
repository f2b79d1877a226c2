//! Seeds 0 to `FLOE_SIM_SEEDS` (50); `FLOE_SIM_SEED` runs a single one and prints its newest
//! events.

use floe_sim::calls::{Deaths, Phase};
use floe_sim::cluster::{DEADLY_KINDS, Tally};
use floe_sim::{Plant, Report, run};

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

#[test]
fn no_seed_finds_a_violation() {
    let (seeds, is_single) = match number("FLOE_SIM_SEED") {
        Some(seed) => (seed..seed + 1, true),
        None => (0..number("FLOE_SIM_SEEDS").unwrap_or(50), false),
    };
    let (mut deaths, mut failed) = (Deaths::new(), Vec::new());
    let (mut lives, mut acknowledged, mut events, mut orphans) = (Tally::default(), 0, 0, 0);
    let (mut group_commits, mut without_group) = (0, Vec::new());
    let began = cpu_seconds();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let report = run(seed, Plant::Nothing);
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
    if let (Some(began), Some(ended)) = (began, cpu_seconds()) {
        println!("{:.2} CPU seconds a seed", (ended - began) / count as f64);
    }
    println!("{lives:?}");
    println!("{acknowledged} records acknowledged, {events} events, {orphans} table orphans");
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
