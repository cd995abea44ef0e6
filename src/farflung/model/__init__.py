"""The decoder, its weights and its tokenizer; shared by engine, trainer and verifier."""
