//! The settings `iceberg.catalog.*`: which catalog has the tables, if not the embedded one.

use super::Secret;
use super::typed::{Reader, both};
use floe_env::{Error, Result};
use floe_iceberg_bridge::{OAuth2Client, RestAuth, RestConfig, SigV4Keys};

/// What tells in which way the catalog is asked.
const WAYS: &str =
    "iceberg.catalog.token, iceberg.catalog.client_id, iceberg.catalog.sigv4_service";

impl Reader<'_> {
    pub(super) fn rest_catalog(&self) -> Result<Option<RestConfig>> {
        let uri = self.optional_text("iceberg.catalog.uri");
        let config = RestConfig {
            uri: uri.clone().unwrap_or_default(),
            warehouse: self.optional_text("iceberg.catalog.warehouse"),
            auth: self.rest_auth()?,
            sets_location: self.flag("iceberg.catalog.set_location"),
            has_tags: self.flag("iceberg.catalog.tags"),
            timeout: self.milliseconds("iceberg.catalog.timeout_ms"),
        };
        let allows_http = self.flag("iceberg.catalog.allow_http");
        if uri.is_none() {
            let is_asked = !matches!(config.auth, RestAuth::None) || config.warehouse.is_some();
            let needed = "settings iceberg.catalog.* need iceberg.catalog.uri: the embedded \
                          catalog has none of them";
            return if is_asked { Err(Error::invalid(needed)) } else { Ok(None) };
        }
        let tokens = match &config.auth {
            RestAuth::OAuth2(client) => client.uri.as_deref(),
            _ => None,
        };
        for address in [Some(config.uri.as_str()), tokens].into_iter().flatten() {
            if address.starts_with("http://") && !allows_http {
                return Err(Error::invalid(format!(
                    "setting iceberg.catalog: {address} is without TLS: set \
                     iceberg.catalog.allow_http = true to accept that secrets cross the network \
                     unprotected, or use https://"
                )));
            }
        }
        Ok(Some(config))
    }

    fn rest_auth(&self) -> Result<RestAuth> {
        let token = self.secret("iceberg.catalog.token").map(RestAuth::Bearer);
        let ways =
            [token, self.oauth2()?.map(RestAuth::OAuth2), self.sigv4()?.map(RestAuth::SigV4)];
        let mut ways = ways.into_iter().flatten();
        match (ways.next(), ways.next()) {
            (None, _) => Ok(RestAuth::None),
            (Some(way), None) => Ok(way),
            (Some(_), Some(_)) => {
                Err(Error::invalid(format!("settings {WAYS}: one of them at most")))
            }
        }
    }

    fn oauth2(&self) -> Result<Option<OAuth2Client>> {
        let id = self.optional_text("iceberg.catalog.client_id");
        let secret = self.secret("iceberg.catalog.client_secret");
        let scope = self.text("iceberg.catalog.scope");
        let uri = self.optional_text("iceberg.catalog.oauth2_uri");
        match (id, secret) {
            (Some(id), Some(secret)) => Ok(Some(OAuth2Client { id, secret, scope, uri })),
            (None, None) => Ok(None),
            _ => Err(both("iceberg.catalog.client_id", "iceberg.catalog.client_secret")),
        }
    }

    fn sigv4(&self) -> Result<Option<SigV4Keys>> {
        let service = self.optional_text("iceberg.catalog.sigv4_service");
        let region = self.optional_text("iceberg.catalog.sigv4_region");
        let own: [Option<Secret>; 3] = [
            self.secret("iceberg.catalog.access_key"),
            self.secret("iceberg.catalog.secret_key"),
            self.secret("iceberg.catalog.session_token"),
        ];
        let of_store = || {
            let names = ["store.access_key", "store.secret_key", "store.session_token"];
            names.map(|name| self.secret(name))
        };
        if own[0].is_some() != own[1].is_some() {
            return Err(both("iceberg.catalog.access_key", "iceberg.catalog.secret_key"));
        }
        let Some(service) = service else { return Ok(None) };
        let [access_key, secret_key, session_token] =
            if own[0].is_some() { own } else { of_store() };
        let (Some(access_key), Some(secret_key)) = (access_key, secret_key) else {
            return Err(Error::invalid(
                "setting iceberg.catalog.sigv4_service needs keys that sign: \
                 iceberg.catalog.access_key and iceberg.catalog.secret_key, or the store's",
            ));
        };
        let region = region.ok_or_else(|| {
            Error::invalid(
                "setting iceberg.catalog.sigv4_service needs iceberg.catalog.sigv4_region, or the \
                 store's region",
            )
        })?;
        Ok(Some(SigV4Keys { service, region, access_key, secret_key, session_token }))
    }
}
