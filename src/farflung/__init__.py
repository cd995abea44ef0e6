"""farflung: RL post-training for language models on machines that you do not control."""
