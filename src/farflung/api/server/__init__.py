"""The serving side of the HTTP interface that is not about any role: connections, limits, bodies, errors as answers."""
