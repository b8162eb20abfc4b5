# Starts the Java interpreter, whose source is $1: java compiles it as it reads it. The machine would take the memory of the host for
# its own: it is told how much the sandbox has. Long-lived heaps are not what cells are about, a quick start is.
_zw_no() {
	local message="{\"t\":\"unsupported\",\"reason\":\"$1\"}"
	printf '%s\n%s' "${#message}" "$message" >&3
	exit
}
for _zw_name in java jshell; do command -v "$_zw_name" > /dev/null || _zw_no 'there is no JDK (openjdk-17-jdk-headless or newer) in the sandbox'; done
_zw_memory='"memory_bytes": *([0-9]+)'
if [[ -r /run/zwinger/policy.json && $(< /run/zwinger/policy.json) =~ $_zw_memory ]]; then
	set -- "$1" "-XX:MaxRAM=${BASH_REMATCH[1]}" -XX:MaxRAMPercentage=60
fi
# java wants to seek in it, so it cannot be a pipe.
_zw_name=${TMPDIR:-/tmp}/.zwinger-$$-$RANDOM
if ! (umask 077; set -C; printf %s "$1" > "$_zw_name") || ! exec 4< "$_zw_name"; then
	_zw_no 'there is no room for the interpreter in TMPDIR'
fi
rm -f "$_zw_name"
exec java "${@:2}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xshare:auto -Dfile.encoding=UTF-8 -Dstdout.encoding=UTF-8 \
	-Dstderr.encoding=UTF-8 -Dsun.stdout.encoding=UTF-8 -Dsun.stderr.encoding=UTF-8 --add-opens java.base/java.io=ALL-UNNAMED \
	--add-modules jdk.jshell --source 17 /dev/fd/4
