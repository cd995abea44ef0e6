"""A few signed versions of small weights, by snapshots and patches, and the run folder that a coordinator leaves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from farflung.broadcast.publish import PatchOffer, cut_files, prepare
from farflung.cli.run_folder import RunFolder
from farflung.coordinator.journal import PoolOpened, Snapshot, encode
from farflung.identity.keys import NodeKey, key_from_bytes
from farflung.identity.signing import sign
from farflung.sharding.file_layout import read_layout
from farflung.sharding.patch_build import build_patch
from farflung.slots.ledger import Ledger
from farflung.state.event_log import Entry, SqlEventLog
from farflung.store.object_store import ObjectStore
from farflung.wire.canonical import sha256_hex
from farflung.wire.manifest import Manifest, TensorEntry
from farflung.wire.pool import EnvironmentSpec, PoolSpec

TRAINER = key_from_bytes(b"\x07" * 32)
WEIGHTS = "model.safetensors"
LAYERS = ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight")
CHUNK_BYTES = 1024


@dataclass
class SignedRun:
    """Versions 0, 1, ... of three tensors of 1,000 elements; those divisible by `snapshot_every` are whole."""

    snapshot_every: int = 3
    key: NodeKey = TRAINER
    manifests: dict[int, Manifest] = field(default_factory=dict)
    chunks: dict[str, bytes] = field(default_factory=dict)
    files: list[bytes] = field(default_factory=list)

    def publish(self, num_changed: int = 5, *, patch: bytes | None = None) -> Manifest:
        """The next version, in which every tensor has `num_changed` other elements (the first begins with random ones).

        Args:
            patch: to publish instead of the true one.
        """
        version = len(self.files)
        self.files.append(save(self._tensors(version, num_changed)))
        offer = None
        if version:
            made = build_patch(self.files[-2], self.files[-1]) if patch is None else patch
            assert made is not None
            is_alone = version % self.snapshot_every != 0
            offer = PatchOffer(file=WEIGHTS, base_sha256=sha256_hex(self.files[-2]), data=made, is_alone=is_alone)
        prepared = prepare(
            {WEIGHTS: self.files[-1], "config.json": b"{}"},
            tensors=[
                TensorEntry(name=span.name, dtype=span.dtype, shape=span.shape) for span in read_layout(self.files[-1])
            ],
            pool_digest="ab" * 32,
            policy_version=version,
            optimizer_step=version,
            published_at_ms=1,
            expires_at_ms=1 << 50,
            previous_digest=self.manifests[version - 1].digest() if version else "",
            chunk_bytes=CHUNK_BYTES,
            patch=offer,
        )
        self.manifests[version] = sign(prepared.manifest, self.key)
        self.chunks |= {sha256: bytes(data) for sha256, data in prepared.chunks.items()}
        return self.manifests[version]

    def publish_adapter(self, adapter: bytes) -> Manifest:
        """The next version as an adapter on the newest weights."""
        version = len(self.manifests)
        base = cut_files({WEIGHTS: self.files[-1]}, CHUNK_BYTES)
        prepared = prepare(
            {"adapter_model.safetensors": adapter, "config.json": b"{}"},
            tensors=(),
            pool_digest="ab" * 32,
            policy_version=version,
            optimizer_step=version,
            published_at_ms=1,
            expires_at_ms=1 << 50,
            previous_digest=self.manifests[version - 1].digest(),
            chunk_bytes=CHUNK_BYTES,
            base=base,
        )
        self.manifests[version] = sign(prepared.manifest, self.key)
        self.chunks |= {sha256: bytes(data) for sha256, data in prepared.chunks.items()}
        return self.manifests[version]

    def write(self, root: Path, *, since: int = 0) -> Path:
        """The run folder with versions from `since` on."""
        folder = RunFolder(root=root)
        root.mkdir(parents=True, exist_ok=True)
        store = ObjectStore(str(folder.store))
        for sha256, data in self.chunks.items():
            store.put(f"chunks/{sha256}", data)
        opened = PoolOpened(spec=_spec(), secret=b"s" * 32)
        kept = tuple(manifest for version, manifest in self.manifests.items() if version >= since)
        state = Snapshot(opened=opened, ledger=Ledger(opened.spec).state, manifests=kept, last_publication=None)
        kind, body = encode(state)
        log = SqlEventLog(f"sqlite:///{folder.database}")
        log.write([Entry(sequence=0, at_ms=0, kind=kind, body=body)])
        log.close()
        return root

    def _tensors(self, version: int, num_changed: int) -> Mapping[str, np.ndarray]:
        dice = np.random.default_rng(version)
        if version == 0:
            return {name: dice.integers(0, 1 << 14, 1000, dtype=np.uint16).view(np.float16) for name in LAYERS}
        tensors = {}
        for span in read_layout(self.files[-1]):
            bits = np.frombuffer(self.files[-1], np.uint16, span.num_elements, span.start).copy()
            bits[dice.choice(1000, num_changed, replace=False)] += 1
            tensors[span.name] = bits.view(np.float16)
        return tensors


def signed_run(num_versions: int, **settings: int) -> SignedRun:
    run = SignedRun(**settings)
    for _ in range(num_versions):
        run.publish()
    return run


def _spec() -> PoolSpec:
    return PoolSpec(
        name="tiny",
        environment=EnvironmentSpec(name="sort-digits", args={}, seed=0, num_tasks=10),
        tokenizer_digest="cd" * 32,
        model_config_digest="ef" * 32,
        group_size=4,
        groups_per_slot=2,
        groups_per_batch=4,
        max_staleness=1,
        max_outstanding_groups=8,
        temperature=1.0,
        max_prompt_tokens=8,
        max_completion_tokens=3,
        lease_s=30.0,
        max_attempts=3,
        max_file_bytes=1 << 20,
    )
