"""`make docs`: write the tables of the documents anew."""

from tests.guide import promises
from tests.guide.tables import GUIDE, with_tables

GUIDE.write_text(with_tables(GUIDE.read_text()))
promises.TESTING.write_text(with_tables(promises.TESTING.read_text(), promises.tables()))
