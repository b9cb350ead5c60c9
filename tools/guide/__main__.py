"""`make docs`: write the tables of the documents, and the schema of the alerts' message, again."""

from tests.http import test_openapi
from tools.guide import promises
from tools.guide.costs import COSTS, cost_tables
from tools.guide.http import HTTP, http_tables
from tools.guide.marked import with_tables
from tools.guide.message import SCHEMA, schema_text
from tools.guide.missing import TESTING_YOUR_APP, missing_tables
from tools.guide.scaling import SCALING, scaling_tables
from tools.guide.tables import GUIDE, HOLDS, QUOTAS, hold_tables, quota_tables, tables

SCHEMA.write_text(schema_text())
test_openapi.PATH.write_text(test_openapi.written())
GUIDE.write_text(with_tables(GUIDE.read_text(), tables()))
HOLDS.write_text(with_tables(HOLDS.read_text(), hold_tables()))
QUOTAS.write_text(with_tables(QUOTAS.read_text(), quota_tables()))
promises.TESTING.write_text(with_tables(promises.TESTING.read_text(), promises.tables()))
HTTP.write_text(with_tables(HTTP.read_text(), http_tables()))
COSTS.write_text(with_tables(COSTS.read_text(), cost_tables()))
SCALING.write_text(with_tables(SCALING.read_text(), scaling_tables()))
TESTING_YOUR_APP.write_text(with_tables(TESTING_YOUR_APP.read_text(), missing_tables()))
