//! Transactional ids: the shell around the rules of `floe-coordinator`.
//!
//! No broker owns an id. Each request reads its row, decides by the rules, and makes one change on
//! condition that the row still is what was read; where it is not, or where nobody knows whether
//! the change was made, it starts over: the rules know a request that comes again. What ends a
//! transaction is one step of the metadata store, after which waiting fetches are woken.

mod doubts;
mod upkeep;

pub(crate) use doubts::DoubtfulEnds;

use crate::broker::Broker;
use crate::error_codes::transaction_code;
use crate::groups::TransactionCommit;
use floe_coordinator::GroupError;
use floe_coordinator::classic::CommitCheck;
use floe_coordinator::transactions::{
    self as rules, EndRequest, EndStep, InitRequest, InitStep, Sender, TransactionError,
};
use floe_env::{Error, ErrorKind};
use floe_metadata::facts::ChangeOutcome;
use floe_metadata::groups::CommittedOffset;
use floe_metadata::rows::MarkerOutcome;
use floe_metadata::transactions::{Ending, KnownTransaction, TransactionRow};
use floe_wire::ErrorCode;
use kfs::{ProducerId, TimestampType, TopicId, TopicPartition};

/// How often a request starts over because others changed the same id.
const ATTEMPTS_MAX: u32 = 16;
/// The longest transactional id, bytes of UTF-8: however much of it is escaped, its fact's key
/// fits.
const TRANSACTIONAL_ID_BYTES_MAX: usize = 600;
/// A producer id that is asked for where none is needed.
const NO_PRODUCER: ProducerId = ProducerId(-1);

/// The transactional ids, as this broker serves them.
pub(crate) struct Transactions<'a>(pub(crate) &'a Broker);

/// A try that came to nothing: somebody else was first, or nobody knows.
struct StartOver;

/// Whether a transactional id can be stored.
pub(crate) fn check_id(id: &str) -> Result<(), ErrorCode> {
    match id.is_empty() || id.len() > TRANSACTIONAL_ID_BYTES_MAX {
        true => Err(ErrorCode::InvalidRequest),
        false => Ok(()),
    }
}

/// A transaction's row with what has joined it.
type Added = Result<TransactionRow, TransactionError>;

