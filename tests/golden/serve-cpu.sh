#!/usr/bin/env bash
# Serves a vLLM configuration found by autotune.
#
#   study: glm-4-9b-chat-chat, trial 17
#   model: glm-4-9b-chat
#   machine: NVIDIA H200 x 1
#   versions: python 3.11.7, vllm 0.21.0
#
# Usage: [HOST=127.0.0.1] [PORT=8000] [PYTHON=python3] bash THIS_FILE [vllm arguments]
set -euo pipefail

export VLLM_ENABLE_V1_MULTIPROCESSING=0
model='/home/me/my models/smollm2'
host="${HOST:-127.0.0.1}"
port="${PORT:-8000}"

# Preflight: an interpreter with vLLM, the model's files, a free port.
has_vllm() {
  "$1" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("vllm") is None)' \
    2>/dev/null
}
python=""
for candidate in "${PYTHON:-python3}" /opt/venv/bin/python; do
  if has_vllm "$candidate"; then
    python="$candidate"
    break
  fi
done
if [[ -z "$python" ]]; then
  echo "no Python with vLLM found: activate its environment or set PYTHON" >&2
  exit 3
fi
if [[ "$model" == /* && ! -f "$model/config.json" ]]; then
  echo "the model is not at $model: fetch it or edit this script" >&2
  exit 3
fi
if (exec 3<>"/dev/tcp/$host/$port") 2>/dev/null; then
  echo "port $port on $host is taken: set PORT" >&2
  exit 3
fi

# vLLM's CPU build has no working "vllm" command; its server module is the same.
if "$python" -c 'import importlib.metadata as m; m.version("vllm")' 2>/dev/null; then
  server=("$python" -m vllm.entrypoints.cli.main serve "$model")
else
  server=("$python" -m vllm.entrypoints.openai.api_server --model "$model")
fi
arguments=(
  --host "$host"
  --port "$port"
  --served-model-name glm-4-9b-chat
  --enforce-eager
  --kv-cache-memory-bytes 268435456
)
exec "${server[@]}" "${arguments[@]}" "$@"
