//! Seeds 0 to `FLOE_SIM_SEEDS` (50); `FLOE_SIM_SEED` runs a single one and prints its newest
//! events.

use floe_sim::calls::{Deaths, Phase};
use floe_sim::cluster::{DEADLY_KINDS, Tally};
use floe_sim::model::Counts;
use floe_sim::{Plant, Report, run};
use std::collections::BTreeMap;
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

/// One run. Where it panics, the panic says which seed it was.
fn run_seed(seed: u64) -> Report {
    std::panic::catch_unwind(|| run(seed, Plant::Nothing)).unwrap_or_else(|panic| {
        eprintln!("seed {seed} panics");
        std::panic::resume_unwind(panic)
    })
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
        let reports: Vec<Report> = own.map(run_seed).collect();
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

/// What all runs came to together.
#[derive(Default)]
struct Sum {
    deaths: Deaths,
    calls: BTreeMap<&'static str, u64>,
    lives: Tally,
    counts: Counts,
    acknowledged: usize,
    events: u64,
    table_orphans: u64,
    /// Seeds with violations.
    failed: Vec<u64>,
    /// Seeds in which no offset of a group was ever committed.
    without_group: Vec<u64>,
}

impl Sum {
    fn add(&mut self, report: Report) {
        for (moment, count) in report.deaths {
            *self.deaths.entry(moment).or_default() += count;
        }
        for (kind, count) in report.calls {
            *self.calls.entry(kind).or_default() += count;
        }
        self.lives.add(&report.lives);
        self.counts.add(&report.counts);
        self.acknowledged += report.acknowledged;
        self.events += report.events;
        self.table_orphans += report.table_orphans;
        if !report.violations.is_empty() {
            self.failed.push(report.seed);
        }
        if report.counts.group_commits == 0 {
            self.without_group.push(report.seed);
        }
    }

    fn died(&self, kind: &'static str) -> [u64; 3] {
        let died = |phase| self.deaths.get(&(kind, phase)).copied().unwrap_or(0);
        [Phase::Before, Phase::In, Phase::After].map(died)
    }

    /// What must happen in some seed, or a check has nothing to look at; with how often it did.
    fn needed(&self) -> [(&'static str, u64); 9] {
        let Self { lives, counts, .. } = self;
        [
            ("failed starts", lives.failed_starts.into()),
            ("power cuts", lives.power_cuts.into()),
            ("shutdowns in order", lives.shutdowns.into()),
            ("pauses", lives.pauses.into()),
            ("paused ones that were fenced", lives.fenced.into()),
            ("orphans of tables", self.table_orphans),
            ("deletions of records", counts.deletions),
            ("looks that had everything", counts.whole_looks),
            ("records read back before their topic's deletion", counts.read_back),
        ]
    }

    fn print(&self) {
        println!("{:?}", self.lives);
        println!("{} records acknowledged, {} events", self.acknowledged, self.events);
        println!("{} commits of a group's offsets acknowledged", self.counts.group_commits);
        self.needed().iter().for_each(|(what, count)| println!("{count} {what}"));
        let (what, calls) = ("died in a call", "calls");
        println!("{what:<24} {:>8} {:>8} {:>8} {calls:>10}", "before", "in", "after");
        for (&kind, calls) in &self.calls {
            let [before, within, after] = self.died(kind);
            println!("{kind:<24} {before:>8} {within:>8} {after:>8} {calls:>10}");
        }
    }
}

#[test]
fn no_seed_finds_a_violation() {
    let (seeds, is_single) = match number("FLOE_SIM_SEED") {
        Some(seed) => (seed..seed + 1, true),
        None => (0..number("FLOE_SIM_SEEDS").unwrap_or(50), false),
    };
    let mut sum = Sum::default();
    let (reports, seconds) = run_all(seeds);
    for report in reports {
        if is_single {
            report.lines.iter().for_each(|line| println!("{line}"));
        }
        if !report.violations.is_empty() {
            eprintln!("{}", explain(&report));
        }
        sum.add(report);
    }
    if let Some(seconds) = seconds {
        println!("{seconds:.2} CPU seconds a seed");
    }
    sum.print();
    assert!(sum.failed.is_empty(), "seeds with violations: {:?}", sum.failed);
    let without_group = &sum.without_group;
    assert!(without_group.is_empty(), "no offset was ever committed: {without_group:?}");
    if is_single {
        return;
    }
    let never = DEADLY_KINDS.iter().map(|(kind, _)| *kind);
    let never: Vec<&str> = never.filter(|kind| sum.died(kind).contains(&0)).collect();
    assert!(never.is_empty(), "no node ever died around these calls: {never:?}");
    let missing: Vec<_> = sum.needed().into_iter().filter(|(_, count)| *count == 0).collect();
    assert!(missing.is_empty(), "never happened: {missing:?}");
}
