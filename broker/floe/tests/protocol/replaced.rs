//! A broker whose place another one has taken.

use crate::kit::Rig;
use floe_env::ErrorKind;
use floe_metadata::MetadataStore;
use floe_metadata::brokers::BrokerAddress;
use kfs::BrokerId;
use std::collections::BTreeMap;
use std::time::Duration;

/// One that writes no records notices it by whatever else it changes.
#[tokio::test(start_paused = true)]
async fn a_replaced_broker_notices_without_writing_records() {
    let rig = Rig::start().await;
    let backend = rig.broker.metadata.backend().clone();
    let address = BrokerAddress { host: "localhost".to_owned(), port: 9092, zone: None };
    rig.create_topic("before", 1).await;
    assert!(!rig.broker.log.is_fenced());
    let other = MetadataStore::new(backend, rig.env.clone());
    other.register_broker(BrokerId(1), &address, 30_000).await.expect("the other one");
    assert!(!rig.broker.log.is_fenced());
    let refused = rig.broker.metadata.create_topic("after", 1, 1, BTreeMap::new()).await;
    assert_eq!(refused.expect_err("it is replaced").kind(), ErrorKind::Fenced);
    assert!(rig.broker.log.is_fenced());
    let told = rig.env.timeout(Duration::from_secs(1), rig.broker.log.fenced()).await;
    assert!(told.is_some(), "the process ends by this");
    rig.trigger.trigger();
    assert!(!rig.broker.drained().await, "it has not kept its place");
}

#[tokio::test(start_paused = true)]
async fn signing_off_is_not_being_replaced() {
    let rig = Rig::start().await;
    rig.trigger.trigger();
    assert!(rig.broker.drained().await);
    // What comes late is refused, and that is as it should be.
    let late = rig.broker.metadata.create_topic("late", 1, 1, BTreeMap::new()).await;
    assert_eq!(late.expect_err("it has left").kind(), ErrorKind::Fenced);
}
