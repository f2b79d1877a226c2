//! Bills as text: what `floe cost` prints, and `docs/cost.md`.

use super::basis::{Basis, Rate};
use super::bill::{Bill, SMALL, Workload};
use super::prices::{SOURCES, US_EAST_1};
use crate::text::{table, wrap};

/// The rates of the page, MiB a second, with the tables of each.
const RATES: [(f64, f64); 3] = [(1.0, 1.0), (32.0, 10.0), (1024.0, 100.0)];

const INTRODUCTION: &str = "\
<!-- Generated from broker/floe/src/cli/cost/page.rs by `floe cost --markdown`; do not edit. -->

# What it costs

`floe cost` computes a month's bill from what the benches measured and from prices that you may
give. For example, of 32 MiB a second that are read three times and kept for three days, with ten
tables that are queried every minute:

    floe cost --mib-per-second 32 --fan-out 3 --retention-days 3 --tables 10
    floe cost --mib-per-second 32 --gib-month 0.021 --vcpu-hour 0.034 --json

`floe cost --help` has the rest. Rates are of bytes as producers send them: compression counts.
";

const ASSUMPTIONS: &str = "\
- The object store is S3; brokers and clients are in its region, and in one zone. `--cross-zone` \
is the share of the clients' bytes that goes to another: with brokers in one zone and clients \
spread over three it is 0.67, and then mostly it is what is paid for.
- A broker takes what it was measured with, on two cores that it shared with the clients. \
Several brokers are not there yet: above one, the bill is that of several that share nothing.
- Consumers read what has just been written, from memory, and merging does too (`hour` in the \
README: 73 GETs in an hour). Who reads old records pays a GET for up to 8 MiB.
- A table is committed as often as it is queried, each time with something new; nothing else is \
put for tables. `--looks-per-hour 1` is what a table costs that nobody queries: a commit an hour \
at least.
- The bytes of tables are those of uncompressed JSON, which columns make twenty times smaller. \
Compressed records make the log smaller and their table not: `--table-bytes` gives another \
ratio.
- Below the lowest rate that was measured PUTs are counted as at that rate. Nothing is put when \
nothing is written.
- PostgreSQL is counted at the price that `--database-month` gives, by default none; with SQLite \
there is none, and its snapshots are two PUTs a minute for a small one, $0.44 a month, which are \
not counted. Deleting is free at S3; what was merged stays an hour longer, which is not counted.";

const OTHERS: &str = "\
These are vendors' own figures, of their own workloads and prices, not measured by us; they are \
here for their order of magnitude: compare lines rather than totals, which are of other \
retentions and without tables. At 1 GiB a second in and out AutoMQ states $12,899 a month for \
itself: $2,859 for machines, $5,961 for storage, $3,952 for requests to S3, $128 between zones; \
and $226,671 for Apache Kafka, of which $138,240 between zones (AutoMQ's documentation, \"AutoMQ \
vs. Apache Kafka Benchmarks and Cost\"). Bufstream's documentation (\"Benchmarks and cost\") has \
the same rate on six machines of 4 vCPUs and three of 2, and states an eighth of Apache Kafka's \
cost.";

/// The bill as a person reads it.
pub(super) fn listing(bill: &Bill) -> String {
    let mut rows = cells(bill);
    rows.push(["total".to_owned(), String::new(), dollars(bill.total)]);
    let rows = rows.into_iter().map(Vec::from).collect();
    format!("{}\n{}\n", table(&["A MONTH OF", "IS", "$"], rows), wrap(&summary(bill)))
}

/// The page.
pub(super) fn markdown(basis: &Basis) -> String {
    let bills = RATES.map(|(mib_per_second, tables)| {
        Bill::of(&Workload { mib_per_second, tables, ..SMALL }, &US_EAST_1, basis)
    });
    let bills: String = bills.iter().map(section).collect();
    let assumed: String = ASSUMPTIONS.lines().map(|line| format!("{}\n", wrap(line))).collect();
    format!(
        "{INTRODUCTION}{bills}\n## What it is computed from\n\n{}\n{}\n## What it assumes\n\n\
         {assumed}\n## What others state\n\n{}\n",
        measured(basis),
        priced(),
        wrap(OTHERS)
    )
}

