//! The OpenAPI document: what it says, and that it says it of the routes that there are.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use stockade::http::Code;

use super::{Shop, call, get};

fn document() -> Value {
    serde_json::to_value(stockade::http::document()).unwrap()
}

#[test]
fn the_document_is_the_reviewed_one() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let mut document = document();
    document["info"]["version"] = json!("[version]");
    settings.bind(|| insta::assert_json_snapshot!("openapi", document));
}

#[tokio::test]
async fn the_document_is_served_and_every_route_in_it_exists() {
    let shop = Shop::open().await;
    let served = shop.send(get("/openapi.json")).await.assert_ok(200);
    assert_eq!(served, document());
    for (path, item) in served["paths"].as_object().unwrap() {
        let concrete = path
            .replace("{sale}", "1")
            .replace("{order}", "00000001-6dda-8221-9e5f-d7f82a46b46a");
        for method in item.as_object().unwrap().keys() {
            let reply = shop.send(call(&method.to_uppercase(), &concrete)).await;
            let missing = reply.status == 405 || reply.text.contains("no such route");
            assert!(!missing, "{method} {path}: {reply:?}");
        }
    }
    shop.close().await;
}

/// Routes enter router and document by the same line (`routes!`). The other way to add one,
/// `.route(`, is used once: for the benchmarks' handler, which is not documented on purpose.
#[test]
fn no_route_is_added_past_the_document() {
    let mut lines = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            let added = |line: &&str| {
                [".route(", ".route_service(", ".nest", ".fallback_service("]
                    .iter()
                    .any(|way| line.contains(way))
            };
            lines.extend(
                text.lines()
                    .filter(added)
                    .map(|line| line.trim().to_owned()),
            );
        }
    }
    let expected = ["router = router.route(route::NULL, post(purchases::create_null_purchase));"];
    assert_eq!(lines, expected);
}

#[test]
fn every_code_of_a_problem_is_documented_with_some_route_or_belongs_to_none() {
    let text = document().to_string();
    for code in Code::ALL {
        // Any method on any path may run into this one.
        if *code == Code::MethodNotAllowed {
            continue;
        }
        let name = format!("\"{}\"", code.as_str());
        assert!(text.contains(&name), "{name}");
    }
}

#[test]
fn every_operation_documents_its_success_and_its_problems_as_problems() {
    for (path, item) in document()["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(
                responses.keys().any(|status| status.starts_with('2')),
                "{method} {path}"
            );
            for (status, response) in responses {
                let success = status.starts_with('2');
                let problem = &response["content"]["application/problem+json"];
                assert_eq!(problem.is_null(), success, "{method} {path} {status}");
            }
        }
    }
}

#[test]
fn the_table_of_problems_in_the_documentation_is_the_one_in_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/problems.md");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let (head, _) = text.split_once("| status |").unwrap_or((&*text, ""));
    let expected = format!("{head}{}", Code::table());
    if std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always") {
        fs::write(&path, &expected).unwrap();
    } else {
        assert_eq!(
            text, expected,
            "INSTA_UPDATE=always cargo test writes it anew"
        );
    }
}
