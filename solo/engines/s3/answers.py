"""The texts in the XML that a store or STS answers. Python's own parser takes 10 ms to load."""


def find_text(body: bytes, name: str) -> str:
    """Return the text of the first XML element of this name, "" if there is none."""
    texts = find_texts(body.decode(errors="replace"), name)
    return texts[0] if texts else ""


def find_texts(text: str, name: str) -> "list[str]":
    """Return the texts of all XML elements of this name, which have no attributes and no elements within."""
    texts = []
    for piece in text.split(f"<{name}>")[1:]:
        inner, end, _ = piece.partition(f"</{name}>")
        if end and "<" not in inner:
            for code, sign_ in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&")):
                inner = inner.replace(code, sign_)
            texts.append(inner)
    return texts
