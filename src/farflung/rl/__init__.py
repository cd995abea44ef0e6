"""Learning: advantages, objectives, filters, the experience buffer. Pure; returns metrics, never logs."""
