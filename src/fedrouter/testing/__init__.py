"""Contract suites and attacks that tests, benchmarks and other packages share; nothing here is used at run time."""
