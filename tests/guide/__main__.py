"""`make docs`: write the guide's tables and the schema of the alerts' message anew."""

from tests.guide.message import SCHEMA, schema_text
from tests.guide.tables import GUIDE, with_tables

GUIDE.write_text(with_tables(GUIDE.read_text()))
SCHEMA.write_text(schema_text())
