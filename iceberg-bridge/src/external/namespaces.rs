//! Namespaces: the one of topics' tables, which is always there, and those that engines have made,
//! which are facts. All have one level.
//!
//! Who makes a table in a namespace counts it in the namespace's fact, so that nobody drops the
//! namespace at the same time.

use super::{ATTEMPTS_MAX, Rejection, check_name};
use crate::bridge::Bridge;
use bytes::Bytes;
use floe_env::Error;
use floe_metadata::facts::{Change, ChangeOutcome, Check, Expect, FactKey, FactRange, Write};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const NAMESPACES: &str = "namespaces";
const FORMAT_VERSION: u32 = 1;

/// What is kept of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Namespace {
    version: u32,
    /// Whatever engines say of it.
    pub(crate) properties: BTreeMap<String, String>,
    /// Counts the tables that were made in it, or moved to it.
    tables_made: u64,
}

/// A change of a namespace's properties, and what it did.
#[derive(Clone, Debug, Default)]
pub(crate) struct PropertyChanges {
    pub(crate) updates: BTreeMap<String, String>,
    pub(crate) removals: Vec<String>,
}

fn key_of(name: &str) -> FactKey {
    FactKey::new(&[NAMESPACES, name])
}

impl Namespace {
    fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("a struct of text and numbers is JSON"))
    }

    fn decode(key: &FactKey, value: &Bytes) -> Result<Self, Error> {
        let fact = || format!("fact {}", key.as_str());
        let read: Self = serde_json::from_slice(value)
            .map_err(|error| Error::corrupt(fact()).with_source(error))?;
        match read.version {
            FORMAT_VERSION => Ok(read),
            version => Err(Error::invalid(format!("{} has unknown version {version}", fact()))),
        }
    }
}

impl Bridge {
    /// A namespace. `None` if there is none of this name.
    pub(crate) async fn namespace(&self, name: &str) -> Result<Option<Namespace>, Error> {
        if name == self.config().namespace {
            let owner = BTreeMap::from([("owner".to_owned(), "floe".to_owned())]);
            let (version, properties) = (FORMAT_VERSION, owner);
            return Ok(Some(Namespace { version, properties, tables_made: 0 }));
        }
        Ok(self.read_namespace(name).await?.map(|(_, namespace)| namespace))
    }

    async fn read_namespace(&self, name: &str) -> Result<Option<(Bytes, Namespace)>, Error> {
        let key = key_of(name);
        let found = self.metadata().backend().get(std::slice::from_ref(&key)).await?.pop();
        let Some(value) = found.flatten() else { return Ok(None) };
        let namespace = Namespace::decode(&key, &value)?;
        Ok(Some((value, namespace)))
    }

    pub(super) async fn check_namespace(&self, name: &str) -> Result<(), Rejection> {
        match self.namespace(name).await? {
            Some(_) => Ok(()),
            None => Err(Rejection::NoSuchNamespace(name.to_owned())),
        }
    }

