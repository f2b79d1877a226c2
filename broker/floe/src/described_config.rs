//! A config as DescribeConfigs and CreateTopics answer it, whoever it belongs to.

/// Where a value comes from; Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigSource {
    /// Set for the topic.
    Topic = 1,
    /// Set for the broker before it started.
    StaticBroker = 4,
    /// Set by nobody.
    Default = 5,
}

/// The type that tools are told; Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigType {
    /// `true` or `false`.
    Boolean = 1,
    /// Text.
    String = 2,
    /// A number of 32 bits.
    Int = 3,
    /// A number of 64 bits.
    Long = 5,
    /// A number with a fraction.
    Double = 6,
    /// Texts with commas between them.
    List = 7,
}

/// A name under which a value is or could be set; the first that is set counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Synonym {
    /// The name.
    pub(crate) name: &'static str,
    /// Its value.
    pub(crate) value: String,
    /// Where that comes from.
    pub(crate) source: ConfigSource,
}

/// A config with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DescribedConfig {
    /// The name.
    pub(crate) name: &'static str,
    /// The value; `None` if there is none.
    pub(crate) value: Option<String>,
    /// Where it comes from.
    pub(crate) source: ConfigSource,
    /// Its type.
    pub(crate) kind: ConfigType,
    /// True if no request changes it.
    pub(crate) is_read_only: bool,
    /// Where the value was looked for, nearest first.
    pub(crate) synonyms: Vec<Synonym>,
    /// What it does.
    pub(crate) documentation: String,
}
