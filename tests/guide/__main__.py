"""`make docs`: write the guide's tables anew."""

from tests.guide.tables import GUIDE, with_tables

GUIDE.write_text(with_tables(GUIDE.read_text()))
