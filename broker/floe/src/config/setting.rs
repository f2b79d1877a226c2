//! What is known of one setting.

/// What a setting's value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number from `min` to `max`, both included.
    Integer {
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
    },
    /// Any text.
    Text,
    /// Text that is never shown; also read from a file, see [`Setting::file_name`].
    Secret,
    /// A path in the file system.
    Path,
    /// `HOST:PORT`, an IPv6 address in brackets.
    Address,
    /// A directory, or an address in an object store.
    StoreUrl,
    /// The address of a metadata store.
    MetadataUrl,
    /// The address of an HTTP service.
    HttpUrl,
}

/// What a setting is where nobody gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Nothing.
    Unset,
    /// This value, as it would be written in a variable.
    Fixed(&'static str),
    /// A value that follows from others, in these words.
    Derived(&'static str),
}

/// One setting. Made by [`Setting::new`] and the methods after it, in `table.rs` only.
#[derive(Debug)]
pub struct Setting {
    /// Its place in the TOML file: the table, a dot, the key (which may have dots itself).
    pub name: &'static str,
    /// Other names of the same setting.
    pub aliases: &'static [&'static str],
    /// What its value may be.
    pub kind: Kind,
    /// What it is if not given.
    pub preset: Preset,
    /// Its environment variable.
    pub variable: &'static str,
    /// Its own flag, without the dashes; every setting that is no secret can be given by `--set`.
    pub flag: Option<&'static str>,
    /// The unit of a number; empty for counts and for what is no number.
    pub unit: &'static str,
    /// One or two sentences for whoever runs a broker.
    pub doc: &'static str,
    /// The first version that had it.
    pub since: &'static str,
}

impl Setting {
    /// A setting of this version, without flag, alias and unit.
    pub const fn new(
        name: &'static str,
        variable: &'static str,
        kind: Kind,
        preset: Preset,
        doc: &'static str,
    ) -> Self {
        let (aliases, flag, unit, since) = (&[], None, "", "0.1.0");
        Self { name, aliases, kind, preset, variable, flag, unit, doc, since }
    }

    /// The same setting with a flag.
    pub const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    /// The same setting with other names.
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// The same setting with a unit.
    pub const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// Whether its value must never be shown.
    pub fn is_secret(&self) -> bool {
        self.kind == Kind::Secret
    }

    /// The key that names a file with the secret in it, such as `store.secret_key_file`.
    pub fn file_name(&self) -> Option<String> {
        self.is_secret().then(|| format!("{}_file", self.name))
    }

    /// The variable that names a file with the secret in it.
    pub fn file_variable(&self) -> Option<String> {
        self.is_secret().then(|| format!("{}_FILE", self.variable))
    }

    /// Whether `name` is one of its names.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}
