//! Seeded random bodies, made from the layouts.
//!
//! A body is written as the message layer would write it back: known tags before unknown ones, in
//! rising order, and never with the value that a missing tag stands for.

use super::{Field, Kind, Layout, Struct};

/// The splitmix64 generator: small, seeded, good enough to fill messages.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// A body of `layout` at `version`. Arrays have one to three elements, or now and then none.
pub(crate) fn body(layout: &Layout, version: i16, random: &mut Random) -> Vec<u8> {
    let flexible = layout.is_flexible(version);
    let mut filler = Filler { bytes: Vec::new(), version, flexible, random, null_at: None };
    filler.structure(&layout.body);
    filler.bytes
}

/// As [`body`], but the value number `index` of those that must not be null is null. `None` when
/// there are not so many.
pub(crate) fn body_with_null(
    layout: &Layout,
    version: i16,
    random: &mut Random,
    index: usize,
) -> Option<Vec<u8>> {
    let flexible = layout.is_flexible(version);
    let null_at = Some(index);
    let mut filler = Filler { bytes: Vec::new(), version, flexible, random, null_at };
    filler.structure(&layout.body);
    filler.null_at.is_none().then_some(filler.bytes)
}

struct Filler<'a> {
    bytes: Vec<u8>,
    version: i16,
    flexible: bool,
    random: &'a mut Random,
    /// Values that must not be null until the one that is made null all the same.
    null_at: Option<usize>,
}

impl Filler<'_> {
    fn structure(&mut self, structure: &Struct) {
        for field in structure.fields {
            if field.tag.is_none() && field.exists_at(self.version) {
                self.value(field, &field.kind);
            }
        }
        if self.flexible {
            self.tags(structure.fields);
        }
    }

    fn tags(&mut self, fields: &[Field]) {
        let mut tags: Vec<(u32, Vec<u8>)> = Vec::new();
        for field in fields {
            let Some(tag) = field.tag.filter(|_| field.exists_at(self.version)) else { continue };
            if self.random.chance(2) {
                let outside = std::mem::take(&mut self.bytes);
                // Null would be what a missing tag stands for, so it is not written here, and a
                // tag that may be null is none of those that must not be.
                let null_at = if field.nullable { self.null_at.take() } else { None };
                self.value(&field.element(), &field.kind);
                self.null_at = null_at.or(self.null_at);
                tags.push((tag, std::mem::replace(&mut self.bytes, outside)));
            }
        }
        tags.sort();
        if self.random.chance(4) {
            for index in 0..=self.random.below(20) {
                let size = self.random.below(4);
                tags.push((1000 + 7 * index as u32, vec![0xab; size]));
            }
        }
        self.varint(tags.len() as u32);
        for (tag, content) in tags {
            self.varint(tag);
            self.varint(content.len() as u32);
            self.bytes.extend(content);
        }
    }

    fn value(&mut self, field: &Field, kind: &Kind) {
        let has_length = !matches!(kind, Kind::Fixed(_) | Kind::Part(_) | Kind::Maybe(_));
        let is_null = if field.nullable {
            self.random.chance(4)
        } else {
            has_length && self.is_wrongly_null()
        };
        match kind {
            // One byte is a boolean as often as a number.
            Kind::Fixed(1) => self.bytes.push(self.random.below(2) as u8),
            Kind::Fixed(bytes) => {
                (0..*bytes).for_each(|_| self.bytes.push(self.random.next() as u8 & 0x7f));
            }
            Kind::Text if is_null => self.length(None, self.flexible, true),
            Kind::Text => {
                let text = "a topic's näme, cut".chars().take(1 + self.random.below(19));
                let text: String = text.collect();
                self.length(Some(text.len()), self.flexible, true);
                self.bytes.extend(text.bytes());
            }
            Kind::Bytes | Kind::List(_) | Kind::Rows(_) if is_null => {
                self.length(None, self.flexible, false);
            }
            Kind::Bytes => {
                let size = self.random.below(300);
                self.length(Some(size), self.flexible, false);
                (0..size).for_each(|_| self.bytes.push(self.random.next() as u8));
            }
            Kind::List(element) => {
                let count = self.count();
                (0..count).for_each(|_| self.value(&field.element(), element));
            }
            Kind::Rows(row) => {
                let count = self.count();
                (0..count).for_each(|_| self.structure(row));
            }
            Kind::Part(structure) => self.structure(structure),
            Kind::Maybe(_) if self.random.chance(2) => self.bytes.push(0xff),
            Kind::Maybe(structure) => {
                self.bytes.push(1);
                self.structure(structure);
            }
        }
    }

    fn is_wrongly_null(&mut self) -> bool {
        let is_due = self.null_at == Some(0);
        self.null_at = if is_due { None } else { self.null_at.map(|left| left - 1) };
        is_due
    }

    fn count(&mut self) -> usize {
        let count = if self.random.chance(8) { 0 } else { 1 + self.random.below(3) };
        self.length(Some(count), self.flexible, false);
        count
    }

    fn length(&mut self, length: Option<usize>, compact: bool, short: bool) {
        if compact {
            self.varint(length.map_or(0, |length| length as u32 + 1));
        } else if short {
            self.bytes.extend(length.map_or(-1, |length| length as i16).to_be_bytes());
        } else {
            self.bytes.extend(length.map_or(-1, |length| length as i32).to_be_bytes());
        }
    }

    fn varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}
