"""The role that leases, receipts and settles."""
