//! DescribeClientQuotas: v0-1.
//!
//! There are no quotas, so that every well-formed filter finds none.

use super::{Handled, RequestContext, api};
use crate::broker::Broker;
use crate::refused::Refused;
use floe_wire::ErrorCode;
use floe_wire::messages::describe_client_quotas_request::ComponentData;
use floe_wire::messages::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) const API: super::Api = api!(DescribeClientQuotas, 0..=1, handle);

/// What quotas may be of.
const ENTITY_TYPES: [&str; 3] = ["user", "client-id", "ip"];
/// Exactly this name, the default, any name.
const MATCH_TYPES: [i8; 3] = [0, 1, 2];

async fn handle(
    _broker: Arc<Broker>,
    context: RequestContext,
    request: DescribeClientQuotasRequest,
) -> Handled {
    let response = DescribeClientQuotasResponse::default();
    let response = match check(&request.components) {
        Ok(()) => response.with_error_message(None).with_entries(Some(Vec::new())),
        Err(refused) => response
            .with_error_code(refused.code.code())
            .with_error_message(refused.text())
            .with_entries(None),
    };
    context.reply(&response)
}

fn check(components: &[ComponentData]) -> Result<(), Refused> {
    let invalid = |message: String| Err(Refused::new(ErrorCode::InvalidRequest, message));
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for component in components {
        let entity = component.entity_type.as_str();
        if !MATCH_TYPES.contains(&component.match_type) {
            return invalid(format!("Unknown match type {}", component.match_type));
        }
        if !ENTITY_TYPES.contains(&entity) {
            let message = format!("Unsupported entity type {entity}");
            return Err(Refused::new(ErrorCode::UnsupportedVersion, message));
        }
        if !seen.insert(entity) {
            return invalid(format!(
                "Entity type {entity} cannot appear more than once in the filter."
            ));
        }
    }
    if seen.contains("ip") && seen.len() > 1 {
        return invalid("A filter for ip excludes user and client-id.".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use floe_wire::messages::StrBytes;

    #[test]
    fn filters_are_checked_as_in_kafka() {
        let code = |components: &[(&'static str, i8)]| {
            let component = |&(entity, match_type): &(&'static str, i8)| {
                ComponentData::default()
                    .with_entity_type(StrBytes::from_static_str(entity))
                    .with_match_type(match_type)
            };
            let components: Vec<ComponentData> = components.iter().map(component).collect();
            check(&components).err().map(|refused| refused.code)
        };
        assert_eq!(code(&[]), None);
        assert_eq!(code(&[("user", 0), ("client-id", 2)]), None);
        assert_eq!(code(&[("planet", 0)]), Some(ErrorCode::UnsupportedVersion));
        assert_eq!(code(&[("user", 9)]), Some(ErrorCode::InvalidRequest));
        assert_eq!(code(&[("user", 0), ("user", 1)]), Some(ErrorCode::InvalidRequest));
        assert_eq!(code(&[("ip", 0), ("user", 1)]), Some(ErrorCode::InvalidRequest));
    }
}
