//! A review as one page that can be sent to a colleague: no script, no external resource, every foreign
//! character escaped twice, for what steers text (bidi, control) and for what steers HTML.

use super::{report, time};
use crate::model::How;
use crate::ops::review::Review;
use crate::text::Untrusted;
use std::fmt::Write as _;

/// Nothing may be loaded, run, sent or framed; the one style sheet is in the page.
const CSP: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fff;--fg:#1f2328;--dim:#59636e;--line:#d1d9e0;--soft:#f6f8fa;
--add:#dafbe1;--addfg:#116329;--del:#ffebe9;--delfg:#a40e26;--hunk:#ddf4ff;--hunkfg:#0550ae;--warn:#9a6700;--warnbg:#fff8c5}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--dim:#9198a1;--line:#3d444d;--soft:#151b23;
--add:#12261e;--addfg:#7ee787;--del:#25171c;--delfg:#ffa198;--hunk:#121d2f;--hunkfg:#79c0ff;--warn:#d29922;--warnbg:#272115}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}
main{max-width:68rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.5rem;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1rem;margin:2rem 0 .5rem}
.state{display:inline-block;margin-left:.6rem;padding:.1rem .6rem;border:1px solid var(--line);border-radius:1rem;
font-size:.8rem;font-weight:500;vertical-align:middle;color:var(--dim)}
.task{margin:.5rem 0 1.25rem;white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate}
table{border-collapse:collapse;width:100%}
.facts th{width:7.5rem;text-align:left;vertical-align:top;font-weight:500;color:var(--dim);padding:.2rem 1rem .2rem 0}
.facts td{padding:.2rem 0;overflow-wrap:anywhere;unicode-bidi:isolate}
code,pre,.path{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.warn{color:var(--warn)}
.look{background:var(--warnbg);border:1px solid var(--line);border-radius:6px;padding:.6rem 1rem;margin:1rem 0}
.look ul{margin:.25rem 0;padding-left:1.25rem}
.files td{padding:.2rem .75rem .2rem 0;border-top:1px solid var(--line)}
.files .n{width:1%;white-space:nowrap;text-align:right;font-variant-numeric:tabular-nums}
.files .path{overflow-wrap:anywhere}
a{color:inherit}
.p{color:var(--addfg)}.m{color:var(--delfg)}
section{border:1px solid var(--line);border-radius:6px;margin:1rem 0;overflow:hidden}
section h3{margin:0;padding:.5rem .75rem;background:var(--soft);border-bottom:1px solid var(--line);font-weight:600;
overflow-wrap:anywhere;unicode-bidi:isolate}
section h3 small{font-weight:400;color:var(--dim);margin-left:.5rem}
section pre{margin:0;overflow-x:auto;padding:.25rem 0}
pre span{display:block;min-width:max-content;padding:0 .75rem;white-space:pre;unicode-bidi:isolate;direction:ltr}
.a{background:var(--add)}.d{background:var(--del)}.h{background:var(--hunk);color:var(--hunkfg)}.x{color:var(--dim)}
footer{margin-top:2rem;color:var(--dim);font-size:.85rem}
@media print{section{break-inside:avoid-page}pre span{white-space:pre-wrap;min-width:0}}
";

/// The whole page. `diff` is the diff for eyes, untrusted bytes.
pub fn page(review: &Review, diff: &[u8]) -> String {
    let (shown, result) = (&review.shown, &review.result);
    let name = esc(shown.head.name.as_str());
    let files = split(diff);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CSP}\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>Review of run {name}</title>\n\
         <style>{STYLE}</style>\n<main>\n<h1>Run {name}<span class=\"state\">{}</span></h1>\n",
        shown.state.as_str()
    );
    if let Some(task) = &shown.task {
        let task = Untrusted::new(task).multiline();
        let _ = writeln!(page, "<p class=\"task\">{}</p>", esc(task.trim()));
    }
    facts(&mut page, review);
    look(&mut page, review);
    let (added, removed) = review.lines;
    let _ = writeln!(
        page,
        "<h2>{}, <span class=\"p\">+{added}</span> <span class=\"m\">&minus;{removed}</span></h2>",
        report::files(result.files)
    );
    if !files.is_empty() {
        page.push_str("<table class=\"files\">\n");
        for (n, file) in files.iter().enumerate() {
            let _ = writeln!(
                page,
                "<tr><td class=\"path\"><a href=\"#f{n}\">{}</a><td class=\"x n\">{}<td class=\"n p\">{}<td class=\"n m\">{}",
                esc(&file.title),
                file.what,
                if file.added > 0 { format!("+{}", file.added) } else { String::new() },
                if file.removed > 0 { format!("&minus;{}", file.removed) } else { String::new() },
            );
        }
        page.push_str("</table>\n");
    }
    for (n, file) in files.iter().enumerate() {
        section(&mut page, n, file);
    }
    let _ = writeln!(
        page,
        "<footer>Made by git-agent {} from commits {} and {}. This page decides nothing: \
         <code>git agent review {name}</code></footer>\n</main>\n</html>",
        env!("CARGO_PKG_VERSION"),
        result.base.short(),
        result.snapshot.short()
    );
    page
}

