"""A federation across machines: keys, the folders that hold them, and the Flower processes that use them."""
