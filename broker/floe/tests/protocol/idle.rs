//! A broker to which nobody writes asks nothing of its store that costs money.

use crate::kit::Rig;
use crate::samples::SampleTopic;
use floe::node::{JobRules, Jobs};
use floe_env::simulated::Node;
use floe_env::{Env, shutdown_signal};
use floe_store::{Counted, ObjectStore};
use kfs::{BatchBuilder, NewRecord};
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// All keys of a store.
async fn keys(rig: &Rig) -> Vec<String> {
    let listed = rig.objects.list("", None, 10_000).await.expect("listed");
    listed.into_iter().map(|object| object.key).collect()
}

/// Merges, tables, folds, retention and all other jobs of a broker on a remote store: what they
/// have to do with what was written has an end, and then nothing is put.
#[tokio::test(start_paused = true)]
async fn nothing_is_put_when_nothing_is_written() {
    let rig = Rig::start_in(Env::simulated(Node::new(1)), 1 << 30).await;
    let counted = Counted::new(rig.env.clone(), rig.objects.clone());
    let counters = counted.counters();
    let objects: Arc<dyn ObjectStore> = Arc::new(counted);
    let (trigger, shutdown) = shutdown_signal();
    let jobs = Jobs::start(&rig.broker, &objects, JobRules::product(true), &shutdown);
    let topic = SampleTopic { name: "idle", id: rig.create_topic("idle", 1).await };
    let mut client = rig.connect();
    for number in 0..50 {
        let value = format!("{{\"number\":{number}}}");
        let (timestamp_ms, value) = (rig.env.now_ms(), Some(value.as_bytes()));
        let mut builder = BatchBuilder::new();
        let record = NewRecord { timestamp_ms, value, ..Default::default() };
        builder.push(&record).expect("a record");
        let produced = client.produce(&topic, 9, builder.build().expect("a batch")).await;
        assert_eq!(produced.error_code, 0);
    }
    rig.env.sleep(3 * HOUR).await;
    let (before, puts) = (keys(&rig).await, counters.snapshot().put.requests);
    assert!(before.iter().any(|key| key.contains("/log/")), "records were merged: {before:?}");
    assert!(puts > 0, "and a table was made: {before:?}");
    rig.env.sleep(6 * HOUR).await;
    assert_eq!(counters.snapshot().put.requests, puts);
    let after = keys(&rig).await;
    assert!(after.iter().all(|key| before.contains(key)), "{after:?} beside {before:?}");
    trigger.trigger();
    rig.trigger.trigger();
    jobs.join().await;
}
