//! The bill of a month, line by line: pure.

use super::basis::Basis;
use super::in_range;
use super::prices::Prices;
use clap::Args;
use floe_env::Result;
use serde::Serialize;

/// Hours of a month.
const HOURS: f64 = 730.0;
/// Days of a month.
const DAYS: f64 = HOURS / 24.0;
/// Seconds of a month.
const SECONDS: f64 = HOURS * 3600.0;

/// What is asked of Floe. Rates are of bytes as producers send them, compressed if they compress.
#[derive(Args, Clone, Debug)]
pub(super) struct Workload {
    /// MiB a second that all producers send.
    #[arg(long, value_name = "MIB", default_value_t = SMALL.mib_per_second)]
    pub(super) mib_per_second: f64,
    /// How often each byte is consumed as it comes.
    #[arg(long, value_name = "TIMES", default_value_t = SMALL.fan_out)]
    pub(super) fan_out: f64,
    /// Days that the log keeps records.
    #[arg(long, value_name = "DAYS", default_value_t = SMALL.retention_days)]
    pub(super) retention_days: f64,
    /// Topics that are tables, with all the bytes; 0 for no tables.
    #[arg(long, value_name = "COUNT", default_value_t = SMALL.tables)]
    pub(super) tables: f64,
    /// How often an hour a table is queried, or committed without; each time with something new.
    #[arg(long, value_name = "TIMES", default_value_t = SMALL.looks_per_hour)]
    pub(super) looks_per_hour: f64,
    /// Days that tables keep rows.
    #[arg(long, value_name = "DAYS", default_value_t = SMALL.table_days)]
    pub(super) table_days: f64,
    /// Bytes of a table for each byte of its log; by default as measured, of uncompressed JSON.
    #[arg(long, value_name = "BYTES")]
    pub(super) table_bytes: Option<f64>,
    /// The share of producers' and consumers' bytes that goes to another zone.
    #[arg(long, value_name = "SHARE", default_value_t = SMALL.cross_zone)]
    pub(super) cross_zone: f64,
    /// MiB a second that producers may send to one broker; by default what was measured.
    #[arg(long, value_name = "MIB")]
    pub(super) broker_mib_per_second: Option<f64>,
    /// Virtual CPUs of a broker's machine.
    #[arg(long, value_name = "COUNT", default_value_t = SMALL.broker_vcpus)]
    pub(super) broker_vcpus: f64,
}

/// The defaults: one topic with its table.
pub(super) const SMALL: Workload = Workload {
    mib_per_second: 1.0,
    fan_out: 1.0,
    retention_days: 7.0,
    tables: 1.0,
    looks_per_hour: 60.0,
    table_days: 30.0,
    table_bytes: None,
    cross_zone: 0.0,
    broker_mib_per_second: None,
    broker_vcpus: 2.0,
};

impl Workload {
    /// # Errors
    /// `Invalid` for what cannot be.
    pub(super) fn check(&self) -> Result<()> {
        in_range("--mib-per-second", self.mib_per_second, 0.001..=1e6)?;
        in_range("--fan-out", self.fan_out, 0.0..=1e4)?;
        in_range("--retention-days", self.retention_days, 0.0..=1e5)?;
        in_range("--tables", self.tables, 0.0..=1e6)?;
        in_range("--looks-per-hour", self.looks_per_hour, 0.0..=3600.0)?;
        in_range("--table-days", self.table_days, 0.0..=1e5)?;
        in_range("--cross-zone", self.cross_zone, 0.0..=1.0)?;
        in_range("--broker-vcpus", self.broker_vcpus, 0.1..=1e4)?;
        in_range("--table-bytes", self.table_bytes.unwrap_or(0.0), 0.0..=100.0)?;
        let most = self.broker_mib_per_second.unwrap_or(1.0);
        in_range("--broker-mib-per-second", most, 0.001..=1e6)
    }
}

/// One line.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    /// What is paid for.
    pub(super) item: &'static str,
    /// How much of it there is in a month.
    pub(super) quantity: f64,
    /// The quantity's unit.
    pub(super) unit: &'static str,
    /// $ a month.
    pub(super) dollars: f64,
}

/// What a month costs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Bill {
    /// MiB a second that producers send.
    pub(super) mib_per_second: f64,
    /// Topics that are tables.
    pub(super) tables: f64,
    /// Brokers that it takes.
    pub(super) brokers: f64,
    /// Cores that are busy, of all that the brokers have.
    pub(super) cores_in_use: f64,
    pub(super) lines: Vec<Line>,
    /// $ a month.
    pub(super) total: f64,
    /// $ for each GiB that producers send.
    pub(super) per_gib: f64,
}

