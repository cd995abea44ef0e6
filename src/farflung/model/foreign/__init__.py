"""Models that the own decoder does not have, run by transformers (extra `import`) behind the decoder's interface.

Only transformers' own classes run, never code that comes with a model, and weights come from safetensors alone.
"""
