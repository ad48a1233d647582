# fish completion for git agent. Put it into a folder of fish's conf.d: fish 3.6's own completion of git does not
# look for it elsewhere. The candidates, with what they are, come from git-agent itself.

function __git_agent_candidates
    set -l words (commandline -opc)
    set -l first 1
    if not string match -qr '(^|/)git-agent$' -- $words[1]
        set first (contains -i -- agent $words)
    end
    set -l typed (commandline -ct)
    set -l found (command git agent __complete $words[(math $first + 1)..-1] "$typed" 2>/dev/null)
    # A value after `--option=` is completed as the whole word.
    if string match -q -- '--*=*' "$typed"
        set -l option (string replace -r '=.*' '=' -- $typed)
        set found $option$found
    end
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path "$typed"
    end
end

complete -c git-agent -f -a '(__git_agent_candidates)'
complete -c git -n '__fish_git_using_command agent' -f -a '(__git_agent_candidates)'
complete -c git -n __fish_git_needs_command -f -a agent -d 'Run coding agents in caged worktrees'
