"""Every record against its golden bytes and digest; round trips; hostile bytes.

After a wanted change of a record: `python tests/wire/test_records.py` writes the golden file anew; read its diff.
"""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from farflung.errors import PeerFault
from farflung.wire.batch import BatchItem, BatchRecord, SlotDrop, SlotOutcome
from farflung.wire.canonical import Record, sha256_hex
from farflung.wire.curriculum import CurriculumPlan, StratumPlan
from farflung.wire.epoch import EpochNotice, EpochNotices
from farflung.wire.lease import Forfeit, Lease, LeaseRequest
from farflung.wire.manifest import Chunk, Manifest, ManifestFile, Publication, TensorEntry, WeightsPatch
from farflung.wire.node import Heartbeat, NodeStatus, PoolStatus, Role
from farflung.wire.package import PackagedEnvironment, PackagedFile, PackageManifest
from farflung.wire.panel import BondForfeit, Commitment, Fault, FaultKind, Reveal, Ringer, RingerKind
from farflung.wire.pool import EnvironmentSpec, GraderSpec, PoolSpec, Stratum
from farflung.wire.proof import DEFAULT_RULES, Expected, Resampled, RolloutFigures
from farflung.wire.relay import RelayOffer, RelayStatus, Sources, SourcesWanted
from farflung.wire.submission import Assignment, Receipt, Submission, UploadTicket
from farflung.wire.task import Message, Task
from farflung.wire.verdict import (
    EvidenceBundle,
    Judgement,
    Outcome,
    RejectReason,
    RewardResult,
    SlotState,
    Verdict,
)


def digest(text: str) -> str:
    return sha256_hex(text.encode())


