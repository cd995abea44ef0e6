"""A model behind the OpenAI HTTP API."""
