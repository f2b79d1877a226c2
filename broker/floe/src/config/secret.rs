//! Values that must never appear in a log, an error or a page.

/// What stands in the place of a secret wherever a value is shown.
pub(crate) const HIDDEN: &str = "***";

/// A URL without its password, whether that stands before the host or among the parameters.
pub(crate) fn hide_password(url: &str) -> String {
    let (address, parameters) = match url.split_once('?') {
        Some((address, parameters)) => (address, Some(parameters)),
        None => (url, None),
    };
    let mut shown = hide_user_password(address);
    if let Some(parameters) = parameters {
        let hidden: Vec<String> = parameters.split('&').map(hide_parameter).collect();
        shown.push('?');
        shown.push_str(&hidden.join("&"));
    }
    shown
}

fn hide_user_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    // A password may itself hold `@` or `/`: everything up to the last `@` is the user's part.
    let Some((user, host)) = rest.rsplit_once('@') else { return address.to_owned() };
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}://{name}:{HIDDEN}@{host}"),
        None => address.to_owned(),
    }
}

fn hide_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().contains("password") => {
            format!("{name}={HIDDEN}")
        }
        _ => parameter.to_owned(),
    }
}
