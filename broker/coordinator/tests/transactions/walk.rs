//! Random walks: a client of either protocol that loses answers and repeats itself, a zombie that
//! says what the client said before it was fenced, time-outs. A model notes how each transaction of
//! the client ended, by what was ended; the client must never be told otherwise.

use crate::random_numbers::Random;
use crate::{NEW_PRODUCER, partition, sender};
use floe_coordinator::transactions::{
    EPOCH_MAX, EndRequest, EndStep, InitRequest, InitStep, Sender, TransactionError,
    add_partitions, end, init, needs_producer_id, time_out,
};
use floe_metadata::transactions::{TransactionRow, TransactionState};
use kfs::ProducerId;

/// Walks per run of the test, and steps of each.
const SEEDS: u64 = 200;
const STEPS: usize = 400;

/// The store and what has happened in it.
struct World {
    row: Option<TransactionRow>,
    next_producer: ProducerId,
    now_ms: i64,
    /// How the transaction that was last opened ended; `None` while it is open or there was none.
    last_end: Option<bool>,
}

impl World {
    fn new_producer(&mut self) -> ProducerId {
        if needs_producer_id(self.row.as_ref()) {
            self.next_producer.0 += 1;
        }
        self.next_producer
    }

    /// InitProducerId until it is answered.
    fn init(&mut self, expected: Option<Sender>) -> Result<Sender, TransactionError> {
        loop {
            let expected = expected.map(|sender| (sender.producer, sender.epoch));
            let request = InitRequest { expected, timeout_ms: 50 };
            let new_producer = self.new_producer();
            match init(self.row.as_ref(), &request, new_producer, self.now_ms)? {
                InitStep::Ready(row) => {
                    let ready = Sender { producer: row.producer, epoch: row.epoch };
                    assert!(ready.epoch <= EPOCH_MAX, "kept for fencing");
                    self.row = Some(row);
                    return Ok(ready);
                }
                InitStep::AbortFirst(after, ending) => {
                    assert!(!ending.commit);
                    self.close(after, false);
                }
            }
        }
    }

    fn close(&mut self, after: TransactionRow, commit: bool) {
        let before = self.row.as_ref().expect("what ends was there");
        assert!((after.producer, after.epoch) >= (before.producer, before.epoch), "{after:?}");
        if before.state == TransactionState::Ongoing {
            self.last_end = Some(commit);
        }
        self.row = Some(after);
    }

    fn begin(&mut self, sender: Sender) -> Result<(), TransactionError> {
        let row = self.row.as_ref().expect("a client has begun");
        let added = add_partitions(row, sender, [partition(0)], self.now_ms)?;
        if row.state != TransactionState::Ongoing {
            self.last_end = None;
        }
        self.row = Some(added);
        Ok(())
    }

    fn end(
        &mut self,
        sender: Sender,
        commit: bool,
        raises_epoch: bool,
    ) -> Result<Sender, TransactionError> {
        let new_producer = self.new_producer();
        let row = self.row.as_ref().expect("a client has begun");
        let request = EndRequest { sender, commit, raises_epoch };
        if let EndStep::End(after, ending) = end(row, &request, new_producer, self.now_ms)? {
            assert_eq!(ending.commit, commit);
            self.close(after, commit);
        }
        let row = self.row.as_ref().expect("it is there");
        Ok(Sender { producer: row.producer, epoch: row.epoch })
    }
}

#[test]
fn nobody_is_told_of_an_end_that_was_another() {
    let (mut committed, mut fenced) = (0, 0);
    for seed in 0..SEEDS {
        let (of_seed, zombies) = walk(seed);
        committed += of_seed;
        fenced += zombies;
    }
    assert!(committed > 1_000 && fenced > 1_000, "{committed} commits, {fenced} fenced zombies");
}

fn walk(seed: u64) -> (u64, u64) {
    let mut random = Random(seed);
    let raises_epoch = random.one_in(2);
    let mut world = World { row: None, next_producer: NEW_PRODUCER, now_ms: 0, last_end: None };
    let mut client = world.init(None).unwrap();
    let mut zombie: Option<Sender> = None;
    let (mut committed, mut fenced) = (0, 0);
    for _ in 0..STEPS {
        world.now_ms += 1;
        if random.one_in(30) {
            // Another process takes over.
            zombie = Some(client);
            client = world.init(None).unwrap();
        }
        if random.one_in(200) {
            let row = world.row.as_mut().unwrap();
            if row.state != TransactionState::Ongoing {
                row.epoch = EPOCH_MAX;
                client = sender(row.producer, row.epoch.0);
            }
        }
        if let Some(old) = zombie {
            let before = world.row.clone();
            assert!(world.begin(old).is_err() && world.init(Some(old)).is_err(), "seed {seed}");
            assert_eq!(world.row, before, "a zombie changes nothing");
            fenced += 1;
        }
        if world.begin(client).is_err() {
            client = world.init(None).unwrap();
            continue;
        }
        if random.one_in(20) {
            // It has lost its way, and goes on with what it has (KIP-360).
            client = world.init(Some(client)).unwrap();
            assert_eq!(world.last_end, Some(false), "seed {seed}");
            continue;
        }
        if random.one_in(10) {
            world.now_ms += 50;
            let row = world.row.as_ref().unwrap();
            let (after, _) = time_out(row, world.now_ms).expect("it has been open for 50 ms");
            world.close(after, false);
        }
        let commit = random.one_in(2);
        let mut told = world.end(client, commit, raises_epoch);
        if random.one_in(4) {
            // The answer was lost, and the client asks again.
            told = world.end(client, commit, raises_epoch);
        }
        match told {
            Ok(next) => {
                assert_eq!(world.last_end, Some(commit), "seed {seed}");
                committed += u64::from(commit);
                client = next;
            }
            Err(_) => client = world.init(None).unwrap(),
        }
    }
    (committed, fenced)
}
