"""The paper's theory, measured."""