ENVIRONMENT = EnvironmentSpec(
    name="sort-digits",
    args={"max_digits": 9, "hard": True, "weight": 0.25, "alphabet": "αβ"},
    seed=2**53,
    num_tasks=1000,
    target_lengths=(0, 32, 64),
    strata=(Stratum(name="easy", num_tasks=600, weight=2), Stratum(name="hard", num_tasks=400, weight=1)),
    graders=(GraderSpec(name="math", version=1, args={"tolerance": 0.5}),),
    num_agents=2,
    package=digest("package"),
    sources={"count-sheep": f"package {digest('sheep')}", "reasoning-gym": "reasoning-gym 0.1.25"},
)
POOL = PoolSpec(
    name="demo",
    environment=ENVIRONMENT,
    tokenizer_digest=digest("tokenizer"),
    model_config_digest=digest("config"),
    group_size=8,
    groups_per_slot=4,
    groups_per_batch=16,
    max_staleness=4,
    max_outstanding_groups=64,
    temperature=1.0,
    max_prompt_tokens=64,
    max_completion_tokens=128,
    lease_s=60.5,
    max_attempts=3,
    max_file_bytes=1 << 24,
    capability_classes={"slow": (32,), "fast": (32, 64)},
)
RELAY, LIAR = "https://198.51.100.7:7500", "http://[2001:db8::7]:7500"
OFFER = RelayOffer(relay="relay-1", url=RELAY, upload_bytes_per_s=12_500_000, policy_version=7, liars=(LIAR,))
WANTED = SourcesWanted(node="worker-1", liars=(LIAR,))
SOURCES = Sources(servers=(RELAY, "http://relay.example:80"), oldest_version=3, refusal="silent")
RELAY_STATUS = RelayStatus(
    url=LIAR,
    relay="relay-2",
    parent=RELAY,
    policy_version=6,
    last_seen_ms=1_750_000_000_000,
    problem="lied: chunk_digest",
    num_accusers=2,
)
LEASE_REQUEST = LeaseRequest(node="worker-1", policy_version=7, policy_digest=digest("policy"), capability_class="slow")
LEASE = Lease(
    pool_digest=digest("pool"),
    lease_id="12-1",
    slot=12,
    attempt=1,
    node="worker-1",
    policy_version=7,
    policy_digest=digest("policy"),
    task_indices=(5, 0, 999, 17),
    target_lengths=(0, 32, 64, 0),
    draw_seed=digest("seed"),
    capability_class="slow",
    issued_at_ms=1_750_000_000_000,
    expires_at_ms=1_750_000_060_500,
    curriculum_digest=digest("plan"),
    signature="0xsigned",
)
FORFEIT = Forfeit(
    node="worker-1", lease_id="12-1", reason="out of memory: \N{GREEK SMALL LETTER MU} = 0.1", signature="s"
)
TICKET = UploadTicket(lease_id="12-1", key="rollouts/000007/12-1-ab.parquet", max_bytes=1 << 24, expires_at_ms=9)
SUBMISSION = Submission(
    pool_digest=digest("pool"),
    node="worker-1",
    lease_id="12-1",
    slot=12,
    attempt=1,
    policy_version=7,
    policy_digest=digest("policy"),
    file_key="rollouts/000007/12-1-ab.parquet",
    file_digest=digest("file"),
    file_bytes=20_000,
    num_rollouts=32,
    num_tokens=2_345,
    signature="0xsigned",
)
RECEIPT = Receipt(
    submission_digest=SUBMISSION.digest(),
    sequence=2**60,
    epoch=3,
    received_at_ms=1_750_000_030_000,
    deadline_ms=1_750_000_630_000,
    signature="0xsigned",
)
REWARDS = (
    RewardResult(
        group=0,
        sample=0,
        reward=1.0,
        correct=1.0,
        components={"answer": 1.0, "length": -0.2},
        spans=((0, 3), (5, 9)),
        turn_rewards=(0.25, 0.75),
    ),
    RewardResult(group=0, sample=1, reward=None),
)
EVIDENCE = EvidenceBundle(submission_digest=SUBMISSION.digest(), rewards=REWARDS, detail="")
VERDICT = Verdict(
    pool_digest=digest("pool"),
    submission_digest=SUBMISSION.digest(),
    validator="validator-1",
    outcome=Outcome.ACCEPTED,
    evidence_digest=EVIDENCE.digest(),
    rewards_digest=EVIDENCE.rewards_digest,
    measured={"reward_mean": 1.0, "staleness": 2.0},
    judged_at_ms=1_750_000_040_000,
    signature="0xsigned",
)
BATCH = BatchRecord(
    pool_digest=digest("pool"),
    policy_version=8,
    optimizer_step=8,
    items=(
        BatchItem(
            slot=12,
            submission_digest=SUBMISSION.digest(),
            file_digest=digest("file"),
            policy_version=7,
            groups_trained=(0, 3),
        ),
    ),
    drops=(SlotDrop(slot=11, reason="stale"),),
    previous_digest=digest("batch 7"),
    signature="0xsigned",
)
CHUNK = Chunk(index=0, num_bytes=5, sha256=digest("hello"))
FILE = ManifestFile(name="model.safetensors", num_bytes=5, sha256=digest("hello"), chunks=(CHUNK,))
TENSOR = TensorEntry(name="model.embed_tokens.weight", dtype="BF16", shape=(32, 64))
PLAN = CurriculumPlan(
    pool_digest=digest("pool"),
    policy_version=8,
    explore_permille=250,
    strata=(
        StratumPlan(weight=7, revisit_permille=500, tasks=(0, 17, 999), tickets=(8, 1, 3)),
        StratumPlan(weight=3),
    ),
)
MANIFEST = Manifest(
    pool_digest=digest("pool"),
    policy_version=8,
    policy_digest=digest("policy 8"),
    optimizer_step=8,
    files=(FILE,),
    tensors=(TENSOR,),
    published_at_ms=1_750_000_050_000,
    expires_at_ms=1_750_003_650_000,
    previous_digest=digest("manifest 7"),
    curriculum_digest=PLAN.digest(),
    signature="0xsigned",
)
PATCH = WeightsPatch(file="model.safetensors", base_version=7, base_sha256=digest("weights 7"), content=FILE)
HEARTBEAT = Heartbeat(
    capability_class="slow",
    node="worker-1",
    role=Role.WORKER,
    policy_version=-1,
    activity="waiting for trainer",
    busy_s=12.25,
    idle_s=0.0,
    cpu_s=11.5,
    tokens=2_345,
    tokens_per_s=1e-7,
)
NODE_STATUS = NodeStatus(heartbeat=HEARTBEAT, last_seen_ms=1_750_000_000_001, is_alive=True)

