//! How far a table has got: the next offset of every partition of its topic. Every snapshot carries
//! the whole map in its summary, so the table itself says what it holds.
//!
//! Packed as text: `1:<topic id>:<offset>,<offset>*<count>,...`, offsets in base 36 by partition
//! index, equal neighbours as one entry with a count. The leading number is the version of this
//! format.

use floe_env::{Error, Result};
use kfs::TopicId;
use std::fmt::Write as _;
use uuid::Uuid;

/// Key of the map in a snapshot's summary.
pub const PROGRESS_KEY: &str = "floe.progress";
const FORMAT_VERSION: &str = "1";
const RADIX: u32 = 36;
/// More partitions than any topic has; a map that claims more is corrupt.
const PARTITIONS_MAX: usize = 1_000_000;

/// The whole map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whose offsets these are.
    pub topic: TopicId,
    /// By partition index; partitions beyond are at 0.
    pub next_offsets: Vec<i64>,
}

impl Progress {
    /// Nothing read yet.
    pub fn start(topic: TopicId) -> Self {
        Self { topic, next_offsets: Vec::new() }
    }

    /// The next offset of a partition.
    pub fn next_offset(&self, partition: usize) -> i64 {
        self.next_offsets.get(partition).copied().unwrap_or(0)
    }

    /// Sets a partition's next offset.
    pub fn advance(&mut self, partition: usize, next_offset: i64) {
        if self.next_offsets.len() <= partition {
            self.next_offsets.resize(partition + 1, 0);
        }
        self.next_offsets[partition] = next_offset;
    }

    /// The further one of both, partition by partition.
    #[must_use]
    pub fn max(mut self, other: &Self) -> Self {
        for (partition, next) in other.next_offsets.iter().enumerate() {
            if *next > self.next_offset(partition) {
                self.advance(partition, *next);
            }
        }
        self
    }

    /// No further than these ends.
    #[must_use]
    pub fn cut_to(mut self, ends: &[i64]) -> Self {
        for (partition, next) in self.next_offsets.iter_mut().enumerate() {
            *next = (*next).min(ends.get(partition).copied().unwrap_or(0));
        }
        self
    }

    /// How many offsets below `ends` are not in the table.
    pub fn behind(&self, ends: &[i64]) -> i64 {
        let missing = |(partition, end): (usize, &i64)| {
            end.saturating_sub(self.next_offset(partition)).max(0)
        };
        ends.iter().enumerate().map(missing).fold(0, i64::saturating_add)
    }

    /// The map as text.
    pub fn pack(&self) -> String {
        let mut text = format!("{FORMAT_VERSION}:{}:", self.topic);
        let mut rest = self.next_offsets.as_slice();
        while let Some(&offset) = rest.first() {
            let count = rest.iter().take_while(|next| **next == offset).count();
            push_radix(&mut text, offset);
            if count > 1 {
                write!(text, "*{count}").expect("a string takes any text");
            }
            rest = &rest[count..];
            if !rest.is_empty() {
                text.push(',');
            }
        }
        text
    }

    /// The map from text.
    ///
    /// # Errors
    /// `Corrupt` for anything that [`Progress::pack`] does not write.
    pub fn unpack(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| Error::corrupt(format!("progress map `{text}`")))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        if parts.next()? != FORMAT_VERSION {
            return None;
        }
        let topic = TopicId(Uuid::parse_str(parts.next()?).ok()?);
        let mut progress = Self::start(topic);
        for entry in parts.next()?.split(',').filter(|entry| !entry.is_empty()) {
            let (offset, count) = entry.split_once('*').unwrap_or((entry, "1"));
            let offset = i64::from_str_radix(offset, RADIX).ok().filter(|offset| *offset >= 0)?;
            let count: usize = count.parse().ok()?;
            let length = progress.next_offsets.len().checked_add(count)?;
            if length > PARTITIONS_MAX {
                return None;
            }
            progress.next_offsets.resize(length, offset);
        }
        Some(progress)
    }
}

fn push_radix(text: &mut String, offset: i64) {
    let mut digits = Vec::new();
    let mut rest = offset.unsigned_abs();
    loop {
        let digit = u32::try_from(rest % u64::from(RADIX)).expect("a remainder below 36");
        digits.push(char::from_digit(digit, RADIX).expect("a digit below 36"));
        rest /= u64::from(RADIX);
        if rest == 0 {
            break;
        }
    }
    text.extend(digits.iter().rev());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packs_equal_neighbours() {
        let topic = TopicId(Uuid::from_u128(7));
        let progress = Progress { topic, next_offsets: vec![0, 0, 0, 1_000_000, 35] };
        let text = progress.pack();
        assert_eq!(text, "1:00000000-0000-0000-0000-000000000007:0*3,lfls,z");
        assert_eq!(Progress::unpack(&text).unwrap(), progress);
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        let id = Uuid::from_u128(7);
        let texts = [
            String::new(),
            format!("2:{id}:0"),
            "1:x:0".to_owned(),
            format!("1:{id}:-1"),
            format!("1:{id}:0*99999999999"),
            format!("1:{id}:0*1000001"),
        ];
        for text in texts {
            assert!(Progress::unpack(&text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn comes_back_as_it_was(offsets in prop::collection::vec(0..=i64::MAX, 0..40)) {
            let progress = Progress { topic: TopicId(Uuid::from_u128(9)), next_offsets: offsets };
            prop_assert_eq!(Progress::unpack(&progress.pack()).unwrap(), progress);
        }
    }
}
