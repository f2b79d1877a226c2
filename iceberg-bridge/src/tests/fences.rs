//! A broker that has been replaced moves no table.

use super::support::World;
use crate::pointer::{FactPointers, TablePointer, TablePointers};
use floe_env::ErrorKind;
use floe_metadata::brokers::BrokerAddress;
use floe_metadata::facts::ChangeOutcome;
use kfs::BrokerId;
use uuid::Uuid;

const LEASE_MS: i64 = 60_000;

#[tokio::test(start_paused = true)]
async fn a_closed_epoch_changes_no_pointer() {
    let world = World::new();
    let topic = world.topic("t", 1).await;
    let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
    let register = || world.metadata.register_broker(BrokerId(1), &address, LEASE_MS);
    let (old, new) = (register().await.unwrap(), register().await.unwrap());
    let pointers = |fence: &floe_metadata::facts::Fence| {
        FactPointers::new(world.metadata.fenced_by(fence.clone()))
    };
    let (replaced, open) = (pointers(&old.fence), pointers(&new.fence));
    let at = |location: &str| {
        TablePointer::new(("kafka", "t"), topic, Uuid::from_u128(1), location.to_owned())
    };
    let refused = |answer: floe_env::Result<ChangeOutcome>| answer.map_err(|error| error.kind());
    assert_eq!(refused(replaced.create(&at("1")).await), Err(ErrorKind::Fenced));
    assert_eq!(open.by_topic(topic).await.unwrap(), None);
    assert_eq!(open.create(&at("1")).await.unwrap(), ChangeOutcome::Applied);
    let moved = at("1").moved("2".to_owned());
    assert_eq!(refused(replaced.swap(&at("1"), &moved).await), Err(ErrorKind::Fenced));
    assert_eq!(refused(replaced.remove(&at("1")).await), Err(ErrorKind::Fenced));
    assert_eq!(open.by_topic(topic).await.unwrap(), Some(at("1")));
    assert_eq!(open.swap(&at("1"), &moved).await.unwrap(), ChangeOutcome::Applied);
    assert_eq!(refused(replaced.remove(&moved).await), Err(ErrorKind::Fenced));
    let removed = open.removed(1).await.unwrap();
    assert!(removed.is_empty());
    assert_eq!(open.remove(&moved).await.unwrap(), ChangeOutcome::Applied);
    let [removed] = &open.removed(2).await.unwrap()[..] else { panic!("one is removed") };
    assert_eq!(replaced.forget(removed).await.unwrap_err().kind(), ErrorKind::Fenced);
}
