//! Lays the layers over each other: flag over variable over file over default.

use super::nearest::nearest;
use super::setting::{Preset, Setting};
use super::table::{FILE_VARIABLE, SETTINGS, setting};
use super::toml_file::{read, read_text};
use super::{Machine, Value, derive::derive};
use floe_env::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What begins each of our variables.
const VARIABLE_PREFIX: &str = "FLOE_";
/// Larger files hold no secret of ours.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// A setting given on the command line.
#[derive(Clone, Debug)]
pub struct Given {
    /// The setting's name.
    pub name: String,
    /// Its value as text.
    pub value: String,
    /// How it was given, such as `--data`.
    pub flag: String,
}

/// All that settings are made of.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// From the command line.
    pub flags: Vec<Given>,
    /// The process's environment.
    pub environment: BTreeMap<String, String>,
    /// The file that the command line names, before the one that the environment names.
    pub file: Option<PathBuf>,
    /// The machine.
    pub machine: Machine,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A flag, with its dashes.
    Flag(String),
    /// An environment variable.
    Variable(String),
    /// The configuration file.
    File(PathBuf),
    /// Nobody gave it.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => formatter.write_str(flag),
            Self::Variable(variable) => formatter.write_str(variable),
            Self::File(path) => path.display().fmt(formatter),
            Self::Default => formatter.write_str("default"),
        }
    }
}

/// One setting with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The setting.
    pub setting: &'static Setting,
    /// Its value; none where it is not given and has no default.
    pub value: Option<Value>,
    /// Where the value came from.
    pub source: Source,
}

/// Every setting with its value, in the order of the table.
#[derive(Clone, Debug)]
pub struct Resolved {
    entries: Vec<Entry>,
}

impl Resolved {
    /// Every setting with its value.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The value of a setting by its name.
    pub fn value(&self, name: &str) -> Option<&Value> {
        let entry = self.entries.iter().find(|entry| entry.setting.name == name);
        entry.and_then(|entry| entry.value.as_ref())
    }
}

/// One layer: what it says of each setting.
type Layer = BTreeMap<&'static str, (Value, Source)>;

/// Finds the value of every setting.
///
/// # Errors
/// `Invalid` for unknown names (with the nearest known one) and for wrong values (with the
/// setting's name and the value's source). No message has a secret in it.
pub fn resolve(inputs: &Inputs) -> Result<Resolved> {
    let flags = flag_layer(&inputs.flags)?;
    let variables = variable_layer(&inputs.environment)?;
    let named = inputs.environment.get(FILE_VARIABLE).filter(|path| !path.is_empty());
    let file = match inputs.file.clone().or_else(|| named.map(PathBuf::from)) {
        Some(path) => file_layer(&path)?,
        None => Layer::new(),
    };
    let mut resolved = Resolved { entries: Vec::with_capacity(SETTINGS.len()) };
    for setting in SETTINGS {
        let given =
            [&flags, &variables, &file].into_iter().find_map(|layer| layer.get(setting.name));
        let (value, source) = match given {
            Some((value, source)) => (Some(value.clone()), source.clone()),
            None => (preset(setting, inputs.machine, &resolved)?, Source::Default),
        };
        resolved.entries.push(Entry { setting, value, source });
    }
    Ok(resolved)
}

fn preset(setting: &Setting, machine: Machine, settled: &Resolved) -> Result<Option<Value>> {
    match setting.preset {
        Preset::Unset => Ok(None),
        Preset::Fixed(text) => Value::from_text(setting, text).map(Some),
        Preset::Derived(_) => {
            Ok(derive(setting.name, machine, |name| settled.value(name).cloned()))
        }
    }
}

/// Puts a value into a layer; the same setting twice under two names is refused.
fn put(
    layer: &mut Layer,
    setting: &'static Setting,
    value: Result<Value>,
    source: Source,
) -> Result<()> {
    let doing = format!("setting {} (from {source})", setting.name);
    let value = value.map_err(|error| error.context(&doing))?;
    if let Some((_, earlier)) = layer.get(setting.name) {
        return Err(Error::invalid(format!("{doing}: is given already (from {earlier})")));
    }
    layer.insert(setting.name, (value, source));
    Ok(())
}

