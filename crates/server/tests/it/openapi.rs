//! The description of the cell's API, as it is kept in docs/.

use std::path::Path;

use capstan_server::cell::openapi;

/// Changed by the API alone: `CAPSTAN_WRITE_DOCS=1 cargo test -p capstan-server --test it openapi` writes it anew.
#[test]
fn the_document_in_docs_is_that_of_the_routes() {
    let kept_at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cell-openapi.json");
    let made = format!("{:#}\n", openapi());
    if std::env::var_os("CAPSTAN_WRITE_DOCS").is_some() {
        std::fs::write(&kept_at, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&kept_at).unwrap_or_default();
    assert!(kept == made, "docs/cell-openapi.json is of another API: write it anew with CAPSTAN_WRITE_DOCS=1");
}

#[test]
fn every_operation_says_who_may_and_only_strangers_need_no_certificate() {
    let document = openapi();
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 6, "{paths:?}");
    for (path, operations) in paths {
        for operation in operations.as_object().unwrap().values() {
            let words = operation["description"].as_str().unwrap();
            let is_public = operation["security"].as_array().is_some_and(Vec::is_empty);
            assert_eq!(is_public, words.contains("joins the cell"), "{path}");
        }
    }
}
