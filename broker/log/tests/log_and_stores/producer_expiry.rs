//! Idle producers are forgotten after a while, others are not.

use crate::rig::{Rig, batch, young_ms};
use floe_log::{AppendBatch, expire_producers};
use floe_metadata::rows::ProducerBatch;
use kfs::{ProducerEpoch, ProducerId};
use std::time::Duration;

const EXPIRATION: Duration = Duration::from_secs(60);

async fn write(rig: &Rig, id: i64, sequence: i32) {
    let producer = ProducerBatch {
        id: ProducerId(id),
        epoch: ProducerEpoch(0),
        first_sequence: sequence,
        last_sequence: sequence,
        lost_sequence: None,
    };
    let batch = batch(rig.partition(1), young_ms(), &["v"]);
    rig.append_all(vec![AppendBatch { producer: Some(producer), ..batch }]).await;
}

#[tokio::test(start_paused = true)]
async fn idle_producers_are_forgotten_in_every_partition() {
    let rig = Rig::new().await;
    write(&rig, 7, 0).await;
    rig.pass(40_000).await;
    write(&rig, 8, 0).await;
    let round = || expire_producers(&rig.metadata, EXPIRATION, &rig.broker.shutdown);
    assert_eq!(round().await.unwrap(), 0);
    rig.pass(30_000).await;
    assert_eq!(round().await.unwrap(), 1);
    let known = rig.metadata.producers(rig.partition(1)).await.unwrap();
    assert_eq!(known.iter().map(|one| one.id.0).collect::<Vec<_>>(), [8]);
    // It may begin anywhere then, as one that was never seen.
    write(&rig, 7, 19).await;
    write(&rig, 8, 1).await;
    rig.pass(70_000).await;
    assert_eq!(round().await.unwrap(), 2);
}
