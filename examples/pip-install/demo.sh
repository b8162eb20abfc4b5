#!/bin/sh
# demo.sh [ZWINGER]: installs a package from an index of this host in a throw-away sandbox. Fails when the package is not installed, or
# when anything that should have been refused was not.
set -eu
here=$(dirname "$0")
zwinger=$(realpath "${1:-$here/../../build/bin/zwinger}")
cd "$here"

# An index of our own stands for the one that you are configured for: nothing here leaves this machine.
folder=$(mktemp -d "${TMPDIR:-/tmp}/zwinger-demo.XXXXXX")
server=
trap 'test -z "$server" || kill "$server" 2> /dev/null; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=example index" \
	-addext "subjectAltName=DNS:index.example" -keyout "$folder/key.pem" -out "$folder/certificate.pem" 2> /dev/null
/usr/bin/python3 index.py "$folder" "$folder/certificate.pem" "$folder/key.pem" "$folder/port" &
server=$!
while ! test -f "$folder/port"; do
	kill -0 "$server" || exit 1
	sleep 0.05
done

# Where the name leads, and whose certificate is believed: what a company's own index needs as well.
cat > "$folder/local.yaml" << YAML
version: 1
network:
  hosts: {index.example: "127.0.0.1:$(cat "$folder/port")"}
  ca_file: $folder/certificate.pem
YAML

# '@pip' asks the configuration of the caller; nothing else of that reaches the sandbox.
unset PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_INDEX PIP_PROXY http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy
PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL=https://index.example/simple \
	"$zwinger" run --policy policy.yaml --policy "$folder/local.yaml" --result "$folder/result.json" -- \
	/usr/bin/python3 /code/job.py https://index.example/simple/ > "$folder/stdout" || echo "the job ended with $?"

/usr/bin/python3 report.py "$folder"
