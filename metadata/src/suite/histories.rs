//! Random histories. [`sequential`] makes the same calls on a backend and on the model and compares
//! every answer; [`concurrent`] makes calls at the same time, and then looks for a serial order,
//! consistent with real time, in which the model gives the same answers.

use super::*;
use crate::model::ModelBackend;
use crate::rows::{ExtentPage, FreshBounds, MarkerOutcome, Place, Replacement};
use crate::suite::mixed_end;
use crate::suite::serial_order::{Answer, Call, Record};
use crate::transactions::{Ending, TransactionState};
use floe_env::{ErrorKind, Lane};
use kfs::OffsetMode;
use parking_lot::Mutex;

/// Case numbers of concurrent histories begin here.
pub(super) const FIRST_CONCURRENT_CASE: u64 = 100_000;
/// Case numbers of sequential histories begin here.
const FIRST_SEQUENTIAL_CASE: u64 = 500;
const PARTITIONS: usize = 3;
/// More than a partition's row holds.
const PRODUCERS: u64 = 12;
/// Producers with a transactional id, behind the others.
const TRANSACTIONS: u64 = 3;

/// How a concurrent run goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides everything that is random; tasks interleave as they like.
    pub seed: u64,
    /// Tasks at the same time.
    pub tasks: usize,
    /// Calls of each.
    pub calls: usize,
}

/// What a concurrent history has besides commits. Merges and moves of log starts both raise
/// versions, and which call raised one cannot be told from the answers: a history with both has no
/// serial order that could be found, and its [end](mixed_end) is checked instead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mix {
    Merges,
    LogStarts,
    Both,
}

impl Plan {
    fn mix(&self) -> Mix {
        [Mix::Merges, Mix::LogStarts, Mix::Both][(self.seed % 3) as usize]
    }
}

/// What the calls are about: the same for the backend and for the model.
pub(super) struct World {
    pub(super) broker: Registration,
    pub(super) partitions: Vec<TopicPartition>,
    producers: Vec<ProducerId>,
    transactions: Vec<(ProducerId, String)>,
    facts: Vec<FactKey>,
}

impl World {
    pub(super) async fn new(context: &Context) -> Self {
        let broker = context.register(BrokerId((context.number * 1000) as i32)).await;
        let first = (context.number * 1000) as i64;
        let mut transactions = Vec::new();
        // Not at the same time: a refused batch may leave its partition in the transaction, and
        // which call did so could not be told from the answers.
        let is_concurrent = context.number >= FIRST_CONCURRENT_CASE;
        let count = if is_concurrent { 0 } else { TRANSACTIONS };
        for number in PRODUCERS..PRODUCERS + count {
            let producer = ProducerId(first + number as i64);
            transactions.push((producer, context.transaction(producer).await));
        }
        Self {
            transactions,
            broker,
            partitions: context.partitions(PARTITIONS as i32).await,
            producers: (0..PRODUCERS).map(|number| ProducerId(first + number as i64)).collect(),
            facts: ["a", "b", "c"].iter().map(|name| context.key(name)).collect(),
        }
    }

    /// Sections with batches of producers that go on, repeat themselves, leave gaps and restart.
    pub(super) fn sections(&self, random: &mut Random) -> Vec<(TopicPartition, Vec<BatchFacts>)> {
        let mut sections = Vec::new();
        for partition in &self.partitions {
            if random.one_in(2) {
                continue;
            }
            let batches = 1 + random.below(4);
            sections.push((*partition, (0..batches).map(|_| self.batch(random)).collect()));
        }
        if random.one_in(10) {
            let mut missing = self.partitions[0];
            missing.partition.0 = 1000;
            sections.push((missing, vec![plain(1)]));
        }
        sections
    }