impl Transactions<'_> {
    /// InitProducerId. An open transaction is aborted first, and the client asks again.
    pub(crate) async fn init(&self, id: &str, request: InitRequest) -> Result<Sender, ErrorCode> {
        for attempt in 0..ATTEMPTS_MAX {
            let known = self.find(id).await?;
            let row = known.as_ref().map(|known| &known.row);
            let new_producer = self.producer_for(row).await?;
            let now_ms = self.now_ms().await?;
            let step = rules::init(row, &request, new_producer, now_ms);
            match (step.map_err(transaction_code)?, &known) {
                (InitStep::AbortFirst(after, ending), Some(known)) => {
                    if self.end_known(known, &after, ending).await?.is_ok() {
                        return Err(ErrorCode::ConcurrentTransactions);
                    }
                }
                (InitStep::Ready(row), _) | (InitStep::AbortFirst(row, _), None) => {
                    if self.put(id, known.as_ref(), &row).await?.is_ok() {
                        return Ok(Sender { producer: row.producer, epoch: row.epoch });
                    }
                }
            }
            self.0.metadata.wait_for_conflict(attempt).await;
        }
        Err(ErrorCode::ConcurrentTransactions)
    }

    /// AddPartitionsToTxn.
    pub(crate) async fn add_partitions(
        &self,
        id: &str,
        sender: Sender,
        partitions: &[TopicPartition],
    ) -> Result<(), ErrorCode> {
        self.add(id, |row, now_ms| {
            rules::add_partitions(row, sender, partitions.iter().copied(), now_ms)
        })
        .await
    }

    /// AddPartitionsToTxn that only asks: one answer a partition.
    pub(crate) async fn verify_partitions(
        &self,
        id: &str,
        sender: Sender,
        partitions: &[TopicPartition],
    ) -> Result<Vec<Result<(), ErrorCode>>, ErrorCode> {
        let known = self.known(id).await?;
        let verify = |partition: &TopicPartition| {
            rules::verify_partition(&known.row, sender, *partition).map_err(transaction_code)
        };
        Ok(partitions.iter().map(verify).collect())
    }

    /// AddOffsetsToTxn.
    pub(crate) async fn add_group(
        &self,
        id: &str,
        sender: Sender,
        group: &str,
    ) -> Result<(), ErrorCode> {
        self.add(id, |row, now_ms| rules::add_group(row, sender, group, now_ms)).await
    }

    async fn add(
        &self,
        id: &str,
        added: impl Fn(&TransactionRow, i64) -> Added + Send + Sync,
    ) -> Result<(), ErrorCode> {
        for attempt in 0..ATTEMPTS_MAX {
            let known = self.known(id).await?;
            let now_ms = self.now_ms().await?;
            let row = added(&known.row, now_ms).map_err(transaction_code)?;
            if row == known.row || self.put(id, Some(&known), &row).await?.is_ok() {
                return Ok(());
            }
            self.0.metadata.wait_for_conflict(attempt).await;
        }
        Err(ErrorCode::ConcurrentTransactions)
    }

    /// TxnOffsetCommit: offsets that wait for the end of the transaction, if the group lets their
    /// sender commit. With `joins` the group is added to the transaction.
    pub(crate) async fn commit_offsets(
        &self,
        id: &str,
        sender: Sender,
        joins: bool,
        group: &str,
        commit: (CommitCheck, Vec<(TopicPartition, CommittedOffset)>),
    ) -> Result<(), ErrorCode> {
        let (check, offsets) = commit;
        for attempt in 0..ATTEMPTS_MAX {
            let known = self.known(id).await?;
            let row = if joins {
                let now_ms = self.now_ms().await?;
                rules::add_group(&known.row, sender, group, now_ms)
            } else {
                rules::verify_group(&known.row, sender, group).map(|()| known.row.clone())
            };
            let row = row.map_err(transaction_code)?;
            let transaction = TransactionCommit { known, row };
            let (check, offsets) = (check.clone(), offsets.clone());
            let groups = &self.0.groups;
            match groups.commit_in_transaction(group, check, offsets, transaction).await {
                // The transaction was another meanwhile, or the outcome is not known.
                Err(GroupError::CoordinatorNotAvailable) => {}
                done => return done.map_err(crate::error_codes::group_code),
            }
            self.0.metadata.wait_for_conflict(attempt).await;
        }
        // Older clients know no CONCURRENT_TRANSACTIONS here.
        Err(ErrorCode::CoordinatorNotAvailable)
    }

    /// EndTxn. Answers the producer id and epoch that the client goes on with.
    pub(crate) async fn end(&self, id: &str, request: EndRequest) -> Result<Sender, ErrorCode> {
        for attempt in 0..ATTEMPTS_MAX {
            let known = self.known(id).await?;
            let new_producer = match request.raises_epoch {
                true => self.producer_for(Some(&known.row)).await?,
                false => NO_PRODUCER,
            };
            let now_ms = self.now_ms().await?;
            let step = rules::end(&known.row, &request, new_producer, now_ms);
            match step.map_err(transaction_code)? {
                EndStep::Done => return Ok(current(&known.row)),
                EndStep::End(after, ending) => {
                    if self.end_known(&known, &after, ending).await?.is_ok() {
                        return Ok(current(&after));
                    }
                }
            }
            self.0.metadata.wait_for_conflict(attempt).await;
        }
        Err(ErrorCode::ConcurrentTransactions)
    }

    /// The id's row. What it says has been done shows to readers here.
    pub(crate) async fn find(&self, id: &str) -> Result<Option<KnownTransaction>, ErrorCode> {
        let known = self.0.metadata.transaction(id).await.map_err(|error| failed(&error))?;
        self.settle(id, known.as_ref()).await.map_err(|error| failed(&error))?;
        Ok(known)
    }

    async fn known(&self, id: &str) -> Result<KnownTransaction, ErrorCode> {
        self.find(id).await?.ok_or(ErrorCode::InvalidProducerIdMapping)
    }

    async fn now_ms(&self) -> Result<i64, ErrorCode> {
        self.0.metadata.now_ms().await.map_err(|error| failed(&error))
    }

    /// A producer id that nobody has had, where the rules need one.
    async fn producer_for(&self, row: Option<&TransactionRow>) -> Result<ProducerId, ErrorCode> {
        if !rules::needs_producer_id(row) {
            return Ok(NO_PRODUCER);
        }
        self.0.producer_ids.next().await.map(ProducerId).map_err(|error| failed(&error))
    }

    async fn put(
        &self,
        id: &str,
        known: Option<&KnownTransaction>,
        row: &TransactionRow,
    ) -> Result<Result<(), StartOver>, ErrorCode> {
        match self.0.metadata.put_transaction(id, known, row).await {
            Ok(ChangeOutcome::Applied) => Ok(Ok(())),
            Ok(ChangeOutcome::Rejected) => Ok(Err(StartOver)),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => Ok(Err(StartOver)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Ends what is open, and wakes those that wait for it.
    async fn end_known(
        &self,
        known: &KnownTransaction,
        after: &TransactionRow,
        ending: Ending,
    ) -> Result<Result<(), StartOver>, ErrorCode> {
        let timestamp_type = |topic| self.timestamp_type(topic);
        let ended = self.0.metadata.end_transaction(known, after, ending, timestamp_type).await;
        match ended {
            Ok(Some(outcomes)) => {
                for (partition, outcome) in outcomes {
                    self.observe(partition, outcome);
                }
                Ok(Ok(()))
            }
            Ok(None) => Ok(Err(StartOver)),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => {
                self.doubt(known).await?;
                Ok(Err(StartOver))
            }
            Err(error) => Err(failed(&error)),
        }
    }

    /// Whose clock a topic goes by.
    pub(crate) fn timestamp_type(&self, topic: TopicId) -> TimestampType {
        let known = self.0.topics.by_id(topic);
        known.map_or(TimestampType::CreateTime, |known| known.settings.timestamp_type)
    }

    /// Takes in what a marker has made of its partition.
    pub(crate) fn observe(&self, partition: TopicPartition, outcome: MarkerOutcome) {
        if let MarkerOutcome::Written { marker, state } = outcome {
            self.0.log.ended(partition, state, marker);
        }
    }
}

fn current(row: &TransactionRow) -> Sender {
    Sender { producer: row.producer, epoch: row.epoch }
}

/// What clients hear when a store fails: all of them repeat the request, if it can help.
pub(crate) fn failed(error: &Error) -> ErrorCode {
    tracing::warn!(%error, "a request of a transaction failed");
    match error.kind() {
        ErrorKind::Retry | ErrorKind::Unavailable | ErrorKind::UnknownOutcome => {
            ErrorCode::CoordinatorNotAvailable
        }
        ErrorKind::Fenced => ErrorCode::NotCoordinator,
        ErrorKind::Invalid | ErrorKind::Limit => ErrorCode::InvalidRequest,
        ErrorKind::Corrupt | ErrorKind::Bug => ErrorCode::UnknownServerError,
    }
}
