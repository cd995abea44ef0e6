"""TOPLOC commitments in the published format: the largest activations of 32 tokens as a polynomial (arXiv 2501.16007).

    chunk      32 rows of width D as bfloat16, flattened; the indices i of the 128 largest |h|
    modulus    the largest m <= 65497 for which all i mod m differ
    polynomial of degree 127 over GF(65497) through (i mod m, the 16 bits of h_i)
    bytes      m, then 128 coefficients ascending, two bytes each, big-endian: 258

The verifier takes *its own* 128 indices, evaluates the polynomial there and compares bits: a value matches if sign and
exponent agree, and then its mantissa is off by so many steps of 7 bits.

Differences to the reference, which are deliberate: a malformed header or length is refused before any arithmetic; there
is no "null" proof; rows that are not finite are refused; the sign counts; fewer values than 128 give a polynomial of
lower degree with zeros above. All chunks of a call are computed side by side in float64, in which every product of two
field elements is exact. Pure; it does not know models or thresholds of a pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farflung.proofs.shape import TOPLOC_LEAST_MODULUS, TOPLOC_PRIME, shape_problem
from farflung.wire.proof import CHUNK_TOKENS

PRIME = TOPLOC_PRIME
TOP_VALUES = 128
MAX_EXPONENT_MISMATCHES, MAX_MEAN_MANTISSA, MAX_MEDIAN_MANTISSA = 38, 10.0, 8.0
"""The published thresholds; a chunk fails above any of them."""
NOT_FINITE = 0x7F80
"""Bits of infinity without its sign; NaNs are above."""
BLOCK = 16
"""Terms of a polynomial that are summed at once."""
NO_MANTISSA = 128
"""In place of the mantissas' error where nothing agrees: more than any error that 7 bits can have."""

