# bash completion for zwinger(1)
#
# Flags and built-in policies are asked of the program itself, so that what is offered is what this version knows.

# The flags of `zwinger run`, one a line, with a "=" behind those that take a value.
_zwinger_run_flags()
{
	"${COMP_WORDS[0]}" run --help 2> /dev/null |
		sed -n -e 's/^ *\(-[a-z], \)\{0,1\}\(--[a-z][a-z-]*\)[ =]\[\{0,1\}[A-Z].*/\2=/p' -e t \
			-e 's/^ *\(-[a-z], \)\{0,1\}\(--[a-z][a-z-]*\).*/\2/p' | sort -u
}

_zwinger_presets()
{
	"${COMP_WORDS[0]}" policy presets 2> /dev/null | sed -n 's/^ *\(@[a-z-]*\).*/\1/p'
}

_zwinger_words()
{
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

_zwinger_files()
{
	compopt -o filenames 2> /dev/null
	mapfile -t COMPREPLY < <(compgen "$1" -- "$2")
}

_zwinger_policy_file()
{
	case $1 in
	@*) _zwinger_words "$(_zwinger_presets)" "$1" ;;
	*) _zwinger_files -f "$1" ;;
	esac
}

# The value of a flag. What has no closed list is left to the user.
_zwinger_value()
{
	case $1 in
	--policy) _zwinger_policy_file "$2" ;;
	--isolation) _zwinger_words 'process container gvisor microvm wasm' "$2" ;;
	--stdin | --result | --audit) _zwinger_files -f "$2" ;;
	--ro | --rw | --workspace | --cwd | --root)
		case $2 in
		*:*) ;;
		*) _zwinger_files -d "$2" ;;
		esac
		;;
	--pass) mapfile -t COMPREPLY < <(compgen -e -- "$2") ;;
	--user) mapfile -t COMPREPLY < <(compgen -u -- "$2") ;;
	esac
}

_zwinger_run()
{
	local cur=$1 flags i word
	flags=$(_zwinger_run_flags)

	# Walk over the flags and their values: what stands after them is somebody else's command line.
	for ((i = 2; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $word == -- ]]; then
			((i++))
			break
		elif [[ $word != -* ]]; then
			break
		elif [[ $'\n'$flags$'\n' == *$'\n'"$word="$'\n'* ]]; then
			if ((i + 1 == COMP_CWORD)); then
				_zwinger_value "$word" "$cur"
				return
			fi
			((i++))
		fi
	done
	if ((i < COMP_CWORD)); then
		_zwinger_files -f "$cur"
	elif [[ $cur == -* && ${COMP_WORDS[i - 1]} != -- ]]; then
		_zwinger_words "${flags//=/}" "$cur"
	else
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}

_zwinger_policy()
{
	local cur=$1
	if ((COMP_CWORD == 2)); then
		_zwinger_words 'check explain presets keys' "$cur"
	elif [[ ${COMP_WORDS[2]} == presets ]]; then
		_zwinger_words "$(_zwinger_presets)" "$cur"
	elif [[ $cur == -* ]]; then
		_zwinger_words '--json --help' "$cur"
	else
		_zwinger_policy_file "$cur"
	fi
}

_zwinger_doctor()
{
	local cur=$1
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	--policy) _zwinger_policy_file "$cur" ;;
	*) _zwinger_words '--boundary --json --policy --help' "$cur" ;;
	esac
}

_zwinger_serve()
{
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	--tls) _zwinger_words self-signed "$1" ;;
	--on-restart) _zwinger_words 'end adopt' "$1" ;;
	--log-format) _zwinger_words 'json text' "$1" ;;
	--state | --templates) _zwinger_files -d "$1" ;;
	--ceiling | --policy | --config | --print-key-file | --tls-cert | --tls-key | --log) _zwinger_files -f "$1" ;;
	*) _zwinger_words "$("${COMP_WORDS[0]}" serve --help 2> /dev/null | sed -n 's/^ *\(--[a-z-]*\).*/\1/p')" "$1" ;;
	esac
}

_zwinger_mcp()
{
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	--policy) _zwinger_policy_file "$1" ;;
	--state) _zwinger_files -d "$1" ;;
	--key-file | --cacert) _zwinger_files -f "$1" ;;
	*) _zwinger_words '--policy --url --key-file --state --cacert --help' "$1" ;;
	esac
}

_zwinger_keys()
{
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	keys) _zwinger_words 'add list revoke --help' "$1" ;;
	--scope) _zwinger_words 'use create admin' "$1" ;;
	--state) _zwinger_files -d "$1" ;;
	*) _zwinger_words '--name --scope --expires --state --json' "$1" ;;
	esac
}

_zwinger_client()
{
	local cur=$1 verb=${COMP_WORDS[1]}
	case ${COMP_WORDS[COMP_CWORD - 1]} in
	--state) _zwinger_files -d "$cur" ;;
	--key-file | --cacert) _zwinger_files -f "$cur" ;;
	--policy) _zwinger_policy_file "$cur" ;;
	--on-timeout) _zwinger_words 'kill pause' "$cur" ;;
	--signal | -s) _zwinger_words 'TERM KILL INT HUP QUIT STOP CONT USR1 USR2' "$cur" ;;
	*) _zwinger_words "$("${COMP_WORDS[0]}" "$verb" --help 2> /dev/null | sed -n 's/^ *\(-[a-z], \)\{0,1\}\(--[a-z-]*\).*/\2/p')" "$cur" ;;
	esac
}

_zwinger()
{
	local cur=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		_zwinger_words 'run policy serve mcp keys create exec ps logs cp kill rm stats top pause resume fork doctor --help --version' "$cur"
		return
	fi
	case ${COMP_WORDS[1]} in
	run) _zwinger_run "$cur" ;;
	policy) _zwinger_policy "$cur" ;;
	serve) _zwinger_serve "$cur" ;;
	mcp) _zwinger_mcp "$cur" ;;
	keys) _zwinger_keys "$cur" ;;
	create | exec | ps | logs | cp | kill | rm | stats | top | pause | resume | fork) _zwinger_client "$cur" ;;
	doctor) _zwinger_doctor "$cur" ;;
	esac
}

complete -F _zwinger zwinger
