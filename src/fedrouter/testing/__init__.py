"""Contract suites that tests and other packages share; nothing here is used at run time."""
