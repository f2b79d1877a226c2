//! Requests hold memory: a bounded part of it, of one connection and of all, and a client that
//! announces much and sends little takes it from nobody.

use crate::fetch_memory::{broker_with_records, fetch};
use crate::kit::{Client, Rig};
use crate::samples::{SampleTopic, batch};
use floe_wire::messages::join_group_request::JoinGroupRequestProtocol;
use floe_wire::messages::{
    ApiKey, JoinGroupRequest, MetadataRequest, RequestKind, ResponseKind, StrBytes,
};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The smallest budget: requests have 16 MiB of it.
const MACHINE_BYTES: u64 = 128 << 20;
const FRAMES_BYTES: i64 = 16 << 20;

async fn rig() -> (Rig, SampleTopic) {
    let rig = Rig::start_on(MACHINE_BYTES).await;
    let topic = SampleTopic { name: "memory", id: rig.create_topic("memory", 1).await };
    (rig, topic)
}

/// A client that has sent a frame's length and the first `sent` bytes behind it.
async fn torn(rig: &Rig, length: i32, sent: usize) -> Client {
    let mut client = rig.connect_buffered(64 << 10);
    client.stream.write_i32(length).await.expect("sent");
    client.stream.write_all(&vec![0; sent]).await.expect("sent");
    client
}

/// A request of a few bytes, and how long it took.
async fn ask(rig: &Rig) -> Duration {
    let began = rig.env.monotonic();
    let metadata = RequestKind::Metadata(MetadataRequest::default());
    rig.connect().call(ApiKey::Metadata, 9, metadata).await;
    rig.env.monotonic() - began
}

/// A produce of 900 kB, and how long it took.
async fn write(rig: &Rig, topic: &SampleTopic) -> Duration {
    let began = rig.env.monotonic();
    let produced = rig.connect().produce(topic, 9, batch(&[&"x".repeat(900_000)])).await;
    assert_eq!(produced.error_code, 0);
    rig.env.monotonic() - began
}

fn refused(rig: &Rig) -> u64 {
    rig.broker.metrics.kafka.connections_refused.get()
}

/// Produces on this connection until the broker reads no more of it.
async fn fill(rig: &Rig, client: &mut Client, topic: &SampleTopic) {
    let request = topic.produce(9, batch(&[&"x".repeat(900_000)]));
    let produce = crate::kit::frame(ApiKey::Produce, 9, 2, &request);
    let sending = async {
        loop {
            client.stream.write_all(&produce).await.expect("sent");
        }
    };
    assert!(rig.env.timeout(Duration::from_secs(5), sending).await.is_none());
}

/// A client whose JoinGroup waits for half an hour: the group's other member does not join again.
async fn waiting_join(rig: &Rig) -> Client {
    let protocol = JoinGroupRequestProtocol::default().with_name("range".into());
    let join = JoinGroupRequest::default()
        .with_group_id(StrBytes::from_static_str("group").into())
        .with_session_timeout_ms(1_800_000)
        .with_rebalance_timeout_ms(1_800_000)
        .with_protocol_type("consumer".into())
        .with_protocols(vec![protocol]);
    let join = RequestKind::JoinGroup(join);
    let first = rig.connect().call(ApiKey::JoinGroup, 1, join.clone()).await;
    let ResponseKind::JoinGroup(first) = first else { panic!("another answer") };
    assert_eq!(first.error_code, 0);
    let mut second = rig.connect_buffered(64 << 10);
    second.send(ApiKey::JoinGroup, 1, &join).await;
    second
}

/// The metric of what connections hold, as `/metrics` computes it.
fn held_bytes(rig: &Rig) -> i64 {
    rig.broker.connection_bytes_held()
}

