#!/bin/sh
# demo.sh [ZWINGER]: the job of this folder in a throw-away sandbox, then what came out, what it used and what it was refused.
# Fails when the chart is missing or when anything that should have been refused was not.
set -eu
here=$(dirname "$0")
zwinger=$(realpath "${1:-$here/../../build/bin/zwinger}")
cd "$here"

# Something worth stealing, where the policy does not reach. It stands for ~/.aws/credentials; the real ones are not touched.
vault=$(mktemp -d "${TMPDIR:-/tmp}/zwinger-demo.XXXXXX")
trap 'rm -rf "$vault"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$vault/.aws"
printf '[default]\naws_secret_access_key = not-a-real-key\n' > "$vault/.aws/credentials"

mkdir -p out
rm -f out/chart.png out/summary.csv

set -- run --policy policy.yaml --result "$vault/result.json" -- \
	/usr/bin/python3 /code/analysis.py /data/orders.csv /out "$vault/.aws/credentials"
cat << TEXT
A program that nobody has read is to clean and plot the orders of a small shop. It gets the data read-only, one output folder,
512 MB, 20 s and no network:

	zwinger $*
TEXT
status=0
"$zwinger" "$@" > "$vault/stdout" || status=$?

/usr/bin/python3 report.py "$vault" "$status"
