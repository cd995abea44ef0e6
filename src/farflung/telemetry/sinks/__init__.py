"""Trackers that a run's figures are forwarded to: TensorBoard, Weights & Biases, trackio.

points.py       rows of our files -> named figures at a step
base.py         what a sink is, and which there are
position.py     how far a sink has come with a run, on disk
forward.py      the loop that reads our files and hands points to one sink
tensorboard.py  event files in the run's folder
wandb.py        Weights & Biases
trackio.py      trackio

Our own files are the queue: a sink reads them in a process of its own (`farflung forward`), so none can slow or stop a
run by being absent, away, hung or broken, and what it missed it gets later. This package does not know who starts it.
"""
