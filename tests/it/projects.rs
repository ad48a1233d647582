//! Projects of three kinds, each with `setup` and `checks` in the cage, for real: npm, Cargo, Python. None needs
//! the network: dependencies are local paths, with lock files where the tool has them.

use crate::support::{Repo, Sandbox, both};
use std::path::Path;

/// Spawns an engine that breaks the project and one that mends it; returns nothing, asserts everything.
fn broken_then_mended(repo: &Repo, break_it: &str, mend_it: &str) {
    let passed = |run: &str| {
        let seen = repo.agent_args(["review", run, "--json"]).ok().json();
        let checks = seen["checks"].as_array().unwrap().clone();
        assert!(checks[0]["name"] == "setup" && checks[0]["passed"] == true, "{checks:?}");
        let unit = checks.iter().find(|c| c["name"] == "unit").unwrap().clone();
        (unit["passed"].as_bool().unwrap(), unit["tail"].as_str().unwrap().to_owned())
    };
    repo.spawn("--role developer --run x", break_it).ok();
    let (fine, tail) = passed("x");
    assert!(!fine, "{tail}");
    repo.spawn("--role developer --run x", mend_it).ok();
    let (fine, tail) = passed("x");
    assert!(fine, "{tail}");
}

fn policy(setup: &str, unit: &str) -> String {
    format!(
        "version: 1\nroles:\n  developer:\n    kind: writer\n    setup: {{run: [{setup}]}}\n    checks: {{unit: {unit}}}\n"
    )
}

#[test]
fn an_npm_project() {
    both(|s| {
        let repo = s.repo();
        repo.write(".gitignore", "node_modules/\n");
        repo.write(
            "package.json",
            r#"{"name":"app","version":"1.0.0","private":true,"scripts":{"test":"node test.js"},"dependencies":{"dep":"file:dep"}}"#,
        );
        repo.write("dep/package.json", r#"{"name":"dep","version":"1.0.0","main":"index.js"}"#);
        repo.write("dep/index.js", "module.exports = (a, b) => a + b;\n");
        repo.write("add.js", "module.exports = require('dep');\n");
        repo.write("test.js", "require('assert').strictEqual(require('./add')(1, 2), 3);\n");
        repo.write(
            "package-lock.json",
            r#"{"name":"app","version":"1.0.0","lockfileVersion":3,"requires":true,"packages":{
              "":{"name":"app","version":"1.0.0","dependencies":{"dep":"file:dep"}},
              "dep":{"version":"1.0.0"},"node_modules/dep":{"resolved":"dep","link":true}}}"#,
        );
        repo.trusted_policy(&policy("[npm, ci, --no-audit, --no-fund]", "[npm, test]"));
        broken_then_mended(
            &repo,
            "test -d node_modules/dep && npm test && echo 'module.exports = () => 0;' >add.js",
            "git checkout -q add.js && echo >>test.js && npm test",
        );
        assert_eq!(repo.changed("x"), ["M test.js"]);
    });
}

#[test]
fn a_python_project() {
    both(|s| {
        let repo = s.repo();
        repo.write(".gitignore", ".venv/\n__pycache__/\n");
        repo.write("app/__init__.py", "def add(a, b):\n    return a + b\n");
        repo.write(
            "tests/test_add.py",
            "import unittest, sys\nfrom app import add\n\n\nclass T(unittest.TestCase):\n    def test_add(self):\n        \
             self.assertNotEqual(sys.prefix, sys.base_prefix)\n        self.assertEqual(add(1, 2), 3)\n",
        );
        repo.write("tests/__init__.py", "");
        repo.trusted_policy(&policy(
            "[python3, -m, venv, --without-pip, .venv]",
            "[.venv/bin/python, -m, unittest, -q]",
        ));
        broken_then_mended(
            &repo,
            ".venv/bin/python -m unittest -q && sed -i 's/a + b/a - b/' app/__init__.py",
            "git checkout -q app && echo '# more' >>tests/__init__.py",
        );
        assert_eq!(repo.changed("x"), ["M tests/__init__.py"]);
    });
}

#[test]
fn a_cargo_project() {
    // The toolchain that runs this test lies in the home of whoever runs it: shown by the person's own word, and
    // only root's engine can read there.
    let cargo = std::env::var_os("CARGO").expect("cargo test sets it");
    let cargo = Path::new(&cargo).canonicalize().unwrap();
    let toolchain = cargo.parent().unwrap().parent().unwrap();
    assert!(toolchain.join("bin/rustc").exists(), "{}", toolchain.display());
    let s = Sandbox::new().with_programs(&toolchain.join("bin"));
    let repo = s.repo();
    repo.git_args(["config", "--global", "agent.read", toolchain.to_str().unwrap()]);
    repo.write(".gitignore", "target/\n");
    repo.write(
        "Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ndep = { path = \"dep\" }\n",
    );
    repo.write("Cargo.lock", "version = 3\n\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\ndependencies = [\n \"dep\",\n]\n\n[[package]]\nname = \"dep\"\nversion = \"0.1.0\"\n");
    repo.write("dep/Cargo.toml", "[package]\nname = \"dep\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    repo.write("dep/src/lib.rs", "pub fn add(a: u32, b: u32) -> u32 {\n    a + b\n}\n");
    repo.write("src/lib.rs", "pub use dep::add;\n#[test]\nfn adds() {\n    assert_eq!(add(1, 2), 3);\n}\n");
    repo.trusted_policy(&policy(
        "[cargo, fetch, --locked, --offline]",
        "[cargo, test, --locked, --offline, --quiet]",
    ));
    broken_then_mended(
        &repo,
        "cargo test --locked --offline -q && sed -i 's/a + b/a * b/' dep/src/lib.rs",
        "git checkout -q dep && echo '// more' >>src/lib.rs",
    );
    assert_eq!(repo.changed("x"), ["M src/lib.rs"]);
}
