//! Requests hold memory: a bounded part of it, of one connection and of all, and a client that
//! announces much and sends little takes it from nobody.

use crate::kit::{Client, Rig};
use crate::samples::{SampleTopic, batch};
use floe_wire::messages::{ApiKey, MetadataRequest, RequestKind};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

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

/// A slow client that does send is not in the way as long as something comes.
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
    let request = written.produce(9, batch(&[&"x".repeat(900_000)]));
    let produce = crate::kit::frame(ApiKey::Produce, 9, 2, &request);
    let sending = async {
        loop {
            greedy.stream.write_all(&produce).await.expect("sent");
        }
    };
    assert!(rig.env.timeout(Duration::from_secs(5), sending).await.is_none());
    let held = held_bytes(&rig);
    assert!(held > own_max / 2 && held <= own_max, "{held} of {own_max}");
    let took = write(&rig, &written).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
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
