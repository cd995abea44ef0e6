"""Who signed a record: secp256k1 keys, Ethereum addresses, EIP-712 signatures."""
