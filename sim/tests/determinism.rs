//! A seed is one run, however often it is run.

use floe_sim::{Plant, run};

#[test]
fn a_seed_runs_the_same_twice() {
    let (mut hashes, mut on_machine) = (Vec::new(), Vec::new());
    for seed in SEEDS {
        let (first, second) = (run(seed, Plant::Nothing), run(seed, Plant::Nothing));
        let differs = first.lines.iter().zip(&second.lines).find(|(left, right)| left != right);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!((first.events, first.calls), (second.events, second.calls), "seed {seed}");
        hashes.push(first.trace_hash);
        on_machine.push(first.on_machine);
    }
    hashes.dedup();
    assert_eq!(hashes.len(), SEEDS.len(), "seeds differ from each other");
    assert!(on_machine.contains(&true) && on_machine.contains(&false), "{on_machine:?}");
}

/// Some on one machine with files, some on stores of their own.
const SEEDS: [u64; 3] = [1, 2, 3];
