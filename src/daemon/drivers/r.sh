# Starts the R interpreter, whose source is $1. R cannot read a socket: two programs carry the channel to it through pipes, which an
# interrupt does not reach.
if ! command -v R > /dev/null; then
	_zw_message='{"t":"unsupported","reason":"there is no R (r-base-core) in the sandbox"}'
	printf '%s\n%s' "${#_zw_message}" "$_zw_message" >&3
	exit
fi
trap '' INT
exec 4< <(exec cat <&3) 5> >(exec cat >&3) 3>&-
trap - INT
exec R --no-echo --no-save --no-restore --file=<(printf %s "$1")
