use super::*;

#[test]
fn what_was_written_is_read_back_and_folds() {
    for f in Fixture::each() {
        let ledger = f.ledger();
        let mut spawn = f.spawn("EG-026");
        spawn.att.push((TASK.into(), b"do it".to_vec()));
        // Evidence that is named twice, and the base that the body names, become one parent each.
        spawn.evidence = vec![f.base.clone(), f.base.clone()];
        let tip = f.start(&RunId::new(1_764_531_644_000, 1), &spawn);
        f.append(&tip.run, &engine("claude")).unwrap();
        // A clock that was set back changes nothing about the order.
        let mut result = f.result("two\n");
        result.time = 5;
        let tip = f.append(&tip.run, &result).unwrap();

        let chain = ledger.chain(&tip).unwrap();
        let kinds: Vec<_> = chain.events.iter().map(|(_, e)| e.kind().to_owned()).collect();
        assert_eq!(kinds, ["spawn", "engine", "result"]);
        let head = chain.head.as_ref().unwrap();
        assert_eq!(Some(head), tip.head());
        assert_eq!((head.phase, head.engine.as_deref()), (Phase::Proposed, Some("claude")));
        assert_eq!(Head::fold(chain.known().map(|(_, e)| e)).unwrap().as_ref(), Some(head));

        let objects = f.repo.objects().unwrap();
        let (first, event) = chain.known().next().unwrap();
        assert_eq!(objects.commit(first).unwrap().parents, std::slice::from_ref(&f.base));
        assert_eq!(ledger.attachment(first, event, TASK).unwrap().unwrap(), b"do it");
        assert_eq!(ledger.attachment(first, event, "other").unwrap(), None);
        let Body::Result(r) = &tip.understood().unwrap().body else { panic!("not a result") };
        assert_eq!(objects.commit(&tip.commit).unwrap().parents[1..], *std::slice::from_ref(&r.snapshot));

        assert_eq!(ledger.tips().unwrap().tips, [ledger.tip(&tip.run).unwrap().unwrap()]);
        // Well-formed for git whatever the actor is called.
        git(&f.path(), &["fsck", "--strict", "--no-dangling"]);
        assert_eq!(
            git(&f.path(), &["log", "-1", "--format=%an <%ae> %at", tip.commit.as_str()]),
            "Ada x <ada@example.org> 5"
        );
    }
}

#[test]
fn evidence_survives_gc_and_a_fetch_gives_the_same_chain() {
    for f in Fixture::each() {
        let mut spawn = f.spawn("x");
        let pinned = f.result("only the run knows this\n");
        let Body::Result(r) = &pinned.body else { unreachable!() };
        spawn.evidence.push(r.snapshot.clone());
        let tip = f.start(&RunId::new(1, 1), &spawn);
        let tip = f.append(&tip.run, &f.result("three\n")).unwrap();
        git(&f.path(), &["reflog", "expire", "--expire=now", "--all"]);
        git(&f.path(), &["gc", "-q", "--prune=now"]);
        git(&f.path(), &["cat-file", "-e", r.snapshot.as_str()]);

        git(f.dir.path(), &["clone", "-q", "project", "clone"]);
        let clone = f.dir.path().join("clone");
        git(&clone, &["fetch", "-q", "origin", "refs/agent-runs/*:refs/agent-runs/*"]);
        let other = Repo::discover(&clone).unwrap();
        let there = Ledger::new(&other);
        assert_eq!(there.tips().unwrap().tips, f.ledger().tips().unwrap().tips);
        let chain = there.chain(&there.tip(&tip.run).unwrap().unwrap()).unwrap();
        assert_eq!(chain.events, f.ledger().chain(&tip).unwrap().events);
        git(&clone, &["cat-file", "-e", r.snapshot.as_str()]);
    }
}

#[test]
fn writers_that_race_lose_nothing() {
    for f in Fixture::each() {
        let run = f.run(1, "race").run;
        let folder = f.path();
        std::thread::scope(|scope| {
            for worker in 0..8 {
                let (run, folder) = (run.clone(), folder.clone());
                scope.spawn(move || {
                    let repo = Repo::discover(&folder).unwrap();
                    for i in 0..5 {
                        let ledger = Ledger::new(&repo);
                        ledger.append(&run, &engine(&format!("e-{worker}-{i}")), |_| Ok(())).unwrap();
                    }
                });
            }
        });
        let ledger = f.ledger();
        let chain = ledger.chain(&ledger.tip(&run).unwrap().unwrap()).unwrap();
        let mut names: Vec<String> = chain
            .known()
            .filter_map(|(_, e)| match &e.body {
                Body::Engine(e) => Some(e.engine.clone()),
                _ => None,
            })
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 40);
    }
}

