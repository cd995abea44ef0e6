"""Loading frozen, validated configuration from TOML and the command line."""