EPOCH = EpochNotice(
    pool_digest=digest("pool"),
    number=3,
    first_slot=40,
    commitment=digest("commitment"),
    opened_at_ms=1_700_000_000_000,
    end_slot=57,
    secret="5e" * 32,
)
RESAMPLED = Resampled(num_tokens=40, num_differences=1, max_margin=0.0078125)
FIGURES = RolloutFigures(
    group=1,
    sample=3,
    num_tokens=40,
    activation_chunks=(0.0125, 0.5),
    max_margin=0.25,
    sum_margin=0.375,
    num_margins=2,
    surprise=-1.5,
    logprob_error=0.0625,
    logprobs="AACAvw==",
    resampled=RESAMPLED,
)
PACKAGE = PackageManifest(
    name="count-letters",
    version="0.2.0",
    summary="How many a there are in `abbabb?`.",
    licence="Apache-2.0",
    verifier="function",
    sandbox="none",
    is_reproducible=True,
    environments=(PackagedEnvironment(name="count-letters", reference="count_letters:environment"),),
    requires=("numpy",),
    files=(
        PackagedFile(path="pyproject.toml", num_bytes=412, sha256=digest("project")),
        PackagedFile(path="src/count_letters.py", num_bytes=901, sha256=digest("module")),
    ),
)
COMMITMENT = Commitment(
    pool_digest=digest("pool"),
    submission_digest=SUBMISSION.digest(),
    validator="validator-1",
    sealed=digest("vote"),
    signature="0xsigned",
)
FAULT = Fault(
    pool_digest=digest("pool"),
    node="validator-1",
    kind=FaultKind.FALSE_REJECT,
    slot=12,
    submission_digest=SUBMISSION.digest(),
    verdict=VERDICT,
    contrary=VERDICT,
    detail="",
)
EXAMPLES: tuple[Record, ...] = (
    Message(role="user", content='Sort "3 1 2".\n\u2028\U0001f600'),
    Task(
        env="sort-digits",
        task_id="train/5",
        messages=(Message(role="system", content=""), Message(role="user", content="3 1 2")),
        answer="1 2 3",
        target_length=32,
    ),
    ENVIRONMENT,
    POOL,
    LEASE_REQUEST,
    LEASE,
    FORFEIT,
    TICKET,
    SUBMISSION,
    RECEIPT,
    Assignment(submission=SUBMISSION, lease=LEASE, is_sealed=True, audited_rollout=5),
    POOL.checks,
    COMMITMENT,
    Reveal(judgement=Judgement(verdict=VERDICT, evidence=EVIDENCE), salt=digest("salt")),
    FAULT,
    BondForfeit(fault=FAULT, at_ms=1_750_000_045_000, signature="0xsigned"),
    Ringer(
        kind=RingerKind.TOKENS,
        validator="validator-1",
        submission=SUBMISSION,
        lease=LEASE,
        source_digest=digest("source"),
    ),
    *REWARDS[:1],
    EVIDENCE,
    VERDICT,
    Judgement(verdict=VERDICT, evidence=EVIDENCE),
    SlotOutcome(
        sequence=4,
        slot=12,
        state=SlotState.ACCEPTED,
        policy_version=7,
        submission=SUBMISSION,
        verdict=VERDICT,
        task_indices=(5, 0, 999, 17),
    ),
    BATCH.items[0],
    BATCH.drops[0],
    BATCH,
    CHUNK,
    FILE,
    TENSOR,
    MANIFEST,
    PATCH,
    ENVIRONMENT.strata[0],
    EPOCH,
    DEFAULT_RULES.reject,
    DEFAULT_RULES,
    Expected(distance=0.018, mean_margin=0.0015),
    FIGURES,
    RESAMPLED,
    EpochNotices(items=(EPOCH,)),
    ENVIRONMENT.graders[0],
    PLAN.strata[0],
    PACKAGE.environments[0],
    PACKAGE.files[0],
    PACKAGE,
    PLAN,
    Publication(manifest=MANIFEST, batch=BATCH, curriculum=PLAN),
    HEARTBEAT,
    NODE_STATUS,
    PoolStatus(
        pool="demo",
        policy_version=-1,
        nodes=(NODE_STATUS,),
        slots={"accepted": 3, "leased": 1},
        drops={"token_range": 1},
        tokens_generated=2_345,
        tokens_accepted=2_000,
        outstanding_groups=4,
        is_finished=False,
        relays=(RELAY_STATUS,),
    ),
    OFFER,
    WANTED,
    SOURCES,
    RELAY_STATUS,
)

