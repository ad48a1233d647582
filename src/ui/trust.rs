//! What `git agent trust` says.

use crate::model::approval::Standing;
use crate::ops::signers::{Added, Checked, Listed};
use crate::text::Untrusted;
use serde_json::{Value, json};

fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Person => "person",
        Standing::Agent => "agent",
        Standing::Nobody => "nobody",
    }
}

/// One line a key.
pub fn listed(listed: &Listed) -> String {
    if !listed.any {
        return "no signers are committed; approvals are not signed".into();
    }
    let line = |r: &crate::ops::signers::Row| {
        let out = r.out.as_ref().map_or_else(String::new, |why| format!("  ({why})"));
        format!("{:7} {}  {}{out}", word(r.standing), Untrusted::new(&r.principals), r.key)
    };
    listed.rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The same for programs.
pub fn json(listed: &Listed) -> Value {
    let row = |r: &crate::ops::signers::Row| {
        json!({
            "principals": r.principals.split(',').collect::<Vec<_>>(),
            "key": r.key, "standing": word(r.standing), "out": r.out,
        })
    };
    json!({ "v": 1, "signed": listed.signed, "signers": listed.rows.iter().map(row).collect::<Vec<_>>() })
}

/// What was written and what is still to do.
pub fn added(added: &Added) -> String {
    let files = added.files.join(" ");
    format!(
        "added to {}: {}\nhint: nothing counts before it is committed: git add {files} && git commit",
        added.files[0],
        Untrusted::new(&added.line)
    )
}

/// What is in order and what is not.
pub fn checked(checked: &Checked) -> String {
    let fine = checked.fine.iter().map(|l| format!("ok: {}", Untrusted::new(l)));
    let wrong = checked.wrong.iter().map(|l| format!("wrong: {}", Untrusted::new(l)));
    fine.chain(wrong).collect::<Vec<_>>().join("\n")
}
