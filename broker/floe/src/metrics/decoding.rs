//! What the limits of tables' columns keep out, over all tables since the start.

use super::registrar::{Registrar, label_values};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// A limit of a table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnLimit {
    /// `iceberg.json_columns_max`
    Columns,
    /// `iceberg.json_object_keys_max`
    ObjectKeys,
    /// `iceberg.json_depth_max`
    Depth,
    /// `iceberg.json_key_bytes_max`
    KeyBytes,
}

label_values!(ColumnLimit {
    Columns => "columns",
    ObjectKeys => "object_keys",
    Depth => "depth",
    KeyBytes => "key_bytes",
});

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: ColumnLimit,
}

/// The counters.
pub struct DecodingMetrics {
    limits: Family<LimitLabels, Counter>,
}

impl DecodingMetrics {
    pub(super) fn register(registrar: &mut Registrar) -> Self {
        Self {
            limits: registrar.counters(
                "table_mapping_limits",
                &["limit"],
                "Values that got no column because a table's columns are limited.",
            ),
        }
    }

    /// Values that a limit kept out.
    pub fn limited(&self, limit: ColumnLimit) -> Counter {
        self.limits.get_or_create_owned(&LimitLabels { limit })
    }
}
