#!/bin/sh
# demo.sh [ZWINGER]: a service, a stand-in for a model, and the agent that asks the one and runs in the other.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
zwinger=$(realpath "${1:-$here/../../build/bin/zwinger}")
folder=$(mktemp -d "${TMPDIR:-/tmp}/zwinger-demo.XXXXXX")
model='' service=''
end()
{
	test -z "$service" || { kill "$service" 2> /dev/null || :; wait "$service" || :; }
	test -z "$model" || kill "$model" 2> /dev/null || :
	rm -rf --one-file-system "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM

/usr/bin/python3 "$here/model.py" "$folder/port" &
model=$!
"$zwinger" serve --listen 127.0.0.1:0 --state "$folder/state" --policy "$here/policy.yaml" --ceiling "$here/policy.yaml" --print-key-file "$folder/key.json" \
	> "$folder/service.log" 2>&1 &
service=$!
while ! test -f "$folder/port" || ! test -f "$folder/key.json"; do
	kill -0 "$model" && kill -0 "$service" || { cat "$folder/service.log"; exit 1; }
	sleep 0.05
done
field() { /usr/bin/python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$folder/key.json" "$1"; }
MODEL_URL=http://127.0.0.1:$(cat "$folder/port") ZWINGER_URL=$(field url) ZWINGER_KEY=$(field key)
export MODEL_URL ZWINGER_URL ZWINGER_KEY

/usr/bin/python3 "$here/agent.py" 'What is the mean of 3, 5 and 10?' | tee "$folder/answer"
grep -q '6\.0' "$folder/answer"
