//! The settings as flags, made from the settings' table.

use super::Failure;
use crate::config::setting::{Kind, Preset, Setting};
use crate::config::table::{FILE_FLAG, SETTINGS};
use crate::config::{Config, Given, Inputs, Machine, Resolved, resolve};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use floe_env::Error;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The flag that gives any setting by its name.
const SET: &str = "set";

/// The settings that the command line gives.
#[derive(Clone, Debug, Default)]
pub(super) struct SettingFlags {
    given: Vec<Given>,
    file: Option<PathBuf>,
}

impl SettingFlags {
    /// Lays these flags over the process's environment, the file and the defaults.
    pub(super) fn resolve(self) -> Result<Resolved, Failure> {
        self.resolve_in(environment(), Machine::current())
    }

    pub(super) fn resolve_in(
        self,
        environment: BTreeMap<String, String>,
        machine: Machine,
    ) -> Result<Resolved, Failure> {
        let inputs = Inputs { flags: self.given, environment, file: self.file, machine };
        resolve(&inputs).map_err(Failure::Usage)
    }

    /// As [`SettingFlags::resolve`], typed and checked.
    pub(super) fn config(self) -> Result<Config, Failure> {
        Config::from_resolved(&self.resolve()?).map_err(Failure::Usage)
    }
}

/// The process's environment. A variable that is not UTF-8 is none of ours.
pub(super) fn environment() -> BTreeMap<String, String> {
    if cfg!(test) {
        // What tests find there is theirs: where the servers are that they were given.
        return BTreeMap::new();
    }
    let utf8 = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    utf8.collect()
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(FILE_FLAG)
            .long(FILE_FLAG)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("TOML file with settings [env: FLOE_CONFIG]");
        let set = Arg::new(SET)
            .long(SET)
            .value_name("NAME=VALUE")
            .action(ArgAction::Append)
            .help("Any other setting by its name, such as --set kafka.num.partitions=3");
        SETTINGS.iter().filter_map(argument).fold(command, Command::arg).arg(file).arg(set)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// A setting's flag; nothing where it has none.
fn argument(setting: &'static Setting) -> Option<Arg> {
    let flag = setting.flag?;
    let preset = match setting.preset {
        Preset::Unset => String::new(),
        Preset::Fixed("false") => String::new(),
        Preset::Fixed(text) => format!(" [default: {text}]"),
        Preset::Derived(words) => format!(" [default: {words}]"),
    };
    let help = format!("{}{preset} [env: {}]", setting.doc, setting.variable);
    let argument = Arg::new(flag).long(flag).help(help);
    Some(match setting.kind {
        Kind::Bool => argument.action(ArgAction::SetTrue),
        kind => argument.value_name(value_name(kind)),
    })
}

fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Path => "DIR",
        Kind::Address => "HOST:PORT",
        Kind::StoreUrl | Kind::MetadataUrl | Kind::HttpUrl => "URL",
        Kind::Integer { .. } => "NUMBER",
        Kind::Bool | Kind::Text | Kind::Secret => "TEXT",
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one::<PathBuf>(FILE_FLAG).cloned();
        for setting in SETTINGS {
            let Some(flag) = setting.flag else { continue };
            let value = match setting.kind {
                Kind::Bool => matches.get_flag(flag).then(|| "true".to_owned()),
                _ => matches.get_one::<String>(flag).cloned(),
            };
            if let Some(value) = value {
                let (name, flag) = (setting.name.to_owned(), format!("--{flag}"));
                self.given.push(Given { name, value, flag });
            }
        }
        for pair in matches.get_many::<String>(SET).into_iter().flatten() {
            let Some((name, value)) = pair.split_once('=') else {
                let message = format!("--{SET} takes NAME=VALUE, and '{pair}' has no =");
                let error = Error::invalid(message);
                return Err(clap::Error::raw(clap::error::ErrorKind::ValueValidation, error));
            };
            let (name, value) = (name.trim().to_owned(), value.to_owned());
            self.given.push(Given { name, value, flag: format!("--{SET}") });
        }
        Ok(())
    }
}
