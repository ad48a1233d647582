//! Bytes to [`Root`], as strictly as YAML can be read.

use super::error::{File, Place, PolicyError};
use super::schema::Root;
use crate::text::{Untrusted, nearest};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, Error, MergeKeyPolicy, Options, UserMessageFormatter};

/// Largest policy in bytes.
pub const MAX_POLICY: usize = 64 * 1024;

/// Nothing that lets one text mean two things: no second equal key, no anchor, alias or merge key, no second
/// document, no tag, no YAML 1.1 boolean, no number where text is meant.
pub(super) fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_anchors: 0,
            max_aliases: 0,
            max_merge_keys: 0,
            max_documents: 1,
            max_depth: 16,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        no_schema: true,
        strict_indentation: true,
        reject_unsupported_tags: true,
        reject_tagged_field_names: true,
        with_snippet: false,
    }
}

pub(super) fn root(bytes: &[u8], name: &str) -> Result<Root, PolicyError> {
    let plain = |message: String| PolicyError {
        name: Untrusted::new(name).to_string(),
        line: 1,
        column: 1,
        message,
        snippet: String::new(),
    };
    if bytes.len() > MAX_POLICY {
        return Err(plain(format!("it is longer than {MAX_POLICY} bytes, the most that a policy may be")));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let before = &bytes[..e.valid_up_to()];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let column = String::from_utf8_lossy(before.rsplit(|b| *b == b'\n').next().unwrap_or(&[]));
        PolicyError {
            line: line as u32,
            column: column.chars().count() as u32 + 1,
            ..plain("it is not UTF-8 text".into())
        }
    })?;
    let file = File { name, text };
    // A directive could declare another YAML version or rebind tags.
    for (i, line) in text.lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}');
        if line.starts_with('%') {
            let at = Place { line: i as u32 + 1, column: 1 };
            return Err(file.error(at, "YAML directives are not used in a policy"));
        }
        let rest = line.trim_start();
        if !rest.is_empty() && !rest.starts_with('#') {
            break;
        }
    }
    serde_saphyr::from_str_with_options::<Root>(text, options()).map_err(|e| {
        let at = e.location().map_or(Place::START, Place::from);
        file.error(at, sentence(&e))
    })
}

/// What a parser's error means to somebody who writes a policy.
fn sentence(error: &Error) -> String {
    match error {
        Error::Budget { breach: BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. }, .. }
        | Error::UnknownAnchor { .. } => {
            "anchors and aliases are not used in a policy: write the value out".into()
        }
        Error::MergeKeyNotAllowed { .. } => {
            "merge keys (<<) are not used in a policy: write the keys out".into()
        }
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. } | Error::MultipleDocuments { .. } => {
            "a policy is one document: nothing follows '---' or '...'".into()
        }
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => "it is nested too deeply".into(),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key '{key}' is here a second time"),
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("there is no key '{field}' here{}", suggestion(field, expected))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            format!("'{variant}' is not one of {}{}", expected.join(", "), suggestion(variant, expected))
        }
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            format!("{expected} is needed here, not {unexpected}")
        }
        Error::Unexpected { expected: "mapping start", .. } => {
            "keys and values are needed here, such as 'key: value'".into()
        }
        Error::Unexpected { expected: "sequence start", .. } => {
            "a list is needed here, such as [a, b]".into()
        }
        Error::Unexpected { expected: "string scalar", .. } => "text is needed here".into(),
        Error::QuotingRequired { .. } => "this is a number or a boolean and text is needed: quote it".into(),
        Error::Eof { .. } => "the policy ends here; it needs at least 'version: 1'".into(),
        other => {
            let text = other.render_with_formatter(&UserMessageFormatter);
            // The place is told once, in front.
            match text.rfind(" at line ") {
                Some(end) => text[..end].to_owned(),
                None => text,
            }
        }
    }
}

fn suggestion(word: &str, known: &[&'static str]) -> String {
    match nearest(word, known.iter().copied()).first() {
        Some(best) => format!("; did you mean '{best}'?"),
        None => String::new(),
    }
}
