"""vLLM's CPU build behind a pipe, run by the Python of its own environment: one line of JSON in, one out.

    {"prompts": [[ids]], "num_samples": 8, "num_new": 64, "greedy": false}  ->  {"num_tokens": 512, "first": [ids]}

In process, eager, float32, one thread: on this build faster than its server processes. The prefix cache serves the
samples of a prompt, and is emptied after each call. Imports nothing of the project.
"""

import json
import os
import sys

SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
KV_BLOCK_TOKENS = 32
"""The least it takes, so that the samples of a short prompt share that much of it."""


def main(model: str, max_rows: int, max_tokens: int) -> None:
    """Serve requests until the pipe closes."""
    os.environ.update(SETTINGS)
    answers = os.fdopen(os.dup(1), "w")  # what the library prints goes to stderr
    os.dup2(2, 1)
    import vllm
    from vllm import LLM, SamplingParams

    engine = LLM(
        model,
        dtype="float32",
        enforce_eager=True,
        distributed_executor_backend="uni",
        max_model_len=max_tokens,
        max_num_seqs=max_rows,
        block_size=KV_BLOCK_TOKENS,
        enable_prefix_caching=True,
    )
    _answer(answers, {"version": vllm.__version__})
    for line in sys.stdin:
        request = json.loads(line)
        params = SamplingParams(
            n=request["num_samples"],
            temperature=0.0 if request["greedy"] else 1.0,
            max_tokens=request["num_new"],
            ignore_eos=True,
            logprobs=0,
        )
        prompts = [{"prompt_token_ids": prompt} for prompt in request["prompts"]]
        outputs = [output for group in engine.generate(prompts, params, use_tqdm=False) for output in group.outputs]
        engine.reset_prefix_cache()
        num_tokens = sum(len(output.logprobs) for output in outputs)
        _answer(answers, {"num_tokens": num_tokens, "first": list(outputs[0].token_ids)})


def _answer(answers, table) -> None:  # type: ignore[no-untyped-def]
    answers.write(json.dumps(table) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