    fn batch(&self, random: &mut Random) -> BatchFacts {
        let mut batch = if random.one_in(3) {
            plain(1 + random.below(3) as u32)
        } else if !self.transactions.is_empty() && random.one_in(4) {
            let (producer, id) = &self.transactions[random.below(TRANSACTIONS) as usize];
            let epoch = random.below(3) as i16;
            let mut batch = idempotent(*producer, epoch, random.below(3) as i32, 1);
            batch.transaction = in_transaction(id, random.one_in(2));
            batch
        } else {
            // Some write often, so that their batches follow one another.
            let most = if random.one_in(2) { 3 } else { PRODUCERS };
            let producer = self.producers[random.below(most) as usize];
            let epoch = i16::from(random.one_in(12));
            // Few sequences, so that they often follow one another.
            idempotent(producer, epoch, random.below(6) as i32, 1)
        };
        batch.max_timestamp_ms = random.below(50) as i64;
        batch
    }

    fn change(&self, random: &mut Random, known: &[Option<Bytes>]) -> Change {
        let mut change = Change::default();
        for (key, value) in self.facts.iter().zip(known) {
            if random.one_in(3) {
                change.checks.push(crate::store::unchanged(key.clone(), value.clone()));
            }
            match random.below(4) {
                0 => change.writes.push(Write::Delete(key.clone())),
                1 => {
                    let value = Bytes::from(random.below(3).to_string());
                    change.writes.push(Write::Put(key.clone(), value));
                }
                _ => {}
            }
        }
        change
    }
}

/// Makes `calls` random calls, one after the other, on a backend and on a model of its own, and
/// compares every answer.
pub async fn sequential(backend: Arc<dyn Backend>, env: &Env, seed: u64, calls: usize) {
    let model: Arc<dyn Backend> = Arc::new(ModelBackend::new(env.clone()));
    let number = FIRST_SEQUENTIAL_CASE + seed;
    let real = Context::new(backend, env.clone(), number);
    let model = Context::new(model, env.clone(), number);
    let world = World::new(&real).await;
    let same = World::new(&model).await;
    assert_eq!(world.broker, same.broker, "the store has served another run");
    let mut random = Random(seed);
    for call in 0..calls {
        let mut for_model = random.clone();
        let one = Box::pin(random_call(&world, real.store(), &mut random)).await;
        let two = Box::pin(random_call(&world, model.store(), &mut for_model)).await;
        assert_eq!(one, two, "call {call} of seed {seed}");
    }
}

/// One call, with its answer as text.
async fn random_call(world: &World, store: &MetadataStore, random: &mut Random) -> String {
    let fence = &world.broker.fence;
    let partition = world.partitions[random.below(PARTITIONS as u64) as usize];
    let offset = random.below(60) as i64;
    match random.below(17) {
        0..=3 => random_commit(store, world, random).await,
        4 => {
            let id = segment(&world.broker, random.below(300), Vec::new()).id;
            described(store.abandon_segment(fence, id).await)
        }
        5 => {
            let id = segment(&world.broker, random.below(300), Vec::new()).id;
            described(store.segment_outcome(id).await)
        }
        6 => {
            let up_to = random.below(4);
            let id = segment(&world.broker, up_to, Vec::new()).id;
            described(store.forget_outcomes(fence, id).await)
        }
        7 => described(store.advance_log_start(partition, offset).await),
        8 => {
            let page = store.extents(partition, offset, random.below(5) as usize).await;
            described(page.map(|page| page.map(timeless_page)))
        }
        9 => {
            let by_time = store.extent_by_time(partition, offset).await;
            let newest = store.extent_of_max_timestamp(partition).await.map(|found| {
                // Which marker is the newest is the clocks' affair.
                let extent = found.and_then(|(_, extent)| extent);
                extent.filter(|extent| !matches!(extent.place, Place::Marker { .. }))
            });
            let by_time =
                by_time.map(|found| found.map(|(state, extent)| (state, extent.map(timeless))));
            described((by_time, newest))
        }
        10 => {
            let producers = store.producers(partition).await.map(|mut producers| {
                // The one thing that is the clock's.
                producers.iter_mut().for_each(|producer| producer.last_written_ms = 0);
                producers
            });
            described((producers, store.partition_states(&world.partitions).await))
        }
        11 => random_replacement(store, world, partition, offset, random).await,
        12 => {
            let kept = FreshBounds { segments: random.below(6) as usize, extents: usize::MAX };
            // How much there is to do is each store's own; what is seen afterwards is not.
            store.unpack_fresh(kept).await.unwrap();
            let page = store.extents(partition, 0, usize::MAX).await;
            described(page.map(|page| page.map(timeless_page)))
        }
        13 => forget_two(store, world).await,
        14 => random_end(store, world, random).await,
        15 => {
            let until = random.below(60) as i64;
            described(store.aborted(partition, offset, until).await)
        }
        _ => {
            let known = store.backend().get(&world.facts).await.unwrap();
            let change = world.change(random, &known);
            described((store.backend().change(&change).await, known))
        }
    }
}

