"""A run on one trusted machine: the trainer with sampler processes of its own, no coordinator and no validators."""
