//! A seed is one run, however often it is run.

use floe_sim::{Plant, run};

#[test]
fn a_seed_runs_the_same_twice() {
    let mut hashes = Vec::new();
    for seed in [1, 2, 3] {
        let (first, second) = (run(seed, Plant::Nothing), run(seed, Plant::Nothing));
        let differs = first.lines.iter().zip(&second.lines).find(|(left, right)| left != right);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!((first.events, first.calls), (second.events, second.calls), "seed {seed}");
        hashes.push(first.trace_hash);
    }
    hashes.dedup();
    assert_eq!(hashes.len(), 3, "seeds differ from each other");
}

#[test]
fn some_seeds_run_on_a_file_and_some_on_the_model() {
    let in_file: Vec<bool> = (1..=3).map(|seed| run(seed, Plant::Nothing).in_file).collect();
    assert!(in_file.contains(&true) && in_file.contains(&false), "{in_file:?}");
}
