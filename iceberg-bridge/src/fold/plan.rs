//! What is folded. Pure.
//!
//! A file has a generation, which its name tells: 0 as it was committed, then one more than the
//! files that it was folded from. Only files of one generation and one partition are folded, and
//! those of the third never again; so no byte is folded more than three times. The first folds are
//! of few and young files, so that a table has few; the later ones of more, and where a partition
//! has gone quiet, of what there is. Whatever makes a full file is folded at once.

use iceberg::spec::DataFile;
use std::collections::BTreeMap;
use std::time::Duration;

/// Files of this generation are not folded.
const LAST_GENERATION: u8 = 3;
/// Files that one fold takes.
const FILES_MAX: usize = 500;
/// A file with this share of a full one's bytes is full, percent.
const FULL_PERCENT: u64 = 75;

/// When files are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldRules {
    /// Bytes of a full file. A table may have smaller ones, never larger.
    pub file_bytes_max: u64,
    /// So many files as they were committed are folded.
    pub fresh_files: usize,
    /// Two of them are folded when the older one is so old.
    pub fresh_age: Duration,
    /// So many files of the first generation are folded.
    pub first_files: usize,
    /// So many files of the second generation are folded.
    pub second_files: usize,
    /// A partition that got no file for so long is quiet: two files of a generation are folded.
    pub quiet: Duration,
}

impl Default for FoldRules {
    fn default() -> Self {
        Self {
            file_bytes_max: 64 << 20,
            fresh_files: 16,
            fresh_age: Duration::from_secs(600),
            first_files: 4,
            second_files: 12,
            quiet: Duration::from_secs(6 * 3600),
        }
    }
}

impl FoldRules {
    /// The rules for a table whose files are full with so many bytes.
    pub(super) fn for_files_of(self, bytes: Option<u64>) -> Self {
        let file_bytes_max = bytes.map_or(self.file_bytes_max, |own| own.min(self.file_bytes_max));
        Self { file_bytes_max, ..self }
    }

    /// Bytes of a file that is not small any more.
    pub(super) fn full_bytes(&self) -> u64 {
        self.file_bytes_max / 100 * FULL_PERCENT
    }

    fn files_of(&self, generation: u8) -> usize {
        match generation {
            0 => self.fresh_files,
            1 => self.first_files,
            _ => self.second_files,
        }
    }
}

/// A file that may be folded.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) spec_id: i32,
    pub(super) generation: u8,
    pub(super) sequence_number: i64,
    /// When it was committed, ms since the Unix epoch.
    pub(super) committed_ms: i64,
    pub(super) file: DataFile,
}

/// Files that become one.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) spec_id: i32,
    /// Theirs; the new file's is one more.
    pub(super) generation: u8,
    pub(super) files: Vec<DataFile>,
}

/// The fold that leaves the fewest files, if one is due.
pub(super) fn plan(candidates: Vec<Candidate>, rules: &FoldRules, now_ms: i64) -> Option<Fold> {
    let full_bytes = rules.full_bytes();
    let mut groups: BTreeMap<(i32, String, u8), Vec<Candidate>> = BTreeMap::new();
    let mut newest_ms: BTreeMap<(i32, String), i64> = BTreeMap::new();
    for candidate in candidates {
        let partition = (candidate.spec_id, format!("{:?}", candidate.file.partition()));
        let newest = newest_ms.entry(partition.clone()).or_default();
        *newest = candidate.committed_ms.max(*newest);
        let is_small = candidate.file.file_size_in_bytes() < full_bytes;
        if is_small && candidate.generation < LAST_GENERATION {
            let key = (partition.0, partition.1, candidate.generation);
            groups.entry(key).or_default().push(candidate);
        }
    }
    let due = groups.into_iter().filter_map(|((spec_id, partition, generation), mut group)| {
        group.sort_by_key(|candidate| candidate.sequence_number);
        let quiet_since = newest_ms.get(&(spec_id, partition)).copied().unwrap_or_default();
        let is_quiet = age(quiet_since, now_ms) >= rules.quiet;
        let files = oldest_that_fit(group, rules, full_bytes, (is_quiet, now_ms))?;
        Some(Fold { spec_id, generation, files })
    });
    due.max_by_key(|fold| fold.files.len())
}

/// The oldest files of a group that make a full one, or all if enough of them are there.
fn oldest_that_fit(
    group: Vec<Candidate>,
    rules: &FoldRules,
    full_bytes: u64,
    (is_quiet, now_ms): (bool, i64),
) -> Option<Vec<DataFile>> {
    let generation = group.first()?.generation;
    let oldest_age = age(group.first()?.committed_ms, now_ms);
    let count = group.len();
    let mut bytes = 0;
    let fits = group.into_iter().take(FILES_MAX).take_while(|candidate| {
        let with = bytes + candidate.file.file_size_in_bytes();
        let is_fitting = with <= rules.file_bytes_max;
        if is_fitting {
            bytes = with;
        }
        is_fitting
    });
    let files: Vec<DataFile> = fits.map(|candidate| candidate.file).collect();
    let is_due = count >= rules.files_of(generation)
        || is_quiet
        || bytes >= full_bytes
        // More than fits: the rest makes another.
        || files.len() < count
        || (generation == 0 && oldest_age >= rules.fresh_age);
    (is_due && files.len() > 1).then_some(files)
}

fn age(committed_ms: i64, now_ms: i64) -> Duration {
    Duration::from_millis(now_ms.saturating_sub(committed_ms).max(0).unsigned_abs())
}
