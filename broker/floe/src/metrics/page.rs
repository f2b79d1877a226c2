//! The metrics as a page: `docs/metrics.md`.

use super::registrar::Described;
use crate::text::wrap;

const INTRODUCTION: &str = "\
<!-- Generated from broker/floe/src/metrics by `floe config --metrics`; do not edit. -->

# Metrics

`GET /metrics` on the HTTP address answers in Prometheus's text format. Times are in seconds, sizes
in bytes. Counters start at zero with the process. A histogram has the series `_bucket`, `_sum` and
`_count`.
";

pub(super) fn markdown(described: &[Described]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for family in described {
        let labels = match family.labels {
            [] => String::new(),
            labels => format!(" by `{}`", labels.join("`, `")),
        };
        let text = wrap(&format!("A {}{labels}. {}", family.kind, family.help));
        page.push_str(&format!("\n### `{}`\n\n{text}\n", family.name));
    }
    page
}