REJECTION = replace(VERDICT, outcome=Outcome.REJECTED, reason=RejectReason.TOKEN_RANGE, measured={})

GOLDEN_PATH = Path(__file__).with_name("golden_records.json")
KINDS = tuple(type(example) for example in EXAMPLES)
examples = pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)


def golden_of(record: Record) -> dict[str, str]:
    golden = {"bytes": record.to_bytes().decode()}
    return {**golden, "digest": record.digest()} if record.DOMAIN else golden


@examples
def test_bytes_and_digest_are_the_golden_ones(record: Record) -> None:
    golden = json.loads(GOLDEN_PATH.read_text())
    assert golden_of(record) == golden[type(record).__name__]


def test_there_is_a_golden_example_of_every_record_in_wire() -> None:
    def kinds(of: type[Record]) -> set[type[Record]]:
        return {kind for direct in of.__subclasses__() for kind in (direct, *kinds(direct))}

    assert {kind for kind in kinds(Record) if kind.__module__.startswith("farflung.wire.")} == set(KINDS)


@examples
def test_bytes_read_back_as_the_same_record(record: Record) -> None:
    assert type(record).from_bytes(record.to_bytes()) == record


@examples
def test_the_signature_is_outside_the_digest_and_every_other_field_inside(record: Record) -> None:
    if not record.DOMAIN:
        with pytest.raises(AssertionError, match="has no domain"):
            record.digest()
        return
    bodies = {field: value for field, value in msgspec.structs.asdict(record).items() if field != "signature"}
    if hasattr(record, "signature"):
        assert replace(record, signature="another").digest() == record.digest()
    for field, value in bodies.items():
        other = changed(value)
        if other is None:
            continue
        try:
            altered = replace(record, **{field: other})
        except ValueError:  # the field cannot change alone
            continue
        assert altered.digest() != record.digest(), field


