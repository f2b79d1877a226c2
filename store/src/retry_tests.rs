//! Every way in which a put may end, by script.

use super::*;
use crate::memory::MemoryStore;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// What the store does with the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Refuse(ErrorKind),
    /// Takes effect, but its answer is lost.
    LoseAnswer,
    /// Somebody else takes the key, and the answer is lost.
    LoseToAnother,
    /// Never answers.
    Hang,
}

/// A store that follows a script, and then works.
struct Scripted {
    inner: MemoryStore,
    script: Mutex<VecDeque<Step>>,
    calls: Mutex<u32>,
}

impl Scripted {
    fn new(script: &[Step]) -> Arc<Self> {
        let script = Mutex::new(script.iter().copied().collect());
        Arc::new(Self { inner: MemoryStore::new(), script, calls: Mutex::new(0) })
    }

    async fn step(&self) -> Result<Option<Step>> {
        *self.calls.lock() += 1;
        let step = self.script.lock().pop_front();
        match step {
            Some(Step::Refuse(kind)) => Err(Error::new(kind, "scripted")),
            Some(Step::Hang) => futures::future::pending().await,
            step => Ok(step),
        }
    }
}

#[async_trait]
impl ObjectStore for Scripted {
    async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<PutOutcome> {
        match self.step().await? {
            Some(Step::LoseAnswer) => self.inner.put(key, parts).await?,
            Some(Step::LoseToAnother) => {
                self.inner.put(key, vec![Bytes::from_static(b"theirs")]).await?
            }
            _ => return self.inner.put(key, parts).await,
        };
        Err(Error::unknown_outcome("scripted"))
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        self.step().await?;
        self.inner.get_range(key, range).await
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        self.step().await?;
        self.inner.get(key).await
    }

    async fn head(&self, key: &str) -> Result<Option<ObjectMeta>> {
        self.step().await?;
        self.inner.head(key).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, n: usize) -> Result<Vec<ObjectMeta>> {
        self.step().await?;
        self.inner.list(prefix, after, n).await
    }

    async fn delete(&self, keys: &[String]) -> Result<()> {
        self.step().await?;
        self.inner.delete(keys).await
    }

    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }
}

fn parts() -> Vec<Bytes> {
    vec![Bytes::from_static(b"ou"), Bytes::from_static(b"rs_1")]
}

async fn put(script: &[Step]) -> (Result<PutOutcome>, Arc<Scripted>) {
    let scripted = Scripted::new(script);
    let store = Retrying::new(Env::current(), scripted.clone(), RetryPolicy::default());
    (store.put("a/b", parts()).await, scripted)
}

#[tokio::test(start_paused = true)]
async fn a_put_whose_answer_was_lost_is_created() {
    let (outcome, scripted) = put(&[Step::LoseAnswer]).await;
    assert_eq!(outcome.expect("settled"), PutOutcome::Created);
    // Two puts, a look at the size, one read.
    assert_eq!(*scripted.calls.lock(), 4);
    let (outcome, _) = put(&[Step::Refuse(ErrorKind::UnknownOutcome), Step::LoseAnswer]).await;
    assert_eq!(outcome.expect("settled"), PutOutcome::Created);
}

#[tokio::test(start_paused = true)]
async fn a_put_that_lost_to_another_says_so() {
    // "theirs" has the size of "ours_1", so that only its CRC tells.
    let (outcome, _) = put(&[Step::LoseToAnother]).await;
    assert_eq!(outcome.expect("settled"), PutOutcome::Exists);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_taken_before_is_not_looked_at() {
    let scripted = Scripted::new(&[]);
    scripted.inner.put("a/b", parts()).await.expect("put");
    let store = Retrying::new(Env::current(), scripted.clone(), RetryPolicy::default());
    assert_eq!(store.put("a/b", parts()).await.expect("put"), PutOutcome::Exists);
    assert_eq!(*scripted.calls.lock(), 1);
}

#[tokio::test(start_paused = true)]
async fn refused_calls_are_repeated_and_wrong_ones_are_not() {
    let transient = [ErrorKind::Retry, ErrorKind::Unavailable, ErrorKind::Retry].map(Step::Refuse);
    let (outcome, scripted) = put(&transient).await;
    assert_eq!(outcome.expect("repeated"), PutOutcome::Created);
    assert_eq!(*scripted.calls.lock(), 4);
    let (outcome, scripted) = put(&[Step::Refuse(ErrorKind::Invalid)]).await;
    assert_eq!(outcome.expect_err("refused").kind(), ErrorKind::Invalid);
    assert_eq!(*scripted.calls.lock(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_and_keeps_what_is_unknown() {
    let (outcome, _) = put(&[Step::Hang]).await;
    assert_eq!(outcome.expect_err("late").kind(), ErrorKind::UnknownOutcome);
    let always = [Step::Refuse(ErrorKind::Unavailable); 1000];
    let started = Env::current().monotonic();
    let (outcome, scripted) = put(&always).await;
    assert_eq!(outcome.expect_err("late").kind(), ErrorKind::Unavailable);
    assert!(Env::current().monotonic() - started <= RetryPolicy::default().deadline);
    let calls = *scripted.calls.lock();
    assert!((16..=45).contains(&calls), "{calls} tries in 30 s");
    // Once unknown, always unknown: a later refusal does not unmake the first try.
    let mut script = vec![Step::Refuse(ErrorKind::UnknownOutcome)];
    script.push(Step::Refuse(ErrorKind::Invalid));
    let (outcome, _) = put(&script).await;
    assert_eq!(outcome.expect_err("unknown").kind(), ErrorKind::UnknownOutcome);
}

#[tokio::test(start_paused = true)]
async fn reads_and_deletions_are_repeated_whatever_the_outcome() {
    let unknown = [Step::Refuse(ErrorKind::UnknownOutcome)];
    let scripted = Scripted::new(&[]);
    scripted.inner.put("a/b", parts()).await.expect("put");
    let store = Retrying::new(Env::current(), scripted.clone(), RetryPolicy::default());
    let rewind = || scripted.script.lock().extend(unknown);
    rewind();
    assert_eq!(store.get("a/b").await.expect("get").expect("there"), "ours_1");
    rewind();
    assert_eq!(store.get_range("a/b", 1..3).await.expect("range"), "ur");
    rewind();
    assert_eq!(store.head("a/b").await.expect("head").expect("there").size, 6);
    rewind();
    assert_eq!(store.list("a", None, 9).await.expect("list").len(), 1);
    rewind();
    store.delete(&["a/b".to_owned()]).await.expect("delete");
    rewind();
    assert_eq!(store.get("a/b").await.expect("get"), None);
}
