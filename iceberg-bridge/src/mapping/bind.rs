//! A mapping beside its table's own schema, which others may have changed: columns are bound by
//! field id, whatever their names are now. Names and ids that the table has given away are taken,
//! so that no new column gets one of them.

use super::{Kind, Mapping, NodeIndex, ROOT};
use iceberg::spec::{StructType, Type};
use std::collections::BTreeMap;

impl Mapping {
    /// Takes the table's names, and `others` at the top; new columns get ids above
    /// `last_field_id`.
    pub(crate) fn bind(
        &mut self,
        schema: &StructType,
        others: impl IntoIterator<Item = String>,
        last_field_id: i32,
    ) {
        self.last_field_id = last_field_id;
        self.take_names(ROOT, schema);
        let names = &mut self.nodes[ROOT].fields.names;
        names.extend(others.into_iter().map(|name| name.to_lowercase()));
    }

    fn take_names(&mut self, node: NodeIndex, schema: &StructType) {
        let by_id = self.columns_by_id(node);
        for field in schema.fields() {
            self.nodes[node].fields.names.insert(field.name.to_lowercase());
            if let Some(column) = by_id.get(&field.id) {
                self.take_names_in(*column, &field.field_type);
            }
        }
    }

    fn take_names_in(&mut self, node: NodeIndex, field_type: &Type) {
        match (field_type, self.nodes[node].kind, self.nodes[node].element) {
            (Type::Struct(members), Kind::Struct, _) => self.take_names(node, members),
            (Type::List(list), Kind::List, Some(element)) => {
                self.take_names_in(element, &list.element_field.field_type);
            }
            _ => {}
        }
    }

    /// The columns of a struct, or of the record, by field id.
    pub(crate) fn columns_by_id(&self, node: NodeIndex) -> BTreeMap<i32, NodeIndex> {
        let columns = self.nodes[node].fields.columns.iter();
        columns.map(|column| (self.nodes[*column].field_id, *column)).collect()
    }
}
