//! Ends of transactions that come late, or beside what joins them.

use super::transactions::{Client, ended, ends, refused};
use super::*;
use crate::rows::Refusal;
use crate::transactions::{Ending, KnownTransaction};

/// Before KIP-890's second part two transactions of an id may look alike, within a millisecond.
pub(super) async fn a_late_end_does_nothing_to_the_next_transaction(context: &Context) {
    let (broker, partition) = (context.broker().await, context.partition().await);
    let mut client = Client::new(context).await;
    let (producer, id) = (client.producer, client.id.clone());
    let end = async |known: &KnownTransaction, commit| {
        let after = ended(known, known.row.epoch, commit);
        let ending = Ending { commit, producer, epoch: known.row.epoch };
        let created = |_| TimestampType::CreateTime;
        context.store.end_transaction(known, &after, ending, created).await.unwrap()
    };
    let begin = async || {
        let known = context.store.transaction(&id).await.unwrap().unwrap();
        let mut row = known.row.clone();
        row.begin(1);
        row.partitions.insert(partition);
        let made = context.store.put_transaction(&id, Some(&known), &row).await.unwrap();
        assert_eq!(made, ChangeOutcome::Applied);
        context.store.transaction(&id).await.unwrap().unwrap()
    };
    let first = begin().await;
    assert!(end(&first, true).await.is_some());
    let second = begin().await;
    assert_eq!(second.row.started_ms, first.row.started_ms);
    assert_eq!(end(&first, true).await, None);
    context.append(&broker, partition, vec![client.batch(false)]).await;
    assert!(end(&second, false).await.is_some());
    assert_eq!(context.store.aborted(partition, 0, i64::MAX).await.unwrap().len(), 1);
}

/// Two brokers add partitions while the transaction ends again and again: whatever a commit let in
/// is ended in its own transaction, and nothing is left open.
pub(super) async fn joins_race_ends(context: &Context) {
    let partitions = context.partitions(4).await;
    let brokers = [context.broker().await, context.broker().await];
    let mut client = Client::new(context).await;
    for round in 0..12 {
        let batch = client.batch(true);
        let joins = brokers.iter().enumerate().map(|(at, broker)| {
            let sections = partitions[2 * at..2 * at + 2].iter();
            let sections = sections.map(|partition| (*partition, vec![batch.clone()])).collect();
            let one = segment(broker, round, sections);
            async move { context.commit(broker, &one).await }
        });
        let known = client.known(context).await;
        let joins = futures::future::join_all(joins);
        let (joined, ended) = futures::join!(joins, client.try_end(context, &known, true));
        let open = client.known(context).await.row.partitions;
        let outcomes = joined.iter().flatten().map(|section| section.batches[0]);
        for (partition, outcome) in partitions.iter().zip(outcomes) {
            let was_let_in = matches!(outcome, BatchOutcome::Accepted { .. });
            let is_late = outcome == refused(Refusal::FencedTransaction);
            assert!(was_let_in || is_late, "{outcome:?}");
            assert!(ended.is_some() || was_let_in, "only an end makes it late");
            assert_eq!(open.contains(partition), was_let_in, "{partition}");
        }
        client.end(context, round % 2 == 0).await;
        for partition in &partitions {
            let (end, stable) = ends(context, *partition).await;
            assert_eq!(end, stable, "nothing is left open");
        }
    }
}
