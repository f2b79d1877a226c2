//! Request layouts of authentication, access, configs, quotas and telemetry.

use super::{BOOL, BYTES, F64, I8, I32, NEVER, TEXT, UUID, Layout, f, list, rows};

/// All layouts of this file.
pub(super) const ALL: &[&Layout] = &[
    &SASL_HANDSHAKE, &SASL_AUTHENTICATE, &DESCRIBE_ACLS, &CREATE_ACLS, &DELETE_ACLS,
    &DESCRIBE_CONFIGS, &ALTER_CONFIGS, &INCREMENTAL_ALTER_CONFIGS, &DESCRIBE_CLIENT_QUOTAS,
    &ALTER_CLIENT_QUOTAS, &DESCRIBE_USER_SCRAM_CREDENTIALS, &ALTER_USER_SCRAM_CREDENTIALS,
    &GET_TELEMETRY_SUBSCRIPTIONS, &PUSH_TELEMETRY, &LIST_CONFIG_RESOURCES,
];

/// SaslHandshake.
static SASL_HANDSHAKE: Layout = Layout::new(17, (0, 1), NEVER, &[
    f("mechanism", TEXT),
]);

/// SaslAuthenticate.
static SASL_AUTHENTICATE: Layout = Layout::new(36, (0, 2), 2, &[
    f("auth_bytes", BYTES),
]);

/// DescribeAcls.
static DESCRIBE_ACLS: Layout = Layout::new(29, (1, 3), 2, &[
    f("resource_type_filter", I8),
    f("resource_name_filter", TEXT).null(),
    f("pattern_type_filter", I8),
    f("principal_filter", TEXT).null(),
    f("host_filter", TEXT).null(),
    f("operation", I8),
    f("permission_type", I8),
]);

/// CreateAcls.
static CREATE_ACLS: Layout = Layout::new(30, (1, 3), 2, &[
    f("creations", rows(&[
        f("resource_type", I8),
        f("resource_name", TEXT),
        f("resource_pattern_type", I8),
        f("principal", TEXT),
        f("host", TEXT),
        f("operation", I8),
        f("permission_type", I8),
    ])),
]);

/// DeleteAcls.
static DELETE_ACLS: Layout = Layout::new(31, (1, 3), 2, &[
    f("filters", rows(&[
        f("resource_type_filter", I8),
        f("resource_name_filter", TEXT).null(),
        f("pattern_type_filter", I8),
        f("principal_filter", TEXT).null(),
        f("host_filter", TEXT).null(),
        f("operation", I8),
        f("permission_type", I8),
    ])),
]);

/// DescribeConfigs.
static DESCRIBE_CONFIGS: Layout = Layout::new(32, (1, 4), 4, &[
    f("resources", rows(&[
        f("resource_type", I8),
        f("resource_name", TEXT),
        f("configuration_keys", list(&TEXT)).null(),
    ])),
    f("include_synonyms", BOOL),
    f("include_documentation", BOOL).since(3),
]);

/// AlterConfigs.
static ALTER_CONFIGS: Layout = Layout::new(33, (0, 2), 2, &[
    f("resources", rows(&[
        f("resource_type", I8),
        f("resource_name", TEXT),
        f("configs", rows(&[
            f("name", TEXT),
            f("value", TEXT).null(),
        ])),
    ])),
    f("validate_only", BOOL),
]);

/// IncrementalAlterConfigs.
static INCREMENTAL_ALTER_CONFIGS: Layout = Layout::new(44, (0, 1), 1, &[
    f("resources", rows(&[
        f("resource_type", I8),
        f("resource_name", TEXT),
        f("configs", rows(&[
            f("name", TEXT),
            f("config_operation", I8),
            f("value", TEXT).null(),
        ])),
    ])),
    f("validate_only", BOOL),
]);

/// DescribeClientQuotas.
static DESCRIBE_CLIENT_QUOTAS: Layout = Layout::new(48, (0, 1), 1, &[
    f("components", rows(&[
        f("entity_type", TEXT),
        f("match_type", I8),
        f("_match", TEXT).null(),
    ])),
    f("strict", BOOL),
]);

/// AlterClientQuotas.
static ALTER_CLIENT_QUOTAS: Layout = Layout::new(49, (0, 1), 1, &[
    f("entries", rows(&[
        f("entity", rows(&[
            f("entity_type", TEXT),
            f("entity_name", TEXT).null(),
        ])),
        f("ops", rows(&[
            f("key", TEXT),
            f("value", F64),
            f("remove", BOOL),
        ])),
    ])),
    f("validate_only", BOOL),
]);

/// DescribeUserScramCredentials.
static DESCRIBE_USER_SCRAM_CREDENTIALS: Layout = Layout::new(50, (0, 0), 0, &[
    f("users", rows(&[
        f("name", TEXT),
    ])).null(),
]);

/// AlterUserScramCredentials.
static ALTER_USER_SCRAM_CREDENTIALS: Layout = Layout::new(51, (0, 0), 0, &[
    f("deletions", rows(&[
        f("name", TEXT),
        f("mechanism", I8),
    ])),
    f("upsertions", rows(&[
        f("name", TEXT),
        f("mechanism", I8),
        f("iterations", I32),
        f("salt", BYTES),
        f("salted_password", BYTES),
    ])),
]);

/// GetTelemetrySubscriptions.
static GET_TELEMETRY_SUBSCRIPTIONS: Layout = Layout::new(71, (0, 0), 0, &[
    f("client_instance_id", UUID),
]);

/// PushTelemetry.
static PUSH_TELEMETRY: Layout = Layout::new(72, (0, 0), 0, &[
    f("client_instance_id", UUID),
    f("subscription_id", I32),
    f("terminating", BOOL),
    f("compression_type", I8),
    f("metrics", BYTES),
]);

/// ListConfigResources.
static LIST_CONFIG_RESOURCES: Layout = Layout::new(74, (0, 1), 0, &[
    f("resource_types", list(&I8)).since(1),
]);