fn flag_layer(flags: &[Given]) -> Result<Layer> {
    let mut layer = Layer::new();
    for given in flags {
        let setting = setting(&given.name).ok_or_else(|| unknown_name(&given.flag, &given.name))?;
        if setting.is_secret() {
            let (name, variable) = (setting.name, setting.variable);
            return Err(Error::invalid(format!(
                "setting {name} (from {}): other users can see the command line; give the secret \
                 by {variable}, {variable}_FILE or the configuration file",
                given.flag
            )));
        }
        let value = Value::from_text(setting, &given.value);
        put(&mut layer, setting, value, Source::Flag(given.flag.clone()))?;
    }
    Ok(layer)
}

fn variable_layer(environment: &BTreeMap<String, String>) -> Result<Layer> {
    let mut layer = Layer::new();
    let ours = environment.iter().filter(|(variable, _)| variable.starts_with(VARIABLE_PREFIX));
    for (variable, text) in ours {
        if variable == FILE_VARIABLE || is_service_link(variable) {
            continue;
        }
        let source = Source::Variable(variable.clone());
        let direct = SETTINGS.iter().find(|setting| setting.variable == variable);
        let by_file =
            || SETTINGS.iter().find(|setting| setting.file_variable().as_ref() == Some(variable));
        // An empty variable counts as not given: composing tools cannot leave one out.
        if let Some(setting) = direct {
            if !text.is_empty() {
                put(&mut layer, setting, Value::from_text(setting, text), source)?;
            }
        } else if let Some(setting) = by_file() {
            if !text.is_empty() {
                put(&mut layer, setting, read_secret(setting, Path::new(text)), source)?;
            }
        } else {
            return Err(unknown_variable(variable));
        }
    }
    Ok(layer)
}

/// Whether a variable is one of those that Kubernetes and Docker set for a service which is itself
/// named `floe`; none of our settings has such a name.
fn is_service_link(variable: &str) -> bool {
    let is_port_part = |part: &str| part.chars().next().is_some_and(|first| first.is_ascii_digit());
    variable.ends_with("_SERVICE_HOST")
        || variable.contains("_SERVICE_PORT")
        || variable.ends_with("_PORT")
        || variable.split_once("_PORT_").is_some_and(|(_, rest)| is_port_part(rest))
}

fn file_layer(path: &Path) -> Result<Layer> {
    let mut layer = Layer::new();
    for (name, value) in read(path)? {
        let source = Source::File(path.to_owned());
        let named_file =
            SETTINGS.iter().find(|setting| setting.file_name().as_ref() == Some(&name));
        if let Some(setting) = named_file {
            let value = match value.as_str() {
                Some(file) => read_secret(setting, Path::new(file)),
                None => Err(Error::invalid("expected a path")),
            };
            put(&mut layer, setting, value, source)?;
            continue;
        }
        let shown = path.display().to_string();
        let setting = setting(&name).ok_or_else(|| unknown_name(&shown, &name))?;
        put(&mut layer, setting, from_toml(setting, &value), source)?;
    }
    Ok(layer)
}

fn from_toml(setting: &Setting, value: &toml::Value) -> Result<Value> {
    match value {
        toml::Value::String(text) => Value::from_string(setting, text),
        toml::Value::Integer(number) => Value::from_integer(setting, *number),
        toml::Value::Boolean(flag) => Value::from_bool(setting, *flag),
        other => {
            let found = other.type_str();
            let expected = super::value::expected(setting);
            Err(Error::invalid(format!("expected {expected}, found {found}")))
        }
    }
}

/// Reads a secret from its file, without the line ends that editors leave.
fn read_secret(setting: &Setting, path: &Path) -> Result<Value> {
    let text = read_text(path, SECRET_BYTES_MAX)?;
    Value::from_string(setting, text.trim_end_matches(['\r', '\n']))
}

fn unknown_name(source: &str, name: &str) -> Error {
    let files: Vec<String> = SETTINGS.iter().filter_map(Setting::file_name).collect();
    let names = SETTINGS
        .iter()
        .flat_map(|setting| std::iter::once(setting.name).chain(setting.aliases.iter().copied()));
    let near = nearest(name, names.chain(files.iter().map(String::as_str)));
    Error::invalid(format!("{source}: unknown setting {name}{}", suggestion(near)))
}

fn unknown_variable(variable: &str) -> Error {
    let files: Vec<String> = SETTINGS.iter().filter_map(Setting::file_variable).collect();
    let variables = SETTINGS.iter().map(|setting| setting.variable);
    let known = variables.chain(files.iter().map(String::as_str)).chain([FILE_VARIABLE]);
    let near = nearest(variable, known);
    Error::invalid(format!("unknown environment variable {variable}{}", suggestion(near)))
}

fn suggestion(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("; did you mean {near}?"),
        None => "; `floe config` lists all settings".to_owned(),
    }
}
