//! ListGroups: stored groups and those in memory, whose state may be newer than what is stored.

use super::command::{Command, ListFilter, Listed, Summary};
use super::runner::{Known, Runner};
use super::{GROUPS_PAGE, Groups};
use floe_coordinator::group::Group;
use floe_env::{Error, Result};
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Groups {
    /// All groups that pass the filter, by id.
    pub(crate) async fn list(&self, filter: ListFilter) -> Result<Vec<Summary>> {
        let filter = Arc::new(filter);
        let mut groups = BTreeMap::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.0.metadata.groups_after(after.as_deref(), GROUPS_PAGE).await?;
            let is_last = page.len() < GROUPS_PAGE;
            after = page.last().map(|(group, _)| group.clone());
            for (group_id, bytes) in page {
                let group = Group::decode(&bytes, &self.0.rules, self.now_ms());
                let group = group.map_err(|error| {
                    Error::corrupt(format!("consumer group {group_id}")).with_source(error)
                })?;
                if let Some(summary) = summary(&group, &filter) {
                    groups.insert(group_id, summary);
                }
            }
            if is_last {
                break;
            }
        }
        for (group_id, listed) in self.in_memory(&filter).await {
            match listed {
                Listed::Unknown => None,
                Listed::No => groups.remove(group_id.as_ref()),
                Listed::Yes(summary) => groups.insert(group_id.as_ref().to_owned(), summary),
            };
        }
        Ok(groups.into_values().collect())
    }

    /// What the runners say.
    async fn in_memory(&self, filter: &Arc<ListFilter>) -> Vec<(Arc<str>, Listed)> {
        let group_ids: Vec<Arc<str>> = self.0.runners.lock().keys().cloned().collect();
        let asked = group_ids.into_iter().map(|group_id| async move {
            let filter = filter.clone();
            let listed = self.ask(&group_id, |answer| Command::List { filter, answer }).await;
            (group_id, listed.unwrap_or(Listed::Unknown))
        });
        join_all(asked).await
    }
}

impl Runner {
    pub(super) fn listed(&self, filter: &ListFilter) -> Listed {
        match &self.known {
            Known::Nothing => Listed::Unknown,
            Known::Missing => Listed::No,
            Known::Group(group) => summary(group, filter).map_or(Listed::No, Listed::Yes),
        }
    }
}

/// The group's line, if the filter wants it.
fn summary(group: &Group, filter: &ListFilter) -> Option<Summary> {
    group.is_listed(&filter.states, &filter.types).then(|| Summary {
        group_id: group.group_id().to_owned(),
        protocol_type: group.protocol_type().to_owned(),
        state: group.state_name(),
        group_type: group.type_name(),
    })
}
