"""Small real PDF files, written by hand: each line of text stands on a line of its own."""

from codecs import BOM_UTF16_BE
from collections.abc import Sequence

_TO_UNICODE = b"""/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Own def /CMapType 2 def
1 begincodespacerange <0000> <FFFF> endcodespacerange
%d beginbfrange
%s
endbfrange endcmap end end"""


def make_pdf(pages: Sequence[Sequence[str]], *, title: str = "") -> bytes:
    """A PDF whose font has each character, of the basic plane, under its own number."""
    # One range a high byte: within a range only the low byte counts up.
    highs = sorted({ord(character) >> 8 for lines in pages for line in lines for character in line})
    ranges = "\n".join(f"<{high:02X}00> <{high:02X}FF> <{high:02X}00>" for high in highs)
    cmap = _TO_UNICODE % (len(highs), ranges.encode())
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{' '.join(f'{8 + 2 * i} 0 R' for i in range(len(pages)))}] >>".encode(),
        b"<< /Type /Font /Subtype /Type0 /BaseFont /Own /Encoding /Identity-H /DescendantFonts [4 0 R] /ToUnicode 6 0 R >>",
        b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Own /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> "
        b"/FontDescriptor 5 0 R /DW 500 >>",
        b"<< /Type /FontDescriptor /FontName /Own /Flags 4 /FontBBox [0 0 1000 1000] /ItalicAngle 0 /Ascent 800 /Descent 0 /CapHeight 700 /StemV 80 >>",
        _stream(cmap),
        f"<< /Title <{(BOM_UTF16_BE + title.encode('utf-16-be')).hex()}> >>".encode() if title else b"<< >>",
    ]
    for number, lines in enumerate(pages):
        shown = "\n".join(f"<{line.encode('utf-16-be').hex()}> Tj 0 -14 Td" for line in lines)
        page = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> /Contents {9 + 2 * number} 0 R >>"
        )
        objects += [page.encode(), _stream(f"BT /F1 12 Tf 50 800 Td\n{shown}\nET".encode())]
    out = bytearray(b"%PDF-1.7\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info 7 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)


def _stream(data: bytes) -> bytes:
    return b"<< /Length %d >>\nstream\n%s\nendstream" % (len(data), data)
