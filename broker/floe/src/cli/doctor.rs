//! `floe doctor`: looks at everything that a broker needs, changes nothing, and says what is wrong
//! and what to do about it. With `--reconcile` it then lets objects be deleted again that a restore
//! has kept.

use super::arguments::DoctorArguments;
use super::assembly::{Assembly, Deletion, Reconciliation};
use super::client::Client;
use super::remote::all_topics;
use super::{Failure, Outcome, print, print_json, progress, runtime};
use crate::config::{Address, Config, Machine};
use crate::http::{StatusView, TopicView};
use crate::text::{bytes, plain};
use floe_env::{Env, Error, ErrorKind};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Well.
    Ok,
    /// Worth knowing.
    Warning,
    /// A broker would not work.
    Failed,
}

/// One check's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) level: Level,
    pub(super) text: String,
}

impl Finding {
    fn new(check: &'static str, level: Level, text: impl Into<String>) -> Self {
        Self { check, level, text: text.into() }
    }

    fn line(&self) -> String {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Failed => "FAILED",
        };
        format!("{level:<9}{:<11}{}\n", self.check, plain(&self.text))
    }
}

pub(super) fn run(arguments: DoctorArguments, assembly: Arc<dyn Assembly>) -> Outcome {
    let config = arguments.settings.config()?;
    let findings = runtime::run_command(async |env| {
        examine(&env, &config, assembly.as_ref(), arguments.reconcile).await
    })?;
    progress::clear();
    if arguments.json {
        print_json(&findings)?;
    } else {
        print(&findings.iter().map(Finding::line).collect::<String>())?;
    }
    let has_failure = findings.iter().any(|finding| finding.level == Level::Failed);
    if has_failure { Err(Failure::Reported) } else { Ok(()) }
}

/// Makes every check; `reconciles` lets objects be deleted again that a restore has kept.
pub(super) async fn examine(
    env: &Env,
    config: &Config,
    assembly: &dyn Assembly,
    reconciles: bool,
) -> Vec<Finding> {
    let mut findings = vec![Finding::new("config", Level::Ok, "every setting is valid")];
    findings.push(check_memory(config, Machine::current()));
    findings.push(check_data(env, config).await);
    let http = &config.listen.http;
    let running = running_broker(env, http).await;
    findings.push(check_address("kafka", &config.listen.kafka, running.as_ref()).await);
    findings.push(check_address("http", http, running.as_ref()).await);
    let store = assembly.check_store(env, config).await;
    let metadata = assembly.check_metadata(env, config).await;
    let both_opened = store.is_ok() && metadata.is_ok();
    findings.push(opened("store", store));
    findings.push(opened("metadata", metadata));
    if let Some(catalog) = assembly.check_catalog(env, config).await.transpose() {
        findings.push(opened("catalog", catalog));
    }
    if both_opened {
        let reconciled = assembly.reconcile(env, config, reconciles, &progress::show).await;
        match reconciled {
            Ok(reconciled) => findings.extend(compared(reconciled)),
            Err(error) => {
                findings.push(Finding::new("objects", Level::Failed, error.to_string()));
            }
        }
    } else {
        let text = "not compared with the metadata: a store could not be opened";
        findings.push(Finding::new("objects", Level::Warning, text));
    }
    // The stores of a broker that runs cannot always be opened, but it knows better.
    if running.is_some() && !both_opened {
        findings.push(kept_by_running(env, http).await);
    }
    findings
}

fn check_memory(config: &Config, machine: Machine) -> Finding {
    let (budget, installed) = (config.memory.budget_bytes, machine.memory_bytes);
    let text = format!("budget {} of {}", bytes(budget), bytes(installed));
    if budget > installed / 10 * 9 {
        let advice = format!("{text}: set memory.budget_bytes to at most 9/10 of the memory");
        return Finding::new("memory", Level::Warning, advice);
    }
    Finding::new("memory", Level::Ok, text)
}

