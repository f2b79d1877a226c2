//! DeleteTopics: v1-6.
//!
//! v5 error messages; v6 by id. The topic is gone from metadata when the answer comes; its objects
//! go later. A topic that is named twice, also once by name and once by id, is not deleted.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::refused::Refused;
use crate::topics::KnownTopic;
use floe_wire::ErrorCode;
use floe_wire::messages::delete_topics_request::DeleteTopicState;
use floe_wire::messages::delete_topics_response::DeletableTopicResult;
use floe_wire::messages::{DeleteTopicsRequest, DeleteTopicsResponse, StrBytes, TopicName};
use kfs::TopicId;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

pub(super) const API: super::Api = api!(DeleteTopics, 1..=6, handle);

/// The first version that knows TOPIC_DELETION_DISABLED.
const DISABLED_CODE_SINCE: i16 = 3;
/// The first version that names topics by name or id, each in a structure.
const STATES_SINCE: i16 = 6;

/// What the answer says of a topic: its name and id.
type Named = (Option<TopicName>, Uuid);

async fn handle(
    broker: Arc<Broker>,
    context: RequestContext,
    request: DeleteTopicsRequest,
) -> Handled {
    let asked: Vec<DeleteTopicState> = if context.version >= STATES_SINCE {
        request.topics
    } else {
        let by_name = |name: TopicName| DeleteTopicState::default().with_name(Some(name));
        request.topic_names.into_iter().map(by_name).collect()
    };
    let mut responses = Vec::with_capacity(asked.len());
    for (named, found) in find_all(&broker, asked).await {
        let deleted = match found {
            Ok(topic) => delete(&broker, &topic, context.version).await,
            Err(refused) => Err(refused),
        };
        let (name, id) = named;
        let result = DeletableTopicResult::default().with_name(name).with_topic_id(id);
        responses.push(match deleted {
            Ok(()) => result,
            Err(refused) => {
                result.with_error_code(refused.code.code()).with_error_message(refused.text())
            }
        });
    }
    context.reply(&DeleteTopicsResponse::default().with_responses(responses))
}

/// The topics of a request, each once.
async fn find_all(
    broker: &Broker,
    asked: Vec<DeleteTopicState>,
) -> Vec<(Named, Result<Arc<KnownTopic>, Refused>)> {
    let mut times: BTreeMap<Named, u32> = BTreeMap::new();
    for topic in asked {
        *times.entry((topic.name, topic.topic_id)).or_default() += 1;
    }
    let mut found: Vec<(Named, Result<Arc<KnownTopic>, Refused>)> = Vec::new();
    let mut places: BTreeMap<Uuid, usize> = BTreeMap::new();
    for (named, count) in times {
        let topic = if count > 1 {
            let what = if named.0.is_some() { "name" } else { "id" };
            let message = format!("Duplicate topic {what}.");
            Err(Refused::new(ErrorCode::InvalidRequest, message))
        } else {
            find(broker, &named).await
        };
        let Ok(known) = topic else {
            found.push((named, topic));
            continue;
        };
        let id = known.topic.id.0;
        if let Some(place) = places.get(&id) {
            let message = "The provided topic name maps to an ID that was already supplied.";
            found[*place].1 = Err(Refused::new(ErrorCode::InvalidRequest, message));
            continue;
        }
        places.insert(id, found.len());
        let name = TopicName(StrBytes::from_string(known.topic.name.clone()));
        found.push(((Some(name), id), Ok(known)));
    }
    found
}

async fn find(broker: &Broker, (name, id): &Named) -> Result<Arc<KnownTopic>, Refused> {
    let invalid = |message: &str| Err(Refused::new(ErrorCode::InvalidRequest, message));
    let failed = |error: floe_env::Error| Refused::failed(&error);
    match name {
        Some(_) if !id.is_nil() => invalid("You may not specify both topic name and topic id."),
        None if id.is_nil() => invalid("Neither topic name nor id were specified."),
        Some(name) => {
            let found = broker.topic_by_name(name).await.map_err(failed)?;
            found.ok_or_else(Refused::unknown_topic)
        }
        None => {
            let found = broker.topic_by_id(TopicId(*id)).await.map_err(failed)?;
            found.ok_or_else(unknown_id)
        }
    }
}

fn unknown_id() -> Refused {
    Refused::new(ErrorCode::UnknownTopicId, "This server does not host this topic ID.")
}

async fn delete(broker: &Broker, known: &KnownTopic, version: i16) -> Result<(), Refused> {
    if !broker.config.kafka.delete_topic {
        let code = if version < DISABLED_CODE_SINCE {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TopicDeletionDisabled
        };
        return Err(Refused::new(code, "Topic deletion is disabled."));
    }
    let failed = |error: floe_env::Error| Refused::failed(&error);
    let topic = known.topic.id;
    if let Some(tables) = broker.tables.get()
        && let Err(error) = tables.finish(topic).await
    {
        // The topic is deleted all the same: nobody can want it kept for a table that fails.
        tracing::warn!(topic = %known.name, %error, "a deleted topic's table lacks the rest");
    }
    let was_there = broker.metadata.delete_topic(known.topic.id).await.map_err(failed)?;
    broker.topics.refresh().await.map_err(failed)?;
    known.partitions().into_iter().for_each(|partition| broker.log.forget(partition));
    if let Some(tables) = broker.tables.get()
        && let Err(error) = tables.remove_table_of(topic).await
    {
        tracing::warn!(topic = %known.name, %error, "a deleted topic's table is removed later");
    }
    if !was_there {
        return Err(Refused::unknown_topic());
    }
    tracing::info!(topic = %known.name, id = %known.topic.id, "topic deleted");
    Ok(())
}
