//! What the config APIs share: the kinds of resources, whose name is a broker's, and changing a
//! topic's configs.

use crate::broker::Broker;
use crate::refused::Refused;
use crate::topic_names;
use crate::topics::KnownTopic;
use floe_metadata::topics::TopicChange;
use floe_wire::ErrorCode;
use floe_wire::messages::StrBytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A topic.
pub(super) const TOPIC: i8 = 2;
/// A broker.
pub(super) const BROKER: i8 = 4;
/// The loggers of a broker.
pub(super) const BROKER_LOGGER: i8 = 8;
/// A subscription to clients' metrics.
pub(super) const CLIENT_METRICS: i8 = 16;
/// A group.
pub(super) const GROUP: i8 = 32;

/// How often a change is computed anew because somebody else was faster.
const CHANGE_ATTEMPTS_MAX: u32 = 16;

/// The configs of a topic, by name.
pub(super) type Configs = BTreeMap<String, String>;

/// How often each resource is named in a request. Kafka refuses those that are named twice.
#[derive(Default)]
struct Times(BTreeMap<(i8, StrBytes), u32>);

impl Times {
    /// Counts the resources.
    fn of(resources: impl Iterator<Item = (i8, StrBytes)>) -> Self {
        let mut times = Self::default();
        resources.for_each(|resource| *times.0.entry(resource).or_default() += 1);
        times
    }

    /// Refuses a resource that is named more than once.
    fn check(&self, kind: i8, name: &StrBytes) -> Result<(), Refused> {
        if self.0.get(&(kind, name.clone())).is_none_or(|times| *times == 1) {
            return Ok(());
        }
        let message = "Each resource must appear at most once.";
        Err(Refused::new(ErrorCode::InvalidRequest, message))
    }
}

/// The topic of a name, to describe it.
pub(super) async fn topic(broker: &Broker, name: &str) -> Result<Arc<KnownTopic>, Refused> {
    if let Some(complaint) = topic_names::complaint(name) {
        return Err(Refused::new(ErrorCode::InvalidTopicException, complaint));
    }
    let found = broker.topic_by_name(name).await.map_err(|error| Refused::failed(&error))?;
    found.ok_or_else(|| Refused::wordless(ErrorCode::UnknownTopicOrPartition))
}

/// Checks that a name is this broker's; the client routes the request by it. `or_else` is what
/// Kafka says of other names behind the expected one.
pub(super) fn check_broker(broker: &Broker, name: &str, or_else: &str) -> Result<(), Refused> {
    let own = broker.identity.node_id;
    let message = match name.parse::<i32>() {
        Ok(id) if id == own => return Ok(()),
        Ok(id) => format!("Unexpected broker id, expected {own}{or_else} but received {id}"),
        Err(_) => format!("Broker id must be an integer, but it is: {name}"),
    };
    Err(Refused::new(ErrorCode::InvalidRequest, message))
}

/// A resource whose configs are to be changed, with the changes as its API has them.
pub(super) struct ToAlter<C> {
    pub(super) kind: i8,
    pub(super) name: StrBytes,
    pub(super) changes: Vec<C>,
}

/// What became of a resource.
pub(super) struct Altered {
    pub(super) kind: i8,
    pub(super) name: StrBytes,
    pub(super) code: ErrorCode,
    pub(super) message: Option<StrBytes>,
}

/// Changes each resource's configs on its own. `change` gives what they become; it may be asked
/// several times.
pub(super) async fn alter_each<C>(
    broker: &Broker,
    resources: Vec<ToAlter<C>>,
    validate_only: bool,
    change: impl Fn(&Configs, &[C]) -> Result<Configs, Refused>,
) -> Vec<Altered> {
    let named = resources.iter().map(|resource| (resource.kind, resource.name.clone()));
    let times = Times::of(named);
    let mut altered = Vec::with_capacity(resources.len());
    for ToAlter { kind, name, changes } in resources {
        let result = match times.check(kind, &name) {
            Err(refused) => Err(refused),
            Ok(()) => {
                let change = |current: &Configs| change(current, &changes);
                alter(broker, (kind, &name), changes.is_empty(), validate_only, change).await
            }
        };
        let (code, message) = match result {
            Ok(()) => (ErrorCode::None, None),
            Err(refused) => (refused.code, refused.text()),
        };
        altered.push(Altered { kind, name, code, message });
    }
    altered
}

async fn alter(
    broker: &Broker,
    (kind, name): (i8, &str),
    is_empty: bool,
    validate_only: bool,
    change: impl Fn(&Configs) -> Result<Configs, Refused>,
) -> Result<(), Refused> {
    match kind {
        TOPIC => alter_topic(broker, name, validate_only, change).await,
        BROKER | BROKER_LOGGER => {
            if kind == BROKER_LOGGER || !name.is_empty() {
                check_broker(broker, name, ",")?;
            }
            if is_empty {
                return Ok(());
            }
            let message = "a broker's settings are changed where it is started: in its \
                           configuration file, its variables or its flags";
            Err(Refused::new(ErrorCode::InvalidRequest, message))
        }
        CLIENT_METRICS | GROUP => Err(not_kept(kind)),
        _ => {
            let message = format!("Unknown resource type {kind}");
            Err(Refused::new(ErrorCode::InvalidRequest, message))
        }
    }
}

/// The answer for kinds whose configs Floe does not have.
pub(super) fn not_kept(kind: i8) -> Refused {
    let whose = if kind == GROUP { "groups" } else { "clients' metrics" };
    Refused::new(ErrorCode::InvalidRequest, format!("Floe keeps no configs of {whose}"))
}

async fn alter_topic(
    broker: &Broker,
    name: &str,
    validate_only: bool,
    change: impl Fn(&Configs) -> Result<Configs, Refused>,
) -> Result<(), Refused> {
    if name.is_empty() {
        let message = "Default topic resources are not allowed.";
        return Err(Refused::new(ErrorCode::InvalidRequest, message));
    }
    let missing = || {
        let message = format!("The topic '{name}' does not exist.");
        Refused::new(ErrorCode::UnknownTopicOrPartition, message)
    };
    let failed = |error: floe_env::Error| Refused::failed(&error);
    let known = broker.topic_by_name(name).await.map_err(failed)?.ok_or_else(missing)?;
    let mut current = known.topic.configs.clone();
    for _ in 0..CHANGE_ATTEMPTS_MAX {
        let changed = change(&current)?;
        // A change that changes nothing is compared with the store as well: what is known here may
        // be old.
        if validate_only {
            return Ok(());
        }
        let set = broker.metadata.set_topic_configs(known.topic.id, &current, changed).await;
        match set.map_err(failed)? {
            TopicChange::Changed(topic) => {
                broker.topics.refresh().await.map_err(failed)?;
                tracing::info!(topic = name, configs = ?topic.configs, "topic configs changed");
                return Ok(());
            }
            TopicChange::Refused(topic) => current = topic.configs,
            TopicChange::NoSuchTopic => return Err(missing()),
        }
    }
    let message = "others keep changing the topic's configs; try again";
    Err(Refused::new(ErrorCode::RequestTimedOut, message))
}
