#!/bin/sh
# demo.sh [ZWINGER]: code that asks one PostgreSQL server and reaches nothing else. Fails when it got no answer, or when anything that
# should have been refused was not. Exits with 77 where its server
# cannot be started.
set -eu
here=$(dirname "$0")
zwinger=$(realpath "${1:-$here/../../build/bin/zwinger}")
cd "$here"
programs=$(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin 2> /dev/null | tail -1)
if test -z "$programs" || ! test -x "$programs/initdb"; then
	echo "PostgreSQL is not installed"
	exit 77
fi

if ! id -un > /dev/null 2>&1; then
	echo "PostgreSQL's server does not start for a user without an entry in /etc/passwd"
	exit 77
fi

# A server of our own on this machine stands for yours. PostgreSQL does not run as root.
folder=$(mktemp -d "${TMPDIR:-/tmp}/zwinger-demo.XXXXXX")
as=
if test "$(id -u)" = 0; then
	as="setpriv --reuid 65534 --regid 65534 --clear-groups"
	chown 65534:65534 "$folder"
fi
trap '$as "$programs/pg_ctl" -D "$folder/db" -m immediate stop > /dev/null 2>&1 || true; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
$as "$programs/initdb" -D "$folder/db" -A trust -U owner --no-sync > "$folder/log" 2>&1
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
$as "$programs/pg_ctl" -D "$folder/db" -w -o "-F -h 127.0.0.1 -p $port -k $folder" start > "$folder/start.log" 2>&1
"$programs/psql" -q -h 127.0.0.1 -p "$port" -U owner -d postgres -c 'create database shop'
"$programs/psql" -q -h 127.0.0.1 -p "$port" -U owner -d shop << 'SQL'
create table orders (id int, price numeric);
insert into orders values (1, 10.50), (2, 31.50);
create role reader login;
grant select on orders to reader;
SQL
cat > "$folder/local.yaml" << YAML
version: 1
network:
  hosts: {db.example: "127.0.0.1:$port"}
YAML

"$zwinger" run --policy policy.yaml --policy "$folder/local.yaml" --result "$folder/result.json" -- \
	/usr/bin/python3 /code/job.py "$programs/psql" > "$folder/stdout" || echo "the job ended with $?"

/usr/bin/python3 report.py "$folder"
