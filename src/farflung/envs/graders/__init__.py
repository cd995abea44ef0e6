"""Graders with a name and a version: exact rules first, then a sandbox or a judge where rules do not decide."""
