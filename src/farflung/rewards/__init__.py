"""Extraction and exact rules of grading; pure, no processes, no models."""
