//! The table, and what of a login a run may hold.

use super::account::{Facts, Source, Unusable, merged};
use super::*;

#[test]
fn names_are_found_and_mistyped_ones_are_near() {
    for p in &PRESETS {
        assert_eq!(known(p.name).unwrap().name, p.name);
    }
    assert!(known("claude").is_none());
    assert_eq!(nearest("claude"), ["claude-code"]);
    assert_eq!(nearest("qwen"), ["qwen-code"]);
    assert_eq!(nearest("codx"), ["codex"]);
    assert_eq!(nearest("zzzzzz"), Vec::<&str>::new());
}

#[test]
fn every_client_gets_its_task_as_one_word_that_is_no_option() {
    for p in PRESETS.iter().filter(|p| matches!(p.program, Program::Named(_))) {
        for (interactive, caged) in [(false, false), (false, true), (true, false), (true, true)] {
            let words = p.words(interactive, caged);
            let at = words.iter().position(|w| w.contains(TASK)).unwrap();
            assert_eq!(at, words.len() - 1, "{}", p.name);
            assert!(words[at].starts_with("--") || words[at - 1] == "--", "{}", p.name);
            let filled = fill(words, "--do $(this) {task_file}", "/t/TASK.md");
            assert_eq!(filled.len(), words.len());
            assert!(filled[at].ends_with("--do $(this) {task_file}"), "{}", p.name);
        }
    }
}

#[test]
fn filling_is_done_once() {
    let fill = |w: &str| fill(&[w], "{task_file}{task}", "/f").remove(0);
    assert_eq!(fill("{task}"), "{task_file}{task}");
    assert_eq!(fill("@{task_file}!"), "@/f!");
    assert_eq!(fill("{\"a\": {}}"), "{\"a\": {}}");
    assert_eq!(fill("{{task}}"), "{{task_file}{task}}");
    assert_eq!(fill("é{"), "é{");
}

/// Login files as the clients write them; what must not get out of them is `SECRET`.
const LOGINS: [(&str, &str); 5] = [
    (
        "claude-code",
        r#"{"claudeAiOauth":{"accessToken":"at","refreshToken":"SECRET","expiresAt":2000000000000,
            "scopes":["user:inference"],"subscriptionType":"max","futureToken":"SECRET"},
            "mcpOauth":{"x":{"refreshToken":"SECRET"}}}"#,
    ),
    (
        "codex",
        r#"{"OPENAI_API_KEY":null,"tokens":{"id_token":"it","access_token":"h.eyJleHAiOjIwMDAwMDAwMDB9.s",
            "refresh_token":"SECRET","account_id":"acc"},"last_refresh":"2020-01-01T00:00:00Z"}"#,
    ),
    (
        "gemini-cli",
        r#"{"access_token":"at","refresh_token":"SECRET","expiry_date":2000000000000,"token_type":"Bearer"}"#,
    ),
    (
        "qwen-code",
        r#"{"access_token":"at","refresh_token":"SECRET","expiry_date":2000000000000,"resource_url":"x"}"#,
    ),
    (
        "opencode",
        r#"{"a":{"type":"oauth","access":"at","refresh":"SECRET","expires":2000000000000},
            "b":{"type":"api","key":"k"},"c":{"type":"new","refresh":"SECRET"}}"#,
    ),
];

#[test]
fn k01_no_client_keeps_its_refresh_token() {
    for (name, file) in LOGINS {
        let account = known(name).unwrap().account.unwrap();
        let access = (account.access)(file.as_bytes(), 1_900_000_000).unwrap();
        let text = String::from_utf8(access.bytes).unwrap();
        assert!(!text.contains("SECRET"), "{name}: {text}");
        assert_eq!(access.expires, Some(2_000_000_000), "{name}");
    }
}

#[test]
fn what_is_no_login_is_named_so() {
    for (name, _) in LOGINS {
        let account = known(name).unwrap().account.unwrap();
        for empty in ["", " \n", "{}"] {
            assert_eq!((account.access)(empty.as_bytes(), 0), Err(Unusable::Empty), "{name} {empty:?}");
        }
        for bad in ["[]", "{", "null", "\u{feff}{}", "\0"] {
            assert_eq!((account.access)(bad.as_bytes(), 0), Err(Unusable::Malformed), "{name} {bad:?}");
        }
    }
}

#[test]
fn a_key_of_codex_has_no_end() {
    let account = known("codex").unwrap().account.unwrap();
    let access = (account.access)(br#"{"OPENAI_API_KEY":"sk-x","tokens":null}"#, 0).unwrap();
    assert_eq!(access.expires, None);
    assert!(String::from_utf8(access.bytes).unwrap().contains("sk-x"));
}

#[test]
fn seeds_say_that_the_runs_own_tree_is_trusted_and_nothing_of_other_projects() {
    let state = serde_json::json!({"projects": {"/secret": {}}, "theme": "dark", "primaryApiKey": "k"});
    let facts = |login| Facts {
        tree: "/r/\"tree\"",
        login,
        env: &|name| (name == "ANTHROPIC_API_KEY").then(|| "sk-0123456789012345678901234567890".to_owned()),
        state: Some(state.clone()),
        copied: &|name| (name == "config.toml").then(|| b"model = \"m\"".to_vec()),
    };
    let claude = (known("claude-code").unwrap().account.unwrap().seed)(&facts(Source::Variables));
    let text = String::from_utf8(claude.files[0].1.clone()).unwrap();
    assert!(text.contains("dark") && !text.contains("/secret") && !text.contains("primaryApiKey"), "{text}");
    assert!(text.contains("\"12345678901234567890\"") && !text.contains("sk-"), "{text}");
    let codex = (known("codex").unwrap().account.unwrap().seed)(&facts(Source::File));
    let text = String::from_utf8(codex.files[0].1.clone()).unwrap();
    assert_eq!(text, "model = \"m\"\n\n[projects.\"/r/\\\"tree\\\"\"]\ntrust_level = \"trusted\"\n");
}

#[test]
fn ours_lies_over_the_persons_settings_comments_or_not() {
    let ours = || serde_json::json!({"a": {"b": 1}, "c": [2]});
    let text = "{ // x\n \"a\": {\"b\": 0, \"d\": \"// \\\" /* no */\"}, /* \"e\": 1 */ \"c\": {\"f\": 0} }";
    let all = merged(Some(text.into()), ours());
    assert_eq!(all, serde_json::json!({"a": {"b": 1, "d": "// \" /* no */"}, "c": [2]}));
    for nothing in [None, Some("".into()), Some("[1]".into()), Some("{ /*".into()), Some("{\"\\".into())] {
        assert_eq!(merged(nothing, ours()), ours());
    }
}
