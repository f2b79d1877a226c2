//! Cases of offsets that groups commit in transactions: they wait for the end.

use super::transactions::Client;
use super::*;
use crate::groups::CommittedOffset;

fn offset(offset: i64, commit_ms: i64) -> CommittedOffset {
    let metadata = "m".to_owned();
    CommittedOffset { offset, leader_epoch: -1, metadata, commit_ms, expires_ms: None }
}

/// Opens a transaction with this group and an offset that waits for it.
async fn wait_with(
    context: &Context,
    client: &Client,
    group: &str,
    pending: (TopicPartition, CommittedOffset),
) -> ChangeOutcome {
    let known = client.known(context).await;
    let mut row = known.row.clone();
    row.begin(1);
    row.groups.insert(group.to_owned());
    let store = &context.store;
    store.put_pending_offsets(&known, &row, group, &[pending], None).await.unwrap()
}

pub(super) async fn offsets_wait_for_the_end(context: &Context) {
    let partitions = context.partitions(2).await;
    let group = format!("waits-{}", context.number);
    let mut client = Client::new(context).await;
    let committed = async || context.store.offsets(&group).await.unwrap();
    let waiting = async || context.store.pending_offsets(&group).await.unwrap();
    for commit in [false, true] {
        for (at, partition) in partitions.iter().enumerate() {
            let pending = (*partition, offset(5 + at as i64, 100));
            let made = wait_with(context, &client, &group, pending).await;
            assert_eq!(made, ChangeOutcome::Applied);
        }
        // The last one counts.
        wait_with(context, &client, &group, (partitions[0], offset(9, 101))).await;
        let named: Vec<_> = waiting().await.iter().map(|one| one.partition()).collect();
        assert_eq!(named, partitions);
        assert!(committed().await.is_empty());
        assert_eq!(client.end(context, commit).await, [], "no partition took part");
        assert_eq!(waiting().await, []);
    }
    let after = committed().await;
    assert_eq!((after[&partitions[0]].offset, after[&partitions[1]].offset), (9, 6));
    // Whoever has been fenced adds nothing.
    let known = client.known(context).await;
    let mut row = known.row.clone();
    row.epoch = ProducerEpoch(row.epoch.0 + 1);
    context.store.put_transaction(&client.id, Some(&known), &row).await.unwrap();
    let late = [(partitions[0], offset(50, 500))];
    let made = context.store.put_pending_offsets(&known, &known.row, &group, &late, None).await;
    assert_eq!(made.unwrap(), ChangeOutcome::Rejected);
}

pub(super) async fn later_offsets_win(context: &Context) {
    let partition = context.partition().await;
    let group = format!("later-{}", context.number);
    let mut client = Client::new(context).await;
    let plain = async |value| {
        let made = context.store.commit_offsets(&group, &[(partition, value)], None).await;
        assert_eq!(made.unwrap(), ChangeOutcome::Applied);
    };
    let committed = async || context.store.offsets(&group).await.unwrap()[&partition].offset;
    plain(offset(3, 100)).await;
    wait_with(context, &client, &group, (partition, offset(5, 100))).await;
    assert_eq!(committed().await, 3);
    client.end(context, true).await;
    assert_eq!(committed().await, 5);
    wait_with(context, &client, &group, (partition, offset(7, 200))).await;
    plain(offset(9, 200)).await;
    client.end(context, true).await;
    assert_eq!(committed().await, 9);
}

pub(super) async fn deleted_offsets_do_not_come_back(context: &Context) {
    let partitions = context.partitions(2).await;
    let group = format!("deleted-{}", context.number);
    let mut client = Client::new(context).await;
    let committed = async || context.store.offsets(&group).await.unwrap();
    let wait = async |client: &Client| {
        for (at, partition) in partitions.iter().enumerate() {
            let pending = (*partition, offset(5 + at as i64, 100));
            let made = wait_with(context, client, &group, pending).await;
            assert_eq!(made, ChangeOutcome::Applied);
        }
    };
    wait(&client).await;
    let made = context.store.delete_offsets(&group, &partitions[..1], None).await;
    assert_eq!(made.unwrap(), ChangeOutcome::Applied);
    assert_eq!(context.store.pending_offsets(&group).await.unwrap().len(), 1);
    client.end(context, true).await;
    assert_eq!(committed().await.keys().collect::<Vec<_>>(), [&partitions[1]]);
    wait(&client).await;
    let made = context.store.delete_group(&group, None).await;
    assert_eq!(made.unwrap(), ChangeOutcome::Applied);
    assert_eq!(context.store.pending_offsets(&group).await.unwrap(), []);
    client.end(context, true).await;
    assert!(committed().await.is_empty());
}
