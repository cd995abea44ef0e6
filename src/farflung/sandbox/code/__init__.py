"""Programs that a model wrote, run and judged: shut in, measured, never trusted."""
