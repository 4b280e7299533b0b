"""The APIs that clients speak and that are passed on byte for byte: each as far as routing reads it."""