/// Commits up to three segments. Some counters come again: replays.
async fn random_commit(store: &MetadataStore, world: &World, random: &mut Random) -> String {
    let count = 1 + random.below(3);
    let segments: Vec<SegmentFacts> = (0..count)
        .map(|_| {
            let counter = random.below(300);
            // A counter has one content.
            let mut content = Random(counter);
            segment(&world.broker, counter, world.sections(&mut content))
        })
        .collect();
    described(store.commit_segments(&world.broker.fence, &segments).await)
}

/// Forgets two of the dead objects of these histories.
async fn forget_two(store: &MetadataStore, world: &World) -> String {
    let dead = store.dead_objects(i64::MAX, usize::MAX).await.unwrap();
    let prefix = format!("wal/{}-", world.broker.id);
    let mine = dead.into_iter().map(|object| object.key);
    let mut mine: Vec<String> = mine.filter(|key| key.starts_with(&prefix)).collect();
    mine.sort();
    mine.truncate(2);
    store.forget_objects(&mine).await.unwrap();
    described((store.known_objects(&mine).await, mine))
}

/// Ends a transaction, with or without a raised epoch.
async fn random_end(store: &MetadataStore, world: &World, random: &mut Random) -> String {
    let (producer, id) = &world.transactions[random.below(TRANSACTIONS) as usize];
    let known = store.transaction(id).await.unwrap().expect("it was made");
    let commit = random.one_in(2);
    let raised = i16::from(random.one_in(2));
    // Few epochs, so that batches often have the right one.
    let epoch = ProducerEpoch((known.row.epoch.0 + raised).min(2));
    let mut after = known.row.clone();
    after.epoch = epoch;
    after.state = TransactionState::CompleteCommit;
    after.partitions.clear();
    let ending = Ending { commit, producer: *producer, epoch };
    let created = |_| TimestampType::CreateTime;
    let mut ended = store.end_transaction(&known, &after, ending, created).await;
    for (_, outcome) in ended.iter_mut().flatten().flatten() {
        if let MarkerOutcome::Written { marker, .. } = outcome {
            *marker = timeless(marker.clone());
        }
    }
    described(ended)
}

/// An extent without the time of its marker, which is the clock's.
fn timeless(mut extent: Extent) -> Extent {
    if let Place::Marker { timestamp_ms, .. } = &mut extent.place {
        *timestamp_ms = 0;
        extent.max_timestamp_ms = 0;
    }
    extent
}

fn timeless_page(page: ExtentPage) -> ExtentPage {
    ExtentPage { extents: page.extents.into_iter().map(timeless).collect(), ..page }
}

fn described(answer: impl std::fmt::Debug) -> String {
    // Messages may differ between backends, kinds may not; both have kind first in their form.
    format!("{answer:?}")
}

async fn random_replacement(
    store: &MetadataStore,
    world: &World,
    partition: TopicPartition,
    offset: i64,
    random: &mut Random,
) -> String {
    let count = 1 + random.below(3) as usize;
    let page = store.extents(partition, offset, count).await.unwrap().unwrap();
    let (Some(first), Some(last)) = (page.extents.first(), page.extents.last()) else {
        return String::new();
    };
    let is_shared = random.one_in(2);
    let place = if random.one_in(4) {
        Place::Hole
    } else {
        let number = if is_shared { random.below(8) } else { random.next() };
        let key = format!("wal/{}-merged-{number}", world.broker.id);
        Place::Range { key, position: 0, length: 10 }
    };
    let replacement = Extent {
        base_offset: first.base_offset,
        last_offset: last.last_offset,
        place,
        offset_mode: OffsetMode::Absolute,
        max_timestamp_ms: random.below(50) as i64,
        timestamp_type: TimestampType::CreateTime,
        has_transactional: false,
    };
    let mut sources = page.extents.clone();
    if random.one_in(5) {
        sources[0].max_timestamp_ms += 1;
    }
    let change = Replacement {
        partition,
        sources,
        replacement: vec![replacement],
        object_size: 10,
        joins_object: is_shared && random.one_in(2),
        forgotten_aborts: Vec::new(),
    };
    described(store.replace_extents(&world.broker.fence, &change).await)
}

