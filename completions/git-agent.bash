# bash completion for git agent. Load it after git's own, or put it where bash-completion finds it as git-agent.
# git's completion calls _git_agent for `git agent ...`; the candidates come from git-agent itself.

_git_agent ()
{
	local first=$(( ${__git_cmd_idx:-1} + 1 )) word=$cur list
	[[ ${words[0]##*/} != git-agent ]] || first=1
	[[ $cur != --*=* ]] || word=${cur#*=}
	list=$(git agent __complete "${words[@]:first:cword-first}" "$cur" 2>/dev/null | cut -f1)
	if [[ -n $list ]]; then
		compopt +o default +o bashdefault 2>/dev/null
		COMPREPLY=()
		local IFS=$'\n' candidate
		for candidate in $list; do
			[[ $candidate != "$word"* ]] || COMPREPLY+=("$candidate ")
		done
	fi
}

# The dispatcher by its own name. __git_complete is git's (2.18 and later).
if declare -f __git_complete >/dev/null; then
	__git_complete git-agent _git_agent
fi
