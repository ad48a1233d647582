//! What `git agent doctor` prints.

use super::Out;
use crate::ops::doctor::{EngineReport, Kind, Proof, Report, RowReport, Traits, Verdict};
use crate::text::Untrusted;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Columns that are filled.
const WIDTH: usize = 79;
/// Names of one finding that are shown.
const NAMES: usize = 4;

/// Answer of `doctor --json`.
pub fn json(report: &Report) -> Value {
    let mut value = serde_json::to_value(report).unwrap_or_else(|e| json!({ "error": e.to_string() }));
    if let Some(map) = value.as_object_mut() {
        map.insert("v".into(), json!(1));
        map.insert("holds".into(), json!(report.holds()));
    }
    value
}

/// For a person, in 80 columns.
pub fn text(out: &Out, report: &Report) -> String {
    let mut page = Page { out, text: String::new() };
    page.cage(report);
    page.engines(&report.engines);
    page.ports(report);
    page.findings(report);
    if let Some(traits) = &report.traits {
        page.traits(traits);
    }
    page.verdict(report);
    page.text.trim_end().to_owned()
}

struct Page<'o> {
    out: &'o Out,
    text: String,
}

impl Page<'_> {
    fn heading(&mut self, words: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let _ = writeln!(self.text, "{}", self.out.strong(words));
    }

    /// Words broken at spaces; the first line starts with `first`, the others below what follows it.
    fn put(&mut self, first: &str, words: &str) {
        let indent = first.chars().count();
        let mut line = first.to_owned();
        let mut empty = true;
        for word in words.split(' ') {
            if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
                let _ = writeln!(self.text, "{}", line.trim_end());
                line = " ".repeat(indent);
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    fn cage(&mut self, report: &Report) {
        self.heading("Cage");
        let m = &report.machine;
        let abi = if m.landlock_abi == 0 {
            "no Landlock".to_owned()
        } else {
            format!("Landlock ABI {}", m.landlock_abi)
        };
        let machine = format!(
            "Linux {}, {abi}, {}, {}",
            Untrusted::new(&m.kernel),
            if m.seccomp { "seccomp" } else { "no seccomp" },
            if m.namespaces { "namespaces" } else { "no namespaces" }
        );
        self.put("  machine   ", &machine);
        match (&report.cage, &report.lacks) {
            (Some(proof), _) => self.proof(proof),
            (None, lacks) => {
                let lacks = Untrusted::new(lacks.as_deref().unwrap_or("unknown")).to_string();
                let word = self.out.alarm("none");
                let _ = writeln!(self.text, "  tier      {word}");
                self.put("            ", &lacks);
            }
        }
        for missing in &report.missing {
            self.put("  for more  ", &format!("tier {} needs: {}", missing.tier, missing.what));
            let _ = writeln!(self.text, "              {}", missing.how);
        }
    }

    fn proof(&mut self, proof: &Proof) {
        let tried = proof.rows.iter().filter(|r| r.kind != Kind::Work);
        let count = |v: Verdict| tried.clone().filter(|r| r.verdict == v).count();
        let _ = writeln!(self.text, "  tier      {}, network {}", proof.tier, proof.network);
        self.put(
            "  attempts  ",
            &format!(
                "{} to get out, made by a program in the cage: {} held, {} open, {} impossible on this machine anyway. \
                 Those that are held succeeded without the cage.",
                tried.clone().count(),
                count(Verdict::Held),
                count(Verdict::Open),
                count(Verdict::Void)
            ),
        );
        let broken: Vec<&RowReport> = proof.rows.iter().filter(|r| r.broken()).collect();
        if !broken.is_empty() {
            let word = self.out.alarm("BROKEN");
            let _ = writeln!(self.text, "  {word}    promised by this tier, and not so:");
            for row in broken {
                let what = match (row.kind, row.verdict) {
                    (Kind::Work, _) => format!("cannot {}: {}", row.what, Untrusted::new(&row.why)),
                    (_, Verdict::Unknown) => format!("no answer to: {}", row.what),
                    _ => format!("can {}", row.what),
                };
                self.put(&format!("            {:5} ", row.id), &what);
            }
        }
        let open = |r: &&RowReport| !r.promised && r.verdict == Verdict::Open;
        let mut open: Vec<(&str, String)> =
            proof.rows.iter().filter(open).map(|r| (r.id, r.what.to_owned())).collect();
        open.extend(proof.untried.iter().map(|(id, what)| (*id, format!("{what} (not tried)"))));
        if !open.is_empty() {
            self.text.push_str("  open      what this tier and network do not hold, or cannot:\n");
            for (id, what) in open {
                self.put(&format!("            {id:5} "), &what);
            }
        }
    }

    fn engines(&mut self, engines: &[EngineReport]) {
        self.heading("Engines");
        let head = format!("  {:12}  {:10}  {:>8}  {:>5}  LOGIN", "NAME", "VERSION", "IN A RUN", "ALONE");
        let _ = writeln!(self.text, "{head}");
        for e in engines {
            let version = match (&e.program, &e.version) {
                (None, _) => "-".to_owned(),
                (Some(_), None) => "?".to_owned(),
                (Some(_), Some(v)) => Untrusted::new(v).to_string(),
            };
            let grade = |g: Option<char>| g.map_or("-".to_owned(), String::from);
            let login = e.login.as_deref().map_or("-".to_owned(), |l| Untrusted::new(l).to_string());
            let _ = writeln!(
                self.text,
                "  {:12}  {version:10}  {:>8}  {:>5}  {login}",
                e.name,
                grade(e.in_a_run),
                grade(e.alone)
            );
            if e.program.is_some() && e.version.is_none() {
                self.put("                ", "it is installed and does not start in the cage");
            }
            match &e.live {
                Some(live) if live.done => self.put("                ", "it did a small task in the cage"),
                Some(live) => {
                    let why = format!("it did not do a small task: {}", Untrusted::new(&live.why));
                    let why = self.out.alarm(&why);
                    self.put("                ", &why);
                }
                None => {}
            }
        }
        self.put("  ", "A: the kernel holds the whole session. B: some tools only, by hooks. C: hooks that do not work. -: nothing.");
    }

    fn ports(&mut self, report: &Report) {
        let reached = report.cage.as_ref().is_none_or(|c| c.network == "open");
        if report.ports.is_empty() || !reached {
            return;
        }
        self.heading("Listening on this machine, and within reach of a run with network open");
        let ports = report.ports.iter().map(|p| match &p.program {
            Some(program) => format!("{} {}", p.port, Untrusted::new(program)),
            None => p.port.to_string(),
        });
        let ports: Vec<_> = ports.collect();
        self.put("  ", &ports.join(", "));
    }

    fn findings(&mut self, report: &Report) {
        if report.findings.is_empty() {
            return;
        }
        self.heading("Found");
        for finding in &report.findings {
            self.put("  - ", &Untrusted::new(&finding.what).to_string());
            let names = finding.names.iter().filter(|_| finding.kind != "hook");
            for name in names.clone().take(NAMES) {
                let _ = writeln!(self.text, "      {}", Untrusted::new(name));
            }
            let more = names.count().saturating_sub(NAMES);
            if more > 0 {
                let _ = writeln!(self.text, "      ... and {more} more (--json has them all)");
            }
            if let Some(hint) = &finding.hint {
                self.put("    hint: ", &Untrusted::new(hint).to_string());
            }
        }
    }

    fn traits(&mut self, traits: &Traits) {
        self.heading("This repository");
        for one in &traits.traits {
            self.put(&format!("  {:16} ", one.name), &Untrusted::new(&one.meaning).to_string());
        }
        if traits.traits.is_empty() {
            self.text.push_str("  nothing out of the ordinary\n");
        }
        match &traits.refusal {
            None => self.text.push_str("  runs can be cut here\n"),
            Some(why) => {
                let no = self.out.alarm("no runs here:");
                self.put(&format!("  {no} "), &Untrusted::new(why).to_string());
            }
        }
    }

    fn verdict(&mut self, report: &Report) {
        self.text.push('\n');
        match (&report.cage, report.holds()) {
            (Some(proof), true) => {
                let _ = writeln!(self.text, "What tier {} promises holds on this machine.", proof.tier);
            }
            (Some(proof), false) => {
                let text = format!("What tier {} promises does NOT hold on this machine.", proof.tier);
                let _ = writeln!(self.text, "{}", self.out.alarm(&text));
            }
            (None, _) => {
                let _ = writeln!(
                    self.text,
                    "{}",
                    self.out.alarm("No cage is in force on this machine: no engine is started.")
                );
            }
        }
    }
}
