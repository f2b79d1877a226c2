//! What consumers of the classic protocol tell each other, and their joins.

use bytes::{Buf, BufMut, Bytes};
use floe_coordinator::classic::{JoinRequest, Protocol};
use std::collections::BTreeSet;
use uuid::Uuid;

/// A subscription to `t`, with these partitions of it owned (version 1).
pub(crate) fn subscription(owned: &[i32]) -> Bytes {
    let mut bytes = Vec::new();
    bytes.put_i16(1);
    bytes.put_i32(1);
    bytes.put_slice(b"\0\x01t");
    bytes.put_i32(-1);
    put_partitions(&mut bytes, owned);
    Bytes::from(bytes)
}

pub(crate) fn assignment(assigned: &[i32]) -> Bytes {
    let mut bytes = Vec::new();
    bytes.put_i16(1);
    put_partitions(&mut bytes, assigned);
    bytes.put_i32(-1);
    Bytes::from(bytes)
}

fn put_partitions(bytes: &mut Vec<u8>, indexes: &[i32]) {
    if indexes.is_empty() {
        return bytes.put_i32(0);
    }
    bytes.put_i32(1);
    bytes.put_slice(b"\0\x01t");
    bytes.put_i32(i32::try_from(indexes.len()).expect("few"));
    indexes.iter().for_each(|index| bytes.put_i32(*index));
}

/// A consumer of the classic protocol that joins.
pub(crate) fn classic_join(member_id: &str, metadata: Bytes) -> JoinRequest {
    JoinRequest {
        version: 9,
        member_id: member_id.to_owned(),
        instance_id: None,
        client_id: "old".to_owned(),
        client_host: "/127.0.0.1".to_owned(),
        new_id: Uuid::from_u128(7),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 20_000,
        protocol_type: "consumer".to_owned(),
        protocols: vec![Protocol { name: "range".to_owned(), metadata }],
    }
}

/// The partitions of `t` in an assignment; none in empty bytes.
pub(crate) fn assigned(mut bytes: &[u8]) -> BTreeSet<i32> {
    match bytes.is_empty() {
        true => BTreeSet::new(),
        false => {
            bytes.advance(2);
            indexes(bytes)
        }
    }
}

/// The partitions of `t` that a subscription says are owned.
pub(crate) fn owned(mut bytes: &[u8]) -> BTreeSet<i32> {
    bytes.advance(subscription(&[]).len() - 4);
    indexes(bytes)
}

fn indexes(mut bytes: &[u8]) -> BTreeSet<i32> {
    if bytes.get_i32() == 0 {
        return BTreeSet::new();
    }
    bytes.advance(3);
    let count = bytes.get_i32();
    (0..count).map(|_| bytes.get_i32()).collect()
}
