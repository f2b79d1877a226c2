//! Requests of one connection overlap, take effect in order, and are answered in order.

use crate::kit::Rig;
use crate::samples::{SampleTopic, batch};
use floe_wire::messages::{ApiKey, MetadataRequest, RequestKind, ResponseKind};
use std::time::Duration;

#[tokio::test]
async fn case_133_pipelined_produces_keep_their_order() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "order", id: rig.create_topic("order", 1).await };
    let mut client = rig.connect();
    let mut correlations = Vec::new();
    for at in 0..50 {
        let request = topic.produce(9, batch(&[&at.to_string()]));
        correlations.push(client.send(ApiKey::Produce, 9, &request).await);
    }
    for (at, correlation) in correlations.into_iter().enumerate() {
        let mut body = client.receive(ApiKey::Produce, 9, correlation).await.expect("an answer");
        let answer = ResponseKind::decode(ApiKey::Produce, &mut body, 9).expect("decodes");
        let ResponseKind::Produce(answer) = answer else { panic!("another answer") };
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!((partition.error_code, partition.base_offset), (0, at as i64));
    }
}

#[tokio::test]
async fn a_waiting_fetch_holds_back_the_answers_behind_it_but_not_their_effect() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "held", id: rig.create_topic("held", 1).await };
    let mut client = rig.connect();
    let fetch = client.send(ApiKey::Fetch, 12, &topic.fetch(12, 0, 60_000)).await;
    let produce =
        client.send(ApiKey::Produce, 9, &topic.produce(9, batch(&["wakes the fetch"]))).await;
    let metadata = RequestKind::Metadata(MetadataRequest::default());
    let metadata = client.send(ApiKey::Metadata, 9, &metadata).await;
    for (api, version, correlation) in
        [(ApiKey::Fetch, 12, fetch), (ApiKey::Produce, 9, produce), (ApiKey::Metadata, 9, metadata)]
    {
        client.receive(api, version, correlation).await.expect("answers come in order");
    }
}

#[tokio::test]
async fn a_shutdown_answers_what_was_taken_in() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "end", id: rig.create_topic("end", 1).await };
    let mut client = rig.connect();
    let first = client.send(ApiKey::Produce, 9, &topic.produce(9, batch(&["a"]))).await;
    client.receive(ApiKey::Produce, 9, first).await.expect("an answer");
    let fetch = client.send(ApiKey::Fetch, 12, &topic.fetch(12, 1, 60_000)).await;
    tokio::task::yield_now().await;
    rig.trigger.trigger();
    client.receive(ApiKey::Fetch, 12, fetch).await.expect("a waiting fetch is answered");
    assert!(client.is_closed().await);
    rig.broker.drained().await;
}

/// A client that takes its time over one answer finds the next one ready behind it.
#[tokio::test(start_paused = true)]
async fn a_fetch_is_at_work_while_the_answer_before_it_is_being_taken() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "slow", id: rig.create_topic("slow", 1).await };
    rig.connect().call(ApiKey::Produce, 9, topic.produce(9, batch(&[&"x".repeat(900_000)]))).await;
    let mut client = rig.connect_buffered(64 << 10);
    let large = client.send(ApiKey::Fetch, 12, &topic.fetch(12, 0, 0)).await;
    let waiting = client.send(ApiKey::Fetch, 12, &topic.fetch(12, 1, 2_000)).await;
    rig.env.sleep(Duration::from_secs(3)).await;
    let before = rig.env.monotonic();
    client.receive(ApiKey::Fetch, 12, large).await.expect("the large answer");
    client.receive(ApiKey::Fetch, 12, waiting).await.expect("that of the end");
    let took = rig.env.monotonic() - before;
    assert!(took < Duration::from_secs(1), "{took:?}");
}
