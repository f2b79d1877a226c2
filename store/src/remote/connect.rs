//! Clients of the providers, from the settings.

use crate::options::StoreOptions;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientOptions, ObjectStore, Result, RetryConfig};
use std::sync::{Arc, Once};
use std::time::Duration;

/// Whose API a remote store speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// S3, Amazon's or another's.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl Provider {
    /// The scheme of its addresses.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }
}

/// Chooses the process's TLS implementation, unless somebody has.
pub(super) fn install_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

pub(super) fn connect(
    provider: Provider,
    bucket: &str,
    options: &StoreOptions,
) -> Result<Arc<dyn ObjectStore>> {
    Ok(match provider {
        Provider::S3 => Arc::new(s3(bucket, options).build()?),
        Provider::Gcs => Arc::new(gcs(bucket, options).build()?),
        Provider::Azure => Arc::new(azure(bucket, options).build()?),
    })
}

/// No retries: the layer above decides.
fn retry() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn client(options: &StoreOptions, allow_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_timeout(Duration::from_millis(options.request_timeout_ms))
        .with_connect_timeout(Duration::from_millis(options.connect_timeout_ms))
        .with_allow_http(allow_http)
}

fn is_http(endpoint: Option<&str>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http:"))
}

/// Where S3's own tools find an endpoint, the narrowest first.
const ENDPOINT_VARIABLES: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];

/// Where S3's own tools find a region.
const REGION_VARIABLES: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];

fn from_environment(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok())
}

fn s3(bucket: &str, options: &StoreOptions) -> AmazonS3Builder {
    let set = &options.s3;
    let endpoint = set.endpoint.clone().or_else(|| from_environment(&ENDPOINT_VARIABLES));
    let allow_http = set.allow_http.unwrap_or_else(|| is_http(endpoint.as_deref()));
    let has_tls = !is_http(endpoint.as_deref());
    // Keys from the settings never meet a session token from the environment.
    let builder = match set.access_key_id {
        Some(_) => AmazonS3Builder::new(),
        None => AmazonS3Builder::from_env(),
    };
    let mut builder = builder
        .with_bucket_name(bucket)
        .with_retry(retry())
        .with_client_options(client(options, allow_http))
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_unsigned_payload(set.unsigned_payload.unwrap_or(has_tls))
        .with_virtual_hosted_style_request(set.virtual_hosted.unwrap_or(endpoint.is_none()));
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    let region = set.region.clone().or_else(|| from_environment(&REGION_VARIABLES));
    if let Some(region) = region {
        builder = builder.with_region(region);
    }
    if let Some(id) = &set.access_key_id {
        builder = builder.with_access_key_id(id);
    }
    if let Some(key) = &set.secret_access_key {
        builder = builder.with_secret_access_key(key.expose());
    }
    if let Some(token) = &set.session_token {
        builder = builder.with_token(token.expose());
    }
    builder
}

fn gcs(bucket: &str, options: &StoreOptions) -> GoogleCloudStorageBuilder {
    let set = &options.gcs;
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(bucket)
        .with_retry(retry())
        .with_client_options(client(options, is_http(set.endpoint.as_deref())));
    if let Some(path) = &set.service_account_path {
        builder = builder.with_service_account_path(path);
    }
    if let Some(endpoint) = &set.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    builder
}

fn azure(container: &str, options: &StoreOptions) -> MicrosoftAzureBuilder {
    let set = &options.azure;
    let allow_http = is_http(set.endpoint.as_deref());
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(container)
        .with_retry(retry())
        .with_client_options(client(options, allow_http));
    if let Some(account) = &set.account {
        builder = builder.with_account(account);
    }
    if let Some(key) = &set.access_key {
        builder = builder.with_access_key(key.expose());
    }
    if let Some(endpoint) = &set.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    builder
}
