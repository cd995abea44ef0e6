"""Supervised fine-tuning: the start that reinforcement learning needs."""