impl Bill {
    /// What the workload costs, once the log and the tables hold all that they keep.
    pub(super) fn of(workload: &Workload, prices: &Prices, basis: &Basis) -> Self {
        let measured = basis.rates[1].mib_per_second;
        let most = workload.broker_mib_per_second.unwrap_or(measured);
        let brokers = (workload.mib_per_second / most).ceil();
        let broker = basis.broker(workload.mib_per_second / brokers);
        let gib_per_second = workload.mib_per_second / 1024.0;
        let gib = gib_per_second * SECONDS;
        let table_bytes = workload.table_bytes.unwrap_or(basis.table_bytes);
        let has_tables = if workload.tables > 0.0 { 1.0 } else { 0.0 };
        let commits = workload.tables * workload.looks_per_hour * HOURS;
        let per_1000 = |price: f64| price / 1000.0;
        let kept = |days: f64| gib * days / DAYS;
        let crossing = gib * (1.0 + workload.fan_out) * workload.cross_zone;
        let lines = vec![
            line(
                "PUTs of the log",
                broker.puts_per_second * brokers * SECONDS,
                "PUTs",
                per_1000(prices.put_per_1000),
            ),
            line(
                "PUTs of tables",
                commits * basis.puts_per_commit,
                "PUTs",
                per_1000(prices.put_per_1000),
            ),
            line(
                "GETs of tables",
                commits * basis.gets_per_commit,
                "GETs",
                per_1000(prices.get_per_1000),
            ),
            line("the log", kept(workload.retention_days), "GiB", prices.gib_month),
            line(
                "tables",
                has_tables * table_bytes * kept(workload.table_days),
                "GiB",
                prices.gib_month,
            ),
            line(
                "brokers",
                brokers * workload.broker_vcpus * HOURS,
                "vCPU hours",
                prices.vcpu_hour,
            ),
            line("PostgreSQL", 1.0, "month", prices.database_month),
            line("between zones", crossing, "GiB", prices.zone_gib),
        ];
        let total = lines.iter().map(|line| line.dollars).sum();
        Self {
            mib_per_second: workload.mib_per_second,
            tables: workload.tables,
            brokers,
            cores_in_use: broker.cores * brokers
                + gib_per_second
                    * (workload.fan_out * basis.consume_cpu + has_tables * basis.table_cpu),
            lines,
            total,
            per_gib: total / gib,
        }
    }
}

fn line(item: &'static str, quantity: f64, unit: &'static str, price: f64) -> Line {
    Line { item, quantity, unit, dollars: quantity * price }
}

#[cfg(test)]
mod tests {
    use super::super::basis::Rate;
    use super::*;
    use crate::cli::arguments::{Command, CommandLine};
    use clap::Parser;

    /// Figures that are easy to multiply.
    fn basis() -> Basis {
        Basis {
            rates: [
                Rate { mib_per_second: 1.0, puts_per_second: 4.0, cores: 0.1 },
                Rate { mib_per_second: 33.0, puts_per_second: 8.0, cores: 0.5 },
            ],
            consume_cpu: 2.0,
            table_cpu: 4.0,
            puts_per_commit: 5.0,
            gets_per_commit: 1.0,
            table_bytes: 0.5,
        }
    }

    fn bill(flags: &str) -> Bill {
        let words = format!("floe cost {flags}");
        let line = CommandLine::try_parse_from(words.split_whitespace()).unwrap();
        let Command::Cost(arguments) = line.command else { panic!("{words}") };
        arguments.workload.check().unwrap();
        Bill::of(&arguments.workload, &arguments.prices, &basis())
    }

    fn quantities(bill: &Bill) -> Vec<f64> {
        bill.lines.iter().map(|line| line.quantity).collect()
    }

    #[test]
    fn a_month_of_one_broker_adds_up() {
        let found = bill("--mib-per-second 17 --tables 2 --looks-per-hour 10 --cross-zone 0.5");
        // Half way between what was measured.
        let gib = 17.0 / 1024.0 * SECONDS;
        let expected = [
            6.0 * SECONDS,
            2.0 * 10.0 * 730.0 * 5.0,
            2.0 * 10.0 * 730.0,
            17.0 / 1024.0 * 7.0 * 86_400.0,
            17.0 / 1024.0 * 30.0 * 86_400.0 * 0.5,
            2.0 * 730.0,
            1.0,
            gib,
        ];
        for (found, expected) in quantities(&found).iter().zip(expected) {
            assert!((found - expected).abs() < expected * 1e-9, "{found} {expected}");
        }
        assert!((found.lines[0].dollars - 6.0 * SECONDS * 0.000_005).abs() < 1e-6);
        assert!(
            (found.total - found.lines.iter().map(|line| line.dollars).sum::<f64>()).abs() < 1e-9
        );
        assert!((found.per_gib - found.total / gib).abs() < 1e-9);
        assert!((found.cores_in_use - (0.3 + 17.0 / 1024.0 * 6.0)).abs() < 1e-9);
    }

    #[test]
    fn more_than_a_broker_was_measured_with_takes_more_brokers() {
        let found = bill("--mib-per-second 66.1 --tables 0 --fan-out 0");
        assert_eq!(found.brokers, 3.0);
        assert_eq!(quantities(&found)[1..3], [0.0, 0.0]);
        assert_eq!(quantities(&found)[4], 0.0, "no tables store nothing");
        assert_eq!(bill("--mib-per-second 66.1 --broker-mib-per-second 100").brokers, 1.0);
    }

    #[test]
    fn a_low_rate_costs_the_requests_of_the_lowest_that_was_measured() {
        assert!((quantities(&bill("--mib-per-second 0.01"))[0] - 4.0 * SECONDS).abs() < 1e-3);
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_flag() {
        for flags in ["--mib-per-second 0", "--fan-out -1", "--cross-zone 1.5", "--tables NaN"] {
            let words = format!("floe cost {}", flags.replace(" -", "=-"));
            let line = CommandLine::try_parse_from(words.split_whitespace()).unwrap();
            let Command::Cost(arguments) = line.command else { panic!("{words}") };
            let refused = arguments.workload.check().unwrap_err().to_string();
            assert!(refused.starts_with(flags.split(' ').next().unwrap()), "{refused}");
        }
    }

    #[test]
    fn what_was_measured_has_every_figure() {
        let measured = Basis::measured().unwrap();
        let [low, high] = measured.rates;
        assert!(0.0 < low.mib_per_second && low.mib_per_second < high.mib_per_second);
        assert!(0.0 < low.cores && low.cores < high.cores);
        for figure in [
            measured.consume_cpu,
            measured.table_cpu,
            measured.puts_per_commit,
            measured.table_bytes,
            low.puts_per_second,
            high.puts_per_second,
        ] {
            assert!(figure > 0.0, "{measured:?}");
        }
    }
}