#[test]
fn what_no_longer_makes_sense_is_not_appended() {
    let f = Fixture::new(&[]);
    let tip = f.run(1, "x");
    let no = |head: &Head| -> Result<(), Failure> {
        assert_eq!(head.phase, Phase::Ready);
        Err(Failure::new(Kind::No, "no"))
    };
    assert_eq!(f.ledger().append(&tip.run, &abort("x"), no).unwrap_err().kind, Kind::No);
    assert_eq!(f.ledger().tip(&tip.run).unwrap().unwrap(), tip);
    assert!(f.append(&tip.run, &f.spawn("x")).is_err(), "a second spawn");
    assert!(f.ledger().prepare_first(&tip.run, &abort("x")).is_err(), "a first event that is no spawn");
    // The same run twice: the second transaction fails whole.
    let twice = f.ledger().prepare_first(&tip.run, &f.spawn("y")).unwrap();
    let branch = Transaction::new().create("refs/heads/wt/y", &f.base);
    assert!(twice.join(branch).commit(&f.repo, "t").is_err());
    assert_eq!(f.repo.ref_tip("refs/heads/wt/y").unwrap(), None);
}

#[test]
fn limits_name_themselves() {
    let f = Fixture::new(&[]);
    let ledger = f.ledger();
    let with = |name: &str, size: usize| {
        let mut d = f.spawn("x");
        d.att.push((name.into(), vec![b'x'; size]));
        ledger.prepare_first(&RunId::new(1, 1), &d)
    };
    assert!(shown(with(TASK, MAX_TASK + 1).unwrap_err()).contains("16384"));
    let _ = with(TASK, MAX_TASK).unwrap();
    assert!(with("log", 2 << 20).is_err());
    for bad in ["../x", "a/b", ".x", "", "é"] {
        assert!(with(bad, 1).is_err(), "{bad}");
    }
    let mut big = f.spawn("x");
    if let Body::Spawn(s) = &mut big.body {
        s.strip = vec!["y".repeat(1000); 70];
    }
    assert!(shown(ledger.prepare_first(&RunId::new(1, 1), &big).unwrap_err()).contains("65536"));

    let run = f.run(2, "full").run;
    for i in 1..MAX_EVENTS {
        f.append(&run, &engine(&format!("e{i}"))).unwrap();
    }
    assert!(shown(f.append(&run, &engine("more")).unwrap_err()).contains("64 events"));
    let tip = f.append(&run, &abort("enough")).unwrap();
    assert_eq!(ledger.chain(&tip).unwrap().events.len(), 65);

    let run = f.run(3, "heavy").run;
    let mut heavy = engine("e");
    heavy.att.push(("log".into(), vec![b'x'; 700 << 10]));
    f.append(&run, &heavy).unwrap();
    assert!(shown(f.append(&run, &heavy).unwrap_err()).contains("bytes"));
    f.append(&run, &engine("light")).unwrap();
}

#[test]
fn evidence_must_be_evidence() {
    let f = Fixture::new(&[]);
    let run = f.run(1, "x").run;
    // A commit on top of the agent's own is not a snapshot.
    let mut result = f.result("two\n");
    let Body::Result(r) = &mut result.body else { unreachable!() };
    let objects = f.repo.objects().unwrap();
    let own = commit_bytes(&r.tree, std::slice::from_ref(&r.snapshot), "T <t@t>", 1, "on top");
    r.snapshot = objects.write(ObjectKind::Commit, &own).unwrap();
    assert!(shown(f.append(&run, &result).unwrap_err()).contains("only parent"));
    let mut missing = engine("x");
    missing.evidence.push("1".repeat(40).parse().unwrap());
    assert!(shown(f.append(&run, &missing).unwrap_err()).contains("does not exist"));
}