/// Makes random calls at the same time and checks that they have a serial order. Answers how many
/// calls had an unknown outcome, and were asked about again. `stormy` is the same store, whose
/// calls may fail in every way that the trait allows.
pub async fn concurrent(
    calm: Arc<dyn Backend>,
    stormy: Arc<dyn Backend>,
    env: &Env,
    plan: Plan,
) -> usize {
    let number = FIRST_CONCURRENT_CASE + plan.seed;
    let calm = Context::new(calm, env.clone(), number);
    let context = Arc::new(Context::new(stormy, env.clone(), number));
    let world = Arc::new(World::new(&calm).await);
    let records = Arc::new(Mutex::new(Vec::new()));
    let clock = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for task in 0..plan.tasks {
        let (context, world) = (Arc::clone(&context), Arc::clone(&world));
        let (records, clock) = (Arc::clone(&records), Arc::clone(&clock));
        let random = Random(plan.seed.wrapping_mul(1_000_003) + task as u64);
        let work = async move {
            let unseen = Unseen::default();
            let mut client = Client { context, world, random, clock, unknown: 0, unseen };
            for call in 0..plan.calls {
                if plan.mix() != Mix::LogStarts && client.random.one_in(4) {
                    client.merge().await;
                }
                let record = client.call((task * plan.calls + call) as u64, &plan).await;
                records.lock().push(record);
            }
            (client.unknown, client.unseen)
        };
        tasks.push(env.spawn("history", Lane::Foreground, work));
    }
    let (mut unknown, mut unseen) = (0, Unseen::default());
    for task in tasks {
        let (of_task, unseen_of_task) = task.await.unwrap();
        unknown += of_task;
        unseen.merges += unseen_of_task.merges;
        unseen.merges_in_doubt += unseen_of_task.merges_in_doubt;
        unseen.moves_in_doubt.extend(unseen_of_task.moves_in_doubt);
    }
    let records = std::mem::take(&mut *records.lock());
    let states = calm.store.partition_states(&world.partitions).await.unwrap();
    match plan.mix() {
        Mix::Both => mixed_end::check(&calm, &world.partitions, &records, &states).await,
        Mix::Merges | Mix::LogStarts => {
            serial_order::check(&world, env, plan.seed, records, &states, unseen).await;
        }
    }
    unknown
}

/// Puts an extent into another object, with as many bytes.
pub(super) fn moved(partition: TopicPartition, source: &Extent, key: String) -> Replacement {
    let place = Place::Range { key, position: 0, length: source.bytes() };
    let replacement = vec![Extent { place, offset_mode: OffsetMode::Absolute, ..source.clone() }];
    Replacement {
        partition,
        sources: vec![source.clone()],
        replacement,
        object_size: source.bytes(),
        joins_object: false,
        forgotten_aborts: Vec::new(),
    }
}

struct Client {
    context: Arc<Context>,
    world: Arc<World>,
    random: Random,
    clock: Arc<AtomicU64>,
    unknown: usize,
    unseen: Unseen,
}

/// What raised versions of partitions although no answer says so.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// Merges. Each puts one extent into another place, of the same bytes: it raises the
    /// partition's version, and nothing else can be seen of it.
    pub(super) merges: u64,
    /// Those whose answer was lost: made or not.
    pub(super) merges_in_doubt: u64,
    /// Moves of log starts whose answer was lost. Made again, they answer with what is true by
    /// then.
    pub(super) moves_in_doubt: Vec<(TopicPartition, i64)>,
}