fn facts(page: &mut String, review: &Review) {
    let (shown, result) = (&review.shown, &review.result);
    page.push_str("<table class=\"facts\">\n");
    let mut row = |key: &str, value: String| {
        let _ = writeln!(page, "<tr><th>{key}<td>{value}");
    };
    row("Role", esc(shown.head.role.as_str()));
    for (engine, cage) in &review.engines {
        let engine = Untrusted::new(engine).to_string();
        let class = if report::uncaged(cage).is_some() { "warn" } else { "x" };
        row(
            "Engine",
            format!("{} <span class=\"{class}\">{}</span>", esc(&engine), esc(&report::cage(cage))),
        );
    }
    if let Some(isolation) = report::isolation(shown.head.isolation) {
        row("Isolation", format!("<span class=\"warn\">{}</span>", esc(isolation)));
    }
    for path in &review.write {
        row("Writes", esc(&Untrusted::new(path).to_string()));
    }
    row("Ended", esc(&format!("{}, {} s", report::ended(result.ended), result.seconds)));
    let target = review.target.as_deref().map(|t| t.trim_start_matches("refs/heads/"));
    let on = target.map_or_else(String::new, |t| format!(" on {}", esc(&Untrusted::new(t).to_string())));
    row("Base", format!("<code>{}</code>{on}", result.base));
    row("Snapshot", format!("<code>{}</code>", result.snapshot));
    row("Change", format!("<code>{}</code>", result.change));
    let source = Untrusted::new(&review.policy.source).to_string();
    row("Policy", format!("{} <code class=\"x\">{}</code>", esc(&source), review.policy.sha256));
    if let Some(given) = &review.approval {
        let class = if given.how == How::Unattended { " class=\"warn\"" } else { "" };
        let by = esc(&Untrusted::new(&given.by).to_string());
        let how = report::how(given.how);
        row("Approved", format!("<span{class}>{how}</span>, by {by}, {}", time::local(given.time)));
    }
    for (check, tail) in &review.checks {
        let class = if check.passed() { "" } else { " class=\"warn\"" };
        let tail = Untrusted::new(tail).multiline();
        let tail = if tail.trim().is_empty() {
            String::new()
        } else {
            format!("<details><summary>output</summary><pre>{}</pre></details>", esc(tail.trim_end()))
        };
        row("Check", format!("<span{class}>{}</span>{tail}", esc(&report::check(check))));
    }
    for note in report::peculiar(&result.report) {
        row("Note", esc(&note));
    }
    if let Some((_, event)) = shown.chain.known().next_back() {
        row("Recorded", time::local(event.time));
    }
    page.push_str("</table>\n");
}

/// What deserves a second look, in a box of its own.
fn look(page: &mut String, review: &Review) {
    let mut items: Vec<String> = Vec::new();
    let drift = &review.drift;
    if drift.commits > 0 {
        let paths = drift.same_paths.join(", ");
        let both = if paths.is_empty() {
            "no path is touched by both".into()
        } else {
            format!("both touch {paths}")
        };
        let s = if drift.commits == 1 { "" } else { "s" };
        items.push(format!("the target moved {} commit{s} since the base; {both}", drift.commits));
    }
    items.extend(review.risks.iter().map(|(path, why)| format!("{why}: {path}")));
    items.extend(review.breaches.iter().map(|b| Untrusted::new(b).to_string()));
    if items.is_empty() {
        return;
    }
    page.push_str("<div class=\"look\"><strong>Worth a second look</strong>\n<ul>\n");
    for item in &items {
        let _ = writeln!(page, "<li>{}", esc(item));
    }
    page.push_str("</ul></div>\n");
}

/// One file of a diff, already escaped for text.
struct File {
    title: String,
    what: &'static str,
    added: u64,
    removed: u64,
    notes: Vec<String>,
    body: Vec<String>,
}

