"""Publishing and fetching policy versions."""
