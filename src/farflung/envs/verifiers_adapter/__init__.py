"""Environments written for Prime's `verifiers` library, as environments of ours.

    library       the library itself: is it here, may this module be imported, loading it the same way everywhere
    calls         its asynchronous code, called from ours, with a limit of time
    script        a model that says what it is told to say: the library plays an episode, we hold the tokens
    failures      reward functions that raised
    messages      its messages and tools in our words
    rows          which of its rows are trained on and which are held out
    environment   `VerifiersEnvironment` (one turn) and `VerifiersEpisodes` (several)

The library drives its own episodes: its `rollout` is run from the beginning with a scripted model in place of a client,
so that stop conditions, tools, user simulators and rubrics behave as they do at home.
"""