#[tokio::test(start_paused = true)]
async fn frames_that_do_not_arrive_take_the_memory_of_nobody() {
    let (rig, topic) = rig().await;
    let mut lying = Vec::new();
    for _ in 0..6 {
        lying.push(torn(&rig, 100 << 20, 1_000).await);
    }
    rig.env.sleep(Duration::from_millis(100)).await;
    assert!(held_bytes(&rig) >= FRAMES_BYTES / 2, "the first of them has what is not reserved");
    let took = ask(&rig).await;
    assert!(took < Duration::from_secs(1), "{took:?}: small requests have memory of their own");
    let took = write(&rig, &topic).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(refused(&rig) > 0);
    let mut closed = 0;
    for client in &mut lying {
        let ended = rig.env.timeout(Duration::from_millis(1), client.is_closed()).await;
        closed += u64::from(ended == Some(true));
    }
    assert_eq!(closed, refused(&rig), "each that was given up is counted");
}

/// What comes must come at a pace at which all of it will.
#[tokio::test(start_paused = true)]
async fn frames_that_trickle_in_take_the_memory_of_nobody() {
    let (rig, topic) = rig().await;
    for _ in 0..5 {
        let mut lying = torn(&rig, 100 << 20, 1_000).await;
        let env = rig.env.clone();
        rig.env.spawn("trickle", floe_env::Lane::Foreground, async move {
            while lying.stream.write_all(&[0]).await.is_ok() {
                env.sleep(Duration::from_millis(1_900)).await;
            }
        });
    }
    rig.env.sleep(Duration::from_millis(100)).await;
    let took = write(&rig, &topic).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(refused(&rig), 5);
}

/// Where nobody needs the memory, a client may take its time, as long as it may be idle.
#[tokio::test(start_paused = true)]
async fn a_frame_that_does_not_arrive_stays_while_nobody_waits_and_not_for_ever() {
    let (rig, _) = rig().await;
    let mut lying = torn(&rig, 1 << 20, 1_000).await;
    let idle_max = rig.broker.config.kafka.connections_max_idle;
    let early = rig.env.timeout(idle_max / 2, lying.is_closed()).await;
    assert_eq!((early, refused(&rig)), (None, 0));
    assert!(rig.env.timeout(idle_max, lying.is_closed()).await == Some(true));
    assert_eq!((refused(&rig), held_bytes(&rig)), (1, 0));
}

/// A slow client that does send is not in the way as long as enough comes.
#[tokio::test(start_paused = true)]
async fn a_frame_that_comes_slowly_is_waited_for() {
    let (rig, topic) = rig().await;
    let request = topic.produce(9, batch(&["slow"]));
    let frame = crate::kit::frame(ApiKey::Produce, 9, 1, &request);
    let mut slow = rig.connect();
    // Until the last of these is given up, others wait for memory.
    let mut lying = Vec::new();
    for _ in 0..10 {
        lying.push(torn(&rig, 100 << 20, 0).await);
    }
    for byte in &frame[..] {
        slow.stream.write_all(&[*byte]).await.expect("sent");
        rig.env.sleep(Duration::from_millis(100)).await;
    }
    slow.receive(ApiKey::Produce, 9, 1).await.expect("it is answered");
}

/// What one connection has under way is bounded by its own budget: the rest is not read.
#[tokio::test(start_paused = true)]
async fn one_connection_does_not_take_the_memory_of_all() {
    let rig = Rig::start().await;
    let written = SampleTopic { name: "written", id: rig.create_topic("written", 1).await };
    let quiet = SampleTopic { name: "quiet", id: rig.create_topic("quiet", 1).await };
    let own_max = rig.broker.config.memory.per_connection_bytes as i64;
    // A fetch that waits holds back the answers behind it, and so their requests' memory.
    let mut greedy = rig.connect_buffered(64 << 10);
    greedy.send(ApiKey::Fetch, 12, &quiet.fetch(12, 0, 60_000)).await;
    fill(&rig, &mut greedy, &written).await;
    let held = held_bytes(&rig);
    assert!(held > own_max / 2 && held <= own_max, "{held} of {own_max}");
    let took = write(&rig, &written).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// Who takes no answers holds the memory of the requests behind them, until others need it.
#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_answers_is_given_up_once_others_wait_for_its_requests_memory() {
    let (rig, topic) = broker_with_records().await;
    let mut greedy = rig.connect_buffered(64 << 10);
    greedy.send(ApiKey::Fetch, 12, &fetch(&topic)).await;
    fill(&rig, &mut greedy, &topic).await;
    assert!(held_bytes(&rig) > FRAMES_BYTES / 2);
    let took = write(&rig, &topic).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert_eq!(refused(&rig), 1);
}

