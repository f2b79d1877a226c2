//! Seeds 0 to `FLOE_SIM_SEEDS` (50), and some that aim at the moments at which no node died in
//! those; `FLOE_SIM_SEED` runs a single one and prints its newest events.

use floe_sim::calls::Deaths;
use floe_sim::cluster::Tally;
use floe_sim::model::Counts;
use floe_sim::moments::{self, PHASES};
use floe_sim::{Plant, Report, run};
use std::collections::BTreeMap;

/// Seeds that aim at one moment, at most.
const AIMED_MAX: u64 = 12;

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
fn run_all(seeds: &[u64]) -> (Vec<Report>, Option<f64>) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let of_core = |core: usize| {
        let began = cpu_seconds();
        let own = seeds.iter().skip(core).step_by(cores);
        let reports: Vec<Report> = own.map(|seed| run_seed(*seed)).collect();
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
        if !report.violations.is_empty() {
            eprintln!("{}", explain(&report));
        }
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

    fn run(&mut self, seeds: &[u64]) {
        let (reports, seconds) = run_all(seeds);
        reports.into_iter().for_each(|report| self.add(report));
        if let Some(seconds) = seconds {
            println!("{seconds:.2} CPU seconds a seed");
        }
    }

    /// The moments of which no node died at one.
    fn missed(&self) -> Vec<usize> {
        let met = |moment: &usize| {
            let ((kind, _), phase) = moments::named(*moment);
            self.deaths.contains_key(&(kind, phase))
        };
        (0..moments::MOMENTS).filter(|moment| !met(moment)).collect()
    }

    fn found_nothing(&self) {
        assert!(self.failed.is_empty(), "seeds with violations: {:?}", self.failed);
        let without_group = &self.without_group;
        assert!(without_group.is_empty(), "no offset was ever committed: {without_group:?}");
    }

    fn died(&self, kind: &'static str) -> [u64; 3] {
        let died = |phase| self.deaths.get(&(kind, phase)).copied().unwrap_or(0);
        PHASES.map(died)
    }

    /// What must happen in some seed, or a check has nothing to look at; with how often it did.
    fn needed(&self) -> [(&'static str, u64); 12] {
        let Self { lives, counts, .. } = self;
        [
            ("failed starts", lives.failed_starts.into()),
            ("power cuts", lives.power_cuts.into()),
            ("shutdowns in order", lives.shutdowns.into()),
            ("pauses", lives.pauses.into()),
            ("paused ones that were fenced", lives.fenced.into()),
            ("orphans of tables", self.table_orphans),
            ("deletions of records", counts.deletions),
            ("records that retention took", counts.aged),
            ("records that compaction took", counts.compacted),
            ("looks that had everything", counts.whole_looks),
            ("partitions of a group assigned", counts.assigned),
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
    if let Some(seed) = number("FLOE_SIM_SEED") {
        let mut sum = Sum::default();
        let report = run_seed(seed);
        report.lines.iter().for_each(|line| println!("{line}"));
        sum.add(report);
        sum.print();
        return sum.found_nothing();
    }
    let mut sum = Sum::default();
    let seeds: Vec<u64> = (0..number("FLOE_SIM_SEEDS").unwrap_or(50)).collect();
    sum.run(&seeds);
    for at in 0..AIMED_MAX {
        let aimed: Vec<u64> =
            sum.missed().iter().map(|moment| moments::aimed_seed(*moment, at)).collect();
        if aimed.is_empty() {
            break;
        }
        println!("aimed at moments that no seed met: {aimed:?}");
        sum.run(&aimed);
    }
    sum.print();
    sum.found_nothing();
    let never: Vec<_> = sum.missed().into_iter().map(moments::named).collect();
    assert!(never.is_empty(), "no node ever died at these moments: {never:?}");
    let missing: Vec<_> = sum.needed().into_iter().filter(|(_, count)| *count == 0).collect();
    assert!(missing.is_empty(), "never happened: {missing:?}");
}
