#!/usr/bin/env bash
# Tasks on the wire, with curl: examples/wire.sh [URL]
#
# It expects raincheck in front of @modelcontextprotocol/server-everything:
#
#   raincheck run -- npx -y @modelcontextprotocol/server-everything
set -euo pipefail
URL=${1:-http://127.0.0.1:8440/mcp}

# What a client says of itself on every request of revision 2026-07-28. The extension is what makes slow calls tasks.
META='"_meta": {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": {"name": "curl", "version": "1"},
  "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}}'

# request METHOD NAME PARAMS: one request. NAME, the tool or the task, goes into the header Mcp-Name, too. Sets ANSWER.
request() {
  local method=$1 name=$2 params=$3
  echo "--> $method {$params}"
  ANSWER=$(curl --silent --show-error "$URL" \
    --header 'Content-Type: application/json' \
    --header 'Accept: application/json, text/event-stream' \
    --header 'MCP-Protocol-Version: 2026-07-28' \
    --header "Mcp-Method: $method" \
    ${name:+--header "Mcp-Name: $name"} \
    --data "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"$method\", \"params\": {${params:+$params, }$META}}")
  # A slow answer may be a stream of events: then the JSON stands behind "data:".
  ANSWER=$(sed -n 's/^data: *//; /^{/p' <<<"$ANSWER" | tail -n 1)
  echo "<-- $ANSWER"
  echo
}

# member NAME: the first text with this name in the answer.
member() { grep --only-matching "\"$1\":\"[^\"]*\"" <<<"$ANSWER" | head -n 1 | cut -d '"' -f 4; }

echo "=== a slow call becomes a task after two seconds"
tool=trigger-long-running-operation
request tools/call "$tool" "\"name\": \"$tool\", \"arguments\": {\"duration\": 5, \"steps\": 5}"
task=$(member taskId)

echo "=== the client polls, at the pace that the answer suggests (pollIntervalMs)"
while request tasks/get "$task" "\"taskId\": \"$task\"" && [ "$(member status)" = working ]; do sleep 2; done

echo "=== a tool that asks: the task becomes input_required, and tasks/update answers"
tool=trigger-elicitation-request
request tools/call "$tool" "\"name\": \"$tool\", \"arguments\": {}"
task=$(member taskId)
request tasks/get "$task" "\"taskId\": \"$task\""
key=$(grep --only-matching '"inputRequests":{"[^"]*"' <<<"$ANSWER" | cut -d '"' -f 4)
answer='{"action": "accept", "content": {"name": "Ada Lovelace"}}'
request tasks/update "$task" "\"taskId\": \"$task\", \"inputResponses\": {\"$key\": $answer}"
sleep 1
request tasks/get "$task" "\"taskId\": \"$task\""

echo "=== a call that is not needed any more"
tool=trigger-long-running-operation
request tools/call "$tool" "\"name\": \"$tool\", \"arguments\": {\"duration\": 60, \"steps\": 60}"
task=$(member taskId)
request tasks/cancel "$task" "\"taskId\": \"$task\""
request tasks/get "$task" "\"taskId\": \"$task\""
