"""Labelled pairs of gold and answer: `dev.jsonl`, `held.jsonl`, how half of them were generated."""
