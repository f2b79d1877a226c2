//! Going on with a stopped table, as an operator has decided.
//!
//! A table is stopped where main does not hold what Floe committed last: it was rolled back, or
//! replaced. Two ways lead on, and each is a snapshot without rows on top of main as it is, which
//! moves the tag there:
//!
//! * `rewind`: the table holds what main says. What it has lost is read again from the log, as far
//!   as the log still has it.
//! * `from-here`: the table goes on behind what Floe committed last. What main has lost stays lost,
//!   and is noted as a gap.

use super::columns::mapping_of;
use super::kind::{Kind, KnownStop};
use super::table::{Maps, maps, owner_problem};
use super::{CommitEnd, Committer, Gap, LoadedTable, Staged};
use crate::encode::DecodeCounts;
use crate::mapping::Mapping;
use crate::progress::Progress;
use crate::schema::iceberg_schema;
use floe_env::{Error, Result};
use iceberg::spec::TableMetadata;
use kfs::TopicId;
use std::sync::Arc;

/// Why the rows of such a gap are not there.
const WHY_LEFT_OUT: &str = "taken out of the table by others, and left out by an operator";

/// Where a stopped table goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeFrom {
    /// At what main holds.
    Rewind,
    /// Behind what Floe committed last.
    Here,
}

impl ResumeFrom {
    /// As it stands in the summary and in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rewind => "rewind",
            Self::Here => "from-here",
        }
    }

    /// Of its name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Rewind, Self::Here].into_iter().find(|from| from.name() == name)
    }
}

impl Committer {
    /// Goes on with a stopped table. `Overtaken` where it has changed meanwhile.
    ///
    /// # Errors
    /// `Invalid` where it is not stopped, or cannot go on like this, with the reason; `Fenced`
    /// where it is not ours; whatever the stores answer.
    pub async fn resume(&self, base: Arc<LoadedTable>, from: ResumeFrom) -> Result<CommitEnd> {
        let Some(reason) = &base.stopped else {
            return Err(Error::invalid("the table is not stopped"));
        };
        let (metadata, topic) = (&base.metadata, base.progress.topic);
        if let Some(problem) = owner_problem(metadata, (self.cluster, topic), base.pointer.table_id)
        {
            return Err(Error::fenced(format!("the table cannot be resumed: {problem}")));
        }
        let maps = maps(metadata).map_err(Error::corrupt)?;
        let mapping = checked_mapping(metadata, &maps)?;
        if from == ResumeFrom::Rewind && maps.is_history_expired {
            let remedy = "resume it from here, or let main name one of Floe's snapshots first";
            return Err(Error::invalid(format!(
                "nobody knows what main holds ({reason}): {remedy}"
            )));
        }
        let held = maps.main.clone().unwrap_or_else(|| Progress::start(topic));
        let to = match from {
            ResumeFrom::Rewind => held.clone(),
            ResumeFrom::Here => newest(maps, topic, reason)?,
        };
        let gaps = left_out(&held, &to);
        let staged = Staged {
            from: base.progress.clone(),
            to,
            from_mapping: mapping.clone(),
            mapping,
            files: Vec::new(),
            gaps,
            counts: DecodeCounts::default(),
            may_be_named: false,
        };
        let kind = Kind::Resume(KnownStop::of(&base), from.name());
        self.commit(base, staged, &kind).await
    }
}

impl Committer {
    /// Goes on with a table that has more than its log, at the log's end: what it has beyond stays,
    /// and other records come with the same offsets. `Overtaken` where it has changed meanwhile.
    ///
    /// # Errors
    /// Whatever the stores answer.
    pub(crate) async fn resume_at(
        &self,
        base: Arc<LoadedTable>,
        log_ends: &[i64],
    ) -> Result<CommitEnd> {
        let staged = Staged {
            from: base.progress.clone(),
            to: base.progress.clone().cut_to(log_ends),
            from_mapping: base.mapping.clone(),
            mapping: base.mapping.clone(),
            files: Vec::new(),
            gaps: Vec::new(),
            counts: DecodeCounts::default(),
            may_be_named: false,
        };
        let kind = Kind::Resume(KnownStop::of(&base), ResumeFrom::Rewind.name());
        self.commit(base, staged, &kind).await
    }
}

/// The furthest that either map says: behind it nothing was ever committed.
fn newest(maps: Maps, topic: TopicId, reason: &str) -> Result<Progress> {
    if let Some(foreign) = maps.tagged.as_ref().filter(|tagged| tagged.topic != topic) {
        let theirs = foreign.topic;
        let remedy = format!("the tag's map is of topic {theirs}; resume with rewind");
        return Err(Error::invalid(format!("{remedy} ({reason})")));
    }
    match (maps.main, maps.tagged) {
        (Some(main), Some(tagged)) => Ok(main.max(&tagged)),
        (Some(known), None) | (None, Some(known)) => Ok(known),
        (None, None) => {
            let remedy = "no snapshot says what was committed last; resume with rewind";
            Err(Error::invalid(format!("{remedy} ({reason})")))
        }
    }
}

fn left_out(held: &Progress, to: &Progress) -> Vec<Gap> {
    let until = to.next_offsets.iter().copied().enumerate();
    let missing = until.filter(|(partition, until)| held.next_offset(*partition) < *until);
    let gap = |(partition, until)| Gap {
        partition,
        from: held.next_offset(partition),
        until,
        why: WHY_LEFT_OUT.to_owned(),
    };
    missing.map(gap).collect()
}

/// The mapping, whose rows must fit. Whoever replaces a table may give its columns other ids: they
/// must then be what they were, by name too.
fn checked_mapping(metadata: &TableMetadata, maps: &Maps) -> Result<Mapping> {
    let mapping = mapping_of(metadata).map_err(Error::invalid)?;
    if maps.main.is_some() || maps.is_history_expired {
        return Ok(mapping);
    }
    let (ours, theirs) = (iceberg_schema(&mapping)?, metadata.current_schema());
    for own in ours.as_struct().fields() {
        let found = theirs.as_struct().field_by_id(own.id);
        if found.is_none_or(|found| found.name != own.name || found.field_type != own.field_type) {
            return Err(Error::invalid(format!(
                "column {} is not what it was; bring it back first",
                own.name
            )));
        }
    }
    Ok(mapping)
}
