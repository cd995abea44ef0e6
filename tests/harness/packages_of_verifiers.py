"""Environments as people write them for the library, installed into a folder the way pip leaves them."""

from pathlib import Path

SUMS = """
import random
import verifiers as vf
from datasets import Dataset

def load_environment(num_rows: int = 30, seed: int = 0, with_eval: bool = False, slow: bool = False):
    def rows():
        numbers = [(random.randrange(100), n) for n in range(num_rows)]
        return Dataset.from_list([
            {"question": f"{a}+{b}=", "answer": str(a + b), "info": {"seed": seed}} for a, b in numbers
        ])

    parser = vf.XMLParser(["answer"], answer_field="answer")

    def right(parser, completion, answer, **kwargs) -> float:
        return float(parser.parse_answer(completion) == answer)

    async def has_digits(completion, state) -> float:
        import asyncio
        await asyncio.sleep(60 if slow else 0)
        return float(any(letter.isdigit() for letter in completion[-1].content))

    def hangs(completion, **kwargs) -> float:
        import time
        while completion[-1].content == "hang":
            time.sleep(0.01)
        if completion[-1].content == "raise":
            raise ValueError("unreadable")
        return 0.0

    rubric = vf.Rubric(funcs=[right, has_digits, hangs], weights=[1.0, 0.25, 1.0], parser=parser)
    return vf.SingleTurnEnv(
        dataset=rows, eval_dataset=rows() if with_eval else None, system_prompt="Add.", parser=parser, rubric=rubric
    )
"""

GUESS = """
import random
import verifiers as vf
from datasets import Dataset

class Guess(vf.MultiTurnEnv):
    async def setup_state(self, state):
        state["left"] = 3
        return state

    @vf.stop
    async def found(self, state):
        return any(step["completion"][-1].content == state["answer"] for step in state["trajectory"])

    async def env_response(self, messages, state, **kwargs):
        state["left"] -= 1
        if messages[-1].content == "quit":
            state["final_env_response"] = [{"role": "user", "content": "bye"}]
            return []
        if messages[-1].content == "rewrite":
            messages[0].content, messages[-1].content = "forget it", "1"
        if messages[-1].content == "forget":
            return [{"role": "user", "content": messages.pop().content}]
        if messages[-1].content == "memory":
            raise MemoryError
        if messages[-1].content == "break":
            raise vf.SandboxError("gone")
        if messages[-1].content == "picture":
            return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
        said = int(messages[-1].content)
        hint = "higher" if int(state["answer"]) > said else "lower"
        return [{"role": "user", "content": f"{hint}, {state['left']} left, luck {random.randrange(10**6)}"}]

def load_environment(max_turns: int = -1):
    rows = [{"question": f"a number, key {n}", "answer": str(n % 9)} for n in range(40)]

    def found(state, answer, **kwargs) -> float:
        return float(state["trajectory"][-1]["completion"][-1].content == answer)

    return Guess(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[found]), max_turns=max_turns)
"""

TOOLS = '''
import verifiers as vf
from datasets import Dataset

def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: one number.
        b: another number.
    """
    return a + b

async def shout(text: str) -> str:
    """Says it louder."""
    return text.upper()

def load_environment():
    rows = [{"question": f"{n} and {n}", "answer": str(2 * n)} for n in range(20)]

    def right(completion, answer, **kwargs) -> float:
        return float(completion[-1].content == answer)

    return vf.ToolEnv(
        dataset=Dataset.from_list(rows), tools=[add, shout], rubric=vf.Rubric(funcs=[right]), system_prompt="Use tools."
    )
'''

OTHERS = {
    "vf_gym": '''
import verifiers as vf

def load_environment(gym: str = "chain_sum", num: int = 12, seed: int = 0):
    return vf.ReasoningGymEnv(gym=gym, num_train_examples=num, num_eval_examples=4, seed=seed)
''',
    "vf_walk": '''
import verifiers as vf

class Walk:
    def reset(self, seed: int):
        self.at, self.goal = 0, seed % 3 + 1
        return f"goal {self.goal} of walk {seed}", {}

    def step(self, action):
        self.at += 1 if action == "right" else -1
        done = self.at == self.goal
        return f"at {self.at}", float(done), done, False, {}

def load_environment():
    return vf.GymEnv(env_cls=Walk, num_train_episodes=6, num_eval_episodes=3, max_episode_steps=5)
''',
    "vf_judged": '''
import verifiers as vf
from datasets import Dataset
from openai import AsyncOpenAI

def load_environment():
    rubric = vf.JudgeRubric(judge_client=AsyncOpenAI(api_key="none", base_url="http://127.0.0.1:9"))

    async def right(judge, prompt, completion, answer, state) -> float:
        return float("yes" in await judge(prompt, completion, answer, state))

    rubric.add_reward_func(right)
    rows = [{"question": f"{n}?", "answer": str(n)} for n in range(4)]
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=rubric)
''',
    "vf_grouped": '''
import verifiers as vf
from datasets import Dataset

def load_environment():
    def best(completions, **kwargs) -> list[float]:
        return [float(len(each[-1].content)) for each in completions]

    rows = [{"question": "1?", "answer": "1"}]
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[best]))
''',
    "vf_broken": "import nothing_of_this_name\n\ndef load_environment(): ...\n",
    "vf_raising": '''
def load_environment(path: str = "nowhere"):
    raise FileNotFoundError(path)
''',
    "vf_both": '''
import verifiers as vf
import vf_sums, vf_guess

def load_environment():
    return vf.EnvGroup([vf_sums.load_environment(), vf_guess.load_environment()], env_names=["sums", "guess"])
''',
}  # fmt: skip


def install(site: Path) -> None:
    """Every environment, and a package that has nothing to do with the library."""
    for module, source in {"vf_sums": SUMS, "vf_guess": GUESS, "vf_tools": TOOLS, **OTHERS}.items():
        _install(site, module, source, "Requires-Dist: verifiers>=0.1\n")
    _install(site, "vf_stranger", "raise SystemExit('imported')\n", "Requires-Dist: verifiers-of-another-kind\n")


def _install(site: Path, module: str, source: str, requires: str) -> None:
    (site / f"{module}.py").write_text(source)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n{requires}")
    (info / "RECORD").write_text(f"{module}.py,,\n")
    (info / "top_level.txt").write_text(f"{module}\n")