/// Writes an event commit by hand.
fn forge(f: &Fixture, event: &[u8], more: &[(&str, u32, &[u8])], parents: &[Oid]) -> Oid {
    let objects = f.repo.objects().unwrap();
    let entry = |name: &str, mode, bytes: &[u8]| TreeEntry {
        mode,
        name: name.into(),
        oid: objects.write(ObjectKind::Blob, bytes).unwrap(),
    };
    let mut top = vec![entry(EVENT_FILE, 0o100_644, event)];
    let mut att = Vec::new();
    for (name, mode, bytes) in more {
        match name.strip_prefix("att/") {
            Some(name) => att.push(entry(name, *mode, bytes)),
            None => top.push(entry(name, *mode, bytes)),
        }
    }
    if !att.is_empty() {
        let oid = objects.write(ObjectKind::Tree, &tree_bytes(att)).unwrap();
        top.push(TreeEntry { mode: 0o040_000, name: ATTACHMENTS.into(), oid });
    }
    let tree = objects.write(ObjectKind::Tree, &tree_bytes(top)).unwrap();
    objects.write(ObjectKind::Commit, &commit_bytes(&tree, parents, "T <t@t>", 1, "forged")).unwrap()
}

fn point(f: &Fixture, run: &RunId, commit: &Oid) {
    git(&f.path(), &["update-ref", &Ledger::ref_name(run), commit.as_str()]);
}

#[test]
fn one_broken_run_does_not_hide_the_others() {
    for f in Fixture::each() {
        let good = f.run(1, "good");
        let text = String::from_utf8(good.understood().unwrap().encode().unwrap()).unwrap();
        let id = |n| RunId::new(9, n);
        let cases: Vec<(&str, Vec<u8>)> = vec![
            ("is not JSON", b"{".to_vec()),
            ("canonical", text.replacen("\"seq\":0", "\"seq\": 0", 1).into_bytes()),
            ("canonical", text.replacen("\"seq\":0", "\"seq\":1,\"seq\":0", 1).into_bytes()),
            ("more than 65536", vec![b' '; MAX_EVENT + 1]),
            ("belongs to run", text.clone().into_bytes()),
        ];
        for (n, (_, bytes)) in cases.iter().enumerate() {
            point(&f, &id(n as u128), &forge(&f, bytes, &[], std::slice::from_ref(&f.base)));
        }
        point(&f, &id(90), &f.base);
        // A commit that got lost: a torn disk, or a clone that did not bring it.
        let lost = f.run(91, "lost").commit;
        let loose = format!(".git/objects/{}/{}", &lost.as_str()[..2], &lost.as_str()[2..]);
        assert!(crate::os::files::remove_file(&f.path().join(loose)).unwrap());
        git(&f.path(), &["update-ref", "refs/agent-runs/not-a-run", f.base.as_str()]);
        git(&f.path(), &["update-ref", "refs/agent-runs/archive/0001", f.base.as_str()]);
        // A fresh look: libgit2 remembers what it has written.
        let repo = Repo::discover(&f.path()).unwrap();
        let all = Ledger::new(&repo).tips().unwrap();
        assert!(all.archived);
        assert_eq!(all.tips, [good]);
        assert_eq!(all.broken.len(), cases.len() + 3);
        for (n, (why, _)) in cases.iter().enumerate() {
            let found = all.broken.iter().find(|b| b.run.as_ref() == Some(&id(n as u128))).unwrap();
            assert!(found.why.contains(why), "{} / {why}", found.why);
        }
        let failure = f.ledger().resolve(id(90).as_str()).unwrap_err();
        assert!(shown(failure).contains("event.json"));
    }
}