    /// Names of namespaces behind `after`, `limit` at most.
    pub(crate) async fn namespaces(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, Error> {
        let folder = FactKey::new(&[NAMESPACES]).folder();
        // The first key behind `after`: a NUL never occurs in a key.
        let from = after.map_or(folder.from, |name| format!("{}\0", key_of(name).as_str()));
        let range = FactRange { from, until: folder.until };
        let facts = match range.from < range.until {
            true => self.metadata().backend().scan(&range, limit).await?,
            false => Vec::new(),
        };
        let mut names: Vec<String> =
            facts.iter().filter_map(|(key, _)| key.segments().into_iter().nth(1)).collect();
        let own = &self.config().namespace;
        if after.is_none_or(|after| key_of(own) > key_of(after)) && !names.contains(own) {
            names.push(own.clone());
        }
        names.sort_by_key(|name| key_of(name));
        names.truncate(limit);
        Ok(names)
    }

    pub(crate) async fn create_namespace(
        &self,
        name: &str,
        properties: BTreeMap<String, String>,
    ) -> Result<(), Rejection> {
        check_name(name)?;
        let namespace = Namespace { version: FORMAT_VERSION, properties, tables_made: 0 };
        let absent = Check { key: key_of(name), expect: Expect::Absent };
        let change = Change {
            checks: vec![absent],
            writes: vec![Write::Put(key_of(name), namespace.encode())],
            ..Change::default()
        };
        let is_own = name == self.config().namespace;
        if is_own || self.metadata().change(&change).await? == ChangeOutcome::Rejected {
            return Err(Rejection::AlreadyExists(name.to_owned()));
        }
        Ok(())
    }

    /// Drops an empty namespace.
    pub(crate) async fn drop_namespace(&self, name: &str) -> Result<(), Rejection> {
        if name == self.config().namespace {
            let why = format!("namespace {name} holds the tables of topics, and stays");
            return Err(Rejection::Invalid(why));
        }
        for _ in 0..ATTEMPTS_MAX {
            let known = self.read_namespace(name).await?;
            let (value, _) = known.ok_or_else(|| Rejection::NoSuchNamespace(name.to_owned()))?;
            if !self.pointers().list(name, None, 1).await?.is_empty() {
                return Err(Rejection::NamespaceNotEmpty(name.to_owned()));
            }
            let same = Check { key: key_of(name), expect: Expect::Value(value) };
            let (checks, writes) = (vec![same], vec![Write::Delete(key_of(name))]);
            let change = Change { checks, writes, ..Change::default() };
            if self.metadata().change(&change).await? == ChangeOutcome::Applied {
                return Ok(());
            }
        }
        Err(Rejection::Conflict("others kept changing the namespace".to_owned()))
    }

    /// Changes a namespace's properties. Answers which of the removals were not there.
    pub(crate) async fn change_namespace(
        &self,
        name: &str,
        changes: &PropertyChanges,
    ) -> Result<Vec<String>, Rejection> {
        if name == self.config().namespace {
            return Err(Rejection::Invalid(format!("the properties of {name} are Floe's")));
        }
        for _ in 0..ATTEMPTS_MAX {
            let known = self.read_namespace(name).await?;
            let (value, mut namespace) =
                known.ok_or_else(|| Rejection::NoSuchNamespace(name.to_owned()))?;
            let missing =
                changes.removals.iter().filter(|key| namespace.properties.remove(*key).is_none());
            let missing: Vec<String> = missing.cloned().collect();
            namespace.properties.extend(changes.updates.clone());
            let change = replacement(name, value, &namespace);
            if self.metadata().change(&change).await? == ChangeOutcome::Applied {
                return Ok(missing);
            }
        }
        Err(Rejection::Conflict("others kept changing the namespace".to_owned()))
    }

    /// Adds to a change that makes a table in a namespace what keeps the namespace there.
    pub(super) async fn claim_namespace(
        &self,
        name: &str,
        change: &mut Change,
    ) -> Result<(), Rejection> {
        let is_claimed = change.checks.iter().any(|check| check.key == key_of(name));
        if name == self.config().namespace || is_claimed {
            return Ok(());
        }
        let known = self.read_namespace(name).await?;
        let (value, mut namespace) =
            known.ok_or_else(|| Rejection::NoSuchNamespace(name.to_owned()))?;
        namespace.tables_made += 1;
        let claim = replacement(name, value, &namespace);
        change.checks.extend(claim.checks);
        change.writes.extend(claim.writes);
        Ok(())
    }
}

fn replacement(name: &str, known: Bytes, namespace: &Namespace) -> Change {
    Change {
        checks: vec![Check { key: key_of(name), expect: Expect::Value(known) }],
        writes: vec![Write::Put(key_of(name), namespace.encode())],
        ..Change::default()
    }
}
