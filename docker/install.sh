#!/usr/bin/env bash
# Makes a virtual environment with autotune and the vLLM build that fits this machine.
#   install.sh VENV VARIANT EXTRAS    VARIANT: cpu or gpu; EXTRAS: such as dashboard,dev
set -euo pipefail

venv=$1 variant=$2 extras=$3
python=${PYTHON:-python3}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
  echo "install: $1" >&2
  exit 3
}

command -v "$python" >/dev/null || fail "no $python on PATH: install Python 3.11, or set PYTHON"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case "$variant/$version" in
  cpu/3.11 | gpu/3.11 | gpu/3.12 | gpu/3.13) ;;
  cpu/*) fail "vLLM's CPU build needs Python 3.11, this is $version: set PYTHON=python3.11" ;;
  *) fail "Python 3.11 or newer is needed, this is $version: set PYTHON" ;;
esac
"$python" -c 'import ensurepip' 2>/dev/null ||
  fail "Python's venv module is missing: apt-get install python$version-venv"

[[ -x "$venv/bin/python" ]] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv ||
  fail "pip cannot reach a package index: check the network and pip's configuration"

# uv does not read pip's find-links: pass on what pip would use.
options=()
links=$("$venv/bin/python" -m pip config get global.find-links 2>/dev/null || true)
for link in $links; do
  options+=(--find-links "$link")
done
if [[ "$variant" == cpu ]]; then
  options+=(--override "$here/cpu-overrides.txt")
  has_cpu_torch=no
  for link in $links; do
    compgen -G "$link/torch-*+cpu-*" >/dev/null && has_cpu_torch=yes
  done
  [[ "$has_cpu_torch" == yes ]] || options+=(--torch-backend=cpu)
else
  options+=(--torch-backend=auto)
fi
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "${options[@]}" \
  --editable "$here/..[$variant,$extras]" ||
  fail "the packages could not be installed; the lines above say why"
