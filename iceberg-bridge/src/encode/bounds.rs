//! What a manifest says of a data file's columns: how many values are null, and between which
//! bounds the others lie. For the columns at the top that hold values themselves.
//!
//! Bounds of strings are cut by us, so that a cut one is never wrong: the lower one is a beginning
//! of the least value, the upper one is raised where it was cut.

use crate::schema::{COLUMN_NAMES, field};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef, TimeUnit};
use std::collections::BTreeSet;

/// Characters of a string that its bound has.
const TEXT_CHARS_MAX: usize = 16;
/// A column with a longer value has no bounds, bytes.
const BOUNDED_TEXT_BYTES_MAX: usize = 32 << 10;
/// Columns beside the ten that are counted; manifests stay small.
const COUNTED_COLUMNS_MAX: usize = 100;

/// The least and greatest value of a column in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Bounds {
    /// Of whole numbers of 32 bits.
    Int {
        /// No value is less.
        min: i32,
        /// No value is greater.
        max: i32,
    },
    /// Of timestamps, microseconds since the epoch.
    Time {
        /// No value is less.
        min: i64,
        /// No value is greater.
        max: i64,
    },
    /// Of whole numbers of 64 bits.
    Whole {
        /// No value is less.
        min: i64,
        /// No value is greater.
        max: i64,
    },
    /// Of doubles.
    Double {
        /// No value is less.
        min: f64,
        /// No value is greater.
        max: f64,
    },
    /// Of strings.
    Text {
        /// No value is less.
        min: String,
        /// No value is greater. `None` where nothing is, for that length.
        max: Option<String>,
    },
}

/// One column's statistics, batch by batch.
#[derive(Debug)]
pub(super) struct ColumnStatistics {
    position: usize,
    pub(super) field_id: i32,
    pub(super) nulls: u64,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    /// No bounds: not ordered, or not to be bounded.
    Unbounded,
    Int(Option<(i32, i32)>),
    Time(Option<(i64, i64)>),
    Whole(Option<(i64, i64)>),
    Double(Option<(f64, f64)>),
    Text(TextSeen),
}

#[derive(Debug, Default)]
struct TextSeen {
    min: Option<String>,
    max: Option<String>,
    is_max_cut: bool,
}

/// Empty statistics of a file's columns; `unbounded` holds ids of columns without bounds.
pub(super) fn statistics(schema: &SchemaRef, unbounded: &BTreeSet<i32>) -> Vec<ColumnStatistics> {
    let counted_max = COLUMN_NAMES.len() + COUNTED_COLUMNS_MAX;
    let mut counted = Vec::new();
    for (position, column) in schema.fields().iter().enumerate().take(counted_max) {
        let field_id = field_id(column);
        let bounded = match column.data_type() {
            DataType::Int32 => Seen::Int(None),
            DataType::Int64 => Seen::Whole(None),
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Seen::Time(None),
            DataType::Float64 => Seen::Double(None),
            DataType::Utf8 => Seen::Text(TextSeen::default()),
            DataType::Boolean | DataType::LargeBinary => Seen::Unbounded,
            _ => continue,
        };
        let is_bounded = !unbounded.contains(&field_id) && field_id != field::RESCUED;
        let seen = if is_bounded { bounded } else { Seen::Unbounded };
        counted.push(ColumnStatistics { position, field_id, nulls: 0, seen });
    }
    counted
}

/// The id that a schema's field carries, 0 if it carries none.
pub(super) fn field_id(column: &arrow_schema::Field) -> i32 {
    let id = column.metadata().get(parquet::arrow::PARQUET_FIELD_ID_META_KEY);
    id.and_then(|id| id.parse().ok()).unwrap_or(0)
}

impl ColumnStatistics {
    /// Counts a batch in.
    pub(super) fn add(&mut self, batch: &RecordBatch) {
        let array = batch.column(self.position);
        self.nulls += array.null_count() as u64;
        match &mut self.seen {
            Seen::Unbounded => {}
            Seen::Int(seen) => {
                let values = array.as_primitive::<Int32Type>().iter().flatten();
                values.for_each(|value| widen(seen, value));
            }
            Seen::Time(seen) => {
                let values = array.as_primitive::<TimestampMicrosecondType>();
                values.iter().flatten().for_each(|value| widen(seen, value));
            }
            Seen::Whole(seen) => {
                let values = array.as_primitive::<Int64Type>().iter().flatten();
                values.for_each(|value| widen(seen, value));
            }
            Seen::Double(seen) => {
                let values = array.as_primitive::<Float64Type>().iter().flatten();
                values.for_each(|value| widen(seen, value));
            }
            Seen::Text(seen) => {
                let mut values = array.as_string::<i32>().iter().flatten();
                if !values.all(|value| seen.widen(value)) {
                    self.seen = Seen::Unbounded;
                }
            }
        }
    }

