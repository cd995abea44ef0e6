from farflung.local.shared_weights import SharedWeights, map_for_reading


def read(memory: SharedWeights, version: int) -> bytes:
    offset, num_bytes = memory.where(version)
    with map_for_reading(memory.fd) as mapped:
        return mapped[offset : offset + num_bytes]


def test_a_version_is_read_as_it_was_written() -> None:
    memory = SharedWeights(2)
    memory.write(0, b"first", needed=())
    memory.write(1, b"other", needed=(0,))
    assert (read(memory, 0), read(memory, 1)) == (b"first", b"other")
    memory.close()


def test_what_is_needed_stays_and_the_rest_makes_room() -> None:
    memory = SharedWeights(3)
    for version in range(8):
        memory.write(version, bytes([version]) * 4, needed=(0, version - 1))
    assert set(memory.versions) == {0, 6, 7}
    assert read(memory, 0) == bytes(4)
    assert read(memory, 6) == bytes([6]) * 4
    memory.close()


def test_a_version_that_is_written_again_replaces_itself() -> None:
    memory = SharedWeights(1)
    memory.write(4, b"one", needed=(4,))
    memory.write(4, b"two", needed=(4,))
    assert read(memory, 4) == b"two"
    memory.close()