def changed(value: object) -> object:
    """Another value of the same type; None where there is none to be made up."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return digest(value) if len(value) == 64 else value + "x"
    return None


def test_no_two_kinds_share_a_domain() -> None:
    domains = [kind.DOMAIN for kind in KINDS if kind.DOMAIN]
    assert len(set(domains)) == len(domains)


@examples
def test_a_record_above_its_limit_is_refused_unread(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **options: object) -> None:
        raise AssertionError("parsed before the limit was checked")

    monkeypatch.setattr(msgspec.json, "decode", never)
    with pytest.raises(PeerFault, match="at most"):
        type(record).from_bytes(b" " * (record.MAX_BYTES + 1))


@examples
def test_other_spellings_of_the_same_record_are_refused(record: Record) -> None:
    plain = json.loads(record.to_bytes())
    backwards = dict(sorted(plain.items(), reverse=True))
    spellings = [
        json.dumps(plain, ensure_ascii=False, sort_keys=True).encode(),
        record.to_bytes() + b"\n",
        b" " + record.to_bytes(),
        b"\xef\xbb\xbf" + record.to_bytes(),
        record.to_bytes().replace(b"{", b'{"' + next(iter(plain)).encode() + b'":0,', 1),
        record.to_bytes()[:-1] + b',"extra":1}',
    ]
    if len(plain) > 1:
        spellings.append(json.dumps(backwards, ensure_ascii=False, separators=(",", ":")).encode())
    for spelling in spellings:
        with pytest.raises(PeerFault, match="malformed_record"):
            type(record).from_bytes(spelling)


def test_numbers_have_one_spelling_too() -> None:
    honest = RECEIPT.to_bytes()
    assert b'"epoch":3,' in honest
    for spelling in (b'"epoch":3.0,', b'"epoch":"3",', b'"epoch":03,', b'"epoch":3e0,', b'"epoch":true,'):
        with pytest.raises(PeerFault, match="malformed_record"):
            Receipt.from_bytes(honest.replace(b'"epoch":3,', spelling))


@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_random_bytes_are_the_peers_fault_and_nothing_else(kind: type[Record], data: bytes) -> None:
    with pytest.raises(PeerFault):
        kind.from_bytes(data)


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_changed_byte_gives_the_peers_fault_or_another_record(record: Record, data: st.DataObject) -> None:
    honest = record.to_bytes()
    start = data.draw(st.integers(0, len(honest)))
    stop = data.draw(st.integers(start, min(start + 3, len(honest))))
    forged = honest[:start] + data.draw(st.binary(max_size=3)) + honest[stop:]
    assume(forged != honest)
    try:
        read = type(record).from_bytes(forged)
    except PeerFault:
        return
    assert read != record
    assert read.to_bytes() == forged


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(EXAMPLES), st.data())
def test_any_value_in_any_field_is_the_peers_fault_or_reads_back(record: Record, data: st.DataObject) -> None:
    plain = json.loads(record.to_bytes())
    plain[data.draw(st.sampled_from(sorted(plain)))] = data.draw(JSON)
    forged = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode(errors="surrogatepass")
    try:
        read = type(record).from_bytes(forged)
    except PeerFault:
        return
    assert type(record).from_bytes(read.to_bytes()) == read
    assert read.to_bytes() == forged


@given(st.integers(0, 2**63 - 1), st.text(st.characters(codec="utf-8"), max_size=40), st.floats(allow_nan=False))
def test_integers_texts_and_floats_survive_the_round_trip(number: int, text: str, measured: float) -> None:
    assume(abs(measured) != float("inf"))
    receipt = replace(RECEIPT, sequence=number)
    assert Receipt.from_bytes(receipt.to_bytes()) == receipt
    forfeit = replace(FORFEIT, reason=text)
    assert Forfeit.from_bytes(forfeit.to_bytes()) == forfeit
    verdict = replace(VERDICT, measured={text: measured})
    assert Verdict.from_bytes(verdict.to_bytes()) == verdict


BROKEN_RULES = [
    (LEASE, "draw_seed", digest("x").upper()),
    (LEASE, "draw_seed", digest("x")[:-1]),
    (LEASE, "pool_digest", ""),
    (LEASE, "lease_id", ""),
    (LEASE, "lease_id", "a" * 257),
    (LEASE, "node", "worker\n1"),
    (LEASE, "slot", -1),
    (LEASE, "slot", 2**63),
    (LEASE, "task_indices", ()),
    (LEASE, "task_indices", (0, 1, 2, -3)),
    (LEASE, "target_lengths", (0, 0, 0)),
    (LEASE, "expires_at_ms", LEASE.issued_at_ms - 1),
    (LEASE_REQUEST, "policy_version", -1),
    (FORFEIT, "node", ""),
    (TICKET, "key", "a\0b"),
    (SUBMISSION, "file_digest", "g" * 64),
    (SUBMISSION, "file_bytes", -1),
    (RECEIPT, "deadline_ms", 0),
    (REWARDS[0], "reward", float("nan")),
    (REWARDS[0], "correct", float("inf")),
    (REWARDS[0], "components", {"answer": float("inf")}),
    (REWARDS[0], "spans", ((0, 3), (2, 9))),
    (REWARDS[0], "spans", ((0, 3), (5, 5))),
    (REWARDS[0], "spans", ((-1, 3), (5, 9))),
    (REWARDS[0], "spans", ((0, 9),)),
    (REWARDS[0], "turn_rewards", (0.5, float("nan"))),
    (ENVIRONMENT, "num_agents", 0),
    (VERDICT, "outcome", Outcome.REJECTED),
    (VERDICT, "reason", RejectReason.PROMPT),
    (REJECTION, "reason", RejectReason.VALIDATOR_FAULT),
    (REJECTION, "reason", RejectReason.VERSION_WINDOW),
    (REJECTION, "outcome", Outcome.UNJUDGED),
    (VERDICT, "measured", {"x": float("nan")}),
    (Judgement(verdict=VERDICT, evidence=EVIDENCE), "evidence", replace(EVIDENCE, detail="another")),
    (BATCH, "previous_digest", "x"),
    (BATCH.items[0], "groups_trained", (-1,)),
    (BATCH.drops[0], "reason", ""),
    (CHUNK, "num_bytes", -1),
    (FILE, "name", ""),
    (TENSOR, "shape", (2, -1)),
    (MANIFEST, "expires_at_ms", 0),
    (MANIFEST, "kind", "patch"),
    (MANIFEST, "patch", replace(PATCH, base_version=6)),
    (MANIFEST, "patch", replace(PATCH, file="another")),
    (replace(MANIFEST, patch=PATCH), "kind", "adapter"),
    (PATCH, "base_sha256", "x"),
    (OFFER, "url", "ftp://198.51.100.7:7500"),
    (OFFER, "url", "http://198.51.100.7:7500/v1/finish?"),
    (OFFER, "url", "http://user@198.51.100.7:7500"),
    (OFFER, "url", "http://198.51.100.7:7500\n"),
    (OFFER, "url", "http://198.51.100.7:0"),
    (OFFER, "policy_version", -2),
    (OFFER, "upload_bytes_per_s", -1),
    (OFFER, "liars", (LIAR,) * 17),
    (OFFER, "liars", ("liar",)),
    (WANTED, "node", ""),
    (WANTED, "liars", (LIAR,) * 17),
    (SOURCES, "servers", ("http://198.51.100.7/path",)),
    (SOURCES, "servers", (RELAY,) * 17),
    (SOURCES, "refusal", "x" * 201),
    (HEARTBEAT, "alarm", "not\na reason"),
    (HEARTBEAT, "policy_version", -2),
    (HEARTBEAT, "busy_s", float("inf")),
    (ENVIRONMENT, "args", {"big": 2**53}),
    (ENVIRONMENT, "num_tasks", 0),
    (ENVIRONMENT.graders[0], "version", 0),
    (ENVIRONMENT.graders[0], "name", ""),
    (ENVIRONMENT.graders[0], "args", {"big": 2**53}),
    (POOL, "group_size", 0),
    (POOL, "temperature", 0.0),
    (POOL, "lease_s", float("nan")),
    (EXAMPLES[1], "target_length", -1),
]


@pytest.mark.parametrize(("record", "field", "value"), BROKEN_RULES)
def test_a_record_that_breaks_a_rule_cannot_be_made(record: Record, field: str, value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        replace(record, **{field: value})


def test_a_broken_rule_in_foreign_bytes_is_the_peers_fault() -> None:
    forged = LEASE.to_bytes().replace(b'"slot":12', b'"slot":-1')
    with pytest.raises(PeerFault, match="slot is -1"):
        Lease.from_bytes(forged)


def test_an_outcome_is_final_and_an_accepted_one_has_its_verdict() -> None:
    common = {"sequence": 0, "slot": 0, "policy_version": 0}
    with pytest.raises(ValueError, match="final"):
        SlotOutcome(state=SlotState.LEASED, **common)
    with pytest.raises(ValueError, match="verdict"):
        SlotOutcome(state=SlotState.ACCEPTED, submission=SUBMISSION, **common)
    SlotOutcome(state=SlotState.FORFEITED, **common)


def test_only_a_peers_fault_is_rejected() -> None:
    outcome_of = {reason: reason.outcome for reason in RejectReason}
    assert {reason for reason, outcome in outcome_of.items() if outcome is Outcome.EXPIRED} == {"version_window"}
    unjudged = {reason for reason, outcome in outcome_of.items() if outcome is Outcome.UNJUDGED}
    assert unjudged == {"file_missing", "validator_fault"}
    rest = set(outcome_of.values()) - {Outcome.EXPIRED, Outcome.UNJUDGED}
    assert rest == {Outcome.REJECTED}


if __name__ == "__main__":
    golden = {type(record).__name__: golden_of(record) for record in EXAMPLES}
    GOLDEN_PATH.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")
