"""What other programs that serve models make of an exported folder, in the interpreter that has them.

    python serve.py ctranslate2|transformers MODEL WORK_FOLDER COUNT < prompts.json

Prints {prompt: ids or text} as JSON: the COUNT most probable tokens after each. Nothing of ours is imported.
CTranslate2 is an engine of its own in C++, which reads the Llama and GPT-2 layouts; `transformers serve` is asked over
HTTP, on loopback, as any client of OpenAI's interface asks.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

START_SECONDS = 240.0


def by_ctranslate2(model: str, folder: Path, prompts: list[str], count: int) -> dict[str, list[int]]:
    """Convert the folder, and continue; the tokenizer is the folder's own."""
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    from transformers import AutoTokenizer

    TransformersConverter(model).convert(str(folder / "ctranslate2"))
    tokenizer = AutoTokenizer.from_pretrained(model)
    generator = ctranslate2.Generator(str(folder / "ctranslate2"), device="cpu", compute_type="float32")
    tokens = [tokenizer.convert_ids_to_tokens(tokenizer(prompt)["input_ids"]) for prompt in prompts]
    results = generator.generate_batch(
        tokens, max_length=count, sampling_topk=1, include_prompt_in_result=False, return_end_token=True
    )
    return {prompt: list(result.sequences_ids[0]) for prompt, result in zip(prompts, results, strict=True)}


def by_transformers(model: str, folder: Path, prompts: list[str], count: int) -> dict[str, str]:
    """Start the server on a free port, ask `/v1/completions`, and end it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve", model]
    options = ["--device", "cpu", "--dtype", "float32", "--port", str(port)]
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(command + options, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(f"{url}/health", server)
        return {prompt: _completion(url, model, prompt, count) for prompt in prompts}
    finally:
        server.terminate()
        server.wait(30)


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    last = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < last:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            time.sleep(0.5)
    raise SystemExit("the server did not start; see server.log")


def _completion(url: str, model: str, prompt: str, count: int) -> str:
    asked = {"model": model, "prompt": prompt, "max_tokens": count, "temperature": 0.0}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
        found: Any = json.load(answer)
    return str(found["choices"][0]["text"])


if __name__ == "__main__":
    kind, model, folder, count = sys.argv[1:]
    os.environ.setdefault("HF_HOME", folder)
    ask = {"ctranslate2": by_ctranslate2, "transformers": by_transformers}[kind]
    print(json.dumps(ask(model, Path(folder), json.load(sys.stdin), int(count))))
