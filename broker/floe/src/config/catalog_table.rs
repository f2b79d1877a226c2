//! The settings `iceberg.catalog.*`, of a catalog that is not the embedded one. Their place among
//! all others is in `table.rs`.

use super::setting::Kind::{Bool, HttpUrl, Integer, Secret, Text};
use super::setting::Preset::{Derived, Fixed, Unset};
use super::setting::Setting;

pub(super) const URI: Setting = Setting::new(
    "iceberg.catalog.uri",
    "FLOE_ICEBERG_CATALOG_URI",
    HttpUrl,
    Unset,
    "Address of an Iceberg REST catalog to which tables are committed instead of the embedded \
     one, which then serves nothing. `/v1/...` goes behind it. A table is then as new as its \
     last commit: no query can ask for one.",
);

pub(super) const WAREHOUSE: Setting = Setting::new(
    "iceberg.catalog.warehouse",
    "FLOE_ICEBERG_CATALOG_WAREHOUSE",
    Text,
    Unset,
    "Which of that catalog's warehouses, where it has several.",
);

pub(super) const TOKEN: Setting = Setting::new(
    "iceberg.catalog.token",
    "FLOE_ICEBERG_CATALOG_TOKEN",
    Secret,
    Unset,
    "Bearer token for that catalog, where it wants one that never changes.",
);

pub(super) const CLIENT_ID: Setting = Setting::new(
    "iceberg.catalog.client_id",
    "FLOE_ICEBERG_CATALOG_CLIENT_ID",
    Text,
    Unset,
    "Id of the OAuth2 client as which that catalog is asked. Its tokens are renewed before \
     they expire, and when they are refused.",
);

pub(super) const CLIENT_SECRET: Setting = Setting::new(
    "iceberg.catalog.client_secret",
    "FLOE_ICEBERG_CATALOG_CLIENT_SECRET",
    Secret,
    Unset,
    "Secret of that OAuth2 client.",
);

pub(super) const SCOPE: Setting = Setting::new(
    "iceberg.catalog.scope",
    "FLOE_ICEBERG_CATALOG_SCOPE",
    Text,
    Fixed("catalog"),
    "Scope that the OAuth2 client asks for.",
);

pub(super) const OAUTH2_URI: Setting = Setting::new(
    "iceberg.catalog.oauth2_uri",
    "FLOE_ICEBERG_CATALOG_OAUTH2_URI",
    HttpUrl,
    Unset,
    "Address of the token endpoint, where it is not the catalog's own `/v1/oauth/tokens`.",
);

pub(super) const SIGV4_SERVICE: Setting = Setting::new(
    "iceberg.catalog.sigv4_service",
    "FLOE_ICEBERG_CATALOG_SIGV4_SERVICE",
    Text,
    Unset,
    "Signs requests to that catalog with AWS' Signature Version 4, as ones to this service: \
     `glue`, `s3tables`.",
);

pub(super) const SIGV4_REGION: Setting = Setting::new(
    "iceberg.catalog.sigv4_region",
    "FLOE_ICEBERG_CATALOG_SIGV4_REGION",
    Text,
    Derived("the region of the store"),
    "Region in the signature.",
);

pub(super) const ACCESS_KEY: Setting = Setting::new(
    "iceberg.catalog.access_key",
    "FLOE_ICEBERG_CATALOG_ACCESS_KEY",
    Secret,
    Unset,
    "Access key id that signs. Without one, the store's keys do.",
);

pub(super) const SECRET_KEY: Setting = Setting::new(
    "iceberg.catalog.secret_key",
    "FLOE_ICEBERG_CATALOG_SECRET_KEY",
    Secret,
    Unset,
    "Secret that belongs to the access key that signs.",
);

pub(super) const SESSION_TOKEN: Setting = Setting::new(
    "iceberg.catalog.session_token",
    "FLOE_ICEBERG_CATALOG_SESSION_TOKEN",
    Secret,
    Unset,
    "Session token that belongs to a temporary access key that signs.",
);

pub(super) const ALLOW_HTTP: Setting = Setting::new(
    "iceberg.catalog.allow_http",
    "FLOE_ICEBERG_CATALOG_ALLOW_HTTP",
    Bool,
    Fixed("false"),
    "Allows addresses of that catalog and of its tokens without TLS. Secrets then cross the \
     network unprotected.",
);

pub(super) const SET_LOCATION: Setting = Setting::new(
    "iceberg.catalog.set_location",
    "FLOE_ICEBERG_CATALOG_SET_LOCATION",
    Bool,
    Fixed("true"),
    "Asks for a folder of the store as a new table's location. False for catalogs that place \
     tables themselves: their metadata is then where they put it, and all other files are in \
     the store all the same.",
);

pub(super) const TAGS: Setting = Setting::new(
    "iceberg.catalog.tags",
    "FLOE_ICEBERG_CATALOG_TAGS",
    Bool,
    Fixed("true"),
    "Keeps what was committed last under the tag `floe`. False for catalogs that refuse tags: \
     a table property says it then, and there is no time travel by the hour.",
);

pub(super) const TIMEOUT_MS: Setting = Setting::new(
    "iceberg.catalog.timeout_ms",
    "FLOE_ICEBERG_CATALOG_TIMEOUT_MS",
    Integer { min: 100, max: 600_000 },
    Fixed("30000"),
    "A request to that catalog that takes longer is given up; a commit's outcome is then \
     looked up.",
)
.unit("ms");
