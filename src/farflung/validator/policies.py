"""The versions that submissions claim, in the validator's own hands: fetched, kept while they may be asked for, loaded.

Weights are the trainer's, every byte checked, so what a submission is compared with is what the version is. Does not
know rollouts; `validator.prefill` computes with the decoder.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import torch

from farflung.broadcast.fetch import PolicyFetcher
from farflung.broadcast.fetched import FetchedPolicy
from farflung.broadcast.follow import GetManifest, OnFault, PolicyFollower
from farflung.errors import OurFault
from farflung.model.adapted import detach, put_adapter
from farflung.model.adapter_files import CONFIG as ADAPTER_CONFIG
from farflung.model.adapter_files import WEIGHTS as ADAPTER
from farflung.model.adapter_files import read_adapter
from farflung.model.any_config import read_config
from farflung.model.build import AnyDecoder, build_decoder
from farflung.model.description import CONFIG_FILE
from farflung.model.weights import load_hf_state, views_of_safetensors
from farflung.wire.manifest import Manifest

WEIGHTS = "model.safetensors"

FindManifest = Callable[[int], Awaitable[Manifest]]
"""The believed manifest of a version; raises when there is none."""


class Policies:
    """Recent versions by number. One decoder, loaded with the one that was asked for last."""

    def __init__(
        self,
        fetcher: PolicyFetcher,
        get_manifest: GetManifest,
        find_manifest: FindManifest,
        *,
        max_versions: int,
        device: torch.device,
        on_fault: OnFault = lambda _fault: None,
    ) -> None:
        """
        Args:
            max_versions: kept in memory; the staleness window and one more.
        """
        self._follower = PolicyFollower(fetcher, get_manifest, weights_name=WEIGHTS, on_fault=on_fault)
        self._find_manifest = find_manifest
        self._max_versions = max_versions
        self._device = device
        self._fetched: OrderedDict[int, FetchedPolicy] = OrderedDict()
        self._decoder: AnyDecoder | None = None
        self._loaded = -1

    async def decoder_of(self, version: int) -> AnyDecoder:
        """The policy of a version, ready to compute. Valid until the next call.

        Raises:
            PeerFault, Transient, Refused: the version is out of reach.
            OurFault: its files make no model.
        """
        if version not in self._fetched:
            self._fetched[version] = await self._follower.fetch(await self._find_manifest(version))
            while len(self._fetched) > self._max_versions:
                del self._fetched[min(self._fetched)]
        if self._loaded != version or self._decoder is None:
            self._decoder = await asyncio.to_thread(self._load, self._fetched[version])
            self._loaded = version
        return self._decoder

    def _load(self, fetched: FetchedPolicy) -> AnyDecoder:
        config = read_config(json.loads(fetched.files[CONFIG_FILE]))
        decoder = self._decoder or build_decoder(config, device=self._device).requires_grad_(False)
        data = fetched.files[WEIGHTS] if fetched.weights is None else fetched.weights.data
        if ADAPTER not in fetched.files and fetched.manifest.kind == "adapter":
            raise OurFault(f"version {fetched.manifest.policy_version} is an adapter without its file")
        detach(decoder)
        load_hf_state(decoder, views_of_safetensors(bytearray(data) if isinstance(data, bytes) else data))
        if fetched.manifest.kind == "adapter":
            put_adapter(decoder, read_adapter(config, fetched.files[ADAPTER_CONFIG], fetched.files[ADAPTER]))
        return decoder
