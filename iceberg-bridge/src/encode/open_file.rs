//! A data file that takes rows: Arrow builders in front of the Parquet encoder.

use super::decode::Decoded;
use super::parquet_file::{DataFileWriter, EncodedFile, FileShape};
use super::rows::{Appended, RowColumns};
use super::{FileSlot, Row};
use crate::mapping::Mapping;
use floe_env::Result;

/// Rows that wait as Arrow columns before they are encoded.
const ROWS_PENDING_MAX: usize = 8192;
/// Bytes of keys, values and headers that wait as Arrow columns before they are encoded.
const BYTES_PENDING_MAX: usize = 4 << 20;
/// Cells that wait: in a wide table most are null, and take room all the same.
const CELLS_PENDING_MAX: usize = 1 << 20;

pub(super) struct OpenFile {
    slot: FileSlot,
    pending: RowColumns,
    /// The file of the rows before, and the size of the mapping that it is made of.
    writer: Option<(DataFileWriter, usize)>,
    /// Files that ended because the mapping grew.
    ended: Vec<EncodedFile>,
}

impl OpenFile {
    pub(super) fn new(shape: &FileShape, slot: FileSlot) -> Self {
        Self { slot, pending: RowColumns::new(&shape.schema), writer: None, ended: Vec::new() }
    }

    pub(super) fn push(&mut self, row: &Row<'_>, decoded: Decoded<'_>) -> Appended {
        self.pending.push(row, decoded)
    }

    /// Bytes of memory that it holds, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let writer = self.writer.as_ref().map_or(0, |(writer, _)| writer.memory_bytes());
        let ended: usize = self.ended.iter().map(|file| file.bytes.len()).sum();
        self.pending.bytes() + writer + ended
    }

    /// True if what waits is to be encoded.
    pub(super) fn is_full(&self, mapping: &Mapping) -> bool {
        let (rows, bytes) = (self.pending.rows(), self.pending.bytes());
        rows >= ROWS_PENDING_MAX
            || bytes >= BYTES_PENDING_MAX
            || rows.saturating_mul(mapping.leaves()) >= CELLS_PENDING_MAX
    }

    /// Encodes what waits; `shape` is the mapping's.
    pub(super) fn flush(&mut self, mapping: &Mapping, shape: &FileShape) -> Result<()> {
        if self.pending.rows() == 0 {
            return Ok(());
        }
        let size = mapping.node_count();
        if let Some((older, _)) = self.writer.take_if(|(_, made_of)| *made_of != size) {
            self.ended.push(older.finish()?);
        }
        let batch = shape.bound(self.pending.take(mapping, &shape.schema)?)?;
        match &mut self.writer {
            Some((writer, _)) => writer.write(&batch),
            none => {
                let mut writer = DataFileWriter::new(shape, self.slot)?;
                writer.write(&batch)?;
                *none = Some((writer, size));
                Ok(())
            }
        }
    }

    pub(super) fn finish(
        mut self,
        mapping: &Mapping,
        shape: &FileShape,
    ) -> Result<Vec<EncodedFile>> {
        self.flush(mapping, shape)?;
        if let Some((writer, _)) = self.writer {
            self.ended.push(writer.finish()?);
        }
        Ok(self.ended)
    }
}
