//! What the command line takes. The settings' flags come from the settings' table.

use super::cost::CostArguments;
use super::settings::SettingFlags;
use clap::{ArgGroup, Args, Parser, Subcommand};
use std::path::PathBuf;

/// A Kafka-compatible broker whose storage is the lakehouse.
///
/// Kafka producers and consumers connect to it unchanged; what they write is at once a set of
/// Apache Iceberg tables. `floe serve` starts a broker on a directory; nothing needs to be
/// configured.
#[derive(Parser, Debug)]
#[command(name = "floe", bin_name = "floe", disable_help_subcommand = true)]
#[command(version, arg_required_else_help = true)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Run a broker until it is told to stop (Ctrl-C).
    Serve(ServeArguments),
    /// Show every setting with its value and where the value comes from.
    Config(ConfigArguments),
    /// List the topics of a running broker, or describe one.
    Topics(TopicsArguments),
    /// List the Iceberg tables of a running broker and how far they are behind.
    Tables(TablesArguments),
    /// Look into segment files.
    #[command(subcommand)]
    Segments(SegmentsCommand),
    /// Check the configuration, the stores and the addresses, and say what is wrong.
    Doctor(DoctorArguments),
    /// Put metadata back from a snapshot, or make metadata that was put back from a backup the one
    /// that holds. No broker may run.
    Restore(RestoreArguments),
    /// Compute what a month costs at given prices, from what was measured.
    Cost(CostArguments),
    /// Show the version.
    Version,
}

#[derive(Args, Debug)]
pub(super) struct ServeArguments {
    #[command(flatten)]
    pub(super) settings: SettingFlags,
}

#[derive(Args, Debug)]
pub(super) struct ConfigArguments {
    #[command(flatten)]
    pub(super) settings: SettingFlags,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Print the page about all settings, in Markdown.
    #[arg(long, conflicts_with = "json")]
    pub(super) markdown: bool,
    /// Print the page about all metrics, in Markdown.
    #[arg(long, conflicts_with_all = ["json", "markdown"])]
    pub(super) metrics: bool,
}

/// Which running broker is asked.
#[derive(Args, Debug)]
pub(super) struct Target {
    /// HTTP address of the broker; by default FLOE_HTTP, else 127.0.0.1:8080.
    #[arg(long, value_name = "URL", global = true)]
    pub(super) http: Option<String>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct TopicsArguments {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(subcommand)]
    pub(super) command: Option<TopicsCommand>,
}

#[derive(Subcommand, Debug)]
pub(super) enum TopicsCommand {
    /// List all topics (the default).
    List,
    /// Show one topic and its partitions.
    Describe {
        /// The topic's name.
        name: String,
    },
}

#[derive(Args, Debug)]
pub(super) struct TablesArguments {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(subcommand)]
    pub(super) command: Option<TablesCommand>,
}

#[derive(Subcommand, Debug)]
pub(super) enum TablesCommand {
    /// List all tables (the default).
    List,
    /// Show all that is known of one table.
    Describe {
        /// The table's name.
        name: String,
    },
    /// Let a stopped table go on. `floe tables` says why it was stopped.
    #[command(group = ArgGroup::new("from").required(true))]
    Resume {
        /// The table's name.
        name: String,
        /// Go on at what the table holds: what others took out is read again from its topic.
        #[arg(long, group = "from")]
        rewind: bool,
        /// Go on behind what was committed last: what others took out stays out, as a gap.
        #[arg(long, group = "from")]
        from_here: bool,
    },
    /// Bring tables to one moment: every record that was acknowledged before, in a snapshot of
    /// each.
    Flush {
        /// The tables' names.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Bring all tables back after the metadata store was lost. No broker may run.
    Recover(RecoverArguments),
    /// After the store was moved: write the addresses of all tables anew. No broker may run.
    Relocate(RelocateArguments),
}

#[derive(Args, Debug)]
pub(super) struct RecoverArguments {
    #[command(flatten)]
    pub(super) settings: SettingFlags,
}

#[derive(Args, Debug)]
pub(super) struct RelocateArguments {
    #[command(flatten)]
    pub(super) settings: SettingFlags,
}

#[derive(Subcommand, Debug)]
pub(super) enum SegmentsCommand {
    /// Show and verify what a .kfs file holds, of version 1 or 2.
    Inspect(InspectArguments),
}

#[derive(Args, Debug)]
pub(super) struct InspectArguments {
    /// The file.
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Show every batch too.
    #[arg(long)]
    pub(super) batches: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct RestoreArguments {
    #[command(flatten)]
    pub(super) settings: SettingFlags,
    /// Put back the newest snapshot that is in the object store. The metadata file must not be
    /// there.
    #[arg(long, conflicts_with = "list")]
    pub(super) from_store: bool,
    /// The snapshot to put back instead of the newest.
    #[arg(long, value_name = "NAME", requires = "from_store")]
    pub(super) snapshot: Option<String>,
    /// Show the snapshots that are in the object store, and change nothing.
    #[arg(long)]
    pub(super) list: bool,
}

#[derive(Args, Debug)]
pub(super) struct DoctorArguments {
    #[command(flatten)]
    pub(super) settings: SettingFlags,
    /// After a restore: let objects be deleted again, once what is lost has been shown.
    #[arg(long)]
    pub(super) reconcile: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}