#[test]
fn a_chain_that_was_tampered_with_names_the_event() {
    let f = Fixture::new(&[]);
    let ledger = f.ledger();
    let mut spawn = f.spawn("x");
    spawn.att.push((TASK.into(), b"task".to_vec()));
    let first = f.start(&RunId::new(1, 1), &spawn);
    let second = f.append(&first.run, &engine("e")).unwrap();
    let one = first.understood().unwrap().clone();
    let two = second.understood().unwrap().clone();
    let base = std::slice::from_ref(&f.base);
    let task: &[(&str, u32, &[u8])] = &[("att/task", 0o100_644, b"task")];
    let refused = |commit: Oid, why: &str| {
        let tip = Tip { run: first.run.clone(), commit, event: Decoded::Known(Box::new(two.clone())) };
        let text = shown(ledger.chain(&tip).unwrap_err());
        assert!(text.contains(why) && text.contains(first.run.as_str()), "{text} / {why}");
        assert!(ledger.prepare_next(&tip, &abort("x")).is_err());
    };
    let bytes = |e: &Event| e.encode().unwrap();
    let with = |change: &dyn Fn(&mut Event)| {
        let mut e = two.clone();
        change(&mut e);
        bytes(&e)
    };
    let on_first = std::slice::from_ref(&first.commit);

    refused(forge(&f, &with(&|e| e.prev = Some(Digest::of(b"x"))), &[], on_first), "event 1");
    refused(forge(&f, &with(&|e| e.prev = None), &[], on_first), "'prev'");
    refused(forge(&f, &with(&|e| e.seq = 2), &[], on_first), "number 2 in the place of number 1");
    refused(forge(&f, &with(&|e| e.head.phase = Phase::Proposed), &[], on_first), "not the fold");
    refused(forge(&f, &bytes(&two), &[], base), "event.json");
    refused(forge(&f, &bytes(&two), &[], &[]), "no parent");
    refused(forge(&f, &bytes(&two), &[("evil", 0o100_755, b"x")], on_first), "'evil' (100755)");
    refused(forge(&f, &bytes(&two), &[("event.sig", 0o120_000, b"x")], on_first), "'event.sig'");
    refused(forge(&f, &bytes(&two), &[("event.sig", 0o100_644, &[0; 20_000])], on_first), "signature");
    refused(forge(&f, &bytes(&two), &[("att/x", 0o100_644, b"x")], on_first), "not named");
    // The same first event without its task, with another task, with a link, without its base.
    for (more, parents, why) in [
        (&[][..], base, "missing"),
        (&[("att/task", 0o100_644, &b"tusk"[..])][..], base, "another content"),
        (&[("att/task", 0o100_644, &b"tasks"[..])][..], base, "another size"),
        (&[("att/task", 0o120_000, &b"task"[..])][..], base, "plain file"),
        (task, &[][..], "as a parent"),
    ] {
        let first = forge(&f, &bytes(&one), more, parents);
        refused(forge(&f, &bytes(&two), &[], &[first]), why);
    }
    // And the honest copy is accepted: it is the bytes that count.
    let again = forge(&f, &bytes(&one), task, base);
    let commit = forge(&f, &bytes(&two), &[("event.sig", 0o100_644, b"sig")], &[again]);
    let tip = Tip { run: first.run.clone(), commit, event: second.event.clone() };
    assert_eq!(ledger.chain(&tip).unwrap().events.len(), 2);
}

#[test]
fn unknown_events_are_shown_and_end_writing() {
    for f in Fixture::each() {
        let first = f.run(1, "EG-7");
        let prev = Digest::of(&first.understood().unwrap().encode().unwrap());
        let newer = format!(
            "{{\"head\":{{\"name\":\"EG-7\"}},\"kind\":\"dance\",\"new\":[1],\"prev\":\"{prev}\",\"run\":\"{}\",\
             \"seq\":1,\"v\":2}}",
            first.run
        );
        let more: &[(&str, u32, &[u8])] = &[("new.file", 0o100_644, b"x")];
        let commit = forge(&f, newer.as_bytes(), more, std::slice::from_ref(&first.commit));
        point(&f, &first.run, &commit);
        let ledger = f.ledger();
        let tip = ledger.resolve("EG-7").unwrap();
        assert!(tip.head().is_none());
        assert_eq!((tip.event.kind(), tip.label().as_str()), ("dance", "EG-7"));
        let chain = ledger.chain(&tip).unwrap();
        assert_eq!((chain.events.len(), chain.unknown()), (2, Some((2, "dance"))));
        let text = shown(f.append(&first.run, &abort("x")).unwrap_err());
        assert!(text.contains("version 2") && text.contains("newer git-agent"), "{text}");
        assert_eq!(f.repo.ref_tip(&Ledger::ref_name(&first.run)).unwrap(), Some(commit.clone()));

        // A newer program went on with an event that we know: still no writing here.
        let mut known = engine_after(&first, newer.as_bytes());
        known.head.phase = Phase::Engaged;
        let commit = forge(&f, &known.encode().unwrap(), &[], &[commit]);
        point(&f, &first.run, &commit);
        let tip = ledger.resolve("EG-7").unwrap();
        assert_eq!(ledger.chain(&tip).unwrap().events.len(), 3);
        assert!(shown(f.append(&first.run, &abort("x")).unwrap_err()).contains("version 2"));
    }
}

