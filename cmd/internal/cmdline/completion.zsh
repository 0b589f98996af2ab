#compdef NAME
# Completes the words of NAME, which it asks for them. To have it in this shell:
# source <(NAME completion zsh)
FUNC() {
	local -a asked found
	asked=("${(@)words[1,CURRENT-1]}")
	[[ $words[CURRENT] == -* ]] && asked+=("$words[CURRENT]")
	found=("${(@f)$(ISTHMUS_COMPLETE=1 "${asked[@]}" --generate-bash-completion 2>/dev/null)}")
	if [[ -n $found ]]; then
		compadd -- "${found[@]}"
	else
		_files
	fi
}
if [[ $funcstack[1] == FUNC ]]; then
	FUNC "$@"
else
	compdef FUNC NAME
fi
