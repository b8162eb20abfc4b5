# The shell of a context: runs commands that come over descriptor 3 (protocol.md) in one lasting bash.
#
# Everything stays at the top level, outside of functions, so that declare means what it means in a script. Names of ours begin with
# _zw. The members of a message come in a fixed order, which makes its strings findable without a parser.
exec 254<&3 253>&3 3>&-
unset BASH_EXECUTION_STRING
_zw_two() { return 2; }
# An interrupt leaves the loops, returns from the functions and skips what is left: with extdebug, 2 from DEBUG skips a command or
# returns. A loop of skipped commands is left in the end by break, which cannot skip. While code runs the channel is closed, and that
# is how the trap knows.
_zw_stop='_zw_hit=true _zw_skipped=0; shopt -s extdebug; set -T; trap "$_zw_skip" DEBUG; break 1000 2>/dev/null'
_zw_skip='if [[ ! -e /proc/self/fd/254 ]]; then (( ++_zw_skipped % 50 )) || break 1000 2>/dev/null; _zw_two; fi'
_zw_receive='
	trap : INT
	until IFS= read -r -u 254 _zw_size; do [ $? -gt 128 ] || exit 0; done
	_zw_locale=${LC_ALL-unset} LC_ALL=C
	IFS= read -r -d "" -N "$_zw_size" -u 254 _zw_message || exit 0
	_zw_id=${_zw_message#*\"id\":} _zw_id=${_zw_id%%,*}
	_zw_env=${_zw_message#*\"env\":\{} _zw_env=${_zw_env%%\},\"code\":\"*}
	_zw_code=${_zw_message#*\},\"code\":\"} _zw_code=${_zw_code%\"\}}
	if [[ $_zw_locale == unset ]]; then unset LC_ALL; else LC_ALL=$_zw_locale; fi
	printf -v _zw_code %b "${_zw_code//\\\"/\"}"
	_zw_undo= _zw_message= _zw_hit=false
	[[ $_zw_env != \{* ]] || _zw_env=
	while [[ $_zw_env =~ ^,?\"([A-Za-z_][A-Za-z0-9_]*)\":\"(([^\"\\]|\\.)*)\" ]]; do
		_zw_env=${_zw_env:${#BASH_REMATCH[0]}} _zw_name=${BASH_REMATCH[1]} _zw_value=${BASH_REMATCH[2]}
		printf -v _zw_value %b "${_zw_value//\\\"/\"}"
		if [[ -v $_zw_name ]]; then _zw_undo+="$(declare -p "$_zw_name" 2>/dev/null);"; else _zw_undo+="unset $_zw_name;"; fi
		export "$_zw_name=$_zw_value"
	done
	trap "$_zw_stop" INT
	[[ $_zw_flags != *[eux]* ]] || set "-${_zw_flags//[!eux]/}"
'
_zw_answer='
	eval "$_zw_undo"
	if [[ $_zw_left == 0 ]]; then _zw_word=ok; else _zw_word=error; fi
	_zw_message="{\"t\":\"done\",\"id\":$_zw_id,\"status\":\"$_zw_word\",\"exit_status\":$_zw_left,\"interrupted\":$_zw_hit}"
	printf "%s\n%s" "${#_zw_message}" "$_zw_message" >&253
'
_zw_after='_zw_flags=$-; trap : INT; trap - DEBUG; shopt -u extdebug; set +euxT'
# When an interrupt has broken this loop too, the next turn begins one level deeper. All in one line, the first of a script, so that the
# lines of messages are those of the code.
_zw_loop='while :; do eval "$_zw_receive"; eval "$_zw_code" 254<&- 253>&-; { _zw_left=$?; eval "$_zw_after"; [[ $_zw_hit == false ]] || _zw_left=130; } 2>/dev/null; eval "$_zw_answer"; done; { _zw_left=130; eval "$_zw_after"; } 2>/dev/null; eval "$_zw_answer"; eval "$_zw_loop"'
_zw_message="{\"t\":\"ready\",\"driver\":\"native\",\"interrupt\":\"signal\",\"version\":\"${BASH_VERSION%%(*}\"}"
printf '%s\n%s' "${#_zw_message}" "$_zw_message" >&253
