//! The view of a Produce request, and that its records are slices of the frame.

use bytes::{Bytes, BytesMut};

use super::{partitions, records_bytes};
use crate::messages::produce_request::{PartitionProduceData, TopicProduceData};
use crate::messages::{ApiKey, Encodable, ProduceRequest, RequestKind, StrBytes};
use crate::request::{ParsedRequest, Registry, decode};

fn partition(index: i32, records: Option<&'static [u8]>) -> PartitionProduceData {
    PartitionProduceData::default().with_index(index).with_records(records.map(Bytes::from_static))
}

fn topic(name: &'static str, partitions: Vec<PartitionProduceData>) -> TopicProduceData {
    TopicProduceData::default()
        .with_name(StrBytes::from_static_str(name).into())
        .with_partition_data(partitions)
}

#[test]
fn partitions_come_in_order_and_records_stay_in_the_frame() {
    let request = ProduceRequest::default().with_acks(-1).with_topic_data(vec![
        topic("a", vec![partition(3, Some(b"three")), partition(1, None)]),
        topic("b", vec![partition(0, Some(b"zero"))]),
    ]);
    let mut frame = BytesMut::from(&[0, 0, 0, 7, 0, 0, 0, 1, 0xff, 0xff][..]);
    request.encode(&mut frame, 7).expect("encodes");
    let frame = frame.freeze();
    let registry = Registry::new().serve(ApiKey::Produce, 3..=13);
    let parsed = decode(frame.clone(), &registry).expect("decodes");
    let ParsedRequest::Request(request) = parsed else { panic!("not a request") };
    assert_eq!(request.frame_bytes, frame.len());
    let RequestKind::Produce(produce) = request.body else { panic!("not a Produce") };
    assert_eq!(records_bytes(&produce), 9);

    let listed: Vec<_> = partitions(&produce).collect();
    let places: Vec<_> = listed.iter().map(|p| (p.topic.as_str(), p.partition)).collect();
    assert_eq!(places, [("a", 3), ("a", 1), ("b", 0)]);
    assert!(listed[1].records.is_none());
    let frame_range = frame.as_ptr_range();
    for records in listed.iter().filter_map(|p| p.records) {
        assert!(frame_range.contains(&records.as_ptr()), "records were copied");
    }
}
