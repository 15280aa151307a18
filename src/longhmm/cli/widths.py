"""Tables that fit the terminal: in several parts where they are too wide, never with numbers cut off."""

import textwrap
from collections.abc import Iterator, Sequence

ROOM = 2  # spaces between columns


def in_parts(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Heads (on several lines where they are longer than what is below them) and cells of tables at most so wide, as
    far as that is possible; each begins with the first column."""
    sizes, heads = [], []
    for index, name in enumerate(columns):
        longest = max([len(row[index]) for row in rows] + [len(word) for word in name.split()] + [1])
        heads.append("\n".join(textwrap.wrap(name, longest)))
        sizes.append(longest + ROOM)
    parts, used = [[0]], sizes[0] + ROOM
    for index in range(1, len(columns)):
        if used + sizes[index] > width and len(parts[-1]) > 1:
            parts.append([0])
            used = sizes[0] + ROOM
        parts[-1].append(index)
        used += sizes[index]
    for part in parts:
        yield [heads[index] for index in part], [[row[index] for index in part] for row in rows]
