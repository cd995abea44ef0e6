"""Task sets, prompts and graders."""
