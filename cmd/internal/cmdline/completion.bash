# Completes the words of NAME, which it asks for them. To have it in this shell:
# source <(NAME completion bash)
FUNC() {
	local cur=${COMP_WORDS[COMP_CWORD]}
	local words=("${COMP_WORDS[@]:0:COMP_CWORD}")
	[[ $cur == -* ]] && words+=("$cur")
	COMPREPLY=($(compgen -W "$(ISTHMUS_COMPLETE=1 "${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
}
complete -o bashdefault -o default -F FUNC NAME
