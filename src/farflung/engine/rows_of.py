"""The rows that go with a decoder."""

from farflung.engine.foreign_rows import ForeignRows
from farflung.engine.own_rows import OwnRows
from farflung.engine.rows import Rows
from farflung.model.build import AnyDecoder
from farflung.model.decoder import Decoder


def rows_of(decoder: AnyDecoder) -> Rows:
    """Rows of the own decoder, or of a model that transformers runs."""
    return OwnRows(decoder) if isinstance(decoder, Decoder) else ForeignRows(decoder)
