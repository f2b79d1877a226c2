//! Queries a topic's table, as an engine does: loads it at the catalog, and reads the files that
//! the answer names straight from the object store.

use super::{Context, PATIENCE};
use crate::dice::between_ms;
use crate::table_files::TableFiles;
use crate::table_model::{TableSeen, check_table};
use kfs::TopicPartition;
use serde_json::Value;

/// How the catalog says how many records an answer lacks.
const BEHIND_KEY: &str = "floe.behind-records";

/// The actor.
pub struct Looker {
    context: Context,
    files: TableFiles,
    table: String,
    partitions: Vec<TopicPartition>,
}

impl Looker {
    /// One that queries the table of these partitions of one topic.
    pub fn new(
        context: Context,
        files: TableFiles,
        table: &str,
        partitions: &[TopicPartition],
    ) -> Self {
        Self { context, files, table: table.to_owned(), partitions: partitions.to_vec() }
    }

    /// Queries until the stop is given.
    pub async fn run(self) {
        let env = self.context.env.clone();
        while !self.context.stop.is_triggered() {
            env.sleep(between_ms(&env, 500, 6000)).await;
            self.look().await;
        }
    }

    /// Queries until the answer has everything; true then.
    pub async fn see_all(&self) -> bool {
        for _ in 0..10 {
            if self.look().await == Some(true) {
                return true;
            }
            self.context.env.sleep(between_ms(&self.context.env, 500, 1500)).await;
        }
        false
    }

    /// One query. `None` where there was no answer; else whether it has everything.
    async fn look(&self) -> Option<bool> {
        let Context { env, model, cluster, .. } = &self.context;
        let floors: Vec<i64> = self.partitions.iter().map(|part| model.end(*part)).collect();
        let path = format!("/iceberg/v1/floe/namespaces/kafka/tables/{}", self.table);
        let life = cluster.some_life(env)?;
        let asked = life.get(&path)?;
        let (status, body) = match env.timeout(PATIENCE, asked).await {
            Some(Ok(Ok(answer))) => answer,
            Some(Ok(Err(error))) => {
                model.violation(format!("the catalog answers nonsense: {error}"));
                return None;
            }
            Some(Err(_)) | None => {
                self.context.note(&format!("looks at life {}: no answer", life.life));
                return None;
            }
        };
        let behind = body["config"][BEHIND_KEY].as_str().map(str::to_owned);
        let place = body["metadata-location"].as_str().unwrap_or_default().to_owned();
        self.context
            .note(&format!("looks at life {}: {status}, behind {behind:?}, {place}", life.life));
        match status {
            200 => self.check(body, &floors, behind.is_some()).await,
            404 if floors.iter().any(|floor| *floor > 0) => {
                model.violation("a topic with records has no table".to_owned());
            }
            404 | 503 => {}
            _ => model.violation(format!("the catalog answers {status}: {body}")),
        }
        if status == 200 && behind.is_none() {
            model.count(|counts| counts.whole_looks += 1);
        }
        (status == 200).then_some(behind.is_none())
    }

    async fn check(&self, mut body: Value, floors: &[i64], is_behind: bool) {
        let model = &self.context.model;
        let metadata = serde_json::from_value(body["metadata"].take());
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) => return model.violation(format!("table metadata: {error}")),
        };
        match self.files.content(&metadata).await {
            Err(error) => model.violation(format!("a table cannot be read: {error}")),
            Ok(content) => {
                let count = content.rows.len();
                self.context.note(&format!("table has {count} rows"));
                let topic = self.partitions[0].topic;
                let seen = TableSeen { topic, floors, is_behind, content: &content };
                check_table(model, "table", &seen);
            }
        }
    }
}
