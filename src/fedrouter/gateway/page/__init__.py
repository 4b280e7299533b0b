"""The page: what the router does, in a browser. Static files, sign-in, and a JSON API of its own under /page/api."""
