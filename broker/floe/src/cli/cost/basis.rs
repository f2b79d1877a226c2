//! What was measured: the results of the benches, as they stand in `benches/results`, compiled in.

use floe_env::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A bench's results, and the file that has them.
type File = (&'static str, &'static str);

const REQUESTS: File = ("requests", include_str!("../../../../../benches/results/requests.json"));
const SLOWLY: File =
    ("requests_slowly", include_str!("../../../../../benches/results/requests_slowly.json"));
const THROUGHPUT: File =
    ("throughput_s3", include_str!("../../../../../benches/results/throughput_s3.json"));
const TABLE: File = ("table_cost", include_str!("../../../../../benches/results/table_cost.json"));

/// A row, and the MiB a second that its producer was held to.
const SLOW_ROW: (&str, f64) = ("1 MiB/s", 1.0);
const STEADY_ROW: (&str, f64) = ("32 MiB/s, tuned producer", 32.0);
const PLAIN_ROW: &str = "16 partitions, batches of 128 KiB";
const TABLE_ROW: &str = "16 partitions, batches of 128 KiB, with its table";

/// A broker on an S3 store at one rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// MiB a second that producers send.
    pub(super) mib_per_second: f64,
    /// PUTs of segments and merged objects a second.
    pub(super) puts_per_second: f64,
    /// Cores in use.
    pub(super) cores: f64,
}

/// What the bill is computed from.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    /// A low rate, and the highest that was measured steadily; both of one broker.
    pub(super) rates: [Rate; 2],
    /// CPU seconds for each GiB that consumers read.
    pub(super) consume_cpu: f64,
    /// CPU seconds that its table adds to each GiB of a topic.
    pub(super) table_cpu: f64,
    /// PUTs of a commit of a small table, folds included.
    pub(super) puts_per_commit: f64,
    /// GETs of the same.
    pub(super) gets_per_commit: f64,
    /// Bytes of a table for each byte of its log.
    pub(super) table_bytes: f64,
}

#[derive(Deserialize)]
struct Results {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    rounds: Vec<BTreeMap<String, BTreeMap<String, f64>>>,
}

impl Basis {
    /// # Errors
    /// A bug where the results that were compiled in lack a row or a figure.
    pub(super) fn measured() -> Result<Self> {
        let [floe, without] = ["floe", "no_table"];
        let cpu = "produce_cpu_s_per_gib";
        let with_table = median(THROUGHPUT, Some(TABLE_ROW), floe, cpu)?;
        Ok(Self {
            rates: [rate(SLOWLY, SLOW_ROW)?, rate(REQUESTS, STEADY_ROW)?],
            consume_cpu: median(THROUGHPUT, Some(PLAIN_ROW), floe, "consume_cpu_s_per_gib")?,
            table_cpu: with_table - median(THROUGHPUT, Some(TABLE_ROW), without, cpu)?,
            puts_per_commit: median(TABLE, None, floe, "puts_per_commit")?,
            gets_per_commit: median(TABLE, None, floe, "gets_per_commit")?,
            table_bytes: median(TABLE, None, floe, "table_bytes_per_log_byte")?,
        })
    }

    /// PUTs a second and cores of one broker at a rate: on the line between what was measured, and
    /// at a lower rate what was measured at the lowest.
    pub(super) fn broker(&self, mib_per_second: f64) -> Rate {
        let [low, high] = self.rates;
        let at = (mib_per_second - low.mib_per_second) / (high.mib_per_second - low.mib_per_second);
        let between = |low: f64, high: f64| low + (high - low) * at.max(0.0);
        Rate {
            mib_per_second,
            puts_per_second: between(low.puts_per_second, high.puts_per_second),
            cores: between(low.cores, high.cores),
        }
    }
}

fn rate(file: File, (row, mib_per_second): (&str, f64)) -> Result<Rate> {
    let figure = |name| median(file, Some(row), "floe", name);
    Ok(Rate {
        mib_per_second,
        puts_per_second: figure("puts_per_s")?,
        cores: figure("cpu_s_per_gib")? * mib_per_second / 1024.0,
    })
}

/// The median over the rounds of one row, the only one where none is named.
fn median((bench, text): File, row: Option<&str>, side: &str, figure: &str) -> Result<f64> {
    let missing = || Error::bug(format!("the results of {bench} have no {side} {figure}"));
    let results: Results = serde_json::from_str(text).map_err(|error| {
        Error::bug(format!("cannot read the results of {bench}")).with_source(error)
    })?;
    let is_asked = |found: &&Row| row.is_none_or(|name| found.name == name);
    let row = results.rows.iter().find(is_asked).ok_or_else(missing)?;
    let of_round =
        |round: &BTreeMap<String, BTreeMap<String, f64>>| round.get(side)?.get(figure).copied();
    let mut values: Vec<f64> = row.rounds.iter().filter_map(of_round).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => Err(missing()),
        count if count % 2 == 1 => Ok(values[middle]),
        _ => Ok(f64::midpoint(values[middle - 1], values[middle])),
    }
}
