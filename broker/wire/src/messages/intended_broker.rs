//! ApiVersions 5: the request says which broker its client means to have reached (KIP-1242).
//!
//! The message layer's structure ends at version 4 and has no place for this.

use bytes::Bytes;

use super::reader::{int32, nullable_text, skip_tags, text};
use super::{ApiVersionsRequest, Beyond, RequestKind, StrBytes};
use crate::error::CheckError;

/// The first version with these fields.
pub(super) const SINCE: i16 = 5;

/// The node id of a client that does not know whom it asks.
const NO_NODE: i32 = -1;

/// The broker that a client means to have reached. Addresses are given to other brokers, and even
/// other clusters, while clients remember them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntendedBroker {
    /// The cluster's id, if the client knows it.
    pub cluster_id: Option<StrBytes>,
    /// The broker's id, if the client knows it.
    pub node_id: Option<i32>,
}

/// Reads ApiVersions 5 off the front of `body`.
pub(super) fn api_versions(body: &mut Bytes) -> Result<(RequestKind, Beyond), CheckError> {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text(body, "client_software_name")?)
        .with_client_software_version(text(body, "client_software_version")?);
    let cluster_id = nullable_text(body, "cluster_id")?;
    let node_id = Some(int32(body, "node_id")?).filter(|node_id| *node_id != NO_NODE);
    skip_tags(body)?;
    let intended = IntendedBroker { cluster_id, node_id };
    Ok((RequestKind::ApiVersions(request), Beyond { intended, ..Beyond::default() }))
}