/// One bill of the page.
fn section(bill: &Bill) -> String {
    let (rate, tables) = (bill.mib_per_second, bill.tables);
    let title = if rate < 1024.0 {
        format!("{rate} MiB a second")
    } else {
        format!("{} GiB a second", rate / 1024.0)
    };
    let rows: String = cells(bill)
        .iter()
        .map(|[item, quantity, dollars]| format!("| {item} | {quantity} | {dollars} |\n"))
        .collect();
    format!(
        "\n## {title}\n\n    floe cost --mib-per-second {rate} --tables {tables}\n\n\
         | a month of | is | $ |\n|---|---:|---:|\n{rows}| **total** | | **{}** |\n\n{}\n",
        dollars(bill.total),
        wrap(&summary(bill))
    )
}

/// Each line's item, quantity and dollars.
fn cells(bill: &Bill) -> Vec<[String; 3]> {
    let lines = bill.lines.iter().map(|line| {
        let quantity = format!("{} {}", thousands(line.quantity), line.unit);
        [line.item.to_owned(), quantity, dollars(line.dollars)]
    });
    lines.collect()
}

fn summary(bill: &Bill) -> String {
    let brokers = if bill.brokers == 1.0 { "broker" } else { "brokers" };
    format!(
        "${:.4} for each GiB that producers send; {} {brokers}, {:.2} cores busy.",
        bill.per_gib, bill.brokers, bill.cores_in_use
    )
}

/// The benches' figures.
fn measured(basis: &Basis) -> String {
    let of_rate = |rate: Rate| {
        format!(
            "{:.1} MiB/s: {:.1} PUTs a second, merging included, {:.2} cores",
            rate.mib_per_second, rate.puts_per_second, rate.cores
        )
    };
    let [low, high] = basis.rates.map(of_rate);
    let throughput = format!(
        "{:.1} CPU seconds a GiB that is consumed, {:.1} more a GiB that has a table",
        basis.consume_cpu, basis.table_cpu
    );
    let table = format!(
        "{:.1} PUTs and {:.1} GETs a commit; {:.2} bytes of table for a byte of JSON",
        basis.puts_per_commit, basis.gets_per_commit, basis.table_bytes
    );
    format!(
        "| bench | measured |\n|---|---|\n| `requests_slowly` | {low} |\n| `requests` | {high} |\n\
         | `throughput_s3` | {throughput} |\n| `table_cost` | {table} |\n\n\
         [benches/](../benches/README.md) says how.\n"
    )
}

/// The prices.
fn priced() -> String {
    let rows: String = SOURCES
        .iter()
        .map(|(flag, price, source)| format!("| `{flag}` | {price} | {source} |\n"))
        .collect();
    format!(
        "Prices are of AWS' region us-east-1 and may have changed since:\n\n\
         | price | default, $ | source |\n|---|---:|---|\n{rows}"
    )
}

/// A whole number with a comma at each thousand, or two digits where it is small.
fn thousands(number: f64) -> String {
    if number < 100.0 {
        return format!("{number:.2}").trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Cents where there are few dollars.
fn dollars(amount: f64) -> String {
    if amount < 100.0 { format!("{amount:.2}") } else { thousands(amount) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::check_page;

    #[test]
    fn the_page_is_up_to_date() {
        check_page("cost.md", &markdown(&Basis::measured().unwrap()));
    }

    #[test]
    fn a_listing_adds_up_and_groups_its_digits() {
        let bill = Bill::of(&SMALL, &US_EAST_1, &Basis::measured().unwrap());
        let text = listing(&bill);
        assert!(text.lines().any(|line| line.starts_with("PUTs of the log  ")), "{text}");
        let total = text.lines().find(|line| line.starts_with("total")).unwrap();
        assert!(total.ends_with(&dollars(bill.total)), "{text}");
        let shown = [0.0, 1.5, 99.996, 100.4, 1_234.0, 11_564_880.2].map(thousands);
        assert_eq!(shown, ["0", "1.5", "100", "100", "1,234", "11,564,880"]);
    }
}
