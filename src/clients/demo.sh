# The demo engine of git-agent: POSIX sh and git, no model, no network. It works in the current folder, which
# is the run's working tree, and says what it does, one line each.
set -eu
LC_ALL=C
export LC_ALL

say() { printf 'demo: %s\n' "$*"; }

# Appends a line, after a line feed where the file does not end in one.
append() {
    if [ -s "$1" ] && [ -n "$(tail -c 1 -- "$1")" ]; then printf '\n' >>"$1"; fi
    printf '%s\n' "$2" >>"$1"
}

# The first line of the task that is not blank.
task_file=${GIT_AGENT_TASK:-TASK.md}
task='no task was given'
if [ -f "$task_file" ]; then
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in *[![:space:]]*) task=$line; break ;; esac
    done <"$task_file"
fi
say "task: $task"
say "working in $(pwd)"

# 1. Edit the README, else the first tracked text file. git decides what is text; a name that git has to quote
#    is passed over.
target=
for f in README.md README README.txt README.rst; do
    if [ -f "$f" ] && [ ! -L "$f" ] && git ls-files --error-unmatch -- "$f" >/dev/null 2>&1; then
        target=$f
        break
    fi
done
if [ -z "$target" ]; then
    target=$(git grep -I -l -e '' -- . ':(exclude)TASK.md' ':(exclude).git*' 2>/dev/null |
        while IFS= read -r f; do
            if [ -f "$f" ] && [ ! -L "$f" ]; then printf '%s\n' "$f"; break; fi
        done) || target=
fi
if [ -n "$target" ]; then
    append "./$target" "Edited by the demo engine of git-agent: $task"
    say "edited $target"
fi

# 2. Create a file.
note=demo-notes.md
append "$note" "# Notes of the demo engine"
append "$note" "Task: $task"
say "wrote $note"

# 3. Commit these two, as agents do; what is reviewed is the tree on disk, committed or not.
git add -- "$note"
if [ -n "$target" ]; then git add -- ":(literal)$target"; fi
git -c user.name=demo-engine -c user.email=demo@git-agent.invalid -c commit.gpgSign=false \
    commit -q --no-verify -m 'Demo: note the task'
say "committed $(git rev-parse --short HEAD): Demo: note the task"

# 4. Delete a file, only where the repository is the demo's own.
if [ -f .git-agent-demo ] && git ls-files --error-unmatch -- .git-agent-demo >/dev/null 2>&1 &&
    [ -f obsolete.txt ]; then
    rm -- obsolete.txt
    say "deleted obsolete.txt"
fi

# 5. And one more edit that nobody commits.
append "$note" "This line is not committed."
say "edited $note again, without committing"
say "done"
