"""What a run leaves behind for people: summary.json, curves.png, samples.html.

usage.py    pool.jsonl: who worked and who waited, over all sessions of a run
summary.py  pure: metrics and usage in, the figures of the whole run out
samples.py  the table of sampled completions
write.py    all three, and a short text
"""