/// Splits a git diff at its files. Lines of contents start with a space, `+`, `-` or `\`, so that no content
/// can pass for a header.
fn split(diff: &[u8]) -> Vec<File> {
    let text = Untrusted::new(diff).multiline();
    let mut files: Vec<File> = Vec::new();
    let mut in_header = true;
    for line in text.strip_suffix('\n').unwrap_or(&text).split('\n') {
        if let Some(names) = line.strip_prefix("diff --git ") {
            let (title, what, notes, body) = (title(names), "", Vec::new(), Vec::new());
            files.push(File { title, what, added: 0, removed: 0, notes, body });
            in_header = true;
            continue;
        }
        let Some(file) = files.last_mut() else { continue };
        in_header &= !line.starts_with("@@");
        if !in_header {
            match line.as_bytes().first() {
                Some(b'+') => file.added += 1,
                Some(b'-') => file.removed += 1,
                _ => {}
            }
            file.body.push(line.to_owned());
        } else if line.starts_with("index ") || line.starts_with("--- ") {
        } else if let Some(path) = line.strip_prefix("+++ ") {
            if path != "/dev/null" {
                file.title = unprefixed(path.trim_end_matches('\t'), "b/");
            }
        } else {
            file.what = match line.split(' ').next() {
                Some("new") if line.starts_with("new file") => "new",
                Some("deleted") => "deleted",
                Some("rename") => "renamed",
                Some("copy") => "copied",
                Some("Binary") if file.what.is_empty() => "binary",
                Some("old" | "new") if file.what.is_empty() => "mode",
                _ => file.what,
            };
            if let Some(path) = line.strip_prefix("rename to ") {
                path.clone_into(&mut file.title);
            }
            file.notes.push(line.to_owned());
        }
    }
    files
}

/// The path in `a/PATH b/PATH`, where both halves are the same; else all of it.
fn title(names: &str) -> String {
    let middle = names.len() / 2;
    match names.split_at_checked(middle) {
        Some((a, b)) if unprefixed(a, "a/") == unprefixed(b.trim_start_matches(' '), "b/") => {
            unprefixed(a, "a/")
        }
        _ => names.to_owned(),
    }
}

/// `a/x` without its prefix, also inside git's quotes.
fn unprefixed(path: &str, prefix: &str) -> String {
    match path.strip_prefix('"') {
        Some(rest) => format!("\"{}", rest.strip_prefix(prefix).unwrap_or(rest)),
        None => path.strip_prefix(prefix).unwrap_or(path).to_owned(),
    }
}

fn section(page: &mut String, n: usize, file: &File) {
    let _ = write!(page, "<section id=\"f{n}\"><h3 class=\"path\">{}", esc(&file.title));
    if !file.notes.is_empty() {
        let _ = write!(page, "<small>{}</small>", esc(&file.notes.join(" · ")));
    }
    page.push_str("</h3>");
    if !file.body.is_empty() {
        page.push_str("<pre>");
        for line in &file.body {
            let class = match line.as_bytes().first() {
                Some(b'+') => "a",
                Some(b'-') => "d",
                Some(b'@') => "h",
                Some(b'\\') => "x",
                _ => "c",
            };
            let _ = write!(page, "<span class=\"{class}\">{}</span>", esc(line));
        }
        page.push_str("</pre>");
    }
    page.push_str("</section>\n");
}

/// Text as HTML text or attribute value.
fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_is_split_at_its_files_and_nowhere_else() {
        let diff = b"diff --git a/a b b/a b\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/a b\t\n\
            @@ -0,0 +1,2 @@\n+diff --git a/x b/x\n+<script>\xe2\x80\xae\n\
            diff --git a/old b/new\nsimilarity index 100%\nrename from old\nrename to new\n\
            diff --git \"a/\\001\" \"b/\\001\"\nold mode 100644\nnew mode 100755\n";
        let files = split(diff);
        let seen: Vec<_> =
            files.iter().map(|f| (f.title.as_str(), f.what, f.added, f.removed, f.body.len())).collect();
        assert_eq!(
            seen,
            [("a b", "new", 2, 0, 3), ("new", "renamed", 0, 0, 0), ("\"\\001\"", "mode", 0, 0, 0)]
        );
        let mut page = String::new();
        section(&mut page, 0, &files[0]);
        assert!(page.contains("+&lt;script&gt;\\u{202e}"), "{page}");
    }
}