Field = NDArray[np.float64]
"""Elements of GF(65497) as whole numbers."""
TopValues = list[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""(indices [C, K], bits [C, K]) of the largest values: of the whole chunks, then of a shorter last one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkFigures:
    """One chunk beside the verifier's own states."""

    num_values: int
    """Compared: 128, or all of a shorter chunk."""
    exponent_mismatches: int
    """Values with another sign or exponent, or none of a bfloat16 at all."""
    mean_mantissa: float
    """Mean error of the mantissas where sign and exponent agree; infinite where none do."""
    median_mantissa: float
    """The upper one of the two in the middle, as in the reference."""

    @property
    def distance(self) -> float:
        """The largest of the three as a share of its published threshold: what lies above 1 fails there."""
        mismatches = self.exponent_mismatches / self.num_values * TOP_VALUES
        return max(
            mismatches / MAX_EXPONENT_MISMATCHES,
            min(self.mean_mantissa, NO_MANTISSA) / MAX_MEAN_MANTISSA,
            min(self.median_mantissa, NO_MANTISSA) / MAX_MEDIAN_MANTISSA,
        )

    @property
    def passes(self) -> bool:
        """By the published thresholds."""
        return self.distance <= 1


def build(hidden_TD: Tensor) -> bytes:
    """The proof of one rollout: 258 bytes per 32 tokens or part of them.

    Raises:
        ValueError: a state is not finite, or no modulus keeps the indices of a chunk apart.
    """
    chunks = _top_values(hidden_TD)
    proofs = []
    for positions, bits in chunks:
        moduli = np.array([_modulus(row) for row in positions])
        coefficients = _interpolate((positions % moduli[:, None]).astype(np.float64), bits.astype(np.float64))
        padded = np.zeros((len(positions), 1 + TOP_VALUES), dtype=">u2")
        padded[:, 0] = moduli
        padded[:, 1 : 1 + positions.shape[1]] = coefficients
        proofs.append(padded.tobytes())
    return b"".join(proofs)


def check(proof: bytes, hidden_TD: Tensor) -> list[ChunkFigures]:
    """The claimed proof beside the verifier's own states, chunk by chunk.

    Raises:
        ValueError: the bytes do not have the shape (`shape_problem`), or a state is not finite.
    """
    moduli, coefficients = decode(proof, len(hidden_TD))
    return _check(moduli, coefficients, _top_values(hidden_TD))


def check_and_forge(proof: bytes, hidden_TD: Tensor) -> tuple[list[ChunkFigures], list[ChunkFigures]]:
    """`check`, and what a polynomial that is the same everywhere would have scored in each chunk.

    The forger is given the constant that suits each chunk: the middle of the commonest sign and exponent. Where even
    that passes, the published thresholds show nothing on this model.
    """
    moduli, coefficients = decode(proof, len(hidden_TD))
    chunks = _top_values(hidden_TD)
    forged = [each for _, bits in chunks for each in _compared(_constants(bits), bits)]
    return _check(moduli, coefficients, chunks), forged


def _check(moduli: NDArray[np.int64], coefficients: Field, chunks: TopValues) -> list[ChunkFigures]:
    figures: list[ChunkFigures] = []
    for positions, bits in chunks:
        part = slice(len(figures), len(figures) + len(positions))
        found = _evaluate((positions % moduli[part, None]).astype(np.float64), coefficients[part])
        figures += _compared(found.astype(np.int64), bits)
    return figures


def decode(proof: bytes, num_tokens: int) -> tuple[NDArray[np.int64], Field]:
    """(moduli [C], coefficients [C, 128]) of a proof that was checked, or is now.

    Raises:
        ValueError: it has another length, a modulus outside (2**15, 65497], or coefficients outside the field.
    """
    if problem := shape_problem("toploc", proof, num_tokens):
        raise ValueError(problem)
    words = np.frombuffer(proof, dtype=">u2").reshape(-1, 1 + TOP_VALUES)
    return words[:, 0].astype(np.int64), words[:, 1:].astype(np.float64)


def _constants(bits_CK: NDArray[np.int64]) -> NDArray[np.int64]:
    """[C, 1]: in each chunk the median pattern of those with its commonest sign and exponent."""
    exponents = bits_CK >> 7
    rows = np.arange(len(bits_CK))
    counts = np.bincount((rows[:, None] * 512 + exponents).ravel(), minlength=512 * len(rows)).reshape(-1, 512)
    is_common = exponents == counts.argmax(axis=1)[:, None]
    ordered = np.sort(np.where(is_common, bits_CK, 1 << 16), axis=1)
    middles: NDArray[np.int64] = ordered[rows, (counts.max(axis=1) - 1) // 2]
    return middles[:, None]


def _top_values(hidden_TD: Tensor) -> TopValues:
    states_TD = hidden_TD.to(torch.bfloat16)
    whole = len(states_TD) // CHUNK_TOKENS * CHUNK_TOKENS
    parts: Sequence[Tensor] = (states_TD[:whole].reshape(-1, CHUNK_TOKENS * states_TD.shape[1]), states_TD[whole:])
    found = []
    for part in (parts[0], parts[1].reshape(1, -1)):
        if part.numel():
            count = min(TOP_VALUES, part.shape[1])
            words = part.view(torch.int16)
            # Sizes of finite bfloat16 are ordered as their bits are; integers are compared faster, with the same ties.
            sizes, positions = words.bitwise_and(0x7FFF).topk(count, dim=1)
            if int(sizes[:, 0].max()) >= NOT_FINITE:
                raise ValueError("a state is not finite: nothing can be committed to")
            bits = words.gather(1, positions).to(torch.int64).bitwise_and_(0xFFFF)
            found.append((positions.cpu().numpy(), bits.cpu().numpy()))
    return found


def _modulus(positions_K: NDArray[np.int64]) -> int:
    """The largest at which all positions stay apart."""
    if positions_K.max() < PRIME:
        return PRIME
    for modulus in range(PRIME, TOPLOC_LEAST_MODULUS, -1):
        if len(np.unique(positions_K % modulus)) == len(positions_K):
            return modulus
    raise ValueError(f"no modulus above {TOPLOC_LEAST_MODULUS} keeps {len(positions_K)} indices apart")


def _folded(values: Field) -> Field:
    """Whole numbers below 2**53 in size into [-PRIME, 2 PRIME), in place: near enough to go on multiplying.

    A product of two such numbers with another added is below 2**36, so nothing is ever rounded.
    """
    quotients = np.floor(values * (1.0 / PRIME))
    quotients *= PRIME
    values -= quotients
    return values


def _reduced(values: Field) -> Field:
    """Whole numbers below 2**53 in size into [0, PRIME), in place."""
    _folded(values)
    values += (values < 0) * float(PRIME)
    values -= (values >= PRIME) * float(PRIME)
    return values


def _interpolate(points_CK: Field, values_CK: Field) -> Field:
    """Coefficients [C, K], ascending, of the polynomial of degree K - 1 through the points.

    Lagrange: with P = prod (x - x_i) and Q_i = P / (x - x_i), the sum of y_i / Q_i(x_i) * Q_i.
    """
    num, count = points_CK.shape
    roots_KC = np.ascontiguousarray(points_CK.T)
    product = np.zeros((count + 1, num))
    product[0] = 1
    for degree in range(count):  # ascending coefficients of P, one root after another
        grown = roots_KC[degree] * product[: degree + 1]
        product[1 : degree + 2] = product[: degree + 1]
        product[0] = 0
        product[: degree + 1] -= grown
        _folded(product[: degree + 2])
    quotients = np.empty((count, num, count))  # coefficient, chunk, i
    quotients[count - 1] = 1
    for power in range(count - 1, 0, -1):
        quotients[power - 1] = _folded(points_CK * quotients[power] + product[power][:, None])
    derivative_CK = _reduced(product[1:].T * np.arange(1, count + 1))
    at_root = _evaluate(points_CK, derivative_CK)  # Q_i(x_i) = P'(x_i)
    weights = _reduced(values_CK * _INVERSES[at_root.astype(np.int64)])
    # Sums of 128 products of at most 2**34: exact.
    return _reduced(np.matmul(quotients.transpose(1, 0, 2), weights[:, :, None])[:, :, 0])


def _evaluate(points_CK: Field, coefficients_CP: Field) -> Field:
    """The polynomials at the points: 16 powers, blocks of 16 terms as one product of matrices, Horner over blocks."""
    num, degree = coefficients_CP.shape
    num_blocks = -(-degree // BLOCK)
    powers = np.empty((num, BLOCK, points_CK.shape[1]))
    powers[:, 0] = 1
    for power in range(1, BLOCK):
        powers[:, power] = _folded(powers[:, power - 1] * points_CK)
    blocks = np.zeros((num, num_blocks * BLOCK))
    blocks[:, :degree] = coefficients_CP
    sums = _folded(np.matmul(blocks.reshape(num, num_blocks, BLOCK), powers))  # sums of 16 products: exact
    stride = _folded(powers[:, -1] * points_CK)
    values = sums[:, -1].copy()
    for block in range(num_blocks - 2, -1, -1):
        values *= stride
        values += sums[:, block]
        _folded(values)
    return _reduced(values)


def _compared(found_CK: NDArray[np.int64], bits_CK: NDArray[np.int64]) -> list[ChunkFigures]:
    agrees_CK = found_CK >> 7 == bits_CK >> 7
    errors_CK = np.abs((found_CK & 0x7F) - (bits_CK & 0x7F))
    counts = agrees_CK.sum(axis=1)
    ordered = np.sort(np.where(agrees_CK, errors_CK, 0x80), axis=1)  # those that do not agree last
    sums = np.where(agrees_CK, errors_CK, 0).sum(axis=1)
    rows = np.arange(len(counts))
    middles = ordered[rows, counts // 2]
    return [
        ChunkFigures(
            num_values=bits_CK.shape[1],
            exponent_mismatches=bits_CK.shape[1] - int(count),
            mean_mantissa=total / count if count else float("inf"),
            median_mantissa=float(middle) if count else float("inf"),
        )
        for count, total, middle in zip(counts.tolist(), sums.tolist(), middles.tolist(), strict=True)
    ]


def _inverses() -> Field:
    """1 / a for every a of the field but 0, which has none: 1/a = -(p // a) / (p mod a)."""
    found = np.zeros(PRIME)
    found[1] = 1
    for number in range(2, PRIME):
        found[number] = PRIME - (PRIME // number) * found[PRIME % number] % PRIME
    return found


_INVERSES = _inverses()
