"""The two rules of Ethereum that identities need: addresses with a checksum (EIP-55), and the hash that a wallet signs
for typed data (EIP-712) of one fixed shape.

Written out, since importing eth-account raises the interpreter's recursion limit to 100,000 (it imports py_ecc), and
then a deeply nested JSON text from a stranger overflows the stack of the process.
"""

from eth_hash.auto import keccak


def address_of(public_key: bytes) -> str:
    """`0x` and 40 hex digits in mixed case.

    Args:
        public_key: 65 bytes, 4 | x | y.
    """
    digits = keccak(public_key[1:])[-20:].hex()
    checks = keccak(digits.encode()).hex()
    return "0x" + "".join(
        digit.upper() if int(check, 16) >= 8 else digit for digit, check in zip(digits, checks, strict=False)
    )


_DOMAIN = keccak(
    keccak(b"EIP712Domain(string name,string version)") + keccak(b"farflung") + keccak(b"1"),
)
_RECORD_TYPE = keccak(b"Record(bytes32 digest)")


def signed_hash(digest: bytes) -> bytes:
    """What is signed for `Record {bytes32 digest}` in the domain {name "farflung", version "1"}; 32 bytes."""
    return bytes(keccak(b"\x19\x01" + _DOMAIN + keccak(_RECORD_TYPE + digest)))
