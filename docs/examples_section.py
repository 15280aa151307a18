"""Show the examples of docstrings as code on the page of the reference.

The section is called "Example:" in the code; the reader of docstrings knows "Examples:" and takes any other for text.
"""

import re
from typing import Any

from griffe import Extension, Object


class ExamplesSection(Extension):
    """Rename the section before docstrings are parsed."""

    def on_object(self, *, obj: Object, **others: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
