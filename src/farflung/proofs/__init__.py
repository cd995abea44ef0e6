"""What was computed and what was drawn; pure."""