async fn check_data(env: &Env, config: &Config) -> Finding {
    let data = config.data.clone();
    let probe = format!(".floe-doctor-{}", env.uuid());
    env.blocking(move || match std::fs::metadata(&data) {
        Ok(found) if found.is_dir() => match try_writing(&data.join(probe)) {
            Ok(()) => Finding::new("data", Level::Ok, data.display().to_string()),
            Err(error) => {
                let text = format!("cannot write in {}: {error}", data.display());
                Finding::new("data", Level::Failed, text)
            }
        },
        Ok(_) => Finding::new("data", Level::Failed, format!("{} is no directory", data.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = format!("{} does not exist yet; serve makes it", data.display());
            Finding::new("data", Level::Ok, text)
        }
        Err(error) => {
            let text = format!("cannot look at {}: {error}", data.display());
            Finding::new("data", Level::Failed, text)
        }
    })
    .await
}

fn try_writing(probe: &Path) -> std::io::Result<()> {
    let written = std::fs::write(probe, b"floe");
    let removed = std::fs::remove_file(probe);
    written.and(removed)
}

/// The broker that answers at the HTTP address, if one does.
async fn running_broker(env: &Env, http: &Address) -> Option<StatusView> {
    let client = Client::new(env.clone(), &http.to_string()).ok()?;
    client.get("/v1/status").await.ok().flatten()
}

/// What the broker that runs says of records that it keeps for longer than asked.
async fn kept_by_running(env: &Env, http: &Address) -> Finding {
    let topics = match Client::new(env.clone(), &http.to_string()) {
        Ok(client) => all_topics(&client).await,
        Err(error) => Err(error),
    };
    match topics {
        Ok(topics) => kept_of(&topics),
        Err(error) => Finding::new("retention", Level::Warning, error.to_string()),
    }
}

pub(super) fn kept_of(topics: &[TopicView]) -> Finding {
    let kept = topics.iter().filter(|topic| topic.kept_partitions > 0);
    let names: Vec<&str> = kept.map(|topic| topic.name.as_str()).collect();
    let Some(first) = names.first() else {
        let text = "no partition keeps records for longer than its topic's configs say";
        return Finding::new("retention", Level::Ok, text);
    };
    let count = names.len();
    let text = format!(
        "{count} topics keep records for longer than their configs say: see `floe topics describe \
         {first}`"
    );
    Finding::new("retention", Level::Warning, text)
}

async fn check_address(
    check: &'static str,
    address: &Address,
    running: Option<&StatusView>,
) -> Finding {
    let Err(error) = TcpListener::bind((address.host.as_str(), address.port)).await else {
        return Finding::new(check, Level::Ok, format!("{address} is free"));
    };
    match running {
        Some(status) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let broker = status.broker;
            let text = format!("{address} is used by the running broker {broker}");
            Finding::new(check, Level::Warning, text)
        }
        _ => Finding::new(check, Level::Failed, format!("cannot listen on {address}: {error}")),
    }
}

fn opened(check: &'static str, result: Result<String, Error>) -> Finding {
    match result {
        Ok(text) => Finding::new(check, Level::Ok, text),
        Err(error) if error.kind() == ErrorKind::Limit => {
            Finding::new(check, Level::Warning, error.to_string())
        }
        Err(error) => Finding::new(check, Level::Failed, error.to_string()),
    }
}

fn compared(reconciled: Reconciliation) -> Vec<Finding> {
    let Reconciliation { objects, problems, notes, kept, deletion } = reconciled;
    let mut findings = Vec::with_capacity(2 + problems.len() + notes.len() + kept.len());
    if problems.is_empty() {
        let text = format!("{objects} objects agree with the metadata");
        findings.push(Finding::new("objects", Level::Ok, text));
    }
    let failed = |text| Finding::new("objects", Level::Failed, text);
    let noted = |text| Finding::new("objects", Level::Warning, text);
    findings.extend(problems.into_iter().map(failed));
    findings.extend(notes.into_iter().map(noted));
    if kept.is_empty() {
        let text = "no partition keeps records for longer than it should";
        findings.push(Finding::new("retention", Level::Ok, text));
    }
    let kept = kept.into_iter().map(|text| Finding::new("retention", Level::Warning, text));
    findings.extend(kept);
    match deletion {
        Deletion::Goes => {}
        Deletion::Stopped(reason) => findings.push(Finding::new(
            "deletion",
            Level::Warning,
            format!(
                "nothing is deleted from the object store, because {reason}: `floe doctor \
                 --reconcile` lets what nothing names be deleted"
            ),
        )),
        Deletion::Allowed => {
            let text = "objects that nothing names are deleted again";
            findings.push(Finding::new("deletion", Level::Ok, text));
        }
    }
    findings
}
