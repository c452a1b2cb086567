-- MySQL has no partial indexes: a query of it looks through all events, in parts.
DO 0;
