//! The mapping as text, for the table property `floe.mapping`.

use super::{Kind, MAPPING_VERSION, Mapping, NodeIndex, ROOT};
use crate::schema::FIXED_FIELD_ID_MAX;
use floe_env::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Table property: the columns beside the ten, and the keys that they came from.
pub const MAPPING_STATE_PROPERTY: &str = "floe.mapping";

#[derive(Serialize, Deserialize)]
struct Packed {
    v: u32,
    columns: Vec<Value>,
}

impl Mapping {
    /// The mapping as text: one line of JSON, a row a column by field id.
    pub fn pack(&self) -> String {
        let columns = self.columns().map(|node| {
            let around = self.node(node.parent);
            let mut row: Vec<Value> =
                vec![node.field_id.into(), around.field_id.into(), node.kind.name().into()];
            if around.kind == Kind::Struct {
                row.push(Value::from(&*node.key));
            }
            if node.name != node.key {
                row.push(Value::from(&*node.name));
            }
            Value::Array(row)
        });
        let packed = Packed { v: MAPPING_VERSION, columns: columns.collect() };
        serde_json::to_string(&packed).expect("numbers and text are JSON")
    }

    /// The mapping from text.
    ///
    /// # Errors
    /// `Corrupt` where the text makes no sense, or has another version.
    pub fn unpack(text: &str) -> Result<Self> {
        let packed: Packed = serde_json::from_str(text)
            .map_err(|error| Error::corrupt("mapping of columns").with_source(error))?;
        if packed.v != MAPPING_VERSION {
            return Err(Error::corrupt(format!("mapping version {} is not known", packed.v)));
        }
        let mut mapping = Self::new();
        let mut by_id = BTreeMap::from([(0, ROOT)]);
        for row in &packed.columns {
            let added = mapping.unpack_column(row, &by_id);
            let (id, index) =
                added.ok_or_else(|| Error::corrupt(format!("column {row} of the mapping")))?;
            by_id.insert(id, index);
        }
        let is_whole = |index: usize| {
            let node = mapping.node(index);
            match node.kind {
                Kind::Struct => !node.fields.columns.is_empty(),
                Kind::List => node.element.is_some(),
                _ => true,
            }
        };
        match (1..mapping.node_count()).all(is_whole) {
            true => Ok(mapping),
            false => Err(Error::corrupt("the mapping has a struct or list of nothing")),
        }
    }

    fn unpack_column(
        &mut self,
        row: &Value,
        by_id: &BTreeMap<i32, NodeIndex>,
    ) -> Option<(i32, NodeIndex)> {
        let number = |at: usize| i32::try_from(row.get(at)?.as_i64()?).ok();
        let text = |at: usize| row.get(at).and_then(Value::as_str);
        let (id, parent) = (number(0)?, *by_id.get(&number(1)?)?);
        let kind = Kind::ALL.into_iter().find(|kind| Some(kind.name()) == text(2))?;
        let around = self.node(parent);
        let is_new = id > FIXED_FIELD_ID_MAX && !by_id.contains_key(&id);
        let is_free = match around.kind {
            Kind::Struct => {
                let path = around.fields.by_key.get(text(3)?);
                path.is_none_or(|path| around.fields.column(*path, kind).is_none())
            }
            Kind::List => around.element.is_none(),
            _ => false,
        };
        if !is_new || !is_free {
            return None;
        }
        let key = text(3).unwrap_or_default();
        let name = text(4).unwrap_or(key);
        Some((id, self.push(parent, key, name, kind, id)))
    }
}