fn engine_after(first: &Tip, before: &[u8]) -> Event {
    let mut event = first.understood().unwrap().clone();
    event.body = engine("e").body;
    event.seq = 2;
    event.prev = Some(Digest::of(before));
    event.head.engine = Some("e".into());
    event.head.tier = Some("full".into());
    event
}

#[test]
fn words_name_runs() {
    let f = Fixture::new(&[]);
    let ledger = f.ledger();
    let old = f.start(&RunId::new(1_764_531_644_000, 5), &f.spawn("EG-026"));
    let new = f.start(&RunId::new(1_764_631_644_000, 6), &f.spawn("EG-026"));
    let other = f.start(&RunId::new(1_764_631_644_000, 7), &f.spawn("ui-developer-42"));
    let run = |word: &str| ledger.resolve(word).map(|t| t.run);
    assert_eq!(run("EG-026").unwrap(), new.run);
    assert_eq!(run("wt/EG-026").unwrap(), new.run);
    assert_eq!(run("refs/heads/wt/ui-developer-42").unwrap(), other.run);
    assert_eq!(run(old.run.as_str()).unwrap(), old.run);
    assert_eq!(run(&old.run.as_str().to_uppercase()).unwrap(), old.run);
    let short = runs::shortest([&old.run, &new.run, &other.run]);
    for id in [&old.run, &new.run, &other.run] {
        assert_eq!(run(&id.as_str()[..short[id]]).unwrap(), *id);
    }
    let text = shown(run(&new.run.as_str()[..10]).unwrap_err());
    assert!(text.contains("EG-026 (") && text.contains("ui-developer-42 ("), "{text}");
    assert!(run(&old.run.as_str()[..3]).is_err());
    let text = shown(run("EG-027").unwrap_err());
    assert!(text.contains("did you mean: EG-026") && text.contains("git agent list --all"), "{text}");
    assert!(run("eg-026").is_err(), "names are matched as they are stored");
    assert!(shown(run("\u{1b}[31m").unwrap_err()).contains("\\x1b"));
}

#[test]
fn an_actor_is_always_found() {
    let actor = |text: &str| {
        let f = Fixture::new(&[]);
        for line in text.lines() {
            let (key, value) = line.split_once('=').unwrap();
            git(&f.path(), &["config", key, value]);
        }
        super::super::actor(Repo::discover(&f.path()).unwrap().config().unwrap())
    };
    assert_eq!(actor("user.name=A <b>\nuser.email=a@b"), Actor { name: "A b".into(), email: "a@b".into() });
    let fallback = actor("user.name=\nuser.email=<>");
    assert!(!fallback.name.is_empty() && fallback.email.contains('@'), "{fallback:?}");
}

#[test]
fn attachments_are_listed_once_and_in_order() {
    let f = Fixture::new(&[]);
    let mut spawn = f.spawn("x");
    spawn.att = vec![("b".into(), b"2".to_vec()), ("a".into(), b"1".to_vec())];
    let tip = f.start(&RunId::new(1, 1), &spawn);
    f.ledger().chain(&tip).unwrap();
    let good = tip.understood().unwrap();
    let names: Vec<_> = good.att.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let files: &[(&str, u32, &[u8])] = &[("att/a", 0o100_644, b"1"), ("att/b", 0o100_644, b"2")];
    for change in [
        (|e| e.att.reverse()) as fn(&mut Event),
        |e| e.att.insert(0, e.att[0].clone()),
        |e| e.att[1].name = "../b".into(),
    ] {
        let mut event = good.clone();
        change(&mut event);
        let bytes = event.encode().unwrap();
        let commit = forge(&f, &bytes, files, std::slice::from_ref(&f.base));
        let bad = Tip { commit, ..tip.clone() };
        assert!(shown(f.ledger().chain(&bad).unwrap_err()).contains("out of order"));
    }
    spawn.att.push(("a".into(), b"3".to_vec()));
    assert!(f.ledger().prepare_first(&RunId::new(2, 2), &spawn).is_err());
}
