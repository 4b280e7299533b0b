"""Pictures and pages: what a run looks like to a person."""
