//! Which route a path belongs to, for metrics and logs.
//!
//! Labels and log lines carry the route's template, never an id that a client chose: their number
//! is bounded, and nothing that was sent by mistake ends up in them.

use std::sync::Arc;

use uuid::Uuid;

/// The benchmarks' route.
pub(super) const NULL: &str = "/v1/null/{sale}/purchases";

/// The templates of all routes.
#[derive(Debug)]
pub(super) struct Templates {
    known: Vec<Arc<str>>,
    unknown: Arc<str>,
}

impl Templates {
    /// Takes the paths of the OpenAPI document.
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        Self {
            known: paths.map(Arc::from).collect(),
            unknown: Arc::from("unknown"),
        }
    }

    /// The route of a path, and whether there is one.
    pub(super) fn find(&self, path: &str) -> (&Arc<str>, bool) {
        let template = path
            .split('/')
            .map(placeholder)
            .collect::<Vec<_>>()
            .join("/");
        match self.known.iter().find(|known| ***known == *template) {
            Some(known) => (known, true),
            None => (&self.unknown, false),
        }
    }
}

/// A path's segment as the templates write it.
fn placeholder(segment: &str) -> &str {
    if !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit()) {
        "{sale}"
    } else if Uuid::try_parse(segment).is_ok() {
        "{order}"
    } else {
        segment
    }
}

/// Whether this is a purchase; told without an allocation.
pub(super) fn is_purchase(path: &str) -> bool {
    path.strip_prefix("/v1/sales/")
        .or_else(|| path.strip_prefix("/v1/null/"))
        .and_then(|rest| rest.strip_suffix("/purchases"))
        .is_some_and(|sale| !sale.is_empty() && sale.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURCHASES: &str = "/v1/sales/{sale}/purchases";

    #[test]
    fn ids_are_not_part_of_a_route() {
        let templates = Templates::new([PURCHASES, "/v1/orders/{order}"].into_iter());
        let find = |path: &str| templates.find(path).0.to_string();
        assert_eq!(find("/v1/sales/17/purchases"), PURCHASES);
        let order = "/v1/orders/00000001-6dda-8221-9e5f-d7f82a46b46a";
        assert_eq!(find(order), "/v1/orders/{order}");
        for path in ["/", "", "/v1/orders/secret-token", "/v1/sales//purchases"] {
            assert_eq!(find(path), "unknown", "{path}");
        }
    }

    #[test]
    fn a_purchase_is_told_by_its_path() {
        assert!(is_purchase("/v1/sales/1/purchases") && is_purchase("/v1/null/1/purchases"));
        for path in [
            "/v1/sales//purchases",
            "/v1/sales/x/purchases",
            "/v1/sales/1",
        ] {
            assert!(!is_purchase(path), "{path}");
        }
    }
}
