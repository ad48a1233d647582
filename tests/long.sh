#!/usr/bin/env bash
# Longer proofs, outside CI. Prints figures; exits non-zero when one is wrong.
#
#   tests/long.sh repo PATH...   one whole run through a clone of each repository: scripted edits, finish,
#                                review, round trip of the diff, apply, prune; the main tree byte for byte
#   tests/long.sh kill [N]       N random SIGKILLs of spawn in a repository of 10,000 files (default 100)
#   tests/long.sh pairs N PATH   N commit pairs of a clone's history: what an apply makes of the first tree is what a
#                                checkout of the second makes
#   tests/long.sh matrix         apply, undo and recovery killed at every system call; random trees against a model
#   tests/long.sh big [N]        N random SIGKILLs of an apply of 1,600 operations (default 50)
#
# Uses git-agent from PATH, else target/release, else target/debug.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for dir in "$here/target/debug" "$here/target/release"; do
    [[ ! -x $dir/git-agent ]] || PATH="$dir:$PATH"
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HOME="$scratch/home" XDG_STATE_HOME="$scratch/state" GIT_CONFIG_NOSYSTEM=1
unset GIT_DIR GIT_WORK_TREE CLAUDECODE AI_AGENT
mkdir -p "$HOME"
git config --global user.name Long
git config --global user.email long@example.org
git config --global agent.approve unattended
git config --global init.defaultBranch main

say() { printf '%s\n' "$*"; }
die() { printf 'tests/long.sh: %s\n' "$*" >&2; exit 1; }

# Everything of a work tree and its refs that must not change: path, mode, size, mtime, inode, content.
fingerprint() { # DIR
    (cd "$1" && git for-each-ref --format='%(refname) %(objectname)' refs/heads/main refs/heads/master refs/tags |
        sha256sum && find . -path ./.git -prune -o -printf '%p %m %s %T@ %i %l\n' | sort | sha256sum &&
        find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
}

edits='set -e
n=0
git ls-files -z | while IFS= read -r -d "" f; do
    [ -f "$f" ] && [ ! -L "$f" ] || continue
    n=$((n+1))
    case $((n % 97)) in
        0) printf "edited by the run\n" >> "$f" ;;
        1) [ $((n % 5)) -ne 0 ] || rm "$f" ;;
        2) [ $((n % 7)) -ne 0 ] || mv "$f" "$f.moved" ;;
        3) [ $((n % 11)) -ne 0 ] || chmod +x "$f" ;;
    esac
done
mkdir -p "new folder/deep"; head -c 300000 /dev/urandom > "new folder/deep/random.bin"
printf "tab\there" > "$(printf "odd\tname")"; ln -s ../outside link-out
git add -A; git -c commit.gpgsign=false commit -qm "half of it"
echo "after the commit" >> "new folder/note.txt"'

one_repository() { # PATH
    local name work before digest start files unclean=
    name=$(basename "${1%/}" .git)
    work="$scratch/$name"
    git clone -q --no-hardlinks "$1" "$work"
    cd "$work"
    files=$(git ls-files | wc -l)
    # Some public repositories are not clean to begin with.
    git fsck --connectivity-only >/dev/null 2>&1 || unclean=yes
    before=$(fingerprint .)
    start=$(date +%s%N)
    git agent spawn --role developer --run long -m 'scripted edits' -- bash -c "$edits" >/dev/null 2>"$scratch/talk" ||
        { cat "$scratch/talk" >&2; die "$name: spawn failed"; }
    say "$name: $files files, spawn with edits $((($(date +%s%N) - start) / 1000000)) ms"
    [[ $before == "$(fingerprint .)" ]] || die "$name: the main tree changed during the run"
    [[ -n $unclean ]] || git fsck --connectivity-only >/dev/null 2>&1 || die "$name: fsck"
    digest=$(git agent review long --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["digest"])')
    git agent review long --json | python3 -c 'import json,sys; r=json.load(sys.stdin); print("%s: %d paths, +%d -%d" % (sys.argv[1], r["files"], r["added"], r["removed"]))' "$name"
    # The diff for machines gives the snapshot in a second clone, and the snapshot is what was on disk.
    git clone -q --no-hardlinks "$1" "$scratch/second"
    git agent review long --diff | git -C "$scratch/second" apply --index --whitespace=nowarn
    [[ $(git -C "$scratch/second" write-tree) == $(git rev-parse 'wt/long^{tree}') ]] || die "$name: round trip"
    rm -rf "$scratch/second"
    git agent review long --approve --digest "$digest" 2>/dev/null
    start=$(date +%s%N)
    git agent apply long --digest "$digest" >/dev/null
    say "$name: apply $((($(date +%s%N) - start) / 1000000)) ms"
    # What landed is the snapshot, uncommitted, and the index is as it was.
    cp .git/index "$scratch/index"
    [[ $(GIT_INDEX_FILE="$scratch/index" sh -c 'git add -A && git write-tree') == $(git agent show long --json |
        python3 -c 'import json,sys; print([e["body"]["tree"] for e in json.load(sys.stdin)["events"] if e["kind"]=="result"][-1])') ]] ||
        die "$name: the work tree is not the snapshot"
    git diff --cached --quiet || die "$name: the index was touched"
    git agent prune >/dev/null
    say "$name: list says $(git agent list --all --porcelain | cut -f3 | tr '\n' ' ')"
    cd "$here"
}