/// Who takes its answers, be it slowly, is not idle; who takes none is, whatever it asks.
#[tokio::test(start_paused = true)]
async fn answers_that_nobody_takes_are_not_kept_for_longer_than_a_connection_may_be_idle() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "large", id: rig.create_topic("large", 1).await };
    write(&rig, &topic).await;
    let idle_max = rig.broker.config.kafka.connections_max_idle;
    let [mut slow, mut lazy] = [rig.connect_buffered(8 << 10), rig.connect_buffered(8 << 10)];
    for client in [&mut slow, &mut lazy] {
        client.send(ApiKey::Fetch, 12, &fetch(&topic)).await;
    }
    let metadata = RequestKind::Metadata(MetadataRequest::default());
    for _ in 0..4 {
        assert_eq!(refused(&rig), 0);
        rig.env.sleep(idle_max / 4).await;
        slow.stream.read_exact(&mut [0; 8 << 10]).await.expect("some of it");
        for client in [&mut slow, &mut lazy] {
            client.send(ApiKey::Metadata, 9, &metadata).await;
        }
    }
    rig.env.sleep(idle_max / 8).await;
    assert_eq!(refused(&rig), 1);
    let mut rest = Vec::new();
    slow.stream.read_buf(&mut rest).await.expect("it is still sent");
    lazy.stream.read_to_end(&mut rest).await.expect("its end");
}

/// Requests behind one that waits for others hold memory no longer than until others need it.
#[tokio::test(start_paused = true)]
async fn requests_behind_a_join_that_waits_hold_nobody_up() {
    let (rig, topic) = rig().await;
    let mut greedy = waiting_join(&rig).await;
    fill(&rig, &mut greedy, &topic).await;
    let took = write(&rig, &topic).await;
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert_eq!(refused(&rig), 1);
}

/// Where nobody needs it, they wait for as long as a connection may be idle.
#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_connections_memory_and_not_for_ever() {
    let rig = Rig::start().await;
    let topic = SampleTopic { name: "memory", id: rig.create_topic("memory", 1).await };
    let mut greedy = waiting_join(&rig).await;
    fill(&rig, &mut greedy, &topic).await;
    let idle_max = rig.broker.config.kafka.connections_max_idle;
    rig.env.sleep(idle_max / 2).await;
    assert_eq!(refused(&rig), 0);
    rig.env.sleep(idle_max).await;
    assert_eq!((refused(&rig), held_bytes(&rig)), (1, 0));
}

/// A shutdown does not wait for memory either.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_memory_does_not_hold_a_shutdown_up() {
    let (rig, topic) = rig().await;
    let mut greedy = waiting_join(&rig).await;
    fill(&rig, &mut greedy, &topic).await;
    rig.trigger.trigger();
    let mut answers = Vec::new();
    let ended = greedy.stream.read_to_end(&mut answers);
    assert!(rig.env.timeout(Duration::from_secs(1), ended).await.is_some());
}

/// A broker that shuts down does not wait for requests that have not arrived.
#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_frames_that_do_not_arrive() {
    let (rig, _) = rig().await;
    let mut lying = torn(&rig, 1 << 20, 10).await;
    rig.env.sleep(Duration::from_millis(10)).await;
    rig.trigger.trigger();
    let ended = rig.env.timeout(Duration::from_secs(1), lying.is_closed()).await;
    assert_eq!(ended, Some(true));
}
