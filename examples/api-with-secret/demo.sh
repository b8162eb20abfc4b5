#!/bin/sh
# demo.sh [ZWINGER]: code that uses an API with a credential which it never sees. Fails when the API could not be used, or when the
# credential was found anywhere.
set -eu
here=$(dirname "$0")
zwinger=$(realpath "${1:-$here/../../build/bin/zwinger}")
cd "$here"

# An API of our own, with a token that is made up here, stands for yours: nothing leaves this machine.
folder=$(mktemp -d "${TMPDIR:-/tmp}/zwinger-demo.XXXXXX")
server=
trap 'test -z "$server" || kill "$server" 2> /dev/null; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
EXAMPLE_TOKEN=tok-$(openssl rand -hex 12)
export EXAMPLE_TOKEN
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=example API" \
	-addext "subjectAltName=DNS:api.example" -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2> /dev/null
/usr/bin/python3 api.py "$folder/certificate.pem" "$folder/key.pem" "$folder/port" &
server=$!
while ! test -f "$folder/port"; do
	kill -0 "$server" || exit 1
	sleep 0.05
done
cat > "$folder/local.yaml" << YAML
version: 1
network:
  hosts: {api.example: "127.0.0.1:$(cat "$folder/port")"}
  ca_file: $folder/certificate.pem
audit: {file: $folder/audit.jsonl}
YAML

"$zwinger" run --policy policy.yaml --policy "$folder/local.yaml" --result "$folder/result.json" -- \
	/usr/bin/python3 /code/job.py > "$folder/stdout" || echo "the job ended with $?"

/usr/bin/python3 report.py "$folder"