kills() { # N
    local work="$scratch/kill" n bad=0
    git init -q "$work"
    cd "$work"
    for n in $(seq 0 199); do
        mkdir "d$n"
        for k in $(seq 0 49); do echo "$n $k" >"d$n/$k"; done
    done
    git add -A
    git commit -qm first
    local before
    before=$(fingerprint .)
    for n in $(seq 1 "$1"); do
        git-agent spawn --role developer --run victim -- true >/dev/null 2>&1 &
        local pid=$!
        sleep "0.$(printf '%03d' $((RANDOM % 500)))"
        kill -9 $pid 2>/dev/null || true
        wait $pid 2>/dev/null || true
        git-agent spawn --role developer --run "next$n" -- true >/dev/null 2>&1 || bad=$((bad + 1))
        state=$(git-agent list --all --porcelain | awk -F'\t' '$2 == "victim" { print $3 }')
        case $state in
            '' | ready | interrupted | proposed) ;;
            *) say "victim is $state"; bad=$((bad + 1)) ;;
        esac
        [[ -z $state ]] || git-agent discard victim >/dev/null 2>&1 || bad=$((bad + 1))
        git-agent discard "next$n" >/dev/null 2>&1 || bad=$((bad + 1))
        [[ -z $(git for-each-ref 'refs/heads/wt/victim') ]] || { say "branch left"; bad=$((bad + 1)); }
        git-agent prune >/dev/null 2>&1 || true
    done
    [[ $before == "$(fingerprint .)" ]] || { say "the main tree changed"; bad=$((bad + 1)); }
    git fsck --full >/dev/null 2>&1 || bad=$((bad + 1))
    say "kill: $1 kills, $bad bad states"
    ((bad == 0))
}

# A landing from A to B: a run that makes B of A, approved by digest, applied; then git is asked with B's index.
pairs() { # N PATH
    local work="$scratch/pairs" i=0 run n=0 bad=0 refused=0 from to digest
    git clone -q --no-hardlinks "$2" "$work"
    cd "$work"
    git config advice.detachedHead false
    while read -r to from; do
        # A run of its own each time: one that was applied and goes on starts from what was applied.
        i=$((i + 1)) run="pair$i"
        git checkout -q -f --detach "$from" && git clean -qfdx
        # The engine checks the other commit out; only what is on disk counts.
        if ! git-agent spawn --role developer --run "$run" -- git -c advice.detachedHead=false checkout -q -f --detach "$to" \
            >/dev/null 2>"$scratch/talk"; then
            refused=$((refused + 1)); tail -n 2 "$scratch/talk"
            git-agent discard "$run" >/dev/null 2>&1 || true
            continue
        fi
        digest=$(git-agent review "$run" --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["digest"])')
        if git-agent review "$run" --approve --digest "$digest" 2>/dev/null && git-agent apply "$run" >/dev/null 2>"$scratch/talk"; then
            n=$((n + 1))
            git update-ref --no-deref HEAD "$to" && git read-tree "$to"
            [[ -z $(git status --porcelain) ]] || { bad=$((bad + 1)); say "$from $to differ"; git status --short | head -5; }
        else
            refused=$((refused + 1)); head -2 "$scratch/talk"
        fi
    done < <(git log --no-merges --format='%H %P' | awk 'NF == 2' | head -n "$1")
    cd "$here"
    say "pairs: $n landed as git checks them out, $bad differ, $refused refused"
    ((bad == 0))
}

big() { # N
    local work="$scratch/big" n new=0 digest before
    git init -q "$work"
    cd "$work"
    for n in $(seq 0 31); do
        mkdir "d$n"
        for k in $(seq 0 49); do echo "$n $k" >"d$n/$k"; done
    done
    git add -A && git commit -qm first
    git-agent spawn --role developer --run big -- bash -c 'for f in d*/*; do case $((RANDOM % 4)) in 0) rm $f;; 1) mv $f $f.x;;
        *) echo more >>$f;; esac; done' >/dev/null 2>&1
    digest=$(git-agent review big --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["digest"])')
    git-agent review big --approve --digest "$digest" 2>/dev/null
    echo mine >mine
    before=$(fingerprint .)
    for n in $(seq 1 "$1"); do
        git-agent apply big >/dev/null 2>&1 &
        local pid=$!
        sleep "0.$(printf '%03d' $((RANDOM % 1000)))"
        ((RANDOM % 2)) || sleep 0.9
        kill -9 $pid 2>/dev/null || true
        wait $pid 2>/dev/null || true
        case $(git-agent list --all --porcelain 2>/dev/null | awk -F'\t' '$2 == "big" { print $3 }') in
            applied) new=$((new + 1)); git-agent apply --undo big >/dev/null || die "undo" ;;
            approved) ;;
            *) die "a third state" ;;
        esac
        [[ $before == "$(fingerprint .)" ]] || die "round $n: the tree is neither old nor new"
    done
    cd "$here"
    say "big: $1 kills, $new of them after the landing, 0 bad states"
}

matrix() {
    cd "$here"
    cargo test --test it -- --ignored --nocapture --test-threads=2 full_matrix many_random_trees
}

case ${1:-} in
    pairs) pairs "${2:?N}" "$(realpath "${3:?PATH}")" ;;
    big) big "${2:-50}" ;;
    matrix) matrix ;;
    repo) shift; for path; do one_repository "$path"; done ;;
    kill) kills "${2:-100}" ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 129 ;;
esac