    /// The bounds, if there are values and they have some.
    pub(super) fn bounds(&self) -> Option<Bounds> {
        match &self.seen {
            Seen::Unbounded => None,
            Seen::Int(seen) => seen.map(|(min, max)| Bounds::Int { min, max }),
            Seen::Time(seen) => seen.map(|(min, max)| Bounds::Time { min, max }),
            Seen::Whole(seen) => seen.map(|(min, max)| Bounds::Whole { min, max }),
            // Engines differ in whether the two zeros are equal.
            Seen::Double(seen) => seen.map(|(min, max)| Bounds::Double {
                min: if min == 0.0 { -0.0 } else { min },
                max: if max == 0.0 { 0.0 } else { max },
            }),
            Seen::Text(seen) => seen.bounds(),
        }
    }
}

fn widen<Value: Copy + PartialOrd>(seen: &mut Option<(Value, Value)>, value: Value) {
    match seen {
        None => *seen = Some((value, value)),
        Some((min, _)) if value < *min => *min = value,
        Some((_, max)) if value > *max => *max = value,
        Some(_) => {}
    }
}

impl TextSeen {
    /// False if the value is too long for bounds.
    fn widen(&mut self, value: &str) -> bool {
        if value.len() > BOUNDED_TEXT_BYTES_MAX {
            return false;
        }
        let end = value.char_indices().nth(TEXT_CHARS_MAX).map_or(value.len(), |(at, _)| at);
        let (beginning, is_cut) = (&value[..end], end < value.len());
        if self.min.as_deref().is_none_or(|min| beginning < min) {
            self.min = Some(beginning.to_owned());
        }
        match self.max.as_deref() {
            Some(max) if beginning < max => {}
            Some(max) if beginning == max => self.is_max_cut |= is_cut,
            _ => {
                self.max = Some(beginning.to_owned());
                self.is_max_cut = is_cut;
            }
        }
        true
    }

    fn bounds(&self) -> Option<Bounds> {
        let (min, max) = (self.min.clone()?, self.max.clone()?);
        let max = if self.is_max_cut { raised(max) } else { Some(max) };
        Some(Bounds::Text { min, max })
    }
}

/// The least text of that length at most that is greater than all that begin so.
fn raised(mut text: String) -> Option<String> {
    while let Some(last) = text.pop() {
        // The next code point; surrogates are none.
        let next = u32::from(last) + 1;
        let next = if next == 0xD800 { 0xE000 } else { next };
        if let Some(next) = char::from_u32(next) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bounds_of<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<Bounds> {
        let mut seen = TextSeen::default();
        values.into_iter().all(|value| seen.widen(value)).then(|| seen.bounds())?
    }

    #[test]
    fn short_texts_are_their_own_bounds() {
        let text = |min: &str, max: &str| {
            Some(Bounds::Text { min: min.to_owned(), max: Some(max.to_owned()) })
        };
        assert_eq!(bounds_of(["b", "", "ab"]), text("", "b"));
        let (sixteen, more) = ("x".repeat(16), "x".repeat(17));
        assert_eq!(bounds_of([&*sixteen]), text(&sixteen, &sixteen));
        let raised = format!("{}y", "x".repeat(15));
        assert_eq!(bounds_of([&*more]), text(&sixteen, &raised));
        assert_eq!(bounds_of([&*more, &*sixteen]), text(&sixteen, &raised));
        assert_eq!(bounds_of([&*sixteen, &*more]), text(&sixteen, &raised));
        let last = char::MAX.to_string().repeat(17);
        let Some(Bounds::Text { max: None, .. }) = bounds_of([&*last]) else {
            panic!("nothing is greater")
        };
        assert_eq!(raised_of("\u{d7ff}"), Some("\u{e000}".to_owned()));
        assert_eq!(bounds_of([&*"x".repeat(BOUNDED_TEXT_BYTES_MAX + 1)]), None);
    }

    fn raised_of(text: &str) -> Option<String> {
        raised(text.to_owned())
    }

    proptest! {
        #[test]
        fn no_text_is_outside_its_bounds(values in prop::collection::vec(".{0,20}", 1..8)) {
            let bounds = bounds_of(values.iter().map(String::as_str));
            let Some(Bounds::Text { min, max }) = bounds else {
                return Err(TestCaseError::fail("no bounds"));
            };
            for value in &values {
                prop_assert!(*value >= min);
                prop_assert!(max.as_ref().is_none_or(|max| value <= max));
            }
        }
    }
}
