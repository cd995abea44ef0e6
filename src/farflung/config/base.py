"""The base class of every configuration section."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """One section: frozen, keyword-only, unknown keys refused, no infinities or NaN.

    A docstring under each field is its description: it is what `--help`, the resolved file and error sentences show.
    Rules on one field go into `Field(ge=..., le=...)`; rules across fields into a `model_validator(mode="after")` that
    raises `ValueError` with value, rule and fix.

        class SamplingConfig(Config):
            temperature: float = Field(1.0, gt=0, le=2)
            '''Divides the logits; training needs draws, so 0 is refused.'''
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )
