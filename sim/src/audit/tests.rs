use super::*;
use bytes::Bytes;
use floe_env::Error;
use floe_env::simulated::Node;
use floe_metadata::facts::{Check, FactKey};

/// An audit of empty stores.
async fn audit() -> Audit {
    let env = Env::simulated(Node::new(1));
    let metadata = MetadataServer::start(env.clone(), false).await.unwrap();
    let objects = ObjectServer::start(env.clone(), false).await.unwrap();
    Audit::new(env, Model::default(), metadata, objects, false)
}

/// A registration that never was, as nobody's epoch is a fact.
fn closed() -> Fence {
    let expect = Expect::Value(Bytes::from_static(b"open 1"));
    Fence(Check { key: FactKey::new(&["broker-epochs", "1"]), expect })
}

fn put(key: &[&str], value: &'static [u8], fence: Option<Fence>) -> Change {
    let writes = vec![Write::Put(FactKey::new(key), Bytes::from_static(value))];
    Change { writes, fence, ..Change::default() }
}

/// The violations of a change that was applied.
async fn found(audit: &Audit, change: &Change) -> Vec<String> {
    let before = audit.model.violations().len();
    let standing = audit.standing(change.fence.as_ref()).await;
    audit.changed(standing, change, "test").await;
    audit.model.violations().split_off(before)
}

#[tokio::test(start_paused = true)]
async fn what_clients_can_see_is_changed_under_an_open_registration() {
    let audit = audit().await;
    for folder in ["topics", "groups", "offsets"] {
        let [text] = &found(&audit, &put(&[folder, "x"], b"1", None)).await[..] else {
            panic!("{folder} is changed by anybody");
        };
        assert!(text.contains("without a registration"), "{text}");
    }
    let [text] = &found(&audit, &put(&["leases", "x"], b"1", Some(closed()))).await[..] else {
        panic!("a closed registration changes a fact");
    };
    assert!(text.contains("of a closed registration"), "{text}");
    assert!(found(&audit, &put(&["cluster", "id"], b"1", None)).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pointer_that_names_nothing_is_told() {
    let audit = audit().await;
    for pointer in [&b"{}"[..], b"", br#"{"metadata_location":"memory:///x"}"#] {
        let told = found(&audit, &put(&["tables", "kafka", "x"], pointer, None)).await;
        let is_told = |text: &String| {
            text.contains("the audit cannot read a table's pointer") || text.contains(" names ")
        };
        assert!(told.iter().any(is_told), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_audit_cannot_read_is_a_violation() {
    let audit = audit().await;
    let answer: Result<Option<u64>> = Err(Error::unavailable("gone"));
    assert_eq!(audit.answered("a number", answer), None);
    assert_eq!(audit.model.violations(), ["the audit cannot read a number: gone"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_named_and_not_there_is_a_violation() {
    let audit = audit().await;
    audit.objects.put("here", vec![Bytes::from_static(b"x")]).await.unwrap();
    let keys = ["here", "there"].map(str::to_owned);
    audit.must_be_there("a test", keys.into()).await;
    assert_eq!(audit.model.violations(), ["a test names there, which is not there"]);
}
