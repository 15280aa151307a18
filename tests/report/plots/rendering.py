"""Pictures as they are drawn."""

import io


def rendered(figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    assert file.getvalue().startswith(b"\x89PNG")
    return file.getvalue()
