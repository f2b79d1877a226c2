//! Prices, in US dollars: defaults, each with its source, that flags replace.

use super::in_range;
use clap::Args;
use floe_env::Result;

/// What an object store, machines and a network ask for.
#[derive(Args, Clone, Debug)]
pub(super) struct Prices {
    /// $ for 1,000 PUTs.
    #[arg(long, value_name = "$", default_value_t = US_EAST_1.put_per_1000)]
    pub(super) put_per_1000: f64,
    /// $ for 1,000 GETs.
    #[arg(long, value_name = "$", default_value_t = US_EAST_1.get_per_1000)]
    pub(super) get_per_1000: f64,
    /// $ for a GiB that is stored for a month.
    #[arg(long, value_name = "$", default_value_t = US_EAST_1.gib_month)]
    pub(super) gib_month: f64,
    /// $ for a virtual CPU, with its memory, for an hour.
    #[arg(long, value_name = "$", default_value_t = US_EAST_1.vcpu_hour)]
    pub(super) vcpu_hour: f64,
    /// $ for a GiB that goes to another zone, both ends together.
    #[arg(long, value_name = "$", default_value_t = US_EAST_1.zone_gib)]
    pub(super) zone_gib: f64,
    /// $ for the PostgreSQL of a cluster for a month.
    #[arg(long, value_name = "$", default_value_t = US_EAST_1.database_month)]
    pub(super) database_month: f64,
}

/// The defaults: AWS' region us-east-1 when they were looked up.
pub(super) const US_EAST_1: Prices = Prices {
    put_per_1000: 0.005,
    get_per_1000: 0.0004,
    gib_month: 0.023,
    vcpu_hour: 0.0408,
    zone_gib: 0.02,
    database_month: 0.0,
};

/// Flag, default and source of each price that has a source.
pub(super) const SOURCES: [(&str, f64, &str); 5] = [
    ("--put-per-1000", US_EAST_1.put_per_1000, "Amazon S3 pricing, S3 Standard: PUT, POST, LIST"),
    ("--get-per-1000", US_EAST_1.get_per_1000, "Amazon S3 pricing, S3 Standard: GET"),
    ("--gib-month", US_EAST_1.gib_month, "Amazon S3 pricing, S3 Standard, the first 50 TB"),
    ("--vcpu-hour", US_EAST_1.vcpu_hour, "an m7g.4xlarge, 16 vCPUs, is $476.54 for 730 hours"),
    ("--zone-gib", US_EAST_1.zone_gib, "Amazon EC2 pricing, within a region: $0.01 at each end"),
];

impl Prices {
    /// # Errors
    /// `Invalid` for what is no price.
    pub(super) fn check(&self) -> Result<()> {
        for (flag, price) in [
            ("--put-per-1000", self.put_per_1000),
            ("--get-per-1000", self.get_per_1000),
            ("--gib-month", self.gib_month),
            ("--vcpu-hour", self.vcpu_hour),
            ("--zone-gib", self.zone_gib),
            ("--database-month", self.database_month),
        ] {
            in_range(flag, price, 0.0..=1e9)?;
        }
        Ok(())
    }
}
