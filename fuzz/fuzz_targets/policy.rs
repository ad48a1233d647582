//! Any bytes as a policy: an error that can be shown, or a policy whose order and decisions hold together.
#![no_main]

use git_agent::model::Failure;
use git_agent::policy::{Decision, Facts, MAX_POLICY, Policy, decide};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let policy = match Policy::parse(bytes, "policy.yml") {
        Ok(policy) => policy,
        Err(e) => {
            assert!(e.line >= 1 && e.column >= 1);
            let shown = Failure::from(e).to_string();
            assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
            return;
        }
    };
    assert!(bytes.len() <= MAX_POLICY);
    assert_eq!(policy.differences(&policy), []);
    for l in policy.differences(Policy::built_in()) {
        let shown = l.to_string();
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
    }
    for (name, rule) in policy.roles() {
        let role = name.parse().expect("a role of a policy is a role");
        let paths: [&[u8]; 3] = [b"src/a", b"a", b"\xff/\n"];
        let facts = Facts { role: &role, paths: &paths, started_by: "", words: &[], signers: false, now: 0 };
        let refused = paths.iter().any(|p| rule.breach(p).is_some());
        assert_eq!(matches!(decide(&policy, &facts), Decision::Refuse(_)), refused);
    }
});
