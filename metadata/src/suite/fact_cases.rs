//! Cases of keyed facts.

use super::*;
use crate::facts::{Check, Expect, FactRange};
use floe_env::ErrorKind;

fn value(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

fn is(key: &FactKey, text: &str) -> Check {
    Check { key: key.clone(), expect: Expect::Value(value(text)) }
}

fn absent(key: &FactKey) -> Check {
    Check { key: key.clone(), expect: Expect::Absent }
}

fn put(key: &FactKey, text: &str) -> Write {
    Write::Put(key.clone(), value(text))
}

async fn change(context: &Context, checks: Vec<Check>, writes: Vec<Write>) -> ChangeOutcome {
    let change = Change { checks, writes, ..Change::default() };
    context.store.backend().change(&change).await.unwrap()
}

pub(super) async fn checks_hold_or_nothing_is_written(context: &Context) {
    use ChangeOutcome::{Applied, Rejected};
    let (a, b) = (context.key("a"), context.key("b"));
    let get = async || context.store.backend().get(&[b.clone(), a.clone()]).await.unwrap();
    assert_eq!(get().await, [None, None]);
    assert_eq!(change(context, vec![is(&a, "1")], vec![put(&b, "x")]).await, Rejected);
    assert_eq!(get().await, [None, None]);
    assert_eq!(change(context, vec![absent(&a)], vec![put(&a, "1"), put(&b, "")]).await, Applied);
    assert_eq!(get().await, [Some(value("")), Some(value("1"))]);
    assert_eq!(change(context, vec![absent(&a)], vec![put(&a, "2")]).await, Rejected);
    let both = vec![is(&a, "1"), is(&b, "no")];
    assert_eq!(change(context, both, vec![put(&a, "2")]).await, Rejected);
    let both = vec![is(&a, "1"), is(&b, "")];
    let writes = vec![Write::Delete(b.clone()), put(&a, "2")];
    assert_eq!(change(context, both, writes).await, Applied);
    assert_eq!(get().await, [None, Some(value("2"))]);
    // A check alone, of another key than is written, and of an absent one.
    assert_eq!(change(context, vec![is(&a, "2")], Vec::new()).await, Applied);
    assert_eq!(change(context, vec![absent(&b)], vec![put(&a, "3")]).await, Applied);
    assert_eq!(change(context, Vec::new(), vec![Write::Delete(b.clone())]).await, Applied);
    assert_eq!(get().await, [None, Some(value("3"))]);
    assert_eq!(change(context, vec![absent(&b)], Vec::new()).await, Applied);
    let folder = FactKey::new(&["suite", &format!("{:04}", context.number)]).folder();
    assert_eq!(context.store.backend().scan(&folder, 10).await.unwrap(), [(a, value("3"))]);
}

pub(super) async fn ranges(context: &Context) {
    let case = format!("{:04}", context.number);
    // In the order of bytes; the last name shows that folders do not run into one another.
    let names = ["", "%", "/", "a", "a/b", "b", "\u{7f}\n", "é", "日本", "\u{10ffff}"];
    let mut keys: Vec<FactKey> =
        names.iter().map(|name| FactKey::new(&["suite", &case, name])).collect();
    for key in &keys {
        context.put(key, "inside").await;
    }
    context.put(&FactKey::new(&["suite", &case]), "folder").await;
    context.put(&FactKey::new(&["suite", &format!("{case}0")]), "outside").await;
    context.put(&FactKey::new(&["suite", &format!("{case}-"), "x"]), "outside").await;
    keys.sort();
    let folder = FactKey::new(&["suite", &case]).folder();
    let scan = |range: FactRange, limit| async move {
        let facts = context.store.backend().scan(&range, limit).await.unwrap();
        facts.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(scan(folder.clone(), 100).await, keys);
    assert_eq!(scan(folder.clone(), 4).await, keys[..4]);
    assert_eq!(scan(folder.clone(), 0).await, []);
    let middle =
        FactRange { from: keys[2].as_str().to_owned(), until: keys[5].as_str().to_owned() };
    assert_eq!(scan(middle, 100).await, keys[2..5]);
    let mut named: Vec<String> = keys.iter().map(|key| key.segments().pop().unwrap()).collect();
    named.sort();
    let mut expected: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    expected.sort();
    assert_eq!(named, expected);
    let backwards = FactRange { from: folder.until, until: folder.from };
    let error = context.store.backend().scan(&backwards, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

pub(super) async fn counters_under_contention(context: &Context) {
    const TASKS: usize = 8;
    const RAISES: usize = 10;
    let key = context.key("counter");
    context.put(&key, "0").await;
    let raise = async || {
        let mut raised = 0;
        while raised < RAISES {
            let read = context.store.backend().get(std::slice::from_ref(&key)).await.unwrap();
            let text = String::from_utf8(read[0].clone().unwrap().to_vec()).unwrap();
            let next = (text.parse::<usize>().unwrap() + 1).to_string();
            if change(context, vec![is(&key, &text)], vec![put(&key, &next)]).await
                == ChangeOutcome::Applied
            {
                raised += 1;
            }
        }
    };
    futures::future::join_all((0..TASKS).map(|_| raise())).await;
    let read = context.store.backend().get(&[key]).await.unwrap();
    assert_eq!(read[0], Some(value(&(TASKS * RAISES).to_string())));
}

pub(super) async fn absent_checks_exclude_each_other(context: &Context) {
    for round in 0..10 {
        let a = context.key(&format!("a{round}"));
        let b = context.key(&format!("b{round}"));
        // Only one may find the other's key absent: write skew.
        let (one, two) = futures::join!(
            change(context, vec![absent(&a)], vec![put(&b, "one")]),
            change(context, vec![absent(&b)], vec![put(&a, "two")]),
        );
        let applied = [one, two].iter().filter(|o| **o == ChangeOutcome::Applied).count();
        assert_eq!(applied, 1);
        let claim = context.key(&format!("claim{round}"));
        let texts: Vec<String> = (0..6).map(|number| number.to_string()).collect();
        let claims =
            texts.iter().map(|text| change(context, vec![absent(&claim)], vec![put(&claim, text)]));
        let claims = futures::future::join_all(claims).await;
        let winners: Vec<usize> = claims
            .iter()
            .enumerate()
            .filter(|(_, outcome)| **outcome == ChangeOutcome::Applied)
            .map(|(number, _)| number)
            .collect();
        assert_eq!(winners.len(), 1);
        let read = context.store.backend().get(&[claim]).await.unwrap();
        assert_eq!(read[0], Some(value(&texts[winners[0]])));
    }
}

pub(super) async fn bad_changes(context: &Context) {
    let key = context.key("bad");
    let kind =
        async |change: Change| context.store.backend().change(&change).await.unwrap_err().kind();
    let writes = vec![put(&key, "1"), Write::Delete(key.clone())];
    assert_eq!(kind(Change { writes, ..Change::default() }).await, ErrorKind::Invalid);
    let checks = vec![absent(&key), is(&key, "1")];
    assert_eq!(kind(Change { checks, ..Change::default() }).await, ErrorKind::Invalid);
    let long = FactKey::new(&[&"k".repeat(crate::validate::FACT_KEY_BYTES_MAX + 1)]);
    let writes = vec![put(&long, "1")];
    assert_eq!(kind(Change { writes, ..Change::default() }).await, ErrorKind::Limit);
    let large = Bytes::from(vec![0; crate::validate::FACT_VALUE_BYTES_MAX + 1]);
    let writes = vec![Write::Put(key.clone(), large)];
    assert_eq!(kind(Change { writes, ..Change::default() }).await, ErrorKind::Limit);
    let value_bytes = crate::validate::FACT_VALUE_BYTES_MAX;
    let largest = Bytes::from(vec![0; value_bytes]);
    let count = crate::validate::CHANGE_BYTES_MAX / value_bytes;
    let keys = (0..count).map(|number| context.key(&number.to_string()));
    let writes = keys.map(|key| Write::Put(key, largest.clone())).collect();
    assert_eq!(kind(Change { writes, ..Change::default() }).await, ErrorKind::Limit);
    let partition = context.partition().await;
    let both = vec![PartitionChange::Drop(partition), PartitionChange::Create(partition)];
    let partitions = both;
    assert_eq!(kind(Change { partitions, ..Change::default() }).await, ErrorKind::Invalid);
    assert_eq!(context.store.backend().get(&[key]).await.unwrap(), [None]);
    assert_eq!(context.store.backend().get(&[]).await.unwrap(), []);
}

pub(super) async fn partitions_change_with_facts(context: &Context) {
    let key = context.key("with");
    let existing = context.partition().await;
    let topic = context.fresh_topic();
    let new = TopicPartition { topic, partition: PartitionIndex(0) };
    let partitions = vec![PartitionChange::Create(new), PartitionChange::Drop(existing)];
    let writes = vec![put(&key, "1")];
    let change = Change { checks: vec![is(&key, "no")], writes, partitions, fence: None };
    let outcome = context.store.backend().change(&change).await.unwrap();
    assert_eq!(outcome, ChangeOutcome::Rejected);
    assert_eq!(context.state(new).await, None);
    assert!(context.state(existing).await.is_some());
    let change = Change { checks: vec![absent(&key)], ..change };
    let outcome = context.store.backend().change(&change).await.unwrap();
    assert_eq!(outcome, ChangeOutcome::Applied);
    assert_eq!(context.state(new).await, Some(PartitionState::default()));
    assert_eq!(context.state(existing).await, None);
    partitions_begin_where_they_are_told(context, topic).await;
    // Creating what is there fails, with all that goes with it.
    let writes = vec![put(&key, "2")];
    let partitions = vec![PartitionChange::Create(new)];
    let change = Change { writes, partitions, ..Change::default() };
    let error = context.store.backend().change(&change).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(context.store.backend().get(&[key]).await.unwrap(), [Some(value("1"))]);
}

/// What a partition held before was lost: it goes on behind that.
async fn partitions_begin_where_they_are_told(context: &Context, topic: TopicId) {
    let late = TopicPartition { topic, partition: PartitionIndex(1) };
    let change = |offset| {
        let partitions = vec![PartitionChange::CreateAt(late, offset)];
        Change { partitions, ..Change::default() }
    };
    let backend = context.store.backend();
    let error = backend.change(&change(-1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(backend.change(&change(1000)).await.unwrap(), ChangeOutcome::Applied);
    let state = context.state(late).await.unwrap();
    let ends = (state.log_start_offset, state.high_watermark, state.last_stable_offset);
    assert_eq!((ends, state.bytes), ((1000, 1000, 1000), 0));
    assert_eq!(context.all_extents(late).await, []);
    let broker = context.broker().await;
    let appended = segment(&broker, 0, vec![(late, vec![plain(3)])]);
    let outcomes = context.commit(&broker, &appended).await;
    assert_eq!(outcomes[0].batches, [accepted(1000)]);
    let extents = context.all_extents(late).await;
    let offsets: Vec<_> = extents.iter().map(|it| (it.base_offset, it.last_offset)).collect();
    assert_eq!(offsets, [(1000, 1002)]);
    let error = backend.change(&change(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "it is there");
}

pub(super) async fn clock(context: &Context) {
    let (one, two) = (context.store.now_ms().await.unwrap(), context.store.now_ms().await.unwrap());
    assert!(one > 1_700_000_000_000 && two >= one);
}