impl Client {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    async fn call(&mut self, number: u64, plan: &Plan) -> Record {
        let called = self.tick();
        let (call, answer) = match self.random.below(8) {
            0 if plan.mix() != Mix::Merges => {
                let at = self.random.below(PARTITIONS as u64) as usize;
                let partition = self.world.partitions[at];
                let offset = self.random.below(40) as i64;
                (
                    Call::Advance(partition, offset),
                    Answer::State(self.advance(partition, offset).await),
                )
            }
            1 => {
                // Often of a segment that another task commits now.
                let counter = number.saturating_sub(self.random.below(3));
                let id = segment(&self.world.broker, counter, Vec::new()).id;
                let outcome = self.abandon(id).await;
                (Call::Abandon(id), Answer::Outcome(outcome))
            }
            _ => {
                let sections = self.world.sections(&mut self.random);
                let segment = segment(&self.world.broker, number, sections);
                let outcome = self.commit(&segment).await;
                (Call::Commit(segment), Answer::Outcome(outcome))
            }
        };
        Record { called, answered: self.tick(), call, answer }
    }

    /// Moves one extent, sometimes; checks that what was read is of one moment and whole.
    async fn merge(&mut self) {
        let at = self.random.below(PARTITIONS as u64) as usize;
        let partition = self.world.partitions[at];
        let store = self.context.store.clone();
        if self.random.one_in(4) {
            let segments = self.random.below(20) as usize;
            let kept = FreshBounds { segments, extents: usize::MAX };
            if let Err(error) = store.unpack_fresh(kept).await {
                self.try_again(&error).await;
            }
        }
        let page = match store.extents(partition, 0, usize::MAX).await {
            Ok(page) => page.unwrap(),
            Err(error) => return self.try_again(&error).await,
        };
        let mut next_offset = page.state.log_start_offset;
        for extent in &page.extents {
            let is_first = extent.base_offset == page.extents[0].base_offset;
            assert!(extent.base_offset == next_offset || is_first, "{page:?}");
            next_offset = extent.last_offset + 1;
        }
        assert_eq!(next_offset, page.state.high_watermark, "{page:?}");
        if page.extents.is_empty() {
            return;
        }
        let source = &page.extents[self.random.below(page.extents.len() as u64) as usize];
        let key = format!("log/{}-{}", self.world.broker.id, self.random.next());
        let replacement = moved(partition, source, key);
        match store.replace_extents(&self.world.broker.fence, &replacement).await {
            Ok(ChangeOutcome::Applied) => self.unseen.merges += 1,
            Ok(ChangeOutcome::Rejected) => {}
            Err(error) => {
                self.unseen.merges_in_doubt += 1;
                self.try_again(&error).await;
            }
        }
    }

    async fn commit(&mut self, segment: &SegmentFacts) -> SegmentOutcome {
        let segments = std::slice::from_ref(segment);
        loop {
            let fence = &self.world.broker.fence;
            match self.context.store.commit_segments(fence, segments).await {
                Ok(mut outcomes) => return outcomes.remove(0),
                Err(error) => self.try_again(&error).await,
            }
            // As a broker does: ask by id, then settle.
            match self.context.store.segment_outcome(segment.id).await {
                Ok(Some(outcome)) => return outcome,
                Ok(None) => {}
                Err(error) => self.try_again(&error).await,
            }
        }
    }

    async fn abandon(&mut self, id: SegmentId) -> SegmentOutcome {
        loop {
            match self.context.store.abandon_segment(&self.world.broker.fence, id).await {
                Ok(outcome) => return outcome,
                Err(error) => self.try_again(&error).await,
            }
        }
    }

    async fn advance(&mut self, partition: TopicPartition, offset: i64) -> PartitionState {
        loop {
            // Made twice it is made once.
            match self.context.store.advance_log_start(partition, offset).await {
                Ok(state) => return state.unwrap(),
                Err(error) => {
                    self.unseen.moves_in_doubt.push((partition, offset));
                    self.try_again(&error).await;
                }
            }
        }
    }

    async fn try_again(&mut self, error: &floe_env::Error) {
        self.unknown += usize::from(error.kind() == ErrorKind::UnknownOutcome);
        let expected = error.is_transient() || error.kind() == ErrorKind::UnknownOutcome;
        assert!(expected, "{error}");
        self.context.store.wait_for_conflict(3).await;
    }
}
