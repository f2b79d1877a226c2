//! `floe topics`: asks a running broker.

use super::arguments::{Target, TopicsArguments, TopicsCommand};
use super::client::{Client, escape};
use super::{Outcome, print, print_json, runtime};
use crate::http::{TopicView, TopicsPage};
use crate::text::{bytes, plain, table};
use floe_env::{Env, Error, Result};

/// Where a broker is by default.
const HTTP_DEFAULT: &str = "127.0.0.1:8080";
/// A broker that gives more pages than this gives the same ones again and again.
const PAGES_MAX: usize = 10_000;

impl Target {
    pub(super) fn client(&self, env: Env) -> Result<Client> {
        let variable = std::env::var("FLOE_HTTP").ok().filter(|address| !address.is_empty());
        let address = self.http.clone().or(variable);
        Client::new(env, address.as_deref().unwrap_or(HTTP_DEFAULT))
    }
}

pub(super) fn topics(arguments: TopicsArguments) -> Outcome {
    let TopicsArguments { target, command } = arguments;
    match command {
        None | Some(TopicsCommand::List) => {
            let topics = runtime::run_command(async |env| all_topics(&target.client(env)?).await)??;
            if target.json { print_json(&topics) } else { print(&topics_listing(&topics)) }
        }
        Some(TopicsCommand::Describe { name }) => {
            let topic = runtime::run_command(async |env| {
                let path = format!("/v1/topics/{}", escape(&name));
                target.client(env)?.get::<TopicView>(&path).await
            })??;
            let topic = topic.ok_or_else(|| Error::invalid(format!("there is no topic {name}")))?;
            if target.json { print_json(&topic) } else { print(&topic_description(&topic)) }
        }
    }
}

pub(super) async fn all_topics(client: &Client) -> Result<Vec<TopicView>> {
    let mut topics = Vec::new();
    let mut path = "/v1/topics".to_owned();
    for _ in 0..PAGES_MAX {
        let page: Option<TopicsPage> = client.get(&path).await?;
        let page = page.ok_or_else(|| Error::invalid("the broker does not know /v1/topics"))?;
        topics.extend(page.topics);
        let Some(next) = page.next else { return Ok(topics) };
        path = format!("/v1/topics?after={}", escape(&next));
    }
    Err(Error::limit(format!("the broker gave over {PAGES_MAX} pages of topics")))
}

pub(super) fn topics_listing(topics: &[TopicView]) -> String {
    if topics.is_empty() {
        return "There are no topics yet.\n".to_owned();
    }
    let rows = topics.iter().map(|topic| {
        vec![
            topic.name.clone(),
            topic.partition_count.to_string(),
            topic.records.to_string(),
            bytes(topic.bytes),
            topic.table.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    });
    let mut text = table(&["TOPIC", "PARTITIONS", "RECORDS", "SIZE", "TABLE"], rows.collect());
    for topic in topics.iter().filter(|topic| topic.kept_partitions > 0) {
        let (name, kept) = (plain(&topic.name), topic.kept_partitions);
        text.push_str(&format!(
            "{name}: {kept} of its partitions keep records longer than its configs say; see \
             `floe topics describe {name}`\n"
        ));
    }
    text
}

pub(super) fn topic_description(topic: &TopicView) -> String {
    let mut text = format!("Topic {}\n", plain(&topic.name));
    text.push_str(&format!("  id       {}\n", plain(&topic.id)));
    text.push_str(&format!("  records  {}\n", topic.records));
    text.push_str(&format!("  size     {}\n", bytes(topic.bytes)));
    text.push_str(&format!("  table    {}\n\n", plain(topic.table.as_deref().unwrap_or("-"))));
    let rows = topic.partitions.iter().map(|partition| {
        vec![
            partition.partition.to_string(),
            partition.log_start.to_string(),
            partition.last_stable.to_string(),
            partition.high_watermark.to_string(),
            bytes(partition.bytes),
        ]
    });
    let headings = ["PARTITION", "LOG START", "LAST STABLE", "HIGH WATERMARK", "SIZE"];
    text.push_str(&table(&headings, rows.collect()));
    for partition in &topic.partitions {
        let Some(why) = &partition.kept else { continue };
        let (index, why) = (partition.partition, plain(why));
        text.push_str(&format!("Partition {index} keeps records longer than asked: {why}\n"));
    }
    text
}
